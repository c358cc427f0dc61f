//! A region of blocks that a batch of transactions changes atomically. Format and crash argument:
//! `docs/format/pool.md`.

mod alloc;
mod batch;
mod blocks;
pub(crate) mod item;
mod layout;
mod log;
mod transaction;

pub(crate) use alloc::check_tiling;
pub use alloc::{BLOCK_BYTES_MAX, Block};
pub use blocks::{LOG_BYTES, Pool};
pub use item::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use transaction::Transaction;
