//! The errors of the engine.

use landfall_heap::{Damage, HeapError, Until};

/// An error of the key-value engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// Environment or Corrupt: an error of the heap or the medium.
    #[error(transparent)]
    Heap(HeapError),
    /// Not a fault: the caller waits, then executes the command again. Nothing has changed.
    #[error("wait, then execute again")]
    Wait(Until),
    /// Corrupt: the key's record or value fails its checks. A write or a delete of the key clears the damage.
    #[error(
        "the value of this key is damaged ({what}); it is not served. Write or delete the key to clear the damage"
    )]
    Damaged {
        /// Which check failed.
        what: Damage,
    },
    /// Environment: a write of this key was not made durable because the medium failed.
    #[error(
        "the last write of this key never became durable: the medium failed; restart to see the last durable value"
    )]
    NotDurable,
}

impl From<HeapError> for KvError {
    fn from(error: HeapError) -> Self {
        match (Until::of(&error), error) {
            (Some(until), _) => Self::Wait(until),
            (None, HeapError::Damaged { what, .. }) => Self::Damaged { what },
            (None, other) => Self::Heap(other),
        }
    }
}

impl From<landfall_media::MediaError> for KvError {
    fn from(error: landfall_media::MediaError) -> Self {
        Self::Heap(error.into())
    }
}
