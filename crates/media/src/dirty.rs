//! What a fence must make durable.

use smallvec::SmallVec;

use crate::extent::Extent;
use crate::sim::lines::Promises;
use crate::units::BLOCK_SIZE;

/// Ranges flushed since the last fence by one writer: what its next fence must make durable.
///
/// On byte-addressable media a flush acts immediately and nothing is kept here. On files the ranges are kept, coalesced
/// where they touch or lie within one block of each other.
#[derive(Clone, Debug, Default)]
pub struct Dirty {
    ranges: SmallVec<[Extent; 4]>,
    /// What the crash simulator promised with each flush; the other media leave it empty.
    pub(crate) promised: Promises,
}

impl Dirty {
    /// Nothing to make durable.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when a fence would write nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges noted so far, in no particular order, unaligned.
    pub fn ranges(&self) -> &[Extent] {
        &self.ranges
    }

    /// Bytes noted, before alignment to blocks.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|r| u64::from(r.len())).sum()
    }

    /// Adds a range, merged with one of the latest ranges where the gap between them is less than a block.
    pub fn add(&mut self, range: Extent) {
        if range.is_empty() {
            return;
        }
        for known in self.ranges.iter_mut().rev().take(4) {
            let gap_ok = range.off <= known.end() + BLOCK_SIZE && known.off <= range.end() + BLOCK_SIZE;
            let off = known.off.min(range.off);
            let len = known.end().max(range.end()) - off;
            if gap_ok && let Ok(len) = u32::try_from(len) {
                *known = Extent::new(off, len);
                return;
            }
        }
        self.ranges.push(range);
    }

    /// Moves all ranges out and leaves none.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}
