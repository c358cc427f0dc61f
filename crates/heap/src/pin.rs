//! Bytes of data runs that stay in memory while they are used.
//!
//! Two conditions hold while a caller uses bytes of the region. The frames are not reused: references of records and of
//! holders ensure this. The bytes are in memory: pins ensure this. A hold pins; a record's reference does not. So a
//! caller that reads through a record, under the lock that keeps the record current, pins the bytes while it reads.

use crate::heap::Heap;
use crate::runs::Runs;
use landfall_media::{EventFd, Extent, MediaError, ReadQueue};
use std::ops::Deref;

/// Bytes of the region that stay in memory until this is dropped.
#[derive(Debug)]
pub struct Pinned<'h> {
    bytes: &'h [u8],
    _pin: Option<Pin<'h>>,
}

/// One pin.
#[derive(Debug)]
struct Pin<'h> {
    runs: &'h Runs,
    extent: Extent,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(pages) = self.runs.pages() {
            pages.unpin(self.extent);
        }
    }
}

impl<'h> Pinned<'h> {
    /// Bytes that are never evicted, or that the caller holds meanwhile.
    pub(crate) fn always(bytes: &'h [u8]) -> Self {
        Self { bytes, _pin: None }
    }
}

impl Deref for Pinned<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// How much of a paged region is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Most bytes that may be in memory, not counting pinned ones.
    pub limit: u64,
    /// Bytes that are in memory.
    pub resident: u64,
}

impl Heap {
    /// How much of the region is in memory; `None` if all of it may be.
    pub fn memory(&self) -> Option<MemoryUse> {
        self.runs.pages().map(|pages| MemoryUse { limit: pages.limit(), resident: pages.resident_bytes() })
    }

    /// The bytes of an extent. Either a record that stays current meanwhile refers to the extent, or it is held. Bytes
    /// that are not in memory are read first, which blocks.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn pinned(&self, extent: Extent) -> Result<Pinned<'_>, MediaError> {
        let pin = self.runs.pages().map(|pages| {
            pages.pin(extent);
            Pin { runs: &self.runs, extent }
        });
        Ok(Pinned { bytes: self.media.bytes(extent)?, _pin: pin })
    }

    /// True if parts of the region may be evicted from memory.
    pub fn is_paged(&self) -> bool {
        self.runs.pages().is_some()
    }

    /// True if all bytes of a held extent are in memory.
    pub fn is_resident(&self, extent: Extent) -> bool {
        self.runs.pages().is_none_or(|pages| pages.is_resident(extent))
    }

    /// Opens a queue through which one thread reads held extents while it goes on with other work. The kernel signals
    /// `eventfd`, if there is one, when a read has ended. `None` where all of the region may be in memory.
    ///
    /// # Errors
    /// The medium's: the system has no io_uring, or refuses it.
    pub fn open_queue(&self, eventfd: Option<EventFd<'_>>) -> Result<Option<Box<dyn ReadQueue>>, MediaError> {
        self.runs.shared_pages().map(|pages| pages.open_queue(eventfd)).transpose()
    }

    /// Reads the bytes of a held extent that are not in memory. Blocks while the medium reads.
    ///
    /// # Errors
    /// The medium's.
    pub fn load(&self, extent: Extent) -> Result<(), MediaError> {
        self.runs.pages().map_or(Ok(()), |pages| {
            self.relieve_memory(u64::from(extent.len()));
            pages.load(extent)
        })
    }
}
