//! Background work: slabs ready ahead of need, watermarks, compaction.

use super::Shared;
use crate::error::LogError;
use crate::{Flow, Identity};
use landfall_heap::{CompactGoal, Compactor, FreeGoal, Gone, HeapError, Named, Owner, SlotId, spaces};
use landfall_media::MediaError;
use std::sync::Arc;

/// Slabs that wait for the writer.
const SPARE_SLABS: usize = 2;
/// Slots by which a slab's watermark may lag behind.
const MARK_STEP: u32 = 1024;
/// Bytes that one compaction step moves.
const STEP_BYTES: u64 = 256 << 10;

/// What one round of background work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Records rewritten.
    pub moved_records: u64,
    /// Slabs given back.
    pub freed_slabs: u64,
    /// There is more to do at once.
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

    /// One round: a few hundred microseconds at most, plus fences.
    ///
    /// # Errors
    /// The medium's.
    pub fn step(&mut self) -> Result<Kept, LogError> {
        let heap = &self.shared.heap;
        if let Some(reason) = heap.media().closed() {
            return Err(MediaError::Closed { reason }.into());
        }
        let loading = heap.media().load_some()?;
        // A log takes what it has freed again and again: nothing is given back.
        heap.tend_free_runs(FreeGoal::DEFAULT, false)?;
        if heap.has_room() && heap.spare_slabs() < SPARE_SLABS {
            heap.prepare_slab_within_reserve()?;
        }
        heap.mark_slabs(MARK_STEP)?;
        let goal = CompactGoal::free(heap.clean_below());
        let done = match self.compactor.step(&*self.shared, goal, STEP_BYTES) {
            // Server-ACKs will free runs by themselves.
            Err(HeapError::Full) => return Ok(Kept::default()),
            other => other?,
        };
        Ok(Kept {
            moved_records: done.moved_records,
            freed_slabs: done.freed_slabs,
            busy: loading || !done.rests,
        })
    }

    /// Moves every watermark: the next start then trusts every record.
    ///
    /// # Errors
    /// The medium's.
    pub fn leave_clean(&self) -> Result<(), LogError> {
        self.shared.heap.mark_slabs(1)?;
        Ok(())
    }
}

/// Whose the record in a slot is.
enum What {
    Update(Identity),
    Path(Flow),
}

impl Shared {
    fn what(&self, slot: SlotId) -> Option<What> {
        let view = self.heap.record(slot).ok()?;
        let key = self.heap.key(&view).ok()?;
        match view.space() {
            spaces::PMNET_LOG => Identity::from_bytes(key).map(What::Update),
            spaces::PMNET_PATH => Some(What::Path(Flow::from_bytes(key.try_into().ok()?))),
            _ => None,
        }
    }
}

impl Owner for Shared {
    fn begin_move(&self, _: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let Some(what) = self.what(slot) else { return false };
        let index = self.index.lock();
        let current = match what {
            What::Update(identity) => index.get(&identity).map(|entry| entry.slot),
            What::Path(flow) => index.path_slot(&flow),
        };
        let is_it = current == Some(slot);
        if is_it {
            hold();
        }
        is_it
    }

    fn end_move(&self, _: Named, old: SlotId, new: SlotId) -> bool {
        let Some(what) = self.what(new) else { return false };
        let mut index = self.index.lock();
        match what {
            What::Update(identity) => index.moved(&identity, old, new),
            What::Path(flow) => index.path_moved(&flow, old, new),
        }
    }

    fn abort_move(&self, _: Named) {}

    /// Nothing is counted: a record that is found again is sent again, and that hurts nobody.
    fn forget(&self, _: &mut [Gone]) {}
}
