//! Who may take which of the last free runs, when cleaning begins, and whether waiting for it makes sense.
//!
//! A full region must still take deletes: they need slots, and before that a place to land. So the last free runs are
//! reserved: for the compactor, which needs space to make space; for landing; for the slots of deletes. The last share
//! grows with the slabs, so that deletes in any order leave enough dead slots in the average slab for the compactor
//! before they have used it up. Why that always suffices: `docs/format/compaction.md`.

use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId};
use landfall_media::RUN_SIZE;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Runs that only the compactor may take, those included that it fills: for data that it moves, for their records, and
/// one for emptying slabs.
pub const COMPACTOR_RESERVE_RUNS: u32 = 3;
/// Free runs beyond that which only landing may take, for each transport: requests must still arrive
/// when the region is full.
pub const LANDING_RESERVE_RUNS: u32 = 4;
/// Free runs beyond that which only slabs for deletes may take, at least.
const DELETE_RESERVE_RUNS: u32 = 2;
/// Slabs for each run of that reserve beyond the least.
const SLABS_PER_DELETE_RUN: u32 = 32;
/// Free runs beyond all reserves below which the compactor works: one part in so many of the region, within bounds.
const MARGIN_PARTS: u32 = 128;
const MARGIN_RUNS: std::ops::RangeInclusive<u32> = 3..=64;
/// A region is full, whatever cleaning could still find, when that is less than one part in so many.
const WORTH_PARTS: u32 = 128;

/// What is known of space that is to be had.
#[derive(Debug)]
pub(crate) struct Space {
    landing_reserve: AtomicU32,
    /// Runs that the compactor fills.
    compactor_fills: AtomicU32,
    /// A compactor works on the region.
    is_cleaned: AtomicBool,
    /// Runs that cleaning could free, as the compactor saw or estimated it last.
    reclaimable: AtomicU32,
    /// How often the compactor has looked at all runs.
    searches: AtomicU64,
    /// Commits that let something go, and how many there had been when the compactor looked last.
    releases: AtomicU64,
    releases_seen: AtomicU64,
    /// Somebody waits for space.
    is_awaited: AtomicBool,
    /// Runs beyond the reserves that somebody waits for at once.
    demand: AtomicU32,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            landing_reserve: AtomicU32::new(LANDING_RESERVE_RUNS),
            compactor_fills: AtomicU32::new(0),
            is_cleaned: AtomicBool::new(false),
            reclaimable: AtomicU32::new(0),
            searches: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            releases_seen: AtomicU64::new(0),
            is_awaited: AtomicBool::new(false),
            demand: AtomicU32::new(0),
        }
    }
}

impl Heap {
    /// Reserves landing space for this many transports.
    pub fn reserve_landing(&self, transports: u32) {
        self.space.landing_reserve.store(transports * LANDING_RESERVE_RUNS, Ordering::Relaxed);
    }

    fn landing_reserve(&self) -> u32 {
        self.space.landing_reserve.load(Ordering::Relaxed)
    }

    /// Free runs that everybody else must leave to the compactor.
    fn compactor_keeps(&self) -> u32 {
        COMPACTOR_RESERVE_RUNS.saturating_sub(self.space.compactor_fills.load(Ordering::Relaxed))
    }

    /// The compactor has begun to fill a run, or left one.
    pub(crate) fn note_compactor_fills(&self, begins: bool) {
        let fills = &self.space.compactor_fills;
        if begins {
            fills.fetch_add(1, Ordering::Relaxed)
        } else {
            fills.fetch_sub(1, Ordering::Relaxed)
        };
    }

    /// Free runs that deletes must leave alone.
    pub(crate) fn delete_keeps(&self) -> u32 {
        self.compactor_keeps() + self.landing_reserve()
    }

    /// Free runs that writers must leave alone.
    pub(crate) fn writer_reserve(&self) -> u32 {
        let for_deletes = self.runs.slab_count() / SLABS_PER_DELETE_RUN;
        self.delete_keeps() + for_deletes.max(DELETE_RESERVE_RUNS)
    }

    /// Free runs below which the compactor is to make more.
    pub fn clean_below(&self) -> u32 {
        let margin = (self.runs.total() / MARGIN_PARTS).clamp(*MARGIN_RUNS.start(), *MARGIN_RUNS.end());
        self.writer_reserve() + margin.max(1 + self.space.demand.load(Ordering::Relaxed))
    }

    /// True while writers may add data; deletes and reads go on when this is false.
    pub fn has_room(&self) -> bool {
        self.runs.free_count() > self.writer_reserve()
    }

    /// Bytes that writers may fill before anything is cleaned.
    pub fn free_bytes(&self) -> u64 {
        u64::from(self.runs.free_count().saturating_sub(self.writer_reserve())) * RUN_SIZE
    }

    /// Bytes that writers may still fill, about, with what cleaning would find.
    pub fn room_bytes(&self) -> u64 {
        self.obtainable_runs().saturating_mul(RUN_SIZE).max(self.free_bytes())
    }

    /// Runs that cleaning is known, or believed, to be able to free.
    fn reclaimable_runs(&self) -> u32 {
        if self.is_cleaned() { self.space.reclaimable.load(Ordering::Acquire) } else { 0 }
    }

    /// Runs that writers can have, with those that cleaning would find, beyond what is too little to clean for.
    fn obtainable_runs(&self) -> u64 {
        let with_cleaning = u64::from(self.runs.free_count()) + u64::from(self.reclaimable_runs());
        with_cleaning.saturating_sub(u64::from(self.writer_reserve() + self.worth()))
    }

    fn worth(&self) -> u32 {
        1 + self.runs.total() / WORTH_PARTS
    }

    /// True while a compactor works on the region.
    pub(crate) fn is_cleaned(&self) -> bool {
        self.space.is_cleaned.load(Ordering::Acquire)
    }

    /// For a writer that has found no room for `runs` more: true if cleaning will make it, and who waits is woken then.
    pub(crate) fn may_wait_for(&self, runs: u32) -> bool {
        let waits = self.obtainable_runs() > u64::from(runs);
        if waits {
            self.space.demand.fetch_max(runs, Ordering::Relaxed);
            self.note_awaited();
        }
        waits
    }

    /// The same for a delete that has found no slot, and a transport that was lent no run: they wait while anything can
    /// be found at all.
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

    /// True while a transport would be lent a run.
    pub fn can_land(&self) -> bool {
        self.runs.free_count() > self.compactor_keeps()
    }

    /// True if somebody has waited for space since this was asked last.
    pub fn take_awaited(&self) -> bool {
        self.space.is_awaited.swap(false, Ordering::AcqRel)
    }

    /// Whether a compactor works on the region.
    pub(crate) fn set_cleaned(&self, is_cleaned: bool) {
        self.estimate_reclaimable();
        self.space.is_cleaned.store(is_cleaned, Ordering::Release);
    }

    /// The compactor is about to look at all runs: what is let go from now on it may not see.
    pub(crate) fn begin_search(&self) {
        self.space.releases_seen.store(self.space.releases.load(Ordering::Acquire), Ordering::Release);
    }

    /// What it has found.
    pub(crate) fn end_search(&self, runs: u32) {
        self.space.reclaimable.store(runs, Ordering::Release);
        self.space.searches.fetch_add(1, Ordering::AcqRel);
    }

    /// While enough is free nobody looks: what is used and not live could be found.
    pub(crate) fn estimate_reclaimable(&self) {
        let live = self.runs.live_bytes() + self.runs.live_slots() * RECORD_SIZE;
        let used = self.runs.total() - self.runs.free_count();
        let dead = used.saturating_sub(u32::try_from(live.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX));
        self.space.reclaimable.store(dead, Ordering::Release);
    }

    /// Room for new data, as [`Self::has_room`].
    ///
    /// # Errors
    /// [`HeapError::Cleaning`] where it is about to be made; [`HeapError::Full`].
    pub fn check_room(&self) -> Result<(), HeapError> {
        match self.has_room() {
            true => Ok(()),
            false if self.may_wait_for(0) => Err(HeapError::Cleaning),
            false => Err(HeapError::Full),
        }
    }

    /// Something has been let go by a commit.
    pub(crate) fn note_release(&self) {
        self.space.releases.fetch_add(1, Ordering::AcqRel);
    }

    /// How often the compactor has looked at all runs, if it is worth looking again. Whoever finds no space with what
    /// is known waits for the next look then; but only for one, since others go on letting things go.
    pub(crate) fn searches_if_stale(&self) -> Option<u64> {
        let seen = self.space.releases_seen.load(Ordering::Acquire);
        let is_stale = seen != self.space.releases.load(Ordering::Acquire);
        let searches = (is_stale && self.is_cleaned()).then(|| self.space.searches.load(Ordering::Acquire));
        if searches.is_some() {
            self.note_awaited();
        }
        searches
    }

    /// Has the compactor make this much room, if it can.
    pub fn request_free(&self, bytes: u64) {
        let runs = u32::try_from(bytes.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX).min(self.reclaimable_runs());
        self.space.demand.fetch_max(runs, Ordering::Relaxed);
    }

    /// As much is free as was wanted.
    pub(crate) fn end_demand(&self) {
        self.space.demand.store(0, Ordering::Relaxed);
    }

    /// Lends a free run to a transport, for landing.
    pub fn take_landing_run(&self) -> Option<u64> {
        self.take_data_run(self.compactor_keeps()).map(RunId::off)
    }
}
