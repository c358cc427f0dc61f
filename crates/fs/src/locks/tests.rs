use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const FILE: InodeNumber = InodeNumber(7);
const END: u64 = u64::MAX;

fn owner(client: u32, id: u64) -> LockOwner {
    LockOwner { client, family: LockFamily::Range, id }
}

fn range(client: u32, id: u64, access: Access, (first, last): (u64, u64)) -> FileLock {
    FileLock { owner: owner(client, id), handle: id, access, first, last, process: 1 }
}

fn whole(client: u32, id: u64, access: Access) -> FileLock {
    let owner = LockOwner { client, family: LockFamily::Whole, id };
    FileLock { owner, handle: id, access, first: 0, last: END, process: 1 }
}

/// Locks, and numbers for requests.
#[derive(Default)]
struct Table {
    locks: FileLocks,
    next: u64,
}

impl Table {
    /// What a request has done by itself; `None`: it waits.
    fn ask(&mut self, lock: FileLock, patience: Patience) -> Option<Result<(), LockRefusal>> {
        self.ask_in(FILE, lock, patience)
    }

    fn ask_in(
        &mut self,
        inode: InodeNumber,
        lock: FileLock,
        patience: Patience,
    ) -> Option<Result<(), LockRefusal>> {
        self.next += 1;
        let number = LockRequestNumber(self.next);
        let ended = self.locks.request(number, inode, lock, patience).ended;
        ended.into_iter().find(|(other, _)| *other == number).map(|(_, outcome)| outcome)
    }

    fn newest(&self) -> LockRequestNumber {
        LockRequestNumber(self.next)
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<_> = self.locks.held(FILE).iter().map(|lock| (lock.first, lock.last)).collect();
        ranges.sort_unstable();
        ranges
    }
}

const NOW: Patience = Patience::None;
const GRANTED: Option<Result<(), LockRefusal>> = Some(Ok(()));
const HELD: Option<Result<(), LockRefusal>> = Some(Err(LockRefusal::Held));

#[test]
fn an_exclusive_lock_is_alone_and_shared_ones_go_together() {
    let mut table = Table::default();
    assert_eq!(table.ask(range(1, 1, Access::Read, (0, 9)), NOW), GRANTED);
    assert_eq!(table.ask(range(2, 1, Access::Read, (5, END)), NOW), GRANTED);
    assert_eq!(table.ask(range(2, 2, Access::Write, (9, 9)), NOW), HELD);
    assert_eq!(table.ask(range(1, 1, Access::Write, (0, 4)), NOW), GRANTED, "its own do not count");
    assert_eq!(table.ask(range(1, 1, Access::Write, (0, 5)), NOW), HELD, "another mount's owner 1");
    assert_eq!(table.ask(whole(3, 1, Access::Write), NOW), GRANTED, "the two kinds are apart");
    assert_eq!(table.ask_in(InodeNumber(8), range(2, 2, Access::Write, (0, 9)), NOW), GRANTED);
    let wanted = range(3, 1, Access::Read, (0, END));
    assert_eq!(table.locks.conflict(FILE, &wanted).map(|lock| lock.first), Some(0));
}

#[test]
fn a_lock_is_split_and_joined_as_its_owner_says() {
    let mut table = Table::default();
    table.ask(range(1, 1, Access::Write, (0, 9)), NOW);
    table.ask(range(1, 1, Access::Write, (10, 19)), NOW);
    assert_eq!((table.ranges(), table.locks.count()), (vec![(0, 19)], 1));
    let events = table.locks.unlock(FILE, owner(1, 1), (5, 6)).expect("room for two");
    assert_eq!(table.ranges(), [(0, 4), (7, 19)]);
    assert!(matches!(events.changes[..], [LockChange::Came(..), LockChange::Came(..), LockChange::Went(..)]));
    table.ask(range(1, 1, Access::Read, (4, 8)), NOW);
    assert_eq!(table.ranges(), [(0, 3), (4, 8), (9, 19)]);
    table.ask(range(1, 1, Access::Write, (4, 8)), NOW);
    assert_eq!(table.ranges(), [(0, 19)]);
    table.locks.unlock(FILE, owner(1, 1), (0, END)).expect("nothing is split");
    assert_eq!((table.ranges(), table.locks.count()), (vec![], 0));
}

#[test]
fn who_waits_gets_the_lock_when_it_is_free_in_order_and_not_after_it_has_given_up() {
    let mut table = Table::default();
    table.ask(whole(1, 1, Access::Write), NOW);
    let mut waiters = Vec::new();
    for (id, access) in [(2, Access::Read), (3, Access::Write), (4, Access::Read)] {
        assert_eq!(table.ask(whole(2, id, access), Patience::Waits), None);
        waiters.push(table.newest());
    }
    let closed = Released::Handle { client: 1, handle: 1 };
    let events = table.locks.release(FILE, closed);
    assert_eq!(events.ended, [(waiters[0], Ok(())), (waiters[2], Ok(()))], "the shared ones");
    assert!(
        table.locks.cancel(waiters[1]) && !table.locks.cancel(waiters[1]) && !table.locks.cancel(waiters[0])
    );
    let (ended, events) = table.locks.end_client(2);
    assert_eq!((ended.len(), events.ended.len(), table.locks.waiting()), (2, 0, 0));
}

#[test]
fn two_that_convert_their_shared_locks_do_not_wait_for_each_other() {
    let mut table = Table::default();
    table.ask(whole(1, 1, Access::Read), NOW);
    table.ask(whole(2, 1, Access::Read), NOW);
    assert_eq!(table.ask(whole(1, 1, Access::Write), Patience::Waits), None);
    let first = table.newest();
    table.next += 1;
    let second = table.newest();
    let events = table.locks.request(second, FILE, whole(2, 1, Access::Write), Patience::Waits);
    assert_eq!(events.ended, [(first, Ok(()))]);
    let events = table.locks.release(FILE, Released::Handle { client: 1, handle: 1 });
    assert_eq!(events.ended, [(second, Ok(()))]);
}

#[test]
fn whoever_would_wait_for_a_waiter_of_its_own_is_told_of_the_deadlock() {
    let mut table = Table::default();
    for id in 1..=3 {
        table.ask(range(1, id, Access::Write, (id, id)), NOW);
    }
    assert_eq!(table.ask(range(1, 1, Access::Write, (2, 2)), Patience::Waits), None);
    assert_eq!(table.ask(range(1, 2, Access::Write, (3, 3)), Patience::Waits), None);
    let last = range(1, 3, Access::Write, (1, 1));
    assert_eq!(table.ask(last, Patience::Waits), Some(Err(LockRefusal::Deadlock)));
    assert_eq!(table.ask(range(1, 3, Access::Write, (9, 9)), Patience::Waits), GRANTED);
    assert_eq!(table.ask(range(2, 3, Access::Write, (1, 1)), Patience::Waits), None, "another mount's");
}

#[test]
fn a_closed_descriptor_ends_its_owners_locks_and_a_closed_file_those_taken_by_it() {
    let mut table = Table::default();
    let by = |handle, lock: FileLock| FileLock { handle, ..lock };
    table.ask(by(5, range(1, 1, Access::Write, (0, 0))), NOW);
    table.ask(by(6, range(1, 1, Access::Write, (1, 1))), NOW);
    table.ask(by(5, range(1, 2, Access::Write, (2, 2))), NOW);
    table.ask(by(5, range(2, 1, Access::Write, (3, 3))), NOW);
    assert_eq!(table.ranges(), [(0, 0), (1, 1), (2, 2), (3, 3)], "not taken by one file");
    table.locks.release(FILE, Released::Handle { client: 1, handle: 5 });
    assert_eq!(table.ranges(), [(1, 1), (3, 3)]);
    table.locks.release(FILE, Released::Owner(owner(1, 1)));
    assert_eq!(table.ranges(), [(3, 3)]);
}

#[test]
fn a_new_server_hears_all_claims_before_it_grants_anything() {
    let mut table = Table::default();
    table.locks.begin_claims();
    assert_eq!(table.ask(whole(2, 1, Access::Write), NOW), None, "it waits, impatient as it is");
    let impatient = table.newest();
    assert_eq!(table.ask(whole(2, 2, Access::Write), Patience::Waits), None);
    let patient = table.newest();
    assert_eq!(table.ask(range(2, 3, Access::Write, (0, 0)), NOW), None);
    let free = table.newest();
    assert!(table.locks.claim(FILE, whole(1, 1, Access::Read)));
    assert!(
        table.locks.claim(FILE, whole(3, 1, Access::Read))
            && !table.locks.claim(FILE, whole(3, 2, Access::Write))
    );
    let events = table.locks.end_claims();
    assert_eq!(events.ended, [(impatient, Err(LockRefusal::Held)), (free, Ok(()))]);
    table.locks.end_client(1);
    assert_eq!(table.locks.end_client(3).1.ended, [(patient, Ok(()))]);
}

#[test]
fn a_client_has_so_many_locks_and_no_more() {
    let mut table = Table::default();
    for at in 0..LOCKS_MAX as u64 - 1 {
        table.ask(range(1, 1, Access::Write, (4 * at, 4 * at)), NOW);
    }
    let many = Some(Err(LockRefusal::Many));
    assert_eq!(table.ask(range(1, 1, Access::Write, (1 << 40, (1 << 40) + 2)), NOW), GRANTED);
    let one_more = range(1, 1, Access::Write, (1 << 50, 1 << 50));
    assert!(!table.locks.has_room_for(FILE, &one_more));
    assert_eq!(table.ask(one_more, NOW), many);
    let middle = ((1 << 40) + 1, (1 << 40) + 1);
    assert_eq!(table.locks.unlock(FILE, owner(1, 1), middle), Err(LockRefusal::Many));
    assert_eq!(table.locks.count(), LOCKS_MAX);
    assert_eq!(table.ask(range(2, 1, Access::Write, (1, 1)), NOW), GRANTED, "another client");
    assert!(
        table.locks.has_room_for(FILE, &range(1, 1, Access::Read, (0, 0))),
        "in the place of another one"
    );
    table.locks.unlock(FILE, owner(1, 1), (0, 0)).expect("fewer");
    assert!(table.locks.has_room_for(FILE, &one_more));
    assert_eq!(table.ask(one_more, NOW), GRANTED);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(FileLock, Patience),
    Unlock(LockOwner, u64, u64),
    Release(Released),
    Cancel(u64),
    End(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    let patience = prop_oneof![Just(Patience::None), Just(Patience::Waits)];
    let ends = (0..12_u64, 0..12_u64).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let lock = (0..2_u32, 0..3_u64, 0..2_u64, access, ends.clone(), any::<bool>());
    let lock = lock.prop_map(|(client, id, handle, access, ends, is_range)| match is_range {
        true => FileLock { handle, ..range(client, id, access, ends) },
        false => FileLock { handle, ..whole(client, id, access) },
    });
    let step = prop_oneof![
        8 => (lock.clone(), patience).prop_map(|(lock, patience)| Step::Ask(lock, patience)),
        3 => (lock.clone(), ends).prop_map(|(lock, (first, last))| Step::Unlock(lock.owner, first, last)),
        2 => lock.clone().prop_map(|lock| Step::Release(Released::Owner(lock.owner))),
        1 => lock.prop_map(|FileLock { owner, handle, .. }| {
            Step::Release(Released::Handle { client: owner.client, handle })
        }),
        1 => (0..40_u64).prop_map(Step::Cancel),
        1 => (0..2_u32).prop_map(Step::End),
    ];
    prop::collection::vec(step, 0..60)
}

/// What each owner has of each byte, by which handle: the oracle, which knows nothing of ranges. Byte 11 stands for all
/// behind it.
type Bytes = BTreeMap<(LockOwner, u64), (Access, u64)>;

fn bytes_of(first: u64, last: u64) -> impl Iterator<Item = u64> {
    first.min(11)..=last.min(11)
}

fn set(bytes: &mut Bytes, lock: &FileLock) {
    bytes_of(lock.first, lock.last)
        .for_each(|byte| _ = bytes.insert((lock.owner, byte), (lock.access, lock.handle)));
}

fn is_free(bytes: &Bytes, lock: &FileLock) -> bool {
    bytes.iter().all(|((owner, byte), (access, _))| {
        *owner == lock.owner
            || owner.family != lock.owner.family
            || !bytes_of(lock.first, lock.last).any(|other| other == *byte)
            || *access == Access::Read && lock.access == Access::Read
    })
}

/// The oracle, and the requests that it knows to wait.
#[derive(Default)]
struct Oracle {
    bytes: Bytes,
    waiting: BTreeMap<LockRequestNumber, FileLock>,
    /// The locks, as the changes tell them.
    told: BTreeSet<FileLock>,
}

impl Oracle {
    fn hear(&mut self, events: &LockEvents) {
        for change in &events.changes {
            match change {
                LockChange::Came(_, lock) => assert!(self.told.insert(*lock), "it came twice"),
                LockChange::Went(_, lock) => assert!(self.told.remove(lock), "it had not come"),
            }
        }
        for (number, outcome) in &events.ended {
            let lock = self.waiting.remove(number).expect("it was asked");
            if outcome.is_ok() {
                assert!(is_free(&self.bytes, &lock), "{lock:?} is granted beside {:?}", self.bytes);
                set(&mut self.bytes, &lock);
            }
        }
    }

    fn drop_where(&mut self, is_dropped: impl Fn(&LockOwner, u64) -> bool) {
        self.bytes.retain(|(owner, _), (_, handle)| !is_dropped(owner, *handle));
    }

    fn agrees(&self, locks: &FileLocks) {
        let mut found = Bytes::new();
        for (_, lock) in locks.all() {
            for byte in bytes_of(lock.first, lock.last) {
                let twice = found.insert((lock.owner, byte), (lock.access, lock.handle));
                assert!(twice.is_none(), "an owner has a byte twice");
            }
        }
        assert_eq!(found, self.bytes);
        assert_eq!(locks.all().map(|(_, lock)| lock).collect::<BTreeSet<_>>(), self.told);
        assert_eq!(locks.count(), self.told.len());
        assert_eq!(locks.waiting(), self.waiting.len());
        let free = self.waiting.values().find(|lock| is_free(&self.bytes, lock));
        assert_eq!(free, None, "it waits for nobody");
    }
}

proptest! {
    #[test]
    fn locks_are_what_an_oracle_of_single_bytes_says(steps in steps()) {
        let (mut table, mut oracle) = (Table::default(), Oracle::default());
        for step in steps {
            match step {
                Step::Ask(lock, patience) => {
                    table.next += 1;
                    oracle.waiting.insert(table.newest(), lock);
                    if lock.owner.family == LockFamily::Whole {
                        oracle.bytes.retain(|(owner, _), (access, _)| {
                            *owner != lock.owner || *access == lock.access
                        });
                    }
                    let events = table.locks.request(table.newest(), FILE, lock, patience);
                    let is_refused = events.ended.iter().any(|(number, outcome)| {
                        *number == table.newest() && *outcome == Err(LockRefusal::Held)
                    });
                    oracle.hear(&events);
                    prop_assert!(!is_refused || patience == Patience::None && !is_free(&oracle.bytes, &lock));
                    prop_assert!(patience == Patience::Waits || !oracle.waiting.contains_key(&table.newest()));
                }
                Step::Unlock(owner, first, last) => {
                    bytes_of(first, last).for_each(|byte| _ = oracle.bytes.remove(&(owner, byte)));
                    let last = if last == 11 { END } else { last };
                    oracle.hear(&table.locks.unlock(FILE, owner, (first, last)).expect("there are few"));
                }
                Step::Release(released) => {
                    oracle.drop_where(|owner, handle| match released {
                        Released::Owner(ended) => *owner == ended,
                        Released::Handle { client, handle: ended } => owner.client == client && handle == ended,
                    });
                    oracle.hear(&table.locks.release(FILE, released));
                }
                Step::Cancel(number) => {
                    let number = LockRequestNumber(number);
                    prop_assert_eq!(table.locks.cancel(number), oracle.waiting.remove(&number).is_some());
                }
                Step::End(client) => {
                    oracle.drop_where(|owner, _| owner.client == client);
                    oracle.waiting.retain(|_, lock| lock.owner.client != client);
                    let (_, events) = table.locks.end_client(client);
                    oracle.hear(&events);
                }
            }
            oracle.agrees(&table.locks);
        }
    }
}
