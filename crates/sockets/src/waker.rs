//! Ending a transport's wait from another thread.

use crate::sys::EventFd;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the wait of the transport it came from, from any thread. Wakes that come together are one
/// [`crate::Event::Woken`]; a wake that comes after that event was reported causes another.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    eventfd: EventFd,
    /// True from the first wake until the transport is about to report it.
    pending: AtomicBool,
}

impl Waker {
    /// A waker; its transport watches [`Self::descriptor`] and asks [`Self::take`].
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        let shared = Shared { eventfd: EventFd::new()?, pending: AtomicBool::new(false) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Wakes the transport. What was written before is seen by whoever handles the event.
    pub fn wake(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            self.shared.eventfd.signal();
        }
    }

    /// True if somebody has woken the transport since the last call.
    pub fn take(&self) -> bool {
        self.shared.pending.load(Ordering::Relaxed) && self.shared.pending.swap(false, Ordering::AcqRel)
    }

    /// Clears the flag; to be called before the event is reported, so that no later wake is lost.
    pub(crate) fn acknowledge(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    /// What to watch for readiness, edge-triggered: nobody reads the counter.
    pub fn descriptor(&self) -> RawFd {
        self.shared.eventfd.descriptor()
    }
}
