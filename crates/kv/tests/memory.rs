//! An engine whose region is several times larger than its memory: whatever leaves memory, and whenever, every read
//! yields exactly what was written, also after a restart.

use landfall_heap::{CompactGoal, Compactor, HeapError, NewRegion, RegionCheck, Source, Writer, create};
use landfall_kv::{Engine, KeyCheck, KvError, Recovery, SetRequest, TxnKey};
use landfall_media::{Extent, OpenOptions, Pages, RUN_SIZE, open};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const RUNS: u64 = 48;
const MEMORY: u64 = 12 * RUN_SIZE;

struct Store {
    pages: Arc<dyn Pages>,
    engine: Engine,
}

impl Store {
    /// On an ordinary file system, or `None` where the build directory is on none.
    fn open(path: &Path) -> Option<Self> {
        let options =
            OpenOptions { create: Some(RUNS * RUN_SIZE), memory: Some(MEMORY), ..OpenOptions::default() };
        let opened = open(path, &options).expect("a region");
        if opened.created {
            create(&*opened.media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("new");
        }
        let pages = Arc::clone(&opened.media).pages()?;
        Some(Self { pages, engine: Recovery::run(opened.media, 4).expect("opens").0 })
    }

    /// Writes a value as a server does that receives it: into a landing run, by reference.
    fn land(&self, writer: &mut Writer, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        let heap = self.engine.heap();
        let Some(run) = heap.take_landing_run() else { return Err(HeapError::Full.into()) };
        let extent = Extent::new(run + 100, value.len() as u32);
        heap.media().store(extent.off, value).expect("in bounds");
        heap.runs().hold(extent);
        heap.retire_landing_run(run);
        let value = Source::Landed { extents: &[extent], crc: None };
        let done = self.set(writer, key, value);
        heap.runs().release(extent);
        done
    }

    fn set(&self, writer: &mut Writer, key: &[u8], value: Source<'_>) -> Result<(), KvError> {
        let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        self.engine.set(writer, &request).map(|written| {
            written.ungated();
        })
    }

    fn copy(&self, writer: &mut Writer, from: &[u8], to: &[u8]) -> Result<(), KvError> {
        let mut txn = self.engine.transaction([from, to].map(|key| TxnKey { space: 0, key }), 1);
        let Some(item) = txn.read(0, from)?.ungated() else { return Ok(()) };
        txn.copy_item(0, to, &item, 0)?;
        drop(item);
        txn.commit(writer, 1).map(|done| {
            done.ungated();
        })
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let item = self.engine.get(0, key, 1).expect("reads").ungated();
        item.map(|item| item.to_vec().expect("in bounds"))
    }

    /// Has everything leave memory that may.
    fn evict_all(&self) {
        // As if as much as all of the memory were to come.
        self.engine.heap().relieve_memory(MEMORY);
    }
}

/// Keys of up to 60 bytes lie in their records, longer ones do not.
fn key(number: u8) -> Vec<u8> {
    let mut key = format!("key:{number}").into_bytes();
    key.resize(key.len() + usize::from(number % 2) * 300, b'.');
    key
}

fn value(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(31) ^ seed.wrapping_mul(at >> 8 | 1)) as u8).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Land(u8, usize),
    Set(u8, usize),
    Copy(u8, u8),
    Delete(u8),
    Get(u8),
    Evict,
    Compact,
    Commit,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..24_u8;
    prop_oneof![
        4 => (key(), 1..600_000_usize).prop_map(|(key, len)| Op::Land(key, len)),
        4 => (key(), prop_oneof![1..200_usize, 1..70_000_usize]).prop_map(|(key, len)| Op::Set(key, len)),
        2 => (key(), key()).prop_map(|(from, to)| Op::Copy(from, to)),
        1 => key().prop_map(Op::Delete),
        6 => key().prop_map(Op::Get),
        2 => Just(Op::Evict),
        1 => Just(Op::Compact),
        2 => Just(Op::Commit),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(
    op: &Op,
    seed: u32,
    store: &Store,
    writer: &mut Writer,
    compactor: &mut Compactor,
    model: &mut Model,
) {
    let done = match op {
        Op::Land(number, len) => {
            let (key, value) = (key(*number), value(seed, *len));
            store.land(writer, &key, &value).map(|()| drop(model.insert(key, value)))
        }
        Op::Set(number, len) => {
            let (key, value) = (key(*number), value(seed, *len));
            store.set(writer, &key, Source::Bytes(&value)).map(|()| drop(model.insert(key, value)))
        }
        Op::Copy(from, to) if from != to => {
            let (from, to) = (key(*from), key(*to));
            store.copy(writer, &from, &to).map(|()| {
                let value = model.get(&from).cloned();
                drop(value.map(|value| model.insert(to, value)));
            })
        }
        Op::Copy(..) => Ok(()),
        Op::Delete(number) => {
            let key = key(*number);
            store.engine.delete(writer, 0, &key, 1, 1).map(|done| {
                assert_eq!(done.ungated(), model.remove(&key).is_some());
            })
        }
        Op::Get(number) => {
            assert!(store.get(&key(*number)).as_ref() == model.get(&key(*number)), "key {number}");
            Ok(())
        }
        Op::Evict => {
            store.evict_all();
            Ok(())
        }
        Op::Compact => {
            compactor.step(&store.engine, CompactGoal::DENSE, 1 << 20).map(drop).map_err(KvError::from)
        }
        Op::Commit => writer.commit_now().map_err(KvError::from),
    };
    match done {
        Ok(()) => {}
        // What waits for a commit, or for space, has changed nothing.
        Err(KvError::Wait(_) | KvError::Heap(HeapError::Full)) => writer.commit_now().expect("durable"),
        Err(error) => panic!("{op:?}: {error}"),
    }
}

/// The values of 64 keys may be many times what may be in memory.
#[test]
fn a_scrub_of_long_values_keeps_to_the_memory_that_there_is() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some(store) = Store::open(&dir.path().join("region")) else { return };
    let mut writer = Writer::new(Arc::clone(store.engine.heap()), 0);
    for number in 0..30 {
        store.land(&mut writer, &key(number), &[number; 900_000]).expect("room");
        writer.commit_now().expect("commits");
    }
    store.evict_all();
    let (mut cursor, mut keys, mut most) = (landfall_kv::ScrubCursor::default(), 0, 0);
    loop {
        let done = store.engine.scrub(&mut cursor, 64, 1).expect("reads");
        assert!(done.bytes < 2 << 20 && done.findings.is_empty(), "{done:?}");
        most = most.max(store.pages.resident_bytes());
        keys += done.keys;
        if done.wrapped {
            break;
        }
    }
    assert!(keys == 30 && most <= MEMORY + 2 * RUN_SIZE, "{keys} keys, {most} bytes in memory");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn reads_yield_what_was_written_whatever_leaves_memory(
        ops in prop::collection::vec(op(), 1..250),
        restarts in 1..3_usize,
    ) {
        let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let path = dir.path().join("region");
        let mut model = Model::new();
        for round in 0..restarts {
            let Some(store) = Store::open(&path) else { return Ok(()) };
            let mut writer = Writer::new(Arc::clone(store.engine.heap()), 0);
            let mut compactor = Compactor::new(Arc::clone(store.engine.heap()));
            for (index, op) in ops.iter().enumerate() {
                apply(op, (round * 1000 + index) as u32, &store, &mut writer, &mut compactor, &mut model);
            }
            writer.commit_now().expect("durable");
            for number in 0..24 {
                prop_assert!(store.get(&key(number)).as_ref() == model.get(&key(number)), "key {}", number);
            }
        }
        let Some(store) = Store::open(&path) else { return Ok(()) };
        for number in 0..24 {
            prop_assert!(store.get(&key(number)).as_ref() == model.get(&key(number)), "key {}", number);
        }
    }
}

#[test]
fn memory_stays_within_its_limit_and_what_is_not_durable_stays_in_it() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some(store) = Store::open(&dir.path().join("region")) else { return };
    let mut writer = Writer::new(Arc::clone(store.engine.heap()), 0);
    // Not committed: none of it may leave memory, however much is asked for.
    for number in 0..4 {
        store.land(&mut writer, &key(number), &value(1, 500_000)).expect("there is room");
    }
    store.evict_all();
    assert!(store.pages.resident_bytes() >= 4 * RUN_SIZE);
    writer.commit_now().expect("durable");
    store.evict_all();
    assert!(store.pages.resident_bytes() < 4 * RUN_SIZE, "{}", store.pages.resident_bytes());
    for number in 0..28 {
        store.land(&mut writer, &key(number), &value(1, 900_000)).expect("there is room");
        writer.commit_now().expect("durable");
        assert!(store.pages.resident_bytes() <= MEMORY, "{}", store.pages.resident_bytes());
    }
    for number in 0..28 {
        assert!(store.get(&key(number)) == Some(value(1, 900_000)));
        store.engine.heap().relieve_memory(0);
        assert!(store.pages.resident_bytes() <= MEMORY, "{}", store.pages.resident_bytes());
    }
}

/// Slabs stay in memory whole as long as one of their records is current.
#[test]
fn records_that_are_dead_do_not_keep_the_memory() {
    const RECORDS: u32 = 40 * 8192;
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some(store) = Store::open(&dir.path().join("region")) else { return };
    let heap = store.engine.heap();
    let mut writer = Writer::new(Arc::clone(heap), 0);
    let mut compactor = Compactor::new(Arc::clone(heap));
    for number in 0..RECORDS {
        // Most are overwritten at once; one in a thousand stays.
        let name = if number % 1000 == 0 { format!("stays:{number}") } else { "changes".to_owned() };
        store.set(&mut writer, name.as_bytes(), Source::Bytes(b"value")).expect("there is room");
        if number % 256 == 255 {
            writer.commit_now().expect("durable");
            let mut step = || compactor.step(&store.engine, heap.compact_goal(), 1 << 20).expect("steps");
            assert!((0..1000).any(|_| step().is_idle), "it comes to an end");
            heap.relieve_memory(0);
            let resident = store.pages.resident_bytes();
            assert!(resident <= MEMORY, "{resident} after {number}");
        }
    }
    for number in (0..RECORDS).step_by(1000) {
        assert_eq!(store.get(format!("stays:{number}").as_bytes()), Some(b"value".to_vec()));
    }
}

#[test]
fn a_check_stays_within_its_memory() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let path = dir.path().join("region");
    let Some(store) = Store::open(&path) else { return };
    let mut writer = Writer::new(Arc::clone(store.engine.heap()), 0);
    for number in 0..30_u32 {
        let name = format!("key:{number}");
        store.land(&mut writer, name.as_bytes(), &value(number, 900_000)).expect("room");
        writer.commit_now().expect("durable");
    }
    drop((store, writer));
    let options = OpenOptions { read_only: true, memory: Some(MEMORY), ..OpenOptions::default() };
    let media = open(&path, &options).expect("the region").media;
    let pages = Arc::clone(&media).pages().expect("its memory is limited");
    let mut check = RegionCheck::begin(media, vec![Arc::new(KeyCheck::default())]).expect("a region");
    while check.scan_some().expect("reads") {}
    while check.gather_some().expect("reads") {}
    check.settle().expect("reads");
    let mut highest = 0;
    while check.verify_some().expect("reads") {
        highest = highest.max(pages.resident_bytes());
    }
    let found = check.report();
    assert_eq!((found.keys, &found.findings[..]), (30, &[][..]));
    assert!(highest <= MEMORY + 2 * RUN_SIZE, "{highest}");
}

#[test]
fn a_held_value_stays_in_memory_while_all_else_goes() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some(store) = Store::open(&dir.path().join("region")) else { return };
    let mut writer = Writer::new(Arc::clone(store.engine.heap()), 0);
    for number in 0..8 {
        store.land(&mut writer, &key(number), &value(u32::from(number), 300_000)).expect("there is room");
    }
    writer.commit_now().expect("durable");
    let item = store.engine.get(0, &key(3), 1).expect("reads").ungated().expect("is there");
    store.evict_all();
    assert!(store.engine.heap().is_resident(item.extents()[0]));
    assert!(*item.bytes().expect("in bounds") == value(3, 300_000));
    // A deleted value's frames are not used again before they are released.
    assert!(store.engine.delete(&mut writer, 0, &key(3), 1, 1).expect("deletes").ungated());
    writer.commit_now().expect("durable");
    store.evict_all();
    assert!(*item.bytes().expect("in bounds") == value(3, 300_000));
}

#[test]
fn threads_that_read_and_write_beside_the_clock_see_whole_values() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some(store) = Store::open(&dir.path().join("region")) else { return };
    let over = AtomicBool::new(false);
    let is_whole = |value: &[u8]| value.iter().all(|byte| *byte == value[0]);
    std::thread::scope(|threads| {
        let evicts = threads.spawn(|| {
            while !over.load(Ordering::Acquire) {
                store.evict_all();
            }
        });
        let workers: Vec<_> = (0..2_u8)
            .map(|worker| {
                let store = &store;
                threads.spawn(move || {
                    let mut writer = Writer::new(Arc::clone(store.engine.heap()), worker);
                    for step in 0..400_u32 {
                        let number = (step.wrapping_mul(7) + u32::from(worker)) as u8 % 16;
                        let bytes = vec![step as u8; 1 + (step as usize * 977) % 90_000];
                        let done = store.land(&mut writer, &key(number), &bytes);
                        assert!(
                            matches!(done, Ok(()) | Err(KvError::Wait(_) | KvError::Heap(_))),
                            "{done:?}"
                        );
                        writer.commit_now().expect("durable");
                        if let Some(value) = store.get(&key((step % 16) as u8)) {
                            assert!(is_whole(&value));
                        }
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Release);
        evicts.join().expect("the clock goes on");
        assert!(outcomes.iter().all(Result::is_ok));
    });
}
