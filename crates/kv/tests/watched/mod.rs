//! A medium that records the reads through it.

use landfall_media::sim::SimMedia;
use landfall_media::{Dirty, Extent, Media, MediaError, MediaKind, Site};
use std::sync::{Arc, Mutex};

/// A medium over another one, with the extents that have been read.
pub struct Watched {
    media: Arc<SimMedia>,
    reads: Mutex<Vec<Extent>>,
}

impl Watched {
    /// A medium over `media` without recorded reads.
    pub fn over(media: Arc<SimMedia>) -> Arc<Self> {
        Arc::new(Self { media, reads: Mutex::default() })
    }

    /// The extents read since the last call, in order.
    pub fn take_reads(&self) -> Vec<Extent> {
        std::mem::take(&mut *self.reads.lock().expect("no panic"))
    }
}

impl Media for Watched {
    fn kind(&self) -> MediaKind {
        self.media.kind()
    }

    fn describe(&self) -> String {
        self.media.describe()
    }

    fn len(&self) -> u64 {
        self.media.len()
    }

    fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        self.reads.lock().expect("no panic").push(extent);
        self.media.bytes(extent)
    }

    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.media.store(off, bytes)
    }

    fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError> {
        self.media.store_u64(off, word)
    }

    fn zero(&self, extent: Extent) -> Result<(), MediaError> {
        self.media.zero(extent)
    }

    fn claim_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.media.claim_run(run_off)
    }

    fn flush(&self, dirty: &mut Dirty, site: Site, extent: Extent) {
        self.media.flush(dirty, site, extent);
    }

    fn fence(&self, dirty: &mut Dirty, site: Site) -> Result<(), MediaError> {
        self.media.fence(dirty, site)
    }

    fn read_medium(&self, extent: Extent, into: &mut [u8]) -> Result<(), MediaError> {
        self.media.read_medium(extent, into)
    }

    fn grow(&self, len: u64) -> Result<(), MediaError> {
        self.media.grow(len)
    }
}
