//! Named logs in a persistent packet heap.
//!
//! Read [`Logs`] first. An append logs a *reference* to bytes where they landed, not a copy of them (PASTE, HotNets
//! 2016). The crate does no I/O, reads no clock and starts no thread: `now` is an argument, and what must become
//! durable goes out through the caller's [`landfall_heap::Writer`].
//!
//! Two rules hold on every path. Calls return [`landfall_heap::Gated`] results, which a reply opens and then waits for.
//! Readers are shown durable entries only.
//!
//! Records, and the argument why they survive any crash: `docs/format/wal.md`.

#![forbid(unsafe_code)]

mod append;
mod bounds;
mod error;
mod format;
mod log;
mod logs;
mod lost;
mod moves;
mod positions;
mod read;
mod recover;
mod scrub;
mod slots;
mod trim;

pub use append::Appended;
pub use error::WalError;
pub use format::{CONSUMER_BYTES_MAX, NAME_BYTES_MAX, Settings};
pub use logs::{LogStats, Logs, WalStats};
pub use read::{Page, ReadLimit};
pub use recover::{LogRecovery, Recovered};
pub use scrub::{LogScrub, LogScrubbed};
