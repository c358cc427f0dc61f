//! Parts of requests, and who reads them.

use super::*;
use landfall_heap::{HeapError, Item, NewRegion, Source, Until, Writer, create};
use landfall_kv::{Engine, KvError, Recovery, SetRequest};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{OpenOptions, RUN_SIZE, open};
use proptest::prelude::*;
use std::path::Path;

proptest! {
    #[test]
    fn parts_make_up_the_extent_and_begin_and_end_at_multiples_of_a_part(
        off in 0_u64..8 << 20,
        len in 1_u32..5 << 20,
    ) {
        let parts: Vec<Extent> = parts_of(Extent::new(off, len)).collect();
        let end = off + u64::from(len);
        prop_assert_eq!((parts[0].off, parts[parts.len() - 1].end()), (off, end));
        for two in parts.windows(2) {
            prop_assert_eq!(two[0].end(), two[1].off);
            prop_assert!(two[1].off.is_multiple_of(PART_BYTES), "{parts:?}");
        }
        prop_assert!(parts.iter().all(|part| u64::from(part.len()) <= PART_BYTES && !part.is_empty()));
    }
}

const MEMORY: u64 = 12 * RUN_SIZE;
const LEN: usize = 600_000;

/// An engine on an ordinary file system, of which little may be in memory; `None` where the build directory is on none.
fn engine(path: &Path) -> Option<Engine> {
    let options = OpenOptions { create: Some(48 * RUN_SIZE), memory: Some(MEMORY), ..OpenOptions::default() };
    let opened = open(path, &options).expect("a region");
    create(&*opened.media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("new");
    let engine = Recovery::run(opened.media, 4).expect("opens").0;
    engine.heap().memory().is_some().then_some(engine)
}

/// Stores a value as a server does that has received it, by reference.
fn store(engine: &Engine, writer: &mut Writer, key: &[u8], value: &[u8]) {
    let heap = engine.heap();
    let run = heap.take_landing_run().expect("space");
    let extent = Extent::new(run + 100, u32::try_from(value.len()).expect("a short value"));
    heap.media().store(extent.off, value).expect("in bounds");
    heap.runs().hold(extent);
    heap.retire_landing_run(run);
    let value = Source::Landed { extents: &[extent], crc: None };
    let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
    engine.set(writer, &request).expect("space").ungated();
    heap.runs().release(extent);
}

#[test]
fn who_waits_in_a_thread_without_rounds_needs_no_worker() {
    let folder = std::env::current_exe().expect("a test").parent().expect("a folder").to_owned();
    let dir = tempfile::TempDir::new_in(folder).expect("a directory");
    let Some(engine) = engine(&dir.path().join("region")) else { return };
    let heap = engine.heap();
    let value: Vec<u8> = (0..LEN).map(|at| (at * 7 / 5) as u8).collect();
    let mut writer = Writer::new(Arc::clone(heap), 0);
    store(&engine, &mut writer, b"key", &value);
    writer.commit_now().expect("durable");
    let _loads = Loads::of(heap).expect("it is paged");
    heap.relieve_memory(MEMORY);
    // Nobody has started the loader's threads, and there is no worker.
    let mut asked = 0;
    let read = loop {
        let outcome = engine.get(0, b"key", 1).and_then(|item| {
            let item = item.ungated().expect("it is there");
            item.fetch()?;
            Ok(item.to_vec().expect("in bounds"))
        });
        match outcome {
            Err(KvError::Wait(Until::Load(load))) => assert!(heap.wait_for_load(load)),
            outcome => break outcome.expect("reads"),
        }
        asked += 1;
    };
    assert!(read == value);
    assert_eq!(asked, 1, "it was in memory when it had been read");
}

/// A disk may take seconds to say that a sector is bad, and a worker would read it for each command that names the key.
#[test]
fn what_could_not_be_read_is_an_error_for_who_asks_next_and_is_not_read_by_it() {
    let media = SimMedia::new(48 * RUN_SIZE, SimOptions::default());
    media.page(MEMORY);
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("new");
    let engine = Recovery::run(Arc::clone(&media) as _, 4).expect("opens").0;
    let heap = engine.heap();
    let mut writer = Writer::new(Arc::clone(heap), 0);
    store(&engine, &mut writer, b"key", &[7; LEN]);
    writer.commit_now().expect("durable");
    let _loads = Loads::of(heap).expect("it is paged");
    heap.relieve_memory(MEMORY);
    let item = engine.peek(0, b"key", 1).expect("reads").ungated().expect("it is there");
    item.extents().iter().for_each(|extent| media.fail_reads(*extent));
    let Err(HeapError::Loading(load)) = item.fetch() else { panic!("it has left memory") };
    assert!(heap.wait_for_load(load));
    let error = item.fetch().expect_err("nobody reads it again");
    assert!(matches!(&error, HeapError::Media(MediaError::Io { .. })), "{error}");
    // Of several items it is one item's error.
    Item::fetch_all([&item].into_iter()).expect("there is nothing to wait for");
    assert!(matches!(item.verify(), Err(MediaError::Io { .. })));
}

#[test]
fn a_read_that_was_cut_short_is_no_refusal() {
    let error = |source| MediaError::Io { path: "region".into(), action: "read the region", source };
    assert!(is_refusal(&error(io::Error::from_raw_os_error(libc::EIO))));
    for source in [io::ErrorKind::UnexpectedEof.into(), io::Error::from_raw_os_error(libc::EINTR)] {
        assert!(!is_refusal(&error(source)));
    }
}
