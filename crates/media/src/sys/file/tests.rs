use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::*;
use crate::sys::call;
use crate::sys::kind::Found;
use crate::sys::lock::LockedFile;
use crate::{BLOCK_SIZE, Standing, persist};

fn region(file: File, len: u64, created: bool) -> Region {
    let file = LockedFile::take(Path::new("region"), file, false).expect("no other process has it");
    let found = Found { kind: MediaKind::File, fs_type: call::magic::EXT4, map_align: BLOCK_SIZE };
    Region { file, path: Path::new("region").into(), found, len, created, read_only: false, salvage: false }
}

/// A region over `file`, which is treated as a file on ext4, whatever file system holds it.
fn media(file: &File, len: u64, created: bool) -> FileMedia {
    let file = file.try_clone().expect("a second descriptor");
    FileMedia::open(region(file, len, created), None, 0).expect("a region")
}

fn allocated(runs: u64) -> File {
    let file = tempfile::tempfile().expect("a temporary file");
    call::allocate(&file, 0, runs * RUN_SIZE).expect("space for it");
    file
}

fn full_device() -> FileMedia {
    let file = fs::OpenOptions::new().read(true).write(true).open("/dev/full").expect("every Linux has it");
    media(&file, 4 * RUN_SIZE, true)
}

#[test]
fn a_full_device_at_write_time_closes_the_region_permanently() {
    let media = full_device();
    let (mut one, mut several) = (Dirty::new(), Dirty::new());
    media.store(0, b"x").expect("the image is in memory");
    media.flush(&mut one, Site::Data, Extent::new(0, 1));
    media.flush(&mut several, Site::Data, Extent::new(0, 1));
    media.flush(&mut several, Site::Data, Extent::new(2 * RUN_SIZE, 1));
    assert_eq!(media.file_writes(&several).extents().count(), 2);
    let first = media.fence(&mut several, Site::Commit).expect_err("the device is full");
    assert!(
        matches!(&first, MediaError::WriteBack { source } if source.raw_os_error() == Some(libc::ENOSPC)),
        "{first}"
    );
    assert!(!several.is_empty(), "what is not durable is still dirty");
    assert!(media.closed().expect("closed").contains("No space left"), "the reason is the first failure");
    for _ in 0..2 {
        assert!(matches!(media.fence(&mut one, Site::Commit), Err(MediaError::Closed { .. })));
        assert!(matches!(media.finish_writes(Ok(())), Err(MediaError::Closed { .. })));
    }
    assert!(media.file_writes(&one).is_empty(), "nothing more is handed to a driver");
    media.store(0, b"y").expect("the image stays writable");
}

#[test]
fn a_batch_of_one_synchronous_write_latches_as_several_do() {
    let media = full_device();
    let mut dirty = Dirty::new();
    media.flush(&mut dirty, Site::Data, Extent::new(0, 1));
    assert!(matches!(media.fence(&mut dirty, Site::Commit), Err(MediaError::WriteBack { .. })));
    assert!(media.closed().is_some());
}

#[test]
fn a_batch_that_waited_for_a_failed_batch_is_not_written() {
    let media = media(&allocated(1), RUN_SIZE, true);
    let mut dirty = Dirty::new();
    media.store(0, b"waited").expect("in bounds");
    media.flush(&mut dirty, Site::Data, Extent::new(0, 6));
    let planned = media.file_writes(&dirty);
    let _ = media.backing.latch(io::Error::from_raw_os_error(libc::EIO));
    assert!(matches!(media.backing.write_back(&planned), Err(MediaError::Closed { .. })));
    let mut medium = [9; 6];
    media.read_medium(Extent::new(0, 6), &mut medium).expect("readable");
    assert_eq!(medium, [0; 6]);
}

#[test]
fn a_drivers_failure_closes_the_region() {
    let media = media(&allocated(1), RUN_SIZE, true);
    let eio = || io::Error::from_raw_os_error(libc::EIO);
    assert!(media.finish_writes(Ok(())).is_ok());
    assert!(matches!(media.finish_writes(Err(eio())), Err(MediaError::WriteBack { .. })));
    assert!(matches!(media.finish_writes(Err(eio())), Err(MediaError::Closed { .. })));
    assert!(matches!(media.grow(2 * RUN_SIZE), Err(MediaError::Closed { .. })));
}

#[test]
fn a_file_truncated_while_open_is_an_error_and_is_not_read_as_zeroes() {
    let file = tempfile::tempfile().expect("a temporary file");
    file.write_all_at(&vec![7; 2 * RUN_SIZE as usize], 0).expect("space for it");
    let media = media(&file, 2 * RUN_SIZE, false);
    file.set_len(RUN_SIZE + 4096).expect("cut");
    assert_eq!(media.bytes(Extent::new(0, 1)).expect("still there"), [7]);
    let error = media.bytes(Extent::new(RUN_SIZE, 1)).expect_err("cut off");
    assert!(matches!(error, MediaError::Truncated { actual, .. } if actual == RUN_SIZE + 4096), "{error}");
    let mut dirty = Dirty::new();
    media.flush(&mut dirty, Site::Data, Extent::new(RUN_SIZE, 1));
    assert!(media.file_writes(&dirty).is_empty(), "a block whose neighbours are unknown is not written");
    assert!(matches!(media.finish_writes(Ok(())), Err(MediaError::Closed { .. })));
}

/// A region of two runs whose second one has a bad block, and the offset of that: this process's own memory, of which what is not
/// mapped cannot be read.
fn bad_device() -> (File, u64) {
    let bad = RUN_SIZE + 5 * BLOCK_SIZE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let wanted = std::ptr::without_provenance_mut(RUN_SIZE as usize);
    // SAFETY: the call fails if anything is mapped there.
    let run = unsafe { libc::mmap(wanted, RUN_SIZE as usize, protection, flags, -1, 0) };
    assert_eq!(run.addr() as u64, RUN_SIZE, "nothing else is mapped there");
    // SAFETY: the run was just mapped, and nobody else knows of it.
    unsafe { run.cast::<u8>().write_bytes(7, RUN_SIZE as usize) };
    // SAFETY: a page of the run, to which nothing refers.
    let unmapped = unsafe { libc::munmap(run.byte_add((bad - RUN_SIZE) as usize), BLOCK_SIZE as usize) };
    assert_eq!(unmapped, 0);
    (File::open("/proc/self/mem").expect("every Linux has it"), bad)
}

#[test]
fn a_bad_block_is_an_error_or_zeroes_that_are_named_where_the_region_is_to_be_salvaged() {
    let (file, bad) = bad_device();
    let medium = |salvage, memory| {
        let file = file.try_clone().expect("a second descriptor");
        let mut region = Region { salvage, ..region(file, 2 * RUN_SIZE, false) };
        // Memory has no holes to ask for.
        region.found.fs_type = 0;
        FileMedia::open(region, memory, 0).expect("a region")
    };
    let (block, whole) = (Extent::new(bad, BLOCK_SIZE as u32), Extent::new(RUN_SIZE, RUN_SIZE as u32));
    for memory in [None, Some(RUN_SIZE)] {
        let strict = medium(false, memory);
        let error = strict.bytes(whole).expect_err("a block is bad");
        assert!(matches!(&error, MediaError::Io { source, .. } if source.raw_os_error() == Some(libc::EIO)));
        assert_eq!(strict.unreadable(), []);
        drop(strict);
        let lenient = medium(true, memory);
        assert_eq!(lenient.unreadable(), [], "nothing was needed yet");
        if memory.is_some() {
            // Of a run that is paged, only what is needed is read.
            Pages::pin(&lenient, block);
            assert!(lenient.bytes(block).expect("readable").iter().all(|byte| *byte == 0));
            Pages::unpin(&lenient, block);
        }
        if memory.is_some() {
            Pages::pin(&lenient, whole);
        }
        let bytes = lenient.bytes(whole).expect("readable");
        let (before, from) = bytes.split_at((bad - RUN_SIZE) as usize);
        let (lost, behind) = from.split_at(BLOCK_SIZE as usize);
        assert!(before.iter().chain(behind).all(|byte| *byte == 7) && lost.iter().all(|byte| *byte == 0));
        assert_eq!(lenient.unreadable(), [block]);
        assert!(
            lenient.read_medium(block, &mut [0; BLOCK_SIZE as usize]).is_err(),
            "the device says it still"
        );
    }
}

#[test]
fn runs_are_zeroed_ahead_of_use_on_request() {
    let file = allocated(8);
    let media = media(&file, 8 * RUN_SIZE, true);
    let bare = |run: u64| media.forget_run(run * RUN_SIZE) == Standing::Bare;
    assert!((0..8).all(bare));
    for run in [0, 1, 1] {
        assert_eq!(media.back_run(run * RUN_SIZE).expect("prepares"), Standing::Backed);
    }
    assert!(!bare(1) && bare(2));
    let together = [1, 2, 3, 5].map(|run| run * RUN_SIZE);
    assert_eq!(media.back_runs(&together).expect("prepares"), [Standing::Backed; 4]);
    assert!(!bare(3) && bare(4) && !bare(5));
    let hole = call::seek_hole(&file, 0).expect("seeks");
    // tmpfs has no unwritten blocks: there, every block counts as data from the start.
    assert!(hole == 4 * RUN_SIZE || hole == 8 * RUN_SIZE, "{hole}");
    assert!(!media.load_some().expect("nothing to load"), "no other run is prepared");
}

#[test]
fn runs_are_zeroed_in_the_order_of_the_device_whatever_the_order_in_which_they_became_free() {
    let file = allocated(8);
    let media = media(&file, 8 * RUN_SIZE, true);
    let asked = [6, 2, 3, 1].map(|run| run * RUN_SIZE);
    assert_eq!(media.back_runs(&asked).expect("prepares"), [Standing::Backed; 4]);
    let is_bare = |run: u64| media.forget_run(run * RUN_SIZE) == Standing::Bare;
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(is_bare), [true, false, false, false, true, true, false, true]);
}

#[test]
fn no_zeroes_are_written_ahead_while_much_is_written_at_a_time() {
    let file = allocated(8);
    let media = media(&file, 8 * RUN_SIZE, true);
    let save = |extent: Extent| {
        media.store(extent.off, &vec![7; extent.len() as usize]).expect("in bounds");
        persist(&media, extent, Site::Data, Site::Commit).expect("durable");
    };
    let prepare = |run: u64| {
        assert_eq!(media.back_run(run * RUN_SIZE).expect("prepares"), Standing::Backed);
        call::seek_hole(&file, run * RUN_SIZE).expect("seeks")
    };
    save(Extent::new(0, RUN_SIZE as u32));
    let hole = prepare(2);
    // tmpfs has no unwritten blocks: there, every block counts as data from the start.
    assert!(hole == 2 * RUN_SIZE || hole == 8 * RUN_SIZE, "{hole}");
    save(Extent::new(RUN_SIZE, 4096));
    let hole = prepare(4);
    assert!(hole == 5 * RUN_SIZE || hole == 8 * RUN_SIZE, "{hole}");
}

#[test]
fn a_run_given_back_has_no_blocks_reads_as_zeroes_and_can_be_used_again() {
    let file = allocated(4);
    let media = media(&file, 4 * RUN_SIZE, true);
    let blocks = || file.metadata().expect("its size").blocks();
    let save = |byte| {
        let whole = Extent::new(RUN_SIZE, RUN_SIZE as u32);
        media.claim_run(RUN_SIZE).expect("there is space");
        media.store(RUN_SIZE, &vec![byte; RUN_SIZE as usize]).expect("in bounds");
        persist(&media, whole, Site::Data, Site::Commit).expect("durable");
    };
    save(7);
    let before = blocks();
    assert_eq!(media.give_back_run(RUN_SIZE, Standing::Backed).expect("gives"), Standing::Backed);
    assert_eq!(blocks(), before, "only its memory is released");
    assert_eq!(media.bytes(Extent::new(RUN_SIZE, 2)).expect("readable"), [0, 0]);
    assert_eq!(media.give_back_run(RUN_SIZE, Standing::Bare).expect("gives"), Standing::Bare);
    assert_eq!(before - blocks(), RUN_SIZE / 512);
    assert_eq!(file.metadata().expect("its size").len(), 4 * RUN_SIZE);
    let mut medium = [9; 4];
    media.read_medium(Extent::new(RUN_SIZE, 4), &mut medium).expect("readable");
    assert_eq!(medium, [0; 4]);
    save(8);
    assert_eq!(blocks(), before);
    media.read_medium(Extent::new(2 * RUN_SIZE - 4, 4), &mut medium).expect("readable");
    assert_eq!(medium, [8; 4]);
}

#[test]
fn an_image_whose_pages_a_kernel_references_gives_nothing_back() {
    let media = media(&allocated(2), 2 * RUN_SIZE, true);
    media.store(RUN_SIZE, b"held").expect("in bounds");
    assert_eq!(media.pin_image(), media.image());
    for to in [Standing::Backed, Standing::Bare] {
        assert_eq!(media.give_back_run(RUN_SIZE, to).expect("nothing to do"), Standing::Warm);
    }
    assert_eq!(media.bytes(Extent::new(RUN_SIZE, 4)).expect("readable"), b"held");
}

#[test]
fn a_run_is_not_given_back_while_it_is_being_written() {
    let media = media(&allocated(2), 2 * RUN_SIZE, true);
    let mut dirty = Dirty::new();
    media.store(0, b"on its way").expect("in bounds");
    media.flush(&mut dirty, Site::Data, Extent::new(0, 10));
    let batch = media.file_writes(&dirty);
    let given = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let outcome = batch.run(|_, _| {
            threads.spawn(|| {
                media.give_back_run(0, Standing::Bare).expect("gives");
                given.store(true, Ordering::SeqCst);
            });
            // The batch's blocks are held until this closure returns, however long the other thread waits.
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(!given.load(Ordering::SeqCst));
            assert_eq!(media.bytes(Extent::new(0, 10)).expect("readable"), b"on its way");
            Ok(())
        });
        outcome.expect("nothing fails");
    });
    assert!(given.load(Ordering::SeqCst));
}

#[test]
fn a_thread_that_has_written_is_not_interrupted_when_the_medium_is_gone() {
    let dir = tempfile::tempdir_in(".").expect("a folder");
    let options = crate::OpenOptions { create: Some(4 * RUN_SIZE), ..crate::OpenOptions::default() };
    let media = crate::open(&dir.path().join("region"), &options).expect("opens").media;
    let mut dirty = Dirty::new();
    for run in 0..4 {
        media.store(run * RUN_SIZE, b"apart").expect("in bounds");
        media.flush(&mut dirty, Site::Data, Extent::new(run * RUN_SIZE, 5));
    }
    media.fence(&mut dirty, Site::Commit).expect("durable");
    drop(media);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout");
    let error = socket.recv(&mut [0]).expect_err("nobody sends");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
}

#[test]
fn zeroes_written_ahead_never_overwrite_stored_bytes() {
    const RUNS: u64 = 24;
    let file = allocated(RUNS);
    let media = media(&file, RUNS * RUN_SIZE, false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for run in 0..RUNS {
                media.back_run(run * RUN_SIZE).expect("prepares");
            }
        });
        // From both ends, so that the two threads are certain to meet.
        for at in (0..RUNS).rev().chain(0..RUNS) {
            let extent = Extent::new(at * RUN_SIZE + at * 512, 16);
            media.store(extent.off, format!("run {at:12}").as_bytes()).expect("in bounds");
            persist(&media, extent, Site::Data, Site::Commit).expect("durable");
        }
    });
    for at in 0..RUNS {
        let mut got = [0; 16];
        file.read_exact_at_direct(&mut got, at * RUN_SIZE + at * 512);
        assert_eq!(got, *format!("run {at:12}").as_bytes());
    }
}

/// Reads through a descriptor that may be in direct mode.
trait ReadAligned {
    fn read_exact_at_direct(&self, into: &mut [u8], off: u64);
}

impl ReadAligned for File {
    fn read_exact_at_direct(&self, into: &mut [u8], off: u64) {
        let len = self.metadata().expect("its size").len();
        let media = media(self, len, false);
        media.read_medium(Extent::new(off, into.len() as u32), into).expect("readable");
    }
}

#[test]
fn file_systems_with_inexact_holes_are_read_in_full() {
    let file = allocated(2);
    let mut region = region(file, 2 * RUN_SIZE, false);
    region.found.fs_type = 0;
    let media = FileMedia::open(region, None, 0).expect("a region");
    let mut loads = 0;
    while media.load_some().expect("loads") {
        loads += 1;
    }
    assert_eq!(loads, 2, "every run is read, and none is zeroed ahead");
}

#[test]
fn btrfs_is_written_through_the_page_cache_and_the_reason_is_reported() {
    let mut region = region(allocated(1), RUN_SIZE, true);
    region.found.fs_type = call::magic::BTRFS;
    let media = FileMedia::open(region, None, 0).expect("a region");
    assert!(media.describe().contains("btrfs"), "{}", media.describe());
    media.store(5000, b"abc").expect("in bounds");
    persist(&media, Extent::new(5000, 3), Site::Data, Site::Commit).expect("durable");
    let mut got = [0; 3];
    media.read_medium(Extent::new(5000, 3), &mut got).expect("readable");
    assert_eq!(&got, b"abc");
}
