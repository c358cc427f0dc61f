//! Tests with a failing store, for every store of a trace of two writers, with groups or transactions. A file's store fails
//! where the run must be read first and cannot be. The region stays open: what was refused has no effect, and everything
//! else goes on. A restart finds all acknowledged operations and nothing of what was refused.
#![allow(clippy::print_stdout, reason = "the result includes how many stores were tried")]

mod common;

use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_media::Media;
use landfall_sim::{Op, Piece, Setup, World, Write};
use std::sync::Arc;

const NOW_MS: u64 = 1_000;

#[test]
fn a_store_that_fails_is_reported_and_what_was_refused_has_no_effect() {
    for (deferred, group_max) in
        [(false, GROUP_RECORDS_MAX), (true, GROUP_RECORDS_MAX), (false, 1), (true, 1)]
    {
        let setup = Setup { runs: 32, writers: 2, deferred, sums: false, group_max };
        let (mut tried, mut refused) = (0, 0);
        while let Some(was_refused) = fail_store(setup, tried + 1) {
            (tried, refused) = (tried + 1, refused + u64::from(was_refused));
        }
        println!("{setup:?}: {tried} stores failed in turn, {refused} operations were refused");
        assert!(tried > 30 && refused > 20, "the trace has more stores than {tried}, {refused}");
    }
}

fn trace() -> Vec<Op> {
    let piece = |key: usize, len: usize| Piece { len, seed: (key * 7 + len) as u64 };
    let set = |writer, key, len| Op::Set { writer, key, value: piece(key, len), ttl_ms: 0 };
    let group = |writer, keys: [usize; 3], len| {
        let write = |key| Write { key, value: (key != 2).then(|| piece(key, len)) };
        Op::Group { writer, writes: keys.map(write).to_vec() }
    };
    vec![
        set(0, 1, 10),
        set(1, 2, 3000),
        Op::BeginCommit { writer: 0 },
        // Keys of several frames, and values beside records.
        set(0, 6, 400_000),
        set(1, 4, 20),
        group(1, [5, 2, 7], 600),
        Op::FinishCommit { writer: 0 },
        Op::Delete { writer: 0, key: 1 },
        group(0, [1, 3, 8], 30),
        set(1, 4, 500_000),
        Op::Commit { writer: 0 },
        Op::Commit { writer: 1 },
        Op::Mark,
        Op::Extend { writer: 0, key: 3, value: piece(3, 40) },
        Op::Copy { writer: 1, from: 4, to: 9 },
        Op::Patch { writer: 1, key: 4, value: Piece { len: 300, seed: 1 }, at: Some(5000) },
        set(1, 4, 5),
        Op::Commit { writer: 1 },
        Op::Compact { budget: 1 << 20, slabs: false },
        Op::Compact { budget: 1 << 20, slabs: true },
        Op::PrepareSlab,
        Op::FlushAll { writer: 0 },
        Op::Commit { writer: 0 },
        group(1, [1, 5, 6], 70),
        set(0, 7, 5),
        Op::Compact { budget: 1 << 20, slabs: true },
    ]
}

/// Runs the trace with one store that fails. True if an operation was refused for it; `None` if the trace has fewer stores.
fn fail_store(setup: Setup, store: u64) -> Option<bool> {
    let mut world = World::create(setup, |_| {}).expect("a new region");
    let chosen = world.media.ops().stores + store;
    world.media.fail_store_at(chosen);
    let mut was_refused = false;
    for op in trace() {
        let is_due = world.media.ops().stores < chosen;
        let done = world.run(&op);
        let has_failed = is_due && world.media.ops().stores >= chosen;
        if let Err(violation) = done {
            assert!(has_failed, "store {store}, {setup:?}: {violation}");
            was_refused = true;
        }
        if has_failed {
            check(&world, store, &op);
        }
    }
    if world.media.ops().stores < chosen {
        return None;
    }
    assert_eq!(world.media.closed(), None, "store {store}: nothing was to become durable with it");
    world.commit_all().unwrap_or_else(|violation| panic!("store {store}: {violation}"));
    check(&world, store, &Op::Check);
    world.recount().unwrap_or_else(|violation| panic!("store {store} of {setup:?} leaks: {violation}"));
    Some(was_refused)
}

/// Neither the engine nor a restart shows anything else than what was done.
fn check(world: &World, store: u64, op: &Op) {
    let context = || format!("store {store} of {:?}, at {op:?}", world.setup());
    world.check().unwrap_or_else(|violation| panic!("{}: {violation}", context()));
    let state = world.media.crash_state();
    let images = std::iter::once(state.durable()).chain((0..3).map(|seed| state.draw(seed * 1000 + store)));
    for image in images {
        let media = world.medium(&image) as Arc<dyn Media>;
        let found = landfall_sim::recover(&media).and_then(|engine| landfall_sim::observe(&engine, NOW_MS));
        let judged = found.and_then(|found| world.oracle.judge(&found, NOW_MS));
        judged.unwrap_or_else(|violation| panic!("{}: {violation}", context()));
    }
}
