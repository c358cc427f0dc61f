//! What all mounts of one tree of files have in common.

use crate::counters::{Counters, RequestKind};
use crate::leases::Leases;
use crate::ledger::Ledgers;
use crate::lives::Lives;
use crate::locking::Locking;
use crate::mates::Mates;
use crate::rounds::Rounds;
use landfall_fs::InodeNumber;
use landfall_fuse::Op;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether other mounts change the files, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// No: the kernel keeps names, attributes and data.
    #[default]
    Alone,
    /// Yes: the kernel keeps nothing. The holder of a mount on another machine keeps what it has leases of.
    Shared,
}

/// What all mounts have in common.
#[derive(Clone, Default)]
pub(crate) struct Common {
    pub(crate) rounds: Arc<Rounds>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) lives: Arc<Lives>,
    pub(crate) ledgers: Arc<Ledgers>,
    pub(crate) mates: Arc<Mates>,
    pub(crate) locking: Arc<Locking>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) numbers: Arc<Numbers>,
    /// Orphans to which nobody refers, and that could not be deleted so far.
    pub(crate) unreleased: Arc<Mutex<Vec<InodeNumber>>>,
}

impl Common {
    pub(crate) fn with_rounds(rounds: Rounds) -> Self {
        Self { rounds: Arc::new(rounds), ..Self::default() }
    }
}

/// Whether the first number that a server gives to an inode has yet to be durable.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    is_due: AtomicBool,
    turn: Mutex<()>,
}

impl Numbers {
    /// The server has given none yet.
    pub(crate) fn begin(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Makes the first number durable by `keep`, if it is not. Others wait meanwhile.
    ///
    /// # Errors
    /// Those of `keep`, which is tried again next time.
    pub(crate) fn keep<E>(&self, keep: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let _turn = self.turn.lock();
        if self.is_due() {
            keep()?;
            self.is_due.store(false, Ordering::Release);
        }
        Ok(())
    }
}

/// Locks of inodes: those with the same remainder share one.
const INODE_LOCKS: usize = 64;

/// Locks that one kernel takes itself, and several kernels cannot: requests of several steps go one after the other.
#[derive(Debug)]
pub(crate) struct Turns {
    names: Mutex<()>,
    inodes: [Mutex<()>; INODE_LOCKS],
}

impl Default for Turns {
    fn default() -> Self {
        Self { names: Mutex::default(), inodes: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Turns {
    /// Waits for the turn of a request, and has it until this is dropped. Most requests are one step.
    pub(crate) fn take(&self, op: &Op<'_>, number: InodeNumber) -> Option<MutexGuard<'_, ()>> {
        match op {
            _ if matches!(RequestKind::of(op), RequestKind::Lookup | RequestKind::Names) => {
                Some(self.names.lock())
            }
            Op::Write(_)
            | Op::SetAttr(_)
            | Op::Fallocate { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => {
                let at = usize::try_from(number.0 % INODE_LOCKS as u64).unwrap_or(0);
                Some(self.inodes[at].lock())
            }
            _ => None,
        }
    }
}
