//! What a client needs of its process.

use landfall_fs_link::{Reply, Request};
use landfall_heap::RunId;
use landfall_media::{Extent, Site};

/// The server does not answer, or memory is not there: the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mount is gone")]
pub struct Gone;

/// The present time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Unix nanoseconds.
    pub unix_ns: i64,
    /// Milliseconds of a clock that never goes back.
    pub ms: u64,
}

/// The region's memory, the server, and the time.
pub trait Host: Sync {
    /// Bytes of the region.
    ///
    /// # Errors
    /// [`Gone`]: they lie outside.
    fn bytes(&self, extent: Extent) -> Result<&[u8], Gone>;

    /// Makes a run writable that was granted.
    ///
    /// # Errors
    /// [`Gone`].
    fn open_run(&self, run: RunId) -> Result<(), Gone>;

    /// The client does not store to the run any more.
    fn close_run(&self, run: RunId);

    /// Stores bytes to a run that is open.
    ///
    /// # Errors
    /// [`Gone`]: they lie outside.
    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), Gone>;

    /// Starts to make bytes durable. They are when [`Self::fence`] returns.
    fn flush(&self, site: Site, extent: Extent);

    /// Waits for everything that was flushed by this thread.
    fn fence(&self);

    /// Asks the server, and waits for its answer.
    ///
    /// # Errors
    /// [`Gone`].
    fn ask(&self, request: &Request) -> Result<Reply, Gone>;

    /// False once the server has ended. It costs a call of the kernel.
    fn is_there(&self) -> bool;

    /// True if a server that has ended has said at its end that everything is durable which it has executed.
    fn has_settled(&self) -> bool;

    /// The time.
    fn now(&self) -> Now;
}
