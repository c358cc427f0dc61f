//! A file, as a client knows it.

use crate::segments::Segments;
use landfall_fs::InodeNumber;
use landfall_fs_link::Kind;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lease that was granted. It may have been revoked since.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) place: usize,
    pub(crate) generation: u32,
    pub(crate) kind: Kind,
    /// Its number, in keys of operations.
    pub(crate) number: u64,
    /// Seqs that are left.
    pub(crate) seqs: Range<u64>,
}

/// When the server may be asked for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// From this time on, in milliseconds of [`crate::Now`].
    From(u64),
    /// Never: the kernel answers for the file.
    Never,
}

/// What is known of a file while a lease lasts.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) lease: Option<Lease>,
    pub(crate) asking: Asking,
    pub(crate) size: u64,
    pub(crate) segments: Segments,
    /// Behind the last operation of the client on the file.
    pub(crate) appended: u64,
    /// Operations on the file below this index the kernel has made durable.
    pub(crate) kept: u64,
    /// How many syncs of the client had begun when something was last done to the file that may not be durable.
    pub(crate) changed_at: u64,
}

/// A file of the mount. All descriptors of a process share it.
#[derive(Debug)]
pub struct File {
    pub(crate) inode: InodeNumber,
    state: Mutex<State>,
}

impl File {
    /// A file without a lease.
    pub fn new(inode: InodeNumber) -> Self {
        let (asking, segments) = (Asking::From(0), Segments::default());
        let state = State { lease: None, asking, size: 0, segments, appended: 0, kept: 0, changed_at: 0 };
        Self { inode, state: Mutex::new(state) }
    }

    /// The same file for the client of another server: it has no lease there. What is left to the kernel stays so.
    pub fn anew(&self) -> Self {
        let file = Self::new(self.inode);
        if self.lock().asking == Asking::Never {
            file.leave();
        }
        file
    }

    /// The kernel answers for the file from now on. A lease that there is stays: [`crate::Client::leave`] gives it back, too.
    pub fn leave(&self) {
        self.lock().asking = Asking::Never;
    }

    /// The inode.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
