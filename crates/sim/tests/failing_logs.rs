//! Tests with a failing fence or a failing store, for every one of a trace of two writers of logs. A failed fence closes the
//! region: nothing is acknowledged after it. A failed store leaves it open: what was refused has no effect. A restart finds
//! all acknowledged entries, no log with a gap, and no group in part.
#![allow(clippy::print_stdout, reason = "the result includes how many operations failed")]

use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_media::Media;
use landfall_sim::{LogOp, Piece, Setup, Violation, WalWorld};
use landfall_wal::Settings;

#[test]
fn a_fence_that_fails_closes_the_region_and_no_acknowledged_entry_is_lost() {
    for deferred in [false, true] {
        let failed = (1..).take_while(|fence| fail_fence(setup(deferred), *fence)).count();
        println!("deferred {deferred}: {failed} fences failed in turn");
        assert!(failed > 10, "the trace has more fences than {failed}");
    }
}

#[test]
fn a_store_that_fails_is_reported_and_what_was_refused_is_in_no_log() {
    for deferred in [false, true] {
        let (mut tried, mut refused) = (0, 0);
        while let Some(was_refused) = fail_store(setup(deferred), tried + 1) {
            (tried, refused) = (tried + 1, refused + u64::from(was_refused));
        }
        println!("deferred {deferred}: {tried} stores failed in turn, {refused} operations were refused");
        assert!(tried > 30 && refused > 20, "the trace has more stores than {tried}, {refused}");
    }
}

fn setup(deferred: bool) -> Setup {
    Setup { runs: 32, writers: 2, deferred, sums: false, group_max: GROUP_RECORDS_MAX }
}

fn trace(deferred: bool) -> Vec<LogOp> {
    let piece = |len| Piece { len, seed: len as u64 };
    let append = |writer, log, lens: &[usize]| {
        let values = lens.iter().map(|len| piece(*len)).collect();
        LogOp::Append { writer, log, values }
    };
    let ops = vec![
        append(0, 0, &[10]),
        append(1, 1, &[3000]),
        LogOp::BeginCommit { writer: 0 },
        append(0, 0, &[20, 700, 30]),
        append(1, 0, &[400_000]),
        LogOp::FinishCommit { writer: 0 },
        LogOp::Check,
        LogOp::Commit { writer: 0 },
        LogOp::Position { writer: 0, log: 0, consumer: 0, deletes: false },
        LogOp::Trim { writer: 0, log: 0, eighths: 4 },
        LogOp::Commit { writer: 1 },
        LogOp::Land { writer: 1, log: 2, value: piece(5000) },
        LogOp::Delete { writer: 0, log: 1 },
        LogOp::Settings {
            writer: 1,
            log: 0,
            settings: Settings { retain_entries: 2, ..Settings::default() },
        },
        LogOp::Commit { writer: 0 },
        LogOp::Commit { writer: 1 },
        append(1, 0, &[60, 61]),
        LogOp::Retain { writer: 0 },
        LogOp::Commit { writer: 0 },
        LogOp::Sweep { limit: 60 },
        LogOp::Engine { writer: 1, value: Some(piece(900)) },
        LogOp::Mark,
        LogOp::Compact { slabs: false },
        LogOp::Compact { slabs: true },
        append(0, 1, &[5]),
        LogOp::BeginCommit { writer: 1 },
        LogOp::Position { writer: 0, log: 0, consumer: 0, deletes: true },
        LogOp::Commit { writer: 0 },
        LogOp::Commit { writer: 1 },
        LogOp::Check,
    ];
    ops.into_iter().filter(|op| deferred || !matches!(op, LogOp::BeginCommit { .. })).collect()
}

/// Runs the trace until a fence fails. False if the trace has fewer.
fn fail_fence(setup: Setup, fence: u64) -> bool {
    let mut world = WalWorld::create(setup, |_| {}).expect("a new region");
    world.media.fail_at(world.media.ops().fences + fence);
    let failed =
        trace(setup.deferred).into_iter().find_map(|op| world.run(&op).err().map(|error| (op, error)));
    let Some((op, error)) = failed else {
        assert_eq!(world.media.closed(), None, "the failure of fence {fence} was not reported");
        return false;
    };
    let context = format!("fence {fence}, {setup:?}, at {op:?}");
    assert!(world.media.closed().is_some(), "{context}: {error}");
    // What is shown lies between what was acknowledged and everything.
    world.run(&LogOp::Check).unwrap_or_else(|violation| panic!("{context}: {violation}"));
    judge(&world, &context, fence);
    let late = LogOp::Append { writer: 1, log: 3, values: vec![Piece { len: 9, seed: 1 }] };
    let acknowledged = world.run(&late).and_then(|()| world.run(&LogOp::Commit { writer: 1 }));
    assert!(acknowledged.is_err(), "{context}: a closed region has acknowledged an entry");
    true
}

/// Runs the trace with one store that fails. True if an operation was refused for it; `None` if the trace has fewer stores.
fn fail_store(setup: Setup, store: u64) -> Option<bool> {
    let mut world = WalWorld::create(setup, |_| {}).expect("a new region");
    let chosen = world.media.ops().stores + store;
    world.media.fail_store_at(chosen);
    let mut was_refused = false;
    for op in trace(setup.deferred) {
        let is_due = world.media.ops().stores < chosen;
        let done = world.run(&op);
        let has_failed = is_due && world.media.ops().stores >= chosen;
        let context = format!("store {store}, {setup:?}, at {op:?}");
        if let Err(violation) = done {
            assert!(has_failed, "{context}: {violation}");
            was_refused = true;
        }
        if has_failed {
            world.run(&LogOp::Check).unwrap_or_else(|violation| panic!("{context}: {violation}"));
            judge(&world, &context, store);
        }
    }
    if world.media.ops().stores < chosen {
        return None;
    }
    let context = format!("store {store}, {setup:?}, at the end");
    assert_eq!(world.media.closed(), None, "{context}: nothing was to become durable with it");
    let whole = |world: &mut WalWorld| -> Result<(), Violation> {
        world.commit_all()?;
        world.check()
    };
    whole(&mut world).unwrap_or_else(|violation| panic!("{context}: {violation}"));
    judge(&world, &context, store);
    Some(was_refused)
}

/// Judges what several crashes at this moment leave.
fn judge(world: &WalWorld, context: &str, number: u64) {
    let state = world.media.crash_state();
    let images = std::iter::once(state.durable()).chain((0..3).map(|seed| state.draw(seed * 1000 + number)));
    for image in images {
        world.judge(&image).unwrap_or_else(|violation| panic!("{context}: {violation}"));
    }
}
