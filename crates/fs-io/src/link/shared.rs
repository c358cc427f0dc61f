//! What a mount and its clients share, apart from the clients themselves.

use super::counts::Counts;
use crate::forget::Forgetter;
use landfall_fs::{Files, FsError, InodeNumber, Leases, Publisher};
use landfall_fs_link::Reason;
use landfall_heap::{HeapError, Until};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two rounds of adopting, and between two attempts to publish.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// How often a client's end is tried to be published.
const ATTEMPTS: u32 = 50;

/// What a mount and its clients share.
pub(super) struct Shared {
    pub(super) files: Arc<Files>,
    publisher: Arc<Mutex<Publisher>>,
    /// Through which the kernel learns that what it keeps is out of date.
    forgetter: Arc<Forgetter>,
    pub(super) leases: Mutex<Leases>,
    pub(super) counts: Counts,
    begun: Instant,
}

impl Shared {
    pub(super) fn new(
        files: Arc<Files>,
        publisher: Arc<Mutex<Publisher>>,
        forgetter: Arc<Forgetter>,
    ) -> Self {
        let (leases, counts) = (Mutex::default(), Counts::default());
        Self { files, publisher, forgetter, leases, counts, begun: Instant::now() }
    }

    /// The time since the mount began.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn publish(&self) -> Result<(), FsError> {
        self.publisher.lock().step().map(drop)
    }

    /// Publishes that a client has ended.
    pub(super) fn publish_end(&self, client: u32) {
        for attempt in 0..ATTEMPTS {
            match self.publish() {
                Ok(()) => return,
                Err(error) if attempt + 1 == ATTEMPTS => {
                    tracing::error!(%error, client, "the end of a client's log is not durable");
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// What the kernel keeps of an inode is out of date. It waits for requests that are being answered. False if the mount
    /// ends meanwhile.
    pub(super) fn invalidate(&self, inode: InodeNumber) -> bool {
        self.forgetter.forget(inode)
    }

    /// The mount ends: nobody waits for the kernel any more.
    pub(super) fn end_invalidations(&self) {
        self.forgetter.close();
    }
}

/// The reason for which a request fails.
pub(super) fn reason_of(error: &FsError) -> Reason {
    match error {
        FsError::Heap(HeapError::Full) | FsError::Wait(Until::Space) => Reason::Space,
        FsError::Tree(_) => Reason::Inode,
        error => {
            tracing::error!(%error, "a library's request fails");
            Reason::Region
        }
    }
}
