//! Seeded campaigns of transactions of 1 to 5000 keys over two writers.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds; `LANDFALL_SIM_SEED=S` begins at S, and alone runs just S.

mod common;

use common::{create, medium, set, try_reopen};
use landfall_heap::{RECORD_SIZE, RunUse, SlotId, Writer};
use landfall_kv::{Engine, KvError, TxnKey};
use landfall_media::Site;
use landfall_media::sim::SimOptions;
use landfall_sim::{Op, Piece, Plan, Setup, TransactionCampaign, World};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 12;
/// Seeds that may pass before a lie is noticed.
const CANARY_SEEDS: u64 = 6;
const PLAN: Plan = Plan { crashes: 6, ops_max: 25, skip: None };

#[test]
fn transactions_of_up_to_5000_keys_are_found_whole_or_not_at_all() {
    let summaries = common::over_seeds("transactions", SEEDS, |seed| TransactionCampaign::run(seed, PLAN));
    if !common::seeds_are_chosen() {
        let sum =
            |part: fn(&landfall_sim::TransactionSummary) -> u64| summaries.iter().map(part).sum::<u64>();
        assert!(sum(|run| run.committed) > 200 && sum(|run| run.taken_back) > 50, "{summaries:?}");
        assert!(sum(|run| run.recovery_crashes) > 20 && sum(|run| run.moved) > 1000, "{summaries:?}");
        assert!(sum(|run| run.found_early) > 0, "no crash after a commit record: {summaries:?}");
        assert!(sum(|run| run.beside) > 0, "nothing beside a batch in flight: {summaries:?}");
    }
}

#[test]
fn a_transaction_whose_fences_are_left_out_is_caught() {
    for site in [Site::Transaction, Site::Commit, Site::Record, Site::Data] {
        let plan = Plan { skip: Some(site), ..PLAN };
        let fails = |seed: &u64| {
            !matches!(catch_unwind(AssertUnwindSafe(|| TransactionCampaign::run(*seed, plan))), Ok(Ok(_)))
        };
        assert!((0..CANARY_SEEDS).any(|seed| fails(&seed)), "{site:?} is left out, and nothing notices");
    }
}

#[test]
fn transactions_of_one_key_count_as_durable_where_every_transaction_is_the_heaps() {
    let setup = Setup { runs: 36, writers: 1, deferred: true, sums: false, group_max: 0 };
    let mut world = World::create(setup, |_| {}).expect("a new region");
    let piece = |len, seed| Piece { len, seed };
    let set = Op::Set { writer: 0, key: 0, value: piece(200_000, 2), ttl_ms: 0 };
    let patch = Op::Patch { writer: 0, key: 0, value: piece(90, 3), at: Some(100) };
    let extend = Op::Extend { writer: 0, key: 1, value: piece(9, 4) };
    for op in [set.clone(), Op::Copy { writer: 0, from: 0, to: 2 }, set.clone(), patch, set, extend] {
        world.run(&op).and_then(|()| world.check_durable()).unwrap_or_else(|wrong| panic!("{op:?}: {wrong}"));
    }
}

const KEYS: [&[u8]; 3] = [b"a", b"b", b"c"];

fn write_all(engine: &Engine, writer: &mut Writer, value: &[u8]) {
    engine.group_up_to(1);
    let mut txn = engine.transaction(KEYS.map(|key| TxnKey { space: 0, key }), 0);
    KEYS.iter().for_each(|key| txn.put_bytes(0, key, value.to_vec(), 0));
    txn.commit(writer, 1).expect("commits").ungated();
}

fn commit_record(engine: &Engine) -> SlotId {
    let slabs = engine.heap().runs().iter().filter(|(_, run)| run.used_for() == RunUse::Slab);
    let mut slots = slabs.flat_map(|(id, run)| (0..run.filled()).map(move |index| SlotId::new(id, index)));
    slots.find(|slot| engine.heap().record(*slot).is_ok_and(|view| view.commits().is_some())).expect("one")
}

fn read(engine: &Engine, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
    Ok(engine.get(0, key, 0)?.ungated().map(|item| item.to_vec().expect("reads")))
}

#[test]
fn nothing_older_passes_for_a_transaction_whose_commit_record_the_medium_has_lost() {
    let (media, engine) = create(32, SimOptions::default());
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    for key in KEYS {
        set(&engine, &mut writer, key, b"old");
    }
    set(&engine, &mut writer, b"other", b"1");
    write_all(&engine, &mut writer, b"new");
    set(&engine, &mut writer, b"last", b"1");
    writer.commit_now().expect("commits");
    engine.heap().mark_slabs(1).expect("marks");
    let lost = commit_record(&engine);
    let mut image = media.crash_state().durable_image();
    image[lost.off() as usize..][..RECORD_SIZE as usize].fill(0);
    let media = medium(image);
    let (engine, recovered) = try_reopen(&media).expect("opens");
    assert!(recovered.damaged.iter().any(|damaged| damaged.slot == lost), "{recovered:?}");
    for key in KEYS {
        assert!(matches!(read(&engine, key), Err(KvError::Damaged { .. })), "{key:?}");
    }
    assert_eq!(read(&engine, b"other").expect("reads"), Some(b"1".to_vec()));
    // A new version clears a key's damage, also after the next start.
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    set(&engine, &mut writer, b"a", b"newer");
    writer.commit_now().expect("commits");
    assert_eq!(read(&engine, b"a").expect("reads"), Some(b"newer".to_vec()));
    let (engine, _) = try_reopen(&medium(media.crash_state().durable())).expect("opens");
    assert_eq!(read(&engine, b"a").expect("reads"), Some(b"newer".to_vec()));
    assert!(matches!(read(&engine, b"b"), Err(KvError::Damaged { .. })));
}
