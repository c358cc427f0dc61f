//! Small traces with a crash after every single operation on the medium. If few lines are pending, every subset of them
//! is tried. If many are pending, samples of subsets and of torn lines are tried.
#![allow(clippy::print_stdout, reason = "the result includes how many images were tried")]

mod common;

use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_media::Media;
use landfall_media::sim::{CrashImage, CrashState, SimMedia};
use landfall_sim::{Op, Oracle, Piece, Setup, Violation, World, Write};
use std::collections::BTreeSet;
use std::sync::Arc;

const SETUP: Setup =
    Setup { runs: 32, writers: 1, deferred: false, sums: false, group_max: GROUP_RECORDS_MAX };
const NOW_MS: u64 = 1_000;
/// Most pending lines of which every subset is tried.
const LINES_MAX: usize = 6;
/// Number of sampled images of every state, which may have torn lines.
const SAMPLES: u64 = 1;

fn set(key: usize, len: usize) -> Op {
    Op::Set { writer: 0, key, value: Piece { len, seed: key as u64 + len as u64 * 100 }, ttl_ms: 0 }
}

fn delete(key: usize) -> Op {
    Op::Delete { writer: 0, key }
}

const COMMIT: Op = Op::Commit { writer: 0 };
const COMPACT_DATA: Op = Op::Compact { budget: 1 << 20, slabs: false };
const COMPACT_SLABS: Op = Op::Compact { budget: 1 << 20, slabs: true };

#[test]
fn set_overwrite_and_delete_survive_a_crash_at_every_operation() {
    every_crash(&[], &[set(1, 10), COMMIT, set(1, 100), set(2, 5), COMMIT, delete(1), COMMIT]);
}

#[test]
fn a_group_survives_a_crash_at_every_operation_whole_or_not_at_all() {
    let writes = vec![
        Write { key: 1, value: None },
        Write { key: 2, value: Some(Piece { len: 30, seed: 1 }) },
        Write { key: 3, value: Some(Piece { len: 5, seed: 2 }) },
    ];
    every_crash(&[set(1, 10), COMMIT], &[Op::Group { writer: 0, writes }, COMMIT, set(1, 3), COMMIT]);
}

#[test]
fn a_flush_of_everything_survives_a_crash_at_every_operation() {
    let before = [set(1, 10), set(2, 2000), COMMIT];
    every_crash(&before, &[set(3, 9), Op::FlushAll { writer: 0 }, set(1, 11), COMMIT, delete(1), COMMIT]);
}

#[test]
fn compaction_of_data_survives_a_crash_at_every_operation() {
    let before = [set(1, 900), set(2, 700_000), set(3, 400_000), delete(2), COMMIT];
    restarted(&before, &[COMPACT_DATA, COMPACT_DATA, set(3, 4), COMMIT, COMPACT_DATA]);
}

#[test]
fn compaction_of_shared_data_survives_a_crash_at_every_operation() {
    let copy = |from, to| Op::Copy { writer: 0, from, to };
    let before = [set(1, 900), set(2, 700_000), set(3, 400_000), copy(1, 4), copy(4, 5), delete(2), COMMIT];
    restarted(&before, &[COMPACT_DATA, copy(5, 6), COMMIT, delete(1), COMMIT, COMPACT_DATA, COMPACT_DATA]);
}

#[test]
fn changes_of_parts_of_long_values_survive_a_crash_at_every_operation() {
    let patch =
        |key, len, at| Op::Patch { writer: 0, key, value: Piece { len, seed: len as u64 * 6 + 1 }, at };
    let copy = Op::Copy { writer: 0, from: 1, to: 4 };
    let before = [set(1, 300_000), set(2, 600_000), copy, delete(2), COMMIT];
    let changes = [patch(1, 10, None), patch(1, 30, Some(70_000)), COMMIT, patch(4, 5000, Some(9)), COMMIT];
    restarted(&before, &[&changes[..], &[COMPACT_DATA, patch(1, 9, None), COMMIT, COMPACT_DATA]].concat());
}

#[test]
fn cleaning_a_slab_with_tombstones_survives_a_crash_at_every_operation() {
    let before = [set(1, 10), set(2, 20), set(5, 100), delete(1), COMMIT];
    restarted(&before, &[COMPACT_SLABS, COMPACT_SLABS, Op::PrepareSlab, set(2, 7), COMMIT, COMPACT_SLABS]);
}

#[test]
fn a_region_is_empty_and_whole_or_refused_after_a_crash_while_it_is_created_or_grown() {
    let total = {
        let media = SimMedia::new(32 << 20, Default::default());
        create_and_grow(&media).expect("nothing fails");
        media.ops().total()
    };
    for index in 1..=total {
        let media = SimMedia::new(32 << 20, Default::default());
        media.freeze_at(index);
        create_and_grow(&media).expect("nothing fails");
        let state = media.frozen().expect("the operation was reached");
        for image in images(&state, index) {
            check_new_region(image, index);
        }
    }
}

fn create_and_grow(media: &Arc<SimMedia>) -> Result<(), Violation> {
    let new = landfall_heap::NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 };
    landfall_heap::create(&**media, &new)?;
    media.grow(40 << 20)?;
    landfall_sim::recover(&(Arc::clone(media) as Arc<dyn Media>)).map(|_| ())
}

/// A region whose creation was interrupted may be refused. One that opens must be empty and usable.
fn check_new_region(image: CrashImage, index: u64) {
    use landfall_heap::HeapError::{NotARegion, SuperblockDamaged};
    let media = common::medium(image);
    let engine = match common::try_reopen(&media) {
        Ok((engine, _)) => engine,
        Err(landfall_kv::KvError::Heap(NotARegion | SuperblockDamaged)) => return,
        Err(error) => panic!("operation {index}: {error:?}"),
    };
    let mut writer = landfall_heap::Writer::new(Arc::clone(engine.heap()), 0);
    assert!(engine.count(0).ungated() == 0, "operation {index}: the region is not empty");
    common::set(&engine, &mut writer, b"key", b"value");
    writer.commit_now().expect("commits");
    assert_eq!(
        common::get(&common::medium(media.crash_state().durable()), b"key").expect("opens"),
        Some(b"value".to_vec())
    );
}

// ---- crashing ----

/// Runs `before`, then `ops`, with a crash after every operation that `ops` make on the medium.
fn every_crash(before: &[Op], ops: &[Op]) {
    over(ops, || {
        let mut world = World::create(SETUP, |_| {})?;
        world.run_all(before).map(|()| world)
    });
}

/// Runs `before`, restarts, so that no writer has a slab open, and then runs `ops` like [`every_crash`].
fn restarted(before: &[Op], ops: &[Op]) {
    let mut world = World::create(SETUP, |_| {}).expect("a new region");
    world.run_all(before).expect("nothing fails");
    let image = world.media.crash_state().durable();
    let mut oracle: Oracle = world.oracle.clone();
    oracle.collapse(&world.oracle.newest(NOW_MS));
    over(ops, || World::open(SETUP, world.medium(&image), oracle.clone(), NOW_MS));
}

fn over(ops: &[Op], start: impl Fn() -> Result<World, Violation>) {
    let mut seen = BTreeSet::new();
    let mut index = 0;
    let mut judged = 0;
    loop {
        let mut world = start().expect("the beginning");
        let first = world.media.ops().total();
        index = index.max(first) + 1;
        world.media.freeze_at(index);
        let mut ops = ops.iter();
        while world.media.frozen().is_none() {
            let Some(op) = ops.next() else {
                println!("{} operations, {judged} different images", index - first - 1);
                return;
            };
            world.run(op).expect("nothing fails");
        }
        let state = world.media.frozen().expect("it was frozen before");
        for image in images(&state, index).filter(|image| seen.insert(fingerprint(image))) {
            judge(&world, &image)
                .unwrap_or_else(|violation| panic!("operation {}: {violation}", index - first));
            judged += 1;
        }
    }
}

fn judge(world: &World, image: &CrashImage) -> Result<(), Violation> {
    let engine = landfall_sim::recover(&(world.medium(image) as Arc<dyn Media>))?;
    let found = landfall_sim::observe(&engine, NOW_MS)?;
    world.oracle.judge(&found, NOW_MS)?;
    landfall_sim::recount(&engine, 0)
}

fn images(state: &CrashState, seed: u64) -> impl Iterator<Item = CrashImage> {
    let all = state.crash_images_exhaustive(LINES_MAX);
    let state = state.clone();
    let samples = (0..SAMPLES).map(move |sample| state.draw(seed * 1000 + sample));
    all.into_iter().flatten().chain(samples)
}

/// A hash that tells images apart, so that none is judged twice: most images are the same after the next operation.
fn fingerprint(image: &CrashImage) -> u64 {
    image.stored().fold(7, |sum, (off, bytes)| xxhash_rust::xxh3::xxh3_64_with_seed(bytes, sum ^ off))
}
