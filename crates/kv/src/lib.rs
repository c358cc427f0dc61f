//! The key-value engine: a volatile index over the records of a persistent packet heap.
//!
//! Read [`Engine`] first. The engine does no I/O, reads no clock and starts no thread: `now` is an argument, and what
//! must become durable goes out through the caller's [`landfall_heap::Writer`]. Keys are sharded by hash; each shard
//! has a lock, held for well under a microsecond a command.
//!
//! Two rules hold on every path. A write is acknowledged only once no crash can undo it or what it depends on. What was
//! read is shown only once no crash can undo it. So every call returns a [`landfall_heap::Gated`] result, which a reply
//! opens; the reply then waits.

#![forbid(unsafe_code)]

mod ahead;
mod check;
mod engine;
mod error;
mod expire;
mod key;
mod look;
mod moves;
mod range;
mod recover;
mod scrub;
mod shard;
mod table;
mod txn;

pub use check::KeyCheck;
pub use engine::{Engine, SetRequest, Stats, Written};
pub use error::KvError;
pub use landfall_heap::{Item, ItemPart, Recovered};
pub use look::verify;
pub use range::{Page, PageLimit, RangeQuery};
pub use recover::Recovery;
pub use scrub::{ScrubCursor, ScrubFinding, Scrubbed};
pub use shard::DATABASES;
pub use txn::patch::{Patchable, Place};
pub use txn::{Pieces, TXN_KEYS_MAX, Txn, TxnKey};
