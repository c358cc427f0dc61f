//! A file's region that is larger than its memory limit.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{creating, disk};
use landfall_media::{
    CHUNK_SIZE, ChunkSet, Dirty, Evict, Extent, Media, OpenOptions, PIN_UNIT, Pages, RUN_SIZE, ReadQueue,
    Site, Standing, Started, open,
};

const RUNS: u64 = 8;

/// A region with known bytes in every run, and the interface that controls its memory.
fn region(path: &Path) -> (Arc<dyn Media>, Arc<dyn Pages>) {
    let options = OpenOptions { memory: Some(2 * RUN_SIZE), ..creating(RUNS) };
    let media = open(path, &options).expect("a region").media;
    let pages = Arc::clone(&media).pages().expect("its memory is limited");
    for run in 0..RUNS {
        media.claim_run(run * RUN_SIZE).expect("there is space");
        media.store(run * RUN_SIZE, &bytes_of(run)).expect("in bounds");
        let mut dirty = Dirty::new();
        media.flush(&mut dirty, Site::Data, Extent::new(run * RUN_SIZE, RUN_SIZE as u32));
        media.fence(&mut dirty, Site::Commit).expect("durable");
    }
    (media, pages)
}

fn bytes_of(run: u64) -> Vec<u8> {
    (0..RUN_SIZE).map(|at| (at / 7 + at * run) as u8).collect()
}

/// Evicts everything that is not pinned.
fn evict_all(pages: &dyn Pages) -> u64 {
    (0..RUNS).map(|run| pages.evict(run * RUN_SIZE, Evict::Any, ChunkSet::ALL)).sum()
}

/// The bytes of an extent, pinned while they are compared.
fn holds(media: &dyn Media, pages: &dyn Pages, extent: Extent) -> bool {
    pages.pin(extent);
    let (run, at) = (extent.off / RUN_SIZE, (extent.off % RUN_SIZE) as usize);
    let same = media.bytes(extent).expect("readable") == &bytes_of(run)[at..at + extent.len() as usize];
    pages.unpin(extent);
    same
}

/// The flags of the mapping in which an address lies.
fn mapping_flags(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
    let mut flags = None;
    let mut is_within = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let numbers =
            range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
        if let Some((Ok(from), Ok(to))) = numbers {
            is_within = (from..to).contains(&address);
        } else if is_within && line.starts_with("VmFlags") {
            flags = Some(line.to_owned());
        }
    }
    flags.expect("the image is mapped")
}

/// A huge page would be memory for 512 blocks, of which one is counted.
#[test]
fn a_region_that_grows_beyond_its_memory_keeps_small_pages() {
    let Some(dir) = disk() else { return };
    let path = dir.path().join("region");
    drop(open(&path, &creating(RUNS)).expect("a region"));
    let options = OpenOptions { memory: Some(2 * RUN_SIZE), ..creating(4 * RUNS) };
    let media = open(&path, &options).expect("a region").media;
    media.grow(4 * RUNS * RUN_SIZE).expect("there is space");
    let (base, len) = media.image().expect("it has one");
    assert_eq!(len, 4 * RUNS * RUN_SIZE);
    for run in [0, RUNS - 1, RUNS, 4 * RUNS - 1] {
        let flags = mapping_flags(base + (run * RUN_SIZE) as usize);
        assert!(flags.contains(" nh") && !flags.contains(" hg"), "run {run}: {flags}");
    }
}

#[test]
fn only_blocks_that_are_read_are_loaded_and_pinned_ones_stay() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    assert_eq!(pages.resident_bytes(), RUNS * RUN_SIZE);
    let kept = Extent::new(3 * RUN_SIZE + 5 * CHUNK_SIZE, 10);
    pages.pin(kept);
    assert_eq!(evict_all(&*pages), RUNS * RUN_SIZE - CHUNK_SIZE);
    assert_eq!(pages.resident_bytes(), CHUNK_SIZE);
    assert!(pages.is_resident(kept) && !pages.is_resident(Extent::new(0, 1)));
    assert!(holds(&*media, &*pages, Extent::new(RUN_SIZE + 4090, 10)));
    assert_eq!(pages.resident_bytes(), CHUNK_SIZE + 8192, "two blocks were read");
    assert!(holds(&*media, &*pages, kept));
    pages.unpin(kept);
    assert_eq!(pages.evict(3 * RUN_SIZE, Evict::Any, ChunkSet::ALL), CHUNK_SIZE);
}

#[test]
fn chunks_unused_since_the_clock_passed_are_evicted_first() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    assert_eq!(pages.cold_bytes(0), RUN_SIZE, "stores pin nothing");
    assert!(holds(&*media, &*pages, Extent::new(CHUNK_SIZE, 1)));
    assert_eq!(pages.evict(0, Evict::Unused, ChunkSet::ALL), RUN_SIZE - CHUNK_SIZE);
    assert_eq!(pages.cold_bytes(0), 0, "it counts as unused from the next time on");
    assert_eq!(pages.cold_bytes(0), CHUNK_SIZE);
    assert_eq!(pages.evict(0, Evict::Unused, ChunkSet::ALL), CHUNK_SIZE);
}

#[test]
fn a_chunk_whose_use_is_forgotten_is_evicted_at_once() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let (once, again) = (Extent::new(0, 1), Extent::new(CHUNK_SIZE, 1));
    pages.cold_bytes(0);
    assert!(holds(&*media, &*pages, once) && holds(&*media, &*pages, again));
    pages.forget_use(once);
    assert_eq!(pages.evict(0, Evict::Unused, ChunkSet::ALL), RUN_SIZE - CHUNK_SIZE);
    assert!(!pages.is_resident(once) && pages.is_resident(again));
}

/// A queue; without io_uring there is none to test.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn queue_of(pages: &Arc<dyn Pages>) -> Option<Box<dyn ReadQueue>> {
    let queue = Arc::clone(pages).open_queue(None);
    if let Err(error) = &queue {
        eprintln!("skipped test: reads without waiting: {error}");
    }
    queue.ok()
}

/// Waits until `count` reads have ended. Returns their tags in ascending order.
fn ended(queue: &mut dyn ReadQueue, count: usize) -> Vec<u64> {
    let mut all = Vec::new();
    while all.len() < count {
        queue.take_ended(&mut all);
        std::thread::yield_now();
    }
    let mut tags: Vec<u64> =
        all.into_iter().map(|(tag, outcome)| outcome.map(|()| tag).expect("read")).collect();
    tags.sort_unstable();
    tags
}

#[test]
fn a_queue_reads_missing_blocks_of_several_extents_at_once() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let Some(mut queue) = queue_of(&pages) else { return };
    let extent = |run: u64| Extent::new(run * RUN_SIZE + CHUNK_SIZE - 100, 70_000);
    evict_all(&*pages);
    (0..RUNS).for_each(|run| pages.pin(extent(run)));
    for run in 0..RUNS {
        assert_eq!(queue.start(run, extent(run)).expect("in bounds"), Started::Reading);
    }
    assert_eq!(queue.start(99, extent(2)).expect("in bounds"), Started::Busy, "it is being read");
    queue.submit();
    assert_eq!(ended(&mut *queue, RUNS as usize), (0..RUNS).collect::<Vec<_>>());
    for run in 0..RUNS {
        assert!(pages.is_resident(extent(run)) && holds(&*media, &*pages, extent(run)));
        assert_eq!(queue.start(run, extent(run)).expect("in bounds"), Started::Present);
    }
    assert_eq!(pages.resident_bytes(), RUNS * (4096 + CHUNK_SIZE + 8192), "blocks, not chunks, were read");
    assert!(queue.start(0, Extent::new(RUNS * RUN_SIZE, 1)).is_err());
}

#[test]
fn a_thread_that_waits_for_its_own_read_takes_its_completion() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let Some(mut queue) = queue_of(&pages) else { return };
    evict_all(&*pages);
    let first = Extent::new(0, 8);
    pages.pin(first);
    assert_eq!(queue.start(1, first).expect("in bounds"), Started::Reading);
    queue.submit();
    // Blocks of the same chunk, which is busy until the completion is taken.
    assert!(holds(&*media, &*pages, Extent::new(20_000, 9)));
    assert_eq!(ended(&mut *queue, 1), [1], "the outcome is still reported");
}

#[test]
fn dropping_a_queue_waits_for_its_reads() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let Some(mut queue) = queue_of(&pages) else { return };
    evict_all(&*pages);
    let all = |run: u64| Extent::new(run * RUN_SIZE, RUN_SIZE as u32);
    for run in 0..RUNS {
        pages.pin(all(run));
        assert_eq!(queue.start(run, all(run)).expect("in bounds"), Started::Reading);
    }
    drop(queue);
    assert!((0..RUNS).all(|run| pages.is_resident(all(run)) && holds(&*media, &*pages, all(run))));
}

#[test]
fn a_store_makes_a_paged_run_whole_and_a_claim_does_not_read_it() {
    let Some(dir) = disk() else { return };
    let path = dir.path().join("region");
    let (media, pages) = region(&path);
    assert_eq!(evict_all(&*pages), RUNS * RUN_SIZE);
    media.store(RUN_SIZE + 100, b"new").expect("in bounds");
    assert_eq!(pages.resident_bytes(), RUN_SIZE);
    media.claim_run(2 * RUN_SIZE).expect("it has its space");
    assert_eq!(pages.resident_bytes(), 2 * RUN_SIZE);
    assert_eq!(media.give_back_run(2 * RUN_SIZE, Standing::Backed).expect("gives"), Standing::Backed);
    assert_eq!(media.give_back_run(3 * RUN_SIZE, Standing::Backed).expect("gives"), Standing::Backed);
    assert_eq!(pages.resident_bytes(), RUN_SIZE);
    // A write of a part of a block reads the rest of it from the file.
    let mut dirty = Dirty::new();
    media.flush(&mut dirty, Site::Data, Extent::new(RUN_SIZE + 100, 3));
    media.fence(&mut dirty, Site::Commit).expect("durable");
    drop((media, pages));
    let media = open(&path, &OpenOptions::default()).expect("the region").media;
    let mut wanted = bytes_of(1);
    wanted[100..103].copy_from_slice(b"new");
    assert!(media.bytes(Extent::new(RUN_SIZE, RUN_SIZE as u32)).expect("readable") == wanted);
}

#[test]
fn a_region_that_fits_is_not_paged() {
    let Some(dir) = disk() else { return };
    let path = dir.path().join("region");
    for memory in [None, Some(RUNS * RUN_SIZE)] {
        let media = open(&path, &OpenOptions { memory, ..creating(RUNS) }).expect("a region").media;
        assert!(media.pages().is_none());
    }
    // A region that is only read, as by a check, is paged as well.
    let options = OpenOptions { memory: Some(RUN_SIZE), read_only: true, ..OpenOptions::default() };
    assert!(open(&path, &options).expect("the region").media.pages().is_some());
}

#[test]
fn readers_find_every_byte_during_concurrent_eviction() {
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let wanted: Vec<Vec<u8>> = (0..RUNS).map(bytes_of).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Acquire) {
                evict_all(&*pages);
            }
        });
        let readers: Vec<_> = (0..4_u64)
            .map(|reader| {
                let (media, pages, wanted) = (&media, &pages, &wanted);
                threads.spawn(move || {
                    let mut queue = if reader == 0 { queue_of(pages) } else { None };
                    let mut random = reader + 1;
                    for _ in 0..4000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let run = random >> 33 & (RUNS - 1);
                        let len = 1 + (random >> 40) % (2 * CHUNK_SIZE);
                        let at = (random >> 20) % (RUN_SIZE - len);
                        let extent = Extent::new(run * RUN_SIZE + at, len as u32);
                        pages.pin(extent);
                        if let Some(queue) = &mut queue
                            && queue.start(random, extent).expect("in bounds") == Started::Reading
                        {
                            queue.submit();
                            assert_eq!(ended(&mut **queue, 1), [random]);
                            assert!(pages.is_resident(extent));
                        }
                        let bytes = media.bytes(extent).expect("readable");
                        assert!(pages.is_resident(extent));
                        assert!(bytes == &wanted[run as usize][at as usize..(at + len) as usize]);
                        // In two parts, like frames that are released.
                        let first = (PIN_UNIT - extent.off % PIN_UNIT).min(len) as u32;
                        pages.unpin(extent.with_len(first));
                        pages.unpin(Extent::new(extent.off + u64::from(first), extent.len() - first));
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        over.store(true, Ordering::Release);
        assert!(outcomes.iter().all(Result::is_ok), "no reader panics");
    });
    evict_all(&*pages);
    assert_eq!(pages.resident_bytes(), 0, "every byte was counted once");
}

/// Two batches write to different parts of a run of which a part is not durable, and the rest has left memory.
#[test]
fn threads_that_need_all_of_a_run_at_once_keep_what_is_not_durable() {
    const ROUNDS: u64 = 300;
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let kept = Extent::new(RUN_SIZE - CHUNK_SIZE, 8);
    pages.pin(kept);
    for round in 0..ROUNDS {
        media.store_u64(kept.off, round).expect("in bounds");
        pages.evict(0, Evict::Any, ChunkSet::ALL);
        assert!(!pages.is_resident(Extent::new(0, 1)));
        let begin = std::sync::Barrier::new(3);
        std::thread::scope(|threads| {
            for chunk in 1..4 {
                let (media, begin) = (&media, &begin);
                threads.spawn(move || {
                    let mut dirty = Dirty::new();
                    media.flush(&mut dirty, Site::Data, Extent::new(chunk * CHUNK_SIZE, 100));
                    begin.wait();
                    media.fence(&mut dirty, Site::Commit).expect("durable");
                });
            }
        });
        assert_eq!(media.bytes(kept).expect("in bounds"), round.to_le_bytes(), "round {round}");
    }
    pages.unpin(kept);
}

/// As above, while others read and evict all the time.
#[test]
fn readers_and_the_clock_beside_batches_keep_what_is_not_durable() {
    const ROUNDS: u64 = 2000;
    let Some(dir) = disk() else { return };
    let (media, pages) = region(&dir.path().join("region"));
    let kept = Extent::new(RUN_SIZE - CHUNK_SIZE, 8);
    pages.pin(kept);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Acquire) {
                pages.evict(0, Evict::Any, ChunkSet::ALL);
            }
        });
        for reader in 0..2 {
            let (media, pages, over) = (&media, &pages, &over);
            threads.spawn(move || {
                for at in (reader..).take_while(|_| !over.load(Ordering::Acquire)) {
                    // The kept chunk's other blocks, too.
                    let off = at * 7919 % (RUN_SIZE / 4096) * 4096 + 100;
                    assert!(holds(&**media, &**pages, Extent::new(off, 50)), "{off}");
                }
            });
        }
        for round in 0..ROUNDS {
            media.store_u64(kept.off, round).expect("in bounds");
            let mut dirty = Dirty::new();
            let written = Extent::new((1 + round % 14) * CHUNK_SIZE, 100);
            pages.pin(written);
            media.flush(&mut dirty, Site::Data, written);
            media.fence(&mut dirty, Site::Commit).expect("durable");
            pages.unpin(written);
            assert_eq!(media.bytes(kept).expect("in bounds"), round.to_le_bytes(), "round {round}");
        }
        over.store(true, Ordering::Release);
    });
    pages.unpin(kept);
}
