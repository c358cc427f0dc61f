//! Named logs in a persistent packet heap.
//!
//! Read [`Logs`] first. An append logs a *reference* to bytes where they landed, not a copy of them (PASTE, HotNets
//! 2016). The crate does no I/O, reads no clock and starts no thread: the caller passes the time as an argument, and
//! records become durable through the caller's [`landfall_heap::Writer`].
//!
//! Two rules hold on every path. A call returns a [`landfall_heap::Gated`] result: a reply opens it, and then waits for
//! the tickets that it depends on. Readers get durable entries only.
//!
//! `docs/format/wal.md` defines the records and argues why they survive any crash.

#![forbid(unsafe_code)]

mod append;
mod bounds;
mod error;
mod format;
mod kept;
mod log;
mod logs;
mod lost;
mod mode;
mod moves;
mod positions;
mod read;
mod received;
mod recover;
mod retain;
mod retention;
mod scrub;
mod sent;
mod slots;
mod tombstones;
mod trim;
mod turns;
mod wire;

pub use append::Appended;
pub use error::WalError;
pub use format::{CONSUMER_BYTES_MAX, NAME_BYTES_MAX, Settings};
pub use logs::{LogStats, Logs, WalStats};
pub use lost::with_commit;
pub use read::{Page, ReadLimit};
pub use received::{LogRecord, ReceiveError};
pub use recover::{LogRecovery, Recovered};
pub use retain::Retained;
pub use scrub::{LogScrub, LogScrubbed};
pub use sent::{CopiedLogRecord, LogPage, LogPart, LogPlace};
