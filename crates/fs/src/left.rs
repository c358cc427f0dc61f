//! What clients have appended to logs that never count ([`crate::FIRST_CLIENT_AGAIN`]), and no server has executed: it was
//! killed, and the next one on the machine finds the clients' memory. `docs/format/fs-link.md`, "The next server".

use crate::clients::FIRST_CLIENT_AGAIN;
use crate::key::{InodeNumber, OperationKey};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations of a client that a killed server has left. Recovery has them executed in the log of the mount.
#[derive(Debug)]
pub struct LeftLog {
    client: u32,
    operations: Range<u64>,
    /// The inodes that the client could change.
    files: BTreeSet<InodeNumber>,
    /// Operations with a lower index are executed.
    executed: AtomicU64,
}

impl LeftLog {
    /// The operations with these indices, on these inodes. `None` if there are none.
    pub fn new(client: u32, operations: Range<u64>, files: BTreeSet<InodeNumber>) -> Option<Self> {
        let executed = AtomicU64::new(operations.start);
        let is_some = client >= FIRST_CLIENT_AGAIN && !operations.is_empty();
        is_some.then_some(Self { client, operations, files, executed })
    }

    /// Number of the client's operations that are executed now.
    pub fn executed(&self) -> u64 {
        self.executed.load(Ordering::Acquire)
    }

    pub(crate) fn client(&self) -> u32 {
        self.client
    }

    /// All operations below are executed.
    pub(crate) fn note_executed(&self, below: u64) {
        self.executed.store(below, Ordering::Release);
    }

    pub(crate) fn first(&self) -> u64 {
        self.operations.start
    }

    /// True if the operation with this key is one of them.
    pub(crate) fn has(&self, key: &OperationKey) -> bool {
        let is_on_these = key.write.is_some_and(|place| self.files.contains(&place.file));
        key.client == self.client && self.operations.contains(&key.index) && is_on_these
    }
}
