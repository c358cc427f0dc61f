//! Where a writer's batches go besides this region: other machines with the same data (`docs/format/chain.md`).

use crate::entry::Entry;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, SlotId};
use std::fmt::Debug;
use std::sync::Arc;

/// Takes the batches of one writer, one after the other. A batch is durable only when its successor has it, too.
pub trait Successor: Debug + Send + Sync {
    /// Takes room for values that occupy so many bytes at another machine, their keys and records among them. It is given back
    /// by [`Self::give_room_back`] when their batch is complete, or when they are not appended after all. `question` belongs
    /// to the request that needs the room, and is `None` at first: the question whose answer it waits for.
    ///
    /// # Errors
    /// [`HeapError::Full`]; [`HeapError::Cleaning`] if there may be room after a while.
    fn take_room(&self, bytes: u64, question: &mut Option<u64>) -> Result<(), HeapError>;

    /// Takes room if there is plenty of it, for values that the writer could do without; false if there is not. It is given back
    /// as that of [`Self::take_room`].
    fn take_spare_room(&self, bytes: u64) -> bool;

    /// See [`Self::take_room`].
    fn give_room_back(&self, bytes: u64);

    /// True if a batch is sent when its fence begins; false if it is sent once it is durable in this region.
    fn sends_early(&self) -> bool;

    /// Takes the records of a batch, or of a transaction. They stay as they are until [`Self::wait`] has returned or
    /// [`Self::is_done`] is true. What goes wrong is the outcome of the wait.
    fn send(&self, heap: &Heap, records: &[SlotId]);

    /// True if [`Self::wait`] returns at once.
    fn is_done(&self) -> bool;

    /// Waits until everything that was sent is complete.
    ///
    /// # Errors
    /// [`HeapError::Alone`]: it never will be.
    fn wait(&self) -> Result<(), HeapError>;
}

/// What records are sent with, besides key and value, bytes; not less than what a message has for each.
const SENT_BYTES: u64 = 64;
/// Most bytes of the keys of a transaction: another machine gets its records in one message, whose head has a limit.
pub(crate) const TRANSACTION_KEY_BYTES_MAX: u64 = 1 << 30;

/// Most bytes that values occupy at another machine: they land there in one message with their keys, and long keys are
/// copied.
pub(crate) fn bytes_of(entries: &[Entry<'_>]) -> u64 {
    entries.iter().map(|entry| bytes_of_value(entry.key.len() as u64, entry.value.len())).sum()
}

const fn bytes_of_value(key: u64, value: u64) -> u64 {
    2 * key + value + RECORD_SIZE + SENT_BYTES
}

/// Room at the successor that one append has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// It is a part of [`crate::Writer::lend_room`].
    pub(crate) is_lent: bool,
}

/// Room at another machine that was taken for values. What is left when it is dropped is given back.
#[derive(Debug, Default)]
pub struct TakenRoom {
    successor: Option<Arc<dyn Successor>>,
    bytes: u64,
}

impl TakenRoom {
    pub(crate) fn take(
        successor: &Arc<dyn Successor>,
        bytes: u64,
        question: &mut Option<u64>,
    ) -> Result<Self, HeapError> {
        successor.take_room(bytes, question)?;
        Ok(Self { successor: Some(Arc::clone(successor)), bytes })
    }

    /// Room for so many values, with keys of so many bytes each, that have so many bytes together, if there is plenty of it.
    pub(crate) fn spare(
        successor: &Arc<dyn Successor>,
        (values, key, bytes): (u64, u64, u64),
    ) -> Option<Self> {
        let bytes = values * bytes_of_value(key, 0) + bytes;
        let is_taken = successor.take_spare_room(bytes);
        is_taken.then(|| Self { successor: Some(Arc::clone(successor)), bytes })
    }

    /// The values were appended: their batch gives the room back.
    pub(crate) fn keep(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }

    /// So much of it belongs to a batch now, if it is so much.
    pub(crate) fn use_up(&mut self, bytes: u64) -> bool {
        let is_enough = self.successor.is_some() && self.bytes >= bytes;
        if is_enough {
            self.bytes -= bytes;
        }
        is_enough
    }

    /// So much of it was used, and is not. False if there is none to which it could belong.
    pub(crate) fn take_back(&mut self, bytes: u64) -> bool {
        let is_here = self.successor.is_some();
        if is_here {
            self.bytes += bytes;
        }
        is_here
    }

    /// Bytes that are left.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds other room at the same machine.
    pub fn add(&mut self, mut other: Self) {
        if self.successor.is_none() {
            self.successor.clone_from(&other.successor);
        }
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives back what is more than so many bytes.
    pub fn keep_at_most(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        if let Some(successor) = self.successor.as_ref().filter(|_| more > 0) {
            successor.give_room_back(more);
        }
    }
}

impl Drop for TakenRoom {
    fn drop(&mut self) {
        self.keep_at_most(0);
    }
}
