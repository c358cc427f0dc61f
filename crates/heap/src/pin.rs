//! Bytes of data runs, kept in memory while they are used.
//!
//! Two things must hold for as long as somebody uses bytes of the region. Their frames must not be used for something
//! else: that is what references are for, those of records and those of holders. And they must be in memory: that is
//! what pins are for. A hold pins; a record's reference does not. So whoever reads through a record, under the lock that
//! keeps it current, pins for the time of reading.

use crate::heap::Heap;
use crate::runs::Runs;
use landfall_media::{Extent, MediaError};
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
    /// Bytes that never leave memory, or that the caller holds for as long.
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
    /// Bytes that are to be in memory at most, beside what is pinned.
    pub limit: u64,
    /// Bytes that are.
    pub resident: u64,
}

impl Heap {
    /// How much of the region is in memory; `None` where all of it may be.
    pub fn memory(&self) -> Option<MemoryUse> {
        self.runs.pages().map(|pages| MemoryUse { limit: pages.limit(), resident: pages.resident_bytes() })
    }

    /// The bytes of an extent to which a record refers that stays current meanwhile, or that somebody holds. Those that are
    /// not in memory are read first.
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

    /// True where not all of the region need be in memory.
    pub fn is_paged(&self) -> bool {
        self.runs.pages().is_some()
    }

    /// True when the bytes of a held extent can be used without reading them from the medium first.
    pub fn is_resident(&self, extent: Extent) -> bool {
        self.runs.pages().is_none_or(|pages| pages.is_resident(extent))
    }

    /// Reads what of a held extent is not in memory. Blocks while the medium reads.
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
