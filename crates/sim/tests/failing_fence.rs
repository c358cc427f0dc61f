//! Tests with a failing fence, for every fence of a trace. After the failure, no write is acknowledged, no read returns
//! what is not durable, and the region accepts no writes. A restart finds all acknowledged operations.
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
        let mut failed = 0;
        for fence in 1.. {
            let world = run_until_failure(deferred, fence);
            let Some(world) = world else { break };
            check_closed(&world);
            check_restart(&world, fence);
            failed += 1;
        }
        println!("deferred {deferred}: {failed} fences failed in turn");
        assert!(failed > 12, "the trace has more fences than {failed}");
    }
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

/// The world at the moment of the failure; `None` if the trace has fewer fences.
fn run_until_failure(deferred: bool, fence: u64) -> Option<World> {
    let setup = Setup { runs: 32, writers: 1, deferred, sums: false, group_max: GROUP_RECORDS_MAX };
    let mut world = World::create(setup, |_| {}).expect("a new region");
    world.media.fail_at(world.media.ops().fences + fence);
    for op in trace().into_iter().filter(|op| deferred || !matches!(op, Op::BeginCommit { .. })) {
        match world.run(&op) {
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
