//! Batches that another machine gets, too: `docs/format/chain.md`.

use super::{Urgency, Writer};
use crate::entry::Entry;
use crate::error::HeapError;
use crate::filled::Filled;
use crate::layout::SlotId;
use crate::record::Kind;
use crate::successor::{Room, Successor, TakenRoom, bytes_of};
use landfall_media::Dirty;
use std::sync::Arc;

impl Writer {
    /// From now on every batch is sent to `successor`, and is durable only when that has it.
    pub fn set_successor(&mut self, successor: Arc<dyn Successor>) {
        self.successor = Some(successor);
    }

    /// Who else gets the batches.
    pub fn successor(&self) -> Option<Arc<dyn Successor>> {
        self.successor.clone()
    }

    /// True if somebody else gets the batches.
    pub fn has_successor(&self) -> bool {
        self.successor.is_some()
    }

    /// Sends the batch under way, if that was not done. Where there is a successor, the driver calls this when the batch is
    /// durable in this region, and [`Self::finish_commit`] when [`Self::is_sent_on`] is true, so that it does not block.
    pub fn send_on(&mut self) {
        let Some((successor, records)) = self.take_unsent() else { return };
        successor.send(&self.heap, &records);
    }

    /// What [`Self::send_on`] would send, and to whom, for a driver that sends it without holding the writer.
    pub fn take_unsent(&mut self) -> Option<(Arc<dyn Successor>, Vec<SlotId>)> {
        let in_flight = self.in_flight.as_mut()?;
        let successor = self.successor.as_ref()?;
        let records = std::mem::take(&mut in_flight.records);
        (!records.is_empty()).then(|| (Arc::clone(successor), records))
    }

    /// Flushes what the current batch has so far, and returns the ranges that a fence must make durable in this region; `None`
    /// if there are none. The batch goes on, and is not complete: after a crash, recovery believes what it has
    /// (`docs/format/commit.md`, "A batch in two fences"). The fence of a batch under way must have returned, and none may
    /// begin before that of these ranges has: the caller sees to it.
    pub fn begin_persist(&mut self) -> Option<Dirty> {
        if !self.has_appended() || !self.is_whole() {
            return None;
        }
        self.flush_batch();
        Some(self.dirty.take())
    }

    /// How far the writer has come in its slab, for [`Self::note_persisted`].
    pub fn filled(&self) -> Filled {
        Filled(self.slab.map(|slab| (slab.run, slab.next)))
    }

    /// A fence has returned that made everything durable in this region that the slab had at `filled`: the batch may go on in
    /// another slab when this one is full.
    pub fn note_persisted(&mut self, filled: Filled) {
        if let Some((_, upto)) = filled.0.filter(|(run, _)| self.slab.is_some_and(|slab| slab.run == *run)) {
            self.persisted = self.persisted.max(upto);
        }
    }

    /// True if a batch will never be complete: another machine has taken over, or the medium refuses to erase what was taken
    /// back.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// True if the successor has everything that was sent to it, or if there is none.
    pub fn is_sent_on(&self) -> bool {
        self.successor.as_ref().is_none_or(|successor| successor.is_done())
    }

    /// Takes room at the successor for so many values, with keys of so many bytes each, that have so many bytes together, and
    /// are appended later ([`Self::lend_room`]), or not at all. `None`: there is not plenty of it.
    pub fn take_spare_room(&self, values: (u64, u64, u64)) -> Option<TakenRoom> {
        let taken = |successor| TakenRoom::spare(successor, values);
        self.successor.as_ref().map_or(Some(TakenRoom::default()), taken)
    }

    /// What is appended from now on uses this room, as far as it goes.
    pub fn lend_room(&mut self, room: TakenRoom) {
        self.lent = room;
    }

    /// What is left of [`Self::lend_room`].
    pub fn take_lent_room(&mut self) -> TakenRoom {
        std::mem::take(&mut self.lent)
    }

    /// Takes room for values at the successor, for [`Self::use_room`].
    #[inline]
    pub(super) fn take_room(&mut self, entries: &[Entry<'_>], urgency: Urgency) -> Result<Room, HeapError> {
        match &self.successor {
            Some(successor) if urgency != Urgency::Delete => {
                let bytes = bytes_of(entries);
                let is_lent = self.lent.use_up(bytes);
                if !is_lent {
                    successor.take_room(bytes, &mut self.patience.question)?;
                }
                Ok(Room { bytes, is_lent })
            }
            _ => Ok(Room::default()),
        }
    }

    /// The room that was taken belongs to the current batch, if its values were appended.
    #[inline]
    pub(super) fn use_room(&mut self, taken: Room, is_appended: bool) {
        if is_appended {
            self.taken += taken.bytes;
            self.newest_taken = taken;
        } else {
            self.return_room(taken);
        }
    }

    /// What nobody has used goes back to where it was taken: lent room is for those who try again, too.
    fn return_room(&mut self, taken: Room) {
        if !taken.is_lent || !self.lent.take_back(taken.bytes) {
            self.give_room_back(taken.bytes);
        }
    }

    /// The newest append is taken back: its room is free again, and not only when a batch is complete, which may never begin.
    pub(super) fn take_room_back(&mut self) {
        let taken = std::mem::take(&mut self.newest_taken);
        self.taken -= taken.bytes;
        self.return_room(taken);
    }

    #[inline]
    pub(super) fn give_room_back(&self, taken: u64) {
        if let Some(successor) = self.successor.as_ref().filter(|_| taken > 0) {
            successor.give_room_back(taken);
        }
    }

    pub(super) fn wait_for_successor(&mut self) -> Result<(), HeapError> {
        let outcome = self.successor.as_ref().map_or(Ok(()), |successor| successor.wait());
        if outcome.is_err() {
            self.lost.get_or_insert("another node has not acknowledged a batch");
        }
        outcome
    }

    /// The records of the current batch that its successor gets: not those of transactions without a commit record.
    pub(super) fn records_to_send(&mut self) -> Vec<SlotId> {
        if self.successor.is_none() {
            return Vec::new();
        }
        let mut records = std::mem::take(&mut self.decided);
        let heap = &self.heap;
        let counts = |slot: &SlotId| {
            heap.record(*slot).is_ok_and(|view| view.transaction().is_none() && view.kind() != Kind::Commit)
        };
        let left = self.left.iter().map(|left| (left.run, left.slots.clone()));
        let last = self.slab.map(|slab| (slab.run, self.batch_start..slab.next));
        let batch = left.chain(last).flat_map(|(run, slots)| slots.map(move |index| SlotId::new(run, index)));
        records.extend(batch.filter(counts));
        records
    }
}
