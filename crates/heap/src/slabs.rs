//! Slabs: runs that hold records. Preparing slabs, slabs with room, and durable marks. The order of changes:
//! `docs/format/region.md`.

use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{RunId, SLOTS_PER_RUN};
use crate::record::Seal;
use crate::slab_directory::SpareSlab;
use crate::superblock::FEATURE_EPOCHS;
use crate::table::{self, Epoch, RunWord};
use landfall_media::{Dirty, Extent, MediaError, RUN_SIZE, Site};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

impl Heap {
    /// Number of prepared slabs that no writer has taken.
    pub fn spare_slabs(&self) -> usize {
        self.slabs.spare_count()
    }

    /// Bytes zeroed on the medium since the region was opened, in runs of unknown epoch that became slabs.
    pub fn zeroed_bytes(&self) -> u64 {
        self.slabs.zeroed_bytes()
    }

    /// Turns a free run into an empty slab, durably: first its next epoch, and after the fence its table word.
    ///
    /// # Errors
    /// [`HeapError::Full`] if no more than `keep` runs are free; the medium's.
    pub fn prepare_slab(&self, keep: u32) -> Result<(), HeapError> {
        let run = self.runs.take_free(keep).ok_or(HeapError::Full)?;
        self.begin_slab(run).map_err(|error| {
            self.runs.put_unused(run, &error);
            match error {
                MediaError::Full { .. } => HeapError::Full,
                other => other.into(),
            }
        })?;
        self.runs.become_slab(run, 0);
        self.slabs.add_spares([SpareSlab { run, next: 0 }]);
        Ok(())
    }

    /// Prepares a slab ahead of need, but not from the reserves.
    ///
    /// # Errors
    /// As [`Self::prepare_slab`], but a lack of free runs is not an error.
    pub fn prepare_slab_within_reserve(&self) -> Result<(), HeapError> {
        match self.prepare_slab(self.writer_reserve()) {
            Err(HeapError::Full) => Ok(()),
            other => other,
        }
    }

    fn begin_slab(&self, run: RunId) -> Result<(), MediaError> {
        self.take_up_epochs()?;
        // Unwritten space is written here once, so that the first batches do not pay for it.
        self.media.back_run(run.off())?;
        self.media.claim_run(run.off())?;
        let mut dirty = Dirty::new();
        let epoch = match self.runs.get(run).epoch().next() {
            Some(next) => next,
            None => self.zero_run(run, &mut dirty)?,
        };
        self.set_epoch(run, epoch, &mut dirty)?;
        self.write_words(&[(run, RunWord::Slab { durable: 0, sealed: false })])
    }

    /// Zeroes a run of unknown epoch. Its next epoch is the first one.
    fn zero_run(&self, run: RunId, dirty: &mut Dirty) -> Result<Epoch, MediaError> {
        let whole = Extent::new(run.off(), RUN_SIZE as u32);
        self.media.zero(whole)?;
        self.media.flush(dirty, Site::SlabEpoch, whole);
        self.slabs.add_zeroed(RUN_SIZE);
        Ok(Epoch::FIRST)
    }

    /// Sets the epoch of a run, durably.
    pub(crate) fn set_epoch(&self, run: RunId, epoch: Epoch, dirty: &mut Dirty) -> Result<(), MediaError> {
        table::write_epoch(&*self.media, dirty, run, epoch, &self.geometry.salt)?;
        self.media.fence(dirty, Site::SlabEpochFence)?;
        self.runs.get(run).set_epoch(epoch, Seal::new(&self.geometry.salt, epoch.0));
        Ok(())
    }

    /// Adds epochs to a region of an earlier version, before its first new slab.
    fn take_up_epochs(&self) -> Result<(), MediaError> {
        if self.has_epochs() {
            return Ok(());
        }
        let _table = self.slabs.lock_table();
        if self.has_epochs() {
            return Ok(());
        }
        table::zero_epochs(&*self.media, 0..self.geometry.runs)?;
        self.require_features(FEATURE_EPOCHS)
    }

    /// True if the region has epochs.
    pub(crate) fn has_epochs(&self) -> bool {
        self.required.has(FEATURE_EPOCHS)
    }

    /// Writes run-table words, durably.
    pub(crate) fn write_words(&self, words: &[(RunId, RunWord)]) -> Result<(), MediaError> {
        let _table = self.slabs.lock_table();
        self.write_words_locked(words)
    }

    fn write_words_locked(&self, words: &[(RunId, RunWord)]) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        for (run, word) in words {
            table::write(&*self.media, &mut dirty, *run, *word, &self.geometry.salt)?;
        }
        self.media.fence(&mut dirty, Site::RunTableFence)
    }

    /// Takes a slab with room for `writer`, and prepares one if there is none.
    pub(crate) fn take_spare_slab(&self, keep: u32, writer: u8) -> Result<SpareSlab, HeapError> {
        if let Some(spare) = self.slabs.take_spare(&self.runs, writer) {
            return Ok(spare);
        }
        self.prepare_slab(keep)?;
        self.slabs.take_spare(&self.runs, writer).ok_or(HeapError::Full)
    }

    /// Writes the durable marks of slabs that have advanced by at least `step` slots since the last mark. Returns the
    /// number of marks written.
    ///
    /// # Errors
    /// The medium's.
    pub fn mark_slabs(&self, step: u32) -> Result<usize, HeapError> {
        let slabs = self.slabs.unmarked();
        let done = self.write_marks_where(slabs.into_iter(), |durable, marked| {
            let full = durable == SLOTS_PER_RUN && marked < durable;
            full || durable >= marked + step.max(1)
        })?;
        self.slabs.forget_marked(&self.runs);
        Ok(done)
    }

    /// Writes the durable marks of some slabs.
    pub(crate) fn mark(&self, slabs: &[RunId]) -> Result<(), HeapError> {
        self.write_marks_where(slabs.iter().copied(), |durable, marked| durable > marked).map(|_| ())
    }

    /// Writes marks under the table's lock, so that marks only rise, and a slab that is being freed gets no mark.
    fn write_marks_where(
        &self,
        slabs: impl Iterator<Item = RunId>,
        is_due: impl Fn(u32, u32) -> bool,
    ) -> Result<usize, HeapError> {
        let _table = self.slabs.lock_table();
        let mut words: SmallVec<[(RunId, RunWord); 8]> = SmallVec::new();
        for id in slabs {
            let run = self.runs.get(id);
            let (durable, marked) = (run.durable.load(Ordering::Acquire), run.marked.load(Ordering::Relaxed));
            if is_due(durable, marked) && run.leaving.load(Ordering::Acquire) == 0 {
                words.push((id, RunWord::Slab { durable, sealed: durable == SLOTS_PER_RUN }));
            }
        }
        if words.is_empty() {
            return Ok(0);
        }
        self.write_words_locked(&words)?;
        for (run, word) in &words {
            if let RunWord::Slab { durable, .. } = word {
                self.runs.get(*run).marked.store(*durable, Ordering::Release);
            }
        }
        Ok(words.len())
    }
}
