//! Paging: a medium of which only a part need be in memory.

use crate::{Extent, MediaError};

/// Unit in which pins are counted, bytes: a heap's frame. What is pinned together may be unpinned in parts of whole units.
pub const PIN_UNIT: u64 = 2048;

/// Unit in which memory is given up, bytes. It is read in blocks of [`crate::BLOCK_SIZE`].
pub const CHUNK_SIZE: u64 = 64 << 10;

/// What decides which bytes of a paged region are in memory.
///
/// Nothing leaves memory by itself: the caller chooses what is evicted ([`Pages::evict`]), and keeps what it uses by
/// pinning it. A caller pins *before* it asks whether something is resident. What is evicted must be durable, and nobody
/// may store to it meanwhile: both are the caller's to ensure.
pub trait Pages: Send + Sync {
    /// Keeps every byte in memory that the extent's units touch, once they are there, until [`Self::unpin`].
    fn pin(&self, extent: Extent);

    /// Takes back one pin of every unit that the extent touches.
    fn unpin(&self, extent: Extent);

    /// True when every byte of the extent is in memory.
    fn is_resident(&self, extent: Extent) -> bool;

    /// Reads the blocks of a pinned extent that are not in memory.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`]; the read error. Nothing is then lost: a later call tries again.
    fn load(&self, extent: Extent) -> Result<(), MediaError>;

    /// How many bytes of a run nobody has pinned, and nobody had since the last call. Each chunk that was pinned meanwhile
    /// counts as unused from now on.
    fn cold_bytes(&self, run_off: u64) -> u64;

    /// Drops chunks of a run from memory that nobody has pinned. Returns how many bytes were freed.
    fn evict(&self, run_off: u64, what: Evict) -> u64;

    /// Bytes of the region that are in memory.
    fn resident_bytes(&self) -> u64;

    /// How many are to be, at most.
    fn limit(&self) -> u64;
}

/// Which chunks [`Pages::evict`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Those that nobody has pinned since [`Pages::cold_bytes`] was called.
    Unused,
    /// Every one.
    Any,
}
