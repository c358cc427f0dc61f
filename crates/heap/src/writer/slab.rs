//! The slab that a writer appends to.

use super::{Urgency, Writer};
use crate::error::HeapError;
use crate::layout::{RunId, SLOTS_PER_RUN};
use landfall_media::CommitMode;

impl Writer {
    /// Ensures that the current slab has `count` free slots. A group, and a batch, lie in one slab.
    #[inline]
    pub(crate) fn ensure_slots(&mut self, count: u32, urgency: Urgency) -> Result<(), HeapError> {
        if self.has_slots(count) {
            return Ok(());
        }
        if !self.is_quiescent() {
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
            (self.batch_start, self.flushed) = (spare.next, spare.next);
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
