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
    /// There are more, none of them above [`Self::highest`].
    is_full: bool,
    highest: Option<InodeNumber>,
}

impl Dead {
    /// An inode is deleted.
    pub(crate) fn add(&mut self, number: InodeNumber) {
        self.is_full |= self.numbers.len() >= NUMBERS_MAX;
        self.highest = self.highest.max(Some(number));
        if !self.is_full {
            self.numbers.insert(number);
        }
    }

    /// True if something of this number may be on the medium.
    pub(crate) fn may_have(&self, number: InodeNumber) -> bool {
        // Numbers are given in order: a new inode's is above all of these.
        self.numbers.contains(&number) || self.is_full && Some(number) <= self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_more_than_are_remembered_none_is_new() {
        let mut dead = Dead::default();
        (0..=NUMBERS_MAX as u64).for_each(|number| dead.add(InodeNumber(2 * number)));
        let last = 2 * NUMBERS_MAX as u64;
        assert!([0, 2, last].into_iter().all(|number| dead.may_have(InodeNumber(number))));
        assert!(dead.may_have(InodeNumber(last - 1)), "it may be one of those that are not remembered");
        assert!(!dead.may_have(InodeNumber(last + 1)));
    }
}
