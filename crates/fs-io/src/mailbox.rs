//! Replies that wait for the thread of a ring.

use crate::counter::{counter, raise};
use landfall_fuse::{EntryId, Reply};
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Replies from other threads, of which there are at most as many as the ring has entries: only its own thread may use the
/// ring.
pub(crate) struct Mailbox {
    posted: Mutex<Vec<(EntryId, Reply)>>,
    /// A counter that is raised when the first one is posted.
    raised: OwnedFd,
}

impl Mailbox {
    /// An empty one.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { posted: Mutex::default(), raised: counter()? })
    }

    /// Leaves the reply to an entry's request.
    pub(crate) fn post(&self, entry: EntryId, reply: Reply) {
        let mut posted = self.posted.lock();
        posted.push((entry, reply));
        let is_first = posted.len() == 1;
        drop(posted);
        if is_first {
            raise(&self.raised);
        }
    }

    /// Takes what was posted.
    pub(crate) fn take(&self) -> Vec<(EntryId, Reply)> {
        std::mem::take(&mut *self.posted.lock())
    }

    /// The counter, which is raised when there is something to take.
    pub(crate) fn raised(&self) -> BorrowedFd<'_> {
        self.raised.as_fd()
    }
}
