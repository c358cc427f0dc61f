//! The key-value engine: a volatile index over the records of a persistent packet heap.
//!
//! Read [`Engine`] first. The engine does no I/O, reads no clock and starts no thread: `now` comes in, and
//! what must become durable goes out through the caller's [`landfall_heap::Writer`]. Keys are sharded by
//! hash; each shard has a lock, held for well under a microsecond a command.
//!
//! Two rules hold on every path (DESIGN §6): a caller acknowledges a write only once
//! [`Engine::is_durable`] says so of its slot, and it shows what it has read only once the slot read is
//! durable. [`Item::slot`] and the write calls return the slot to wait for.

#![forbid(unsafe_code)]

mod absence;
mod check;
mod engine;
mod error;
mod expire;
mod moves;
mod range;
mod recover;
mod scrub;
mod shard;
mod tenants;
mod txn;

pub use absence::Seen;
pub use check::{Check, Checked, Finding};
pub use engine::{Engine, SetRequest, Stats, Written};
pub use error::KvError;
pub use landfall_heap::Item;
pub use range::{Page, PageLimit, RangeQuery};
pub use recover::{Recovered, Recovery};
pub use scrub::{ScrubCursor, ScrubFinding, Scrubbed};
pub use shard::DATABASES;
pub use txn::{Txn, TxnKey};
