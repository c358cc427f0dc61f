//! The transmit queue: data that were accepted for sending and are not acknowledged.
//!
//! Stored bytes are references to frames, and the queue holds the frames: the *clone* of "Packets as Persistent
//! In-Memory Data Structures", 4.1. Retransmissions are sent from these frames. Protocol bytes are few, so the queue
//! keeps copies of them.

use crate::frames::Frames;
use crate::packet::PacketBuilder;
use landfall_media::{Extent, Sum};
use std::collections::VecDeque;

/// Position in a connection's outgoing stream: bytes since its start.
pub(crate) type Offset = u64;

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: Offset,
    len: u32,
    from: From,
}

#[derive(Clone, Copy, Debug)]
enum From {
    /// Position among all protocol bytes of the connection.
    Bytes(u64),
    /// In frames. The sum covers the whole extent.
    Stored { off: u64, sum: Option<Sum> },
}

/// What a connection has to send, from the first unacknowledged byte on.
#[derive(Debug, Default)]
pub(crate) struct TransmitQueue {
    pieces: VecDeque<Piece>,
    bytes: VecDeque<u8>,
    /// Position of `bytes[0]` among all protocol bytes.
    bytes_start: u64,
    end: Offset,
}

impl TransmitQueue {
    /// One past the last byte queued.
    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// Bytes queued and not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.pieces.front().map_or(0, |piece| (self.end - piece.start) as usize)
    }

    /// Queues protocol bytes.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let len = u32::try_from(bytes.len()).expect("protocol bytes of one reply stay below 4 GiB");
        let place = self.bytes_start + self.bytes.len() as u64;
        self.bytes.extend(bytes);
        match self.pieces.back_mut() {
            Some(Piece { from: From::Bytes(_), len: last, .. }) if last.checked_add(len).is_some() => {
                *last += len;
            }
            _ => self.pieces.push_back(Piece { start: self.end, len, from: From::Bytes(place) }),
        }
        self.end += u64::from(len);
    }

    /// Queues stored bytes by reference. Their hold passes to the queue.
    pub(crate) fn push_stored(&mut self, extent: Extent, sum: Option<Sum>) {
        if extent.is_empty() {
            return;
        }
        let from = From::Stored { off: extent.off, sum };
        self.pieces.push_back(Piece { start: self.end, len: extent.len(), from });
        self.end += u64::from(extent.len());
    }

    /// Releases everything before `until`, whole pieces at a time.
    pub(crate) fn acknowledge(&mut self, until: Offset, frames: &mut dyn Frames) {
        while let Some(piece) = self.pieces.front_mut() {
            let end = piece.start + u64::from(piece.len);
            let done = end <= until;
            let gone = end.min(until).saturating_sub(piece.start) as u32;
            match &mut piece.from {
                From::Bytes(place) => {
                    *place += u64::from(gone);
                    let keep_from = *place;
                    piece.start += u64::from(gone);
                    piece.len -= gone;
                    self.bytes.drain(..(keep_from - self.bytes_start) as usize);
                    self.bytes_start = keep_from;
                }
                From::Stored { off, .. } if done => frames.release(Extent::new(*off, piece.len)),
                From::Stored { .. } => {}
            }
            if !done {
                break;
            }
            self.pieces.pop_front();
        }
    }

    /// Releases everything.
    pub(crate) fn clear(&mut self, frames: &mut dyn Frames) {
        self.acknowledge(self.end, frames);
    }

    /// Adds up to `len` bytes from `start` on to a packet, and returns how many. The packet may have no room for more
    /// pieces.
    pub(crate) fn fill(
        &self,
        start: Offset,
        len: u32,
        packet: &mut PacketBuilder<'_>,
        frames: &dyn Frames,
    ) -> u32 {
        let first = self.pieces.partition_point(|piece| piece.start + u64::from(piece.len) <= start);
        let (mut at, end) = (start, (start + u64::from(len)).min(self.end));
        for piece in self.pieces.range(first..) {
            if at >= end || packet.is_full() {
                break;
            }
            let skip = (at - piece.start) as u32;
            let mut take = (piece.len - skip).min((end - at) as u32);
            match piece.from {
                From::Bytes(place) => {
                    take = take.min(packet.bytes_left() as u32);
                    self.add_bytes(place + u64::from(skip), take, packet);
                }
                From::Stored { off, sum } => {
                    let sum = || sum_of_part(Extent::new(off, piece.len), sum, skip, take, frames);
                    packet.add_stored(Extent::new(off + u64::from(skip), take), sum);
                }
            }
            at += u64::from(take);
            if take < piece.len - skip {
                break;
            }
        }
        (at - start) as u32
    }

    fn add_bytes(&self, place: u64, len: u32, packet: &mut PacketBuilder<'_>) {
        let from = (place - self.bytes_start) as usize;
        let (head, tail) = self.bytes.as_slices();
        let (start, end) = (from, from + len as usize);
        let split = head.len();
        packet.add_bytes(&head[start.min(split)..end.min(split)]);
        packet.add_bytes(&tail[start.max(split) - split..end.max(split) - split]);
    }
}

/// The sum of a part of a stored piece. If it is shorter to compute, it is the kept sum less the sum of the other
/// parts.
fn sum_of_part(whole: Extent, kept: Option<Sum>, skip: u32, take: u32, frames: &dyn Frames) -> Sum {
    match kept {
        Some(sum) if take == whole.len() => sum,
        Some(sum) => sum.of_part(frames.bytes(whole), skip as usize..(skip + take) as usize),
        None => Sum::of(frames.bytes(Extent::new(whole.off + u64::from(skip), take))),
    }
}
