//! Inodes that are gone, and of which something is left on the medium.

use crate::key::InodeNumber;
use std::collections::BTreeSet;

/// Most numbers that are remembered.
const NUMBERS_MAX: usize = 1 << 20;

/// Numbers without an inode of which names, data or attributes may be on the medium. They mean nothing, and are not
/// counted. If such a number got an inode again they would be its own after a restart; only a copy of another machine's
/// tree could do that, and a repair, which writes tombstones for what is left.
#[derive(Clone, Debug, Default)]
pub struct Dead {
    numbers: BTreeSet<InodeNumber>,
    /// There are more.
    is_full: bool,
}

impl Dead {
    /// An inode is deleted.
    pub(crate) fn add(&mut self, number: InodeNumber) {
        self.is_full |= self.numbers.len() >= NUMBERS_MAX;
        if !self.is_full {
            self.numbers.insert(number);
        }
    }

    /// True if something of this number may be on the medium.
    pub(crate) fn may_have(&self, number: InodeNumber) -> bool {
        self.is_full || self.numbers.contains(&number)
    }
}
