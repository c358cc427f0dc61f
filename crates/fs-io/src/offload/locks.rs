//! The locks that a mount on another machine has, as its holder knows them: what it claims of the next server, and which
//! requests wait (`docs/format/fs-network.md`, "Locks").

use crate::locking::{lock_of, owner_of};
use landfall_fs::{FileLock, FileLocks, InodeNumber, LockFamily, LockOwner, Released};
use landfall_fuse::{Device, Errno, Op, Request, Unique};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The one client: this mount.
const CLIENT: u32 = 0;

/// A request for a lock that waits.
pub(super) struct Parked {
    pub(super) unique: Unique,
    pub(super) lock: (InodeNumber, FileLock),
    /// The request, as the kernel has sent it.
    pub(super) bytes: Vec<u8>,
    /// Where it came from: the reply must go there.
    pub(super) device: Arc<Device>,
}

/// What a request means for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// It asks for one.
    Lock(FileLock),
    /// It unlocks bytes.
    Unlock(LockOwner, (u64, u64)),
    /// A descriptor of an open file is closed.
    Flush(LockOwner, u64),
    /// An open file is closed.
    Release(Released),
    /// Something else is done by an open file.
    Use(u64),
    /// Something is done by two.
    UseBoth(u64, u64),
    Nothing,
}

impl About {
    pub(super) fn of(request: &Request<'_>) -> Self {
        match &request.op {
            Op::SetLock(asked) | Op::SetLockWait(asked) => match lock_of(CLIENT, asked) {
                Some(lock) => Self::Lock(lock),
                None => Self::Unlock(owner_of(CLIENT, asked), (asked.lock.start, asked.lock.end)),
            },
            Op::Flush { fh, lock_owner } => {
                let owner = LockOwner { client: CLIENT, family: LockFamily::Range, id: *lock_owner };
                Self::Flush(owner, fh.0)
            }
            Op::Release(release) => Self::Release(Released::Handle { client: CLIENT, handle: release.fh.0 }),
            Op::Read(read) => Self::Use(read.fh.0),
            Op::Write(write) => Self::Use(write.fh.0),
            Op::Fsync { fh, .. } | Op::Fallocate { fh, .. } | Op::Lseek { fh, .. } => Self::Use(fh.0),
            Op::CopyFileRange(copy) => Self::UseBoth(copy.fh_in.0, copy.fh_out.0),
            Op::SetAttr(set) => set.fh.map_or(Self::Nothing, |fh| Self::Use(fh.0)),
            _ => Self::Nothing,
        }
    }
}

/// Whether a request goes to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    ToServer,
    /// It changes nothing there, but the server is told of it if there is one.
    Hint,
    /// It changes nothing there.
    Done,
    /// The open file has lost its locks: who uses it would believe that it has them.
    Lost,
}

/// The locks of the mount, and its requests that wait.
#[derive(Default)]
pub(super) struct HeldLocks {
    held: FileLocks,
    waiting: BTreeMap<u64, Parked>,
    /// Outcomes of requests that do not wait here yet.
    early: BTreeMap<u64, u32>,
    /// Open files that have lost locks.
    lost: BTreeSet<u64>,
}

impl HeldLocks {
    /// A request is about to go to the server. What it unlocks is not claimed of another one from now on.
    pub(super) fn begin(&mut self, inode: InodeNumber, about: &About) -> Passage {
        match about {
            _ if self.is_lost(about) => Passage::Lost,
            About::Lock(lock) if lock.owner.family == LockFamily::Whole => {
                // The server frees it before it grants another kind.
                let is_converted = |held: &FileLock| held.owner == lock.owner && held.access != lock.access;
                if self.held.held(inode).iter().any(is_converted) {
                    drop(self.held.release(inode, Released::Owner(lock.owner)));
                }
                Passage::ToServer
            }
            About::Unlock(owner, range) => {
                // As many as one may have are no fewer for it: the server says so.
                let _ = self.held.unlock(inode, *owner, *range);
                Passage::ToServer
            }
            About::Flush(owner, handle) => {
                let has_more = self.held.held(inode).iter().any(|lock| lock.handle == *handle);
                let ended = self.held.release(inode, Released::Owner(*owner));
                match has_more {
                    _ if !ended.changes.is_empty() => Passage::ToServer,
                    // The end of the open file may follow, and of its locks.
                    true => Passage::Hint,
                    false => Passage::Done,
                }
            }
            About::Release(released) => {
                if let Released::Handle { handle, .. } = released {
                    self.lost.remove(handle);
                }
                let ended = self.held.release(inode, *released);
                if ended.changes.is_empty() { Passage::Done } else { Passage::ToServer }
            }
            _ => Passage::ToServer,
        }
    }

    /// Whether a request uses an open file that has lost locks.
    pub(super) fn is_lost(&self, about: &About) -> bool {
        match about {
            About::Lock(lock) => self.lost.contains(&lock.handle),
            About::Use(handle) => self.lost.contains(handle),
            About::UseBoth(one, other) => [one, other].into_iter().any(|handle| self.lost.contains(handle)),
            _ => false,
        }
    }

    /// The server has granted a lock.
    pub(super) fn note(&mut self, (inode, lock): (InodeNumber, FileLock)) {
        // The server knows how many the mount may have.
        let _ = self.held.adopt(inode, lock);
    }

    /// A request waits at the server. If its outcome is here already: that, and the request.
    pub(super) fn park(&mut self, parked: Parked) -> Option<(Parked, u32)> {
        let id = parked.unique.0;
        if let Some(errno) = self.early.remove(&id) {
            return Some((parked, errno));
        }
        self.waiting.insert(id, parked);
        None
    }

    /// There is no server that a request could wait at. What an earlier one has decided on it counts no more.
    pub(super) fn park_for_server(&mut self, parked: Parked) {
        let id = parked.unique.0;
        self.early.remove(&id);
        self.waiting.insert(id, parked);
    }

    /// The server has decided on a request that waits: the request, if it waits here.
    pub(super) fn decide(&mut self, unique: u64, errno: u32) -> Option<Parked> {
        let parked = self.waiting.remove(&unique);
        if parked.is_none() {
            self.early.insert(unique, errno);
        }
        parked
    }

    /// A request does not wait any longer.
    pub(super) fn cancel(&mut self, unique: Unique) -> Option<Parked> {
        self.waiting.remove(&unique.0)
    }

    /// Requests that do not wait any longer.
    pub(super) fn take_waiting_if(&mut self, is_over: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        self.waiting.extract_if(.., |_, parked| is_over(parked)).map(|(_, parked)| parked).collect()
    }

    /// The connection has ended: all requests that wait, of which the server knows nothing any more.
    pub(super) fn take_waiting(&mut self) -> Vec<Parked> {
        self.early.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// What the mount claims of a server.
    pub(super) fn claims(&self) -> Vec<(InodeNumber, FileLock)> {
        self.held.all().collect()
    }

    /// Somebody else has what excludes the locks of an open file.
    pub(super) fn lose(&mut self, handle: u64) {
        let released = Released::Handle { client: CLIENT, handle };
        let inodes: BTreeSet<InodeNumber> = self.held.all().map(|(inode, _)| inode).collect();
        inodes.into_iter().for_each(|inode| drop(self.held.release(inode, released)));
        self.lost.insert(handle);
    }
}

/// The error number of a decision; `None`: it is granted.
pub(super) fn errno_of(decided: u32) -> Option<Errno> {
    (decided != 0).then(|| Errno::from_raw(i32::try_from(decided).unwrap_or(libc::EIO)))
}
