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
    /// It gives a lease back.
    Release(u32),
    /// Is everything durable?
    Sync,
    Other,
}

impl Written {
    /// It asks something.
    pub(super) fn ask(&mut self, message: &[u8]) {
        self.asked = Some(match Request::decode(message) {
            Ok(Request::Acquire { kind: Kind::Write, inode }) => Asked::Change(inode.0),
            Ok(Request::Release { place, .. }) => Asked::Release(place),
            Ok(Request::Sync) => Asked::Sync,
            _ => Asked::Other,
        });
    }

    /// It gets an answer.
    pub(super) fn answer(&mut self, message: &[u8]) {
        let (asked, reply) = (self.asked.take(), Reply::decode(message));
        if let Ok(Reply::Welcome { client, .. }) = reply {
            self.is_executed_again = client >= FIRST_CLIENT_AGAIN;
        }
        if !self.is_executed_again {
            return;
        }
        // A lease that had the place of another one has ended.
        let ended = match (asked, reply) {
            (Some(Asked::Change(inode)), Ok(Reply::Lease { place, .. })) => self.leased.insert(place, inode),
            (_, Ok(Reply::Lease { place, .. })) => self.leased.remove(&place),
            (Some(Asked::Release(place)), Ok(Reply::Done)) => self.leased.remove(&place),
            (Some(Asked::Sync), Ok(Reply::Done)) => {
                self.earlier.clear();
                None
            }
            _ => None,
        };
        self.earlier.extend(ended);
    }

    /// True if it waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        self.asked.is_some()
    }

    /// True if it may have changed something since it has made everything durable.
    pub(super) fn may_be_lost(&self) -> bool {
        !self.leased.is_empty() || !self.earlier.is_empty()
    }

    /// Inodes that it may have changed since it has made everything durable. Nothing is known of them any more.
    pub(super) fn settle(&mut self) -> Vec<u64> {
        let leased = std::mem::take(&mut self.leased).into_values();
        leased.chain(std::mem::take(&mut self.earlier)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fs::InodeNumber;
    use std::collections::BTreeSet;

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
        exchange(&mut written, Request::hello(1), welcome(FIRST_CLIENT_AGAIN));
        for (inode, place) in [(11, 0), (12, 1), (13, 2), (14, 0), (15, 3)] {
            exchange(&mut written, change(inode), lease(place));
        }
        exchange(&mut written, look(16), lease(1));
        exchange(&mut written, change(17), Reply::Done);
        exchange(&mut written, Request::Release { place: 3, generation: 1 }, Reply::Done);
        let earlier = |written: &Written| written.earlier.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!(earlier(&written), [11, 12, 15].into());
        exchange(&mut written, Request::Refill, Reply::Done);
        assert_eq!(earlier(&written), [11, 12, 15].into(), "nobody has asked for it to be durable");
        exchange(&mut written, Request::Sync, Reply::Done);
        assert!(earlier(&written).is_empty() && written.may_be_lost(), "other leases may go on");
        exchange(&mut written, change(18), lease(0));
        let settled: BTreeSet<u64> = written.settle().into_iter().collect();
        assert_eq!((settled, written.may_be_lost()), ([13, 14, 18].into(), false));
        exchange(&mut written, Request::hello(1), welcome(1));
        exchange(&mut written, change(11), lease(0));
        assert!(!written.may_be_lost(), "what it appends is durable by itself");
    }
}
