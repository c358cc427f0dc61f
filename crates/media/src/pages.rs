//! Paging: a medium of which only a part has to be in memory.

use crate::error::MediaError;
use crate::extent::Extent;
use crate::units::RUN_SIZE;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Unit in which pins are counted, bytes: a heap's frame. An extent may be pinned as a whole and unpinned in parts of
/// whole units.
pub const PIN_UNIT: u64 = 2048;

/// Unit of eviction, bytes. It is read in blocks of [`crate::BLOCK_SIZE`].
pub const CHUNK_SIZE: u64 = 64 << 10;

/// An eventfd that the kernel signals, by whatever owns it.
#[derive(Clone, Copy, Debug)]
pub struct EventFd<'fd>(BorrowedFd<'fd>);

impl<'fd> EventFd<'fd> {
    /// The eventfd that `owner` has.
    pub fn of(owner: &'fd impl AsFd) -> Self {
        Self(owner.as_fd())
    }
}

impl AsFd for EventFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}

/// Controls which bytes of a paged region are in memory.
///
/// The medium evicts nothing on its own: the caller chooses what is evicted ([`Pages::evict`]), and pins what it uses.
/// A caller pins *before* it tests whether an extent is resident. The caller ensures that evicted bytes are durable and
/// that no thread stores to them meanwhile.
pub trait Pages: Send + Sync {
    /// Prefetches what [`Self::pin`] changes for the extent's first chunk. Only a hint.
    fn prefetch(&self, _extent: Extent) {}

    /// Keeps every byte that the extent's units touch in memory, once it is there, until [`Self::unpin`].
    fn pin(&self, extent: Extent);

    /// Removes one pin from every unit that the extent touches.
    fn unpin(&self, extent: Extent);

    /// True when every byte of the extent is in memory.
    fn is_resident(&self, extent: Extent) -> bool;

    /// Reads the blocks of a pinned extent that are not in memory.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`]; the read error. The extent then stays absent, and a later call tries again.
    fn load(&self, extent: Extent) -> Result<(), MediaError>;

    /// Opens a queue through which one thread reads blocks while it goes on with other work. The kernel signals
    /// `eventfd`, if there is one, when a read has ended.
    ///
    /// # Errors
    /// The system has no io_uring, or refuses it.
    fn open_queue(self: Arc<Self>, eventfd: Option<EventFd<'_>>) -> Result<Box<dyn ReadQueue>, MediaError>;

    /// Counts the extent's chunks as not pinned since [`Self::cold_bytes`] was called, although they were: their first use
    /// after a read does not make them worth more than chunks that are used again and again.
    fn forget_use(&self, extent: Extent);

    /// How many bytes of a run are unpinned and have not been pinned since the last call. A chunk that was pinned
    /// meanwhile counts as unused from now on.
    fn cold_bytes(&self, run_off: u64) -> u64;

    /// The chunks of a run that are not pinned.
    fn unpinned(&self, run_off: u64) -> ChunkSet;

    /// Evicts chunks of a run that are among some, and not pinned. Returns how many bytes were freed.
    fn evict(&self, run_off: u64, what: Evict, among: ChunkSet) -> u64;

    /// Bytes of the region that are in memory.
    fn resident_bytes(&self) -> u64;

    /// The limit for [`Self::resident_bytes`].
    fn limit(&self) -> u64;
}

/// Some chunks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSet(u16);

impl ChunkSet {
    /// All chunks.
    pub const ALL: Self = Self(u16::MAX);

    /// Those for which `is_member` holds of the number within the run.
    pub(crate) fn of(is_member: impl Fn(u64) -> bool) -> Self {
        let bits = (0..RUN_SIZE / CHUNK_SIZE).filter(|chunk| is_member(*chunk));
        Self(bits.fold(0, |set, chunk| set | 1 << chunk))
    }

    /// True if a chunk, by its number within the run, is among them.
    pub(crate) fn has(self, chunk: u64) -> bool {
        self.0 >> chunk & 1 == 1
    }
}

const _: () = assert!(RUN_SIZE / CHUNK_SIZE == u16::BITS as u64);

/// Which chunks [`Pages::evict`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// The chunks that have not been pinned since [`Pages::cold_bytes`] was called.
    Unused,
    /// Every chunk.
    Any,
}

/// Reads missing blocks of pinned extents while its one thread goes on.
///
/// Dropping a queue waits until its reads have ended. Bytes stay pinned until their read has ended.
pub trait ReadQueue {
    /// Queues the read of what is missing of a pinned extent, which lies within one run. [`Self::submit`] starts it.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`].
    fn start(&mut self, tag: u64, extent: Extent) -> Result<Started, MediaError>;

    /// Starts the queued reads, by one system call.
    fn submit(&mut self);

    /// Appends the tags of the reads that have ended, and their outcomes.
    fn take_ended(&mut self, into: &mut Vec<(u64, Result<(), MediaError>)>);
}

/// What [`ReadQueue::start`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// Nothing: all blocks are in memory.
    Present,
    /// The read is queued.
    Reading,
    /// Nothing: another thread reads or drops a part of the extent. [`Pages::load`] waits for it.
    Busy,
    /// Nothing: as many reads are under way as the queue can have.
    Full,
}
