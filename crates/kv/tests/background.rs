//! Background work: compaction within its budget, expiry, the scrub, dropped tombstones, and what recovery reads.

mod watched;

use landfall_heap::layout::SLOTS_PER_RUN;
use landfall_heap::{
    CompactGoal, Compacted, Compactor, Damage, Named, NewRegion, Owner, RunUse, SlotId, Source, Writer,
    create,
};
use landfall_kv::{Engine, Recovery, ScrubCursor, SetRequest, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use watched::Watched;

const RUNS: u64 = 48;
const VALUE_BYTES: usize = 4000;
/// Records of one commit.
const BATCH: u32 = 1024;

fn region() -> Arc<SimMedia> {
    let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    media
}

fn open(media: Arc<dyn Media>) -> (Engine, Writer) {
    let (engine, _) = Recovery::run(media, 4).expect("opens");
    let writer = Writer::new(Arc::clone(engine.heap()), 0);
    (engine, writer)
}

fn set(engine: &Engine, writer: &mut Writer, key: &[u8], value: &[u8]) -> SlotId {
    set_until(engine, writer, key, value, 0)
}

fn set_until(engine: &Engine, writer: &mut Writer, key: &[u8], value: &[u8], expiry_ms: u64) -> SlotId {
    let value = Source::Bytes(value);
    let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms, arrival_ns: 9 };
    engine.set(writer, &request).expect("there is room").ungated().slot
}

fn delete(engine: &Engine, writer: &mut Writer, key: &[u8]) {
    assert!(engine.delete(writer, 0, key, 1, 1).expect("deletes").ungated(), "was there");
}

fn version(engine: &Engine, key: &[u8]) -> u64 {
    engine.transaction([TxnKey { space: 0, key }], 1).version(0, key).expect("reads").ungated()
}

/// Compacts until the compactor is idle; returns the result of each step.
fn compact(engine: &Engine, budget_bytes: u64) -> Vec<Compacted> {
    const STEPS_MAX: usize = 10_000;
    let mut compactor = Compactor::new(Arc::clone(engine.heap()));
    let mut step = || compactor.step(engine, CompactGoal::DENSE, budget_bytes).expect("compacts");
    let steps: Vec<_> = (0..STEPS_MAX).map(|_| step()).take_while(|done| !done.is_idle).collect();
    assert!(steps.len() < STEPS_MAX, "compaction never becomes idle");
    steps
}

/// Makes reads of a record's key and value fail. The record itself stays readable.
fn lose_data(media: &SimMedia, engine: &Engine, slot: SlotId) {
    let view = engine.heap().record(slot).expect("a record");
    for extent in engine.heap().all_extents(slot, &view).expect("extents") {
        media.fail_reads(extent);
    }
}

#[test]
fn unreadable_key_does_not_block_expiry_of_others() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as _);
    let (long, short) = (vec![b'k'; 3000], b"short");
    let slot = set_until(&engine, &mut writer, &long, b"", 5);
    for shard in 0..64u8 {
        set_until(&engine, &mut writer, &[short.as_slice(), &[shard]].concat(), b"value", 10);
    }
    writer.commit_now().expect("commits");
    lose_data(&media, &engine, slot);
    let mut purged = 0;
    while engine.next_expiry_ms().is_some() {
        purged += engine.purge_expired(&mut writer, 20, 8).expect("others expire");
        writer.commit_now().expect("commits");
    }
    assert!(purged >= 64, "{purged}");
    let left: u64 = engine.stats().keys.iter().sum();
    assert_eq!(left, 1, "the unreadable key stays");
}

/// Who sets keys that expire before they are durable, all the time, does not keep others from being purged.
#[test]
fn an_expired_key_that_is_not_durable_yet_does_not_block_expiry_of_others() {
    const KEYS: usize = 200;
    let media = region();
    let (engine, mut writer) = open(media as _);
    for key in 0..KEYS {
        set_until(&engine, &mut writer, format!("old:{key}").as_bytes(), b"value", 10);
    }
    writer.commit_now().expect("commits");
    let mut other = Writer::new(Arc::clone(engine.heap()), 1);
    set_until(&engine, &mut other, b"new", b"value", 5);
    let mut purged = 0;
    for _ in 0..4 {
        purged += engine.purge_expired(&mut writer, 20, KEYS).unwrap_or(0);
        writer.commit_now().expect("commits");
    }
    // Those behind a pending one, in its shard, wait for it.
    assert!((KEYS / 2..KEYS).contains(&purged), "{purged}");
    other.commit_now().expect("commits");
    purged += engine.purge_expired(&mut writer, 20, 2 * KEYS).expect("nothing is pending");
    assert_eq!((purged, engine.expired_keys()), (KEYS + 1, KEYS as u64 + 1));
}

#[test]
fn scrub_reports_unreadable_values_and_continues() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as _);
    let slots: Vec<SlotId> =
        (0..4u8).map(|key| set(&engine, &mut writer, &[key], &[key; VALUE_BYTES])).collect();
    // A second writer puts the value into a run of its own.
    drop(writer);
    let mut other = Writer::new(Arc::clone(engine.heap()), 1);
    set(&engine, &mut other, b"z", &[9; VALUE_BYTES]);
    other.commit_now().expect("commits");
    lose_data(&media, &engine, slots[1]);
    let (mut cursor, mut findings, mut keys) = (ScrubCursor::default(), Vec::new(), 0);
    loop {
        let done = engine.scrub(&mut cursor, 2, 1).expect("the scrub continues");
        findings.extend(done.findings);
        keys += done.keys;
        if done.wrapped {
            break;
        }
    }
    assert_eq!((keys, findings.len()), (5, 4), "{findings:?}");
    assert!(findings.iter().all(|found| found.what == Damage::Unreadable), "{findings:?}");
}

/// A scrub that locks every shard for each page blocks all workers a thousand times a second.
#[test]
fn scrub_locks_one_shard_at_a_time() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as _);
    for key in 0..100_u8 {
        set(&engine, &mut writer, &[key], b"value");
    }
    writer.commit_now().expect("commits");
    let engine = Arc::new(engine);
    let scrubs_beside = |key: u8| {
        let _locked = engine.transaction([TxnKey { space: 0, key: &[key] }], 1);
        let (scrubbed, engine) = (mpsc::sync_channel(1), Arc::clone(&engine));
        let done = std::thread::spawn(move || {
            let keys = engine.scrub(&mut ScrubCursor::default(), 4, 1).map(|done| done.keys);
            scrubbed.0.send(keys.expect("scrubs"))
        });
        let keys = scrubbed.1.recv_timeout(Duration::from_millis(300));
        (done, keys.is_ok_and(|keys| keys == 4))
    };
    let beside: Vec<_> = (0..16).map(scrubs_beside).collect();
    // The scrub begins with one of four shards. It waits only where the locked key is in that shard.
    let free = beside.iter().filter(|(_, scrubbed)| *scrubbed).count();
    assert!((1..16).contains(&free), "{free} of 16");
    beside.into_iter().for_each(|(done, _)| done.join().expect("scrubs in the end").unwrap_or_default());
}

#[test]
fn unreadable_key_does_not_block_moves_of_others() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as _);
    let slot = set(&engine, &mut writer, &[b'k'; 3000], b"");
    // Sparse slabs: a few keys that stay among overwritten ones. The first slab is the emptiest.
    for round in 0..8 * SLOTS_PER_RUN {
        let key = if round > SLOTS_PER_RUN && round % 1000 == 0 { round.to_le_bytes() } else { [7; 4] };
        set(&engine, &mut writer, &key, b"value");
        if round % BATCH == 0 {
            writer.commit_now().expect("commits");
        }
    }
    writer.commit_now().expect("commits");
    let slabs = engine.heap().runs().counts().slab;
    lose_data(&media, &engine, slot);
    compact(&engine, u64::MAX);
    assert!(engine.heap().runs().counts().slab < slabs, "{:?}", engine.heap().runs().counts());
    assert_eq!(
        engine.heap().runs().get(slot.run()).used_for(),
        RunUse::Slab,
        "the unreadable record stays in its slab"
    );
}

#[test]
fn recovery_names_a_lost_record_and_keeps_its_slab() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as _);
    let slots: Vec<SlotId> = (0..4u8).map(|key| set(&engine, &mut writer, &[key], b"value")).collect();
    writer.commit_now().expect("commits");
    engine.heap().mark_slabs(1).expect("marks");
    drop((engine, writer));
    let mut image = media.crash_state().durable_image();
    image[slots[2].off() as usize..][..128].fill(0);
    let media = SimMedia::from_image(image, SimOptions::default());
    let (engine, found) = Recovery::run(media, 4).expect("opens");
    let lost: Vec<_> = found.damaged.iter().map(|damaged| (damaged.slot, damaged.what)).collect();
    assert_eq!(lost, [(slots[2], Damage::Lost)]);
    let run = slots[2].run();
    compact(&engine, u64::MAX);
    assert_eq!(engine.heap().runs().get(run).used_for(), RunUse::Slab, "the slab with the loss is kept");
}

/// An older version is current because a newer one is lost without a trace, and its bytes are where a slab is now: nothing may
/// count them.
#[test]
fn a_version_whose_bytes_belong_to_others_is_damaged_until_it_is_deleted() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as _);
    let old = set(&engine, &mut writer, b"key", &[1; VALUE_BYTES]);
    let view = engine.heap().record(old).expect("a record");
    let run =
        landfall_heap::layout::RunId::of(engine.heap().all_extents(old, &view).expect("extents")[0].off);
    // Others fill its run, and leave it.
    (0..600u32).for_each(|round| _ = set(&engine, &mut writer, &round.to_le_bytes(), &[2; VALUE_BYTES]));
    (0..600u32).for_each(|round| delete(&engine, &mut writer, &round.to_le_bytes()));
    // The newer version is in a slab of its own, as another worker's.
    writer.commit_now().expect("commits");
    let mut other = Writer::new(Arc::clone(engine.heap()), 1);
    let new = set(&engine, &mut other, b"key", b"short");
    other.commit_now().expect("commits");
    for round in 0..16 * SLOTS_PER_RUN {
        set(&engine, &mut writer, &round.to_le_bytes(), b"value");
        if round % BATCH == 0 {
            writer.commit_now().expect("commits");
        }
        if engine.heap().runs().get(run).used_for() == RunUse::Slab {
            break;
        }
    }
    writer.commit_now().expect("commits");
    assert_eq!(engine.heap().runs().get(run).used_for(), RunUse::Slab, "the run is used again");
    drop((engine, writer, other));
    let mut image = media.crash_state().durable_image();
    image[new.off() as usize..][..128].fill(0);
    let (engine, mut writer) = open(SimMedia::from_image(image, SimOptions::default()) as _);
    let live = engine.heap().runs().live_bytes();
    compact(&engine, u64::MAX);
    assert_eq!(engine.heap().runs().live_bytes(), live, "nothing is moved that is not there");
    let txn = engine.transaction([TxnKey { space: 0, key: b"key" }], 1);
    assert!(txn.peek(0, b"key").is_err(), "its bytes are others'");
    drop(txn);
    assert!(engine.get(0, b"key", 1).is_err());
    delete(&engine, &mut writer, b"key");
    writer.commit_now().expect("commits");
    assert_eq!(engine.heap().runs().live_bytes(), live, "nothing of others is dropped");
    assert!(engine.get(0, b"key", 1).expect("reads").ungated().is_none());
}

/// If a stale count is too low, a tombstone is dropped while an older record of its key is still on the medium.
#[test]
fn copy_aborted_after_a_flush_discounts_no_newer_record() {
    let (engine, mut writer) = open(region());
    let slot = set(&engine, &mut writer, b"moved", b"before");
    writer.commit_now().expect("commits");
    let name = Named { space: 0, hash: engine.heap().hash(0, b"moved") };
    assert!(engine.begin_move(name, slot, &mut || {}), "it is current");
    engine.flush_all(&mut writer, 1).expect("flushes").ungated();
    set(&engine, &mut writer, b"moved", b"after");
    let slot = set(&engine, &mut writer, b"moved", b"after that");
    writer.commit_now().expect("commits");
    let stale = engine.stats().stale;
    engine.abort_move(name);
    assert_eq!(engine.stats().stale, stale, "the flush has reset the announcement");
    // Without a flush, an aborted copy is discounted.
    assert!(engine.begin_move(name, slot, &mut || {}), "it is current");
    engine.abort_move(name);
    assert_eq!(engine.stats().stale, stale);
}

/// `WATCH` of an absent key must notice that it was set and deleted, even after its tombstone is dropped.
#[test]
fn absent_key_keeps_a_new_version_after_its_tombstone_is_dropped() {
    let (engine, mut writer) = open(region());
    let before = version(&engine, b"watched");
    for round in 0..3 {
        set(&engine, &mut writer, b"watched", &[round; 100]);
    }
    delete(&engine, &mut writer, b"watched");
    let deleted = version(&engine, b"watched");
    // Sparse slabs that compaction frees, none as empty as the first.
    for batch in 0..12 * SLOTS_PER_RUN / BATCH {
        (1..BATCH).for_each(|_| {
            set(&engine, &mut writer, b"other", b"short");
        });
        if batch > SLOTS_PER_RUN / BATCH {
            set(&engine, &mut writer, &batch.to_le_bytes(), b"short");
        }
        writer.commit_now().expect("commits");
    }
    // Slabs are compacted once no writer appends to them.
    drop(writer);
    compact(&engine, 1 << 20);
    assert_eq!(engine.stats().tombstones, 0, "the tombstone is dropped");
    let after = version(&engine, b"watched");
    assert!(before < deleted && deleted <= after, "{before}, {deleted}, {after}");
}

#[test]
fn compaction_step_copies_at_most_its_budget_and_one_value() {
    for budget_bytes in [VALUE_BYTES as u64, 64 << 10] {
        let (engine, mut writer) = open(region());
        let keys: Vec<[u8; 4]> = (0..3000u32).map(u32::to_le_bytes).collect();
        keys.iter().for_each(|key| {
            set(&engine, &mut writer, key, &[7; VALUE_BYTES]);
        });
        writer.commit_now().expect("commits");
        keys.iter().step_by(2).for_each(|key| delete(&engine, &mut writer, key));
        writer.commit_now().expect("commits");
        drop(writer);
        let steps = compact(&engine, budget_bytes);
        let most = steps.iter().map(|done| done.moved_bytes).max().unwrap_or(0);
        let all: u64 = steps.iter().map(|done| done.moved_bytes).sum();
        assert!(all > 500 * VALUE_BYTES as u64, "only {all} bytes were moved");
        assert!(most <= budget_bytes + VALUE_BYTES as u64 + 4, "{most} bytes in one step of {budget_bytes}");
    }
}

/// Each rewrite of such a record verifies the whole value.
#[test]
fn value_of_many_pieces_leaves_sparse_runs_in_few_rewrites() {
    const FRAME: u64 = 2048;
    const PIECE: usize = 1448;
    const LANDED_RUNS: u64 = 20;
    let (engine, mut writer) = open(region());
    let heap = Arc::clone(engine.heap());
    let mut extents = Vec::new();
    let value: Vec<u8> =
        (0..LANDED_RUNS * (RUN_SIZE / FRAME) * PIECE as u64).map(|at| (at % 251) as u8).collect();
    let mut pieces = value.chunks(PIECE);
    for _ in 0..LANDED_RUNS {
        let run = heap.take_landing_run().expect("a free run");
        for (off, piece) in (run..run + RUN_SIZE).step_by(FRAME as usize).zip(pieces.by_ref()) {
            heap.media().store(off, piece).expect("in bounds");
            extents.push(Extent::new(off, PIECE as u32));
            heap.runs().hold(*extents.last().expect("just pushed"));
        }
        heap.retire_landing_run(run);
    }
    let landed = Source::Landed { extents: &extents, crc: None };
    let request =
        SetRequest { space: 0, key: b"long", key_at: None, value: landed, expiry_ms: 0, arrival_ns: 9 };
    engine.set(&mut writer, &request).expect("there is room").ungated();
    writer.commit_now().expect("commits");
    extents.iter().for_each(|extent| heap.runs().release(*extent));
    drop(writer);
    let steps = compact(&engine, 1 << 20);
    let moved: u64 = steps.iter().map(|done| done.moved_records).sum();
    assert!((1..=12).contains(&moved), "rewritten {moved} times");
    let read = engine.get(0, b"long", 1).expect("reads").ungated().expect("is there");
    assert!(read.to_vec().expect("reads") == value);
    let live = value.len() as u64 / RUN_SIZE;
    let used = heap.runs().iter().filter(|(_, run)| run.live_bytes() > 0).count() as u64;
    assert!(used <= live + 3, "{used} runs for {live} runs of bytes");
}

#[test]
fn recovery_reads_each_record_and_no_value_below_a_watermark() {
    let media = region();
    let (engine, mut writer) = open(Arc::clone(&media) as Arc<dyn Media>);
    for key in 0..2000u32 {
        set(&engine, &mut writer, &key.to_le_bytes(), &[7; VALUE_BYTES]);
    }
    writer.commit_now().expect("commits");
    engine.heap().mark_slabs(1).expect("marks");
    let stored = |key: u32| {
        let item = engine.peek(0, &key.to_le_bytes(), 1).expect("reads").ungated().expect("is there");
        item.extents().to_vec()
    };
    let values: Vec<Extent> = (0..2000).flat_map(stored).collect();
    drop((engine, writer));
    let watched = Watched::over(media);
    let (engine, _) = open(Arc::clone(&watched) as Arc<dyn Media>);
    assert_eq!(engine.stats().keys[0], 2000);
    let reads = watched.take_reads();
    let meet = |read: &Extent, value: &Extent| value.off < read.end() && read.off < value.end();
    let touched = reads.iter().filter(|read| values.iter().any(|value| meet(read, value))).count();
    assert_eq!(touched, 0, "values were read");
    assert!(reads.len() >= 2000, "the counting medium saw too few reads of records: {}", reads.len());
}
