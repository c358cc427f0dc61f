//! The log's background work: it prepares slabs, moves watermarks and compacts.

use super::state::Shared;
use crate::error::LogError;
use crate::identity::{Flow, Identity};
use landfall_heap::{Compactor, FreeGoal, Gone, HeapError, Named, Owner, SlotId, spaces};
use landfall_media::MediaError;
use std::sync::Arc;

/// Prepared slabs that are kept ready for the writer.
const SPARE_SLABS: usize = 2;
/// Most slots by which a slab's stored watermark may lag behind.
const MARK_STEP: u32 = 1024;
/// Bytes that one step of compaction moves.
const STEP_BYTES: u64 = 256 << 10;

/// What one step of background work has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records that were moved.
    pub moved_records: u64,
    /// Slabs that were freed.
    pub freed_slabs: u64,
    /// True if more work can be done at once.
    pub busy: bool,
}

/// A log's background work.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    compactor: Compactor,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let compactor = Compactor::new(Arc::clone(&shared.heap));
        Self { shared, compactor }
    }

    /// Runs one step. It takes at most a few hundred microseconds, and the time of its fences.
    ///
    /// # Errors
    /// The medium's error.
    pub fn step(&mut self) -> Result<Progress, LogError> {
        let heap = &self.shared.heap;
        if let Some(reason) = heap.media().closed() {
            return Err(MediaError::Closed { reason }.into());
        }
        let loading = heap.media().load_some()?;
        // A log soon uses freed runs again, so their storage is not given back to the file system.
        heap.maintain_free_runs(FreeGoal::DEFAULT, false)?;
        if heap.has_room() && heap.spare_slabs() < SPARE_SLABS {
            heap.prepare_slab_within_reserve()?;
        }
        heap.mark_slabs(MARK_STEP)?;
        let goal = heap.compact_goal();
        let done = match self.compactor.step(&*self.shared, goal, STEP_BYTES) {
            // Server-ACKs will remove entries, which frees runs.
            Err(HeapError::Full) => return Ok(Progress::default()),
            other => other?,
        };
        Ok(Progress {
            moved_records: done.moved_records,
            freed_slabs: done.freed_slabs,
            busy: loading || !done.is_idle,
        })
    }

    /// Stores every watermark, so that the next start trusts every record.
    ///
    /// # Errors
    /// The medium's error.
    pub fn store_watermarks(&self) -> Result<(), LogError> {
        self.shared.heap.mark_slabs(1)?;
        Ok(())
    }
}

/// What the record in a slot belongs to.
enum RecordOwner {
    Update(Identity),
    Path(Flow),
}

impl Shared {
    fn record_owner(&self, slot: SlotId) -> Option<RecordOwner> {
        let view = self.heap.record(slot).ok()?;
        let key = self.heap.key(&view).ok()?;
        match view.space() {
            spaces::PMNET_LOG => Identity::from_bytes(&key).map(RecordOwner::Update),
            spaces::PMNET_PATH => Some(RecordOwner::Path(Flow::from_bytes((*key).try_into().ok()?))),
            _ => None,
        }
    }
}

impl Owner for Shared {
    fn begin_move(&self, _: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let Some(owner) = self.record_owner(slot) else { return false };
        let index = self.index.lock();
        let current = match owner {
            // Whoever ends the commit knows an update by its slot until it is marked as durable.
            RecordOwner::Update(identity) => {
                index.get(&identity).filter(|entry| entry.durable).map(|entry| entry.slot)
            }
            RecordOwner::Path(flow) => index.path_slot(&flow),
        };
        let is_current = current == Some(slot);
        if is_current {
            hold();
        }
        is_current
    }

    fn end_move(&self, _: Named, old: SlotId, new: SlotId) -> bool {
        let Some(owner) = self.record_owner(new) else { return false };
        let mut index = self.index.lock();
        match owner {
            RecordOwner::Update(identity) => index.moved(&identity, old, new),
            RecordOwner::Path(flow) => index.path_moved(&flow, old, new),
        }
    }

    fn abort_move(&self, _: Named) {}

    /// Nothing is counted: if a deleted record is found at recovery, its update is sent again, and the server
    /// ignores it.
    fn forget(&self, _: &mut [Gone]) {}
}
