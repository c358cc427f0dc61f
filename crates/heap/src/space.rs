//! Policy for the last free runs: who may take them, when compaction begins, and whether a writer should wait for it.
//!
//! A full region must still accept deletes. Deletes need slots, and their requests must land. So the last free runs are
//! reserved for the compactor, for landing, and for the slots of deletes. The reserve for deletes grows with the number
//! of slabs: deletes in any order then leave enough dead slots in the average slab for the compactor before the reserve
//! is used up. Why that always suffices: `docs/format/compaction.md`.

use crate::demand::{COMPACTOR_RESERVE_RUNS, LANDING_RESERVE_RUNS};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId};
use landfall_media::RUN_SIZE;
use std::sync::atomic::Ordering;

/// Least number of free runs beyond those that only slabs for deletes may take.
const DELETE_RESERVE_RUNS: u32 = 2;
/// The reserve for deletes has one run for this many slabs.
const SLABS_PER_DELETE_RUN: u32 = 32;
/// The compactor works if fewer runs than this are free beyond all reserves: one part in this many of the region,
/// within bounds.
const MARGIN_PARTS: u32 = 128;
const MARGIN_RUNS: std::ops::RangeInclusive<u32> = 3..=64;
/// A region is full if compaction could free less than one part in this many.
const WORTH_PARTS: u32 = 128;

impl Heap {
    /// Reserves landing runs for this many transports.
    pub fn reserve_landing(&self, transports: u32) {
        self.space.landing_reserve.store(transports * LANDING_RESERVE_RUNS, Ordering::Relaxed);
    }

    fn landing_reserve(&self) -> u32 {
        self.space.landing_reserve.load(Ordering::Relaxed)
    }

    /// Free runs that are reserved for the compactor.
    fn compactor_keeps(&self) -> u32 {
        COMPACTOR_RESERVE_RUNS.saturating_sub(self.space.compactor_fills.load(Ordering::Relaxed))
    }

    /// The compactor begins or ends filling a run.
    pub(crate) fn note_compactor_fills(&self, begins: bool) {
        let fills = &self.space.compactor_fills;
        if begins {
            fills.fetch_add(1, Ordering::Relaxed)
        } else {
            fills.fetch_sub(1, Ordering::Relaxed)
        };
    }

    /// Free runs that deletes may not take.
    pub(crate) fn delete_keeps(&self) -> u32 {
        self.compactor_keeps() + self.landing_reserve()
    }

    /// Free runs that writes may not take.
    pub(crate) fn writer_reserve(&self) -> u32 {
        let for_deletes = self.runs.slab_count() / SLABS_PER_DELETE_RUN;
        self.delete_keeps() + for_deletes.max(DELETE_RESERVE_RUNS)
    }

    /// The compactor works while fewer runs than this are free.
    pub fn clean_below(&self) -> u32 {
        let margin = (self.runs.total() / MARGIN_PARTS).clamp(*MARGIN_RUNS.start(), *MARGIN_RUNS.end());
        self.writer_reserve() + margin.max(1 + self.space.demand.load(Ordering::Relaxed))
    }

    /// True while writers may add data. Deletes and reads do not depend on it.
    pub fn has_room(&self) -> bool {
        self.runs.free_count() > self.writer_reserve()
    }

    /// Bytes that writers may fill without compaction.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.runs.free_count().saturating_sub(self.writer_reserve())) * RUN_SIZE
    }

    /// Estimate of the bytes that writers may fill, with compaction.
    pub fn room_bytes(&self) -> u64 {
        self.obtainable_runs().saturating_mul(RUN_SIZE).max(self.free_bytes())
    }

    /// Runs that compaction could free; 0 without a compactor.
    fn reclaimable_runs(&self) -> u32 {
        if self.is_cleaned() { self.space.reclaimable.load(Ordering::Acquire) } else { 0 }
    }

    /// Runs that writers can obtain, including reclaimable ones, beyond the amount that is too small to compact for.
    fn obtainable_runs(&self) -> u64 {
        let with_cleaning = u64::from(self.runs.free_count()) + u64::from(self.reclaimable_runs());
        with_cleaning.saturating_sub(u64::from(self.writer_reserve() + self.worth()))
    }

    fn worth(&self) -> u32 {
        1 + self.runs.total() / WORTH_PARTS
    }

    /// True while the region has a compactor.
    pub(crate) fn is_cleaned(&self) -> bool {
        self.space.is_cleaned.load(Ordering::Acquire)
    }

    /// For a writer that has no room for `runs` more runs. True if compaction will free them: the writer should wait.
    pub(crate) fn may_wait_for(&self, runs: u32) -> bool {
        let waits = self.obtainable_runs() > u64::from(runs);
        if waits {
            self.space.demand.fetch_max(runs, Ordering::Relaxed);
            self.note_awaited();
        }
        waits
    }

    /// For a delete without a slot, and a transport without a landing run. True if compaction can free any run: they
    /// should wait.
    pub fn may_wait_for_any(&self) -> bool {
        let waits = self.reclaimable_runs() > 0;
        if waits {
            self.note_awaited();
        }
        waits
    }

    fn note_awaited(&self) {
        self.space.is_awaited.store(true, Ordering::Release);
    }

    /// True while a transport can take a landing run.
    pub fn can_land(&self) -> bool {
        self.runs.free_count() > self.compactor_keeps()
    }

    /// True if a writer or a transport has begun to wait for space since the last call.
    pub fn take_awaited(&self) -> bool {
        self.space.is_awaited.swap(false, Ordering::AcqRel)
    }

    /// Notes whether the region has a compactor.
    pub(crate) fn set_cleaned(&self, is_cleaned: bool) {
        self.estimate_reclaimable();
        self.space.is_cleaned.store(is_cleaned, Ordering::Release);
    }

    /// The compactor begins to search all runs. It may miss references that are released from now on.
    pub(crate) fn begin_search(&self) {
        self.space.releases_seen.store(self.space.releases.load(Ordering::Acquire), Ordering::Release);
    }

    /// Ends a search, which has found this many reclaimable runs.
    pub(crate) fn end_search(&self, runs: u32) {
        self.space.reclaimable.store(runs, Ordering::Release);
        self.space.searches.fetch_add(1, Ordering::AcqRel);
    }

    /// Estimates the reclaimable runs without a search: used bytes that are not live.
    pub(crate) fn estimate_reclaimable(&self) {
        let live = self.runs.live_bytes() + self.runs.live_slots() * RECORD_SIZE;
        let used = self.runs.total() - self.runs.free_count();
        let dead = used.saturating_sub(u32::try_from(live.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX));
        self.space.reclaimable.store(dead, Ordering::Release);
    }

    /// Checks that there is room for new data, as [`Self::has_room`].
    ///
    /// # Errors
    /// [`HeapError::Cleaning`] if compaction will free runs; [`HeapError::Full`].
    pub fn check_room(&self) -> Result<(), HeapError> {
        match self.has_room() {
            true => Ok(()),
            false if self.may_wait_for(0) => Err(HeapError::Cleaning),
            false => Err(HeapError::Full),
        }
    }

    /// Notes that a commit has released references.
    pub(crate) fn note_release(&self) {
        self.space.releases.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of searches of the compactor, if references have been released since the last one. A writer without
    /// room waits for the next search then, but only for one, since other writers keep releasing references.
    pub(crate) fn searches_if_stale(&self) -> Option<u64> {
        let seen = self.space.releases_seen.load(Ordering::Acquire);
        let is_stale = seen != self.space.releases.load(Ordering::Acquire);
        let searches = (is_stale && self.is_cleaned()).then(|| self.space.searches.load(Ordering::Acquire));
        if searches.is_some() {
            self.note_awaited();
        }
        searches
    }

    /// Requests that the compactor free this many bytes, as far as they are reclaimable.
    pub fn request_free(&self, bytes: u64) {
        let runs = u32::try_from(bytes.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX).min(self.reclaimable_runs());
        self.space.demand.fetch_max(runs, Ordering::Relaxed);
    }

    /// Resets the demand: enough runs are free.
    pub(crate) fn end_demand(&self) {
        self.space.demand.store(0, Ordering::Relaxed);
    }

    /// Lends a free run to a transport, for landing.
    pub fn take_landing_run(&self) -> Option<u64> {
        self.take_data_run(self.compactor_keeps()).map(RunId::off)
    }
}
