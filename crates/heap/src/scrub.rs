//! Scrubbing a medium that is separate from memory: compares the bytes that a restart would read with those in memory.
//!
//! The bytes in memory are verified by their checksums after the medium was read. A record that is durable, and is
//! intact in memory with its data, was intact when the medium was read, so the medium must have the same bytes. So no
//! lock is needed, and bytes that are superseded, freed or reused meanwhile are not reported as damage.

use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId, SlotId};
use crate::record::{RecordView, Slot};
use crate::run::RunUse;
use landfall_media::{BLOCK_SIZE, CommitMode, Dirty, Extent, MediaError, RUN_SIZE, Site};
use std::sync::atomic::Ordering;

/// The differences between memory and the medium in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediumScrub {
    /// Bytes read from the medium.
    pub bytes: u64,
    /// Records that are damaged on the medium, or whose data are. They are intact in memory.
    pub damaged: Vec<SlotId>,
}

/// The bytes of a run as the medium has them.
struct OnMedium {
    bytes: Vec<u8>,
    /// Blocks that cannot be read.
    lost: Vec<Extent>,
}

impl OnMedium {
    fn has(&self, piece: Extent) -> bool {
        self.lost.iter().all(|block| block.end() <= piece.off || piece.end() <= block.off)
    }
}

impl Heap {
    /// True if the medium is separate from memory: it is written by device writes.
    pub fn has_separate_medium(&self) -> bool {
        self.media.commit_mode() == CommitMode::Deferred
    }

    /// Reads one run from the medium, and compares the durable records and data with memory. A run that is not in use,
    /// or has no durable records or data, is not read. What cannot be read counts as damaged, unless it has left memory,
    /// too: then others find it.
    ///
    /// # Errors
    /// The medium's, if no block of the run can be read.
    pub fn scrub_medium(&self, run: RunId) -> Result<MediumScrub, MediaError> {
        let state = self.runs.get(run);
        let slots = match state.used_for() {
            RunUse::Slab => {
                (0..state.durable.load(Ordering::Acquire)).map(|at| SlotId::new(run, at)).collect()
            }
            RunUse::Data => self.runs.referrers(run),
            RunUse::Free | RunUse::Table | RunUse::Bad => Vec::new(),
        };
        if slots.is_empty() {
            return Ok(MediumScrub::default());
        }
        // Only records that are durable before the medium is read must be there.
        let durable: Vec<SlotId> = slots.into_iter().filter(|slot| self.is_durable_slot(*slot)).collect();
        let medium = self.read_run(run)?;
        let damaged = durable.into_iter().filter(|slot| self.differs(run, *slot, &medium)).collect();
        Ok(MediumScrub { bytes: RUN_SIZE, damaged })
    }

    /// Reads a run from the medium: block by block if not all of it can be read.
    fn read_run(&self, run: RunId) -> Result<OnMedium, MediaError> {
        let mut read = OnMedium { bytes: vec![0; RUN_SIZE as usize], lost: Vec::new() };
        let whole = Extent::new(run.off(), RUN_SIZE as u32);
        let Err(error) = self.media.read_medium(whole, &mut read.bytes) else { return Ok(read) };
        let blocks = read.bytes.chunks_mut(BLOCK_SIZE as usize);
        for (bytes, off) in blocks.zip((run.off()..).step_by(BLOCK_SIZE as usize)) {
            let block = Extent::new(off, BLOCK_SIZE as u32);
            if self.media.read_medium(block, bytes).is_err() {
                read.lost.push(block);
            }
        }
        // A medium that gives nothing has more than a bad block.
        let has_any = (read.lost.len() as u64) < RUN_SIZE / BLOCK_SIZE;
        has_any.then_some(read).ok_or(error)
    }

    fn is_durable_slot(&self, slot: SlotId) -> bool {
        let slab = self.runs.get(slot.run());
        slab.used_for() == RunUse::Slab && slot.index() < slab.durable.load(Ordering::Acquire)
    }

    /// True if the record and its data are intact in memory, and differ on the medium.
    fn differs(&self, run: RunId, slot: SlotId, medium: &OnMedium) -> bool {
        let Ok(Slot::Record(view)) = self.slot(slot) else { return false };
        let pieces = self.pieces_in(run, slot, &view);
        let same = |piece: &Extent| {
            let at = (piece.off - run.off()) as usize;
            // Evicted bytes have no copy in memory to compare with.
            !self.is_resident(*piece)
                || medium.has(*piece)
                    && self.pinned(*piece).is_ok_and(|bytes| *bytes == medium.bytes[at..at + bytes.len()])
        };
        !pieces.iter().all(same) && self.holds_in_memory(slot)
    }

    /// The parts of a record and of its references that lie in a run.
    fn pieces_in(&self, run: RunId, slot: SlotId, view: &RecordView<'_>) -> Vec<Extent> {
        let (start, end) = (run.off(), run.off() + RUN_SIZE);
        let record = Extent::new(slot.off(), RECORD_SIZE as u32);
        let refers = self.all_extents(slot, view).unwrap_or_default();
        let within = |extent: Extent| {
            let (from, to) = (extent.off.max(start), extent.end().min(end));
            (from < to).then(|| Extent::new(from, (to - from) as u32))
        };
        std::iter::once(record).chain(refers).filter_map(within).collect()
    }

    fn holds_in_memory(&self, slot: SlotId) -> bool {
        let Ok(Slot::Record(view)) = self.slot(slot) else { return false };
        self.is_durable_slot(slot)
            && self.verify_value(slot, &view).is_ok()
            && self.key_holds(&view).unwrap_or_default()
    }

    /// Writes a record and its references to the medium again, from memory, where they are intact.
    ///
    /// A crash during the write does no harm: the bytes are those that were acknowledged.
    ///
    /// # Errors
    /// The medium's; the region is then closed for writing.
    pub fn write_again(&self, slot: SlotId) -> Result<(), MediaError> {
        let Ok(Slot::Record(view)) = self.slot(slot) else { return Ok(()) };
        if !self.holds_in_memory(slot) {
            return Ok(());
        }
        let mut dirty = Dirty::new();
        self.media.flush(&mut dirty, Site::Erase, Extent::new(slot.off(), RECORD_SIZE as u32));
        let extents = self.all_extents(slot, &view).unwrap_or_default();
        // The bytes are pinned while they are written from memory.
        let _pins: Vec<_> = extents.iter().map(|extent| self.pinned(*extent)).collect();
        for extent in extents {
            self.media.flush(&mut dirty, Site::Erase, extent);
        }
        self.media.fence(&mut dirty, Site::EraseFence)
    }
}
