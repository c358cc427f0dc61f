//! Request handlers with durable state: a map, in one of five structures, in a transactional pool.
//!
//! Read [`Store`] first: it applies requests to the map and stores, in the same transaction, the rows that say which
//! requests have been applied. It uses [`Map`], which the structures implement, and [`Pool`], which makes a batch of
//! transactions durable atomically, with one fence.
//!
//! The structures are those of the paper's evaluation (Seemakhupt et al., *PMNet*, ISCA 2021, section VI-A): B-tree,
//! crit-bit tree, red-black tree, hash map, skip list. They follow the examples of Intel's PMDK. Calling contract:
//! execute, commit, and only then answer. Format and crash argument: `docs/format/pool.md`.

#![forbid(unsafe_code)]

mod error;
mod maps;
mod pool;
mod request;
mod store;

pub use error::{HandlerError, Result};
pub use maps::{Map, Structure};
pub use pool::{BLOCK_BYTES_MAX, Block, KEY_BYTES_MAX, LOG_BYTES, Pool, Transaction, VALUE_BYTES_MAX};
pub use request::{Op, Request};
pub use store::{FLOOR_BYTES_MAX, Store, StoreOptions};
