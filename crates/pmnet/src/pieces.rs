//! Requests and responses that are longer than a packet: splitting them into pieces, and reassembling the pieces.

use crate::wire::{
    Body, EXTENSION_BYTES_MAX, FRAGMENTS_MAX, Fragment, HEADER_BYTES, IPV4_UDP_BYTES, IPV6_UDP_BYTES, Packet,
    Part, RESPONSE_WINDOW,
};
use core::ops::Range;
use crc_fast::CrcAlgorithm;

/// Most packets that a server sends for one response request.
pub(crate) const RESPONSE_WINDOW_MAX: usize = 256;
/// Bytes of the extension that holds a fragment's position.
const PLACE_BYTES: usize = 8;

/// How many bytes fit into the packets of one path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes that a packet has for extension and body, after PMNet's header.
    room: usize,
}

impl Sizes {
    /// For a path with this MTU. With an MTU that is too small, each packet still carries one byte.
    pub(crate) fn new(mtu: u16, ipv6: bool) -> Self {
        let below = if ipv6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES } + HEADER_BYTES;
        Self { room: usize::from(mtu).saturating_sub(below).max(EXTENSION_BYTES_MAX + 1) }
    }

    /// Most bytes of an update.
    pub(crate) fn update_max(self) -> usize {
        (self.room - PLACE_BYTES) * usize::from(FRAGMENTS_MAX)
    }

    /// Most bytes of a bypass.
    pub(crate) fn bypass_max(self) -> usize {
        (self.room - EXTENSION_BYTES_MAX) * usize::from(FRAGMENTS_MAX)
    }

    /// Number of packets that an update of `len` bytes needs.
    pub(crate) fn update_packets(self, len: usize) -> u32 {
        if len <= self.room { 1 } else { len.div_ceil(self.room - PLACE_BYTES) as u32 }
    }

    /// An update's packets, numbered from `first` on.
    pub(crate) fn update(self, session: u16, first: u32, request: &[u8]) -> Vec<Vec<u8>> {
        if request.len() <= self.room {
            return vec![Packet::new(session, first, Body::Update(request)).to_bytes()];
        }
        let pieces = cut(request, self.room - PLACE_BYTES);
        let packet = |(seq, (place, piece))| Packet::new(session, seq, Body::UpdateFragment(place, piece));
        (first..).zip(pieces).map(|numbered| packet(numbered).to_bytes()).collect()
    }

    /// A bypass's packets. All of them have the bypass's number.
    pub(crate) fn bypass(self, session: u16, seq: u32, after: Option<u32>, request: &[u8]) -> Vec<Vec<u8>> {
        let extension = if after.is_some() { PLACE_BYTES } else { 0 };
        if request.len() + extension <= self.room {
            return vec![Packet::new(session, seq, Body::Bypass { after, request }).to_bytes()];
        }
        let after = after.unwrap_or(0);
        let body = |(fragment, request)| Body::BypassFragment { fragment, after, request };
        let pieces = cut(request, self.room - EXTENSION_BYTES_MAX);
        pieces.map(|piece| Packet::new(session, seq, body(piece)).to_bytes()).collect()
    }

    /// Bytes of a response in each of its pieces.
    fn response_piece(self) -> usize {
        self.room - PLACE_BYTES
    }

    /// Bytes of a response that a server sends before the client requests more.
    pub(crate) fn response_window(self) -> usize {
        self.response_piece() * RESPONSE_WINDOW
    }

    /// A response as the server stores it. If the response needs more than one packet, its check is computed.
    pub(crate) fn response(self, bytes: Vec<u8>) -> Response {
        let check = if bytes.len() <= self.room { 0 } else { check(&bytes) };
        Response { bytes, check }
    }

    /// The first packets of a response, each with the bypass's number: all packets if they are at most
    /// [`RESPONSE_WINDOW`]. Each piece carries the check of the whole response, so that a client never combines
    /// pieces of two executions.
    pub(crate) fn first_window(self, session: u16, seq: u32, response: &Response) -> Vec<Vec<u8>> {
        let bytes = &response.bytes;
        if bytes.len() <= self.room {
            return vec![Packet::new(session, seq, Body::Response(bytes)).to_bytes()];
        }
        if bytes.len() > self.response_window() {
            return self.parts(session, seq, response, 0..self.response_window());
        }
        let pieces = cut(bytes, self.response_piece());
        let packet = |(place, piece)| response.piece(session, seq, Body::ResponseFragment(place, piece));
        pieces.map(packet).collect()
    }

    /// The packets with the requested bytes of a response, at most one largest window.
    pub(crate) fn parts(
        self,
        session: u16,
        seq: u32,
        response: &Response,
        range: Range<usize>,
    ) -> Vec<Vec<u8>> {
        let total = response.bytes.len() as u32;
        let wanted = response.bytes.get(range.start..range.end.min(response.bytes.len())).unwrap_or_default();
        let offsets = (range.start as u32..).step_by(self.response_piece());
        let packet =
            |(offset, piece)| response.piece(session, seq, Body::ResponsePart(Part { offset, total }, piece));
        offsets.zip(wanted.chunks(self.response_piece())).take(RESPONSE_WINDOW_MAX).map(packet).collect()
    }
}

/// A response, and the check that distinguishes its pieces from those of another response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) bytes: Vec<u8>,
    pub(crate) check: u32,
}

impl Response {
    fn piece(&self, session: u16, seq: u32, body: Body<'_>) -> Vec<u8> {
        let mut packet = Packet::new(session, seq, body);
        packet.header.hash = self.check;
        packet.to_bytes()
    }
}

/// CRC-32 (IEEE 802.3) of a response: the hash of its pieces.
pub(crate) fn check(response: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, response) as u32
}

fn cut(whole: &[u8], piece: usize) -> impl Iterator<Item = (Fragment, &[u8])> {
    let (count, total) = (whole.len().div_ceil(piece) as u16, whole.len() as u32);
    (0..count).zip(whole.chunks(piece)).map(move |(index, piece)| (Fragment { index, count, total }, piece))
}

/// The pieces of one bypass that have arrived.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// The values on which all pieces must agree.
    mark: Mark,
    pieces: Vec<Option<Vec<u8>>>,
    missing: usize,
    bytes: usize,
}

/// The values that all pieces of one request share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of pieces.
    pub(crate) count: u16,
    /// Bytes of the whole request.
    pub(crate) total: u32,
    /// The update after which the request is to be executed.
    pub(crate) after: u32,
}

impl Mark {
    pub(crate) fn new(fragment: Fragment, after: u32) -> Self {
        Self { count: fragment.count, total: fragment.total, after }
    }
}

impl Assembly {
    pub(crate) fn new(mark: Mark) -> Self {
        let count = usize::from(mark.count);
        Self { mark, pieces: vec![None; count], missing: count, bytes: 0 }
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// Bytes of the pieces that have arrived.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a piece with this mark. False if the piece has arrived before, or if the pieces exceed the total.
    pub(crate) fn add(&mut self, index: u16, piece: &[u8]) -> bool {
        let slot = &mut self.pieces[usize::from(index)];
        if slot.is_some() || self.bytes + piece.len() > self.mark.total as usize {
            return false;
        }
        *slot = Some(piece.to_vec());
        self.bytes += piece.len();
        self.missing -= 1;
        true
    }

    /// Whether every piece has arrived.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// The whole request; `None` if its length is not the announced total.
    pub(crate) fn into_bytes(self) -> Option<Vec<u8>> {
        let whole: Vec<u8> = self.pieces.into_iter().flatten().flatten().collect();
        (whole.len() == self.mark.total as usize).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(packets: &[Vec<u8>]) -> Vec<(u32, Fragment, Vec<u8>)> {
        let read = |bytes: &Vec<u8>| {
            let packet = Packet::parse(bytes).unwrap();
            match packet.body {
                Body::UpdateFragment(place, piece)
                | Body::ResponseFragment(place, piece)
                | Body::BypassFragment { fragment: place, request: piece, .. } => {
                    (packet.header.seq, place, piece.to_vec())
                }
                other => panic!("{other:?} is no fragment"),
            }
        };
        packets.iter().map(read).collect()
    }

    #[test]
    fn fragments_at_mtu_1500_over_ipv4_carry_1448_bytes() {
        let sizes = Sizes::new(1500, false);
        assert_eq!(sizes.update(1, 1, &[7; 1456]).len(), 1);
        let packets = sizes.update(1, 5, &[7; 1457]);
        assert!(packets.iter().all(|packet| packet.len() <= 1500 - 28));
        let places = fragments(&packets);
        assert_eq!(
            places.iter().map(|(seq, place, piece)| (*seq, place.index, piece.len())).collect::<Vec<_>>(),
            [(5, 0, 1448), (6, 1, 9)]
        );
        assert_eq!(sizes.update_packets(1456), 1);
        assert_eq!(sizes.update_packets(1457), 2);
    }

    #[test]
    fn every_length_fits_its_packets_and_is_reassembled() {
        for (mtu, ipv6) in [(1500, false), (576, true), (100, false), (0, true)] {
            let sizes = Sizes::new(mtu, ipv6);
            for len in [0, 1, 30, 31, 60, 500, 1440, 1441, 1448, 1457, 4000] {
                let whole: Vec<u8> = (0..=250).cycle().take(len.min(sizes.bypass_max())).collect();
                let packets = sizes.bypass(1, 1 << 31, Some(3), &whole);
                if packets.len() > 1 {
                    assert_eq!(reassembled(&packets), whole, "{len} at {mtu}");
                }
            }
        }
    }

    fn reassembled(packets: &[Vec<u8>]) -> Vec<u8> {
        let places = fragments(packets);
        let mut assembly = Assembly::new(Mark::new(places[0].1, 0));
        for (_, place, piece) in places.iter().rev() {
            assert!(!assembly.is_whole());
            assert!(assembly.add(place.index, piece));
            assert!(!assembly.add(place.index, piece));
        }
        assert!(assembly.is_whole());
        assembly.into_bytes().unwrap()
    }

    #[test]
    fn a_response_longer_than_a_window_begins_with_one_window_and_continues_on_request() {
        let sizes = Sizes::new(100, false);
        let bytes: Vec<u8> = (0..=250).cycle().take(sizes.response_window() + 1).collect();
        let response = sizes.response(bytes.clone());
        assert_eq!(sizes.first_window(1, 1 << 31, &response).len(), RESPONSE_WINDOW);
        let last = sizes.parts(1, 1 << 31, &response, bytes.len() - 1..usize::MAX);
        let packet = Packet::parse(&last[0]).unwrap();
        let part = Part { offset: bytes.len() as u32 - 1, total: bytes.len() as u32 };
        assert_eq!(packet.body, Body::ResponsePart(part, &bytes[bytes.len() - 1..]));
        assert_eq!((last.len(), packet.header.hash), (1, check(&bytes)));
        assert!(sizes.parts(1, 1 << 31, &response, bytes.len() + 1..usize::MAX).is_empty());
        let longer = sizes.response(vec![7; sizes.response_window() * 20]);
        assert_eq!(sizes.parts(1, 1 << 31, &longer, 3..usize::MAX).len(), RESPONSE_WINDOW_MAX);
    }

    #[test]
    fn the_longest_request_takes_1024_packets() {
        let sizes = Sizes::new(100, false);
        let longest = vec![1; sizes.update_max()];
        assert_eq!(sizes.update(1, 1, &longest).len(), usize::from(FRAGMENTS_MAX));
        let longest = vec![1; sizes.bypass_max()];
        assert_eq!(sizes.bypass(1, 1 << 31, None, &longest).len(), usize::from(FRAGMENTS_MAX));
    }

    #[test]
    fn pieces_that_do_not_add_up_are_rejected() {
        let mut assembly = Assembly::new(Mark { count: 2, total: 4, after: 0 });
        assert!(assembly.add(0, b"ab"));
        assert!(!assembly.add(1, b"cde"));
        assert!(assembly.add(1, b"c"));
        assert_eq!(assembly.into_bytes(), None);
    }
}
