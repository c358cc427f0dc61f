//! Records that are taken back: recovery must not believe them.

use super::Writer;
use crate::layout::{RECORD_SIZE, SlotId};
use landfall_media::{Extent, MediaError, Site};
use std::sync::atomic::Ordering;

impl Writer {
    /// Takes the newest records of the current batch back, which the owner refuses after all: their slots become empty
    /// again. No other record may have been appended behind them, and nothing may refer to them.
    pub fn take_back(&mut self, slots: &[SlotId]) {
        debug_assert!(
            slots.last().is_none_or(|last| self.slab.is_some_and(|slab| slab.next == last.index() + 1)),
            "the newest records"
        );
        self.take_room_back();
        self.rewind(slots);
    }

    /// Rolls back records of this batch: their slots become empty again. Where the medium refuses that, it is tried again before
    /// anything else becomes durable.
    pub(super) fn rewind(&mut self, slots: &[SlotId]) {
        for slot in slots.iter().rev() {
            self.heap.retire_record(*slot);
            if let Some(slab) = self.slab.as_mut() {
                slab.next = slot.index();
            }
            self.flushed = self.flushed.min(slot.index());
            self.persisted = self.persisted.min(slot.index());
            self.heap.runs.get(slot.run()).filled.store(slot.index(), Ordering::Relaxed);
        }
        if let (Some(first), Some(last)) = (slots.first(), slots.last()) {
            let (from, upto) = (first.index(), last.index() + 1);
            self.unerased = match self.unerased.is_empty() {
                true => from..upto,
                false => from.min(self.unerased.start)..upto.max(self.unerased.end),
            };
            let _ = self.erase();
        }
    }

    /// Erases what was taken back, and not written over since. Recovery would believe it.
    fn erase(&mut self) -> Result<(), MediaError> {
        let Some(slab) = self.slab.filter(|_| !self.unerased.is_empty()) else { return Ok(()) };
        for index in self.unerased.start.max(slab.next)..self.unerased.end {
            let at = Extent::new(SlotId::new(slab.run, index).off(), RECORD_SIZE as u32);
            self.heap.media.zero(at)?;
            self.heap.media.flush(&mut self.dirty, Site::Erase, at);
        }
        self.unerased = 0..0;
        Ok(())
    }

    /// True if everything that becomes durable now may count. What was taken back must not.
    pub(super) fn is_whole(&mut self) -> bool {
        if self.erase().is_err() {
            self.lost.get_or_insert("a record that was taken back cannot be erased");
        }
        self.lost.is_none()
    }
}
