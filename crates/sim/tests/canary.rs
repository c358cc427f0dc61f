//! The canary: with any one flush or fence left out, a check must fail. If no check fails, either the checks miss the
//! fault, or the protocol does not need the step.
#![allow(clippy::print_stdout, reason = "the result names the check that caught each fault")]

mod common;

use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_media::sim::{CrashImage, SimMedia};
use landfall_media::{Extent, LINE_SIZE, Media, RUN_SIZE, Site};
use landfall_sim::{Campaign, Op, Oracle, Piece, Plan, Setup, Violation, World, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Most seeds that may pass before a fault is caught.
const SEEDS_MAX: u64 = 10;
const SETUP: Setup =
    Setup { runs: 32, writers: 2, deferred: false, sums: false, group_max: GROUP_RECORDS_MAX };
const NOW_MS: u64 = 1_000;
const COMPACT_DATA: Op = Op::Compact { budget: 1 << 20, slabs: false };
const COMPACT_SLABS: Op = Op::Compact { budget: 1 << 20, slabs: true };

/// A trace for the sites that random workloads seldom depend on.
type Trace = fn(Option<Site>) -> Result<(), Violation>;

const TRACES: [(&str, Trace); 7] = [
    ("a crash after a commit", commit),
    ("a crash after a transaction", transaction),
    ("data over bytes that have the same sum", order),
    ("records that recovery rejected stay rejected", erase),
    ("a run that was a slab becomes a slab again", reuse_slab),
    ("moved data, with the old place reused", move_data),
    ("moved records, with the old slab reused", move_records),
];

#[test]
fn traces_pass_where_nothing_is_left_out() {
    for (name, trace) in TRACES {
        trace(None).unwrap_or_else(|violation| panic!("{name}: {violation}"));
    }
}

#[test]
fn every_flush_and_every_fence_left_out_is_caught() {
    let mut survivors = Vec::new();
    for site in Site::ALL {
        match caught_by(site) {
            Some(by) => println!("{site:?}: caught by {by}"),
            None => survivors.push(site),
        }
    }
    assert!(survivors.is_empty(), "no check fails if these are left out: {survivors:?}");
}

fn caught_by(site: Site) -> Option<String> {
    let fails =
        |run: &dyn Fn() -> Result<(), Violation>| !matches!(catch_unwind(AssertUnwindSafe(run)), Ok(Ok(())));
    let trace = TRACES.iter().find(|(_, trace)| fails(&|| trace(Some(site))));
    let plan = Plan { crashes: 6, ops_max: 60, skip: Some(site) };
    let campaign = || (0..SEEDS_MAX).find(|seed| fails(&|| Campaign::run(*seed, plan).map(|_| ())));
    match trace {
        Some((name, _)) => Some(format!("the trace: {name}")),
        None => campaign().map(|seed| format!("the campaign of seed {seed}")),
    }
}

// ---- traces ----

fn world(skip: Option<Site>) -> Result<World, Violation> {
    World::create(SETUP, |media| skip_site(media, skip))
}

fn skip_site(media: &SimMedia, skip: Option<Site>) {
    skip.into_iter().for_each(|site| media.skip_site(site));
}

fn set(writer: usize, key: usize, len: usize) -> Op {
    Op::Set { writer, key, value: Piece { len, seed: key as u64 * 1000 + len as u64 }, ttl_ms: 0 }
}

/// Crashes so that all pending lines are lost, recovers, judges, and continues.
fn crash(world: World, skip: Option<Site>) -> Result<World, Violation> {
    resume(&world, &world.media.crash_state().durable(), skip)
}

fn resume(world: &World, image: &CrashImage, skip: Option<Site>) -> Result<World, Violation> {
    let media = world.medium(image);
    skip_site(&media, skip);
    let mut oracle: Oracle = world.oracle.clone();
    let engine = landfall_sim::recover(&(Arc::clone(&media) as Arc<dyn Media>))?;
    let found = landfall_sim::observe(&engine, NOW_MS)?;
    oracle.judge(&found, NOW_MS)?;
    oracle.collapse(&found);
    drop(engine);
    World::open(SETUP, media, oracle, NOW_MS)
}

fn commit(skip: Option<Site>) -> Result<(), Violation> {
    let mut world = world(skip)?;
    let group = vec![Write { key: 3, value: Some(Piece { len: 9, seed: 1 }) }, Write { key: 1, value: None }];
    world.run_all(&[
        set(0, 1, 10),
        set(1, 2, 5000),
        Op::Commit { writer: 0 },
        Op::Group { writer: 0, writes: group },
    ])?;
    world.commit_all()?;
    crash(world, skip).map(|_| ())
}

/// A transaction is durable with the commit record, and not without its other records.
fn transaction(skip: Option<Site>) -> Result<(), Violation> {
    let setup = Setup { group_max: 1, ..SETUP };
    let mut world = World::create(setup, |media| skip_site(media, skip))?;
    let write = |key| Write { key, value: Some(Piece { len: 9, seed: 1 }) };
    world.run(&Op::Group { writer: 0, writes: [1, 2, 3].map(write).to_vec() })?;
    crash(world, skip).map(|_| ())
}

/// Two records are pending, and only the second one survives the crash. Recovery rejects it, because the first is
/// missing. Then the slot of the first is written again. If the second was not erased durably, it is valid again behind
/// the first.
fn erase(skip: Option<Site>) -> Result<(), Violation> {
    let mut world = world(None)?;
    world.run_all(&[set(0, 1, 10), Op::Commit { writer: 0 }])?;
    let known = pending_lines(&world);
    world.run(&set(0, 2, 11))?;
    let first = pending_lines(&world);
    world.run(&set(0, 3, 12))?;
    let second: Vec<u64> = pending_lines(&world).into_iter().filter(|line| !first.contains(line)).collect();
    assert!(known.is_empty() && !second.is_empty(), "the second record has lines of its own");
    let mut image = world.media.crash_state().durable_image();
    for line in second {
        let at = (line * LINE_SIZE) as usize;
        image[at..at + LINE_SIZE as usize]
            .copy_from_slice(world.media.bytes(Extent::new(line * LINE_SIZE, 64))?);
    }
    let mut world = resume(&world, &image.into(), skip)?;
    world.run_all(&[set(0, 4, 13), Op::Commit { writer: 0 }])?;
    crash(world, skip).map(|_| ())
}

/// A value lands over other bytes with the same sum, and only its record survives the crash.
fn order(skip: Option<Site>) -> Result<(), Violation> {
    const LEN: usize = 640;
    let setup = Setup { sums: true, ..SETUP };
    let mut world = World::create(setup, |media| skip_site(media, skip))?;
    let (name, piece) = (landfall_sim::key(1), Piece { len: LEN, seed: 5 });
    let heap = Arc::clone(world.engine.heap());
    let run = heap.take_landing_run().expect("a new region has room");
    let mut turned = landfall_sim::value(piece).to_vec();
    turned.chunks_exact_mut(4).for_each(|word| word.rotate_left(2));
    let at = Extent::new(run + name.bytes.len() as u64 + 3, LEN as u32);
    let mut dirty = landfall_media::Dirty::new();
    world.media.store(at.off, &turned)?;
    world.media.flush(&mut dirty, Site::MoveData, at);
    world.media.fence(&mut dirty, Site::MoveCommit)?;
    heap.retire_landing_run(run);
    drop(heap);
    world.run(&Op::Land { writer: 0, key: 1, value: piece, pieces: 1 })?;
    let mut image = world.media.crash_state().durable_image();
    let data = run / LINE_SIZE..(run + RUN_SIZE) / LINE_SIZE;
    let record: Vec<u64> = pending_lines(&world).into_iter().filter(|line| !data.contains(line)).collect();
    assert!(!record.is_empty(), "a record waits for its fence");
    for line in record {
        let at = Extent::new(line * LINE_SIZE, LINE_SIZE as u32);
        image[at.off as usize..at.end() as usize].copy_from_slice(world.media.bytes(at)?);
    }
    resume(&world, &image.into(), skip).map(|_| ())
}

/// Lines that differ between the image and the durable state.
fn pending_lines(world: &World) -> Vec<u64> {
    let durable = world.media.crash_state().durable_image();
    let differs = |line: &u64| {
        let at = line * LINE_SIZE;
        let stored = world.media.bytes(Extent::new(at, LINE_SIZE as u32)).expect("in bounds");
        durable[at as usize..][..LINE_SIZE as usize] != *stored
    };
    (0..world.media.len() / LINE_SIZE).filter(differs).collect()
}

/// Keys are written in one slab, and their tombstones in another. The first slab is freed and prepared again.
fn reuse_slab(skip: Option<Site>) -> Result<(), Violation> {
    let mut world = world(None)?;
    let keys = [1, 2, 3, 5];
    world.run_all(&keys.map(|key| set(0, key, 10)))?;
    world.commit_all()?;
    world.run_all(&keys.map(|key| Op::Delete { writer: 1, key }))?;
    world.commit_all()?;
    // A restart closes both slabs, so that the compactor may clean them.
    let mut world = crash(world, None)?;
    world.run_all(&[COMPACT_SLABS, COMPACT_SLABS])?;
    skip_site(&world.media, skip);
    for key in [6, 8, 9] {
        world.run_all(&[Op::PrepareSlab, set(key % 2, key, 10)])?;
        world.commit_all()?;
    }
    crash(world, skip).map(|_| ())
}

/// Values are moved because their neighbours are deleted. Then every free run is written.
fn move_data(skip: Option<Site>) -> Result<(), Violation> {
    let mut world = world(None)?;
    world.run_all(&[set(0, 1, 300_000), set(0, 2, 700_000), set(0, 3, 300_000), set(0, 5, 900_000)])?;
    world.run_all(&[Op::Delete { writer: 0, key: 2 }, Op::Commit { writer: 0 }])?;
    let mut world = crash(world, None)?;
    skip_site(&world.media, skip);
    compact_and_reuse(&mut world, &COMPACT_DATA)?;
    crash(world, skip).map(|_| ())
}

/// The records of a slab are moved because most of them are stale. Then every free run is written.
fn move_records(skip: Option<Site>) -> Result<(), Violation> {
    let mut world = world(None)?;
    world.run_all(&[set(0, 1, 10), set(0, 2, 2000), set(0, 3, 12)])?;
    world.run_all(&[set(0, 1, 11), Op::Commit { writer: 0 }])?;
    let mut world = crash(world, None)?;
    skip_site(&world.media, skip);
    compact_and_reuse(&mut world, &COMPACT_SLABS)?;
    crash(world, skip).map(|_| ())
}

/// Compacts, and overwrites the runs that became free.
fn compact_and_reuse(world: &mut World, compact: &Op) -> Result<(), Violation> {
    for round in 0..6 {
        world.run(compact)?;
        let free = world.engine.heap().runs().free_count();
        assert!(u64::from(free) * RUN_SIZE > 8 << 20, "the trace needs room");
        world.run_all(&[set(1, 10 + round % 3, 900_000), Op::Commit { writer: 1 }])?;
    }
    Ok(())
}
