//! Errors of the log service.

use landfall_heap::{Damage, HeapError, Until};

/// An error of the log service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalError {
    /// Environment or corruption, as the heap reports it.
    #[error(transparent)]
    Heap(HeapError),
    /// Not a fault: the caller waits, then executes the call again. What was asked for is not done. What it needs may be:
    /// an append may have made its log, or written its head, and a retention step may have trimmed other logs.
    #[error("wait, then execute again")]
    Wait(Until),
    /// Misuse: the name is not one that a log or a consumer can have.
    #[error("a {what} has 1 to {max} bytes of letters, digits, '.', '_', ':' and '-'")]
    BadName {
        /// `log name` or `consumer name`.
        what: &'static str,
        /// Longest name, bytes.
        max: usize,
    },
    /// Misuse: there is no log of this name.
    #[error("no such log: append to it first")]
    NoLog,
    /// Misuse: the consumer has no position in the log.
    #[error("no such consumer: commit a position first")]
    NoConsumer,
    /// Misuse: the log has no entry at this offset.
    #[error("offset {offset} is not in the log: it holds {first} to before {next}")]
    OutOfRange {
        /// Offset that was asked for.
        offset: u64,
        /// First offset that the log holds.
        first: u64,
        /// Offset of the entry that comes next.
        next: u64,
    },
    /// Misuse: an append has no entries, or more than a group holds.
    #[error("an append has 1 to {max} entries, not {count}")]
    BadCount {
        /// Entries that were given.
        count: usize,
        /// Most entries that one append takes.
        max: usize,
    },
    /// Environment: every log number, or every offset of the log, has been used.
    #[error("no {what} is left: start a new region")]
    Exhausted {
        /// `log number` or `offset`.
        what: &'static str,
    },
    /// Corrupt: the entry, or the head of its log, fails its checks.
    #[error("this is damaged ({what}) and is not served; trim past the entry, or delete the log")]
    Damaged {
        /// Which check failed.
        what: Damage,
    },
    /// Corrupt: the consumer's position, or an older record of it, fails its checks.
    #[error(
        "the position of consumer {consumer} is damaged ({what}) and is not served; commit a position, or delete it"
    )]
    DamagedPosition {
        /// The consumer.
        consumer: Box<str>,
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
