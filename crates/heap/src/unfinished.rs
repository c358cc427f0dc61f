//! Space that requests hold which are not complete: whoever receives them returns it when a write finds no room.

use crate::heap::Heap;
use landfall_media::RUN_SIZE;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Requests to return space that a writer waits for without success before it reports that the region is full. Each
/// returns half of what is held.
const RETURNS_MAX: u64 = 8;

/// What unfinished requests hold, and who asks for it.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    bytes: AtomicU64,
    /// A writer waits for space that they hold.
    is_wanted: AtomicBool,
    /// How often space was returned because a writer asked for it.
    returns: AtomicU64,
}

impl Heap {
    /// Records that a request which is not complete holds `now` bytes of the region where it held `before`.
    pub fn note_unfinished(&self, before: u64, now: u64) {
        if before != now {
            self.unfinished.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Bytes of the region that requests hold which are not complete.
    pub fn unfinished_bytes(&self) -> u64 {
        self.unfinished.bytes.load(Ordering::Relaxed)
    }

    /// True if a writer has asked, since the last call, for space that unfinished requests hold. The caller then has
    /// half of it returned, by every worker.
    pub fn take_return_wanted(&self) -> bool {
        let is_wanted = &self.unfinished.is_wanted;
        let takes = is_wanted.load(Ordering::Relaxed) && is_wanted.swap(false, Ordering::AcqRel);
        if takes {
            self.unfinished.returns.fetch_add(1, Ordering::AcqRel);
        }
        takes
    }

    /// How often unfinished requests have been told to return space.
    pub fn returns(&self) -> u64 {
        self.unfinished.returns.load(Ordering::Acquire)
    }

    /// For a writer that finds no room: asks unfinished requests to return theirs. `since` is [`Heap::returns`] when it
    /// asked first. False if they hold too little, or have returned space often enough to no avail.
    pub(crate) fn ask_unfinished(&self, since: u64) -> bool {
        let asks = self.unfinished_bytes() >= RUN_SIZE && self.returns() - since < RETURNS_MAX;
        if asks {
            self.unfinished.is_wanted.store(true, Ordering::Release);
        }
        asks
    }
}
