//! Ethernet frames that carry UDP datagrams: parse and verify them, and build them.

use crate::engine::Clock;
use landfall_media::{Extent, Sum};
use landfall_net::pseudo_sum;
use landfall_pmnet::device::{Arrival, Side};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol, Ipv4Packet,
    Ipv4Repr, Ipv6Packet, Ipv6Repr, UdpPacket, UdpRepr,
};
use std::net::{IpAddr, SocketAddr};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;
/// Time to live of packets that are built here (RFC 1700's default).
const HOP_LIMIT: u8 = 64;

/// A hardware address.
pub(super) type Mac = [u8; 6];

/// A datagram in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Hardware address of the sender.
    pub(super) source: Mac,
    /// Hardware address of the receiver.
    pub(super) destination: Mac,
    /// Source address and port.
    pub(super) from: SocketAddr,
    /// Destination address and port.
    pub(super) to: SocketAddr,
    /// The datagram's payload.
    pub(super) payload: &'a [u8],
    /// Offset of the payload in the frame, bytes.
    pub(super) payload_at: usize,
}

/// Why the device does not handle a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The frame does not hold a whole UDP datagram over IP. It is forwarded unchanged.
    Foreign,
    /// A checksum is wrong. The frame is dropped.
    Checksum,
}

impl<'a> Frame<'a> {
    /// Parses a frame and verifies every checksum. A datagram over IPv4 may have none.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Unfit> {
        Self::read(bytes, true)
    }

    /// Parses a frame that this host sends. The UDP checksum is not verified, because the interface may have to fill it
    /// in.
    pub(super) fn parse_own(bytes: &'a [u8]) -> Result<Self, Unfit> {
        Self::read(bytes, false)
    }

    /// The datagram as an arrival at a side of the device. `packet` is the extent of its frame, or empty if the frame
    /// is not in the region.
    pub(super) fn arrival(&self, side: Side, packet: Extent) -> Arrival<'a> {
        Arrival {
            side,
            from: self.from,
            to: self.to,
            payload: self.payload,
            packet,
            header_at: self.payload_at,
            arrival_ns: Clock::unix_ns(),
        }
    }

    fn read(bytes: &'a [u8], verifies_udp: bool) -> Result<Self, Unfit> {
        let ethernet = EthernetFrame::new_checked(bytes).map_err(|_| Unfit::Foreign)?;
        let packet = &bytes[ETHERNET_BYTES..];
        let (from, to, udp_at, end) = match ethernet.ethertype() {
            EthernetProtocol::Ipv4 => parse_v4(packet)?,
            EthernetProtocol::Ipv6 => parse_v6(packet)?,
            _ => return Err(Unfit::Foreign),
        };
        let datagram = &packet[udp_at..end];
        let udp = UdpPacket::new_checked(datagram).map_err(|_| Unfit::Foreign)?;
        let datagram = &datagram[..usize::from(udp.len())];
        let has_none = udp.checksum() == 0 && from.is_ipv4();
        if verifies_udp
            && !has_none
            && !pseudo_sum(from, to, IpProtocol::Udp.into(), datagram.len()).plus(Sum::of(datagram)).is_zero()
        {
            return Err(Unfit::Checksum);
        }
        Ok(Self {
            source: ethernet.src_addr().0,
            destination: ethernet.dst_addr().0,
            from: SocketAddr::new(from, udp.src_port()),
            to: SocketAddr::new(to, udp.dst_port()),
            payload: &datagram[UDP_BYTES..],
            payload_at: ETHERNET_BYTES + udp_at + UDP_BYTES,
        })
    }
}

/// Source, destination, offset of the UDP header, and end of the packet.
type Place = (IpAddr, IpAddr, usize, usize);

fn parse_v4(bytes: &[u8]) -> Result<Place, Unfit> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| Unfit::Foreign)?;
    let header = usize::from(packet.header_len());
    let fragment = packet.more_frags() || packet.frag_offset() != 0;
    if packet.version() != 4 || header < 20 || fragment || packet.next_header() != IpProtocol::Udp {
        return Err(Unfit::Foreign);
    }
    if !Sum::of(&bytes[..header]).is_zero() {
        return Err(Unfit::Checksum);
    }
    Ok((packet.src_addr().into(), packet.dst_addr().into(), header, usize::from(packet.total_len())))
}

fn parse_v6(bytes: &[u8]) -> Result<Place, Unfit> {
    let packet = Ipv6Packet::new_checked(bytes).map_err(|_| Unfit::Foreign)?;
    if packet.version() != 6 || packet.next_header() != IpProtocol::Udp {
        return Err(Unfit::Foreign);
    }
    Ok((packet.src_addr().into(), packet.dst_addr().into(), packet.header_len(), packet.total_len()))
}

/// Builds a frame with a datagram. `None` if the addresses are of two families.
pub(super) fn make(
    (source, destination): (Mac, Mac),
    from: SocketAddr,
    to: SocketAddr,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let ip_bytes = if from.is_ipv4() { 20 } else { 40 };
    let udp_at = ETHERNET_BYTES + ip_bytes;
    let mut bytes = vec![0; udp_at + UDP_BYTES + payload.len()];
    let payload_len = UDP_BYTES + payload.len();
    let checksums = ChecksumCapabilities::default();
    let ethertype = match (from.ip(), to.ip()) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let next_header = IpProtocol::Udp;
            let repr = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: HOP_LIMIT };
            repr.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[ETHERNET_BYTES..]), &checksums);
            EthernetProtocol::Ipv4
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let next_header = IpProtocol::Udp;
            let repr = Ipv6Repr { src_addr, dst_addr, next_header, payload_len, hop_limit: HOP_LIMIT };
            repr.emit(&mut Ipv6Packet::new_unchecked(&mut bytes[ETHERNET_BYTES..]));
            EthernetProtocol::Ipv6
        }
        _ => return None,
    };
    let ends = (EthernetAddress(source), EthernetAddress(destination));
    let repr = EthernetRepr { src_addr: ends.0, dst_addr: ends.1, ethertype };
    repr.emit(&mut EthernetFrame::new_unchecked(&mut bytes[..]));
    let udp = UdpRepr { src_port: from.port(), dst_port: to.port() };
    let fill = |into: &mut [u8]| into.copy_from_slice(payload);
    let mut packet = UdpPacket::new_unchecked(&mut bytes[udp_at..]);
    let (from, to) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
    udp.emit(&mut packet, &from, &to, payload.len(), fill, &checksums);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        make(([2; 6], [4; 6]), from.parse().unwrap(), to.parse().unwrap(), payload).unwrap()
    }

    #[test]
    fn a_frame_that_was_built_is_parsed_again() {
        for (from, to) in [("10.0.0.1:51000", "10.0.0.2:7"), ("[fd00::1]:9", "[fd00::2]:52000")] {
            for payload in [&b""[..], b"x", b"a longer payload, of an odd length"] {
                let bytes = frame(from, to, payload);
                let parsed = Frame::parse(&bytes).unwrap();
                assert_eq!((parsed.from.to_string(), parsed.to.to_string()), (from.into(), to.into()));
                assert_eq!((parsed.payload, parsed.source, parsed.destination), (payload, [2; 6], [4; 6]));
                assert_eq!(&bytes[parsed.payload_at..], payload);
            }
        }
    }

    #[test]
    fn a_flipped_bit_behind_the_ethernet_header_is_detected() {
        let bytes = frame("10.0.0.1:51000", "10.0.0.2:7", b"request");
        for at in ETHERNET_BYTES..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                let good = Frame::parse(&bad).map(|frame| frame.payload == b"request");
                assert!(good.is_err(), "byte {at}, bit {bit}: {good:?}");
            }
        }
    }

    #[test]
    fn a_datagram_over_ipv4_may_lack_its_checksum() {
        let mut bytes = frame("10.0.0.1:51000", "10.0.0.2:7", b"request");
        bytes[40..42].fill(0);
        assert_eq!(Frame::parse(&bytes).unwrap().payload, b"request");
    }

    #[test]
    fn the_padding_of_short_frames_is_not_part_of_the_payload() {
        let mut bytes = frame("10.0.0.1:51000", "10.0.0.2:7", b"x");
        bytes.resize(60, 0);
        assert_eq!(Frame::parse(&bytes).unwrap().payload, b"x");
    }
}
