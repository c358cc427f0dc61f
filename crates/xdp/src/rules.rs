//! Rules that select the packets for the sockets.

use crate::error::XdpError;
use std::net::{IpAddr, Ipv6Addr};

/// Addresses in [`Rules`], at most.
pub const TARGETS_MAX: usize = 4;
/// Ports of one address, at most.
pub const PORTS_MAX: usize = 16;

/// Packets to select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address that the kernel does not have. Selects all unicast IP packets to it, fragments too; ARP requests and
    /// replies whose target protocol address it is; and IPv6 neighbour solicitations for it, also those to its
    /// solicited-node multicast address.
    Own(IpAddr),
    /// TCP and UDP packets to these ports of an address that the kernel has as well. The kernel still gets ARP,
    /// neighbour discovery and ICMP, all IP fragments, and packets with IPv6 extension headers.
    Ports {
        /// The address.
        address: IpAddr,
        /// Destination ports, for both TCP and UDP.
        ports: Vec<u16>,
    },
}

impl Target {
    const fn address(&self) -> IpAddr {
        match self {
            Self::Own(address) | Self::Ports { address, .. } => *address,
        }
    }
}

/// The rules of [`crate::Steering`]. Packets that no target selects pass to the kernel: those for other addresses and
/// ports, VLAN-tagged frames, and truncated packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Selected packets, at most [`TARGETS_MAX`] targets.
    pub targets: Vec<Target>,
    /// The program writes the arrival time in front of each packet: [`crate::Received::stamp_ns`].
    pub stamp: bool,
}

impl Rules {
    /// # Errors
    /// [`XdpError::TooManyRules`], [`XdpError::BadAddress`].
    pub(crate) fn check(&self) -> Result<(), XdpError> {
        at_most("addresses", self.targets.len(), TARGETS_MAX)?;
        for target in &self.targets {
            if !can_be_ours(target.address()) {
                return Err(XdpError::BadAddress { address: target.address() });
            }
            if let Target::Ports { ports, .. } = target {
                at_most("ports of an address", ports.len(), PORTS_MAX)?;
            }
        }
        Ok(())
    }

    /// True if the rules select no packet at all.
    pub(crate) fn match_nothing(&self) -> bool {
        let nothing = |target: &Target| matches!(target, Target::Ports { ports, .. } if ports.is_empty());
        self.targets.iter().all(nothing)
    }

    pub(crate) fn own_v6(&self) -> Vec<Ipv6Addr> {
        let own = |target: &Target| match target {
            Target::Own(IpAddr::V6(address)) => Some(*address),
            _ => None,
        };
        self.targets.iter().filter_map(own).collect()
    }

    /// The shared addresses, each with all ports that any target lists for it.
    pub(crate) fn shared(&self) -> Vec<(IpAddr, Vec<u16>)> {
        let mut shared: Vec<(IpAddr, Vec<u16>)> = Vec::new();
        for target in &self.targets {
            let Target::Ports { address, ports } = target else { continue };
            match shared.iter_mut().find(|(known, _)| known == address) {
                Some((_, known)) => known.extend(ports),
                None => shared.push((*address, ports.clone())),
            }
        }
        shared
    }
}

fn at_most(what: &'static str, found: usize, max: usize) -> Result<(), XdpError> {
    if found > max { Err(XdpError::TooManyRules { what, found, max }) } else { Ok(()) }
}

/// True for an address that packets can arrive for. Loopback is allowed: `lo` can be steered in SKB mode.
fn can_be_ours(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(address: &str) -> Target {
        Target::Own(address.parse().unwrap())
    }

    #[test]
    fn more_than_the_maxima_is_refused() {
        let rules = Rules { targets: vec![own("10.0.0.1"); TARGETS_MAX], stamp: false };
        assert!(rules.check().is_ok());
        let rules = Rules { targets: vec![own("10.0.0.1"); TARGETS_MAX + 1], stamp: false };
        assert!(matches!(rules.check(), Err(XdpError::TooManyRules { found: 5, .. })));
        let ports = vec![1; PORTS_MAX + 1];
        let rules =
            Rules { targets: vec![Target::Ports { address: [10, 0, 0, 1].into(), ports }], stamp: false };
        assert!(matches!(rules.check(), Err(XdpError::TooManyRules { found: 17, .. })));
    }

    #[test]
    fn addresses_that_no_host_can_own_are_rejected() {
        for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "ff02::1"] {
            let rules = Rules { targets: vec![own(address)], stamp: false };
            assert!(matches!(rules.check(), Err(XdpError::BadAddress { .. })), "{address}");
        }
    }

    #[test]
    fn ports_of_one_address_are_put_together() {
        let ports = |port| Target::Ports { address: [10, 0, 0, 1].into(), ports: vec![port] };
        let rules = Rules { targets: vec![ports(1), own("10.0.0.2"), ports(2)], stamp: false };
        assert_eq!(rules.shared(), [([10, 0, 0, 1].into(), vec![1, 2])]);
    }
}
