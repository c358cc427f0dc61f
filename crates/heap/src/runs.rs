//! The state of runs and frames in DRAM: reference counts, live bytes, free runs. Recovery rebuilds it.

use crate::free::FreeRuns;
use crate::lanes::Ticket;
use crate::layout::{FRAME_SIZE, FRAMES_PER_RUN, RunId, SLOTS_PER_RUN, SlotId, ZONE_RUNS};
use crate::referrers::Sharing;
use crate::run::{GatheringBatch, Live, Run, RunUse};
use landfall_media::{Extent, MediaError, Pages, prefetch_line};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most references to a frame with which a further record may share it: far below the limit of the counter.
const FRAME_REFS_MAX: u32 = 1 << 31;
/// A run is sparse if no more than one part in this many of its frames is in use.
const SPARSE_PARTS: u64 = 4;

/// Counts that `INFO` and `/metrics` show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs in the region, table runs included.
    pub total: u32,
    /// Free runs.
    pub free: u32,
    /// Data runs.
    pub data: u32,
    /// Slabs.
    pub slab: u32,
}

/// All runs and frames.
pub struct Runs {
    runs: Box<[Run]>,
    frames: Box<[AtomicU32]>,
    free: Mutex<FreeRuns>,
    free_count: AtomicU32,
    slab_count: AtomicU32,
    /// Runs taken since the region was opened: the clock by which runs age.
    taken: AtomicU32,
    /// How often a slab may have become empty since the region was opened.
    emptied: AtomicU32,
    /// Pins and residency, if the region is paged.
    pages: Option<Arc<dyn Pages>>,
}

impl std::fmt::Debug for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Runs").field(&self.counts()).finish()
    }
}

impl Runs {
    /// State for `runs` runs, none in use and none on the free list. With `pages`, holds also pin.
    pub fn new(runs: u32, pages: Option<Arc<dyn Pages>>) -> Self {
        let frames = runs as usize * FRAMES_PER_RUN as usize;
        Self {
            runs: (0..runs).map(|_| Run::default()).collect(),
            frames: (0..frames).map(|_| AtomicU32::new(0)).collect(),
            free: Mutex::default(),
            free_count: AtomicU32::new(0),
            slab_count: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            emptied: AtomicU32::new(0),
            pages,
        }
    }

    /// One run.
    ///
    /// # Panics
    /// If there is no such run. Run numbers come from checked extents and slots.
    #[inline]
    pub fn get(&self, run: RunId) -> &Run {
        &self.runs[run.0 as usize]
    }

    /// Every run with its id.
    pub fn iter(&self) -> impl Iterator<Item = (RunId, &Run)> {
        self.runs.iter().enumerate().map(|(index, run)| (RunId(index as u32), run))
    }

    /// Number of free runs that can be taken. Runs for which the medium has no space are not included.
    pub fn free_count(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed)
    }

    /// Number of all runs.
    pub(crate) fn total(&self) -> u32 {
        self.runs.len() as u32
    }

    /// Number of runs that are not free, those of tables included.
    pub(crate) fn used_count(&self) -> u32 {
        self.total().saturating_sub(self.free_count())
    }

    /// Number of runs that hold no table.
    pub(crate) fn usable_count(&self) -> u32 {
        self.total() - self.total().div_ceil(ZONE_RUNS)
    }

    pub(crate) fn slab_count(&self) -> u32 {
        self.slab_count.load(Ordering::Relaxed)
    }

    /// Number of runs taken since the region was opened; wraps.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// A counter that changes when a slab may have become empty.
    pub(crate) fn emptied(&self) -> u32 {
        self.emptied.load(Ordering::Relaxed)
    }

    /// Bytes that live records refer to, over all runs.
    pub fn live_bytes(&self) -> u64 {
        // Summed on demand: all workers would contend for one counter.
        self.runs.iter().map(|run| u64::from(run.live_bytes())).sum()
    }

    /// Slots with current records, over all slabs.
    pub fn live_slots(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.live_slots())).sum()
    }

    /// Counts of runs by use.
    pub fn counts(&self) -> RunCounts {
        let (total, free) = (self.runs.len() as u32, self.free.lock().len() as u32);
        let slab = self.slab_count.load(Ordering::Relaxed);
        let tables = total.div_ceil(ZONE_RUNS);
        RunCounts { total, free, slab, data: total.saturating_sub(free + slab + tables) }
    }

    /// Takes a free run, if more than `keep` are free.
    pub(crate) fn take_free(&self, keep: u32) -> Option<RunId> {
        if self.free_count() <= keep {
            return None;
        }
        let run = self.change_free(|free| free.take(keep as usize))?;
        let state = self.get(run);
        state.born.store(self.taken.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        state.packed.store(0, Ordering::Relaxed);
        state.moves.store(0, Ordering::Relaxed);
        Some(run)
    }

    pub(crate) fn put_free(&self, run: RunId) {
        let state = self.get(run);
        debug_assert_eq!(state.live.load(Ordering::Relaxed), 0);
        state.set_use(RunUse::Free);
        let referrers = std::mem::take(&mut *state.referrers.lock());
        debug_assert!(referrers.shared.is_empty(), "bytes of a free run are shared");
        state.set_sharing(Sharing::None);
        self.change_free(|free| free.put(run));
    }

    /// Returns a run that was taken and cannot be used because of `why`.
    pub(crate) fn put_unused(&self, run: RunId, why: &MediaError) {
        match why {
            MediaError::Full { .. } => self.change_free(|free| free.put_unbacked(run)),
            _ => self.put_free(run),
        }
    }

    /// Changes the free runs and updates their count.
    pub(crate) fn change_free<R>(&self, change: impl FnOnce(&mut FreeRuns) -> R) -> R {
        let mut free = self.free.lock();
        let done = change(&mut free);
        self.free_count.store(free.available() as u32, Ordering::Relaxed);
        done
    }

    pub(crate) fn become_slab(&self, run: RunId, durable: u32) {
        let state = self.get(run);
        state.filled.store(durable, Ordering::Relaxed);
        state.durable.store(durable, Ordering::Release);
        state.marked.store(durable, Ordering::Relaxed);
        state.live_slots.store(0, Ordering::Relaxed);
        state.leaving.store(0, Ordering::Relaxed);
        state.abandoned.store(0, Ordering::Relaxed);
        state.set_use(RunUse::Slab);
        self.slab_count.fetch_add(1, Ordering::Relaxed);
    }

    /// The owner of a slab appends nothing more, whether or not it has appended anything.
    pub(crate) fn abandon_slab(&self, run: RunId) {
        let state = self.get(run);
        state.abandoned.store(1, Ordering::Relaxed);
        state.owner.store(0, Ordering::Release);
        if state.live_slots() == 0 {
            self.note_emptied();
        }
    }

    pub(crate) fn leave_slab(&self, run: RunId) {
        self.slab_count.fetch_sub(1, Ordering::Relaxed);
        self.put_free(run);
    }

    /// Makes a run that came from [`Self::take_free`] a data run that its taker fills.
    pub(crate) fn begin_data(&self, run: RunId) {
        let state = self.get(run);
        state.filled.store(0, Ordering::Relaxed);
        state.durable.store(0, Ordering::Relaxed);
        state.filling.store(1, Ordering::Release);
        state.busy.fetch_add(1, Ordering::AcqRel);
        state.set_use(RunUse::Data);
    }

    /// Ends filling a data run.
    pub(crate) fn end_data(&self, run: RunId) {
        self.get(run).filling.store(0, Ordering::Release);
        self.drop_busy(run);
    }

    /// As [`Self::pages`], to be kept.
    pub(crate) fn shared_pages(&self) -> Option<Arc<dyn Pages>> {
        self.pages.clone()
    }

    /// Pins and residency; `None` if the region is not paged.
    pub(crate) fn pages(&self) -> Option<&dyn Pages> {
        self.pages.as_deref()
    }

    /// Holds every frame that the extent touches: until [`Self::release`] the frames are not reused, and their bytes
    /// stay in memory. The frames must be held or referenced already, or the caller fills their run.
    #[inline]
    pub fn hold(&self, extent: Extent) {
        if let Some(pages) = &self.pages {
            pages.pin(extent);
        }
        self.count_up(extent);
    }

    /// Releases every frame that the extent touches, and frees runs without references. An extent that was held at once
    /// may be released in parts of whole frames.
    pub fn release(&self, extent: Extent) {
        if let Some(pages) = &self.pages {
            pages.unpin(extent);
        }
        self.count_down(extent);
    }

    /// Releases what was held only to be read into memory. The use that led to it counts for nothing: what is read once
    /// does not displace what is read again and again.
    pub fn release_loaded(&self, extent: Extent) {
        if let Some(pages) = &self.pages {
            pages.forget_use(extent);
        }
        self.release(extent);
    }

    /// Adds one reference to every frame that the extent touches.
    #[inline]
    fn count_up(&self, extent: Extent) {
        for frame in frames_of(extent) {
            if self.frames[frame].fetch_add(1, Ordering::AcqRel) == 0 {
                self.runs[frame / FRAMES_PER_RUN as usize].busy.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Drops one reference from every frame that the extent touches, and frees runs without references.
    fn count_down(&self, extent: Extent) {
        for frame in frames_of(extent) {
            let before = self.frames[frame].fetch_sub(1, Ordering::AcqRel);
            assert_ne!(before, 0, "frame {frame} was released more often than held");
            if before == 1 {
                self.drop_busy(RunId((frame / FRAMES_PER_RUN as usize) as u32));
            }
        }
    }

    /// Prevents a run from becoming free until [`Self::leave`]. False if the run has no references.
    pub(crate) fn enter(&self, run: RunId) -> bool {
        let one_more = |busy: u32| (busy > 0).then_some(busy + 1);
        self.get(run).busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    /// Ends what [`Self::enter`] began.
    pub(crate) fn leave(&self, run: RunId) {
        self.drop_busy(run);
    }

    /// True for a data run that is filled: no byte of it is stored to until it becomes free.
    pub(crate) fn is_settled_data(&self, run: RunId) -> bool {
        let state = self.get(run);
        state.used_for() == RunUse::Data && state.filling.load(Ordering::Acquire) == 0
    }

    /// True if every record that refers to a data run is durable.
    pub(crate) fn all_durable(&self, run: RunId) -> bool {
        self.get(run).referrers.lock().slots.iter().all(|range| self.are_durable(range))
    }

    /// True if all records in the range of slots are durable.
    fn are_durable(&self, slots: &Range<u32>) -> bool {
        let (first, last) = (SlotId(slots.start).run(), SlotId(slots.end - 1).run());
        (first.0..=last.0).map(RunId).all(|slab| {
            let state = self.get(slab);
            let end = if slab == last { SlotId(slots.end - 1).index() + 1 } else { SLOTS_PER_RUN };
            // A range may include slots that have no record yet.
            state.used_for() != RunUse::Slab
                || state.durable.load(Ordering::Acquire) >= end.min(state.filled())
        })
    }

    fn drop_busy(&self, run: RunId) {
        let before = self.get(run).busy.fetch_sub(1, Ordering::AcqRel);
        assert_ne!(before, 0, "run {} was released more often than held", run.0);
        if before == 1 && self.get(run).used_for() == RunUse::Data {
            self.put_free(run);
        }
    }

    /// Prefetches the reference count of an extent's first frame, and what counts its pins.
    #[inline]
    pub(crate) fn prefetch_refs(&self, extent: Extent) {
        if let Some(pages) = &self.pages {
            pages.prefetch(extent);
        }
        if let Some(count) = self.frames.get((extent.off / FRAME_SIZE) as usize) {
            prefetch_line(count);
        }
    }

    /// True if the run of this byte is kept by few frames, and nobody fills it: whoever moves its bytes elsewhere gains most
    /// of a run.
    pub fn is_sparse(&self, off: u64) -> bool {
        let run = self.get(RunId::of(off));
        let few = (FRAMES_PER_RUN / SPARSE_PARTS) as u32;
        run.used_for() == RunUse::Data && !run.is_open() && run.busy.load(Ordering::Acquire) <= few
    }

    /// True if somebody fills the run of this byte, and nothing in it is held or referenced.
    pub fn is_filled_in_vain(&self, off: u64) -> bool {
        let run = self.get(RunId::of(off));
        run.is_open() && run.busy.load(Ordering::Acquire) == 1
    }

    /// Number of references to one frame.
    pub fn frame_refs(&self, off: u64) -> u32 {
        self.frames[(off / FRAME_SIZE) as usize].load(Ordering::Acquire)
    }

    /// Counts a record's reference to these bytes, and notes the record as a referrer.
    #[inline]
    pub(crate) fn refer(&self, extent: Extent, slot: SlotId) {
        self.refer_unnamed(extent);
        self.note_referrer(extent, slot);
    }

    /// Counts a reference that is no record's.
    #[inline]
    pub(crate) fn refer_unnamed(&self, extent: Extent) {
        self.count_up(extent);
        for (run, len) in runs_of(extent) {
            self.get(run).live.fetch_add(Live::piece(len), Ordering::Relaxed);
        }
    }

    /// Marks these bytes as shared, directly after [`Self::refer`] has counted a further reference: live bytes count
    /// once.
    pub(crate) fn share(&self, extent: Extent) {
        for (run, range) in ranges_of(extent) {
            let state = self.get(run);
            let mut referrers = state.referrers.lock();
            let len = range.end - range.start;
            referrers.shared.raise(range, 2);
            state.set_sharing(Sharing::Some);
            state.live.fetch_sub(u64::from(len), Ordering::Relaxed);
        }
    }

    /// Removes a record's reference to these bytes.
    #[inline]
    pub(crate) fn unrefer(&self, extent: Extent) {
        for (run, len) in runs_of(extent) {
            let state = self.get(run);
            let len = if state.has_sharing(Sharing::None) { len } else { self.unshare(extent, run) };
            state.live.fetch_sub(Live::piece(len), Ordering::Relaxed);
        }
        self.count_down(extent);
    }

    /// Removes one reference to the extent's bytes in `run`. Returns the number of bytes that have no other reference.
    #[cold]
    fn unshare(&self, extent: Extent, run: RunId) -> u32 {
        let mut alone = 0;
        let state = self.get(run);
        let mut referrers = state.referrers.lock();
        for (_, range) in ranges_of(extent).filter(|(of, _)| *of == run) {
            alone += referrers.shared.lower(range, 2);
        }
        if referrers.shared.is_empty() {
            state.set_sharing(Sharing::None);
        }
        alone
    }

    /// True if two or more records refer to a byte of the extent.
    pub(crate) fn is_shared(&self, extent: Extent) -> bool {
        ranges_of(extent).any(|(run, range)| {
            let state = self.get(run);
            !state.has_sharing(Sharing::None) && state.referrers.lock().shared.touches(range)
        })
    }

    /// True if a further record may refer to the extent's frames: their counters are far from overflow.
    pub fn may_share(&self, extent: Extent) -> bool {
        frames_of(extent).all(|frame| self.frames[frame].load(Ordering::Acquire) < FRAME_REFS_MAX)
    }

    /// Recovery has found a record that may share these bytes: references to their runs are counted byte by byte.
    pub(crate) fn count_by_byte(&self, extent: Extent) {
        runs_of(extent).for_each(|(run, _)| self.get(run).set_sharing(Sharing::Counting));
    }

    /// Notes for the compactor that `slot` refers to the extent's runs.
    #[inline]
    pub(crate) fn note_referrer(&self, extent: Extent, slot: SlotId) {
        for (run, _) in runs_of(extent) {
            self.get(run).referrers.lock().note(slot);
        }
    }

    /// The slots that may refer to a data run, sorted, without duplicates.
    pub(crate) fn referrers(&self, run: RunId) -> Vec<SlotId> {
        let mut referrers = self.get(run).referrers.lock();
        referrers.tidy();
        referrers.slots.iter().cloned().flatten().map(SlotId).collect()
    }

    /// Number of the extent's bytes that no earlier call has counted, for counting live bytes without adopting them. In
    /// runs without shared bytes, all bytes of the extent.
    pub fn count_once(&self, extent: Extent) -> u64 {
        let count = |(run, range): (RunId, Range<u32>)| {
            let state = self.get(run);
            let len = range.end - range.start;
            let counts_by_byte = state.has_sharing(Sharing::Counting);
            u64::from(if counts_by_byte { state.referrers.lock().shared.raise(range, 1) } else { len })
        };
        ranges_of(extent).map(count).sum()
    }

    /// Counts a recovered record's reference to these bytes.
    pub(crate) fn adopt(&self, extent: Extent, slot: SlotId) {
        self.count_up(extent);
        for (run, range) in ranges_of(extent) {
            let state = self.get(run);
            state.set_use(RunUse::Data);
            let mut referrers = state.referrers.lock();
            referrers.note(slot);
            let len = range.end - range.start;
            let counts_by_byte = state.has_sharing(Sharing::Counting);
            let fresh = if counts_by_byte { referrers.shared.raise(range, 1) } else { len };
            state.live.fetch_add(Live::piece(fresh), Ordering::Relaxed);
        }
    }

    /// Counts the slot as live: its record is current.
    #[inline]
    pub fn slot_live(&self, slot: SlotId) {
        self.get(slot.run()).live_slots.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the slot as dead: its record is no longer current.
    #[inline]
    pub fn slot_dead(&self, slot: SlotId) {
        let before = self.get(slot.run()).live_slots.fetch_sub(1, Ordering::Relaxed);
        debug_assert_ne!(before, 0);
        if before == 1 {
            self.note_emptied();
        }
    }

    /// Notes that a slab may have become empty.
    pub(crate) fn note_emptied(&self) {
        self.emptied.fetch_add(1, Ordering::Relaxed);
    }

    /// The ticket of the batch that makes the record in `slot` durable; `None` if the record is durable. The record
    /// must be current, or the caller has appended it: other slots may have been reused.
    #[inline]
    pub fn pending(&self, slot: SlotId) -> Option<Ticket> {
        if slot == SlotId::NONE || slot.index() < self.get(slot.run()).durable.load(Ordering::Acquire) {
            return None;
        }
        self.ticket_of(slot)
    }

    /// A slab changes its owner only when all of its records are durable. So if the slot is not durable after batch and
    /// owner have been read, these belong together.
    fn ticket_of(&self, slot: SlotId) -> Option<Ticket> {
        let run = self.get(slot.run());
        let batch = GatheringBatch::from_word(run.batch.load(Ordering::Acquire));
        let owner = run.owner.load(Ordering::Acquire);
        if slot.index() < run.durable.load(Ordering::Acquire) {
            return None;
        }
        Some(
            owner
                .checked_sub(1)
                .map_or(Ticket::NEVER, |owner| Ticket::new(owner, batch.of_slot(slot.index()))),
        )
    }

    /// Notes that a slab is durable up to `index`.
    pub(crate) fn mark_durable(&self, run: RunId, index: u32) {
        debug_assert!(index <= SLOTS_PER_RUN);
        self.get(run).durable.fetch_max(index, Ordering::AcqRel);
    }

    /// Puts every run that has no use after recovery on the free list.
    pub(crate) fn free_unused(&self) {
        for (id, run) in self.iter() {
            if id.is_table() {
                run.set_use(RunUse::Table);
            } else if run.used_for() == RunUse::Free {
                run.set_sharing(Sharing::None);
                self.free.lock().put(id);
            } else {
                run.end_counting();
            }
        }
        self.change_free(FreeRuns::sort);
    }
}

#[inline]
fn frames_of(extent: Extent) -> Range<usize> {
    if extent.is_empty() {
        return 0..0;
    }
    let first = extent.off / FRAME_SIZE;
    let last = (extent.end() - 1) / FRAME_SIZE;
    first as usize..last as usize + 1
}

/// The runs that an extent touches, with the number of its bytes in each.
#[inline]
fn runs_of(extent: Extent) -> impl Iterator<Item = (RunId, u32)> {
    extent.by_run().map(|part| (RunId::of(part.off), part.len()))
}

/// The runs that an extent touches, with the range of its bytes in each.
fn ranges_of(extent: Extent) -> impl Iterator<Item = (RunId, Range<u32>)> {
    extent.by_run().map(|part| {
        let run = RunId::of(part.off);
        let start = (part.off - run.off()) as u32;
        (run, start..start + part.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::RUN_SIZE;

    fn runs() -> Runs {
        let runs = Runs::new(8, None);
        runs.free_unused();
        runs
    }

    #[test]
    fn a_data_run_is_free_again_when_filled_and_released_in_any_order() {
        for end_first in [true, false] {
            let runs = runs();
            let run = runs.take_free(0).expect("free runs");
            runs.begin_data(run);
            let extent = Extent::new(run.off() + 100, 5000);
            runs.hold(extent);
            runs.hold(Extent::new(run.off(), 1));
            let steps: [&dyn Fn(); 2] = [&|| runs.end_data(run), &|| runs.release(extent)];
            let order = if end_first { [0, 1] } else { [1, 0] };
            order.into_iter().for_each(|step| steps[step]());
            assert_eq!(runs.free_count(), 6);
            runs.release(Extent::new(run.off(), 1));
            assert_eq!(runs.free_count(), 7);
        }
    }

    #[test]
    fn an_extent_over_two_runs_counts_in_both() {
        let runs = runs();
        let extent = Extent::new(2 * RUN_SIZE - 10, 30);
        runs.adopt(extent, SlotId(1));
        assert_eq!(runs.get(RunId(1)).live_bytes(), 10);
        assert_eq!(runs.get(RunId(2)).live_bytes(), 20);
        runs.unrefer(extent);
        assert_eq!(runs.live_bytes(), 0);
    }

    #[test]
    fn shared_bytes_count_once_in_whatever_order_their_records_go() {
        let extents = [Extent::new(2 * RUN_SIZE - 10, 30), Extent::new(2 * RUN_SIZE - 5, 10)];
        for goes in [[0, 1, 0], [1, 0, 0], [0, 0, 1]] {
            let runs = runs();
            for run in [1, 2] {
                assert_eq!(runs.take_free(0), Some(RunId(run)));
                runs.begin_data(RunId(run));
            }
            runs.refer(extents[0], SlotId(9000));
            for extent in [extents[0], extents[1]] {
                runs.refer(extent, SlotId(9001));
                runs.share(extent);
            }
            assert_eq!(runs.live_bytes(), 30);
            assert_eq!(runs.get(RunId(1)).live_pieces(), 3);
            assert!(runs.is_shared(Extent::new(2 * RUN_SIZE, 1)));
            runs.unrefer(extents[goes[0]]);
            runs.unrefer(extents[goes[1]]);
            assert_eq!(runs.live_bytes(), u64::from(extents[goes[2]].len()));
            assert!(!runs.is_shared(extents[0]), "one record refers to them");
            runs.unrefer(extents[goes[2]]);
            assert_eq!(runs.live_bytes(), 0);
        }
    }

    #[test]
    fn recovery_counts_bytes_once_in_runs_with_records_that_may_share() {
        let runs = runs();
        let (whole, part) = (Extent::new(RUN_SIZE, 5000), Extent::new(RUN_SIZE + 4000, 500));
        runs.count_by_byte(part);
        runs.count_by_byte(Extent::new(3 * RUN_SIZE, 1));
        [whole, part, whole].into_iter().for_each(|extent| runs.adopt(extent, SlotId(20_000)));
        runs.free_unused();
        assert_eq!((runs.live_bytes(), runs.frame_refs(RUN_SIZE + 4096)), (5000, 3));
        runs.unrefer(whole);
        assert_eq!(runs.live_bytes(), 5000);
        assert!(runs.is_shared(part) && !runs.is_shared(Extent::new(RUN_SIZE, 4000)));
        runs.unrefer(whole);
        assert_eq!(runs.live_bytes(), 500);
    }

    #[test]
    fn a_frame_near_the_limit_of_its_count_takes_no_further_record() {
        let runs = runs();
        let extent = Extent::new(RUN_SIZE, 3000);
        runs.adopt(extent, SlotId(1));
        assert!(runs.may_share(extent));
        runs.frames[FRAMES_PER_RUN as usize + 1].store(FRAME_REFS_MAX, Ordering::Relaxed);
        assert!(!runs.may_share(extent) && runs.may_share(extent.with_len(2000)));
    }

    #[test]
    fn referrers_are_sorted_and_close_ones_share_a_range() {
        let runs = runs();
        let extent = Extent::new(RUN_SIZE, 10);
        let noted = [70, 71, 73, 500, 90, 72, 74, 501];
        noted.iter().for_each(|slot| runs.note_referrer(extent, SlotId(*slot)));
        let referrers = runs.referrers(RunId(1));
        assert!(referrers.is_sorted() && noted.iter().all(|slot| referrers.contains(&SlotId(*slot))));
        assert_eq!(runs.get(RunId(1)).referrers.lock().slots, [70..91, 500..502]);
    }

    #[test]
    #[should_panic(expected = "released more often than held")]
    fn releasing_a_frame_without_references_panics() {
        runs().release(Extent::new(RUN_SIZE, 1));
    }
}
