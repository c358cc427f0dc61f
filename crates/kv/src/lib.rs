//! The key-value engine: a volatile index over the records of a persistent packet heap.
//!
//! Read [`Engine`] first. The engine does no I/O, reads no clock and starts no thread: `now` is an argument, and the
//! caller's [`landfall_heap::Writer`] makes writes durable. Keys are sharded by hash. Each shard has a lock, which a
//! command holds for well under a microsecond.
//!
//! Two rules hold on every path. A write is acknowledged only once it is durable, together with everything that it
//! depends on. The result of a read is shown only once the version that it read is durable. So every call returns a
//! [`landfall_heap::Gated`] result. A reply opens it and then waits for its tickets.

#![forbid(unsafe_code)]

mod ahead;
mod check;
mod engine;
mod error;
mod expire;
mod key;
mod moves;
mod range;
mod read;
mod recover;
mod scrub;
mod shard;
mod table;
mod txn;

pub use ahead::Need;
pub use check::KeyCheck;
pub use engine::{Engine, SetRequest, Stats, Written};
pub use error::KvError;
pub use landfall_heap::{Item, ItemPart, Recovered};
pub use range::{Page, PageLimit, RangeQuery};
pub use read::verify;
pub use recover::Recovery;
pub use scrub::{ScrubCursor, ScrubFinding, Scrubbed};
pub use shard::DATABASES;
pub use txn::patch::{Patchable, Place};
pub use txn::{Pieces, TXN_KEYS_MAX, Txn, TxnKey};
