//! Out-of-order segments: a chain of frames in stream order. Nothing is copied to reorder or reassemble; overlapping
//! bytes are cut off the segment that arrives later.

use super::payload::Payload;
use super::sack::{BLOCKS_MAX, Block};
use super::seq::Seq;
use crate::frames::Frames;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Pieces no longer than this are copied out of their frames when they wait for long: they waste more of the frame than
/// they use.
const ASIDE_MAX: u32 = 1024;
/// Pieces no longer than this are copied out at once, so that a piece costs its own bytes instead of a frame.
const SMALL_MAX: u32 = 256;
/// Least cost of a piece that has its own frame, bytes: nothing else lands in the rest of the frame.
const FRAME_BYTES: usize = 2048;
/// Cost of a piece beside its bytes: its entry in this queue.
const ENTRY_BYTES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    start: Seq,
    payload: Payload,
    arrived: Instant,
    aside: bool,
}

impl Waiting {
    fn end(&self) -> Seq {
        self.start + self.payload.extent.len()
    }

    /// Bytes of memory that the piece occupies.
    fn bytes(&self) -> usize {
        let len = self.payload.extent.len() as usize;
        ENTRY_BYTES + if self.aside { len } else { len.max(FRAME_BYTES) }
    }

    /// Copies the piece out of its frame; false if there is no space for the copy.
    fn set_aside(&mut self, frames: &mut dyn Frames) -> bool {
        let copy = frames.set_aside(self.payload.extent);
        if let Some(copy) = copy {
            (self.payload.extent, self.aside) = (copy, true);
        }
        copy.is_some()
    }
}

/// How much out-of-order data are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) pieces: usize,
    /// Bytes of memory, not bytes of the stream.
    pub(crate) bytes: usize,
}

/// Data that arrived after the next byte expected.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// In stream order, without overlaps.
    waiting: VecDeque<Waiting>,
    /// Bytes of memory that `waiting` occupies.
    bytes: usize,
    /// The latest arrival, which the first SACK block reports (RFC 2018, 4).
    latest: Option<Seq>,
}

impl Reassembly {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How much is kept.
    pub(crate) fn kept(&self) -> Kept {
        Kept { pieces: self.waiting.len(), bytes: self.bytes }
    }

    /// Keeps the part of a segment that has not arrived before, and holds its frames. Returns how many bytes of small
    /// pieces were copied out of them at once, or `None` if nothing was new.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        start: Seq,
        payload: Payload,
        frames: &mut dyn Frames,
    ) -> Option<u64> {
        self.latest = Some(start);
        let end = start + payload.extent.len();
        let mut at = start;
        let mut index = self.waiting.partition_point(|kept| kept.end().le(start));
        let (mut new, mut copied) = (false, 0);
        while at.lt(end) {
            let gap_end = self.waiting.get(index).map_or(end, |kept| kept.start.min(end));
            if at.lt(gap_end) {
                let part = payload.part(at.past(start), gap_end.past(at), frames);
                frames.hold(part.extent);
                let mut kept = Waiting { start: at, payload: part, arrived: now, aside: false };
                if part.extent.len() <= SMALL_MAX && kept.set_aside(frames) {
                    copied += u64::from(part.extent.len());
                }
                self.bytes += kept.bytes();
                self.waiting.insert(index, kept);
                new = true;
                index += 1;
            }
            let Some(kept) = self.waiting.get(index) else { break };
            at = at.max(kept.end());
            index += 1;
        }
        new.then_some(copied)
    }

    /// Drops the piece that is furthest from the first hole.
    pub(crate) fn drop_furthest(&mut self, frames: &mut dyn Frames) {
        if let Some(kept) = self.waiting.pop_back() {
            self.bytes -= kept.bytes();
            frames.release(kept.payload.extent);
        }
    }

    /// Takes the piece that continues the stream at `next`, cut to its new bytes. Its hold passes to the caller.
    pub(crate) fn take(&mut self, next: Seq, frames: &mut dyn Frames) -> Option<Payload> {
        while let Some(first) = self.waiting.front().copied() {
            if next.lt(first.start) {
                return None;
            }
            self.waiting.pop_front();
            self.bytes -= first.bytes();
            if next.lt(first.end()) {
                let skip = next.past(first.start);
                let rest = first.payload.part(skip, first.payload.extent.len() - skip, frames);
                if skip > 0 {
                    frames.hold(rest.extent);
                    frames.release(first.payload.extent);
                }
                return Some(rest);
            }
            frames.release(first.payload.extent);
        }
        None
    }

    /// The ranges that have arrived; the range with the latest arrival is first (RFC 2018, 4).
    pub(crate) fn blocks(&self) -> ([Option<Block>; BLOCKS_MAX], usize) {
        let mut out = [None; BLOCKS_MAX];
        let mut count = 0;
        let mut push = |block: Block| {
            if count < BLOCKS_MAX {
                out[count] = Some(block);
                count += 1;
            }
        };
        let first =
            self.latest.and_then(|latest| self.ranges().find(|b| b.start.le(latest) && latest.lt(b.end)));
        first.into_iter().for_each(&mut push);
        // The other ranges follow from the end, where the newest holes are.
        self.ranges().filter(|block| Some(*block) != first).for_each(&mut push);
        (out, count)
    }

    fn ranges(&self) -> impl Iterator<Item = Block> + '_ {
        let mut rest = self.waiting.iter().rev().peekable();
        std::iter::from_fn(move || {
            let last = rest.next()?;
            let (mut start, end) = (last.start, last.end());
            while let Some(before) = rest.peek()
                && before.end() == start
            {
                start = before.start;
                rest.next();
            }
            Some(Block { start, end })
        })
    }

    /// Copies pieces that have waited for long out of their frames; returns the bytes copied.
    pub(crate) fn set_aside(&mut self, now: Instant, after: Duration, frames: &mut dyn Frames) -> u64 {
        let mut copied = 0;
        for kept in &mut self.waiting {
            if kept.aside || kept.payload.extent.len() > ASIDE_MAX || now.since(kept.arrived) < after {
                continue;
            }
            let before = kept.bytes();
            if !kept.set_aside(frames) {
                break;
            }
            copied += u64::from(kept.payload.extent.len());
            self.bytes = self.bytes + kept.bytes() - before;
        }
        copied
    }

    /// Drops everything; the peer sends it again (RFC 2018, 8 allows a receiver to discard reported data).
    pub(crate) fn clear(&mut self, frames: &mut dyn Frames) {
        self.waiting.drain(..).for_each(|kept| frames.release(kept.payload.extent));
        (self.bytes, self.latest) = (0, None);
    }
}
