//! Policy for the last free runs: who may take them, when compaction begins, and whether a writer should wait for it.
//!
//! A full region must still accept deletes. Deletes need slots, and their requests must land. So the last free runs are
//! reserved for the compactor, for landing, and for the slots of deletes. The reserve for deletes grows with the number
//! of slabs: deletes in any order then leave enough dead slots in the average slab for the compactor before the reserve
//! is used up. Why that always suffices: `docs/format/compaction.md`.

use crate::error::HeapError;
use crate::layout::{RECORD_SIZE, RUNS_MIN};
use crate::runs::Runs;
use landfall_media::RUN_SIZE;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Runs that only the compactor may take, including those that it fills: for moved data, for their records, and one for
/// emptying slabs.
pub const COMPACTOR_RESERVE_RUNS: u32 = 3;
/// Free runs beyond those that only landing may take, for each transport: requests must still arrive when the region is
/// full.
pub const LANDING_RESERVE_RUNS: u32 = 4;
/// Runs that a region has besides what is reserved for landing: for the compactor, slabs, and data.
const RUNS_BESIDE: u64 = 16;
/// Free runs beyond those of writers, for each writer of another machine whose values are admitted by it by the byte: what
/// is under way from it, at most one batch, may begin a landing run, a run of copied keys, and two slabs that its last
/// records do not fill.
const ADMITTED_RESERVE_RUNS: u32 = 4;
/// Most free runs beyond those of copied records, in a chain: one for so many runs that the region has beyond the least. Another machine that has as much room must be able to take a copy of
/// everything: what is on its way, and landing runs that are partly filled, take room there besides.
const COPY_MARGIN_RUNS: u32 = 4;
const RUNS_PER_COPY_MARGIN: u32 = 8;
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

/// Runs that a region has at least in which requests of so many transports land.
fn runs_for_transports(transports: usize) -> u64 {
    transports as u64 * u64::from(LANDING_RESERVE_RUNS) + RUNS_BESIDE
}

/// Checks that requests of so many transports may land in a region of so many runs, which need not exist yet.
///
/// # Errors
/// [`HeapError::Transports`].
pub fn check_transports(runs: u64, transports: usize) -> Result<(), HeapError> {
    let needed = runs_for_transports(transports);
    if needed <= runs {
        return Ok(());
    }
    Err(HeapError::Transports { transports, bytes: needed * RUN_SIZE })
}

/// Transports whose requests may land in a region of so many runs.
pub fn transports_in(runs: u64) -> u64 {
    runs.saturating_sub(RUNS_BESIDE) / u64::from(LANDING_RESERVE_RUNS)
}

/// Free and reclaimable space, and who waits for it.
#[derive(Debug)]
pub(crate) struct Space {
    landing_reserve: AtomicU32,
    /// Runs that only values may take that another machine has admitted.
    admitted_reserve: AtomicU32,
    /// Number of runs that the compactor fills.
    compactor_fills: AtomicU32,
    /// A compactor exists.
    is_cleaned: AtomicBool,
    /// Runs that compaction could free, as last found or estimated.
    reclaimable: AtomicU32,
    /// How often the compactor has searched all runs.
    searches: AtomicU64,
    /// Number of commits that released references, and its value when the compactor's last search began.
    releases: AtomicU64,
    releases_seen: AtomicU64,
    /// A writer or a transport waits for space.
    is_awaited: AtomicBool,
    /// Most runs beyond the reserves that one writer waits for.
    demand: AtomicU32,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            landing_reserve: AtomicU32::new(LANDING_RESERVE_RUNS),
            admitted_reserve: AtomicU32::new(0),
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

impl Space {
    /// Reserves landing runs for this many transports.
    pub(crate) fn reserve_landing(&self, transports: u32) {
        self.landing_reserve.store(transports * LANDING_RESERVE_RUNS, Ordering::Relaxed);
    }

    /// Reserves runs for values that this many writers of another machine have admitted, and for copies.
    pub(crate) fn reserve_admitted(&self, writers: u32) {
        self.admitted_reserve.store(writers * ADMITTED_RESERVE_RUNS, Ordering::Relaxed);
    }

    fn landing_reserve(&self) -> u32 {
        self.landing_reserve.load(Ordering::Relaxed)
    }

    /// Free runs that are reserved for the compactor.
    pub(crate) fn compactor_keeps(&self) -> u32 {
        COMPACTOR_RESERVE_RUNS.saturating_sub(self.compactor_fills.load(Ordering::Relaxed))
    }

    /// The compactor begins or ends filling a run.
    pub(crate) fn note_compactor_fills(&self, begins: bool) {
        let fills = &self.compactor_fills;
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
    pub(crate) fn writer_reserve(&self, runs: &Runs) -> u32 {
        self.copied_keeps(runs) + self.copy_margin(runs)
    }

    /// Runs that only copied records may take beside those that another machine has admitted.
    fn copy_margin(&self, runs: &Runs) -> u32 {
        let is_in_chain = self.admitted_reserve.load(Ordering::Relaxed) > 0;
        let margin = runs.total().saturating_sub(RUNS_MIN) / RUNS_PER_COPY_MARGIN;
        if is_in_chain { margin.min(COPY_MARGIN_RUNS) } else { 0 }
    }

    /// Free runs that copied records may not take.
    pub(crate) fn copied_keeps(&self, runs: &Runs) -> u32 {
        self.admitted_keeps(runs) + self.admitted_reserve.load(Ordering::Relaxed)
    }

    /// Free runs that values may not take that another machine has admitted.
    pub(crate) fn admitted_keeps(&self, runs: &Runs) -> u32 {
        let for_deletes = runs.slab_count() / SLABS_PER_DELETE_RUN;
        self.delete_keeps() + for_deletes.max(DELETE_RESERVE_RUNS)
    }

    /// The compactor works while fewer runs than this are free.
    pub(crate) fn clean_below(&self, runs: &Runs) -> u32 {
        let margin = (runs.total() / MARGIN_PARTS).clamp(*MARGIN_RUNS.start(), *MARGIN_RUNS.end());
        self.writer_reserve(runs) + margin.max(1 + self.demand.load(Ordering::Relaxed))
    }

    /// True while writers may add data. Deletes and reads do not depend on it.
    pub(crate) fn has_room(&self, runs: &Runs) -> bool {
        runs.free_count() > self.writer_reserve(runs)
    }

    /// Bytes that writers may fill without compaction.
    pub(crate) fn free_bytes(&self, runs: &Runs) -> u64 {
        u64::from(runs.free_count().saturating_sub(self.writer_reserve(runs))) * RUN_SIZE
    }

    /// Estimate of the bytes that writers may fill, with compaction.
    pub(crate) fn room_bytes(&self, runs: &Runs) -> u64 {
        self.obtainable_runs(runs).saturating_mul(RUN_SIZE).max(self.free_bytes(runs))
    }

    /// [`Self::room_bytes`], and never more than is not live. It looks at every run.
    pub(crate) fn measured_room_bytes(&self, runs: &Runs) -> u64 {
        let usable = u64::from(runs.usable_count()) * RUN_SIZE;
        self.room_bytes(runs).min(usable.saturating_sub(live_bytes(runs)))
    }

    /// Runs that compaction could free; 0 without a compactor. Runs that became free by themselves since the last search
    /// are not counted again.
    fn reclaimable_runs(&self, runs: &Runs) -> u32 {
        if self.is_cleaned() { self.reclaimable.load(Ordering::Acquire).min(runs.used_count()) } else { 0 }
    }

    /// Runs that writers can obtain, including reclaimable ones, beyond the amount that is too small to compact for.
    fn obtainable_runs(&self, runs: &Runs) -> u64 {
        self.obtainable_beyond(runs, self.writer_reserve(runs))
    }

    /// As [`Self::obtainable_runs`], for one who may take all free runs but `keep`.
    fn obtainable_beyond(&self, runs: &Runs, keep: u32) -> u64 {
        let with_cleaning = u64::from(runs.free_count()) + u64::from(self.reclaimable_runs(runs));
        with_cleaning.saturating_sub(u64::from(keep + self.worth(runs)))
    }

    fn worth(&self, runs: &Runs) -> u32 {
        1 + runs.total() / WORTH_PARTS
    }

    /// True while the region has a compactor.
    pub(crate) fn is_cleaned(&self) -> bool {
        self.is_cleaned.load(Ordering::Acquire)
    }

    /// For a writer that has no room for `count` more runs, and may take all free runs but `keep`. True if compaction will
    /// free them: the writer should wait.
    pub(crate) fn may_wait_for(&self, runs: &Runs, keep: u32, count: u32) -> bool {
        let waits = self.obtainable_beyond(runs, keep) > u64::from(count);
        if waits {
            self.demand.fetch_max(count, Ordering::Relaxed);
            self.note_awaited();
        }
        waits
    }

    /// For a delete without a slot, and a transport without a landing run. True if compaction can free any run: they
    /// should wait.
    pub(crate) fn may_wait_for_any(&self, runs: &Runs) -> bool {
        let waits = self.reclaimable_runs(runs) > 0;
        if waits {
            self.note_awaited();
        }
        waits
    }

    fn note_awaited(&self) {
        self.is_awaited.store(true, Ordering::Release);
    }

    /// True while a transport can take a landing run.
    pub(crate) fn can_land(&self, runs: &Runs) -> bool {
        runs.free_count() > self.compactor_keeps()
    }

    /// True if a writer or a transport has begun to wait for space since the last call.
    pub(crate) fn take_awaited(&self) -> bool {
        self.is_awaited.swap(false, Ordering::AcqRel)
    }

    /// Notes whether the region has a compactor.
    pub(crate) fn set_cleaned(&self, runs: &Runs, is_cleaned: bool) {
        self.estimate_reclaimable(runs);
        self.is_cleaned.store(is_cleaned, Ordering::Release);
    }

    /// The compactor begins to search all runs. It may miss references that are released from now on.
    pub(crate) fn begin_search(&self) {
        self.releases_seen.store(self.releases.load(Ordering::Acquire), Ordering::Release);
    }

    /// Ends a search, which has found this many reclaimable runs. Nobody can demand more than there is.
    pub(crate) fn end_search(&self, runs: &Runs, reclaimable: u32) {
        let free = runs.free_count().saturating_sub(self.writer_reserve(runs));
        self.demand.fetch_min(free + reclaimable.min(runs.used_count()), Ordering::Relaxed);
        self.reclaimable.store(reclaimable, Ordering::Release);
        self.searches.fetch_add(1, Ordering::AcqRel);
    }

    /// Estimates the reclaimable runs without a search: used bytes that are not live.
    pub(crate) fn estimate_reclaimable(&self, runs: &Runs) {
        let live = live_bytes(runs).div_ceil(RUN_SIZE);
        let dead = runs.used_count().saturating_sub(u32::try_from(live).unwrap_or(u32::MAX));
        self.reclaimable.store(dead, Ordering::Release);
    }

    /// Checks that there is room for new data, as [`Self::has_room`].
    ///
    /// # Errors
    /// [`HeapError::Cleaning`] if compaction will free runs; [`HeapError::Full`].
    pub(crate) fn check_room(&self, runs: &Runs) -> Result<(), HeapError> {
        match self.has_room(runs) {
            true => Ok(()),
            false if self.may_wait_for(runs, self.writer_reserve(runs), 0) => Err(HeapError::Cleaning),
            false => Err(HeapError::Full),
        }
    }

    /// Checks that copied records have left what they may not take.
    ///
    /// # Errors
    /// [`HeapError::Cleaning`] if compaction will free as much; [`HeapError::Full`].
    pub(crate) fn check_copied(&self, runs: &Runs) -> Result<(), HeapError> {
        let (free, keeps) = (runs.free_count(), self.copied_keeps(runs));
        if free >= keeps {
            return Ok(());
        }
        if free + self.reclaimable_runs(runs) < keeps {
            return Err(HeapError::Full);
        }
        self.note_awaited();
        Err(HeapError::Cleaning)
    }

    /// Notes that a commit has released references.
    pub(crate) fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of searches of the compactor, if references have been released since the last one. A writer without
    /// room waits for the next search then, but only for one, since other writers keep releasing references.
    pub(crate) fn searches_if_stale(&self) -> Option<u64> {
        let searches = (self.is_stale() && self.is_cleaned()).then(|| self.searches.load(Ordering::Acquire));
        if searches.is_some() {
            self.note_awaited();
        }
        searches
    }

    /// Requests that the compactor free this many bytes, as far as they are reclaimable. If space was released since its
    /// last search, how much is reclaimable is not known: then it searches first.
    pub(crate) fn request_free(&self, runs: &Runs, bytes: u64) {
        let wanted = u32::try_from(bytes.div_ceil(RUN_SIZE)).unwrap_or(u32::MAX);
        let most = if self.is_stale() { u32::MAX } else { self.reclaimable_runs(runs) };
        self.demand.fetch_max(wanted.min(most), Ordering::Relaxed);
    }

    /// True if references were released since the compactor's last search began.
    fn is_stale(&self) -> bool {
        self.releases_seen.load(Ordering::Acquire) != self.releases.load(Ordering::Acquire)
    }

    /// Resets the demand: enough runs are free.
    pub(crate) fn end_demand(&self) {
        self.demand.store(0, Ordering::Relaxed);
    }
}

/// Bytes of live data and records.
fn live_bytes(runs: &Runs) -> u64 {
    runs.live_bytes() + runs.live_slots() * RECORD_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::Extent;

    fn runs() -> Runs {
        let runs = Runs::new(64, None);
        runs.free_unused();
        runs
    }

    #[test]
    fn runs_that_became_free_since_the_search_are_not_room_twice() {
        let (space, runs) = (Space::default(), runs());
        space.set_cleaned(&runs, true);
        let empty = space.room_bytes(&runs);
        space.end_search(&runs, 40);
        assert!(space.room_bytes(&runs) <= empty, "nothing is used: {} > {empty}", space.room_bytes(&runs));
    }

    #[test]
    fn room_is_never_more_than_what_is_not_live() {
        let (space, runs) = (Space::default(), runs());
        space.set_cleaned(&runs, true);
        for _ in 0..40 {
            let run = runs.take_free(0).expect("free runs");
            runs.begin_data(run);
            runs.hold(Extent::new(run.off(), RUN_SIZE as u32));
            runs.adopt(Extent::new(run.off(), RUN_SIZE as u32), crate::layout::SlotId(1));
        }
        space.end_search(&runs, 40);
        let not_live = (63 - 40) * RUN_SIZE;
        let room = space.measured_room_bytes(&runs);
        assert!(room <= not_live, "{room} of {not_live}");
    }
}
