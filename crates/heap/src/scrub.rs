//! Scrubbing the medium itself, where memory is not the medium: what a restart would read is compared with what memory
//! holds.
//!
//! Memory is judged by its own checksums, after the medium was read. A record that is durable, and holds in memory with
//! its data, held when the medium was read: what lies there must be the same bytes. So no lock is needed, and nothing
//! that is superseded, freed or used again meanwhile is taken for damage.

use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId, SlotId};
use crate::record::{RecordView, Slot};
use crate::run::RunUse;
use landfall_media::{CommitMode, Dirty, Extent, MediaError, RUN_SIZE, Site};
use std::sync::atomic::Ordering;

/// What of a run the medium does not hold as memory does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediumScrub {
    /// Bytes read from the medium.
    pub bytes: u64,
    /// Records that the medium holds wrong, or whose data it holds wrong. Memory holds them right.
    pub damaged: Vec<SlotId>,
}

impl Heap {
    /// True where the medium can differ from memory: where it is written by device writes.
    pub fn has_separate_medium(&self) -> bool {
        self.media.commit_mode() == CommitMode::Deferred
    }

    /// Reads one run from the medium, and compares what is durable there with memory. A run that is in no use, or that
    /// holds only what this module cannot judge, is not read.
    ///
    /// # Errors
    /// The medium cannot be read.
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
        // Only what was durable before the medium is read must be there.
        let durable: Vec<SlotId> = slots.into_iter().filter(|slot| self.is_durable_slot(*slot)).collect();
        let mut medium = vec![0; RUN_SIZE as usize];
        self.media.read_medium(Extent::new(run.off(), RUN_SIZE as u32), &mut medium)?;
        let damaged = durable.into_iter().filter(|slot| self.differs(run, *slot, &medium)).collect();
        Ok(MediumScrub { bytes: RUN_SIZE, damaged })
    }

    fn is_durable_slot(&self, slot: SlotId) -> bool {
        let slab = self.runs.get(slot.run());
        slab.used_for() == RunUse::Slab && slot.index() < slab.durable.load(Ordering::Acquire)
    }

    /// True if memory holds the record with its data, and the medium's copy of the run does not.
    fn differs(&self, run: RunId, slot: SlotId, medium: &[u8]) -> bool {
        let Ok(Slot::Record(view)) = self.slot(slot) else { return false };
        let pieces = self.pieces_in(run, slot, &view);
        let same = |piece: &Extent| {
            let at = (piece.off - run.off()) as usize;
            // What is not in memory has no other copy than the medium's.
            !self.is_resident(*piece)
                || self.pinned(*piece).is_ok_and(|bytes| *bytes == medium[at..at + bytes.len()])
        };
        !pieces.iter().all(same) && self.holds_in_memory(slot)
    }

    /// Where in a run a record, or what it refers to, lies.
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

    /// Writes a record and what it refers to again, from memory, which holds them right.
    ///
    /// The same bytes are stored that are acknowledged there, so that a crash in between harms nothing.
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
        // What is written is what is in memory: it stays there meanwhile.
        let _pins: Vec<_> = extents.iter().map(|extent| self.pinned(*extent)).collect();
        for extent in extents {
            self.media.flush(&mut dirty, Site::Erase, extent);
        }
        self.media.fence(&mut dirty, Site::EraseFence)
    }
}
