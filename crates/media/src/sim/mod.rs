//! The crash simulator: a medium that remembers what a crash may leave behind.
//!
//! Start at [`SimMedia`]. Run the code under test on it, then draw crash images, either of now or of a
//! moment in the middle chosen with [`SimMedia::freeze_at`], and let a checker that shares no code with
//! the writer judge what recovery makes of each.
//!
//! # The fault model
//!
//! - A store makes its 64-byte lines *pending*. A pending line may be found, after a crash, as it was last
//!   durable, as any of its remembered later contents, or torn between the two at 8-byte words.
//!   Each pending line fares independently of all others. Only an aligned 8-byte word never tears.
//! - A flush promises the contents of its lines *at that moment* to the [`Dirty`](crate::Dirty) it is given. A fence
//!   makes what was promised to its `Dirty` durable, and nothing else: a store after the flush is pending
//!   again, and flushes noted in another `Dirty` stay without a promise.
//! - `deferred` media (files) may also write what is in memory at the fence. That is the stronger promise;
//!   the weaker one, of the flush, is what is simulated for both.
//! - A device writes whole blocks. A `deferred` batch that was [submitted](SimMedia::submit) takes its blocks from memory then,
//!   lines that nobody flushed included, and may be written at any time until its fence returns. Two batches with a
//!   block in common wait for each other, as real ones do. With [`SimMedia::overlap_blocks`] they do not, and the one
//!   that took the block first may be written last, over what the other has made durable: a canary.
//! - At most [`VERSIONS_MAX`] contents of one line are remembered: the newest always, the oldest go first.
//! - Runs may become unreadable, once chosen with [`SimMedia::fail_reads`].
//! - A run that is given back reads as zeroes at once. After a crash each of its words is as it was or zero, until it is
//!   stored to again and fenced. A store to it before it is claimed is a bug, and panics. [`SimMedia::set_full`] lets the
//!   medium refuse it its space.
//! - A fence may fail, once chosen with [`SimMedia::fail_at`]; the region is then closed for writing.
//! - A site may lie, once chosen with [`SimMedia::skip_site`]: the canary that a checker must catch.
//!
//! Not simulated: bytes that no store touched changing (use [`SimMedia::damage`]), and stores by a kernel.

mod blocks;
mod crash;
mod lines;
mod medium;
mod rng;

pub use crash::{CrashState, EXHAUSTIVE_LINES_MAX, Subsets};
pub(crate) use lines::Promises;
pub use lines::VERSIONS_MAX;
pub use medium::{OpCounts, SimMedia, SimOptions};
