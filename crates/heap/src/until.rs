//! The event for which an operation waits before it is retried.

use crate::error::HeapError;
use crate::lanes::Ticket;
use crate::load::LoadId;

/// The reason why an operation cannot be done yet. The operation has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The writer's own batch must be durable first: commit.
    Commit,
    /// The ticket must be durable first.
    Ticket(Ticket),
    /// The compactor must free space first. It learns of the wait by [`crate::Heap::take_awaited`].
    Space,
    /// Evicted bytes must be read first: [`crate::Heap::is_loaded`].
    Load(LoadId),
}

impl Until {
    /// The event to wait for after an error; `None` if the error is a failure.
    pub fn of(error: &HeapError) -> Option<Self> {
        match error {
            HeapError::Busy => Some(Self::Commit),
            HeapError::Cleaning => Some(Self::Space),
            HeapError::Loading(load) => Some(Self::Load(*load)),
            _ => None,
        }
    }
}
