//! What a library may have written and not made durable, as far as it can be told from the messages between it and its server.

use landfall_fs::FIRST_CLIENT_AGAIN;
use landfall_fs_link::{Kind, Reply, Request};
use std::collections::{HashMap, HashSet};

/// Inodes that a library could change.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// What it appends is not durable by itself: the server executes it again.
    is_executed_again: bool,
    /// What it has asked, and was not answered yet.
    asked: Option<Asked>,
    /// By the places of its leases.
    leased: HashMap<u32, u64>,
    /// Those of leases that have ended since it has made everything durable.
    earlier: HashSet<u64>,
}

/// A question of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// May it change an inode?
    Change(u64),
    /// Is everything durable?
    Sync,
    Other,
}

impl Written {
    /// It asks something.
    pub(super) fn ask(&mut self, message: &[u8]) {
        self.asked = Some(match Request::decode(message) {
            Ok(Request::Acquire { kind: Kind::Write, inode }) => Asked::Change(inode.0),
            Ok(Request::Sync) => Asked::Sync,
            _ => Asked::Other,
        });
    }

    /// It gets an answer.
    pub(super) fn answer(&mut self, message: &[u8]) {
        match (self.asked.take(), Reply::decode(message)) {
            (_, Ok(Reply::Welcome { client, .. })) => self.is_executed_again = client >= FIRST_CLIENT_AGAIN,
            // The lease that had the place has ended.
            (Some(Asked::Change(inode)), Ok(Reply::Lease { place, .. })) => {
                self.earlier.extend(self.leased.insert(place, inode));
            }
            (_, Ok(Reply::Lease { place, .. })) => self.earlier.extend(self.leased.remove(&place)),
            (Some(Asked::Sync), Ok(Reply::Done)) => self.earlier.clear(),
            _ => {}
        }
    }

    /// True if it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked.is_some()
    }

    /// Inodes that it may have changed since it has made everything durable. None, if what it has appended is durable by itself,
    /// or may not be because the machine itself is gone.
    pub(super) fn inodes(&self) -> Vec<u64> {
        let inodes = self.leased.values().chain(&self.earlier).copied();
        inodes.filter(|_| self.is_executed_again).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fs::InodeNumber;

    #[test]
    fn what_was_leased_since_everything_was_durable_may_be_changed() {
        let mut written = Written::default();
        let exchange = |written: &mut Written, request: Request, reply: Reply| {
            written.ask(&request.encode());
            assert!(written.is_waiting());
            written.answer(&reply.encode());
            assert!(!written.is_waiting());
        };
        let welcome = |client| Reply::Welcome { client, hash_seed: 1, begin: 2, control: 3 };
        let lease = |place| Reply::Lease { place, generation: 1 };
        let change = |inode| Request::Acquire { kind: Kind::Write, inode: InodeNumber(inode) };
        let look = |inode| Request::Acquire { kind: Kind::Read, inode: InodeNumber(inode) };
        let inodes = |written: &Written| {
            let mut inodes = written.inodes();
            inodes.sort_unstable();
            inodes
        };
        exchange(&mut written, Request::hello(1), welcome(FIRST_CLIENT_AGAIN));
        for (inode, place) in [(11, 0), (12, 1), (13, 2), (14, 0)] {
            exchange(&mut written, change(inode), lease(place));
        }
        exchange(&mut written, look(15), lease(1));
        exchange(&mut written, change(16), Reply::Done);
        assert_eq!(inodes(&written), [11, 12, 13, 14]);
        exchange(&mut written, Request::Refill, Reply::Done);
        assert_eq!(inodes(&written), [11, 12, 13, 14], "nobody has asked for it to be durable");
        exchange(&mut written, Request::Sync, Reply::Done);
        assert_eq!(inodes(&written), [13, 14], "their leases may go on");
        exchange(&mut written, Request::hello(1), welcome(1));
        assert_eq!(inodes(&written), [], "what it appends is durable by itself");
    }
}
