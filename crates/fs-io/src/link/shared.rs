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

/// Names a server, from its start to its end.
pub(crate) type ServerLife = [u8; 16];

/// A name, as it is stored in shared memory.
pub(crate) fn words_of(name: [u8; 16]) -> [u64; 2] {
    [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| name[at + byte])))
}

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

impl Linked {
    pub(crate) fn new(mount: MountNumber, named: Named, forgetter: &Arc<Forgetter>) -> Self {
        Self { mount, named, forgetter: Arc::clone(forgetter) }
    }
}

/// What mounts and their clients share.
pub(super) struct Shared {
    pub(super) files: Arc<Files>,
    publisher: Arc<Mutex<Publisher>>,
    /// What the holders of mounts on other machines keep.
    pub(super) holders: Arc<Holders>,
    pub(super) leases: Mutex<Leases>,
    pub(super) counts: Counts,
    /// Other machines get the log of the mounts: operations of libraries are executed again in it.
    pub(super) executes_again: bool,
    begun: Instant,
}

impl Shared {
    pub(super) fn new(files: Arc<Files>, publisher: Arc<Mutex<Publisher>>, holders: Arc<Holders>) -> Self {
        let (leases, counts) = (Mutex::default(), Counts::default());
        let executes_again = files.has_successor();
        Self { files, publisher, holders, leases, counts, executes_again, begun: Instant::now() }
    }

    /// The time since libraries are served.
    pub(super) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Publishes. False if there was nothing.
    pub(super) fn publish(&self) -> Result<bool, FsError> {
        Ok(self.publisher.lock().step()?.operations > 0)
    }

    /// Publishes that a client has ended. The log of one whose operations are executed again never counts.
    pub(super) fn publish_end(&self, client: u32) {
        if self.executes_again {
            return;
        }
        for attempt in 0..ATTEMPTS {
            match self.publish() {
                Ok(_) => return,
                Err(error) if attempt + 1 == ATTEMPTS => {
                    tracing::error!(%error, client, "the end of a client's log is not durable");
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Waits until an operation that could not be executed can be tried again.
    ///
    /// # Errors
    /// It never can, or what it waits for has failed for good.
    pub(super) fn wait_for(&self, error: FsError) -> Result<(), FsError> {
        match error.until() {
            Some(Until::Commit | Until::Ticket(_)) => self.files.sync_all()?,
            // Publishing makes room in the log, and in the region with the compactor, which works by itself.
            Some(Until::Space) => match self.publish() {
                Ok(true) => {}
                Err(failed) if failed.until().is_none() => return Err(failed),
                Ok(false) | Err(_) => std::thread::sleep(PAUSE),
            },
            Some(Until::Load(load)) => {
                self.files.heap().wait_for_load(load);
            }
            None => return Err(error),
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Which;
    use crate::service::tests::service_on;
    use landfall_fs::{Attributes, InodeNumber, Operation};
    use landfall_media::RUN_SIZE;
    use landfall_media::sim::{SimMedia, SimOptions};

    #[test]
    fn who_waits_for_space_hears_that_publishing_has_failed_for_good() {
        let media = SimMedia::new(64 * RUN_SIZE, SimOptions::default());
        let (service, publisher) = service_on(Arc::clone(&media), None, Which::default());
        let files = Arc::clone(&service.files);
        let shared = Shared::new(Arc::clone(&files), Arc::new(Mutex::new(publisher)), Arc::default());
        let attributes = Attributes { uid: Some(7), ..Attributes::default() };
        let change = Operation::SetAttributes { number: InodeNumber::ROOT, attributes };
        files.execute(1, &change).expect("there is room");
        shared.wait_for(FsError::Backlog).expect("it is published");
        assert_eq!(files.log_len().0, 0);
        files.execute(2, &change).expect("there is room");
        media.fail_at(media.ops().fences + 1);
        let failed = shared.wait_for(FsError::Wait(Until::Space)).expect_err("nothing makes room any more");
        assert_eq!(failed.until(), None, "{failed}");
    }
}
