//! Keys that share their bytes: a copy costs a record, live bytes count once, and shared bytes stay shared through
//! compaction and a restart.

use landfall_heap::{CompactGoal, Compactor, RECORD_SIZE, RegionCheck, Source, Writer, create};
use landfall_heap::{FEATURE_SHARED, NewRegion};
use landfall_kv::{Engine, KeyCheck, KvError, Recovery, SetRequest, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Media, RUN_SIZE};
use std::sync::Arc;

const RUNS: u64 = 64;

struct Store {
    media: Arc<SimMedia>,
    engine: Engine,
}

fn open(media: &Arc<SimMedia>) -> Engine {
    Recovery::run(Arc::clone(media) as _, 4).expect("opens").0
}

impl Store {
    fn new() -> Self {
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let engine = open(&media);
        Self { media, engine }
    }

    /// The store after a crash that lost everything that was not durable.
    fn restarted(self) -> Self {
        let media = SimMedia::from_image(self.media.crash_state().durable_image(), SimOptions::default());
        let engine = open(&media);
        Self { media, engine }
    }

    fn writer(&self) -> Writer {
        Writer::new(Arc::clone(self.engine.heap()), 0)
    }

    fn set(&self, writer: &mut Writer, key: &str, len: usize) {
        let value = value(key, len);
        let (key, value) = (key.as_bytes(), Source::Bytes(&value));
        let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        self.engine.set(writer, &request).expect("there is room").ungated();
    }

    fn delete(&self, writer: &mut Writer, key: &str) {
        assert!(self.engine.delete(writer, 0, key.as_bytes(), 1, 1).expect("deletes").ungated());
    }

    fn copy(&self, writer: &mut Writer, from: &str, to: &str) {
        let keys = [from, to].map(|key| TxnKey { space: 0, key: key.as_bytes() });
        let mut txn = self.engine.transaction(keys, 1);
        let item = txn.read(0, from.as_bytes()).expect("reads").ungated().expect("is there");
        txn.copy_item(0, to.as_bytes(), &item, 0).expect("copies");
        drop(item);
        txn.commit(writer, 1).expect("there is room").ungated();
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let item = self.engine.get(0, key.as_bytes(), 1).expect("reads").ungated();
        item.map(|item| item.to_vec().expect("in bounds"))
    }

    fn live(&self) -> u64 {
        self.engine.heap().runs().live_bytes()
    }

    fn data_runs(&self) -> u32 {
        self.engine.heap().runs().counts().data
    }

    /// Compacts until the compactor is idle; returns the bytes that it moved.
    fn compact(&self) -> u64 {
        let heap = self.engine.heap();
        let before = heap.copies.get(landfall_heap::CopyPath::Moved);
        let mut compactor = Compactor::new(Arc::clone(heap));
        for _ in 0..10_000 {
            if compactor.step(&self.engine, CompactGoal::DENSE, 1 << 20).expect("there is room").is_idle {
                return heap.copies.get(landfall_heap::CopyPath::Moved) - before;
            }
        }
        panic!("compaction never becomes idle");
    }

    /// Bytes of values that `landfall check` counts.
    fn checked(&self) -> u64 {
        let image = self.media.crash_state().durable_image();
        let media = SimMedia::from_image(image, SimOptions::default());
        let found = RegionCheck::run(media, vec![Arc::new(KeyCheck::default())]).expect("checks");
        assert!(found.is_clean(), "{found:?}");
        found.live_bytes - RECORD_SIZE * (found.keys + found.tombstones)
    }
}

fn value(key: &str, len: usize) -> Vec<u8> {
    let seed = key.bytes().fold(7, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte));
    (0..len).map(|index| seed.wrapping_add((index / 3) as u8)).collect()
}

/// Most bytes of the lists of the values in pieces.
const LISTS_MAX: u64 = 600;
const LENS: [usize; 6] = [100, 900, 5000, 70_000, 300_000, 1 << 20];

#[test]
fn copies_cost_records_and_stay_shared_through_compaction_and_restarts() {
    let store = Store::new();
    let mut writer = store.writer();
    for (index, len) in LENS.into_iter().enumerate() {
        store.set(&mut writer, &format!("gap{index}"), 900_000);
        store.set(&mut writer, &format!("key{index}"), len);
    }
    writer.commit_now().expect("commits");
    let (live, data) = (store.live(), store.data_runs());
    for copy in 0..500 {
        for index in 0..LENS.len() {
            store.copy(&mut writer, &format!("key{index}"), &format!("copy{index}:{copy}"));
        }
        writer.commit_now().expect("commits");
    }
    assert_eq!((store.live(), store.data_runs()), (live, data), "copies cost records alone");
    for index in 0..LENS.len() {
        store.delete(&mut writer, &format!("gap{index}"));
        store.delete(&mut writer, &format!("key{index}"));
    }
    writer.commit_now().expect("commits");
    let values: u64 = LENS.into_iter().map(|len| len as u64).sum();
    let values = values..values + LISTS_MAX;
    assert!(
        values.contains(&store.live()),
        "the copies keep the bytes of their originals live, counted once"
    );
    drop(writer);
    let moved = store.compact();
    assert!(0 < moved && moved <= values.end, "{moved} bytes were moved of {values:?} live ones");
    assert!(values.contains(&store.live()), "{} bytes are live", store.live());
    assert_eq!(store.checked(), store.live());
    assert_eq!(store.engine.heap().unshared_bytes(), 0);
    let store = store.restarted();
    assert!(values.contains(&store.live()), "{} bytes are live", store.live());
    assert_eq!(store.checked(), store.live());
    assert!(store.data_runs() <= values.end.div_ceil(RUN_SIZE) as u32 + 4, "{} data runs", store.data_runs());
    store.compact();
    assert!(
        values.contains(&store.live()),
        "shared again after a restart, and moved again: {}",
        store.live()
    );
    let mut writer = store.writer();
    for (index, len) in LENS.into_iter().enumerate() {
        for copy in 0..500 {
            let name = format!("copy{index}:{copy}");
            assert!(store.get(&name) == Some(value(&format!("key{index}"), len)), "{name}");
            store.delete(&mut writer, &name);
        }
    }
    writer.commit_now().expect("commits");
    assert_eq!(store.live(), 0);
}

#[test]
fn copies_of_one_large_value_do_not_overflow_the_live_count() {
    let store = Store::new();
    let mut writer = store.writer();
    store.set(&mut writer, "key", 1 << 20);
    // If each of 4096 records counted the bytes, a run's count would be 2^32.
    for copy in 0..5000 {
        store.copy(&mut writer, "key", &format!("copy{copy}"));
    }
    writer.commit_now().expect("commits");
    let live = store.live();
    assert!((1 << 20..(1 << 20) + LISTS_MAX).contains(&live), "{live} bytes are live");
    let store = store.restarted();
    assert_eq!(store.live(), live);
    let mut writer = store.writer();
    for copy in 0..5000 {
        store.delete(&mut writer, &format!("copy{copy}"));
    }
    writer.commit_now().expect("commits");
    assert_eq!(store.live(), live);
}

#[test]
fn first_copy_sets_the_feature_of_the_region() {
    let store = Store::new();
    let mut writer = store.writer();
    store.set(&mut writer, "short", 10);
    store.set(&mut writer, "long", 1000);
    store.copy(&mut writer, "short", "inline");
    writer.commit_now().expect("commits");
    let store = store.restarted();
    assert_eq!(store.engine.heap().geometry().features & FEATURE_SHARED, 0, "nothing is shared");
    let mut writer = store.writer();
    store.copy(&mut writer, "long", "copy");
    writer.commit_now().expect("commits");
    let store = store.restarted();
    assert_ne!(store.engine.heap().geometry().features & FEATURE_SHARED, 0);
}

#[test]
fn copy_of_a_staged_value_is_written_though_its_original_is_replaced() {
    let store = Store::new();
    let mut writer = store.writer();
    let landed = {
        let heap = store.engine.heap();
        let run = heap.take_landing_run().expect("a free run");
        let extent = landfall_media::Extent::new(run, 3000);
        store.media.store(run, &[5; 3000]).expect("in bounds");
        heap.runs().hold(extent);
        heap.retire_landing_run(run);
        extent
    };
    let keys = [b"a", b"b"].map(|key| TxnKey { space: 0, key });
    let mut txn = store.engine.transaction(keys, 1);
    txn.put_landed(0, b"a", None, &[landed], None, 0);
    let item = txn.read(0, b"a").expect("reads").ungated().expect("is there");
    txn.copy_item(0, b"b", &item, 0).expect("copies");
    drop(item);
    txn.put_bytes(0, b"a", vec![6; 10], 0);
    txn.commit(&mut writer, 1).expect("there is room").ungated();
    store.engine.heap().runs().release(landed);
    writer.commit_now().expect("commits");
    assert_eq!(store.live(), 3000);
    drop(writer);
    let store = store.restarted();
    assert_eq!((store.live(), store.get("b")), (3000, Some(vec![5; 3000])));
}

#[test]
fn copy_reads_no_value_and_keeps_the_damage_of_its_original() {
    let store = Store::new();
    let mut writer = store.writer();
    for (key, len) in [("long", 3000), ("short", 20)] {
        store.set(&mut writer, key, len);
    }
    writer.commit_now().expect("commits");
    let at = store.engine.peek(0, b"long", 1).expect("reads").ungated().expect("is there").extents()[0].off;
    let byte = store.media.bytes(landfall_media::Extent::new(at, 1)).expect("in bounds")[0];
    store.media.store(at, &[!byte]).expect("in bounds");
    let keys = [&b"long"[..], b"short", b"long copy", b"short copy"].map(|key| TxnKey { space: 0, key });
    let mut txn = store.engine.transaction(keys, 1);
    for key in ["long", "short"] {
        let item = txn.peek(0, key.as_bytes()).expect("reads").ungated().expect("is there");
        txn.copy_item(0, format!("{key} copy").as_bytes(), &item, 0).expect("copies");
    }
    txn.commit(&mut writer, 1).expect("there is room").ungated();
    writer.commit_now().expect("commits");
    assert_eq!(store.get("short copy"), Some(value("short", 20)));
    for key in [&b"long"[..], b"long copy"] {
        assert!(matches!(store.engine.get(0, key, 1), Err(KvError::Damaged { .. })), "damage is served");
    }
}
