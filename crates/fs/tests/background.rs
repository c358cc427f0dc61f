//! What is sent to a slow successor of the log, and when, and what waits for it.
//!
//! Where acknowledgements wait for this region only, whatever was acknowledged is in it after a crash, however slow the
//! log's successor is: `docs/format/chain.md`, "Files in the background".
#![allow(clippy::unwrap_used, reason = "a test ends")]

mod common;

use common::{ROOT, World, region};
use landfall_fs::{Advanced, Attributes, CHUNK_BYTES, FileType, FsError, InodeNumber, Name, Operation};
use landfall_heap::{Heap, HeapError, SlotId, Successor, Until};
use landfall_media::sim::{SimMedia, SimOptions};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a thread may take to come to where it waits.
const LIMIT: Duration = Duration::from_secs(30);

/// What may gather for one who waits.
const GATHERED: u64 = 1 << 20;

/// Another machine that is slow.
#[derive(Debug, Default)]
struct Slow {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Batches that it got.
    batches: usize,
    /// It acknowledges what it gets.
    is_quick: bool,
    /// It acknowledges nothing any more.
    is_gone: bool,
}

impl Slow {
    fn wait_until_it_has(&self, batches: usize) {
        let mut state = self.state.lock();
        let late = self.changed.wait_while_for(&mut state, |state| state.batches < batches, LIMIT);
        assert!(!late.timed_out(), "{state:?}");
    }

    fn set(&self, set: impl FnOnce(&mut State)) {
        set(&mut self.state.lock());
        self.changed.notify_all();
    }
}

/// Acknowledges everything when it is dropped, so that a test that fails waits for nobody.
struct Release<'s>(&'s Slow);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.set(|state| state.is_quick = true);
    }
}

impl Successor for Slow {
    fn take_room(&self, _: u64, _: &mut Option<u64>) -> Result<(), HeapError> {
        Ok(())
    }

    fn take_spare_room(&self, _: u64) -> bool {
        true
    }

    fn give_room_back(&self, _: u64) {}

    fn sends_early(&self) -> bool {
        false
    }

    fn send(&self, _: &Heap, _: &[SlotId]) {
        self.set(|state| state.batches += 1);
    }

    fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.is_quick || state.is_gone
    }

    fn wait(&self) -> Result<(), HeapError> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !state.is_quick && !state.is_gone);
        if state.is_gone { Err(HeapError::Alone { node: "b".into() }) } else { Ok(()) }
    }
}

/// Files with a successor, whose acknowledgements do not wait for it.
fn world() -> (World, Arc<Slow>) {
    let (world, slow) = (World::open(region()), Arc::new(Slow::default()));
    world.files.set_successor(Arc::clone(&slow) as _);
    world.files.set_acknowledges_alone(true);
    (world, slow)
}

/// What is left after a crash that keeps only what is durable.
fn crashed(world: &World) -> World {
    World::open(SimMedia::restart(&world.media.crash_state().durable(), SimOptions::default()))
}

fn find(world: &World, name: &str) -> Option<InodeNumber> {
    let found = world.files.lookup(ROOT, Name::new(name.as_bytes()).unwrap());
    found.ok().map(|stat| stat.number)
}

#[test]
fn what_is_acknowledged_is_durable_here_while_the_successor_has_not_acknowledged_the_batch_before() {
    let (mut world, slow) = world();
    let first = world.create(ROOT, "first", FileType::File);
    let files = Arc::clone(&world.files);
    std::thread::scope(|scope| {
        let _release = Release(&slow);
        let replicates = scope.spawn(move || files.sync_all());
        slow.wait_until_it_has(1);
        // The batch is durable here: this waits for nothing.
        world.files.acknowledge(first).unwrap();
        for round in 0..40_u64 {
            let name = format!("file-{round}");
            let file = world.create(ROOT, &name, FileType::File);
            world.write(file, 0, &[round as u8; 6000]);
            let not_yet = crashed(&world);
            assert!(find(&not_yet, "first").is_some() && find(&not_yet, &name).is_none(), "{round}");
            if round % 2 == 0 { world.files.acknowledge(file) } else { world.files.acknowledge_all() }
                .unwrap();
            let after = crashed(&world);
            let found = find(&after, &name).unwrap_or_else(|| panic!("{name} was acknowledged"));
            assert_eq!(after.bytes(found), [round as u8; 6000]);
            assert_eq!(after.view(), world.view());
        }
        assert!(!replicates.is_finished());
        slow.set(|state| state.is_quick = true);
        replicates.join().unwrap().unwrap();
    });
    // The successor gets the rest as one batch, and nothing is written twice.
    assert_eq!(slow.state.lock().batches, 1);
    let before = world.media.ops().total();
    world.files.acknowledge_all().unwrap();
    assert_eq!(world.media.ops().total(), before, "it is durable here");
    world.files.sync_all().unwrap();
    assert_eq!(slow.state.lock().batches, 2);
    assert_eq!(crashed(&world).view(), world.view());
}

#[test]
fn what_has_begun_without_a_wait_is_completed_by_whoever_comes_first() {
    let (mut world, slow) = world();
    world.files.set_acknowledges_alone(false);
    assert_eq!(world.files.advance().unwrap(), Advanced::All, "nothing has been done");
    for (round, waits) in [(0, false), (2, true)] {
        slow.set(|state| state.is_quick = false);
        let first = format!("first-{round}");
        world.create(ROOT, &first, FileType::File);
        let waits_for_it = Advanced::Waits { has_completed: false };
        assert_eq!(world.files.advance().unwrap(), waits_for_it);
        let second = format!("second-{round}");
        world.create(ROOT, &second, FileType::File);
        assert_eq!(world.files.advance().unwrap(), waits_for_it, "the batch before is under way");
        assert_eq!(slow.state.lock().batches, round + 1);
        assert!(find(&crashed(&world), &first).is_some() && find(&crashed(&world), &second).is_none());
        let files = Arc::clone(&world.files);
        std::thread::scope(|scope| {
            let _release = Release(&slow);
            let waiting = waits.then(|| scope.spawn(move || files.sync_all()));
            while waiting.is_some() && world.files.advance().unwrap() != Advanced::Busy {
                std::thread::yield_now();
            }
            slow.set(|state| state.is_quick = true);
            waiting.map_or(Ok(()), |waiting| waiting.join().unwrap()).unwrap();
        });
        assert_eq!(world.files.advance().unwrap(), Advanced::All);
        assert_eq!(slow.state.lock().batches, round + 2);
        assert_eq!(crashed(&world).view(), world.view());
    }
}

#[test]
fn writes_gather_for_the_next_batch_as_far_as_those_who_wait_allow() {
    let (mut world, slow) = world();
    world.files.set_acknowledges_alone(false);
    world.create(ROOT, "file", FileType::File);
    assert!(!world.files.keep_pace(GATHERED), "nobody waits");
    let files = Arc::clone(&world.files);
    std::thread::scope(|scope| {
        let _release = Release(&slow);
        let waiter = world.files.waiter();
        assert!(world.files.keep_pace(1), "it waits, and not for ever");
        scope.spawn(move || files.sync_all());
        slow.wait_until_it_has(1);
        assert!(!world.files.keep_pace(GATHERED), "what was written before is in the batch");
        assert!(world.files.keep_pace(1));
        drop(waiter);
        assert!(!world.files.keep_pace(1), "nobody waits any more");
    });
}

#[test]
fn writes_that_were_refused_are_no_chunk_any_more_once_somebody_has_looked() {
    let (mut world, slow) = world();
    slow.set(|state| state.is_quick = true);
    let has_gathered = |world: &World| world.files.wait_for_chunk(Duration::ZERO);
    world.create(ROOT, "file", FileType::File);
    world.files.keep_pace(CHUNK_BYTES);
    assert!(has_gathered(&world));
    world.files.sync_all().unwrap();
    assert!(!has_gathered(&world) && slow.state.lock().batches == 1);
    world.files.keep_pace(CHUNK_BYTES);
    world.files.sync_all().unwrap();
    assert!(!has_gathered(&world) && slow.state.lock().batches == 1);
}

#[test]
fn much_that_has_gathered_is_durable_here_before_the_batch_before_it_is_complete() {
    let (mut world, slow) = world();
    world.files.set_acknowledges_alone(false);
    world.create(ROOT, "first", FileType::File);
    let files = Arc::clone(&world.files);
    std::thread::scope(|scope| {
        let _release = Release(&slow);
        scope.spawn(|| files.sync_all());
        slow.wait_until_it_has(1);
        let second = world.create(ROOT, "second", FileType::File);
        world.files.keep_pace(GATHERED);
        let (begun, files) = (Instant::now(), &files);
        let waiting = scope.spawn(move || files.sync(second));
        while find(&crashed(&world), "second").is_none() {
            assert!(begun.elapsed() < LIMIT, "the first batch holds it up");
        }
        assert!(!waiting.is_finished(), "the successor does not have it");
        slow.set(|state| state.is_quick = true);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(slow.state.lock().batches, 2);
}

#[test]
fn an_acknowledgement_waits_for_the_successor_unless_it_is_told_not_to() {
    let (mut world, slow) = world();
    world.files.set_acknowledges_alone(false);
    slow.set(|state| state.is_quick = true);
    let file = world.create(ROOT, "file", FileType::File);
    world.files.acknowledge(file).unwrap();
    assert_eq!(slow.state.lock().batches, 1);
    world.write(file, 0, b"more");
    world.files.acknowledge_all().unwrap();
    assert_eq!(slow.state.lock().batches, 2);
}

#[test]
fn nothing_is_acknowledged_behind_a_batch_that_never_becomes_durable() {
    for waits in [true, false] {
        let (mut world, slow) = world();
        slow.set(|state| state.is_gone = true);
        let file = world.create(ROOT, "file", FileType::File);
        let outcome = if waits { world.files.sync_all() } else { world.files.advance().map(drop) };
        assert!(matches!(outcome, Err(FsError::Heap(HeapError::Alone { .. }))), "{outcome:?}");
        // What was durable here before the other machine took over is: an acknowledgement says no more.
        world.files.acknowledge(file).unwrap();
        let change = Operation::Release { number: file };
        assert!(world.files.execute(1000, &change).is_err(), "another machine takes writes");
    }
}

#[test]
fn nothing_is_sent_before_somebody_asks_until_the_log_is_half_full() {
    let (mut world, slow) = world();
    world.files.set_acknowledges_alone(false);
    slow.set(|state| state.is_quick = true);
    world.files.set_sends_when_asked(true);
    let step = |world: &mut World| {
        world.publisher.set_waits_to_be_asked(world.files.publishing_waits_to_be_asked());
        (world.publisher.step().unwrap().operations, slow.state.lock().batches)
    };
    let file = world.create(ROOT, "file", FileType::File);
    world.write(file, 0, b"bytes");
    assert_eq!(step(&mut world), (0, 0));
    world.files.acknowledge(file).unwrap();
    let (published, batches) = step(&mut world);
    assert!(published >= 2 && batches == 1, "{published}, {batches}");
    while world.files.publishing_waits_to_be_asked() {
        world.write(file, 0, b"others");
        if world.files.log_len().0 == 1 {
            assert_eq!(step(&mut world), (0, 1));
        }
    }
    let (published, batches) = step(&mut world);
    assert!(
        published > 1000 && batches > 1,
        "a full log would keep programs waiting: {published}, {batches}"
    );
    world.files.set_sends_when_asked(false);
    world.write(file, 0, b"again");
    assert!(step(&mut world).0 > 0);
}

#[test]
fn much_is_done_without_a_wait_while_the_successor_acknowledges_nothing() {
    const OPERATIONS: u32 = 20_000;
    let (mut world, slow) = world();
    world.files.set_acknowledges_alone(false);
    world.create(ROOT, "file", FileType::File);
    let file = find(&world, "file").unwrap();
    let files = Arc::clone(&world.files);
    let mut rooms = 0;
    std::thread::scope(|scope| {
        let _release = Release(&slow);
        let replicates = scope.spawn(move || files.sync_all());
        slow.wait_until_it_has(1);
        for round in 0..OPERATIONS {
            let bits = 0o600 + round % 8;
            let change = Operation::SetAttributes {
                number: file,
                attributes: Attributes { permissions: Some(bits), ..Attributes::default() },
            };
            while let Err(error) = world.files.execute(1000 + i64::from(round), &change) {
                assert!(matches!(error, FsError::Wait(Until::Commit)), "{error}");
                world.files.make_slab_room().unwrap();
                rooms += 1;
            }
        }
        assert!(rooms >= 2, "more than two slabs");
        assert!(!replicates.is_finished() && slow.state.lock().batches == 1);
        world.files.make_slab_room().unwrap();
        assert_eq!(crashed(&world).view(), world.view());
        slow.set(|state| state.is_quick = true);
        replicates.join().unwrap().unwrap();
    });
    world.files.sync_all().unwrap();
    assert_eq!(slow.state.lock().batches, 2);
    while world.publisher.step().unwrap().operations > 0 {}
    let view = world.view();
    assert_eq!(crashed(&world).view(), view);
}
