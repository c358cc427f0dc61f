//! Several segments of one connection as one long packet, which the kernel or its device cuts again: TCP
//! segmentation offload.

use crate::address::{ETHERNET_HEADER, PROTOCOL_TCP, pseudo_sum};
use crate::packet::{Packet, Piece};
use core::net::IpAddr;
use landfall_media::Sum;
use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket};

/// Bytes of a burst's frame at most: IPv4's longest packet, and below what Linux takes (`gso_max_size`).
const LEN_MAX: usize = u16::MAX as usize;
/// Pieces of a burst at most: `IOV_MAX` less room for headers.
const PIECES_MAX: usize = 1000;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// Fields of the TCP header (RFC 9293, 3.1).
const SEQ: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Consecutive segments of one connection, gathered as [`crate::Stack::poll_transmit`] fills them.
///
/// The segments have the same headers, but for what follows from their place; all but the last have the same
/// length. TCP keeps account of them one by one, so that losses inside a burst are found and sent again as ever.
#[derive(Debug, Default)]
pub struct Burst {
    packet: Packet,
    segments: usize,
    shape: Option<Shape>,
    /// Bytes of payload of every segment but the last.
    segment_len: usize,
    /// The sequence number that continues the burst; `None`: nothing does.
    next: Option<u32>,
    len: usize,
}

/// What whoever cuts a burst must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the headers, from Ethernet's on.
    pub header_len: u16,
    /// Bytes of payload of each packet but the last.
    pub segment_len: u16,
    /// Where the TCP header begins, and with it what the checksum covers.
    pub tcp_at: u16,
    /// Where the checksum lies in the TCP header.
    pub checksum_at: u16,
    /// Over IPv4, not IPv6.
    pub ipv4: bool,
}

/// Where the headers of a segment lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    ipv4: bool,
    tcp_at: usize,
    header_len: usize,
}

impl Shape {
    /// `None`: no TCP.
    fn of(bytes: &[u8]) -> Option<Self> {
        let ipv4 = match bytes.get(12..ETHERNET_HEADER)? {
            [0x08, 0x00] => true,
            [0x86, 0xdd] => false,
            _ => return None,
        };
        let (protocol_at, ip_len) = if ipv4 { (9, IPV4_HEADER) } else { (6, IPV6_HEADER) };
        let tcp_at = ETHERNET_HEADER + ip_len;
        let is_tcp = *bytes.get(ETHERNET_HEADER + protocol_at)? == PROTOCOL_TCP;
        let words = usize::from(*bytes.get(tcp_at + DATA_OFFSET)? >> 4);
        is_tcp.then_some(Self { ipv4, tcp_at, header_len: tcp_at + 4 * words })
    }

    /// Ranges of the headers in which segments of one burst agree.
    fn fixed(self) -> [std::ops::Range<usize>; 6] {
        let ip = ETHERNET_HEADER;
        let tcp = self.tcp_at;
        // Total length and header checksum; the payload's length.
        let (len, sum) = if self.ipv4 { (ip + 2, ip + 10) } else { (ip + 4, ip + 6) };
        [
            0..len,
            len + 2..sum,
            if self.ipv4 { sum + 2..tcp + SEQ } else { sum..tcp + SEQ },
            tcp + SEQ + 4..tcp + FLAGS,
            tcp + FLAGS + 1..tcp + CHECKSUM,
            tcp + CHECKSUM + 2..self.header_len,
        ]
    }

    fn seq(self, bytes: &[u8]) -> u32 {
        TcpPacket::new_unchecked(&bytes[self.tcp_at..]).seq_number().0.cast_unsigned()
    }

    fn addresses(self, bytes: &[u8]) -> (IpAddr, IpAddr) {
        let ip = &bytes[ETHERNET_HEADER..self.tcp_at];
        if self.ipv4 {
            let ip = Ipv4Packet::new_unchecked(ip);
            (ip.src_addr().into(), ip.dst_addr().into())
        } else {
            let ip = Ipv6Packet::new_unchecked(ip);
            (ip.src_addr().into(), ip.dst_addr().into())
        }
    }
}

/// Addresses and ports, which follow each other; `None`: no TCP.
fn flow_of(bytes: &[u8]) -> Option<&[u8]> {
    let shape = Shape::of(bytes)?;
    let addresses_len = if shape.ipv4 { 2 * 4 } else { 2 * 16 };
    bytes.get(shape.tcp_at - addresses_len..shape.tcp_at + SEQ)
}

impl Burst {
    /// Segments gathered.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// True while a further segment may be added.
    pub fn is_open(&self) -> bool {
        self.next.is_some()
    }

    /// What is to be sent: after [`Self::seal`] the burst, and a single packet in any case.
    pub fn packet(&self) -> &Packet {
        &self.packet
    }

    /// True if `packet` belongs to the same connection.
    pub fn is_of_flow(&self, packet: &Packet) -> bool {
        let flow = flow_of(&self.packet.bytes);
        flow.is_some() && flow == flow_of(&packet.bytes)
    }

    /// Begins anew with `packet`, in exchange for the buffers of what was gathered before.
    pub fn begin(&mut self, packet: &mut Packet) {
        std::mem::swap(&mut self.packet, packet);
        (self.segments, self.len, self.next) = (1, self.packet.len(), None);
        let bytes = &self.packet.bytes;
        self.shape = Shape::of(bytes);
        if let Some(shape) = self.shape {
            self.segment_len = self.len - shape.header_len;
            let may_go_on = self.segment_len > 0 && bytes[shape.tcp_at + FLAGS] == ACK;
            self.next = may_go_on.then(|| shape.seq(bytes).wrapping_add(self.segment_len as u32));
        }
    }

    /// Adds a packet if it continues the burst; true if it did.
    pub fn add(&mut self, packet: &Packet) -> bool {
        let (Some(shape), Some(next)) = (self.shape, self.next) else { return false };
        let (ours, theirs) = (&self.packet.bytes, &packet.bytes);
        let continues = theirs.len() >= shape.header_len
            && shape.seq(theirs) == next
            && shape.fixed().into_iter().all(|range| ours[range.clone()] == theirs[range]);
        if !continues {
            return false;
        }
        let payload = packet.len() - shape.header_len;
        let flags = theirs[shape.tcp_at + FLAGS];
        let fits = (1..=self.segment_len).contains(&payload)
            && self.len + payload <= LEN_MAX
            && self.packet.pieces.len() + packet.pieces.len() <= PIECES_MAX;
        if !fits || flags & ACK == 0 || flags & !(ACK | PSH | FIN) != 0 {
            return false;
        }
        self.append(packet, shape.header_len);
        self.packet.bytes[shape.tcp_at + FLAGS] |= flags;
        self.segments += 1;
        self.len += payload;
        let may_go_on = payload == self.segment_len && flags == ACK;
        self.next = may_go_on.then(|| next.wrapping_add(payload as u32));
        true
    }

    /// Adds a packet's payload, wherever its pieces lie.
    fn append(&mut self, packet: &Packet, header_len: usize) {
        let (old, header_len) = (self.packet.bytes.len() as u16, header_len as u16);
        self.packet.bytes.extend_from_slice(&packet.bytes[usize::from(header_len)..]);
        let moved = |at: u16| at - header_len + old;
        for piece in &packet.pieces {
            match *piece {
                Piece::Bytes { end, .. } if end <= header_len => {}
                Piece::Bytes { start, end } => {
                    let (start, end) = (moved(start.max(header_len)), moved(end));
                    self.packet.pieces.push(Piece::Bytes { start, end });
                }
                Piece::Stored(extent) => self.packet.pieces.push(Piece::Stored(extent)),
            }
        }
    }

    /// Fills in the headers of the long packet and says how to cut it; `None` for a single packet, which is sent
    /// as it is. The TCP checksum then covers addresses and length only: whoever cuts adds the rest.
    pub fn seal(&mut self) -> Option<Cut> {
        let shape = self.shape.filter(|_| self.segments > 1)?;
        self.next = None;
        let (from, to) = shape.addresses(&self.packet.bytes);
        let tcp_len = self.len - shape.tcp_at;
        let (link, tcp) = self.packet.bytes.split_at_mut(shape.tcp_at);
        let sum = pseudo_sum(from, to, PROTOCOL_TCP, tcp_len);
        TcpPacket::new_unchecked(tcp).set_checksum(!sum.checksum());
        let header = &mut link[ETHERNET_HEADER..];
        if shape.ipv4 {
            let mut ip = Ipv4Packet::new_unchecked(&mut *header);
            ip.set_total_len((self.len - ETHERNET_HEADER) as u16);
            ip.set_checksum(0);
            let checksum = Sum::of(header).checksum();
            Ipv4Packet::new_unchecked(header).set_checksum(checksum);
        } else {
            Ipv6Packet::new_unchecked(header).set_payload_len(tcp_len as u16);
        }
        Some(Cut {
            header_len: shape.header_len as u16,
            segment_len: self.segment_len as u16,
            tcp_at: shape.tcp_at as u16,
            checksum_at: CHECKSUM as u16,
            ipv4: shape.ipv4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Path;
    use crate::tcp::emit::Header;
    use crate::tcp::segment::Flags;
    use crate::tcp::seq::Seq;
    use crate::{Tuple, ip};
    use core::net::{Ipv4Addr, Ipv6Addr};
    use landfall_media::Extent;
    use proptest::prelude::*;
    use smoltcp::wire::TcpSeqNumber;

    const STORED: u64 = 1 << 20;

    fn path(v4: bool, port: u16) -> Path {
        let [local, remote] = if v4 {
            [[10, 0, 0, 1], [10, 0, 0, 2]].map(|address| IpAddr::from(Ipv4Addr::from(address)))
        } else {
            [1, 2].map(|last| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)))
        };
        let tuple = Tuple { local: (local, 80).into(), remote: (remote, port).into() };
        Path { tuple, local_mac: [2, 0, 0, 0, 0, 1], remote_mac: [2, 0, 0, 0, 0, 2] }
    }

    /// What is stored at an offset.
    fn stored(extent: Extent) -> Vec<u8> {
        (extent.off..extent.end()).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    /// A segment of `inline` bytes and `stored` ones.
    fn segment(path: &Path, header: Header, (inline, len): (usize, u32)) -> Packet {
        let mut packet = Packet::default();
        let mut builder = header.begin(path, &mut packet);
        builder.add_bytes(&vec![b'i'; inline]);
        if len > 0 {
            let extent = Extent::new(STORED + u64::from(header.seq.0) * 3, len);
            builder.add_stored(extent, Sum::of(&stored(extent)));
        }
        header.finish(path, builder);
        packet
    }

    fn ack() -> Header {
        let flags = Flags { ack: true, ..Flags::default() };
        Header { ack: Seq(77), flags, window: 500, ..Header::default() }
    }

    fn flat(packet: &Packet) -> Vec<u8> {
        let bytes = |piece: &Piece| match *piece {
            Piece::Bytes { start, end } => packet.bytes[usize::from(start)..usize::from(end)].to_vec(),
            Piece::Stored(extent) => stored(extent),
        };
        packet.pieces.iter().flat_map(bytes).collect()
    }

    /// Cuts a burst as a device does: lengths, sequence numbers and checksums of each packet follow from its place, and
    /// PSH and FIN are the last one's.
    fn cut(frame: &[u8], how: Cut) -> Vec<Vec<u8>> {
        let (header, payload) = frame.split_at(usize::from(how.header_len));
        let tcp_at = usize::from(how.tcp_at);
        let chunks: Vec<&[u8]> = payload.chunks(usize::from(how.segment_len)).collect();
        let shape = Shape::of(header).unwrap();
        let (from, to) = shape.addresses(header);
        let first = shape.seq(header);
        let make = |(index, chunk): (usize, &&[u8])| {
            let mut packet = [header, chunk].concat();
            let seq = first.wrapping_add((index * usize::from(how.segment_len)) as u32);
            TcpPacket::new_unchecked(&mut packet[tcp_at..]).set_seq_number(TcpSeqNumber(seq.cast_signed()));
            if index + 1 < chunks.len() {
                packet[tcp_at + FLAGS] &= !(PSH | FIN);
            }
            let tcp_len = packet.len() - tcp_at;
            ip::write(&mut packet[ETHERNET_HEADER..], from, to, PROTOCOL_TCP, tcp_len, false);
            assert_eq!(usize::from(how.checksum_at), CHECKSUM);
            let pseudo = !pseudo_sum(from, to, PROTOCOL_TCP, frame.len() - tcp_at).checksum();
            let mut tcp = TcpPacket::new_unchecked(&mut packet[tcp_at..]);
            assert_eq!(tcp.checksum(), pseudo, "the sum of addresses and length");
            tcp.set_checksum(0);
            let sum = pseudo_sum(from, to, PROTOCOL_TCP, tcp_len).plus(Sum::of(&packet[tcp_at..]));
            TcpPacket::new_unchecked(&mut packet[tcp_at..]).set_checksum(sum.checksum());
            packet
        };
        chunks.iter().enumerate().map(make).collect()
    }

    /// The packets that arrive when `packets` are sent in bursts, and how many bursts there were.
    fn through_bursts(packets: &[Packet]) -> (Vec<Vec<u8>>, usize) {
        let (mut burst, mut out, mut bursts) = (Burst::default(), Vec::new(), 0);
        let mut send = |burst: &mut Burst| {
            bursts += 1;
            match burst.seal() {
                Some(how) => out.extend(cut(&flat(burst.packet()), how)),
                None => out.push(flat(burst.packet())),
            }
        };
        for packet in packets {
            if burst.segments() > 0 && burst.add(packet) {
                continue;
            }
            if burst.segments() > 0 {
                send(&mut burst);
            }
            burst.begin(&mut packet.clone());
        }
        send(&mut burst);
        (out, bursts)
    }

    fn check(packets: &[Packet], bursts: usize) {
        let (arrived, made) = through_bursts(packets);
        assert_eq!(arrived, packets.iter().map(flat).collect::<Vec<_>>());
        assert_eq!(made, bursts);
    }

    fn run(path: &Path, lens: &[(usize, u32)]) -> Vec<Packet> {
        let mut header = ack();
        let mut packets = Vec::new();
        for len in lens {
            packets.push(segment(path, header, *len));
            header.seq += len.0 as u32 + len.1;
        }
        packets
    }

    #[test]
    fn full_segments_and_a_short_last_one_are_one_burst() {
        for v4 in [true, false] {
            check(&run(&path(v4, 9), &[(7, 1441), (0, 1448), (1448, 0), (12, 30)]), 1);
        }
    }

    #[test]
    fn a_short_segment_ends_a_burst_and_a_longer_one_begins_the_next() {
        check(&run(&path(true, 9), &[(0, 100), (0, 90), (0, 100), (0, 100), (0, 101)]), 3);
    }

    #[test]
    fn push_and_fin_end_a_burst_and_are_its_last_packets() {
        let path = path(true, 9);
        let mut packets = run(&path, &[(0, 100), (0, 100)]);
        let mut header = ack();
        header.seq += 200;
        header.flags.psh = true;
        packets.push(segment(&path, header, (0, 100)));
        header.seq += 100;
        header.flags.fin = true;
        packets.push(segment(&path, header, (0, 100)));
        check(&packets, 2);
    }

    #[test]
    fn what_differs_does_not_join() {
        let mut header = ack();
        header.seq += 100;
        let same = segment(&path(true, 9), header, (0, 100));
        let first = segment(&path(true, 9), ack(), (0, 100));
        check(&[first.clone(), same], 1);
        let with = |change: fn(&mut Header)| {
            let mut other = header;
            change(&mut other);
            segment(&path(true, 9), other, (0, 100))
        };
        let others = [
            segment(&path(true, 10), header, (0, 100)),
            segment(&path(false, 9), header, (0, 100)),
            with(|header| header.seq += 1),
            with(|header| header.ack += 1),
            with(|header| header.window += 1),
            with(|header| header.markable = true),
            with(|header| header.flags.ece = true),
            with(|header| header.flags.rst = true),
            with(|header| header.options.timestamps = Some((1, 2))),
            segment(&path(true, 9), header, (0, 0)),
        ];
        for other in others {
            check(&[first.clone(), other], 2);
        }
    }

    #[test]
    fn a_burst_is_no_longer_than_an_ip_packet_may_be() {
        check(&run(&path(true, 9), &[(0, 1448); 90]), 2);
        check(&run(&path(true, 9), &[(0, 1448); 91]), 3);
        check(&run(&path(false, 9), &[(0, 1428); 46]), 2);
    }

    #[test]
    fn what_is_no_tcp_goes_alone() {
        let mut packet = Packet::default();
        packet.set_bytes(&[0; 60]);
        check(&[packet.clone(), packet], 2);
    }

    #[test]
    fn a_flow_is_told_by_addresses_and_ports() {
        let mut burst = Burst::default();
        burst.begin(&mut segment(&path(true, 9), ack(), (0, 100)));
        assert!(burst.is_of_flow(&segment(&path(true, 9), ack(), (0, 0))));
        assert!(!burst.is_of_flow(&segment(&path(true, 8), ack(), (0, 100))));
        assert!(!burst.is_of_flow(&segment(&path(false, 9), ack(), (0, 100))));
    }

    proptest! {
        #[test]
        fn whatever_is_gathered_arrives_as_it_was(
            v4: bool,
            segments in prop::collection::vec((0..4_usize, 0..3_usize, 0..200_u32, 0..8_u8, 0..3_u32), 1..60),
        ) {
            let path = path(v4, 9);
            let mut header = ack();
            let mut packets = Vec::new();
            for (kind, inline, len, flags, gap) in segments {
                let len = if kind < 3 { 100 } else { len };
                header.flags.psh = flags == 1;
                header.flags.fin = flags == 2;
                header.seq += if gap == 2 { 1 } else { 0 };
                packets.push(segment(&path, header, (inline, len)));
                header.seq += inline as u32 + len;
            }
            let (arrived, _) = through_bursts(&packets);
            prop_assert_eq!(arrived, packets.iter().map(flat).collect::<Vec<_>>());
        }
    }
}
