//! What can go wrong with logs.

use landfall_heap::{Damage, HeapError, Until};

/// An error of the log service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// Environment or corruption, from below.
    #[error(transparent)]
    Heap(HeapError),
    /// Not an error of anyone: wait, then execute again. Nothing was changed.
    #[error("wait, then execute again")]
    Wait(Until),
    /// Misuse: a name that no log or consumer can have.
    #[error("a {what} has 1 to {max} bytes of letters, digits, '.', '_', ':' and '-'")]
    BadName {
        /// `log name` or `consumer name`.
        what: &'static str,
        /// Longest, bytes.
        max: usize,
    },
    /// Misuse: there is no such log.
    #[error("no such log: append to it first")]
    NoLog,
    /// Misuse: there is no such consumer.
    #[error("no such consumer: commit a position first")]
    NoConsumer,
    /// Misuse: an offset that the log does not hold.
    #[error("offset {offset} is not in the log: it holds {first} to before {next}")]
    OutOfRange {
        /// Asked for.
        offset: u64,
        /// First offset that the log holds.
        first: u64,
        /// The offset of the entry that comes next.
        next: u64,
    },
    /// Misuse: an append without entries, or with more than a group holds.
    #[error("an append has 1 to {max} entries, not {count}")]
    BadCount {
        /// Entries given.
        count: usize,
        /// Most.
        max: usize,
    },
    /// Environment: every log number or offset has been used.
    #[error("no {what} is left: start a new region")]
    Exhausted {
        /// `log number` or `offset`.
        what: &'static str,
    },
    /// Corrupt: the entry, or what bounds its log, fails its checks.
    #[error("this is damaged ({what}) and is not served; trim past the entry, or delete the log")]
    Damaged {
        /// Which check failed.
        what: Damage,
    },
}

impl From<HeapError> for WalError {
    fn from(error: HeapError) -> Self {
        match (Until::of(&error), error) {
            (Some(until), _) => Self::Wait(until),
            (None, HeapError::Damaged { what, .. }) => Self::Damaged { what },
            (None, other) => Self::Heap(other),
        }
    }
}

impl From<landfall_media::MediaError> for WalError {
    fn from(error: landfall_media::MediaError) -> Self {
        Self::Heap(error.into())
    }
}
