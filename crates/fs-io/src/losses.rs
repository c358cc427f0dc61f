//! What a server that has died had done, and what was lost with it.
//!
//! What it had acknowledged and not made durable is as after a power loss. The kernel believes otherwise, and so do
//! programs: the next `fsync` of each file says so.

use crate::ledger::LostChanges;
use landfall_fs::InodeNumber;
use landfall_fuse::Unique;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// What is lost. All clones are of one account: if a session cannot be started, the next one goes on with what its workers
/// have done again.
#[derive(Clone, Debug)]
pub(crate) struct Losses {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    lost: LostChanges,
    /// No inode that an earlier server has changed has this number or a higher one.
    below: InodeNumber,
    /// Inodes whose loss was reported, where any may be among the lost ones.
    reported: HashSet<InodeNumber>,
}

impl Losses {
    pub(crate) fn new(lost: LostChanges, below: InodeNumber) -> Self {
        Self { state: Arc::new(Mutex::new(State { lost, below, reported: HashSet::new() })) }
    }

    /// How many inodes have lost changes; `None`: any may have.
    pub(crate) fn inodes(&self) -> Option<usize> {
        let state = self.state.lock();
        (!state.lost.are_more).then(|| state.lost.changes.len())
    }

    /// The kernel delivers a request again: what it had changed was not acknowledged, and is changed again.
    pub(crate) fn note_resent(&self, unique: Unique) {
        let mut state = self.state.lock();
        let changes = &mut state.lost.changes;
        changes.retain(|_, requests| {
            requests.remove(&unique.first().0);
            !requests.is_empty()
        });
    }

    /// True if acknowledged changes of the inode are lost, and that was not reported.
    pub(crate) fn has(&self, number: InodeNumber) -> bool {
        let state = self.state.lock();
        let may_be = state.lost.are_more && number < state.below && !state.reported.contains(&number);
        may_be || state.lost.changes.contains_key(&number)
    }

    /// As [`Self::has`]: it is reported now.
    pub(crate) fn take(&self, number: InodeNumber) -> bool {
        let mut state = self.state.lock();
        let is_lost = state.lost.changes.remove(&number).is_some();
        let may_be = state.lost.are_more && number < state.below && state.reported.insert(number);
        is_lost || may_be
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    const A: InodeNumber = InodeNumber(5);
    const B: InodeNumber = InodeNumber(6);
    const BELOW: InodeNumber = InodeNumber(10);

    #[test]
    fn a_loss_is_reported_once() {
        let changes = BTreeMap::from([(A, BTreeSet::from([2, 4])), (B, BTreeSet::from([6]))]);
        let losses = Losses::new(LostChanges { changes, are_more: false }, BELOW);
        [4, 6].into_iter().for_each(|request| losses.note_resent(Unique(request | 1 << 63)));
        assert!(losses.has(A) && losses.take(A), "request 2 was acknowledged");
        assert!(!losses.has(A) && !losses.take(A));
        assert!(!losses.take(B), "the only change is done again");
        assert!(!losses.take(InodeNumber(7)));
    }

    #[test]
    fn what_a_session_that_has_not_begun_has_done_again_is_not_lost_in_the_next_try() {
        let changes = BTreeMap::from([(A, BTreeSet::from([2])), (B, BTreeSet::from([4]))]);
        let earlier = Losses::new(LostChanges { changes, are_more: false }, BELOW);
        let first = earlier.clone();
        first.note_resent(Unique(2 | 1 << 63));
        drop(first);
        let second = earlier.clone();
        assert_eq!(second.inodes(), Some(1));
        assert!(!second.has(A) && second.take(B));
        assert!(!earlier.has(B), "it was reported");
    }

    #[test]
    fn where_any_inode_may_be_lost_each_old_one_is_reported_once() {
        let losses = Losses::new(LostChanges { are_more: true, ..LostChanges::default() }, BELOW);
        assert_eq!(losses.inodes(), None);
        assert!(losses.has(A) && losses.take(A) && !losses.has(A) && !losses.take(A));
        assert!(!losses.take(BELOW), "it is new");
    }
}
