//! Addresses of the two ends of a packet: IP addresses and ports, and hardware addresses.

use crate::config::Mac;
use core::net::{IpAddr, SocketAddr};
use landfall_media::Sum;

/// Protocol number of ICMP in IP headers.
pub(crate) const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of ICMPv6 in IP headers.
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
/// Protocol number of TCP in IP headers.
pub(crate) const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP in IP headers.
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// Local and remote end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Local end.
    pub local: SocketAddr,
    /// Remote end: the peer.
    pub remote: SocketAddr,
}

impl Tuple {
    /// The tuple as bytes, for keyed hashes: addresses, then ports.
    pub(crate) fn key(&self) -> [u8; 36] {
        let mut key = [0; 36];
        key[..16].copy_from_slice(&octets(self.local.ip()));
        key[16..32].copy_from_slice(&octets(self.remote.ip()));
        key[32..34].copy_from_slice(&self.local.port().to_le_bytes());
        key[34..].copy_from_slice(&self.remote.port().to_le_bytes());
        key
    }
}

/// An address as 16 octets; an IPv4 address is padded.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The addresses in the headers of packets to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) tuple: Tuple,
    pub(crate) local_mac: Mac,
    /// Hardware address of the peer, or of the router to it: the source address of the peer's latest packet.
    pub(crate) remote_mac: Mac,
}

impl Path {
    /// Length of the Ethernet and IP headers, bytes.
    pub(crate) fn header_len(&self) -> usize {
        ETHERNET_HEADER + ip_header_len(self.tuple.local.ip())
    }
}

/// Length of an Ethernet header, bytes.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// Length of an IP header without options, bytes.
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
