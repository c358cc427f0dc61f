//! The directory of slabs: those with room for a writer, and those whose durable marks may rise.

use crate::layout::RunId;
use crate::runs::Runs;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// A slab with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpareSlab {
    pub(crate) run: RunId,
    /// The next free slot.
    pub(crate) next: u32,
}

/// Which slabs writers may take, and which are to be marked.
#[derive(Debug, Default)]
pub(crate) struct SlabDirectory {
    /// Slabs with room that no writer has taken.
    spares: Mutex<Vec<SpareSlab>>,
    /// Slabs whose durable mark may rise: a writer has taken them, and their marks are behind.
    unmarked: Mutex<BTreeSet<RunId>>,
}

impl SlabDirectory {
    /// Number of slabs with room that no writer has taken.
    pub(crate) fn spare_count(&self) -> usize {
        self.spares.lock().len()
    }

    /// Adds slabs with room.
    pub(crate) fn add_spares(&self, spares: impl IntoIterator<Item = SpareSlab>) {
        self.spares.lock().extend(spares);
    }

    /// Takes a slab with room for `writer`. The owner is set under the list's lock, so that the compactor never takes a
    /// slab that a writer is taking.
    pub(crate) fn take_spare(&self, runs: &Runs, writer: u8) -> Option<SpareSlab> {
        self.take_where(runs, writer, |_| true)
    }

    /// [`Self::take_spare`] for a slab without records.
    pub(crate) fn take_empty(&self, runs: &Runs, writer: u8) -> Option<SpareSlab> {
        self.take_where(runs, writer, |spare| spare.next == 0)
    }

    fn take_where(
        &self,
        runs: &Runs,
        writer: u8,
        is_wanted: impl Fn(&SpareSlab) -> bool,
    ) -> Option<SpareSlab> {
        let mut spares = self.spares.lock();
        let last = spares.iter().rposition(is_wanted)?;
        let spare = spares.remove(last);
        runs.get(spare.run).owner.store(writer + 1, Ordering::Release);
        self.unmarked.lock().insert(spare.run);
        Some(spare)
    }

    /// Withdraws a slab from the writers, for compaction. False if a writer owns it.
    pub(crate) fn withdraw_spare(&self, runs: &Runs, run: RunId) -> bool {
        let mut spares = self.spares.lock();
        spares.retain(|spare| spare.run != run);
        runs.get(run).owner.load(Ordering::Acquire) == 0
    }

    /// Slabs whose durable mark may rise. The lock is released before I/O, so that a writer that takes a slab does not
    /// wait for the medium.
    pub(crate) fn unmarked(&self) -> Vec<RunId> {
        self.unmarked.lock().iter().copied().collect()
    }

    /// Forgets the slabs whose mark cannot rise any more.
    pub(crate) fn forget_marked(&self, runs: &Runs) {
        self.unmarked.lock().retain(|run| runs.get(*run).may_be_marked());
        debug_assert!(self.knows_all_unmarked(runs));
    }

    /// True if `unmarked` contains every slab whose mark may rise.
    fn knows_all_unmarked(&self, runs: &Runs) -> bool {
        let unmarked = self.unmarked.lock();
        runs.iter().all(|(id, run)| unmarked.contains(&id) || run.is_marked())
    }
}
