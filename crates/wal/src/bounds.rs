//! Heads and positions: small records of which the newest counts, and what outlives the older ones.

use crate::format::ENDED;
use landfall_heap::{
    Entry, Heap, HeapError, Kind, NoInlineCounts, SlotId, Source, StaleCounts, Writer, spaces,
};
use std::collections::BTreeMap;

/// A bound to write.
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
    /// Appends it. It may be written when the region is full, as deletes may.
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

/// The record that says that a log, or a position, is no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tomb {
    pub(crate) slot: SlotId,
    /// The log's number.
    pub(crate) number: u32,
    pub(crate) space: u8,
}

/// What is on the medium of heads and positions beside the current ones.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// Records that are not current, by hash of their key. While there are any, the key's tomb stays.
    pub(crate) stale: StaleCounts,
    pub(crate) tombs: BTreeMap<u64, Tomb>,
}

impl Bounds {
    /// A new bound takes the place of `old`, or of a tomb.
    pub(crate) fn supersede(&mut self, writer: &mut Writer, hash: u64, old: Option<SlotId>) {
        let tomb = self.tombs.remove(&hash).map(|tomb| tomb.slot);
        for slot in old.into_iter().chain(tomb) {
            self.stale.add(hash, &mut NoInlineCounts);
            writer.supersede(slot);
        }
    }

    /// The bound that says that something is no more is current from now on.
    pub(crate) fn bury(&mut self, hash: u64, slot: SlotId, number: u32, space: u8) {
        self.tombs.insert(hash, Tomb { slot, number, space });
    }

    /// A copy of a bound is about to be made.
    pub(crate) fn announce_copy(&mut self, hash: u64) {
        self.stale.announce(hash, &mut NoInlineCounts);
    }

    /// An announced copy was made.
    pub(crate) fn settle_copy(&mut self, hash: u64) {
        self.stale.settle(hash);
    }

    /// An announced copy was not made.
    pub(crate) fn withdraw_copy(&mut self, heap: &Heap, hash: u64) {
        if self.stale.withdraw(hash, &mut NoInlineCounts) {
            self.retire_tomb(heap, hash);
        }
    }

    /// One record fewer is on the medium; a tomb that nothing needs any more is dropped.
    pub(crate) fn drop_stale(&mut self, heap: &Heap, hash: u64) {
        if self.stale.remove(hash, &mut NoInlineCounts) {
            self.retire_tomb(heap, hash);
        }
    }

    fn retire_tomb(&mut self, heap: &Heap, hash: u64) {
        if self.tombs.get(&hash).is_some_and(|tomb| heap.retire_tombstone(tomb.slot)) {
            self.tombs.remove(&hash);
            // Its own record is on the medium still.
            self.stale.add(hash, &mut NoInlineCounts);
        }
    }

    /// Nothing of a deleted log's positions counts any more: without their log they say nothing.
    pub(crate) fn end_positions(&mut self, writer: &mut Writer, number: u32) {
        self.tombs.retain(|_, tomb| {
            let ends = tomb.space == spaces::LOG_POSITION && tomb.number == number;
            if ends {
                writer.supersede(tomb.slot);
            }
            !ends
        });
    }
}

/// True for the mark of a bound that says that something is no more.
pub(crate) fn is_end(mark: u64) -> bool {
    mark == ENDED
}
