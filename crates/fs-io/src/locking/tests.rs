use super::*;
use crate::peer::Peer;
use landfall_fs::LOCKS_MAX;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};

const FILE: InodeNumber = InodeNumber(7);

/// A server's locks, and the file in which it names mounts with locks.
struct Site {
    dir: tempfile::TempDir,
    locking: Locking,
    mounts: u32,
}

/// A mount on another machine.
struct Mount {
    number: MountNumber,
    id: MountId,
    ledger: Arc<Ledger>,
    said: Receiver<(u64, Option<Errno>)>,
    /// Handles that were lost when it has joined.
    lost: Vec<u64>,
}

impl Site {
    fn new() -> Self {
        Self::in_dir(tempfile::tempdir().expect("a directory"), false)
    }

    /// A server that follows another one.
    fn in_dir(dir: tempfile::TempDir, any: bool) -> Self {
        let locking = Locking::default();
        locking.begin(Book::open(dir.path().join("locks")), any);
        Self { dir, locking, mounts: 0 }
    }

    fn next(self) -> Self {
        Self::in_dir(self.dir, false)
    }

    /// A mount joins with what its ledger has.
    fn join(&mut self, id: u8, kernel: Kernel, claims: &[(InodeNumber, FileLock)]) -> Mount {
        self.mounts += 1;
        let (number, id) = (MountNumber(self.mounts), [id; 16]);
        let ledger = Arc::new(Ledger::of_locks(claims).expect("memory"));
        let (say, said) = sync_channel(16);
        let say: Say = Box::new(move |unique, errno| say.send((unique.0, errno)).is_ok());
        let lost = self.locking.join(number, Member { id, kernel, ledger: Arc::clone(&ledger), say });
        Mount { number, id, ledger, said, lost }
    }

    /// What is replied to a request for an exclusive lock by open file `handle`.
    fn ask(&self, mount: &Mount, unique: u64, handle: u64, patience: Patience) -> Option<Errno> {
        let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Write, pid: 1 };
        let asked = LockRequest { fh: Handle(handle), owner: handle, lock, flock: true };
        let of = (Unique(unique), FILE);
        let reply = self.locking.set(mount.number, of, &asked, patience, connection());
        let reply = reply.expect("a holder elsewhere has a reply at once");
        let errno = i32::from_le_bytes(*reply.as_bytes()[4..].first_chunk().expect("an error"));
        (errno != 0).then(|| Errno::from_raw(-errno))
    }

    fn close(&self, mount: &Mount, handle: u64) {
        let release = Release { fh: Handle(handle), flags: 0, lock_owner: None, flock_owner: None };
        self.locking.close(mount.number, FILE, &release);
    }

    fn named(&self) -> Vec<MountId> {
        Book::open(self.dir.path().join("locks")).mounts().to_vec()
    }
}

fn connection() -> Later {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    Later::Connection(Arc::new(Peer::new(stream, crate::counter::counter().expect("a counter"))))
}

#[test]
fn a_request_that_waits_elsewhere_hears_of_the_lock_by_a_message() {
    let mut site = Site::new();
    let [first, second] = [1, 2].map(|id| site.join(id, Kernel::Elsewhere, &[]));
    assert_eq!(site.ask(&first, 2, 10, Patience::None), None);
    assert_eq!(site.ask(&second, 4, 11, Patience::None), Some(HELD));
    assert_eq!(site.ask(&second, 6, 11, Patience::Waits), Some(WAITS));
    assert_eq!(site.ask(&second, 8, 12, Patience::Waits), Some(WAITS));
    site.locking.interrupt(second.number, Unique(8));
    assert_eq!(second.said.try_recv(), Ok((8, Some(Errno::INTR))));
    site.close(&first, 10);
    assert_eq!(second.said.try_recv(), Ok((6, None)));
    assert_eq!(second.ledger.locks().len(), 1, "it is kept before it is said");
    assert_eq!(site.locking.counts(), (1, 0));
    assert!(first.ledger.locks().is_empty() && second.said.try_recv().is_err());
}

#[test]
fn a_lock_whose_open_file_is_being_closed_refuses_nobody_yet() {
    let mut site = Site::new();
    let (first, second) = (site.join(1, Kernel::Elsewhere, &[]), site.join(2, Kernel::Elsewhere, &[]));
    let flush = |handle| site.locking.flush(first.number, FILE, (Handle(handle), 1));
    assert_eq!(site.ask(&first, 2, 10, Patience::None), None);
    flush(9);
    assert_eq!(site.ask(&second, 4, 11, Patience::None), Some(HELD), "another open file");
    flush(10);
    assert_eq!(site.ask(&second, 6, 11, Patience::None), Some(WAITS), "its end may be on its way");
    site.locking.go_on();
    assert!(second.said.try_recv().is_err());
    site.close(&first, 10);
    assert_eq!(second.said.try_recv(), Ok((6, None)));
    // A descriptor that was not the last one.
    let flush = || site.locking.flush(second.number, FILE, (Handle(11), 1));
    flush();
    assert_eq!(site.ask(&first, 8, 12, Patience::None), Some(WAITS));
    let later = Instant::now() + CLOSING_LIMIT;
    let replies = site.locking.state.lock().end_brief_waits(later);
    assert!(replies.is_empty());
    assert_eq!(first.said.try_recv(), Ok((8, Some(HELD))));
    assert_eq!(site.ask(&first, 10, 12, Patience::None), Some(HELD), "it was long ago");
    assert_eq!(site.locking.counts(), (1, 0));
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let mut site = Site::new();
    let mount = site.join(1, Kernel::Elsewhere, &[]);
    for kind in [LockKind::Read, LockKind::Write, LockKind::Unlock] {
        let lock = Lock { start: 5, end: 4, kind, pid: 1 };
        let asked = LockRequest { fh: Handle(10), owner: 10, lock, flock: false };
        let of = (Unique(2), FILE);
        let reply =
            site.locking.set(mount.number, of, &asked, Patience::Waits, connection()).expect("a reply");
        assert_eq!(reply.as_bytes(), Reply::error(Unique(2), INVALID).as_bytes());
    }
    assert_eq!(site.locking.counts(), (0, 0));
}

#[test]
fn a_request_that_is_interrupted_before_it_waits_does_not_wait() {
    let mut site = Site::new();
    let mount = site.join(1, Kernel::Elsewhere, &[]);
    assert_eq!(site.ask(&mount, 2, 10, Patience::None), None);
    site.locking.interrupt(mount.number, Unique(4));
    assert_eq!(site.ask(&mount, 4, 11, Patience::Waits), Some(Errno::INTR));
    assert_eq!(site.ask(&mount, 6, 11, Patience::Waits), Some(WAITS), "another request");
    assert_eq!(site.locking.counts(), (1, 1));
}

#[test]
fn a_mount_that_was_away_has_its_locks_unless_somebody_has_taken_one_meanwhile() {
    let mut site = Site::new();
    let (first, other) = (site.join(1, Kernel::Elsewhere, &[]), site.join(2, Kernel::Elsewhere, &[]));
    site.ask(&first, 2, 10, Patience::None);
    let claims = first.ledger.locks();
    site.locking.end_mount(first.number);
    let again = site.join(1, Kernel::Elsewhere, &claims);
    assert!(again.lost.is_empty());
    assert_eq!(site.ask(&other, 4, 11, Patience::None), Some(HELD), "it is held");
    site.locking.end_mount(again.number);
    assert_eq!(site.ask(&other, 6, 11, Patience::None), None);
    site.close(&other, 11);
    let late = site.join(1, Kernel::Elsewhere, &claims);
    assert_eq!(late.lost, [10], "it is free, and was not all the time");
    assert!(late.ledger.locks().is_empty() && site.locking.counts() == (0, 0));
}

#[test]
fn the_next_server_grants_nothing_before_those_with_locks_have_claimed_them() {
    let mut site = Site::new();
    let (first, _) = (site.join(1, Kernel::Elsewhere, &[]), site.join(2, Kernel::Elsewhere, &[]));
    site.ask(&first, 2, 10, Patience::None);
    let claims = first.ledger.locks();
    assert_eq!(site.named(), [first.id]);
    let mut site = site.next();
    assert!(site.locking.limit().is_some());
    let other = site.join(2, Kernel::Elsewhere, &claims);
    assert_eq!(other.lost, [10], "it had none");
    assert_eq!(site.ask(&other, 4, 11, Patience::None), Some(WAITS), "not yet");
    let first = site.join(1, Kernel::Elsewhere, &claims);
    assert!(first.lost.is_empty() && site.locking.limit().is_none());
    assert_eq!(other.said.try_recv(), Ok((4, Some(HELD))));
    site.close(&first, 10);
    site.locking.end_mount(first.number);
    assert_eq!(site.named(), [other.id], "it has asked");
    site.locking.end_mount(other.number);
    assert!(site.named().is_empty());
    assert!(site.next().locking.limit().is_none(), "nobody has a lock");
}

#[test]
fn a_mount_that_cannot_be_named_for_the_next_server_gets_no_lock() {
    let mut site = Site::new();
    let (elsewhere, here) = (site.join(1, Kernel::Elsewhere, &[]), site.join(2, Kernel::Here, &[]));
    let (path, away) = (site.dir.path().to_owned(), site.dir.path().with_extension("away"));
    std::fs::rename(&path, &away).expect("the directory is gone");
    assert_eq!(site.ask(&elsewhere, 2, 10, Patience::None), Some(NO_LOCKS));
    assert_eq!(site.ask(&here, 4, 11, Patience::None), None, "its ledger is there");
    std::fs::rename(&away, &path).expect("it is back");
    site.close(&here, 11);
    assert_eq!(site.ask(&elsewhere, 6, 10, Patience::None), None);
    assert_eq!(site.named(), [elsewhere.id]);
}

/// The directory of the file that names mounts with locks, away and back.
fn without_directory<R>(site: &Site, during: impl FnOnce() -> R) -> R {
    let (path, away) = (site.dir.path().to_owned(), site.dir.path().with_extension("away"));
    std::fs::rename(&path, &away).expect("the directory is gone");
    let done = during();
    std::fs::rename(&away, &path).expect("it is back");
    done
}

#[test]
fn a_lock_is_not_granted_while_who_loses_it_cannot_be_struck_for_the_next_server() {
    let mut site = Site::new();
    let [first, other] = [1, 2].map(|id| site.join(id, Kernel::Elsewhere, &[]));
    assert_eq!(site.ask(&first, 2, 10, Patience::None), None);
    assert_eq!(site.ask(&other, 4, 11, Patience::None), Some(HELD));
    let claims = first.ledger.locks();
    site.locking.end_mount(first.number);
    let refused = without_directory(&site, || site.ask(&other, 6, 11, Patience::None));
    assert_eq!(refused, Some(NO_LOCKS));
    assert!(other.ledger.locks().is_empty() && site.locking.counts() == (0, 0));
    assert_eq!(site.named(), [first.id, other.id]);
    let again = site.join(1, Kernel::Elsewhere, &claims);
    assert!(again.lost.is_empty(), "nobody has taken it");
    site.locking.end_mount(again.number);
    assert_eq!(site.ask(&other, 8, 11, Patience::None), None);
    assert_eq!(site.named(), [other.id]);
}

#[test]
fn who_is_away_loses_nothing_to_a_mount_that_has_too_many_locks() {
    let mut site = Site::new();
    let first = site.join(1, Kernel::Elsewhere, &[]);
    assert_eq!(site.ask(&first, 2, 10, Patience::None), None);
    let claims = first.ledger.locks();
    site.locking.end_mount(first.number);
    let owner = LockOwner { client: 0, family: LockFamily::Range, id: 11 };
    let lock = FileLock { owner, handle: 11, access: Access::Read, first: 0, last: 4, process: 1 };
    let many: Vec<_> = (0..LOCKS_MAX as u64).map(|at| (InodeNumber(FILE.0 + 1 + at), lock)).collect();
    let other = site.join(2, Kernel::Here, &many);
    assert!(other.lost.is_empty());
    assert_eq!(site.ask(&other, 4, 12, Patience::None), Some(NO_LOCKS));
    assert_eq!(site.ask(&other, 6, 12, Patience::Waits), Some(NO_LOCKS));
    assert_eq!(site.named(), [first.id]);
    assert!(site.join(1, Kernel::Elsewhere, &claims).lost.is_empty(), "nobody has taken it");
}

#[test]
fn a_lock_that_was_waited_for_is_not_granted_while_who_loses_it_cannot_be_struck() {
    let mut site = Site::new();
    let [first, other] = [1, 2].map(|id| site.join(id, Kernel::Elsewhere, &[]));
    assert_eq!(site.ask(&first, 2, 10, Patience::None), None);
    assert_eq!(site.ask(&other, 4, 11, Patience::Waits), Some(WAITS));
    without_directory(&site, || site.locking.end_mount(first.number));
    assert_eq!(other.said.try_recv(), Ok((4, Some(NO_LOCKS))));
    assert!(other.ledger.locks().is_empty() && site.locking.counts() == (0, 0));
    assert_eq!(site.named(), [first.id, other.id]);
    assert_eq!(site.ask(&other, 6, 11, Patience::None), None);
    assert_eq!(site.named(), [other.id]);
}

#[test]
fn a_range_that_a_withdrawn_lock_has_replaced_is_locked_as_before() {
    let mut site = Site::new();
    let [first, other] = [1, 2].map(|id| site.join(id, Kernel::Elsewhere, &[]));
    let ask = |mount: &Mount, unique, kind, (start, end), patience| {
        let lock = Lock { start, end, kind, pid: 1 };
        let asked = LockRequest { fh: Handle(10), owner: 10, lock, flock: false };
        let reply = site.locking.set(mount.number, (Unique(unique), FILE), &asked, patience, connection());
        reply.expect("a reply").as_bytes()[4..8] == [0; 4]
    };
    assert!(ask(&first, 2, LockKind::Read, (0, 9), Patience::None));
    assert!(ask(&other, 4, LockKind::Read, (0, 9), Patience::None));
    let before = other.ledger.locks();
    assert!(!ask(&other, 6, LockKind::Write, (5, 9), Patience::Waits), "it waits");
    without_directory(&site, || site.locking.end_mount(first.number));
    assert_eq!(other.said.try_recv(), Ok((6, Some(NO_LOCKS))));
    assert_eq!(other.ledger.locks(), before);
    assert_eq!(site.locking.counts(), (1, 0));
}

#[test]
fn who_has_not_claimed_is_struck_before_anybody_gets_a_lock() {
    let mut site = Site::new();
    let (first, other) = (site.join(1, Kernel::Elsewhere, &[]), site.join(2, Kernel::Elsewhere, &[]));
    site.ask(&first, 2, 10, Patience::None);
    site.ask(&other, 4, 11, Patience::None);
    let mut site = site.next();
    let other = site.join(2, Kernel::Elsewhere, &[]);
    site.ask(&other, 6, 11, Patience::Waits);
    let replies = without_directory(&site, || site.locking.state.lock().end_claims());
    assert!(replies.is_empty());
    assert_eq!(other.said.try_recv(), Ok((6, Some(NO_LOCKS))), "the next server would believe the first one");
    assert_eq!(site.ask(&other, 8, 11, Patience::None), None);
    assert_eq!(site.named(), [other.id]);
}

#[test]
fn who_lost_its_locks_is_not_believed_by_the_next_server() {
    let mut site = Site::new();
    let (first, other) = (site.join(1, Kernel::Elsewhere, &[]), site.join(2, Kernel::Elsewhere, &[]));
    site.ask(&first, 2, 10, Patience::None);
    let claims = first.ledger.locks();
    site.locking.end_mount(first.number);
    assert_eq!(site.named(), [first.id], "nobody has taken it");
    site.ask(&other, 4, 11, Patience::None);
    assert_eq!(site.named(), [other.id]);
    site.close(&other, 11);
    let mut site = site.next();
    assert_eq!(site.join(1, Kernel::Elsewhere, &claims).lost, [10]);
}

#[test]
fn an_open_file_that_has_lost_a_lock_has_no_other_one() {
    let mut site = Site::in_dir(tempfile::tempdir().expect("a directory"), true);
    let owner = LockOwner { client: 0, family: LockFamily::Range, id: 10 };
    let lock = FileLock { owner, handle: 10, access: Access::Write, first: 0, last: 4, process: 1 };
    let claims = [(FILE, lock), (FILE, FileLock { first: 6, last: 9, ..lock })];
    let taken = FileLock { owner: LockOwner { id: 11, ..owner }, handle: 11, first: 4, last: 5, ..lock };
    let other = site.join(2, Kernel::Elsewhere, &[(FILE, taken)]);
    let first = site.join(1, Kernel::Elsewhere, &claims);
    assert!(other.lost.is_empty() && first.lost == [10]);
    assert!(first.ledger.locks().is_empty());
    assert_eq!(site.locking.counts(), (1, 0));
}

#[test]
fn mounts_of_this_machine_have_their_locks_and_a_server_of_another_machine_hears_all_claims() {
    let mut site = Site::new();
    let here = site.join(1, Kernel::Here, &[]);
    site.ask(&here, 2, 10, Patience::None);
    let claims = here.ledger.locks();
    assert!(site.named().is_empty(), "its ledger outlives the server");
    let mut site = site.next();
    let here = site.join(1, Kernel::Here, &claims);
    let elsewhere = site.join(2, Kernel::Elsewhere, &claims);
    assert!(here.lost.is_empty() && elsewhere.lost == [10]);
    let mut site = Site::in_dir(tempfile::tempdir().expect("a directory"), true);
    assert!(site.join(2, Kernel::Elsewhere, &claims).lost.is_empty());
    assert!(site.locking.limit().is_some_and(|limit| limit <= CLAIMS_LIMIT));
}
