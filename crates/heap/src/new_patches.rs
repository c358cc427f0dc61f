//! Patches whose records are appended and not current yet.

use crate::extents::Extents;
use crate::layout::SlotId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Appended records of patches that are not current yet, each with its references besides those that it will take over.
#[derive(Debug, Default)]
pub(crate) struct NewPatches {
    refers: Mutex<BTreeMap<SlotId, Extents>>,
    /// Length of `refers`, so that other records take no lock.
    count: AtomicUsize,
}

impl NewPatches {
    pub(crate) fn note(&self, slot: SlotId, refers: Extents) {
        let mut patches = self.refers.lock();
        patches.insert(slot, refers);
        self.count.store(patches.len(), Ordering::Release);
    }

    pub(crate) fn take(&self, slot: SlotId) -> Option<Extents> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut patches = self.refers.lock();
        let refers = patches.remove(&slot);
        self.count.store(patches.len(), Ordering::Release);
        refers
    }
}
