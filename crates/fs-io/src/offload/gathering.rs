//! The mounts of a server that has died come back: the next one waits for all of them before it serves the first.
//!
//! Each has a ledger that says what the dead server had given and begun for it, and a kernel that knows inodes. What one
//! mount changes before another one is back might take a number, or free an inode, that the other one's kernel knows.

use super::attached::Attached;
use crate::lives::{MountId, MountNumber};
use landfall_fs::InodeNumber;
use std::time::{Duration, Instant};

/// How long mounts that are back wait for others: less than a holder waits for an answer.
const GATHER_LIMIT: Duration = Duration::from_secs(5);

/// When a mount is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    Now,
    /// With the others that come back.
    WithOthers,
    /// It is new, and others have yet to come back.
    BehindOthers,
    /// It waits already, by this number: its holder has connected anew.
    AsBefore(MountNumber),
}

/// What recovery has found, and the mounts that come back.
pub(super) struct Gathering {
    expected: Vec<MountId>,
    /// Those that are back.
    pub(super) arrived: Vec<Attached>,
    /// New ones.
    pub(super) waiting: Vec<Attached>,
    until: Option<Instant>,
    /// Until all are back, or given up.
    found: Option<Found>,
}

struct Found {
    log_end: u64,
    orphans: Vec<InodeNumber>,
}

/// Everything that is needed to serve them.
pub(super) struct Gathered {
    pub(super) arrived: Vec<Attached>,
    pub(super) waiting: Vec<Attached>,
    pub(super) log_end: u64,
    pub(super) orphans: Vec<InodeNumber>,
}

impl Gathering {
    pub(super) fn new(expected: Vec<MountId>, log_end: u64, orphans: Vec<InodeNumber>) -> Self {
        let found = Some(Found { log_end, orphans });
        Self { expected, arrived: Vec::new(), waiting: Vec::new(), until: None, found }
    }

    /// True once for each mount that is expected, and again if it has arrived: its holder has connected anew.
    pub(super) fn expects(&mut self, mount: MountId) -> bool {
        let count = |gathering: &Self| gathering.expected.len() + gathering.arrived.len();
        let before = count(self);
        self.expected.retain(|expected| *expected != mount);
        self.arrived.retain(|attached| attached.attach.mount != mount);
        let is_expected = count(self) < before;
        if is_expected {
            self.begin();
        }
        is_expected
    }

    pub(super) fn is_expecting(&self) -> bool {
        !self.expected.is_empty()
    }

    /// Somebody waits: the others have limited time from now on.
    pub(super) fn begin(&mut self) {
        self.until.get_or_insert_with(|| Instant::now() + GATHER_LIMIT);
    }

    /// Nobody is waited for any more.
    pub(super) fn give_up(&mut self) {
        if !self.expected.is_empty() {
            tracing::warn!(
                mounts = self.expected.len(),
                "mounts have not come back: they may not resume any more"
            );
        }
        self.expected.clear();
    }

    /// How long to wait at most.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// True if somebody waits, and nobody need be waited for.
    pub(super) fn is_over(&mut self) -> bool {
        let is_late = self.limit() == Some(Duration::ZERO);
        if is_late {
            self.give_up();
        }
        self.until.is_some() && self.expected.is_empty()
    }

    /// The mounts that are back, once.
    pub(super) fn take(&mut self) -> Option<Gathered> {
        self.until = None;
        let Found { log_end, orphans } = self.found.take()?;
        let (arrived, mut waiting) = (std::mem::take(&mut self.arrived), std::mem::take(&mut self.waiting));
        waiting.retain(|attached| !attached.has_given_up());
        Some(Gathered { arrived, waiting, log_end, orphans })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::Sharing;
    use crate::offload::attached::tests::attached_by;
    use crate::offload::channel::Channel;
    use crate::offload::message::Since;

    fn attached(mount: u8) -> (Attached, Channel) {
        attached_by(mount, Since::New, Sharing::Shared)
    }

    #[test]
    fn a_new_mount_whose_holder_has_given_up_is_not_served() {
        let mut gathering = Gathering::new(Vec::new(), 7, Vec::new());
        let ((first, holder), (second, gone)) = (attached(1), attached(2));
        gathering.waiting.extend([first, second]);
        drop(gone);
        let waiting = gathering.take().expect("what was found").waiting;
        assert_eq!(waiting.iter().map(|attached| attached.number).collect::<Vec<_>>(), [MountNumber(1)]);
        assert!(!waiting[0].has_given_up());
        drop(holder);
        assert!(waiting[0].has_given_up());
    }

    #[test]
    fn a_mount_that_has_arrived_may_connect_anew() {
        let mut gathering = Gathering::new(vec![[1; 16]], 7, Vec::new());
        let ((first, _holder), (again, _)) = (attached(1), attached(1));
        assert!(gathering.expects([1; 16]));
        gathering.arrived.push(first);
        assert!(gathering.expects([1; 16]) && gathering.arrived.is_empty(), "the new one takes its place");
        gathering.arrived.push(again);
        assert_eq!(gathering.take().expect("what was found").arrived.len(), 1);
        assert!(!gathering.expects([1; 16]));
    }

    #[test]
    fn mounts_are_waited_for_as_long_as_somebody_waits_and_may_not_come_later() {
        let mut gathering = Gathering::new(vec![[1; 16], [2; 16]], 7, vec![InodeNumber(5)]);
        assert!(!gathering.is_over() && gathering.limit().is_none(), "nobody waits");
        assert!(!gathering.expects([3; 16]) && gathering.expects([1; 16]) && !gathering.expects([1; 16]));
        assert!(!gathering.is_over() && gathering.limit().is_some_and(|limit| limit <= GATHER_LIMIT));
        gathering.until = Some(Instant::now());
        assert!(gathering.is_over());
        assert!(!gathering.expects([2; 16]), "it is too late");
        let gathered = gathering.take().expect("what was found");
        assert_eq!((gathered.log_end, gathered.orphans), (7, vec![InodeNumber(5)]));
        assert!(!gathering.is_over() && gathering.take().is_none());
    }
}
