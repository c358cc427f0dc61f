//! The engine is the owner of the records of keys that the compactor moves.

use crate::engine::Engine;
use crate::shard::Shard;
use landfall_heap::{Gone, Kind, Named, Owner, SlotId};
use std::sync::atomic::Ordering;

/// Most records forgotten under one lock, which takes a few microseconds.
const FORGOTTEN_AT_ONCE: usize = 16;

impl Owner for Engine {
    fn begin_move(&self, Named { hash, .. }: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let mut shard = self.shard(hash);
        if !shard.is_current(hash, slot) {
            return false;
        }
        // A record whose key cannot be read is not moved; others of its slab are.
        let Ok(view) = self.heap.record(slot) else { return false };
        let Ok(mut key) = self.heap.hold_long_key(slot, &view) else { return false };
        if let Some(key) = key.as_mut().filter(|key| key.is_absent()) {
            // Nobody waits for the shard while the medium reads.
            drop(shard);
            key.load();
            shard = self.shard(hash);
            if !key.is_there(&view) || !shard.is_current(hash, slot) {
                return false;
            }
        }
        if self.heap.key(&view).is_err() {
            return false;
        }
        // The copy counts as stale until it becomes current: a tombstone written in between must outlive the copy.
        shard.announce_copy(hash);
        hold();
        true
    }

    fn end_move(&self, Named { hash, .. }: Named, old: SlotId, new: SlotId) -> bool {
        // If the copy becomes current, the original becomes stale, and the count stays.
        let mut shard = self.shard(hash);
        shard.settle_copy(hash);
        shard.replace(hash, old, new)
    }

    fn abort_move(&self, Named { hash, .. }: Named) {
        let mut shard = self.shard(hash);
        if shard.withdraw_copy(hash) {
            self.drop_tombs(&mut shard, hash);
        }
    }

    fn forget(&self, gone: &mut [Gone]) {
        gone.sort_unstable_by_key(|gone| self.shard_index(gone.name.hash));
        for of_shard in gone.chunk_by(|a, b| self.shard_index(a.name.hash) == self.shard_index(b.name.hash)) {
            // One lock for several records: a slab of old versions of few keys would contend with their writers.
            for some in of_shard.chunks(FORGOTTEN_AT_ONCE) {
                let mut shard = self.shard(some[0].name.hash);
                let flushed = self.flush_seq.load(Ordering::Acquire);
                let counted = some.iter().filter(|gone| gone.seq >= flushed);
                counted.for_each(|gone| self.drop_stale(&mut shard, gone.name.hash));
            }
        }
    }
}

impl Engine {
    /// Discounts one stale record of this hash's tag, which is no longer on the medium.
    fn drop_stale(&self, shard: &mut Shard, hash: u64) {
        if shard.drop_stale(hash) {
            self.drop_tombs(shard, hash);
        }
    }

    /// Retires the tombstones of this hash's tag. No stale record of the tag is left on the medium.
    fn drop_tombs(&self, shard: &mut Shard, hash: u64) {
        let tombs: Vec<SlotId> = shard.tombs_of(hash).collect();
        for slot in tombs {
            let Ok(view) = self.heap.record(slot) else { continue };
            if view.kind() == Kind::Tombstone && self.heap.retire_tombstone(slot) {
                shard.drop_tomb(hash, slot, view.seq());
            }
        }
    }
}
