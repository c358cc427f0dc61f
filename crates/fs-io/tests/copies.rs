//! Data of 4 KiB and more are not copied in user space, and once over io_uring: the heap counts what it copies.

mod common;

use common::ring::RingAllowed;
use landfall_fs::{FilesRecovery, OpenFiles};
use landfall_fs_io::{Session, Settings, TransportKind};
use landfall_heap::{CopyPath, Heap, NewRegion, Region, Tenant};
use landfall_media::{OpenOptions, RUN_SIZE};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 1024;
/// How long a thread may be listed after its end.
const SOON: Duration = Duration::from_secs(10);
/// What records of the operations and of the tree may copy, bytes: names and attributes.
const RECORDS_MAX: u64 = 256 << 10;

/// Bytes that were copied from a program's writes to another one's reads, where these are not all in the kernel.
struct Copied {
    /// Of what was written: as data, and as records.
    data_bytes: u64,
    record_bytes: u64,
    /// Of what was read.
    read_bytes: u64,
}

/// Mounts the region, which is new if there is none.
fn mount(region: &Path, point: &Path, transport: TransportKind) -> (Session, Arc<Heap>) {
    let is_new = !region.exists();
    let options = OpenOptions { create: is_new.then_some(64 * RUN_SIZE), ..OpenOptions::default() };
    let media = landfall_media::open(region, &options).unwrap().media;
    if is_new {
        landfall_heap::create(&*media, &NewRegion { salt: [1; 16], hash_seed: 1, created_ms: 0 }).unwrap();
    }
    let recovery = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>]).unwrap();
    let (now_ns, identity) = (0, [1; 16]);
    let options =
        OpenFiles { now_ns, identity, mode: 0o755, uid: 0, gid: 0, log_writer: 0, publish_writer: 1 };
    let (files, publisher, _) = recovery.open(&heap, &options).unwrap();
    let settings = Settings { transport, ..Settings::default() };
    (Session::start(files, publisher, point, &settings).unwrap(), heap)
}

fn stop(session: Session) {
    session.stopper().stop();
    session.join().unwrap();
}

/// Writes the content of a file, mounts again, and reads it.
fn copied(transport: TransportKind, content: &[u8]) -> Copied {
    let place = tempfile::tempdir().unwrap();
    let (point, region) = (place.path().join("point"), place.path().join("region"));
    std::fs::create_dir(&point).unwrap();
    let (session, heap) = mount(&region, &point, transport);
    let file = File::create_new(point.join("f")).unwrap();
    file.write_all_at(&content[..content.len() / 2], 0).unwrap();
    for block in BLOCKS / 2..BLOCKS {
        let at = block * 4096;
        file.write_all_at(&content[at as usize..at as usize + 4096], at).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    // The kernel keeps what was written, until the files are mounted again.
    stop(session);
    let sum = |paths: &[CopyPath]| paths.iter().map(|path| heap.copies.get(*path)).sum::<u64>();
    assert_eq!(sum(&[CopyPath::Reply, CopyPath::Stalled, CopyPath::Consolidated, CopyPath::Moved]), 0);
    let data_bytes = sum(&[CopyPath::Placed]);
    let record_bytes = sum(&[CopyPath::Inline, CopyPath::Key, CopyPath::List]);
    drop(heap);

    let (session, heap) = mount(&region, &point, transport);
    assert!(std::fs::read(point.join("f")).unwrap() == content);
    stop(session);
    Copied { data_bytes, record_bytes, read_bytes: heap.copies.get(CopyPath::Reply) }
}

fn content() -> Vec<u8> {
    (0..BLOCKS * 4096).map(|at| ((at * 31) >> 7) as u8).collect()
}

#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn can_mount() -> bool {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("SKIP: a FUSE mount: /dev/fuse: {error}");
    }
    opened.is_ok()
}

#[test]
fn data_are_not_copied_from_the_write_to_the_read() {
    if !can_mount() {
        return;
    }
    let content = content();
    let copied = copied(TransportKind::Device, &content);
    let records = copied.data_bytes + copied.record_bytes;
    assert!(records < RECORDS_MAX, "{records} bytes were copied for {} bytes of data", content.len());
    assert_eq!(copied.read_bytes, 0);
}

#[test]
fn data_are_copied_once_by_each_write_and_read_over_io_uring_and_no_thread_is_left() {
    if !can_mount() {
        return;
    }
    let Some(_allowed) = RingAllowed::new() else { return };
    let content = content();
    let copied = copied(TransportKind::Uring, &content);
    let written = copied.data_bytes + copied.record_bytes;
    let len = content.len() as u64;
    assert!(
        (len..len + RECORDS_MAX).contains(&written),
        "{written} bytes were copied for {len} bytes of data"
    );
    assert!((len..len + RECORDS_MAX).contains(&copied.read_bytes), "{} of {len} bytes", copied.read_bytes);
    // The kernel lists a thread that was joined for a moment longer.
    let until = Instant::now() + SOON;
    while threads().iter().any(|name| name.starts_with("ring-") || name == "sync") {
        assert!(Instant::now() < until, "{:?}", threads());
        std::thread::yield_now();
    }
}

/// Names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |path: PathBuf| Some(std::fs::read_to_string(path.join("comm")).ok()?.trim().to_owned());
    tasks.filter_map(|task| name(task.ok()?.path())).collect()
}
