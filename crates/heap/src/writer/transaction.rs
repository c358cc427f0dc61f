//! Appending transactions: `docs/format/commit.md`, "Transactions".

use super::{Pieces, Urgency, Writer, too_large};
use crate::bond::Bond;
use crate::entry::Entry;
use crate::error::HeapError;
use crate::layout::SlotId;
use crate::record::Kind;
use crate::successor::{TRANSACTION_KEY_BYTES_MAX, TakenRoom, bytes_of};
use crate::superblock::FEATURE_TRANSACTIONS;
use crate::transactions::Transaction;
use landfall_media::Site;
use std::slice;

impl Writer {
    /// Begins a transaction of any number of records. `bytes` estimates the space for its records and placed values; 0
    /// if the transaction only deletes.
    ///
    /// # Errors
    /// [`HeapError::Busy`] while a commit is under way; [`HeapError::Full`], [`HeapError::Cleaning`]; the medium's.
    pub fn begin_transaction(&mut self, bytes: u64) -> Result<Transaction, HeapError> {
        if self.is_committing() {
            return Err(HeapError::Busy);
        }
        self.check_open()?;
        if bytes > 0 {
            self.urgency = self.values;
            self.check_bytes(bytes)?;
        }
        self.heap.require_features(FEATURE_TRANSACTIONS)?;
        Ok(Transaction::new(&self.heap))
    }

    /// Takes room for all values of a transaction at the writer's successor, if it has one. Before the first append: a
    /// transaction finds room as a whole.
    ///
    /// # Errors
    /// [`HeapError::Full`], [`HeapError::Cleaning`]. [`HeapError::TooLarge`]: keys of more than 1 GiB, which the successor
    /// would not take.
    pub fn take_room_for<'a>(
        &mut self,
        transaction: &mut Transaction,
        entries: impl Iterator<Item = Entry<'a>>,
    ) -> Result<(), HeapError> {
        if let Some(successor) = &self.successor {
            let (mut keys, mut room) = (0, 0);
            for entry in entries {
                keys += entry.key.len() as u64;
                room += if entry.kind == Kind::Put { bytes_of(&[entry]) } else { 0 };
            }
            too_large("the keys of a transaction", keys, TRANSACTION_KEY_BYTES_MAX)?;
            transaction.room = TakenRoom::take(successor, room, &mut self.patience.question)?;
        }
        Ok(())
    }

    /// Appends one record of a transaction; it gets the next version number. If the slab is full, the batch is
    /// committed first, which blocks.
    ///
    /// # Errors
    /// As [`Writer::append`], but never [`HeapError::Busy`]. The caller then drops the transaction.
    ///
    /// # Panics
    /// If a commit has been begun since [`Writer::begin_transaction`].
    pub fn append_to(
        &mut self,
        transaction: &mut Transaction,
        entry: &Entry<'_>,
    ) -> Result<SlotId, HeapError> {
        let urgency = self.check_entries(slice::from_ref(entry))?;
        self.ensure_slot(urgency)?;
        let seq = self.heap.draw_seq();
        let slot = self.append_at(entry, seq, Bond::Transaction(transaction.id))?;
        transaction.slots.push(slot);
        Ok(slot)
    }

    /// Makes what has been appended to a transaction durable before the rest of it. It blocks. None of it counts before
    /// [`Self::commit`].
    ///
    /// # Errors
    /// The medium's.
    pub fn persist_appended(&mut self, _transaction: &Transaction) -> Result<(), HeapError> {
        self.commit_at(Site::Transaction)
    }

    /// Commits a transaction: makes all of its records durable, then the commit record. Returns its slots, in order.
    /// The caller supersedes the replaced versions after that.
    ///
    /// # Errors
    /// [`HeapError::Full`]: none of the records counts, and neither does one where the medium refuses the commit record. The
    /// medium's otherwise: the region is closed for writing, and recovery decides at the next start whether the transaction
    /// counts.
    pub fn commit(&mut self, mut transaction: Transaction) -> Result<Vec<SlotId>, HeapError> {
        self.commit_at(Site::Transaction)?;
        self.urgency = Urgency::Delete;
        self.ensure_slot(Urgency::Delete)?;
        let id = transaction.id;
        let commit = self.write_record(self.heap.commit_record(id), &Pieces::default())?;
        // No rollback from here on: after a failure, the commit record may still be on the medium.
        let slots = std::mem::take(&mut transaction.slots);
        self.taken += std::mem::take(&mut transaction.room).keep();
        if self.successor.is_some() {
            self.decided.clone_from(&slots);
        }
        self.commit_now()?;
        self.heap.note_committed(id, commit, slots.len() as u64);
        Ok(slots)
    }

    /// Ensures that the slab has room for one more record.
    fn ensure_slot(&mut self, urgency: Urgency) -> Result<(), HeapError> {
        if self.has_slots(1) {
            return Ok(());
        }
        while !self.is_quiescent() {
            self.commit_at(Site::Transaction)?;
        }
        self.open_slab(1, urgency)
    }
}
