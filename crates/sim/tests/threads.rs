//! Tests with workers, the compactor and readers on threads of their own. In every interleaving, no acknowledged write
//! is lost, no read returns another value, and all counts agree with the records in the end.

mod common;

use common::{create, medium, reopen};
use landfall_heap::{CompactGoal, Compactor, HeapError, Source, Writer};
use landfall_kv::{Engine, KvError, SetRequest, TxnKey};
use landfall_media::sim::SimOptions;
use landfall_sim::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const WORKERS: u8 = 2;
const OPS: usize = 2500;
const KEYS: u64 = 12;
/// Most attempts at a command that waits for another worker's commit.
const ATTEMPTS: usize = 100_000;

/// The acknowledged state of a worker's own keys.
type Mine = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

#[test]
fn concurrent_workers_compactor_and_readers_lose_and_leak_nothing() {
    let (media, engine) = create(40, SimOptions::default());
    let done = AtomicBool::new(false);
    let acknowledged: Vec<Mine> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|id| {
                scope.spawn({
                    let engine = &engine;
                    move || work(engine, id)
                })
            })
            .collect();
        scope.spawn(|| compact(&engine, &done));
        scope.spawn(|| read(&engine, &done));
        let acknowledged = workers.into_iter().map(|worker| worker.join().expect("a worker")).collect();
        done.store(true, Ordering::Release);
        acknowledged
    });
    check(&engine, &acknowledged);
    // The runs that the writers and the compactor were filling were released when they were dropped.
    landfall_sim::recount(&engine, 0).expect("every count adds up");
    let again = reopen(&medium(media.crash_state().durable()));
    check(&again, &acknowledged);
    landfall_sim::recount(&again, 0).expect("every count adds up");
}

fn name(worker: u8, key: u64) -> Vec<u8> {
    let mut name = format!("{worker}:{key}:").into_bytes();
    name.resize(6 + (key as usize % 4) * 40, b'k');
    name
}

fn copy_name(worker: u8, key: u64) -> Vec<u8> {
    format!("copy:{worker}:{key}").into_bytes()
}

/// A value begins with its key, so that a reader detects the value of another key, and a torn value.
fn value(name: &[u8], len: usize, round: usize) -> Vec<u8> {
    let mut value = vec![(round % 251) as u8; len + name.len()];
    value[..name.len()].copy_from_slice(name);
    value
}

fn work(engine: &Engine, id: u8) -> Mine {
    let mut writer = Writer::new(Arc::clone(engine.heap()), id);
    let (mut rng, mut mine) = (Rng::new(u64::from(id)), Mine::new());
    for round in 0..OPS {
        let key = name(id, rng.below(KEYS));
        let len = [10, 300, 5000, 150_000][rng.between(0, 3)];
        let wanted = (!rng.one_in(4)).then(|| value(&key, rng.between(0, len), round));
        if write(engine, &mut writer, &key, wanted.as_deref()) {
            mine.insert(key, wanted);
        }
        // Both workers also write a common key, so that they wait for each other.
        let shared = value(b"shared", rng.between(0, 300), round);
        write(engine, &mut writer, b"shared", Some(&shared));
        // Copies are copied, too. Meanwhile the bytes that they share are moved and overwritten.
        let (from, to) = (rng.below(KEYS), rng.below(KEYS));
        let from = if rng.one_in(2) { name(id, from) } else { copy_name(id, from) };
        if let Some(copied) = copy(engine, &mut writer, &from, &copy_name(id, to)) {
            mine.insert(copy_name(id, to), Some(copied));
        }
        if rng.one_in(3) {
            writer.commit_now().expect("commits");
        }
    }
    writer.commit_now().expect("commits");
    mine
}

/// False if the region was full.
fn write(engine: &Engine, writer: &mut Writer, key: &[u8], value: Option<&[u8]>) -> bool {
    for _ in 0..ATTEMPTS {
        let written = match value {
            None => engine.delete(writer, 0, key, 0, 1).map(|_| ()),
            Some(bytes) => {
                let value = Source::Bytes(bytes);
                let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
                engine.set(writer, &request).map(|_| ())
            }
        };
        match written {
            Ok(()) => return true,
            Err(KvError::Heap(HeapError::Full)) => return false,
            Err(KvError::Wait(_)) => {
                writer.commit_now().expect("commits");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("a command still waits after {ATTEMPTS} attempts");
}

/// The value that was copied, unless there was none or the region was full.
fn copy(engine: &Engine, writer: &mut Writer, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    for _ in 0..ATTEMPTS {
        let mut copied = None;
        let mut copies = || {
            let mut txn = engine.transaction([from, to].map(|key| TxnKey { space: 0, key }), 0);
            txn.check_writable(writer, 0, from)?;
            if let Some(item) = txn.read(0, from)?.ungated() {
                copied = Some(item.to_vec()?);
                txn.copy_item(0, to, &item, 0)?;
            }
            txn.commit(writer, 1).map(|_| ())
        };
        match copies() {
            Ok(()) => return copied,
            Err(KvError::Heap(HeapError::Full)) => return None,
            Err(KvError::Wait(_)) => {
                writer.commit_now().expect("commits");
                std::thread::yield_now();
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("a copy still waits after {ATTEMPTS} attempts");
}

fn compact(engine: &Engine, done: &AtomicBool) {
    let mut compactor = Compactor::new(Arc::clone(engine.heap()));
    while !done.load(Ordering::Acquire) {
        match compactor.step(engine, CompactGoal::DENSE, 256 << 10) {
            Ok(step) => assert_eq!(step.damaged, 0, "the compactor found damage"),
            Err(HeapError::Full) => {}
            Err(error) => panic!("{error:?}"),
        }
        engine.heap().mark_slabs(64).expect("marks");
    }
}

fn read(engine: &Engine, done: &AtomicBool) {
    let mut rng = Rng::new(99);
    while !done.load(Ordering::Acquire) {
        let key = name(rng.below(u64::from(WORKERS)) as u8, rng.below(KEYS));
        if let Some(item) = engine.get(0, &key, 0).expect("a whole value").ungated() {
            assert!(item.to_vec().expect("reads").starts_with(&key), "a value of another key");
        }
    }
}

fn check(engine: &Engine, acknowledged: &[Mine]) {
    for (key, wanted) in acknowledged.iter().flatten() {
        let found =
            engine.get(0, key, 0).expect("a whole value").ungated().map(|item| item.to_vec().expect("reads"));
        assert!(found == *wanted, "{} is not what was acknowledged", String::from_utf8_lossy(key));
    }
}
