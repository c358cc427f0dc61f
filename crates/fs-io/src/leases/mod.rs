//! What holders on other machines may answer by themselves, and how they are kept from it before it changes:
//! `docs/format/fs-network.md`, "Leases".
//!
//! A holder has leases of inodes: of the attributes, the data, and the names in a directory. They hold as long as the holder
//! answers the server's questions. A request that changes an inode recalls the leases of all other mounts first, and is
//! executed when their holders have dropped what they kept, or cannot use it any more. Nobody gets a lease meanwhile.

mod state;

use crate::lives::{MountId, MountNumber};
use landfall_fs::InodeNumber;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

pub(crate) use state::{Change, Inodes, LEASE_TERM, LEASES_END, Recall, State};

/// The leases that holders on other machines have.
#[derive(Default)]
pub(crate) struct Leases {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").finish_non_exhaustive()
    }
}

/// A request that changes inodes, as long as this lives: nobody gets a lease of them.
pub(crate) struct Changing<'l> {
    leases: &'l Leases,
    change: Change,
    is_executed: bool,
}

impl Changing<'_> {
    /// The request is executed now, and the mount that has sent it has no leases of the inodes any more: its holder knows.
    pub(crate) fn execute(mut self) -> Self {
        self.is_executed = true;
        self
    }

    /// Whether the mount had leases of inodes that its holder cannot know by the request.
    pub(crate) fn had_unnamed(&self) -> bool {
        self.change.had_unnamed
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.leases.state.lock().end(&self.change, self.is_executed);
    }
}

/// Nobody gets a lease of an inode as long as this lives: a library changes it, and asks nobody.
pub(crate) struct Withheld {
    leases: Arc<Leases>,
    change: Change,
}

impl Drop for Withheld {
    fn drop(&mut self) {
        self.leases.state.lock().end(&self.change, false);
    }
}

impl Leases {
    /// As [`State::follow`].
    pub(crate) fn follow(&self, missing: Option<Vec<MountId>>) {
        self.state.lock().follow(missing, Instant::now());
    }

    /// As [`State::mounts`].
    pub(crate) fn mounts(&self) -> Vec<MountId> {
        self.state.lock().mounts()
    }

    /// As [`State::join`].
    pub(crate) fn join(&self, mount: MountNumber, id: MountId, recall: Recall) {
        self.state.lock().join(mount, id, recall, Instant::now());
        self.changed.notify_all();
    }

    /// As [`State::leave`].
    pub(crate) fn leave(&self, mount: MountNumber) {
        self.state.lock().leave(mount, Instant::now());
        self.changed.notify_all();
    }

    /// As [`State::note_answer`].
    pub(crate) fn note_answer(&self, mount: MountNumber, number: u64, now: Instant) {
        self.state.lock().note_answer(mount, number, now);
    }

    /// As [`State::heard`].
    pub(crate) fn heard(&self, mount: MountNumber) -> u64 {
        self.state.lock().heard(mount)
    }

    /// As [`State::note_dropped`].
    pub(crate) fn note_dropped(&self, mount: MountNumber, number: u64) {
        self.state.lock().note_dropped(mount, number);
        self.changed.notify_all();
    }

    /// As [`State::give`]. What the request finds must be looked for afterwards.
    pub(crate) fn give(&self, mount: MountNumber, inode: InodeNumber, now: Instant) -> bool {
        self.state.lock().give(mount, inode, now)
    }

    /// As [`State::forget`], unless the kernel `knows` the inode again.
    pub(crate) fn forget(&self, mount: MountNumber, inode: InodeNumber, knows: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        if !knows() {
            state.forget(mount, inode);
        }
    }

    /// As [`State::begin`]. Waits until no other mount's holder has a lease of any of the inodes.
    pub(crate) fn change(
        &self,
        mount: MountNumber,
        named: &[InodeNumber],
        found: &[InodeNumber],
    ) -> Changing<'_> {
        Changing { leases: self, change: self.recall(mount, named, found), is_executed: false }
    }

    /// Recalls the leases of an inode from all holders, whichever mount it is whose library is to have it. Waits as
    /// [`Self::change`] does.
    pub(crate) fn withhold(self: &Arc<Self>, inode: InodeNumber) -> Withheld {
        Withheld { leases: Arc::clone(self), change: self.recall(MountNumber::NONE, &[inode], &[]) }
    }

    fn recall(&self, mount: MountNumber, named: &[InodeNumber], found: &[InodeNumber]) -> Change {
        let mut state = self.state.lock();
        let mut change = state.begin(mount, named, found);
        while let Some(until) = state.go_on(&mut change, Instant::now()) {
            self.changed.wait_until(&mut state, until);
        }
        change
    }

    /// As [`State::counts`].
    pub(crate) fn counts(&self) -> (usize, u64) {
        self.state.lock().counts()
    }
}

#[cfg(test)]
mod tests {
    use super::state::COOLING;
    use super::*;
    use std::sync::mpsc::{Receiver, sync_channel};

    const A: MountNumber = MountNumber(1);
    const B: MountNumber = MountNumber(2);
    const FILE: InodeNumber = InodeNumber(7);
    const OTHER: InodeNumber = InodeNumber(8);

    /// Two mounts, of which the second one's holder has answered, and its recalls.
    fn leases() -> (Leases, Receiver<(u64, Vec<InodeNumber>)>) {
        let (leases, (sender, recalls)) = (Leases::default(), sync_channel(8));
        leases.join(A, [1; 16], Box::new(|_, _| true));
        let recall = move |number, inodes: &[InodeNumber]| sender.try_send((number, inodes.to_vec())).is_ok();
        leases.join(B, [2; 16], Box::new(recall));
        assert!(!leases.give(B, FILE, Instant::now()), "it has answered nothing");
        leases.note_answer(B, 1, Instant::now());
        (leases, recalls)
    }

    fn give(leases: &Leases, inode: InodeNumber) -> bool {
        leases.give(B, inode, Instant::now())
    }

    #[test]
    fn a_change_waits_until_the_lease_is_dropped_and_nobody_gets_one_meanwhile() {
        let (leases, recalls) = leases();
        assert!(give(&leases, FILE));
        drop(leases.change(A, &[OTHER], &[]));
        std::thread::scope(|scope| {
            let change = scope.spawn(|| leases.change(A, &[FILE], &[]));
            assert_eq!(recalls.recv(), Ok((1, vec![FILE])));
            assert!(!give(&leases, FILE) && !change.is_finished(), "it is being changed");
            leases.note_dropped(B, 1);
            drop(change.join().expect("no panic"));
        });
        assert!(!give(&leases, FILE), "it was recalled just now");
        leases.note_answer(A, 1, Instant::now());
        assert!(leases.give(A, FILE, Instant::now()), "who has changed it may have it");
        leases.note_answer(B, 2, Instant::now() + COOLING);
        assert!(leases.give(B, FILE, Instant::now() + COOLING));
        assert_eq!((leases.counts(), leases.heard(B)), ((2, 1), 2));
    }

    #[test]
    fn a_change_waits_no_longer_than_the_holder_can_have_leases() {
        for ends in [false, true] {
            let (leases, recalls) = leases();
            assert!(give(&leases, FILE));
            if ends {
                leases.leave(B);
            }
            let begun = Instant::now();
            drop(leases.change(A, &[FILE], &[]));
            assert!(begun.elapsed() >= LEASE_TERM / 2, "it may not know that its connection has ended");
            assert_eq!(recalls.try_recv().is_ok(), !ends);
            assert_eq!(leases.counts().0, 0);
        }
        let (leases, _recalls) = leases();
        assert!(give(&leases, FILE));
        leases.leave(B);
        leases.join(MountNumber(3), [2; 16], Box::new(|_, _| true));
        let begun = Instant::now();
        drop(leases.change(A, &[FILE], &[]));
        assert!(begun.elapsed() < LEASE_TERM / 2, "it is back, and has dropped everything before");
    }

    #[test]
    fn what_a_mount_changes_itself_is_not_recalled_from_it() {
        let (leases, recalls) = leases();
        assert!(give(&leases, FILE) && give(&leases, OTHER));
        assert!(!leases.change(B, &[FILE], &[]).had_unnamed());
        assert_eq!(leases.counts().0, 2, "it was not executed");
        let change = leases.change(B, &[FILE], &[OTHER]).execute();
        assert!(change.had_unnamed() && !give(&leases, OTHER));
        drop(change);
        assert_eq!(leases.counts().0, 0);
        assert!(give(&leases, FILE) && recalls.try_recv().is_err());
    }

    #[test]
    fn nobody_has_a_lease_of_what_a_library_may_change() {
        let (leases, recalls) = leases();
        let leases = Arc::new(leases);
        assert!(give(&leases, FILE) && give(&leases, OTHER));
        let withheld = std::thread::scope(|scope| {
            let withheld = scope.spawn(|| leases.withhold(FILE));
            assert_eq!(recalls.recv(), Ok((1, vec![FILE])));
            assert!(!withheld.is_finished());
            leases.note_dropped(B, 1);
            withheld.join().expect("no panic")
        });
        let later = Instant::now() + COOLING;
        leases.note_answer(B, 2, later);
        assert!(!leases.give(B, FILE, later) && leases.give(B, OTHER, later));
        drop(leases.change(A, &[FILE], &[]));
        assert!(!leases.give(B, FILE, later), "a request of another mount has changed it, too");
        drop(withheld);
        assert!(leases.give(B, FILE, later));
    }

    #[test]
    fn a_recall_that_cannot_be_sent_is_sent_again() {
        let (leases, recalls) = leases();
        let others: Vec<InodeNumber> = (10..18).map(InodeNumber).collect();
        assert!(others.iter().chain([&FILE]).all(|inode| give(&leases, *inode)));
        std::thread::scope(|scope| {
            let leases = &leases;
            let changes: Vec<_> = others
                .iter()
                .map(|inode| scope.spawn(move || drop(leases.change(A, &[*inode], &[]))))
                .collect();
            while leases.counts().1 < 8 {
                std::thread::yield_now();
            }
            let last = scope.spawn(|| drop(leases.change(A, &[FILE], &[])));
            let mut heard = Vec::new();
            while heard.len() < 9 {
                let (number, inodes) = recalls.recv().expect("a recall");
                heard.extend(inodes);
                leases.note_dropped(B, number);
            }
            assert!(heard.contains(&FILE));
            changes.into_iter().chain([last]).for_each(|change| change.join().expect("no panic"));
        });
    }

    #[test]
    fn nothing_changes_while_a_holder_may_have_leases_of_an_earlier_server() {
        for missing in [None, Some(vec![[2; 16]])] {
            let (leases, begun) = (Leases::default(), Instant::now());
            leases.follow(missing);
            drop(leases.change(A, &[FILE], &[]));
            assert!(begun.elapsed() >= LEASE_TERM);
            assert_eq!(leases.counts().1, 0);
        }
    }

    #[test]
    fn leases_of_an_earlier_server_are_over_when_all_mounts_are_back_that_may_have_some() {
        let (leases, begun) = (Leases::default(), Instant::now());
        leases.follow(Some(vec![[2; 16], [3; 16]]));
        leases.join(B, [2; 16], Box::new(|_, _| true));
        std::thread::scope(|scope| {
            let change = scope.spawn(|| drop(leases.change(A, &[FILE], &[])));
            std::thread::sleep(LEASE_TERM / 20);
            assert!(!change.is_finished(), "one is missing");
            assert_eq!(leases.mounts(), [[2; 16], [3; 16]], "the next server must know it, too");
            leases.join(MountNumber(3), [3; 16], Box::new(|_, _| true));
            change.join().expect("no panic");
        });
        assert_eq!(leases.mounts(), [[2; 16], [3; 16]]);
        leases.follow(Some(Vec::new()));
        drop(leases.change(A, &[FILE], &[]));
        assert!(begun.elapsed() < LEASE_TERM);
        leases.follow(None);
        assert_eq!(leases.mounts(), [[2; 16], [3; 16], [0; 16]], "anybody may have some");
    }

    #[test]
    fn what_a_kernel_has_forgotten_needs_no_recall() {
        let (leases, recalls) = leases();
        assert!(give(&leases, FILE) && give(&leases, OTHER));
        leases.forget(B, FILE, || false);
        leases.forget(B, OTHER, || true);
        drop(leases.change(A, &[FILE], &[]));
        assert!(recalls.try_recv().is_err());
        assert_eq!(leases.counts().0, 1);
    }
}
