//! A packet to send: headers and protocol bytes in one buffer, payload by reference.

use crate::event::ConnId;
use landfall_media::{Extent, Sum};
use smallvec::SmallVec;

/// Descriptors of one packet, at most: the limit of AF_XDP. A stored piece needs one for each 2 KiB frame that it
/// touches.
pub const DESCRIPTORS_MAX: usize = 18;
/// Descriptors that one more stored piece and the bytes after it may need: no packet is longer than two frames.
const DESCRIPTORS_STEP: usize = 4;
const FRAME_SIZE: u64 = 2048;
/// Bytes of one packet that do not lie in frames, at most: they share a 2 KiB frame with its headroom.
pub const BYTES_MAX: usize = 1792;
/// Length of a long packet's frame, at most: the longest IPv4 packet, which is below Linux's limit (`gso_max_size`).
pub const LONG_LEN_MAX: usize = u16::MAX as usize;
/// Pieces of a long packet, at most: `IOV_MAX` less room for headers.
const LONG_PIECES_MAX: usize = 1000;

/// A part of a packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// This range of [`Packet::bytes`].
    Bytes {
        /// First byte.
        start: u16,
        /// One past the last byte.
        end: u16,
    },
    /// Bytes in the frames that store them. The stack holds the frames until the peer acknowledges the bytes. A driver
    /// that sends the packet later than at once must hold them, too.
    Stored(Extent),
}

/// An Ethernet frame to send. The driver reuses one value for packet after packet.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// Headers and protocol bytes.
    pub bytes: Vec<u8>,
    /// The parts of the frame, in order. The first one is [`Piece::Bytes`] and starts with the Ethernet header.
    pub pieces: SmallVec<[Piece; 4]>,
    /// How the driver must segment the packet, if it holds several segments ([`crate::Config::long_packets`]).
    pub cut: Option<Cut>,
    /// The connection that the packet belongs to, if any.
    pub conn: Option<ConnId>,
}

/// What a driver or device needs in order to cut a long packet into its segments.
///
/// Each segment has the long packet's headers, except for lengths, sequence number and checksums. PSH and FIN are set
/// in the last segment only. The checksum in the long packet covers addresses and length only: the driver or device
/// that cuts the packet adds the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Length of the headers, from the Ethernet header on, bytes.
    pub header_len: u16,
    /// Payload of each segment, bytes. The last segment may have less.
    pub segment_len: u16,
    /// Offset of the TCP header, where the range that the checksum covers begins.
    pub tcp_at: u16,
    /// Offset of the checksum in the TCP header.
    pub checksum_at: u16,
    /// True for IPv4, false for IPv6.
    pub ipv4: bool,
}

impl Packet {
    /// Length of the frame.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.pieces.iter().map(Piece::stored_len).sum::<usize>()
    }

    /// True for a packet that the stack has not filled.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of TCP segments in the packet; one for a packet that is not TCP.
    pub fn segments(&self) -> usize {
        self.cut.map_or(1, |cut| {
            (self.len() - usize::from(cut.header_len)).div_ceil(usize::from(cut.segment_len))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        (self.cut, self.conn) = (None, None);
    }

    /// Fills the packet with bytes only.
    pub(crate) fn set_bytes(&mut self, bytes: &[u8]) {
        self.clear();
        self.bytes.extend_from_slice(bytes);
        self.pieces.push(Piece::Bytes { start: 0, end: bytes.len() as u16 });
    }
}

impl Piece {
    fn stored_len(&self) -> usize {
        match self {
            Self::Bytes { .. } => 0,
            Self::Stored(extent) => extent.len() as usize,
        }
    }
}

/// Appends payload behind the headers and adds up its sum.
pub(crate) struct PacketBuilder<'a> {
    packet: &'a mut Packet,
    sum: Sum,
    len: usize,
    descriptors: usize,
    /// Payload of each segment of a long packet. A long packet needs no sum of its payload, and may have more pieces.
    segment_len: Option<u16>,
}

impl<'a> PacketBuilder<'a> {
    /// A builder that reserves `header_len` bytes for headers.
    pub(crate) fn new(packet: &'a mut Packet, header_len: usize) -> Self {
        packet.clear();
        packet.bytes.resize(header_len, 0);
        packet.pieces.push(Piece::Bytes { start: 0, end: header_len as u16 });
        Self { packet, sum: Sum::ZERO, len: 0, descriptors: 1, segment_len: None }
    }

    /// Makes the packet a long one, to be cut into segments of `segment_len` payload bytes.
    pub(crate) fn long(self, segment_len: u16) -> Self {
        Self { segment_len: Some(segment_len), ..self }
    }

    /// Payload bytes of each segment, for a long packet.
    pub(crate) fn segment_len(&self) -> Option<u16> {
        self.segment_len
    }

    /// True when another piece might not fit.
    pub(crate) fn is_full(&self) -> bool {
        if self.segment_len.is_some() {
            // Protocol bytes that wrap around the end of a ring buffer are two pieces.
            return self.packet.pieces.len() + 2 > LONG_PIECES_MAX;
        }
        self.descriptors + DESCRIPTORS_STEP > DESCRIPTORS_MAX || self.packet.bytes.len() >= BYTES_MAX
    }

    /// How many more bytes outside of frames the packet has room for.
    pub(crate) fn bytes_left(&self) -> usize {
        let max = if self.segment_len.is_some() { LONG_LEN_MAX } else { BYTES_MAX };
        max.saturating_sub(self.packet.bytes.len())
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.segment_len.is_none() {
            self.sum = self.sum.then(self.len, Sum::of(bytes));
        }
        self.len += bytes.len();
        let start = self.packet.bytes.len() as u16;
        self.packet.bytes.extend_from_slice(bytes);
        let new_end = self.packet.bytes.len() as u16;
        match self.packet.pieces.last_mut() {
            Some(Piece::Bytes { end, .. }) if *end == start => *end = new_end,
            _ => {
                self.packet.pieces.push(Piece::Bytes { start, end: new_end });
                self.descriptors += 1;
            }
        }
    }

    /// Appends stored bytes. `sum` is called only if the packet needs the sum.
    pub(crate) fn add_stored(&mut self, extent: Extent, sum: impl FnOnce() -> Sum) {
        if self.segment_len.is_none() {
            self.sum = self.sum.then(self.len, sum());
        }
        self.len += extent.len() as usize;
        self.descriptors += ((extent.end() - 1) / FRAME_SIZE - extent.off / FRAME_SIZE + 1) as usize;
        match self.packet.pieces.last_mut() {
            Some(Piece::Stored(last)) if last.end() == extent.off => last.grow(extent.len()),
            _ => self.packet.pieces.push(Piece::Stored(extent)),
        }
    }

    /// Sum of the payload so far.
    pub(crate) fn sum(&self) -> Sum {
        self.sum
    }

    /// Payload bytes so far.
    pub(crate) fn payload_len(&self) -> usize {
        self.len
    }

    pub(crate) fn header(&mut self) -> &mut [u8] {
        &mut self.packet.bytes
    }

    pub(crate) fn set_cut(&mut self, cut: Cut) {
        self.packet.cut = Some(cut);
    }
}
