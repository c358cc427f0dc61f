//! Network interfaces.

use crate::error::XdpError;
use crate::sys;
use std::net::IpAddr;

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` of `linux/if_arp.h`: the link types whose frames begin with an
/// Ethernet header.
const ETHERNET: [u16; 2] = [1, 772];

/// A network interface as it was when it was looked up, in the network namespace of the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes: without the Ethernet header.
    pub mtu: u32,
    /// Its IPv4 and IPv6 addresses.
    pub addresses: Vec<IpAddr>,
    /// Receive queues; 1 where the driver does not tell.
    pub rx_queues: u32,
    /// Transmit queues; 1 where the driver does not tell.
    pub tx_queues: u32,
    /// The driver, where it is known.
    pub driver: Option<String>,
    /// The network namespace that it is in.
    namespace: u64,
}

impl Interface {
    /// Looks `name` up.
    ///
    /// # Errors
    /// [`XdpError::NoInterface`], [`XdpError::NotEthernet`], or what else the kernel said.
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

    /// Queues that can both receive and transmit: as many [`crate::Socket`]s can be opened.
    pub fn queues(&self) -> u32 {
        self.rx_queues.min(self.tx_queues)
    }

    pub(crate) const fn namespace(&self) -> u64 {
        self.namespace
    }

    /// The index means another interface, or none, in other namespaces.
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
