//! The slab that a writer appends to.

use super::{LeftSlab, Urgency, Writer};
use crate::error::HeapError;
use crate::layout::{RunId, SLOTS_PER_RUN};
use landfall_media::CommitMode;
use smallvec::SmallVec;

impl Writer {
    /// Ensures that the current slab has `count` free slots. A group lies in one slab. So does a batch, unless what it has in a
    /// full one is durable in this region.
    #[inline]
    pub(crate) fn ensure_slots(&mut self, count: u32, urgency: Urgency) -> Result<(), HeapError> {
        if self.has_slots(count) {
            return Ok(());
        }
        if self.may_leave_slab() {
            self.leave_slab();
        } else if !self.is_quiescent() {
            // The compactor may block in its own fence, since no request waits for it.
            let waits = self.is_compactor();
            // A successor, and whoever fences the batch under way, may be waited for for long, and whoever appends may hold what
            // others need meanwhile.
            let is_deferred = self.heap.media.commit_mode() == CommitMode::Deferred
                || self.successor.is_some()
                || self.is_committing();
            if is_deferred && !waits {
                return Err(HeapError::Busy);
            }
            self.commit_now()?;
        }
        self.open_slab(count, urgency)
    }

    /// True if a batch waits for the successor, and all that the slab has is durable in this region.
    fn may_leave_slab(&self) -> bool {
        self.successor.is_some()
            && self.unerased.is_empty()
            && self.slab.is_none_or(|slab| slab.next == self.persisted)
    }

    /// The next slab follows before the batch ends. This one stays the writer's until all of it is durable.
    fn leave_slab(&mut self) {
        let Some(slab) = self.slab.take() else { return };
        if slab.next != self.batch_start {
            self.left.push(LeftSlab { run: slab.run, slots: self.batch_start..slab.next });
        } else if self.in_flight.as_ref().is_none_or(|batch| !batch.lies_in(slab.run)) {
            self.heap.runs.abandon_slab(slab.run);
        }
    }

    /// The writer ends: it gives up every slab.
    pub(super) fn abandon_slabs(&mut self) {
        let open = self.slab.map(|slab| slab.run);
        self.close_slab();
        let mut runs: SmallVec<[RunId; 4]> = self.left.drain(..).map(|left| left.run).collect();
        runs.extend(self.in_flight.take().iter().flat_map(|batch| &batch.slabs).map(|(run, _)| *run));
        runs.sort_unstable();
        runs.dedup();
        runs.into_iter().filter(|run| Some(*run) != open).for_each(|run| self.heap.runs.abandon_slab(run));
    }

    /// Gives up those of the slabs in which no record of the current batch lies.
    pub(super) fn abandon_left(&self, slabs: &[(RunId, u32)]) {
        let is_used = |run: RunId| {
            self.slab.is_some_and(|slab| slab.run == run) || self.left.iter().any(|left| left.run == run)
        };
        let unused = slabs.iter().map(|(run, _)| *run).filter(|run| !is_used(*run));
        unused.for_each(|run| self.heap.runs.abandon_slab(run));
    }

    #[inline]
    pub(super) fn has_slots(&self, count: u32) -> bool {
        self.slab.is_some_and(|slab| SLOTS_PER_RUN - slab.next >= count)
    }

    pub(super) fn open_slab(&mut self, count: u32, urgency: Urgency) -> Result<(), HeapError> {
        self.close_slab();
        let keep = self.reserve(urgency);
        loop {
            let spare = match self.heap.slabs.take_spare(&self.heap.runs, &self.heap.required, keep, self.id)
            {
                Err(HeapError::Full) => return Err(self.no_run()),
                taken => taken?,
            };
            self.begin_run(spare.run);
            self.slab = Some(spare);
            (self.batch_start, self.flushed, self.persisted) = (spare.next, spare.next, spare.next);
            self.heap.runs.get(spare.run).begin_batch(self.batch, spare.next);
            if SLOTS_PER_RUN - spare.next >= count {
                return Ok(());
            }
            self.close_slab();
        }
    }

    /// A run that the compactor fills has the age of the moved data, and counts as part of the compactor's reserve.
    pub(crate) fn begin_run(&self, run: RunId) {
        if self.is_compactor() {
            self.heap.runs.get(run).take_over(self.born);
            self.heap.space.note_compactor_fills(true);
        }
    }

    pub(crate) fn end_run(&self) {
        if self.is_compactor() {
            self.heap.space.note_compactor_fills(false);
        }
    }

    pub(crate) fn is_compactor(&self) -> bool {
        self.urgency_base == Urgency::Compact
    }

    /// Free runs that this writer may not take.
    pub(crate) fn reserve(&self, urgency: Urgency) -> u32 {
        match (self.urgency_base, urgency) {
            (Urgency::Compact, _) => 0,
            (_, Urgency::Delete) => self.heap.space.delete_keeps(),
            (_, Urgency::Admitted) => self.heap.space.admitted_keeps(&self.heap.runs),
            (_, Urgency::Copied) => self.heap.space.copied_keeps(&self.heap.runs),
            _ => self.heap.writer_reserve(),
        }
    }

    pub(super) fn close_slab(&mut self) {
        if let Some(slab) = self.slab.take() {
            self.heap.runs.abandon_slab(slab.run);
            self.end_run();
        }
    }
}
