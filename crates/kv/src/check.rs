//! The keys of a region that is only checked: which of their records are current. No index is built.

use crate::engine::FLUSH_SPACE;
use crate::shard::ByHash;
use landfall_heap::{
    DamagedSlot, Found, Heap, HeapError, Judge, Keeper, Kind, RecordView, SlotId, Tenant, spaces,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of parts that the current records are divided into.
const PARTS: usize = 64;

/// The newest record of a key.
#[derive(Clone, Copy, Debug)]
struct Newest {
    slot: SlotId,
    kind: Kind,
    version: (u64, u32),
    /// The highest version among the records that it replaces.
    older_seq: u64,
}

impl Newest {
    fn new(found: &Found) -> Self {
        Self { slot: found.slot, kind: found.kind, version: (found.seq, found.rev), older_seq: 0 }
    }
}

/// The engine's part in [`landfall_heap::Check`].
#[derive(Debug)]
pub struct KeyCheck {
    /// Keyed by hash alone: two keys with one hash count as one (a probability of 2^-64 for each pair).
    newest: Box<[Mutex<ByHash<Newest>>]>,
    flush: Mutex<Option<Found>>,
    next_part: AtomicUsize,
    stale: AtomicU64,
}

impl Default for KeyCheck {
    fn default() -> Self {
        Self {
            newest: (0..PARTS).map(|_| Mutex::default()).collect(),
            flush: Mutex::new(None),
            next_part: AtomicUsize::new(0),
            stale: AtomicU64::new(0),
        }
    }
}

impl KeyCheck {
    fn part(&self, hash: u64) -> &Mutex<ByHash<Newest>> {
        &self.newest[hash as usize % PARTS]
    }

    fn flush_seq(&self) -> u64 {
        self.flush.lock().map_or(0, |flush| flush.seq)
    }

    fn count_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    /// Compares a record with the newest one of its key so far; the older of the two counts as stale.
    fn contest(&self, found: &Found) {
        let new = Newest::new(found);
        let mut part = self.part(found.hash).lock();
        let known = part.entry(found.hash).or_insert(new);
        if known.slot == new.slot {
            return;
        }
        self.count_stale();
        let (older, newer) = if new.version > known.version { (*known, new) } else { (new, *known) };
        let older_seq = older.version.0.max(older.older_seq).max(newer.older_seq);
        *known = Newest { older_seq, ..newer };
    }

    fn contest_flush(&self, found: &Found) {
        let mut newest = self.flush.lock();
        let version = |found: &Found| (found.seq, found.rev);
        if newest.is_some() {
            self.count_stale();
        }
        if newest.as_ref().is_none_or(|known| version(known) < version(found)) {
            *newest = Some(*found);
        }
    }

    fn verify(&self, keeper: &dyn Keeper, newest: Newest, is_needed: bool) -> Result<(), HeapError> {
        // A tombstone without an older record is no longer needed, so the frames of its key may have been freed.
        let is_done = newest.kind == Kind::Tombstone && !is_needed;
        keeper.keep(newest.slot, &mut |view| {
            let is_gone = is_done && !keeper.heap().key_holds(view)?;
            if is_gone {
                self.count_stale();
            }
            Ok(!is_gone)
        })?;
        Ok(())
    }
}

impl Judge for KeyCheck {
    fn is_superseded(&self, _: &Heap, found: &Found) -> bool {
        let known = self.part(found.hash).lock().get(&found.hash).map_or(0, |known| known.version.0);
        found.seq < self.flush_seq() || known > found.seq
    }

    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        crate::recover::is_flushed(mark, found)
    }
}

impl Tenant for KeyCheck {
    fn owns(&self, space: u8) -> bool {
        spaces::is_keys(space)
    }

    fn restart(&self) {
        self.newest.iter().for_each(|part| part.lock().clear());
        self.stale.store(0, Ordering::Relaxed);
    }

    fn take(&self, _: &Heap, found: &Found, _: &RecordView<'_>) -> Result<(), HeapError> {
        match found.kind {
            Kind::Flush => self.contest_flush(found),
            _ => self.contest(found),
        }
        Ok(())
    }

    /// Does nothing: the check itself reports damaged slots.
    fn take_damaged(&self, _: &DamagedSlot) {}

    fn settle(&self, _: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        Ok(Vec::new())
    }

    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let index = self.next_part.fetch_add(1, Ordering::Relaxed);
        if index == PARTS {
            let mark = self.flush.lock().map(|mark| mark.slot);
            mark.map_or(Ok(false), |slot| keeper.keep(slot, &mut |_| Ok(true)))?;
        }
        let Some(part) = self.newest.get(index) else { return Ok(index == PARTS) };
        let flush_seq = self.flush_seq();
        // Sorted by slot, so that files are read sequentially.
        let mut current: Vec<Newest> = part.lock().values().copied().collect();
        current.sort_unstable_by_key(|newest| newest.slot);
        for newest in current {
            if newest.version.0 < flush_seq {
                self.count_stale();
                continue;
            }
            let is_needed = newest.older_seq > 0 && newest.older_seq >= flush_seq;
            self.verify(keeper, newest, is_needed)?;
        }
        Ok(true)
    }

    fn stale(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    /// `None` for a key: findings name it by its bytes.
    fn describe(&self, space: u8, _: &[u8]) -> Option<String> {
        (space == FLUSH_SPACE).then(|| "the mark of FLUSHALL, without which deleted keys are back".into())
    }
}
