//! Where a writer's batches go besides this region: other machines with the same data (`docs/format/chain.md`).

use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::SlotId;
use std::fmt::Debug;

/// Takes the batches of one writer, one after the other. A batch is durable only when its successor has it, too.
pub trait Successor: Debug + Send + Sync {
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
