//! Tests with a failing fence, for every fence of a trace: of one writer, and of two that write transactions. After the
//! failure, no write is acknowledged, no read returns what is not durable, and the region accepts no writes. A restart finds
//! all acknowledged operations.
#![allow(clippy::print_stdout, reason = "the result includes how many fences were tried")]

mod common;

use landfall_heap::Writer;
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_kv::KvError;
use landfall_media::Media;
use landfall_media::sim::CrashImage;
use landfall_sim::{Key, Op, Piece, Setup, Violation, World, Write, key};
use std::sync::Arc;

const NOW_MS: u64 = 1_000;
const KEYS: usize = 8;

#[test]
fn a_failed_fence_closes_the_region_and_loses_nothing_that_was_acknowledged() {
    for deferred in [false, true] {
        let setup = Setup { runs: 32, writers: 1, deferred, sums: false, group_max: GROUP_RECORDS_MAX };
        fail_each_fence(setup, &trace(), check_closed);
    }
}

#[test]
fn a_fence_that_fails_under_two_writers_and_their_transactions_loses_nothing_that_was_acknowledged() {
    for deferred in [false, true] {
        let setup = Setup { runs: 32, writers: 2, deferred, sums: false, group_max: 1 };
        fail_each_fence(setup, &trace_of_two_writers(), check_reads_survive);
    }
}

fn fail_each_fence(setup: Setup, trace: &[Op], check: fn(&World)) {
    let mut failed = 0;
    for fence in 1.. {
        let world = run_until_failure(setup, trace, fence);
        let Some(world) = world else { break };
        check(&world);
        check_refuses(&world);
        check_restart(&world, fence);
        failed += 1;
    }
    println!("{setup:?}: {failed} fences failed in turn");
    assert!(failed > 12, "the trace has more fences than {failed}");
}

fn trace() -> Vec<Op> {
    let set = |key, len| Op::Set {
        writer: 0,
        key,
        value: Piece { len, seed: key as u64 * 7 + len as u64 },
        ttl_ms: 0,
    };
    let commit = || Op::Commit { writer: 0 };
    let group = vec![Write { key: 4, value: Some(Piece { len: 9, seed: 1 }) }, Write { key: 2, value: None }];
    vec![
        set(1, 10),
        set(2, 3000),
        commit(),
        set(1, 700_000),
        set(3, 400_000),
        Op::BeginCommit { writer: 0 },
        set(6, 20),
        Op::Delete { writer: 0, key: 1 },
        commit(),
        Op::Mark,
        Op::Group { writer: 0, writes: group },
        commit(),
        Op::Compact { budget: 1 << 20, slabs: false },
        Op::Compact { budget: 1 << 20, slabs: true },
        Op::PrepareSlab,
        set(5, 50),
        commit(),
        Op::FlushAll { writer: 0 },
        set(7, 5),
        commit(),
    ]
}

/// Two writers, each with batches under way beside transactions of the other, which are durable when they return.
fn trace_of_two_writers() -> Vec<Op> {
    let piece = |key: usize, len: usize| Piece { len, seed: (key * 7 + len) as u64 };
    let set = |writer, key, len| Op::Set { writer, key, value: piece(key, len), ttl_ms: 0 };
    let transaction = |writer, keys: [usize; 3], len| {
        let write = |key| Write { key, value: Some(piece(key, len)) };
        Op::Group { writer, writes: keys.map(write).to_vec() }
    };
    vec![
        set(0, 1, 10),
        set(1, 2, 3000),
        Op::BeginCommit { writer: 0 },
        set(0, 3, 400_000),
        set(1, 4, 20),
        transaction(1, [5, 6, 7], 30),
        Op::FinishCommit { writer: 0 },
        Op::Delete { writer: 0, key: 1 },
        transaction(0, [1, 2, 3], 900),
        set(1, 4, 700_000),
        Op::BeginCommit { writer: 1 },
        transaction(0, [5, 6, 7], 2),
        Op::FinishCommit { writer: 1 },
        Op::Mark,
        set(1, 4, 5),
        Op::Compact { budget: 1 << 20, slabs: false },
        Op::Compact { budget: 1 << 20, slabs: true },
        Op::PrepareSlab,
        Op::FlushAll { writer: 0 },
        Op::Commit { writer: 0 },
        transaction(1, [1, 5, 6], 70),
        set(0, 7, 5),
        Op::Commit { writer: 0 },
        Op::Commit { writer: 1 },
    ]
}

/// The world at the moment of the failure; `None` if the trace has fewer fences.
fn run_until_failure(setup: Setup, trace: &[Op], fence: u64) -> Option<World> {
    let mut world = World::create(setup, |_| {}).expect("a new region");
    world.media.fail_at(world.media.ops().fences + fence);
    for op in trace.iter().filter(|op| setup.deferred || !matches!(op, Op::BeginCommit { .. })) {
        match world.run(op) {
            Ok(()) => {}
            Err(_) if world.media.closed().is_some() => return Some(world),
            Err(violation) => panic!("fence {fence}: {violation}"),
        }
    }
    assert!(world.media.closed().is_none(), "the failure of fence {fence} was not reported");
    None
}

fn check_closed(world: &World) {
    let (newest, acknowledged) = (world.oracle.newest(NOW_MS), world.oracle.acknowledged(NOW_MS));
    let keys: Vec<Key> = (0..KEYS).map(key).collect();
    for key in &keys {
        match world.engine.get(key.space, &key.bytes, NOW_MS) {
            Ok(item) => {
                let found = item.ungated().map(|item| item.to_vec().expect("reads"));
                let wanted = acknowledged.get(key).map(|value| value.bytes.to_vec());
                assert_eq!(found, wanted, "{key:?} returns what a crash would undo");
            }
            Err(KvError::NotDurable) => {
                // A key may be absent because of a flush that never became durable.
                let may_refuse = !acknowledged.contains_key(key) || acknowledged.get(key) != newest.get(key);
                assert!(may_refuse, "{key:?} is durable, and its read is refused");
            }
            Err(error) => panic!("{key:?}: {error:?}"),
        }
    }
}

/// What is read after the failure is what a restart finds that has lost everything that was not durable.
fn check_reads_survive(world: &World) {
    let durable = world.medium(&world.media.crash_state().durable());
    let restarted = landfall_sim::recover(&(durable as Arc<dyn Media>)).expect("recovers");
    for key in (0..KEYS).map(key) {
        let shown = match world.engine.get(key.space, &key.bytes, NOW_MS) {
            Ok(item) => item.if_durable(world.engine.heap()),
            Err(KvError::NotDurable) => continue,
            Err(error) => panic!("{key:?}: {error:?}"),
        };
        // What is not durable yet never becomes it, and no client is told of it.
        let Ok(shown) = shown else { continue };
        let shown = shown.map(|item| item.to_vec().expect("reads"));
        let found = restarted.get(key.space, &key.bytes, NOW_MS).expect("recovered").ungated();
        let found = found.map(|item| item.to_vec().expect("reads"));
        assert!(shown == found, "{key:?} returns what a crash would undo");
    }
}

fn check_refuses(world: &World) {
    let mut writer = Writer::new(Arc::clone(world.engine.heap()), 9);
    let request = landfall_kv::SetRequest {
        space: 0,
        key: b"late",
        key_at: None,
        value: landfall_heap::Source::Bytes(b"late"),
        expiry_ms: 0,
        arrival_ns: 1,
    };
    let late = world.engine.set(&mut writer, &request).map(|_| writer.commit_now());
    assert!(!matches!(late, Ok(Ok(()))), "a closed region has acknowledged a write");
}

fn check_restart(world: &World, fence: u64) {
    for seed in 0..3 {
        let image = world.media.crash_state().draw(seed * 100 + fence);
        judge(world, &image).unwrap_or_else(|violation| panic!("fence {fence}: {violation}"));
    }
}

fn judge(world: &World, image: &CrashImage) -> Result<(), Violation> {
    let engine = landfall_sim::recover(&(world.medium(image) as Arc<dyn Media>))?;
    world.oracle.judge(&landfall_sim::observe(&engine, NOW_MS)?, NOW_MS)
}
