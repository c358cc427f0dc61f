//! Paging of a simulated region: its chunks leave memory and are read again from the durable bytes.
//!
//! What has left memory is lost: its bytes in the image are overwritten, and its pending lines with them. So whoever
//! evicts bytes that are not durable, or uses bytes that it has not pinned, finds other bytes than it has stored.

use super::medium::SimMedia;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::media::Media;
use crate::pages::{ChunkSet, EventFd, Evict, Pages, ReadQueue};
use std::sync::Arc;

/// What bytes that have left memory read as.
const GONE: u8 = 0xDB;

impl Pages for SimMedia {
    fn pin(&self, extent: Extent) {
        self.paging().pin(extent);
    }

    fn unpin(&self, extent: Extent) {
        self.paging().unpin(extent);
    }

    fn is_resident(&self, extent: Extent) -> bool {
        self.paging().is_present(extent)
    }

    fn load(&self, extent: Extent) -> Result<(), MediaError> {
        self.bytes(extent).map(drop)
    }

    fn open_queue(self: Arc<Self>, _eventfd: Option<EventFd<'_>>) -> Result<Box<dyn ReadQueue>, MediaError> {
        Err(MediaError::Unsupported("a simulated region is read by whoever waits for it"))
    }

    fn forget_use(&self, extent: Extent) {
        self.paging().forget_use(extent);
    }

    fn cold_bytes(&self, run_off: u64) -> u64 {
        self.paging().cold_bytes(run_off)
    }

    fn unpinned(&self, run_off: u64) -> ChunkSet {
        self.paging().unpinned(run_off)
    }

    fn evict(&self, run_off: u64, what: Evict, among: ChunkSet) -> u64 {
        self.paging().begin_evicting(run_off, what);
        let going = self.paging().take_unpinned(run_off, what, among);
        going.iter().for_each(|chunk| self.forget(*chunk, GONE));
        going.iter().map(|chunk| u64::from(chunk.len())).sum()
    }

    fn resident_bytes(&self) -> u64 {
        self.paging().resident_bytes(self.len())
    }

    fn limit(&self) -> u64 {
        self.paging().limit()
    }
}
