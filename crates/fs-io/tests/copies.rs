//! Data of 4 KiB and more are not copied in user space: the heap counts what it copies.

use landfall_fs::{FilesRecovery, OpenFiles};
use landfall_fs_io::{Session, Settings};
use landfall_heap::{CopyPath, NewRegion, Region, Tenant};
use landfall_media::{OpenOptions, RUN_SIZE};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const BLOCKS: u64 = 1024;
/// What records of the operations and of the tree may copy, bytes: names and attributes.
const RECORDS_MAX: u64 = 256 << 10;

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn data_are_not_copied_from_the_write_to_the_read() {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        eprintln!("SKIP: a FUSE mount: /dev/fuse: {error}");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (point, region) = (place.path().join("point"), place.path().join("region"));
    std::fs::create_dir(&point).unwrap();
    let options = OpenOptions { create: Some(64 * RUN_SIZE), ..OpenOptions::default() };
    let media = landfall_media::open(&region, &options).unwrap().media;
    landfall_heap::create(&*media, &NewRegion { salt: [1; 16], hash_seed: 1, created_ms: 0 }).unwrap();
    let recovery = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>]).unwrap();
    let (now_ns, identity) = (0, [1; 16]);
    let options =
        OpenFiles { now_ns, identity, mode: 0o755, uid: 0, gid: 0, log_writer: 0, publish_writer: 1 };
    let (files, publisher, _) = recovery.open(&heap, &options).unwrap();
    let session = Session::start(files, publisher, &point, &Settings::default()).unwrap();

    let file = File::create_new(point.join("f")).unwrap();
    let content: Vec<u8> = (0..BLOCKS * 4096).map(|at| ((at * 31) >> 7) as u8).collect();
    file.write_all_at(&content[..content.len() / 2], 0).unwrap();
    for block in BLOCKS / 2..BLOCKS {
        let at = block * 4096;
        file.write_all_at(&content[at as usize..at as usize + 4096], at).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    // The kernel keeps what was written, until the files are mounted again.
    session.stopper().stop();
    session.join().unwrap();
    let sum = |paths: &[CopyPath]| paths.iter().map(|path| heap.copies.get(*path)).sum::<u64>();
    assert_eq!(sum(&[CopyPath::Reply, CopyPath::Stalled, CopyPath::Consolidated, CopyPath::Moved]), 0);
    let records = sum(&[CopyPath::Inline, CopyPath::Placed, CopyPath::Key, CopyPath::List]);
    assert!(records < RECORDS_MAX, "{records} bytes were copied for {} bytes of data", content.len());
    drop(heap);

    let media = landfall_media::open(&region, &OpenOptions::default()).unwrap().media;
    let recovery = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media, vec![Arc::clone(&recovery) as Arc<dyn Tenant>]).unwrap();
    let (files, publisher, _) = recovery.open(&heap, &options).unwrap();
    let session = Session::start(files, publisher, &point, &Settings::default()).unwrap();
    assert!(std::fs::read(point.join("f")).unwrap() == content);
    session.stopper().stop();
    session.join().unwrap();
    assert_eq!(heap.copies.get(CopyPath::Reply), 0);
}
