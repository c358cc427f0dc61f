//! The crash simulator: a medium that records what a crash may leave behind.
//!
//! Start at [`SimMedia`]. Run the code under test on it, then draw crash images, either of the present or of an earlier
//! moment chosen with [`SimMedia::freeze_at`]. A checker that shares no code with the writer judges what recovery makes
//! of each image.
//!
//! # The fault model
//!
//! - A store makes its 64-byte lines *pending*. After a crash a pending line may have its durable contents, any of its
//!   recorded later contents, or a mixture of all of these in units of 8-byte words. Each pending line is drawn
//!   independently, and so is each word of a mixture. An aligned 8-byte word is never torn.
//! - A flush promises the contents of its lines *at that moment* to the [`Dirty`](crate::Dirty) it is given. A fence
//!   makes what was promised to its `Dirty` durable, and nothing else: a store after the flush is pending
//!   again, and flushes noted in another `Dirty` stay without a promise.
//! - `deferred` media (files) may also write what is in memory at the fence. That is the stronger promise; the
//!   simulator makes the weaker one, that of the flush, for both.
//! - A device writes whole blocks. A `deferred` batch that was [submitted](SimMedia::submit) takes its blocks from
//!   memory then, including lines that were not flushed, and may be written at any time until its fence returns. Two
//!   batches that share a block wait for each other, as real batches do. With [`SimMedia::overlap_blocks`] they do not,
//!   and the batch that took the block first may be written last, over what the other has made durable: a canary.
//! - At most [`VERSIONS_MAX`] contents of one line are kept: always the newest; the oldest are dropped first.
//! - Runs may become unreadable, once chosen with [`SimMedia::fail_reads`]. They cannot be stored to either, since a file
//!   reads a run before it is stored to. A store may fail, once chosen with [`SimMedia::fail_store_at`]: it changes
//!   nothing, and the region stays open.
//! - A run that is given back reads as zeroes at once. After a crash each of its words has its old value or is zero,
//!   until it is stored to again and fenced. A store to the run before it is claimed is a bug, and panics. With
//!   [`SimMedia::set_full`] the medium refuses to allocate space for the run.
//! - A fence may fail, once chosen with [`SimMedia::fail_at`]; the region is then closed for writing.
//! - The flushes and fences of a site may do nothing and report success, once chosen with [`SimMedia::skip_site`]: the
//!   canary that a checker must detect.
//! - Chunks of a [paged](SimMedia::page) region may leave memory, with all in them that is not durable. They are read
//!   again from the durable bytes.
//!
//! Not simulated: changes to bytes that no store touched (use [`SimMedia::damage`]), and stores by a kernel.

mod blocks;
mod chunks;
mod crash;
pub(crate) mod lines;
mod medium;
mod pages;
mod paging;
mod rng;
mod spare;

pub use crash::{CrashImage, CrashState, EXHAUSTIVE_LINES_MAX, Subsets};
pub use lines::VERSIONS_MAX;
pub use medium::{OpCounts, SimMedia, SimOptions};
