//! Slabs: runs that hold records. Preparing slabs, handing them to writers, and durable marks. The order of changes:
//! `docs/format/region.md`.

use crate::error::HeapError;
use crate::features::Features;
use crate::layout::{RunId, SLOTS_PER_RUN};
use crate::run_table::RunTable;
use crate::runs::Runs;
use crate::slab_directory::{SlabDirectory, SpareSlab};
use crate::superblock::Geometry;
use crate::table::RunWord;
use landfall_media::{Media, MediaError, RUN_SIZE};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The slabs of a region.
pub(crate) struct Slabs {
    media: Arc<dyn Media>,
    pub(crate) directory: SlabDirectory,
    pub(crate) table: RunTable,
    /// Bytes of runs that were zeroed before they became slabs.
    zeroed_bytes: AtomicU64,
}

impl Slabs {
    pub(crate) fn new(media: Arc<dyn Media>, geometry: &Geometry) -> Self {
        Self {
            table: RunTable::new(Arc::clone(&media), geometry),
            media,
            directory: SlabDirectory::default(),
            zeroed_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes of runs that were zeroed before they became slabs.
    pub(crate) fn zeroed_bytes(&self) -> u64 {
        self.zeroed_bytes.load(Ordering::Relaxed)
    }

    /// Turns a free run into an empty slab, durably: its zeroes, if its epoch is unknown, then its next epoch, and then its
    /// table word, with a fence after each.
    ///
    /// # Errors
    /// [`HeapError::Full`] if no more than `keep` runs are free; the medium's.
    pub(crate) fn prepare(&self, runs: &Runs, features: &Features, keep: u32) -> Result<(), HeapError> {
        let run = runs.take_free(keep).ok_or(HeapError::Full)?;
        self.begin_slab(runs, features, run).map_err(|error| {
            runs.put_unused(run, &error);
            match error {
                MediaError::Full { .. } => HeapError::Full,
                other => other.into(),
            }
        })?;
        runs.become_slab(run, 0);
        self.directory.add_spares([SpareSlab { run, next: 0 }]);
        Ok(())
    }

    fn begin_slab(&self, runs: &Runs, features: &Features, run: RunId) -> Result<(), MediaError> {
        self.table.add_epochs(features)?;
        // Unwritten space is written here once, so that the first batches do not pay for it.
        self.media.back_run(run.off())?;
        self.media.claim_run(run.off())?;
        let epoch = match runs.get(run).epoch().next() {
            Some(next) => next,
            None => {
                let first = self.table.zero_run(run)?;
                self.zeroed_bytes.fetch_add(RUN_SIZE, Ordering::Relaxed);
                first
            }
        };
        self.table.set_epoch(runs, run, epoch)?;
        self.table.write(&[(run, RunWord::Slab { durable: 0, sealed: false })])
    }

    /// Takes a slab with room for `writer`, and prepares one if there is none.
    pub(crate) fn take_spare(
        &self,
        runs: &Runs,
        features: &Features,
        keep: u32,
        writer: u8,
    ) -> Result<SpareSlab, HeapError> {
        self.take(runs, features, keep, || self.directory.take_spare(runs, writer))
    }

    /// Takes a slab without records for `writer`, and prepares one if there is none.
    pub(crate) fn take_empty(
        &self,
        runs: &Runs,
        features: &Features,
        keep: u32,
        writer: u8,
    ) -> Result<SpareSlab, HeapError> {
        self.take(runs, features, keep, || self.directory.take_empty(runs, writer))
    }

    fn take(
        &self,
        runs: &Runs,
        features: &Features,
        keep: u32,
        take: impl Fn() -> Option<SpareSlab>,
    ) -> Result<SpareSlab, HeapError> {
        if let Some(spare) = take() {
            return Ok(spare);
        }
        self.prepare(runs, features, keep)?;
        take().ok_or(HeapError::Full)
    }

    /// Writes the durable marks of slabs that have advanced by at least `step` slots since the last mark. Returns the
    /// number of marks written.
    pub(crate) fn mark_advanced(&self, runs: &Runs, step: u32) -> Result<usize, HeapError> {
        let slabs = self.directory.unmarked();
        let done = self.write_marks_where(runs, slabs.into_iter(), |durable, marked| {
            let full = durable == SLOTS_PER_RUN && marked < durable;
            full || durable >= marked + step.max(1)
        })?;
        self.directory.forget_marked(runs);
        Ok(done)
    }

    /// Writes the durable marks of some slabs.
    pub(crate) fn mark(&self, runs: &Runs, slabs: &[RunId]) -> Result<(), HeapError> {
        self.write_marks_where(runs, slabs.iter().copied(), |durable, marked| durable > marked).map(|_| ())
    }

    /// Writes marks under the table's lock, so that marks only rise, and a slab that is being freed gets no mark.
    fn write_marks_where(
        &self,
        runs: &Runs,
        slabs: impl Iterator<Item = RunId>,
        is_due: impl Fn(u32, u32) -> bool,
    ) -> Result<usize, HeapError> {
        let table = self.table.lock();
        let mut words: SmallVec<[(RunId, RunWord); 8]> = SmallVec::new();
        for id in slabs {
            let run = runs.get(id);
            let (durable, marked) = (run.durable.load(Ordering::Acquire), run.marked.load(Ordering::Relaxed));
            if is_due(durable, marked) && run.leaving.load(Ordering::Acquire) == 0 {
                words.push((id, RunWord::Slab { durable, sealed: durable == SLOTS_PER_RUN }));
            }
        }
        if words.is_empty() {
            return Ok(0);
        }
        table.write(&words)?;
        for (run, word) in &words {
            if let RunWord::Slab { durable, .. } = word {
                runs.get(*run).marked.store(*durable, Ordering::Release);
            }
        }
        Ok(words.len())
    }
}
