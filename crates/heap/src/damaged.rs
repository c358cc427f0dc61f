//! Records with damage: what is kept of them, and what a repair makes of them.

use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::{RunId, SlotId};
use crate::record::{RecordView, ValuePlace};
use crate::table::RunWord;
use landfall_media::{Dirty, Extent, MediaError, Site};

impl Heap {
    /// Keeps a slot whose record or list of extents cannot be read: the slot counts as live, its references are not
    /// counted.
    pub fn adopt_damaged(&self, slot: SlotId) {
        self.runs.slot_live(slot);
        self.uncounted.add(slot);
    }

    /// True if the references of a current record are counted.
    #[inline]
    pub(crate) fn is_counted(&self, slot: SlotId) -> bool {
        !self.uncounted.contains(slot)
    }

    /// Refuses a value whose references are not counted: its bytes may be others', and a record that refers to them, too, would
    /// count them.
    ///
    /// # Errors
    /// [`HeapError::Damaged`].
    #[inline]
    pub fn check_counted(&self, slot: SlotId, view: &RecordView<'_>) -> Result<(), HeapError> {
        if self.is_counted(slot) || matches!(view.value(), ValuePlace::Inline(_)) {
            return Ok(());
        }
        Err(HeapError::Damaged { slot, what: Damage::RecordFields })
    }

    /// True for a live slot whose record cannot be read.
    pub(crate) fn is_unreadable(&self, slot: SlotId) -> bool {
        self.uncounted.contains(slot) && self.record(slot).is_err()
    }

    /// Where the first of these bytes is that the medium cannot read, if it was opened to be salvaged.
    pub(crate) fn unreadable_in(&self, extents: &[Extent]) -> Option<u64> {
        let blocks = self.media.unreadable();
        let lost = |extent: &Extent| {
            let block = blocks.iter().find(|block| block.off < extent.end() && extent.off < block.end())?;
            Some(block.off.max(extent.off))
        };
        extents.iter().find_map(lost)
    }

    /// Writes the blocks again, durably, that the medium cannot read, as memory has them: a device keeps them elsewhere then.
    /// Returns them. For offline repair, once nothing needs what was there.
    ///
    /// # Errors
    /// The medium's.
    pub fn write_unreadable_again(&self) -> Result<Vec<Extent>, MediaError> {
        let blocks = self.media.unreadable();
        let mut dirty = Dirty::new();
        blocks.iter().for_each(|block| self.media.flush(&mut dirty, Site::Erase, *block));
        self.media.fence(&mut dirty, Site::EraseFence)?;
        Ok(blocks)
    }

    /// Overwrites an unreadable or lost slot, durably, with a tombstone of the empty key in a space that no client can
    /// access. For offline repair: no writer may append to the region.
    ///
    /// # Errors
    /// The medium's.
    pub fn overwrite_with_tombstone(&self, slot: SlotId) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        self.store_tombstone(slot, &mut dirty)?;
        self.media.fence(&mut dirty, Site::EraseFence)
    }

    /// Marks a run in the run table, durably, as not a slab. For offline repair of a run whose table words are damaged:
    /// its records are given up.
    ///
    /// # Errors
    /// The medium's.
    pub fn mark_not_slab(&self, run: RunId) -> Result<(), MediaError> {
        if self.has_epochs() {
            let epoch = self.runs.get(run).epoch();
            self.slabs.table.set_epoch(&self.runs, run, epoch)?;
        }
        self.slabs.table.write(&[(run, RunWord::NotSlab)])
    }

    /// Excludes the slab of an unreadable slot from compaction, so that the damage stays known.
    pub fn pin_slab(&self, slot: SlotId) {
        self.runs.get(slot.run()).pin();
    }
}
