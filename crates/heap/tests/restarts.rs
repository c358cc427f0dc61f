//! The memory that a restart takes, on a real file.

use landfall_heap::{FreeGoal, Heap, NewRegion, Opening};
use landfall_media::{Extent, Media, MediaKind, OpenOptions, RUN_SIZE, Site, open};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const RUNS: u64 = 256;
const RESTARTS: usize = 4;

/// A new region in a directory on an ordinary file system. `None`, with the reason printed, if there is no such file
/// system.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn region() -> Option<TempDir> {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let options = OpenOptions { create: Some(RUNS * RUN_SIZE), ..OpenOptions::default() };
    let opened = open(&dir.path().join("region"), &options).expect("a region");
    if opened.kind != MediaKind::File {
        eprintln!("SKIP: the build directory is {}, not an ordinary file system", opened.kind.name());
        return None;
    }
    let new = NewRegion { salt: [3; 16], hash_seed: 5, created_ms: 1 };
    landfall_heap::create(&*opened.media, &new).expect("an empty heap");
    Some(dir)
}

fn start(dir: &Path) -> Arc<Heap> {
    let opened = open(&dir.join("region"), &OpenOptions::default()).expect("the region");
    Opening::begin(opened.media).expect("a heap").finish().expect("an empty heap recovers")
}

fn load_everything(media: &dyn Media) {
    while media.load_some().expect("loads") {}
}

/// Maintains free runs as a server does, without pauses.
fn tend(heap: &Heap, windows: usize) {
    for _ in 0..windows {
        heap.maintain_free_runs(FreeGoal::DEFAULT, true).expect("tends");
        while heap.maintain_free_runs(FreeGoal::DEFAULT, false).expect("tends") {}
    }
}

/// Bytes of the image that are in memory, as the kernel counts them.
fn resident_bytes(media: &dyn Media) -> u64 {
    let (base, len) = media.image().expect("a real medium is mapped");
    let image = base as u64..base as u64 + len;
    let maps = fs::read_to_string("/proc/self/smaps").expect("Linux");
    let mut inside = false;
    let mut resident = 0;
    for line in maps.lines() {
        if let Some(range) = mapping(line) {
            inside = range.start < image.end && image.start < range.end;
        } else if let (true, Some(kib)) = (inside, line.strip_prefix("Rss:")) {
            let kib: u64 = kib.trim().trim_end_matches(" kB").parse().expect("a number");
            resident += kib * 1024;
        }
    }
    resident
}

/// The addresses of a mapping, from the line that begins its entry.
fn mapping(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[test]
fn restarts_without_a_write_take_no_more_memory() {
    let Some(dir) = region() else { return };
    let mut taken = Vec::new();
    for _ in 0..RESTARTS {
        let heap = start(dir.path());
        load_everything(&**heap.media());
        tend(&heap, 1);
        taken.push(resident_bytes(&**heap.media()));
    }
    // The kernel may use one huge page more or less.
    assert!(taken.iter().all(|bytes| *bytes <= taken[0] + (4 << 20)), "{taken:?}");
}

#[test]
fn freed_runs_are_not_read_at_the_next_start() {
    let Some(dir) = region() else { return };
    let heap = start(dir.path());
    let used: Vec<u64> = (0..32).map(|_| heap.take_landing_run().expect("room")).collect();
    for run in &used {
        let whole = Extent::new(*run, RUN_SIZE as u32);
        heap.media().store(*run, &[7; RUN_SIZE as usize]).expect("in bounds");
        landfall_media::persist(&**heap.media(), whole, Site::Data, Site::Commit).expect("durable");
        heap.retire_landing_run(*run);
    }
    drop(heap);
    let heap = start(dir.path());
    load_everything(&**heap.media());
    let taken = resident_bytes(&**heap.media());
    assert!(taken < 16 << 20, "{taken} bytes of free runs are in memory");
}

#[test]
fn freed_runs_give_their_memory_and_their_blocks_back() {
    let Some(dir) = region() else { return };
    let heap = start(dir.path());
    let blocks = || fs::metadata(dir.path().join("region")).expect("its size").blocks() * 512;
    let used: Vec<u64> = (0..200).map(|_| heap.take_landing_run().expect("room")).collect();
    used.iter().for_each(|run| heap.media().store(*run, &[7; RUN_SIZE as usize]).expect("in bounds"));
    assert!(resident_bytes(&**heap.media()) >= 200 << 20);
    used.iter().for_each(|run| heap.retire_landing_run(*run));
    tend(&heap, 1);
    assert!(resident_bytes(&**heap.media()) >= 200 << 20, "it may be needed again soon");
    tend(&heap, 2);
    assert!(resident_bytes(&**heap.media()) >= 160 << 20, "what comes in bursts needs it again");
    // Half of it goes in 44 windows, and half of what has memory in eleven.
    tend(&heap, 600);
    // Runs that were never used have had their blocks since the region was created.
    let kept = FreeGoal::DEFAULT;
    let never_used = (RUNS as usize - 1 - 200) as u64 * RUN_SIZE;
    assert!(blocks() <= (kept.ready_max as u64 + 2) * RUN_SIZE + never_used, "{} bytes", blocks());
    let resident = resident_bytes(&**heap.media());
    assert!(resident <= (2 * kept.warm_max as u64 + 4) * RUN_SIZE, "{resident} bytes in memory");
    let again = (0..240).filter_map(|_| heap.take_landing_run()).count();
    assert_eq!(again, 240, "all of it can be used again");
}

/// Two runs share a huge page: a used run must not take memory for a free one.
#[test]
fn memory_is_taken_for_the_runs_in_use_alone() {
    const IN_USE: u64 = 64;
    let Some(dir) = region() else { return };
    let reopen = || open(&dir.path().join("region"), &OpenOptions::default()).expect("the region").media;
    let media = reopen();
    for run in 0..2 * IN_USE {
        let whole = Extent::new(run * RUN_SIZE, RUN_SIZE as u32);
        media.store(whole.off, &[7; RUN_SIZE as usize]).expect("in bounds");
        landfall_media::persist(&*media, whole, Site::Data, Site::Commit).expect("durable");
    }
    drop(media);
    let media = reopen();
    // Some runs are read before the free ones are known, as recovery reads slabs.
    for run in [0, 6, 12] {
        media.bytes(Extent::new(run * RUN_SIZE, 1)).expect("readable");
    }
    (0..2 * IN_USE).filter(|run| run % 2 == 1).for_each(|run| _ = media.forget_run(run * RUN_SIZE));
    load_everything(&*media);
    let resident = resident_bytes(&*media);
    assert!(resident <= IN_USE * RUN_SIZE + (4 << 20), "{resident} bytes for {IN_USE} MiB in use");
    for run in 0..2 * IN_USE {
        let (off, byte) = (run * RUN_SIZE + 12345, if run % 2 == 1 { 0 } else { 7 });
        assert_eq!(media.bytes(Extent::new(off, 1)).expect("readable"), [byte]);
    }
}
