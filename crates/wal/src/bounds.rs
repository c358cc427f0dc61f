//! Bounds: heads of logs and positions of consumers. They are small records of which the newest version counts.
//!
//! [`Bounds`] counts the stale versions on the medium. It keeps the tombstone of a deleted bound until no older version
//! is left that recovery could take for current.

use crate::format::ENDED;
use crate::tombstones::{Tombstone, Tombstones};
use landfall_heap::{Entry, Heap, HeapError, Kind, NoInlineCounts, SlotId, Source, StaleCounts, Writer};

/// The fields of a bound that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<'a> {
    pub(crate) space: u8,
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) number: u32,
    pub(crate) mark: u64,
    pub(crate) value: &'a [u8],
}

impl Bound<'_> {
    /// Appends the bound. Like a delete, it may be written when the region is full.
    pub(crate) fn append(&self, writer: &mut Writer, arrival_ns: u64) -> Result<SlotId, HeapError> {
        writer.append(&Entry {
            kind: Kind::Bound,
            space: self.space,
            hash: self.hash,
            key: self.key,
            key_at: None,
            value: Source::Bytes(self.value),
            arrival_ns,
            expiry_ms: self.mark,
            aux: self.number,
        })
    }
}

/// Heads and positions on the medium that are not current, and the tombstones.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// Number of stale records, by hash of their key. The tombstone of a key stays while the number is above 0.
    pub(crate) stale: StaleCounts,
    pub(crate) tombstones: Tombstones,
}

impl Bounds {
    /// Notes that a new bound supersedes `old`, or a tombstone.
    pub(crate) fn supersede(&mut self, writer: &mut Writer, hash: u64, old: Option<SlotId>) {
        let tombstone = self.tombstones.remove(hash).map(|tombstone| tombstone.slot);
        for slot in old.into_iter().chain(tombstone) {
            self.stale.add(hash, &mut NoInlineCounts);
            writer.supersede(slot);
        }
    }

    /// Makes a tombstone the current record of its key.
    pub(crate) fn add_tombstone(&mut self, hash: u64, tombstone: Tombstone) {
        self.tombstones.insert(hash, tombstone);
    }

    /// Notes that a copy of a bound is about to be made.
    pub(crate) fn announce_copy(&mut self, hash: u64) {
        self.stale.announce(hash, &mut NoInlineCounts);
    }

    /// Notes that an announced copy was made.
    pub(crate) fn settle_copy(&mut self, hash: u64) {
        self.stale.settle(hash);
    }

    /// Notes that an announced copy was not made.
    pub(crate) fn withdraw_copy(&mut self, heap: &Heap, hash: u64) {
        if self.stale.withdraw(hash, &mut NoInlineCounts) {
            self.retire_tombstone(heap, hash);
        }
    }

    /// Notes that a stale record has left the medium. With the last one of a key, its tombstone is retired.
    pub(crate) fn drop_stale(&mut self, heap: &Heap, hash: u64) {
        if self.stale.remove(hash, &mut NoInlineCounts) {
            self.retire_tombstone(heap, hash);
        }
    }

    fn retire_tombstone(&mut self, heap: &Heap, hash: u64) {
        if self.tombstones.get(hash).is_some_and(|tombstone| heap.retire_tombstone(tombstone.slot)) {
            self.tombstones.remove(hash);
            // The tombstone's own record is still on the medium.
            self.stale.add(hash, &mut NoInlineCounts);
        }
    }

    /// Retires the tombstones of a deleted log's positions: recovery ignores positions whose log is deleted.
    pub(crate) fn retire_positions(&mut self, writer: &mut Writer, number: u32) {
        for gone in self.tombstones.take_positions(number) {
            writer.supersede(gone.slot);
        }
    }
}

/// True for the mark of a bound that deletes what it names.
pub(crate) fn is_end(mark: u64) -> bool {
    mark == ENDED
}
