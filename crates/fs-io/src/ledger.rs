//! What a server has done for a mount that outlives it, in memory of the mount's holder.
//!
//! The layout, and how the next server uses it, are in `docs/format/fs-offload.md`, "Ledger".

use crate::calls::{self, Begun};
use crate::sys::SharedMemory;
use landfall_fs::{Call, FileLock, InodeNumber, Witness};
use landfall_fuse::Unique;
use parking_lot::{Condvar, Mutex};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod locks;

use locks::Slots;

/// The first word: "LFLEDGR3".
const MAGIC: u64 = u64::from_le_bytes(*b"LFLEDGR3");
/// Places of single words.
const AT_MAGIC: usize = 0;
const AT_NEXT_NUMBER: usize = 1;
const AT_TOUCHED: usize = 2;
const AT_ALL_LOST: usize = 3;
/// Requests of which the ledger knows what they are about to change, at most.
const REQUESTS: usize = 1024;
const AT_REQUESTS: usize = 16;
/// Changes of inodes that the ledger remembers.
const CHANGES: usize = 1 << 14;
const AT_CHANGES: usize = AT_REQUESTS + REQUESTS * ENTRY_WORDS;
/// Words of a request, and of a change.
const ENTRY_WORDS: usize = 4;
/// Where the locks are.
const AT_LOCKS: usize = AT_CHANGES + CHANGES * ENTRY_WORDS;
/// Words of a ledger.
const WORDS: usize = AT_LOCKS + locks::WORDS;
/// The end of a change that is known to be lost.
const LOST: u64 = u64::MAX;
/// The end of one that is lost, and that nobody need be told of any more.
const TOLD: u64 = u64::MAX - 1;
/// The end of a request's first operation that was found after its server had died.
const DONE: u64 = u64::MAX;

thread_local! {
    /// The request that this thread answers; 0 for none.
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
    /// The place of that request in the ledger, if it has begun to change something.
    static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
    /// An operation of that request has been executed by this thread.
    static FIRST_IS_EXECUTED: Cell<bool> = const { Cell::new(false) };
    /// The ledger of the mount whose requests this thread answers.
    static LEDGER: RefCell<Option<Arc<Ledger>>> = const { RefCell::new(None) };
}

/// What was executed, and did not survive its server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostChanges {
    /// The inodes, with the requests that changed them.
    pub(crate) changes: BTreeMap<InodeNumber, BTreeSet<u64>>,
    /// There were more than the ledger remembers: any inode may be among them.
    pub(crate) are_more: bool,
}

/// The ledger of a mount.
#[derive(Debug)]
pub(crate) struct Ledger {
    memory: SharedMemory,
    requests: Mutex<Requests>,
    freed: Condvar,
    locks: Mutex<Slots>,
}

/// Places of requests in the ledger.
#[derive(Debug)]
struct Requests {
    free: Vec<usize>,
    /// By the id of the first delivery.
    begun: BTreeMap<u64, usize>,
    /// Those that a server which has died had begun.
    earlier: BTreeSet<u64>,
}

impl Ledger {
    /// The memory of a new ledger.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn memory() -> io::Result<SharedMemory> {
        let memory = SharedMemory::new(WORDS)?;
        memory.words()[AT_MAGIC].store(MAGIC, Ordering::Release);
        Ok(memory)
    }

    /// The ledger that a holder keeps.
    ///
    /// # Errors
    /// `InvalidData`: it is none. An error of the kernel.
    pub(crate) fn open(file: OwnedFd) -> io::Result<Self> {
        Self::of(SharedMemory::of_another(file, WORDS)?)
    }

    /// A new ledger of these locks, which ends with this process.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn of_locks(locks: &[(InodeNumber, FileLock)]) -> io::Result<Self> {
        let ledger = Self::of(Self::memory()?)?;
        locks.iter().for_each(|(inode, lock)| ledger.note_lock(*inode, *lock));
        Ok(ledger)
    }

    /// Its memory, for another process.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn of(memory: SharedMemory) -> io::Result<Self> {
        if memory.words()[AT_MAGIC].load(Ordering::Acquire) != MAGIC {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (mut free, mut begun) = (Vec::new(), BTreeMap::new());
        for place in (0..REQUESTS).rev() {
            match entry(&memory, AT_REQUESTS, place)[0].load(Ordering::Acquire) {
                0 => free.push(place),
                unique => drop(begun.insert(unique, place)),
            }
        }
        let earlier = begun.keys().copied().collect();
        let requests = Mutex::new(Requests { free, begun, earlier });
        let locks = Mutex::new(Slots::of(lock_words(&memory)));
        Ok(Self { memory, requests, freed: Condvar::new(), locks })
    }

    /// The locks that the mount has.
    pub(crate) fn locks(&self) -> Vec<(InodeNumber, FileLock)> {
        self.locks.lock().all()
    }

    /// The mount has a lock from now on.
    pub(crate) fn note_lock(&self, inode: InodeNumber, lock: FileLock) {
        self.locks.lock().add(lock_words(&self.memory), (inode, lock));
    }

    /// The mount does not have a lock any more.
    pub(crate) fn forget_lock(&self, inode: InodeNumber, lock: FileLock) {
        self.locks.lock().remove(lock_words(&self.memory), (inode, lock));
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.memory.words()[at]
    }

    /// Every number that an inode was given is lower.
    pub(crate) fn next_number(&self) -> u64 {
        self.word(AT_NEXT_NUMBER).load(Ordering::Acquire)
    }

    /// A number is given to an inode.
    pub(crate) fn note_number(&self, number: InodeNumber) {
        self.word(AT_NEXT_NUMBER).fetch_max(number.0 + 1, Ordering::AcqRel);
    }

    /// The calling thread answers a request, until it answers another one.
    pub(crate) fn note_answering(unique: Unique) {
        ANSWERS.set(unique.first().0);
        PLACE.set(None);
        FIRST_IS_EXECUTED.set(false);
    }

    /// From now on the calling thread answers requests of this ledger's mount.
    pub(crate) fn answer_by_this_thread(self: &Arc<Self>) {
        LEDGER.set(Some(Arc::clone(self)));
    }

    /// A request begins to change what `find` finds. If it had begun under an earlier server, what that one has found.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn begin<E>(
        &self,
        unique: Unique,
        find: impl FnOnce() -> Result<[u64; 2], E>,
    ) -> Result<Begun, E> {
        let id = unique.first().0;
        if unique.is_resent()
            && let Some(place) = self.requests.lock().begun.get(&id)
        {
            let [_, first, second, end] = entry(&self.memory, AT_REQUESTS, *place);
            let numbers = [first, second].map(|word| word.load(Ordering::Acquire));
            let is_done = end.load(Ordering::Acquire) != 0;
            // What is done again of one that is done does not decide whether it is.
            PLACE.set((!is_done).then_some(*place));
            return Ok(Begun { numbers, is_again: true, is_done });
        }
        let numbers = find()?;
        let place = self.take_place(id);
        self.store(place, id, numbers, 0);
        PLACE.set(Some(place));
        Ok(Begun::now(numbers))
    }

    fn store(&self, place: usize, id: u64, numbers: [u64; 2], at_end: u64) {
        let [key, first, second, end] = entry(&self.memory, AT_REQUESTS, place);
        first.store(numbers[0], Ordering::Relaxed);
        second.store(numbers[1], Ordering::Relaxed);
        end.store(at_end, Ordering::Relaxed);
        key.store(id, Ordering::Release);
    }

    /// What the request that this thread answers is about to change.
    pub(crate) fn note_begun(&self, numbers: [u64; 2]) {
        let Some(place) = PLACE.get() else { return };
        let [_, first, second, _] = entry(&self.memory, AT_REQUESTS, place);
        first.store(numbers[0], Ordering::Relaxed);
        second.store(numbers[1], Ordering::Relaxed);
    }

    /// Each request in flight has a place, and most have ended when there is no other one.
    fn take_place(&self, id: u64) -> usize {
        let mut requests = self.requests.lock();
        loop {
            if let Some(place) = requests.free.pop() {
                if let Some(before) = requests.begun.insert(id, place) {
                    // It was sent again without a mark.
                    entry(&self.memory, AT_REQUESTS, before)[0].store(0, Ordering::Release);
                    requests.free.push(before);
                }
                return place;
            }
            // The kernel delivers again what was not answered before anything new: the others had been answered.
            if let Some(earlier) = requests.earlier.pop_first() {
                requests.end(earlier, &self.memory);
            } else {
                self.freed.wait(&mut requests);
            }
        }
    }

    /// A request was answered.
    pub(crate) fn end(&self, unique: Unique) {
        if self.requests.lock().end(unique.first().0, &self.memory) {
            self.freed.notify_one();
        }
    }

    /// Decides what is lost, when recovery has found the operations below `log_end`. What was lost under an earlier server
    /// is among it, unless [`Self::forget`] was called.
    pub(crate) fn settle(&self, log_end: u64) -> LostChanges {
        let count = usize::try_from(self.word(AT_TOUCHED).load(Ordering::Acquire)).unwrap_or(usize::MAX);
        if count > CHANGES {
            let oldest = entry(&self.memory, AT_CHANGES, count % CHANGES)[0].load(Ordering::Acquire);
            // Where the oldest one is of an earlier server, all of the last one are here.
            if oldest > log_end && oldest < TOLD {
                self.word(AT_ALL_LOST).store(1, Ordering::Release);
            }
        }
        let mut lost = LostChanges::default();
        for place in 0..count.min(CHANGES) {
            let [end, number, unique, _] = entry(&self.memory, AT_CHANGES, place);
            let inode = InodeNumber(number.load(Ordering::Acquire));
            let of_change = end.load(Ordering::Acquire);
            if inode.0 > 0 && of_change > log_end && of_change != TOLD {
                end.store(LOST, Ordering::Release);
                lost.changes.entry(inode).or_default().insert(unique.load(Ordering::Acquire));
            }
        }
        lost.are_more = self.word(AT_ALL_LOST).load(Ordering::Acquire) > 0;
        for place in 0..REQUESTS {
            let [.., end] = entry(&self.memory, AT_REQUESTS, place);
            match end.load(Ordering::Acquire) {
                0 | DONE => {}
                found if found <= log_end => end.store(DONE, Ordering::Release),
                _ => end.store(0, Ordering::Release),
            }
        }
        lost
    }

    /// The inodes of which a kernel may keep what is lost, also if programs have been told of it. The holder asks for them
    /// after [`Self::settle`].
    pub(crate) fn stale(memory: &SharedMemory) -> Vec<InodeNumber> {
        if memory.words()[AT_ALL_LOST].load(Ordering::Acquire) > 0 {
            let next = memory.words()[AT_NEXT_NUMBER].load(Ordering::Acquire);
            return (InodeNumber::ROOT.0..next).map(InodeNumber).collect();
        }
        let inode = |place| {
            let [end, number, ..] = entry(memory, AT_CHANGES, place);
            let is_lost = end.load(Ordering::Acquire) >= TOLD;
            Some(InodeNumber(number.load(Ordering::Acquire))).filter(|inode| is_lost && inode.0 > 0)
        };
        let all: BTreeSet<InodeNumber> = (0..CHANGES).filter_map(inode).collect();
        all.into_iter().collect()
    }

    /// A program has been told that changes of an inode are lost.
    pub(crate) fn forget(&self, inode: InodeNumber) {
        self.forget_lost(|number, _| number == inode.0);
    }

    /// The kernel delivers a request again: what it had changed was not acknowledged, and is changed again.
    pub(crate) fn forget_request(&self, unique: Unique) {
        self.forget_lost(|_, id| id == unique.first().0);
    }

    fn forget_lost(&self, is_meant: impl Fn(u64, u64) -> bool) {
        for place in 0..CHANGES {
            let [end, number, unique, _] = entry(&self.memory, AT_CHANGES, place);
            let of = (number.load(Ordering::Acquire), unique.load(Ordering::Acquire));
            if end.load(Ordering::Acquire) == LOST && is_meant(of.0, of.1) {
                end.store(TOLD, Ordering::Release);
            }
        }
    }
}

impl Requests {
    /// Frees the place of a request, if it has one.
    fn end(&mut self, id: u64, memory: &SharedMemory) -> bool {
        let Some(place) = self.begun.remove(&id) else { return false };
        self.earlier.remove(&id);
        entry(memory, AT_REQUESTS, place)[0].store(0, Ordering::Release);
        self.free.push(place);
        true
    }
}

impl Ledger {
    /// The first operation of a request is in the log if all those below `end` are.
    pub(crate) fn appending(&self, end: Option<u64>) {
        let Some(place) = PLACE.get() else { return };
        let [.., at_end] = entry(&self.memory, AT_REQUESTS, place);
        match end {
            Some(end) if at_end.load(Ordering::Relaxed) == 0 => at_end.store(end, Ordering::Release),
            // Behind an operation that was executed, this one is not the first.
            None if !FIRST_IS_EXECUTED.get() => at_end.store(0, Ordering::Release),
            _ => {}
        }
    }

    fn executed(&self, end: u64, touched: &[InodeNumber]) {
        FIRST_IS_EXECUTED.set(true);
        self.note_changes(end, touched, ANSWERS.get());
    }

    /// Notes which inodes the request with this id has changed, or a library (0).
    fn note_changes(&self, end: u64, touched: &[InodeNumber], id: u64) {
        let count = self.word(AT_TOUCHED).load(Ordering::Relaxed);
        for (position, inode) in (count..).zip(touched) {
            let place = usize::try_from(position).unwrap_or(0) % CHANGES;
            let [at_end, number, unique, _] = entry(&self.memory, AT_CHANGES, place);
            number.store(0, Ordering::Release);
            at_end.store(end, Ordering::Relaxed);
            unique.store(id, Ordering::Relaxed);
            number.store(inode.0, Ordering::Release);
        }
        self.word(AT_TOUCHED).store(count + touched.len() as u64, Ordering::Release);
    }
}

/// The ledgers of all mounts that are served.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    all: Mutex<Vec<Arc<Ledger>>>,
}

impl Ledgers {
    pub(crate) fn add(&self, ledger: Arc<Ledger>) {
        self.all.lock().push(ledger);
    }

    pub(crate) fn remove(&self, ledger: &Arc<Ledger>) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, ledger));
    }

    /// A number is given to an inode. The kernel of each mount may come to know it.
    pub(crate) fn note_number(&self, number: InodeNumber) {
        self.all.lock().iter().for_each(|ledger| ledger.note_number(number));
    }

    /// Calls `note` with the ledger of the mount whose request this thread answers, or with all of them. A mount on another
    /// machine has none.
    fn each(&self, note: impl Fn(&Ledger)) {
        if calls::is_of_this_thread() {
            return;
        }
        LEDGER.with_borrow(|own| match own {
            Some(own) => note(own),
            None => self.all.lock().iter().for_each(|ledger| note(ledger)),
        });
    }
}

impl Witness for Ledgers {
    fn call(&self) -> Option<Call> {
        calls::begun()
    }

    fn appending(&self, end: Option<u64>) {
        self.each(|ledger| ledger.appending(end));
    }

    fn executed(&self, end: u64, touched: &[InodeNumber]) {
        calls::end();
        self.each(|ledger| ledger.executed(end, touched));
    }

    fn adopted(&self, end: u64, touched: &[InodeNumber]) {
        self.all.lock().iter().for_each(|ledger| ledger.note_changes(end, touched, 0));
    }
}

/// The words of the locks.
fn lock_words(memory: &SharedMemory) -> &[AtomicU64] {
    &memory.words()[AT_LOCKS..]
}

/// The words of an entry of a table.
fn entry(memory: &SharedMemory, table: usize, place: usize) -> [&AtomicU64; ENTRY_WORDS] {
    let at = table + place * ENTRY_WORDS;
    std::array::from_fn(|word| &memory.words()[at + word])
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fs::{Access, LOCKS_MAX, LockFamily, LockOwner};

    const AGAIN: u64 = 1 << 63;
    const A: InodeNumber = InodeNumber(5);
    const B: InodeNumber = InodeNumber(6);

    fn ledger() -> Ledger {
        next(&Ledger::memory().expect("memory"))
    }

    /// The ledger as the next server opens it.
    fn next(memory: &SharedMemory) -> Ledger {
        Ledger::open(memory.file().try_clone_to_owned().expect("a descriptor")).expect("a ledger")
    }

    fn begin(ledger: &Ledger, unique: u64, numbers: [u64; 2]) -> Begun {
        ledger.begin(Unique(unique), || Ok::<_, ()>(numbers)).expect("numbers")
    }

    #[test]
    fn the_next_server_knows_what_a_request_was_about_to_change_until_it_is_answered() {
        let first = ledger();
        assert_eq!(begin(&first, 2, [7, 8]), Begun { numbers: [7, 8], is_again: false, is_done: false });
        begin(&first, 4, [9, 0]);
        first.end(Unique(4));
        let second = next(&first.memory);
        assert_eq!(
            begin(&second, 2 | AGAIN, [0, 0]),
            Begun { numbers: [7, 8], is_again: true, is_done: false }
        );
        assert!(!begin(&second, 4 | AGAIN, [1, 1]).is_again, "it was answered");
        let third = next(&second.memory);
        assert!(begin(&third, 2 | AGAIN, [0, 0]).is_again, "the second server has not answered it either");
        third.end(Unique(2 | AGAIN));
        assert!(!begin(&next(&third.memory), 2 | AGAIN, [0, 0]).is_again);
    }

    #[test]
    fn a_request_is_done_if_its_first_operation_was_found() {
        let first = ledger();
        let start = |unique: u64, ends: &[Option<u64>]| {
            Ledger::note_answering(Unique(unique));
            begin(&first, unique, [0, 0]);
            for end in ends {
                first.appending(*end);
                end.iter().for_each(|end| first.executed(*end, &[A]));
            }
        };
        start(2, &[Some(10), Some(14)]);
        start(4, &[Some(11), None]);
        start(6, &[Some(12)]);
        Ledger::note_answering(Unique(8));
        begin(&first, 8, [0, 0]);
        first.appending(Some(9));
        first.appending(None);
        let second = next(&first.memory);
        second.settle(11);
        let is_done = |ledger: &Ledger, unique: u64| begin(ledger, unique | AGAIN, [0, 0]).is_done;
        assert!(is_done(&second, 2) && is_done(&second, 4), "the first operation counts");
        assert!(!is_done(&second, 6), "it is lost");
        assert!(!is_done(&second, 8), "it was refused");
        let third = next(&second.memory);
        third.settle(20);
        assert!(is_done(&third, 2) && !is_done(&third, 6), "indices are used again");
    }

    #[test]
    fn a_request_that_is_done_stays_so_whatever_is_done_again() {
        let first = ledger();
        Ledger::note_answering(Unique(2));
        begin(&first, 2, [0, 0]);
        first.appending(Some(10));
        let second = next(&first.memory);
        second.settle(10);
        Ledger::note_answering(Unique(2 | AGAIN));
        assert!(begin(&second, 2 | AGAIN, [0, 0]).is_done);
        // The log has no place at first.
        for end in [Some(11), None, Some(11)] {
            second.appending(end);
        }
        let third = next(&second.memory);
        third.settle(10);
        assert!(begin(&third, 2 | AGAIN, [0, 0]).is_done);
    }

    #[test]
    fn a_request_that_is_sent_again_without_a_mark_has_one_place() {
        let first = ledger();
        for _ in 0..3 {
            begin(&first, 2, [7, 8]);
        }
        let begun = |ledger: &Ledger| ledger.requests.lock().begun.len();
        assert_eq!(begun(&next(&first.memory)), 1);
        first.end(Unique(2));
        assert_eq!(begun(&next(&first.memory)), 0);
    }

    #[test]
    fn places_of_requests_that_nobody_delivers_again_are_used_again() {
        let first = ledger();
        for unique in 1..=REQUESTS as u64 {
            begin(&first, unique, [unique, 0]);
        }
        let second = next(&first.memory);
        assert!(begin(&second, 9 | AGAIN, [0, 0]).is_again);
        second.end(Unique(9 | AGAIN));
        for unique in 2000..2000 + REQUESTS as u64 {
            assert!(!begin(&second, unique, [1, 0]).is_again);
            second.end(Unique(unique));
        }
        begin(&second, 5000, [1, 0]);
        begin(&second, 5001, [1, 0]);
        assert!(!begin(&second, 1 | AGAIN, [3, 0]).is_again, "the oldest gave its place away");
    }

    #[test]
    fn what_recovery_has_not_found_is_lost_until_it_was_reported() {
        let first = ledger();
        Ledger::note_answering(Unique(2));
        first.executed(10, &[A]);
        Ledger::note_answering(Unique(4));
        first.executed(12, &[A, B]);
        assert_eq!(next(&first.memory).settle(12), LostChanges::default());
        let second = next(&first.memory);
        let lost = second.settle(10);
        let expected = BTreeMap::from([(A, BTreeSet::from([4])), (B, BTreeSet::from([4]))]);
        assert_eq!(lost, LostChanges { changes: expected, are_more: false });
        second.forget(A);
        assert_eq!(Ledger::stale(&second.memory), [A, B], "the kernel may keep both");
        // The indices are used again.
        second.executed(13, &[A]);
        let lost = next(&second.memory).settle(13);
        assert_eq!(lost.changes.keys().collect::<Vec<_>>(), [&B], "B was not reported");
    }

    #[test]
    fn what_a_program_was_told_of_makes_no_other_inode_lost_when_its_place_is_taken() {
        let first = ledger();
        (10..13).for_each(|end| first.executed(end, &[A]));
        let second = next(&first.memory);
        assert!(second.settle(9).changes.contains_key(&A));
        second.forget(A);
        (0..CHANGES as u64 - 2).for_each(|at| second.executed(10 + at, &[B]));
        assert_eq!(next(&second.memory).settle(20_000_000), LostChanges::default());
    }

    #[test]
    fn changes_of_a_request_that_is_delivered_again_are_not_lost() {
        let first = ledger();
        Ledger::note_answering(Unique(2));
        first.executed(10, &[A, B]);
        Ledger::note_answering(Unique(4));
        first.executed(11, &[A]);
        let second = next(&first.memory);
        second.settle(9);
        second.forget_request(Unique(2 | AGAIN));
        let lost = next(&second.memory).settle(11);
        assert_eq!(lost.changes, BTreeMap::from([(A, BTreeSet::from([4]))]));
    }

    #[test]
    fn more_losses_than_the_ledger_remembers_concern_every_inode() {
        let first = ledger();
        (0..CHANGES as u64).for_each(|end| first.executed(end + 1, &[A]));
        assert!(!next(&first.memory).settle(CHANGES as u64).are_more);
        first.executed(CHANGES as u64 + 1, &[B]);
        let memory = &first.memory;
        assert!(!next(memory).settle(CHANGES as u64).are_more, "the newest change is remembered");
        assert!(next(memory).settle(0).are_more);
        assert!(next(memory).settle(CHANGES as u64).are_more, "nobody knows what was lost before");
    }

    #[test]
    fn locks_that_a_mount_has_are_known_to_the_next_server() {
        let lock = |id: u64, access: Access| {
            let owner = LockOwner { client: 3, family: LockFamily::Range, id };
            FileLock { owner, handle: 9 + id, access, first: 1, last: u64::MAX, process: 77 }
        };
        let first = ledger();
        first.note_lock(A, lock(1, Access::Write));
        first.note_lock(B, lock(1, Access::Read));
        first.note_lock(A, lock(2, Access::Read));
        first.forget_lock(B, lock(1, Access::Read));
        let of_no_client = |lock: FileLock| {
            let owner = LockOwner { client: 0, ..lock.owner };
            FileLock { owner, ..lock }
        };
        let kept = [lock(1, Access::Write), lock(2, Access::Read)].map(|lock| (A, of_no_client(lock)));
        let second = next(&first.memory);
        assert_eq!(second.locks(), kept);
        second.forget_lock(A, lock(2, Access::Read));
        second.forget_lock(A, lock(2, Access::Read));
        assert_eq!(next(&first.memory).locks(), kept[..1]);
        for id in 0..LOCKS_MAX as u64 {
            second.note_lock(B, lock(id, Access::Read));
        }
        assert_eq!(
            next(&first.memory).locks().len(),
            LOCKS_MAX + 1,
            "as many as there may be, and those that go"
        );
    }

    #[test]
    fn numbers_that_were_given_stay_known() {
        let first = ledger();
        first.note_number(InodeNumber(40));
        first.note_number(InodeNumber(7));
        assert_eq!(next(&first.memory).next_number(), 41);
    }
}
