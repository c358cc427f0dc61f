//! Ends a transport's wait from another thread.

use crate::sys::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the wait of its transport from any thread. Several wakes before the event is reported cause one
/// [`crate::Event::Woken`]; a wake after that causes another one.
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
    /// A new waker; its transport watches [`Self::descriptor`] and calls [`Self::take`].
    ///
    /// # Errors
    /// The process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        let shared = Shared { eventfd: EventFd::new()?, pending: AtomicBool::new(false) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Wakes the transport. The thread that handles the event sees everything written before this call.
    pub fn wake(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            self.shared.eventfd.signal();
        }
    }

    /// True if the transport was woken since the last call.
    pub fn take(&self) -> bool {
        self.shared.pending.load(Ordering::Relaxed) && self.shared.pending.swap(false, Ordering::AcqRel)
    }

    /// Clears the flag. The transport calls this before it reports the event, so that no later wake is lost.
    pub(crate) fn acknowledge(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    /// The descriptor to watch, edge-triggered; the counter is never read.
    pub fn descriptor(&self) -> RawFd {
        self.shared.eventfd.descriptor()
    }
}

impl AsFd for Waker {
    /// Its eventfd, for the kernel to signal: that ends the wait, and the transport reports it as a wake.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }
}
