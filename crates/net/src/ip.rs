//! IP and Ethernet headers: parsing of received ones, writing of sent ones.

use crate::address::ETHERNET_HEADER;
use crate::config::Mac;
use crate::stats::Drop;
use core::net::IpAddr;
use landfall_media::Sum;
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet};

/// Time to live of packets that the stack sends (RFC 1700's default).
const HOP_LIMIT: u8 = 64;
/// ECN-capable transport, codepoint ECT(0) (RFC 3168, 5).
const ECT0: u8 = 2;
/// Congestion experienced (RFC 3168, 5).
pub(crate) const CE: u8 = 3;

/// A parsed IP packet: the fields of its header, checked, and its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpPacket<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) congested: bool,
    pub(crate) hop_limit: u8,
    pub(crate) payload: &'a [u8],
    /// Offset of the payload in the bytes that were parsed.
    pub(crate) payload_at: usize,
}

/// Parses and checks an IPv4 packet (RFC 791).
pub(crate) fn parse_v4(bytes: &[u8]) -> Result<IpPacket<'_>, Drop> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| Drop::Malformed)?;
    if packet.version() != 4 || packet.header_len() < 20 {
        return Err(Drop::Malformed);
    }
    let header_len = usize::from(packet.header_len());
    if !Sum::of(&bytes[..header_len]).is_zero() {
        return Err(Drop::IpChecksum);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err(Drop::Fragment);
    }
    let total = usize::from(packet.total_len());
    Ok(IpPacket {
        from: packet.src_addr().into(),
        to: packet.dst_addr().into(),
        protocol: packet.next_header().into(),
        congested: packet.ecn() == CE,
        hop_limit: packet.hop_limit(),
        payload: &bytes[header_len..total],
        payload_at: header_len,
    })
}

/// Parses and checks an IPv6 packet (RFC 8200). Hop-by-hop, routing and destination options are skipped.
pub(crate) fn parse_v6(bytes: &[u8]) -> Result<IpPacket<'_>, Drop> {
    /// Extension headers of one packet, at most.
    const EXTENSIONS_MAX: usize = 4;
    let packet = Ipv6Packet::new_checked(bytes).map_err(|_| Drop::Malformed)?;
    if packet.version() != 6 {
        return Err(Drop::Malformed);
    }
    let total = packet.total_len();
    let (mut protocol, mut at) = (u8::from(packet.next_header()), 40);
    for _ in 0..EXTENSIONS_MAX {
        let header = bytes[..total].get(at..at + 4).ok_or(Drop::Malformed);
        match IpProtocol::from(protocol) {
            IpProtocol::HopByHop | IpProtocol::Ipv6Opts => {}
            // With segments left, another node has to forward the packet (RFC 8200, 4.4; RFC 5095).
            IpProtocol::Ipv6Route if header?[3] != 0 => return Err(Drop::NotOurs),
            IpProtocol::Ipv6Route => {}
            IpProtocol::Ipv6Frag => return Err(Drop::Fragment),
            _ => break,
        }
        let header = header?;
        protocol = header[0];
        at += 8 * (usize::from(header[1]) + 1);
    }
    Ok(IpPacket {
        from: packet.src_addr().into(),
        to: packet.dst_addr().into(),
        protocol,
        congested: packet.traffic_class() & 3 == CE,
        hop_limit: packet.hop_limit(),
        payload: bytes[..total].get(at..).ok_or(Drop::Malformed)?,
        payload_at: at,
    })
}

/// Writes the Ethernet header of a packet; `family` tells whether the packet is IPv4 or IPv6.
pub(crate) fn write_ethernet(bytes: &mut [u8], from: Mac, to: Mac, family: IpAddr) {
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..ETHERNET_HEADER]);
    frame.set_src_addr(EthernetAddress(from));
    frame.set_dst_addr(EthernetAddress(to));
    frame.set_ethertype(if family.is_ipv4() { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 });
}

/// Writes an IP header in front of `len` bytes of payload.
pub(crate) fn write(bytes: &mut [u8], from: IpAddr, to: IpAddr, protocol: u8, len: usize, markable: bool) {
    let ecn = if markable { ECT0 } else { 0 };
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let bytes = &mut bytes[..20];
            let mut packet = Ipv4Packet::new_unchecked(&mut *bytes);
            packet.set_version(4);
            packet.set_header_len(20);
            packet.set_dscp(0);
            packet.set_ecn(ecn);
            packet.set_total_len((20 + len) as u16);
            // Packets are never fragmented, so they need no identification (RFC 6864, 4.1).
            packet.set_ident(0);
            packet.clear_flags();
            packet.set_dont_frag(true);
            packet.set_frag_offset(0);
            packet.set_hop_limit(HOP_LIMIT);
            packet.set_next_header(IpProtocol::from(protocol));
            packet.set_src_addr(from);
            packet.set_dst_addr(to);
            packet.set_checksum(0);
            let checksum = Sum::of(bytes).checksum();
            Ipv4Packet::new_unchecked(bytes).set_checksum(checksum);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut packet = Ipv6Packet::new_unchecked(&mut bytes[..40]);
            packet.set_version(6);
            packet.set_traffic_class(ecn);
            packet.set_flow_label(0);
            packet.set_payload_len(len as u16);
            packet.set_next_header(IpProtocol::from(protocol));
            // Neighbours accept neighbour discovery only from the link itself (RFC 4861, 6.1): with the hop limit that
            // no forwarded packet has.
            packet.set_hop_limit(if IpProtocol::from(protocol) == IpProtocol::Icmpv6 {
                255
            } else {
                HOP_LIMIT
            });
            packet.set_src_addr(from);
            packet.set_dst_addr(to);
        }
        _ => unreachable!("both ends of a packet are of one family"),
    }
}
