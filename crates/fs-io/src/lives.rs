//! Which inodes the kernel knows: it has looked them up, and has not forgotten them.
//!
//! An inode without a name (an *orphan*) lives as long as the kernel knows it. That covers open files: the kernel forgets
//! an inode only after its last file is closed, and all reads and writes of it have been answered.

use landfall_fs::InodeNumber;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Locks of the table: workers seldom need the same one.
const SHARDS: usize = 16;

/// What is known of an inode that the kernel knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Life {
    lookups: u64,
    /// It has no name.
    is_orphan: bool,
}

/// The inodes that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    shards: [Mutex<HashMap<InodeNumber, Life>>; SHARDS],
    /// The kernel may know inodes below this number from an earlier server, which has counted their lookups.
    earlier_below: u64,
}

/// Whether an inode is to be deleted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Fate {
    /// It has a name, or the kernel knows it.
    Lives,
    /// Neither: delete it.
    Ends,
}

impl Lives {
    /// The inodes that the kernel knows from an earlier server: none with `below` or a higher number. `orphans` have no name;
    /// each is deleted when the kernel forgets it, which it does once, of all lookups.
    pub(crate) fn of_earlier(below: InodeNumber, orphans: &[InodeNumber]) -> Self {
        let lives = Self { earlier_below: below.0, ..Self::default() };
        for number in orphans {
            let _ = lives.change(*number, |life| *life = Life { lookups: 1, is_orphan: true });
        }
        lives
    }

    fn change(&self, number: InodeNumber, change: impl FnOnce(&mut Life)) -> Fate {
        let shard = usize::try_from(number.0 % SHARDS as u64).unwrap_or(0);
        let mut lives = self.shards[shard].lock();
        let life = lives.entry(number).or_default();
        change(life);
        let life = *life;
        if life.lookups > 0 {
            return Fate::Lives;
        }
        lives.remove(&number);
        if life.is_orphan { Fate::Ends } else { Fate::Lives }
    }

    /// The kernel has looked the inode up once more.
    pub(crate) fn look_up(&self, number: InodeNumber) {
        let _ = self.change(number, |life| life.lookups += 1);
    }

    /// The kernel has forgotten so many lookups.
    pub(crate) fn forget(&self, number: InodeNumber, lookups: u64) -> Fate {
        self.change(number, |life| life.lookups = life.lookups.saturating_sub(lookups))
    }

    /// The inode has lost its last name, or never had one.
    pub(crate) fn orphan(&self, number: InodeNumber) -> Fate {
        // The kernel looks up what it removes. What it knows from an earlier server is not counted here.
        let least = u64::from(number.0 < self.earlier_below);
        self.change(number, |life| *life = Life { lookups: life.lookups.max(least), is_orphan: true })
    }

    /// The inode has a name (again).
    pub(crate) fn name(&self, number: InodeNumber) {
        let _ = self.change(number, |life| life.is_orphan = false);
    }

    /// How many inodes the kernel knows.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// All orphans, when the kernel refers to nothing any more.
    pub(crate) fn take_orphans(&self) -> Vec<InodeNumber> {
        let of_shard = |shard: &Mutex<HashMap<InodeNumber, Life>>| {
            std::mem::take(&mut *shard.lock()).into_iter().filter(|(_, life)| life.is_orphan)
        };
        self.shards.iter().flat_map(of_shard).map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InodeNumber = InodeNumber(5);

    #[test]
    fn an_orphan_ends_when_the_kernel_has_forgotten_it() {
        let lives = Lives::default();
        lives.look_up(A);
        lives.look_up(A);
        assert_eq!(lives.orphan(A), Fate::Lives);
        assert_eq!(lives.forget(A, 1), Fate::Lives, "one lookup is left");
        assert_eq!(lives.forget(A, 1), Fate::Ends);
        assert_eq!(lives.orphan(A), Fate::Ends, "the kernel does not know it");
    }

    #[test]
    fn an_inode_with_a_name_never_ends() {
        let lives = Lives::default();
        lives.look_up(A);
        assert_eq!(lives.forget(A, 1), Fate::Lives);
        lives.look_up(A);
        assert_eq!(lives.orphan(A), Fate::Lives);
        lives.name(A);
        assert_eq!(lives.forget(A, 1), Fate::Lives, "it was linked again");
    }

    #[test]
    fn what_the_kernel_knows_from_an_earlier_server_lives_until_it_is_forgotten() {
        const OPEN: InodeNumber = InodeNumber(7);
        let lives = Lives::of_earlier(InodeNumber(9), &[OPEN]);
        assert_eq!(lives.forget(OPEN, 3), Fate::Ends);
        assert_eq!(lives.orphan(A), Fate::Lives, "it may be open");
        assert_eq!(lives.forget(A, 2), Fate::Ends);
        assert_eq!(lives.orphan(InodeNumber(9)), Fate::Ends, "it is new");
    }

    #[test]
    fn orphans_are_left_when_the_mount_ends() {
        let lives = Lives::default();
        lives.look_up(A);
        lives.look_up(InodeNumber(6));
        let _ = lives.orphan(A);
        assert_eq!(lives.take_orphans(), [A]);
        assert!(lives.take_orphans().is_empty());
    }
}
