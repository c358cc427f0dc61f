//! Parses and checks arriving segments.

use super::payload::Payload;
use super::sack::{BLOCKS_MAX, Block};
use super::seq::Seq;
use crate::frames::Frames;
use crate::stats::Drop;
use landfall_media::{Extent, Sum};
use smoltcp::wire::{TcpOption, TcpPacket};

/// Length of the timestamps option with its padding, bytes (RFC 7323, appendix A).
pub(crate) const TIMESTAMPS_LEN: usize = 12;

/// Control bits (RFC 9293, 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) psh: bool,
    pub(crate) ece: bool,
    pub(crate) cwr: bool,
}

/// Options of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// TSval and TSecr.
    pub(crate) timestamps: Option<(u32, u32)>,
    pub(crate) sack: [Option<Block>; BLOCKS_MAX],
}

/// A segment whose checksum is correct.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) window: u16,
    pub(crate) flags: Flags,
    pub(crate) options: Options,
    pub(crate) payload: Payload,
    /// Marked by a congested router (RFC 3168).
    pub(crate) congested: bool,
}

impl Segment {
    /// Length in sequence numbers.
    pub(crate) fn len(&self) -> u32 {
        self.payload.extent.len() + u32::from(self.flags.syn) + u32::from(self.flags.fin)
    }

    /// Cuts off what lies before `seq`.
    pub(crate) fn trim_before(&mut self, seq: Seq, frames: &dyn Frames) {
        if self.flags.syn && self.seq.lt(seq) {
            self.flags.syn = false;
            self.seq += 1;
        }
        let skip = seq.past(self.seq).min(self.payload.extent.len());
        self.payload = self.payload.part(skip, self.payload.extent.len() - skip, frames);
        self.seq += skip;
    }

    /// Cuts off what lies at or after `seq`, a FIN included.
    pub(crate) fn trim_after(&mut self, seq: Seq, frames: &dyn Frames) {
        let end = self.seq + self.payload.extent.len();
        if seq.lt(end + u32::from(self.flags.fin)) {
            self.flags.fin = false;
        }
        let excess = end.past(seq).min(self.payload.extent.len());
        self.payload = self.payload.part(0, self.payload.extent.len() - excess, frames);
    }
}

/// Source and destination port of a segment; `None` if it is too short to have them.
pub(crate) fn ports(bytes: &[u8]) -> Option<(u16, u16)> {
    let word = |at: usize| Some(u16::from(*bytes.get(at)?) << 8 | u16::from(*bytes.get(at + 1)?));
    Some((word(0)?, word(2)?))
}

/// Parses and checks a segment at region offset `off`; `pseudo` is the sum of its pseudo-header.
pub(crate) fn parse(
    bytes: &[u8],
    off: u64,
    pseudo: Sum,
    arrival_ns: u64,
    congested: bool,
) -> Result<Segment, Drop> {
    let packet = TcpPacket::new_checked(bytes).map_err(|_| Drop::Malformed)?;
    let header_len = usize::from(packet.header_len());
    let (header, payload) = bytes.split_at(header_len);
    // Headers are a whole number of words, so the payload starts at an even offset.
    let (header_sum, sum) = (Sum::of(header), Sum::of(payload));
    if !pseudo.plus(header_sum).plus(sum).is_zero() {
        let partial = packet.checksum() == !pseudo.checksum() || Sum::of_word(packet.checksum()) == pseudo;
        return Err(if partial { Drop::PartialChecksum } else { Drop::Checksum });
    }
    let flags = Flags {
        syn: packet.syn(),
        ack: packet.ack(),
        fin: packet.fin(),
        rst: packet.rst(),
        psh: packet.psh(),
        ece: packet.ece(),
        cwr: packet.cwr(),
    };
    let len = u32::try_from(payload.len()).map_err(|_| Drop::Malformed)?;
    Ok(Segment {
        seq: Seq(packet.seq_number().0.cast_unsigned()),
        ack: Seq(packet.ack_number().0.cast_unsigned()),
        window: packet.window_len(),
        flags,
        options: options(packet.options())?,
        payload: Payload { extent: Extent::new(off + header_len as u64, len), sum, arrival_ns },
        congested,
    })
}

fn options(mut bytes: &[u8]) -> Result<Options, Drop> {
    let mut options = Options::default();
    if let [1, 1, 8, 10, ..] = *bytes
        && bytes.len() == TIMESTAMPS_LEN
    {
        // Nearly every segment: two bytes of padding and timestamps (RFC 7323, appendix A).
        bytes = &bytes[2..];
    }
    while !bytes.is_empty() {
        let (rest, option) = TcpOption::parse(bytes).map_err(|_| Drop::Malformed)?;
        match option {
            TcpOption::EndOfList => break,
            TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
            TcpOption::WindowScale(shift) => options.window_scale = Some(shift),
            TcpOption::SackPermitted => options.sack_permitted = true,
            TcpOption::TimeStamp { tsval, tsecr } => options.timestamps = Some((tsval, tsecr)),
            TcpOption::SackRange(ranges) => {
                for (block, range) in options.sack.iter_mut().zip(ranges) {
                    *block = range.map(|(start, end)| Block { start: Seq(start), end: Seq(end) });
                }
            }
            TcpOption::NoOperation | TcpOption::Unknown { .. } => {}
        }
        bytes = rest;
    }
    Ok(options)
}
