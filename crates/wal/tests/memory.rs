//! Logs in a region larger than its memory, of which a loader reads what has left it.

use landfall_heap::{Heap, LoadId, Loader, NewRegion, Source, Until, Writer, create};
use landfall_media::{Extent, MediaError, OpenOptions, RUN_SIZE, open};
use landfall_wal::{LogRecovery, LogScrub, Logs, ReadLimit, WalError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const MEMORY: u64 = 12 * RUN_SIZE;
const ENTRIES: u64 = 40;
const ALL: ReadLimit = ReadLimit { entries: usize::MAX, bytes: u64::MAX };

/// Reads when it is waited for.
struct Late {
    heap: Arc<Heap>,
    asked: Mutex<BTreeMap<LoadId, Vec<Extent>>>,
    loads: AtomicU64,
}

impl Loader for Late {
    fn submit(&self, extents: &[Extent]) -> Result<Option<LoadId>, MediaError> {
        let load = LoadId(self.loads.fetch_add(1, Ordering::Relaxed));
        self.asked.lock().expect("no panic").insert(load, extents.to_vec());
        Ok(Some(load))
    }

    fn is_done(&self, load: LoadId) -> bool {
        !self.asked.lock().expect("no panic").contains_key(&load)
    }

    fn wait(&self, load: LoadId) -> bool {
        let extents = self.asked.lock().expect("no panic").remove(&load);
        for extent in extents.into_iter().flatten() {
            self.heap.load(extent).expect("reads");
            self.heap.runs().release_loaded(extent);
        }
        true
    }
}

/// Logs on an ordinary file system; `None` where the build directory is on none.
fn logs(path: &Path) -> Option<Logs> {
    let options = OpenOptions { create: Some(64 * RUN_SIZE), memory: Some(MEMORY), ..OpenOptions::default() };
    let opened = open(path, &options).expect("a region");
    create(&*opened.media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("new");
    let logs = LogRecovery::run(opened.media).expect("opens").0;
    logs.heap().memory().is_some().then_some(logs)
}

/// Entries of one extent, of more extents than a record has room for, and in pieces.
fn value(at: u64) -> Vec<u8> {
    let len = [3000, 70_000, 300_000][at as usize % 3];
    (0..len).map(|byte: u64| (byte * 7 + at * 31) as u8).collect()
}

/// Has everything leave memory that may.
fn evict_all(logs: &Logs) {
    logs.heap().relieve_memory(MEMORY);
}

/// A log of entries that are durable, and a loader that must live as long as it is to read.
fn filled(dir: &Path) -> Option<(Logs, Arc<Late>)> {
    let logs = logs(&dir.join("region"))?;
    let heap = Arc::clone(logs.heap());
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    for at in 0..ENTRIES {
        logs.append(&mut writer, b"a", &[Source::Bytes(&value(at))], 1).expect("space").ungated();
        writer.commit_now().expect("durable");
    }
    let late = Arc::new(Late { heap: Arc::clone(&heap), asked: Mutex::default(), loads: AtomicU64::new(0) });
    let loader: Arc<dyn Loader> = Arc::clone(&late) as _;
    heap.set_loader(Arc::downgrade(&loader));
    Some((logs, late))
}

#[test]
fn entries_that_have_left_memory_are_waited_for_and_are_not_damaged() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some((logs, late)) = filled(dir.path()) else { return };
    for at in 0..ENTRIES {
        evict_all(&logs);
        let read = loop {
            match logs.read(b"a", at, ReadLimit { entries: 1, ..ALL }) {
                Err(WalError::Wait(Until::Load(load))) => assert!(logs.heap().wait_for_load(load)),
                page => break page.expect("reads").ungated(),
            }
        };
        let (offset, item) = read.entries.into_iter().next().expect("one entry");
        let item = item.unwrap_or_else(|error| panic!("entry {at}: {error}"));
        assert!((offset, item.to_vec().expect("in bounds")) == (at, value(at)), "entry {at}");
    }
    let asked = late.loads.load(Ordering::Relaxed);
    assert!(asked > ENTRIES, "{asked}: lists of pieces are asked for, too");
}

#[test]
fn entries_that_have_left_memory_are_scrubbed() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let Some((logs, _late)) = filled(dir.path()) else { return };
    let (mut at, mut entries) = (LogScrub::default(), 0);
    loop {
        evict_all(&logs);
        let done = logs.scrub(&mut at, 8);
        entries += done.entries;
        assert_eq!(done.findings, []);
        if done.wrapped {
            break;
        }
    }
    assert_eq!(entries, ENTRIES);
}
