//! Space that incomplete requests hold. The receivers return it when a write finds no room.

use landfall_media::RUN_SIZE;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most requests to return space for which a writer waits before it reports that the region is full. Each returns half
/// of the held space.
const RETURNS_MAX: u64 = 8;

/// Bytes that unfinished requests hold, and requests to return them.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    bytes: AtomicU64,
    /// A writer waits for space that unfinished requests hold.
    is_wanted: AtomicBool,
    /// How often space was returned because a writer asked for it.
    returns: AtomicU64,
}

impl Unfinished {
    /// Notes that an incomplete request holds `now` bytes of the region, where it held `before`.
    pub(crate) fn note(&self, before: u64, now: u64) {
        if before != now {
            self.bytes.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Bytes of the region that incomplete requests hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// True if a writer has requested, since the last call, that unfinished requests return space.
    pub(crate) fn take_wanted(&self) -> bool {
        let takes = self.is_wanted.load(Ordering::Relaxed) && self.is_wanted.swap(false, Ordering::AcqRel);
        if takes {
            self.returns.fetch_add(1, Ordering::AcqRel);
        }
        takes
    }

    /// How often unfinished requests had to return space.
    pub(crate) fn returns(&self) -> u64 {
        self.returns.load(Ordering::Acquire)
    }

    /// For a writer that finds no room: requests that unfinished requests return space. `since` is [`Self::returns`] at
    /// the writer's first request. False if they hold too little, or have returned space often enough without success.
    pub(crate) fn ask(&self, since: u64) -> bool {
        let asks = self.bytes() >= RUN_SIZE && self.returns() - since < RETURNS_MAX;
        if asks {
            self.is_wanted.store(true, Ordering::Release);
        }
        asks
    }
}
