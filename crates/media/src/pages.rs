//! Paging: a medium of which only a part has to be in memory.

use crate::error::MediaError;
use crate::extent::Extent;

/// Unit in which pins are counted, bytes: a heap's frame. An extent may be pinned as a whole and unpinned in parts of
/// whole units.
pub const PIN_UNIT: u64 = 2048;

/// Unit of eviction, bytes. It is read in blocks of [`crate::BLOCK_SIZE`].
pub const CHUNK_SIZE: u64 = 64 << 10;

/// Controls which bytes of a paged region are in memory.
///
/// The medium evicts nothing on its own: the caller chooses what is evicted ([`Pages::evict`]), and pins what it uses.
/// A caller pins *before* it tests whether an extent is resident. The caller ensures that evicted bytes are durable and
/// that no thread stores to them meanwhile.
pub trait Pages: Send + Sync {
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

    /// How many bytes of a run are unpinned and have not been pinned since the last call. A chunk that was pinned
    /// meanwhile counts as unused from now on.
    fn cold_bytes(&self, run_off: u64) -> u64;

    /// Evicts unpinned chunks of a run. Returns how many bytes were freed.
    fn evict(&self, run_off: u64, what: Evict) -> u64;

    /// Bytes of the region that are in memory.
    fn resident_bytes(&self) -> u64;

    /// The limit for [`Self::resident_bytes`].
    fn limit(&self) -> u64;
}

/// Which chunks [`Pages::evict`] drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// The chunks that have not been pinned since [`Pages::cold_bytes`] was called.
    Unused,
    /// Every unpinned chunk.
    Any,
}
