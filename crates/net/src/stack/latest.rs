//! A cache of the connection of the latest segment, because consecutive segments often belong to one connection.
//!
//! If a segment has the hardware addresses, IP addresses and ports of the segment before it, these were checked then
//! and lead to the same connection. This is the first half of Van Jacobson's header prediction (RFC 7323, 4.1). The
//! second half, the TCP fast path, is left out: every segment goes through all checks of RFC 9293.

use super::arrival::Arrival;
use crate::address::{ETHERNET_HEADER, PROTOCOL_TCP, pseudo_sum};
use crate::event::ConnId;
use crate::ip::CE;
use landfall_media::Sum;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet};
use std::ops::Range;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Longest headers up to the TCP ports, these included.
const HEADERS_MAX: usize = ETHERNET_HEADER + IPV6_HEADER + 4;

/// Headers of the latest segment, and its connection.
#[derive(Debug)]
pub(super) struct Latest {
    headers: [u8; HEADERS_MAX],
    ipv4: bool,
    conn: ConnId,
    /// Sum of the pseudo-header without its length.
    pseudo: Sum,
}

/// A segment whose headers match the latest one.
#[derive(Debug)]
pub(super) struct Again<'a> {
    pub(super) conn: ConnId,
    /// Source hardware address.
    pub(super) from_mac: [u8; 6],
    /// TCP header and payload, and their offset in the frame.
    pub(super) tcp: &'a [u8],
    pub(super) tcp_at: usize,
    pub(super) pseudo: Sum,
    pub(super) congested: bool,
}

impl Latest {
    /// The entry for a frame that was parsed as `arrival` and belongs to `conn`. `None` for unusual headers.
    pub(super) fn of(bytes: &[u8], arrival: &Arrival<'_>, conn: ConnId) -> Option<Self> {
        let (from, to, ipv4) = (arrival.ip.from, arrival.ip.to, arrival.ip.from.is_ipv4());
        let ip_header = if ipv4 { IPV4_HEADER } else { IPV6_HEADER };
        let known = bytes.get(..ETHERNET_HEADER + ip_header + 4)?;
        let mut headers = [0; HEADERS_MAX];
        headers[..known.len()].copy_from_slice(known);
        let usual = arrival.ip.payload_at == ip_header && arrival.ip.protocol == PROTOCOL_TCP;
        usual.then(|| Self { headers, ipv4, conn, pseudo: pseudo_sum(from, to, PROTOCOL_TCP, 0) })
    }

    /// The segment in `bytes`, if its headers are the usual ones and match. `None` means only that the frame must be
    /// parsed in full.
    #[inline]
    pub(super) fn again<'a>(&self, bytes: &'a [u8]) -> Option<Again<'a>> {
        let (ip, tcp_at, congestion, len) =
            if self.ipv4 { self.again_v4(bytes)? } else { self.again_v6(bytes)? };
        let end = ip + usize::from(len);
        let tcp = bytes.get(tcp_at..end)?;
        Some(Again {
            conn: self.conn,
            from_mac: *bytes[6..].first_chunk()?,
            tcp,
            tcp_at,
            pseudo: self.pseudo.plus(Sum::of_u32(tcp.len() as u32)),
            congested: congestion & 3 == CE,
        })
    }

    /// Offset from which the length counts, offset of TCP, the byte with the ECN bits, and the length.
    #[inline]
    fn again_v4(&self, bytes: &[u8]) -> Option<(usize, usize, u8, u16)> {
        const TCP_AT: usize = ETHERNET_HEADER + IPV4_HEADER;
        // The ranges: hardware addresses to header length; protocol; addresses and ports.
        let same = self.matches_at(bytes, [0..15, 23..24, 26..TCP_AT + 4]);
        let header = bytes.get(ETHERNET_HEADER..TCP_AT)?;
        let fragment = (header[6] & 0x3f) | header[7];
        if !same || fragment != 0 || !Sum::of(header).is_zero() {
            return None;
        }
        Some((ETHERNET_HEADER, TCP_AT, header[1], Ipv4Packet::new_unchecked(header).total_len()))
    }

    #[inline]
    fn again_v6(&self, bytes: &[u8]) -> Option<(usize, usize, u8, u16)> {
        const TCP_AT: usize = ETHERNET_HEADER + IPV6_HEADER;
        // The ranges: hardware addresses and type; next header; addresses and ports.
        let same = self.matches_at(bytes, [0..14, 20..21, 22..TCP_AT + 4]);
        let header = bytes.get(ETHERNET_HEADER..TCP_AT)?;
        if !same || header[0] >> 4 != 6 {
            return None;
        }
        Some((TCP_AT, TCP_AT, header[1] >> 4, Ipv6Packet::new_unchecked(header).payload_len()))
    }

    #[inline]
    fn matches_at(&self, bytes: &[u8], ranges: [Range<usize>; 3]) -> bool {
        ranges.into_iter().all(|range| bytes.get(range.clone()) == Some(&self.headers[range]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Path, Tuple};
    use crate::config::Config;
    use crate::packet::Packet;
    use crate::stack::Stack;
    use crate::tcp::emit::Header;
    use crate::tcp::segment::Flags;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn addresses(last: u8) -> [IpAddr; 2] {
        let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into());
        [Ipv4Addr::new(10, 0, 0, last).into(), v6.into()]
    }

    /// A frame from the peer.
    fn frame(v6: usize, markable: bool) -> Vec<u8> {
        let (local, remote) = ((addresses(2)[v6], 7).into(), (addresses(1)[v6], 80).into());
        let path = Path { tuple: Tuple { local, remote }, local_mac: PEER, remote_mac: OURS };
        let mut packet = Packet::default();
        let header = Header { flags: Flags { ack: true, ..Flags::default() }, markable, ..Header::default() };
        let mut builder = header.begin(&path, &mut packet);
        builder.add_bytes(b"payload");
        header.finish(&path, builder);
        packet.bytes
    }

    #[test]
    fn the_fast_path_agrees_with_the_full_parse() {
        let config = Config::new(OURS, (0..2).map(|v6| addresses(1)[v6]).collect());
        let stack = Stack::new(config, [1, 2]);
        let mut taken = 0;
        for v6 in 0..2 {
            let known = frame(v6, false);
            let arrival = stack.parse(&known, 0, 0).unwrap().unwrap();
            let latest = Latest::of(&known, &arrival, ConnId(5)).unwrap();
            assert!(latest.again(&known).is_some());
            for (at, bit) in (0..known.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                for fixed in [false, true] {
                    let mut other = frame(v6, at % 2 == 0);
                    other[at] ^= 1 << bit;
                    if fixed && v6 == 0 && at < 34 {
                        Ipv4Packet::new_unchecked(&mut other[14..34]).set_checksum(0);
                        let sum = Sum::of(&other[14..34]).checksum();
                        Ipv4Packet::new_unchecked(&mut other[14..34]).set_checksum(sum);
                    }
                    let Some(again) = latest.again(&other) else { continue };
                    taken += 1;
                    let full = stack.parse(&other, 0, 0).expect("taken").expect("IP");
                    let ports = full.ip.payload[..4] == known[again.tcp_at..again.tcp_at + 4];
                    assert!(ports && (full.ip.from, full.ip.to) == (arrival.ip.from, arrival.ip.to), "{at}");
                    assert_eq!((full.ip.protocol, full.from_mac), (PROTOCOL_TCP, again.from_mac), "{at}");
                    assert_eq!((full.ip.payload, full.ip.congested), (again.tcp, again.congested), "{at}");
                    assert_eq!(full.off as usize, again.tcp_at, "{at}");
                    let len = full.ip.payload.len();
                    assert_eq!(pseudo_sum(full.ip.from, full.ip.to, PROTOCOL_TCP, len), again.pseudo, "{at}");
                }
            }
            for len in 0..known.len() {
                assert!(latest.again(&known[..len]).is_none(), "{len} bytes");
            }
        }
        assert!(taken > 500, "{taken} frames differ in what may differ");
    }
}
