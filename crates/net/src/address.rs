//! Who talks to whom, and over which hardware addresses.

use crate::config::Mac;
use core::net::{IpAddr, SocketAddr};
use landfall_media::Sum;

/// Number of ICMP in IP headers.
pub(crate) const PROTOCOL_ICMP: u8 = 1;
/// Number of ICMPv6 in IP headers.
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
/// Number of TCP in IP headers.
pub(crate) const PROTOCOL_TCP: u8 = 6;
/// Number of UDP in IP headers.
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

impl Tuple {
    /// As bytes, for keyed hashes: addresses, then ports.
    pub(crate) fn key(&self) -> [u8; 36] {
        let mut key = [0; 36];
        key[..16].copy_from_slice(&octets(self.local.ip()));
        key[16..32].copy_from_slice(&octets(self.remote.ip()));
        key[32..34].copy_from_slice(&self.local.port().to_le_bytes());
        key[34..].copy_from_slice(&self.remote.port().to_le_bytes());
        key
    }
}

/// 16 octets of any address.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Where a packet to a peer goes: what its headers say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) tuple: Tuple,
    pub(crate) local_mac: Mac,
    /// Of the peer or of the router to it: who delivered its latest packet.
    pub(crate) remote_mac: Mac,
}

impl Path {
    /// Bytes of Ethernet and IP header.
    pub(crate) fn header_len(&self) -> usize {
        ETHERNET_HEADER + ip_header_len(self.tuple.local.ip())
    }
}

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// Bytes of an IP header without options.
pub(crate) const fn ip_header_len(address: IpAddr) -> usize {
    if address.is_ipv4() { 20 } else { 40 }
}

/// Sum of the pseudo-header of RFC 9293 (3.1) and RFC 8200 (8.1).
pub fn pseudo_sum(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Sum {
    let addresses = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Sum::of(&from.octets()).plus(Sum::of(&to.octets())),
        (IpAddr::V6(from), IpAddr::V6(to)) => Sum::of(&from.octets()).plus(Sum::of(&to.octets())),
        _ => Sum::ZERO,
    };
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    addresses.plus(Sum::of_word(u16::from(protocol))).plus(Sum::of_u32(len))
}
