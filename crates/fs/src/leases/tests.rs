use super::*;
use proptest::prelude::*;

const FILE: InodeNumber = InodeNumber(7);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pending(acquired: Acquired) -> LeaseNumber {
    match acquired {
        Acquired::Pending(number) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn many_may_read_and_one_may_write() {
    let mut leases = Leases::default();
    let one = pending(leases.acquire(at(0), 1, FILE, Access::Read));
    let two = pending(leases.acquire(at(0), 2, FILE, Access::Read));
    assert_ne!(one, two);
    let all: Conflicts = [one, two].into_iter().collect();
    assert_eq!(leases.acquire(at(0), 3, FILE, Access::Write), Acquired::Conflicts(all.clone()));
    assert_eq!(leases.enter(FILE, Access::Read), Ok(()), "the mount reads beside them");
    leases.leave(FILE, Access::Read);
    assert_eq!(leases.enter(FILE, Access::Write), Err(all));
    leases.end(at(1), one);
    leases.end(at(1), two);
    let three = pending(leases.acquire(at(2), 3, FILE, Access::Write));
    let only: Conflicts = [three].into_iter().collect();
    assert_eq!(leases.enter(FILE, Access::Read), Err(only.clone()));
    assert_eq!(leases.acquire(at(2), 1, FILE, Access::Read), Acquired::Conflicts(only));
}

#[test]
fn a_client_that_asks_again_gives_its_lease_back_first() {
    let mut leases = Leases::default();
    let old = pending(leases.acquire(at(0), 1, FILE, Access::Read));
    let only: Conflicts = [old].into_iter().collect();
    for access in [Access::Read, Access::Write] {
        assert_eq!(leases.acquire(at(0), 1, FILE, access), Acquired::Conflicts(only.clone()));
    }
}

#[test]
fn a_lease_that_was_taken_back_while_it_was_pending_never_becomes_active() {
    let mut leases = Leases::default();
    let number = pending(leases.acquire(at(0), 1, FILE, Access::Write));
    leases.end(at(0), number);
    assert!(!leases.activate(number));
    let number = pending(leases.acquire(at(0), 1, FILE, Access::Write));
    assert!(leases.activate(number) && leases.get(number).is_some_and(|lease| lease.is_active));
}

#[test]
fn an_inode_that_the_mount_works_on_is_left_to_it() {
    let mut leases = Leases::default();
    assert_eq!(leases.enter(FILE, Access::Read), Ok(()));
    assert_eq!(leases.acquire(at(5), 1, FILE, Access::Write), Acquired::Left(at(5)));
    pending(leases.acquire(at(5), 1, FILE, Access::Read));
    leases.leave(FILE, Access::Read);
    let mut leases = Leases::default();
    assert_eq!(leases.enter(FILE, Access::Write), Ok(()));
    assert_eq!(leases.acquire(at(5), 1, FILE, Access::Read), Acquired::Left(at(5)));
}

#[test]
fn an_inode_that_goes_back_and_forth_is_left_to_the_mount_for_longer_and_longer() {
    let mut leases = Leases::default();
    let mut now = at(0);
    let mut left = Vec::new();
    for _ in 0..14 {
        let number = loop {
            match leases.acquire(now, 1, FILE, Access::Write) {
                Acquired::Left(until) => {
                    left.push(until - now);
                    now = until;
                }
                other => break pending(other),
            }
        };
        leases.end(now, number);
    }
    assert_eq!(left[..3], [at(100), at(200), at(400)]);
    assert_eq!(left.iter().max(), Some(&at(10_000)));
    // A lease that lasts ends the row.
    let Acquired::Left(until) = leases.acquire(now, 1, FILE, Access::Write) else { panic!("it is left") };
    let number = pending(leases.acquire(until, 1, FILE, Access::Write));
    leases.end(until + at(1000), number);
    pending(leases.acquire(until + at(1000), 1, FILE, Access::Write));
}

#[test]
fn a_lease_without_use_becomes_idle_and_one_in_use_does_not() {
    let mut leases = Leases::default();
    let number = pending(leases.acquire(at(0), 1, FILE, Access::Write));
    assert!(!leases.is_idle(at(9000), number, 0));
    assert!(!leases.is_idle(at(9500), number, 1));
    assert!(!leases.is_idle(at(19_000), number, 1));
    assert!(leases.is_idle(at(19_500), number, 1));
    leases.release(number);
    assert!(!leases.is_idle(at(40_000), number, 1), "it has ended");
}

#[test]
fn nothing_is_kept_of_inodes_that_nobody_uses() {
    let mut leases = Leases::default();
    assert_eq!(leases.enter(FILE, Access::Read), Ok(()));
    leases.leave(FILE, Access::Read);
    let number = pending(leases.acquire(at(0), 1, FILE, Access::Read));
    leases.release(number);
    assert!(leases.held.is_empty());
    let number = pending(leases.acquire(at(0), 1, FILE, Access::Read));
    leases.end(at(1), number);
    leases.tidy(at(2));
    assert_eq!(leases.held.len(), 1, "a conflict counts for a while");
    leases.tidy(at(5000));
    assert!(leases.held.is_empty());
}

#[derive(Clone, Debug)]
enum Step {
    Enter(u64, bool),
    Leave(usize),
    Acquire(u32, u64, bool),
    Activate(usize),
    Release(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_u64, any::<bool>()).prop_map(|(inode, writes)| Step::Enter(inode, writes)),
        any::<usize>().prop_map(Step::Leave),
        (1..4_u32, 0..3_u64, any::<bool>())
            .prop_map(|(client, inode, writes)| Step::Acquire(client, inode, writes)),
        any::<usize>().prop_map(Step::Activate),
        any::<usize>().prop_map(Step::Release),
        (0..3000_u64).prop_map(Step::Pass),
    ]
}

fn access(writes: bool) -> Access {
    if writes { Access::Write } else { Access::Read }
}

proptest! {
    /// Whoever may change an inode is alone with it.
    #[test]
    fn who_changes_is_alone(steps in prop::collection::vec(step(), 1..200)) {
        let (mut leases, mut now) = (Leases::default(), at(0));
        let mut requests: Vec<(InodeNumber, Access)> = Vec::new();
        let mut known: Vec<LeaseNumber> = Vec::new();
        for step in steps {
            match step {
                Step::Enter(inode, writes) => {
                    let (inode, access) = (InodeNumber(inode), access(writes));
                    while let Err(conflicts) = leases.enter(inode, access) {
                        prop_assert!(!conflicts.is_empty());
                        conflicts.into_iter().for_each(|number| leases.end(now, number));
                    }
                    requests.push((inode, access));
                }
                Step::Leave(at) if !requests.is_empty() => {
                    let (inode, access) = requests.swap_remove(at % requests.len());
                    leases.leave(inode, access);
                }
                Step::Acquire(client, inode, writes) => loop {
                    match leases.acquire(now, client, InodeNumber(inode), access(writes)) {
                        Acquired::Conflicts(conflicts) => {
                            conflicts.into_iter().for_each(|number| leases.end(now, number));
                        }
                        Acquired::Pending(number) => {
                            prop_assert!(known.iter().all(|old| *old < number), "no number twice");
                            known.push(number);
                            break;
                        }
                        Acquired::Left(until) => {
                            prop_assert!(until >= now && until <= now + LEFT_FOR_MAX);
                            break;
                        }
                    }
                },
                Step::Activate(at) if !known.is_empty() => {
                    let number = known[at % known.len()];
                    prop_assert_eq!(leases.activate(number), leases.get(number).is_some());
                }
                Step::Release(at) if !known.is_empty() => leases.release(known[at % known.len()]),
                Step::Pass(ms) => {
                    now += at(ms);
                    leases.tidy(now);
                }
                _ => {}
            }
            for inode in (0..3).map(InodeNumber) {
                let of: Vec<Lease> = leases.all.values().filter(|lease| lease.inode == inode).copied().collect();
                let users = of.len() + requests.iter().filter(|request| request.0 == inode).count();
                let writes = of.iter().any(|lease| lease.access == Access::Write)
                    || requests.contains(&(inode, Access::Write)) && !of.is_empty();
                // Requests of the mount are ordered by the tree, so only leases make others wait.
                prop_assert!(!writes || users == 1 || of.is_empty(), "{:?} {:?}", of, requests);
                let held = leases.held.get(&inode).map_or(0, |held| held.leases.len());
                prop_assert_eq!(held, of.len());
            }
        }
    }
}
