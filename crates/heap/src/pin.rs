//! Bytes of data runs that stay in memory while they are used.
//!
//! Two conditions hold while a caller uses bytes of the region. The frames are not reused: references of records and of
//! holders ensure this. The bytes are in memory: pins ensure this. A hold pins; a record's reference does not. So a
//! caller that reads through a record, under the lock that keeps the record current, pins the bytes while it reads.

use crate::runs::Runs;
use landfall_media::{Extent, Media, MediaError};
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

    /// Pins the bytes of an extent, which are read first if they are not in memory.
    #[inline]
    pub(crate) fn new(media: &'h dyn Media, runs: &'h Runs, extent: Extent) -> Result<Self, MediaError> {
        let pin = runs.pages().map(|pages| {
            pages.pin(extent);
            Pin { runs, extent }
        });
        Ok(Self { bytes: media.bytes(extent)?, _pin: pin })
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
