//! Durable changes of the run table: its words, and the runs' epochs. The order of changes: `docs/format/region.md`.

use crate::features::Features;
use crate::layout::RunId;
use crate::record::Seal;
use crate::runs::Runs;
use crate::superblock::{FEATURE_EPOCHS, Geometry};
use crate::table::{self, Epoch, RunWord};
use landfall_media::{Dirty, Extent, Media, MediaError, RUN_SIZE, Site};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// The run table of an open region.
pub(crate) struct RunTable {
    media: Arc<dyn Media>,
    salt: [u8; 16],
    /// Number of runs in the region.
    runs: u32,
    /// Held while words are written.
    writing: Mutex<()>,
}

impl RunTable {
    pub(crate) fn new(media: Arc<dyn Media>, geometry: &Geometry) -> Self {
        Self { media, salt: geometry.salt, runs: geometry.runs, writing: Mutex::new(()) }
    }

    /// Excludes other writers of words.
    pub(crate) fn lock(&self) -> LockedRunTable<'_> {
        LockedRunTable { table: self, _writing: self.writing.lock() }
    }

    /// Writes words, durably.
    pub(crate) fn write(&self, words: &[(RunId, RunWord)]) -> Result<(), MediaError> {
        self.lock().write(words)
    }

    /// Sets the epoch of a run, durably.
    pub(crate) fn set_epoch(&self, runs: &Runs, run: RunId, epoch: Epoch) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        table::write_epoch(&*self.media, &mut dirty, run, epoch, &self.salt)?;
        self.media.fence(&mut dirty, Site::SlabEpochFence)?;
        runs.get(run).set_epoch(epoch, Seal::new(&self.salt, epoch.0));
        Ok(())
    }

    /// Zeroes a run of unknown epoch, durably. Its next epoch is the first one: before that is stored, no record may be left
    /// that a later one would make valid.
    pub(crate) fn zero_run(&self, run: RunId) -> Result<Epoch, MediaError> {
        let (whole, mut dirty) = (Extent::new(run.off(), RUN_SIZE as u32), Dirty::new());
        self.media.zero(whole)?;
        self.media.flush(&mut dirty, Site::SlabEpoch, whole);
        self.media.fence(&mut dirty, Site::SlabEpochFence)?;
        Ok(Epoch::FIRST)
    }

    /// Adds epochs to a region of an earlier version, before its first new slab.
    pub(crate) fn add_epochs(&self, features: &Features) -> Result<(), MediaError> {
        if features.has(FEATURE_EPOCHS) {
            return Ok(());
        }
        let _writing = self.writing.lock();
        if features.has(FEATURE_EPOCHS) {
            return Ok(());
        }
        table::zero_epochs(&*self.media, 0..self.runs)?;
        features.require(&*self.media, FEATURE_EPOCHS)
    }
}

/// The run table while other writers are excluded.
pub(crate) struct LockedRunTable<'t> {
    table: &'t RunTable,
    _writing: MutexGuard<'t, ()>,
}

impl LockedRunTable<'_> {
    /// Writes words, durably.
    pub(crate) fn write(&self, words: &[(RunId, RunWord)]) -> Result<(), MediaError> {
        let RunTable { media, salt, .. } = self.table;
        let mut dirty = Dirty::new();
        for (run, word) in words {
            table::write(&**media, &mut dirty, *run, *word, salt)?;
        }
        media.fence(&mut dirty, Site::RunTableFence)
    }
}
