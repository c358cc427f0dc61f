//! Regions on real media: what was made durable is found again after reopening, lazy loading, and growth.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use common::{create, disk, memory, places, region};
use landfall_media::{
    BLOCK_SIZE, CommitMode, Dirty, Extent, Media, MediaError, OpenOptions, RUN_SIZE, Site, Standing, open,
    persist,
};

fn reopen(dir: &tempfile::TempDir) -> Arc<dyn Media> {
    open(&region(dir), &OpenOptions::default()).expect("opened").media
}

fn save(media: &dyn Media, off: u64, bytes: &[u8]) {
    media.store(off, bytes).expect("in bounds");
    persist(media, Extent::new(off, bytes.len() as u32), Site::Data, Site::Commit).expect("durable");
}

/// The byte that a patterned file has at `off`.
fn pattern(off: u64) -> u8 {
    (off.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn patterned(dir: &tempfile::TempDir, runs: u64) {
    let bytes: Vec<u8> = (0..runs * RUN_SIZE).map(pattern).collect();
    fs::write(region(dir), bytes).expect("space for it");
}

#[test]
fn fenced_bytes_are_found_after_reopening() {
    for dir in places() {
        let media = create(&region(&dir), 2).expect("created").media;
        let mut dirty = Dirty::new();
        for off in [3, 70_000, RUN_SIZE - 2] {
            media.store(off, b"here").expect("in bounds");
            media.flush(&mut dirty, Site::Data, Extent::new(off, 4));
        }
        media.store_u64(RUN_SIZE + 8, 0x0102_0304_0506_0708).expect("in bounds");
        media.flush(&mut dirty, Site::Record, Extent::new(RUN_SIZE + 8, 8));
        media.fence(&mut dirty, Site::Commit).expect("durable");
        assert!(dirty.is_empty());
        drop(media);
        let media = reopen(&dir);
        for off in [3, 70_000, RUN_SIZE - 2] {
            assert_eq!(media.bytes(Extent::new(off, 4)).expect("readable"), b"here");
        }
        let word = media.bytes(Extent::new(RUN_SIZE + 8, 8)).expect("readable");
        assert_eq!(word, [8, 7, 6, 5, 4, 3, 2, 1], "words are little-endian");
    }
}

#[test]
fn bytes_that_a_driver_writes_and_syncs_are_found_after_reopening() {
    let Some(dir) = disk() else { return };
    let media = create(&region(&dir), 2).expect("created").media;
    assert_eq!(media.commit_mode(), CommitMode::Deferred);
    let mut dirty = Dirty::new();
    for off in [10_000, RUN_SIZE + 1] {
        media.store(off, b"driven").expect("in bounds");
        media.flush(&mut dirty, Site::Data, Extent::new(off, 6));
    }
    let batch = media.file_writes(&dirty.take());
    let extents: Vec<_> = batch.extents().collect();
    assert_eq!(extents, [Extent::new(8192, 4096), Extent::new(RUN_SIZE, 4096)]);
    let base = media.image().expect("mapped").0;
    let outcome = batch.run(|target, writes| {
        assert!(writes.iter().all(|w| w.addr == base + w.extent.off as usize));
        let file = fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{target}")).expect("ours");
        for write in writes {
            let bytes = media.bytes(write.extent).expect("resident");
            file.write_all_at(bytes, write.extent.off).expect("written");
        }
        file.sync_data()
    });
    media.finish_writes(outcome).expect("open");
    drop(media);
    assert_eq!(reopen(&dir).bytes(Extent::new(10_000, 6)).expect("readable"), b"driven");
    assert_eq!(reopen(&dir).bytes(Extent::new(RUN_SIZE + 1, 6)).expect("readable"), b"driven");
}

#[test]
fn unfenced_bytes_are_seen_at_once_and_are_not_on_the_medium() {
    let Some(dir) = disk() else { return };
    let media = create(&region(&dir), 1).expect("created").media;
    media.store(100, b"later").expect("in bounds");
    assert_eq!(media.bytes(Extent::new(100, 5)).expect("readable"), b"later");
    let mut medium = [9; 5];
    media.read_medium(Extent::new(100, 5), &mut medium).expect("readable");
    assert_eq!(medium, [0; 5]);
    save(&*media, 100, b"saved");
    media.read_medium(Extent::new(100, 5), &mut medium).expect("readable");
    assert_eq!(&medium, b"saved");
}

#[test]
fn the_medium_is_read_at_any_offset_and_length() {
    for dir in places() {
        patterned(&dir, 3);
        let media = reopen(&dir);
        for (off, len) in [(0, 1), (4095, 2), (RUN_SIZE - 7, 2 * RUN_SIZE as usize), (5, 0)] {
            let mut got = vec![0; len];
            media.read_medium(Extent::new(off, len as u32), &mut got).expect("readable");
            assert!(got.iter().zip(off..).all(|(byte, at)| *byte == pattern(at)), "{off}+{len}");
        }
        assert!(media.read_medium(Extent::new(0, 4), &mut [0; 5]).is_err());
        assert!(media.read_medium(Extent::new(3 * RUN_SIZE - 1, 2), &mut [0; 2]).is_err());
    }
}

#[test]
fn concurrent_readers_of_a_lazily_loaded_region_see_the_file() {
    const RUNS: u64 = 24;
    for dir in places() {
        patterned(&dir, RUNS);
        let media = reopen(&dir);
        std::thread::scope(|threads| {
            for reader in 0..6_u64 {
                let media = &media;
                threads.spawn(move || {
                    for step in 0..400_u64 {
                        let run = (step * 7 + reader * 5) % (RUNS - 1);
                        // Across the edge of two runs.
                        let off = (run + 1) * RUN_SIZE - 1 - step % 50;
                        let got = media.bytes(Extent::new(off, 100)).expect("readable");
                        assert!(got.iter().zip(off..).all(|(byte, at)| *byte == pattern(at)));
                    }
                });
            }
            threads.spawn(|| while media.load_some().expect("loads") {});
        });
        assert!(!media.load_some().expect("nothing left"));
    }
}

#[test]
fn a_write_of_a_few_bytes_leaves_their_unloaded_neighbours_alone() {
    for dir in places() {
        patterned(&dir, 3);
        let places = [0, 5000, RUN_SIZE - 1, RUN_SIZE + 777, 3 * RUN_SIZE - 1];
        {
            let media = reopen(&dir);
            let mut dirty = Dirty::new();
            for off in places {
                media.store(off, b"!").expect("in bounds");
                media.flush(&mut dirty, Site::Data, Extent::new(off, 1));
            }
            media.fence(&mut dirty, Site::Commit).expect("durable");
        }
        let got = fs::read(region(&dir)).expect("readable");
        let wrong =
            |(off, byte): &(u64, u8)| *byte != if places.contains(off) { b'!' } else { pattern(*off) };
        assert_eq!((0..).zip(got).find(wrong), None);
    }
}

#[test]
fn a_flush_without_a_store_writes_what_the_file_holds() {
    let Some(dir) = disk() else { return };
    patterned(&dir, 2);
    let media = reopen(&dir);
    persist(&*media, Extent::new(RUN_SIZE - 1, 2), Site::Data, Site::Commit).expect("durable");
    drop(media);
    assert!((0..).zip(fs::read(region(&dir)).expect("readable")).all(|(at, byte)| byte == pattern(at)));
}

#[test]
fn a_claimed_run_is_written_without_its_old_bytes() {
    let Some(dir) = disk() else { return };
    patterned(&dir, 2);
    let media = reopen(&dir);
    media.claim_run(RUN_SIZE).expect("a run");
    save(&*media, RUN_SIZE + BLOCK_SIZE, b"new");
    assert!(media.claim_run(2 * RUN_SIZE).is_err(), "past the end");
    drop(media);
    let got = fs::read(region(&dir)).expect("readable");
    assert_eq!(&got[(RUN_SIZE + BLOCK_SIZE) as usize..][..4], b"new\0", "zeroes, not the old bytes");
    assert_eq!(got[RUN_SIZE as usize], pattern(RUN_SIZE), "other blocks of the file are as they were");
}

#[test]
fn zeroing_covers_whole_and_partial_runs() {
    for dir in places() {
        patterned(&dir, 4);
        let extent = Extent::new(RUN_SIZE - 10, 2 * RUN_SIZE as u32 + 20);
        {
            let media = reopen(&dir);
            media.zero(extent).expect("in bounds");
            persist(&*media, extent, Site::Erase, Site::EraseFence).expect("durable");
        }
        let media = reopen(&dir);
        assert!(media.bytes(extent).expect("readable").iter().all(|byte| *byte == 0));
        for off in [extent.off - 1, extent.end()] {
            assert_eq!(media.bytes(Extent::new(off, 1)).expect("readable"), [pattern(off)]);
        }
    }
}

#[test]
fn a_region_grows_in_place_and_stays_grown() {
    for dir in places() {
        let media = create(&region(&dir), 1).expect("created").media;
        save(&*media, RUN_SIZE - 4, b"edge");
        let (base, _) = media.image().expect("mapped");
        media.grow(3 * RUN_SIZE).expect("grown");
        media.grow(3 * RUN_SIZE).expect("nothing to do");
        assert_eq!(media.image(), Some((base, 3 * RUN_SIZE)));
        assert_eq!(media.bytes(Extent::new(RUN_SIZE - 4, 6)).expect("readable"), b"edge\0\0");
        save(&*media, 3 * RUN_SIZE - 3, b"end");
        for (len, why) in [(RUN_SIZE, "shrinking"), (3 * RUN_SIZE + 1, "odd"), (1 << 60, "too much")] {
            assert!(matches!(media.grow(len), Err(MediaError::Unsupported(_))), "{why}");
        }
        drop(media);
        let media = reopen(&dir);
        assert_eq!(media.len(), 3 * RUN_SIZE);
        assert_eq!(media.bytes(Extent::new(3 * RUN_SIZE - 3, 3)).expect("readable"), b"end");
    }
}

#[test]
fn bytes_after_the_last_whole_run_are_kept_when_the_region_grows_over_them() {
    let Some(dir) = disk() else { return };
    fs::write(region(&dir), vec![5; RUN_SIZE as usize + 100]).expect("a file");
    let media = reopen(&dir);
    media.grow(3 * RUN_SIZE).expect("grown");
    let got = media.bytes(Extent::new(RUN_SIZE, 101)).expect("readable");
    assert_eq!((got[0], got[99], got[100]), (5, 5, 0));
}

#[test]
fn a_sparse_file_in_memory_is_backed_before_it_is_used() {
    use std::os::unix::fs::MetadataExt;
    let Some(dir) = memory() else { return };
    fs::File::create(region(&dir)).and_then(|file| file.set_len(2 * RUN_SIZE)).expect("a file of holes");
    let media = reopen(&dir);
    save(&*media, RUN_SIZE, b"no hole");
    let backed = || fs::metadata(region(&dir)).expect("there").blocks() * 512;
    assert_eq!(backed(), RUN_SIZE, "all of the run that is used, and nothing else");
    assert_eq!(media.bytes(Extent::new(RUN_SIZE - 1, 3)).expect("readable"), b"\0no");
    assert_eq!(backed(), 2 * RUN_SIZE);
}

#[test]
fn runs_given_back_on_tmpfs_stay_bare_after_a_restart() {
    use std::os::unix::fs::MetadataExt;
    let Some(dir) = memory() else { return };
    let media = create(&region(&dir), 6).expect("created").media;
    let backed = || fs::metadata(region(&dir)).expect("there").blocks() * 512;
    assert_eq!(backed(), 0, "there was space for it, and none is used");
    for run in 0..4 {
        save(&*media, run * RUN_SIZE + 100, b"in use");
    }
    assert_eq!(media.give_back_run(RUN_SIZE, Standing::Bare).expect("gives"), Standing::Bare);
    assert_eq!(backed(), 3 * RUN_SIZE);
    drop(media);
    let media = reopen(&dir);
    let bare: Vec<bool> = (0..6).map(|run| media.forget_run(run * RUN_SIZE) == Standing::Bare).collect();
    assert_eq!(bare, [false, true, false, false, true, true], "also what was never used");
    assert_eq!(backed(), 3 * RUN_SIZE);
    assert_eq!(media.bytes(Extent::new(2 * RUN_SIZE + 100, 6)).expect("readable"), b"in use");
    media.claim_run(RUN_SIZE).expect("there is space");
    assert_eq!(backed(), 4 * RUN_SIZE);
    save(&*media, RUN_SIZE + 50, b"again");
    assert_eq!(media.back_run(4 * RUN_SIZE).expect("there is space"), Standing::Backed);
    assert_eq!(backed(), 5 * RUN_SIZE);
    media.pin_image();
    assert_eq!(media.give_back_run(0, Standing::Bare).expect("nothing to do"), Standing::Warm);
    assert_eq!(media.bytes(Extent::new(100, 6)).expect("readable"), b"in use");
}

#[test]
fn every_access_past_the_end_is_refused() {
    for dir in places() {
        let media = create(&region(&dir), 1).expect("created").media;
        let end = media.len();
        assert!(media.bytes(Extent::new(end, 1)).is_err());
        assert!(media.bytes(Extent::new(end, 0)).expect("empty").is_empty());
        assert!(media.store(end - 1, b"xy").is_err());
        assert!(media.store_u64(end, 0).is_err());
        assert!(media.store_u64(4, 0).is_err(), "unaligned");
        assert!(media.zero(Extent::new(0, end as u32 + 1)).is_err());
        let mut dirty = Dirty::new();
        media.flush(&mut dirty, Site::Data, Extent::new(end + 4096, 64));
        media.fence(&mut dirty, Site::Commit).expect("nothing to write there");
    }
}

#[test]
fn fences_of_many_threads_that_share_blocks_lose_nothing() {
    for dir in places() {
        let media = create(&region(&dir), 1).expect("created").media;
        std::thread::scope(|threads| {
            for writer in 0..4_u64 {
                let media = &media;
                threads.spawn(move || {
                    for round in 1..=40_u64 {
                        let off = writer * 8;
                        media.store_u64(off, round).expect("in bounds");
                        persist(&**media, Extent::new(off, 8), Site::RunTable, Site::RunTableFence)
                            .expect("durable");
                        let mut medium = [0; 8];
                        media.read_medium(Extent::new(off, 8), &mut medium).expect("readable");
                        assert_eq!(medium[0], round as u8, "an acknowledged word was taken back");
                    }
                });
            }
        });
    }
}
