//! Looks up network interfaces.

use crate::error::XdpError;
use crate::sys;
use std::net::IpAddr;

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` of `linux/if_arp.h`: the link types whose frames begin with an
/// Ethernet header.
const ETHERNET: [u16; 2] = [1, 772];

/// A network interface: a snapshot of its properties in the network namespace of the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index.
    pub index: u32,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes: without the Ethernet header.
    pub mtu: u32,
    /// IPv4 and IPv6 addresses.
    pub addresses: Vec<IpAddr>,
    /// Receive queues; 1 if the driver does not report the number.
    pub rx_queues: u32,
    /// Transmit queues; 1 if the driver does not report the number.
    pub tx_queues: u32,
    /// Name of the driver, if it is known.
    pub driver: Option<String>,
    /// Network namespace of the interface.
    namespace: u64,
}

impl Interface {
    /// Looks up the interface `name`.
    ///
    /// # Errors
    /// [`XdpError::NoInterface`], [`XdpError::NotEthernet`], or another error of the kernel.
    pub fn find(name: &str) -> Result<Self, XdpError> {
        let failed = |source| XdpError::from_io(name, "ask for the interface", source);
        let link = sys::link(name).map_err(failed)?;
        if !ETHERNET.contains(&link.link_type) {
            return Err(XdpError::NotEthernet { name: name.to_owned(), link_type: link.link_type });
        }
        Ok(Self {
            name: name.to_owned(),
            index: link.index,
            mac: link.mac,
            mtu: link.mtu,
            addresses: sys::addresses(name).map_err(failed)?,
            rx_queues: link.queues.0,
            tx_queues: link.queues.1,
            driver: link.driver,
            namespace: link.namespace,
        })
    }

    /// Queues that can both receive and transmit: the number of [`crate::Socket`]s that can be opened.
    pub fn queues(&self) -> u32 {
        self.rx_queues.min(self.tx_queues)
    }

    pub(crate) const fn namespace(&self) -> u64 {
        self.namespace
    }

    /// Checks that the calling thread is in the interface's namespace: elsewhere, the index belongs to another
    /// interface or to none.
    pub(crate) fn check_namespace(&self) -> Result<(), XdpError> {
        let failed = |source| XdpError::from_io(&self.name, "ask for the network namespace", source);
        let here = sys::current_namespace().map_err(failed)?;
        let same = here == self.namespace;
        if same { Ok(()) } else { Err(XdpError::OtherNamespace { name: self.name.clone() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_with_its_index_and_addresses() {
        let lo = Interface::find("lo").unwrap();
        assert!(lo.index > 0 && lo.mtu > 1000 && lo.queues() > 0, "{lo:?}");
        assert!(lo.mac == [0; 6] && lo.addresses.iter().all(IpAddr::is_loopback), "{lo:?}");
    }

    #[test]
    fn names_of_no_interface_are_refused() {
        for name in ["", "nosuchif", "a-name-that-is-too-long", "lo\0"] {
            assert!(matches!(Interface::find(name), Err(XdpError::NoInterface { .. })), "{name:?}");
        }
    }
}
