//! Which inodes the kernels know: each mount's kernel has looked them up, and has not forgotten them.
//!
//! An inode without a name (an *orphan*) lives as long as the kernel of some mount knows it. That covers open files: a
//! kernel forgets an inode only after its last file is closed, and all reads and writes of it have been answered.

use landfall_fs::InodeNumber;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Locks of the table: workers seldom need the same one.
const SHARDS: usize = 16;

/// Names a mount, for each of its servers: random bytes.
pub(crate) type MountId = [u8; 16];

/// Number of a mount among those of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountNumber(pub(crate) u32);

impl MountNumber {
    /// No mount of a server. A mount that serves itself has no other number.
    pub(crate) const NONE: Self = Self(0);
}

/// Lookups of an inode by the kernel of one mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lookups {
    mount: MountNumber,
    counted: u64,
    /// There may be some that an earlier server has counted. How many is not known: whether there are is asked of the kernel.
    has_earlier: bool,
}

/// What is known of an inode that a kernel knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Life {
    lookups: SmallVec<[Lookups; 1]>,
    /// It has no name.
    is_orphan: bool,
}

impl Life {
    /// Changes the lookups of a mount.
    fn change(&mut self, mount: MountNumber, change: impl FnOnce(&mut Lookups)) {
        let at = self.lookups.iter().position(|lookups| lookups.mount == mount);
        let mut lookups = at.map_or(Lookups { mount, ..Lookups::default() }, |at| self.lookups.remove(at));
        change(&mut lookups);
        if lookups.counted > 0 || lookups.has_earlier {
            self.lookups.push(lookups);
        }
    }
}

/// A mount whose kernel may know inodes from an earlier server, which has counted their lookups.
#[derive(Debug)]
struct Resumed {
    mount: MountNumber,
    /// Their numbers are lower.
    below: InodeNumber,
}

/// The inodes that the kernels know.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    shards: [Mutex<HashMap<InodeNumber, Life>>; SHARDS],
    resumed: Mutex<Vec<Resumed>>,
}

/// Whether an inode is to be deleted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Fate {
    /// It has a name, or a kernel knows it.
    Lives,
    /// Neither: delete it.
    Ends,
}

fn shard_of(number: InodeNumber) -> usize {
    usize::try_from(number.0 % SHARDS as u64).unwrap_or(0)
}

impl Lives {
    /// A mount's kernel may know inodes below `below` from an earlier server. It knows these `orphans`, which have no name: each is
    /// deleted when no kernel knows it any more.
    pub(crate) fn resume(&self, mount: MountNumber, below: InodeNumber, orphans: &[InodeNumber]) {
        self.resumed.lock().push(Resumed { mount, below });
        for number in orphans {
            let _ = self.change(*number, |life| {
                life.is_orphan = true;
                life.change(mount, |lookups| lookups.has_earlier = true);
            });
        }
    }

    fn change(&self, number: InodeNumber, change: impl FnOnce(&mut Life)) -> Fate {
        let mut lives = self.shards[shard_of(number)].lock();
        let life = lives.entry(number).or_default();
        change(life);
        if !life.lookups.is_empty() {
            return Fate::Lives;
        }
        let is_orphan = life.is_orphan;
        lives.remove(&number);
        if is_orphan { Fate::Ends } else { Fate::Lives }
    }

    /// A mount's kernel has looked the inode up once more.
    pub(crate) fn look_up(&self, mount: MountNumber, number: InodeNumber) {
        let _ = self.change(number, |life| life.change(mount, |lookups| lookups.counted += 1));
    }

    /// A mount's kernel has forgotten so many lookups. That may be some of them only: it gives back what it has found twice. So
    /// `knows` asks it whether there are others that an earlier server has counted.
    pub(crate) fn forget(
        &self,
        mount: MountNumber,
        number: InodeNumber,
        forgotten: u64,
        knows: impl Fn(MountNumber) -> bool,
    ) -> Fate {
        let mut is_in_doubt = false;
        let fate = self.change(number, |life| {
            life.change(mount, |lookups| {
                lookups.counted = lookups.counted.saturating_sub(forgotten);
                is_in_doubt = lookups.counted == 0 && lookups.has_earlier;
            });
        });
        // Without the lock: the kernel may wait for an inode that it is dropping.
        if is_in_doubt && !knows(mount) { self.end_earlier(mount, number) } else { fate }
    }

    /// A mount's kernel knows nothing of the inode but what is counted here.
    pub(crate) fn end_earlier(&self, mount: MountNumber, number: InodeNumber) -> Fate {
        self.change(number, |life| life.change(mount, |lookups| lookups.has_earlier = false))
    }

    /// The inode has lost its last name, or never had one.
    ///
    /// What a kernel knows from an earlier server is not counted here: `knows` asks it. One that says later that it knows nothing is
    /// for [`Self::end_earlier`].
    pub(crate) fn orphan(&self, number: InodeNumber, knows: impl Fn(MountNumber) -> bool) -> Fate {
        let (may_know, mut fate) = {
            // A mount does not end meanwhile.
            let resumed = self.resumed.lock();
            let may_know = resumed.iter().filter(|resumed| number < resumed.below);
            let may_know: SmallVec<[MountNumber; 2]> = may_know.map(|resumed| resumed.mount).collect();
            let fate = self.change(number, |life| {
                life.is_orphan = true;
                may_know.iter().for_each(|mount| life.change(*mount, |lookups| lookups.has_earlier = true));
            });
            (may_know, fate)
        };
        // Behind that: a kernel that forgets it before it is asked does not know it, and one that does so later is asked again.
        for mount in may_know {
            if !knows(mount) && self.end_earlier(mount, number) == Fate::Ends {
                fate = Fate::Ends;
            }
        }
        fate
    }

    /// The inode has a name (again).
    pub(crate) fn name(&self, number: InodeNumber) {
        let _ = self.change(number, |life| life.is_orphan = false);
    }

    /// True if a kernel knows the inode, as far as that was counted.
    pub(crate) fn is_known(&self, number: InodeNumber) -> bool {
        self.shards[shard_of(number)].lock().contains_key(&number)
    }

    /// True if a mount's kernel knows the inode, as far as that was counted.
    pub(crate) fn knows(&self, mount: MountNumber, number: InodeNumber) -> bool {
        let lives = self.shards[shard_of(number)].lock();
        lives.get(&number).is_some_and(|life| life.lookups.iter().any(|lookups| lookups.mount == mount))
    }

    /// How many inodes the kernels know.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// A mount has ended: its kernel refers to nothing any more. Returns the orphans that no other one knows.
    pub(crate) fn end_mount(&self, mount: MountNumber) -> Vec<InodeNumber> {
        self.resumed.lock().retain(|resumed| resumed.mount != mount);
        let mut orphans = Vec::new();
        for shard in &self.shards {
            shard.lock().retain(|number, life| {
                life.lookups.retain(|lookups| lookups.mount != mount);
                let is_known = !life.lookups.is_empty();
                orphans.extend(Some(*number).filter(|_| life.is_orphan && !is_known));
                is_known
            });
        }
        orphans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InodeNumber = InodeNumber(5);
    const FIRST: MountNumber = MountNumber(1);
    const SECOND: MountNumber = MountNumber(2);
    const OLD: InodeNumber = InodeNumber(9);

    /// Kernels that know the inode from an earlier server, and those that do not.
    const KNOWN: fn(MountNumber) -> bool = |_| true;
    const UNKNOWN: fn(MountNumber) -> bool = |_| false;

    #[test]
    fn an_orphan_ends_when_the_kernel_has_forgotten_it() {
        let lives = Lives::default();
        lives.look_up(FIRST, A);
        lives.look_up(FIRST, A);
        assert_eq!(lives.orphan(A, |_| true), Fate::Lives);
        assert_eq!(lives.forget(FIRST, A, 1, UNKNOWN), Fate::Lives, "one lookup is left");
        assert_eq!(lives.forget(FIRST, A, 1, UNKNOWN), Fate::Ends);
        assert_eq!(lives.orphan(A, |_| true), Fate::Ends, "the kernel does not know it");
    }

    #[test]
    fn an_orphan_lives_as_long_as_the_kernel_of_any_mount_knows_it() {
        let lives = Lives::default();
        lives.look_up(FIRST, A);
        lives.look_up(SECOND, A);
        assert_eq!(lives.orphan(A, |_| true), Fate::Lives);
        assert_eq!(lives.forget(FIRST, A, 9, UNKNOWN), Fate::Lives, "the other one has it open");
        assert_eq!(lives.forget(SECOND, A, 1, UNKNOWN), Fate::Ends);
        [FIRST, SECOND].into_iter().for_each(|mount| lives.look_up(mount, A));
        assert_eq!(lives.orphan(A, |_| true), Fate::Lives);
        assert!(lives.end_mount(FIRST).is_empty());
        assert_eq!((lives.end_mount(SECOND), lives.len()), (vec![A], 0));
    }

    #[test]
    fn an_inode_with_a_name_never_ends() {
        let lives = Lives::default();
        lives.look_up(FIRST, A);
        assert_eq!(lives.forget(FIRST, A, 1, UNKNOWN), Fate::Lives);
        lives.look_up(FIRST, A);
        assert_eq!(lives.orphan(A, |_| true), Fate::Lives);
        lives.name(A);
        assert_eq!(lives.forget(FIRST, A, 1, UNKNOWN), Fate::Lives, "it was linked again");
    }

    #[test]
    fn what_kernels_know_from_an_earlier_server_lives_until_each_has_forgotten_it() {
        const OPEN: InodeNumber = InodeNumber(7);
        let lives = Lives::default();
        [FIRST, SECOND].into_iter().for_each(|mount| lives.resume(mount, InodeNumber(9), &[OPEN]));
        assert_eq!(lives.forget(FIRST, OPEN, 3, UNKNOWN), Fate::Lives);
        assert_eq!(lives.forget(SECOND, OPEN, 1, UNKNOWN), Fate::Ends);
        assert_eq!(lives.orphan(InodeNumber(4), |_| false), Fate::Ends, "no kernel knows it");
        assert_eq!(lives.orphan(A, |_| true), Fate::Lives, "it may be open");
        assert!(lives.end_mount(SECOND).is_empty());
        assert_eq!(lives.forget(FIRST, A, 2, UNKNOWN), Fate::Ends);
        assert_eq!(lives.orphan(InodeNumber(9), |_| true), Fate::Ends, "it is new");
    }

    #[test]
    fn a_kernel_that_gives_back_some_of_its_lookups_keeps_what_an_earlier_server_has_counted() {
        const OPEN: InodeNumber = InodeNumber(7);
        let lives = Lives::default();
        lives.resume(FIRST, OLD, &[]);
        lives.look_up(FIRST, A);
        assert_eq!(lives.orphan(A, KNOWN), Fate::Lives);
        assert_eq!(lives.forget(FIRST, A, 1, KNOWN), Fate::Lives, "a program has it open");
        assert_eq!(lives.forget(FIRST, A, 1, KNOWN), Fate::Lives, "an earlier server had counted two");
        assert_eq!((lives.forget(FIRST, A, 1, UNKNOWN), lives.len()), (Fate::Ends, 0));
        lives.resume(SECOND, OLD, &[OPEN]);
        lives.look_up(SECOND, OPEN);
        assert_eq!(lives.forget(SECOND, OPEN, 1, KNOWN), Fate::Lives);
        assert_eq!((lives.end_mount(SECOND), lives.len()), (vec![OPEN], 0));
    }

    #[test]
    fn a_holder_that_says_later_that_its_kernel_does_not_know_an_orphan_has_it_deleted_once() {
        let lives = Lives::default();
        [FIRST, SECOND].into_iter().for_each(|mount| lives.resume(mount, OLD, &[]));
        lives.look_up(SECOND, A);
        assert_eq!(lives.orphan(A, KNOWN), Fate::Lives, "both are asked");
        assert_eq!(lives.end_earlier(SECOND, A), Fate::Lives);
        assert_eq!(lives.forget(SECOND, A, 1, KNOWN), Fate::Lives, "the first one has not said anything");
        assert!(lives.knows(FIRST, A) && !lives.knows(SECOND, A));
        assert_eq!(lives.end_earlier(FIRST, A), Fate::Ends);
        assert_eq!((lives.end_earlier(FIRST, A), lives.len()), (Fate::Lives, 0));
    }

    #[test]
    fn what_only_this_server_has_counted_of_an_old_inode_is_all_that_the_kernel_forgets() {
        let lives = Lives::default();
        lives.resume(FIRST, OLD, &[]);
        (0..2).for_each(|_| lives.look_up(FIRST, A));
        assert_eq!(lives.orphan(A, KNOWN), Fate::Lives, "it does not say by which server it knows it");
        assert_eq!((lives.forget(FIRST, A, 2, UNKNOWN), lives.len()), (Fate::Ends, 0));
    }

    #[test]
    fn a_kernel_that_forgets_an_orphan_while_it_is_asked_leaves_nothing() {
        let lives = Lives::default();
        lives.resume(FIRST, OLD, &[]);
        // By another thread, behind the answer.
        let forgets = |mount| {
            assert_eq!(lives.forget(mount, A, 1, UNKNOWN), Fate::Ends);
            true
        };
        let _ = lives.orphan(A, forgets);
        assert_eq!(lives.len(), 0);
        let forgets = |mount| {
            assert_eq!(lives.forget(mount, A, 1, UNKNOWN), Fate::Ends);
            false
        };
        assert_eq!(lives.orphan(A, forgets), Fate::Lives, "it is deleted once");
        assert_eq!(lives.len(), 0);
    }
}
