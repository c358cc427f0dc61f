//! What an operation must wait for before it is tried again.

use crate::error::HeapError;
use crate::loader::LoadId;
use crate::ticket::Ticket;

/// Why an operation cannot be done yet. It has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The writer's own batch must be durable first: commit.
    Commit,
    /// What the ticket stands for must be durable first.
    Ticket(Ticket),
    /// The compactor is making space; [`crate::Heap::take_awaited`] tells it that somebody waits.
    Space,
    /// Bytes that have left memory must be read first: [`crate::Heap::is_loaded`].
    Load(LoadId),
}

impl Until {
    /// What an error asks to wait for, if it is no failure.
    pub fn of(error: &HeapError) -> Option<Self> {
        match error {
            HeapError::Busy => Some(Self::Commit),
            HeapError::Cleaning => Some(Self::Space),
            HeapError::Loading(load) => Some(Self::Load(*load)),
            _ => None,
        }
    }
}
