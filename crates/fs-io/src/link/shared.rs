//! What mounts and their clients share, apart from the clients themselves.

use super::counts::Counts;
use crate::forget::Forgetter;
use crate::leases::Leases as Holders;
use crate::lives::{MountId, MountNumber};
use landfall_fs::{Files, FsError, Leases, Publisher};
use landfall_fs_link::Reason;
use landfall_heap::{HeapError, Until};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two rounds of adopting, and between two attempts to publish.
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// How often a client's end is tried to be published.
const ATTEMPTS: u32 = 50;

/// Names the time from one boot of a machine to the next.
pub(super) type Boot = [u8; 16];

/// What a mount is called by libraries of its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// On this machine: its `st_dev`.
    Here(u64),
    /// In a virtual machine whose NVDIMM is the region.
    Machine(MountId),
}

/// A mount whose programs may have libraries.
#[derive(Clone)]
pub(crate) struct Linked {
    pub(crate) mount: MountNumber,
    pub(crate) named: Named,
    /// Through which its kernel learns that what it keeps is out of date.
    pub(crate) forgetter: Arc<Forgetter>,
}

/// What mounts and their clients share.
pub(super) struct Shared {
    pub(super) files: Arc<Files>,
    publisher: Arc<Mutex<Publisher>>,
    /// What the holders of mounts on other machines keep.
    pub(super) holders: Arc<Holders>,
    pub(super) leases: Mutex<Leases>,
    pub(super) counts: Counts,
    begun: Instant,
}

impl Shared {
    pub(super) fn new(files: Arc<Files>, publisher: Arc<Mutex<Publisher>>, holders: Arc<Holders>) -> Self {
        let (leases, counts) = (Mutex::default(), Counts::default());
        Self { files, publisher, holders, leases, counts, begun: Instant::now() }
    }

    /// The time since libraries are served.
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
