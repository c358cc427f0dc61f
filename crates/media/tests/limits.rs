//! What happens when the medium accepts no more bytes. A process under `ulimit -f` of one run simulates a full medium:
//! there, every write and every allocation past the first run fails, or is cut short.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{create, disk, places, region};
use landfall_media::{BLOCK_SIZE, Extent, MediaError, OpenOptions, RUN_SIZE, Site, open, persist};

/// The region that a process started by one of these tests uses. Its name is the case.
const LIMITED: &str = "LANDFALL_TEST_LIMITED_REGION";

/// The region's path, if this process is one that runs under the limit.
fn limited() -> Option<String> {
    std::env::var(LIMITED).ok()
}

/// Runs one test of this file again in a process under the limit, on the region at `path`.
fn run_limited(test: &str, path: &Path) {
    run_under(&format!("ulimit -f {}", RUN_SIZE / 512), test, path);
}

fn run_under(limit: &str, test: &str, path: &Path) {
    let script = format!("{limit} && trap '' XFSZ && exec \"$@\"");
    let status = Command::new("sh")
        .args(["-c", &script, "sh"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .env(LIMITED, path)
        .status();
    assert!(status.expect("a shell").success(), "{test} under the limit, {}", path.display());
}

#[test]
fn a_failed_or_short_write_closes_the_region_permanently() {
    if let Some(path) = limited() {
        return write_past_the_limit(&path);
    }
    let Some(dir) = disk() else { return };
    for case in ["failed", "short"] {
        let path = dir.path().join(case);
        create(&path, 3).expect("created");
        run_limited("a_failed_or_short_write_closes_the_region_permanently", &path);
    }
}

fn write_past_the_limit(path: &str) {
    let media = open(path.as_ref(), &OpenOptions::default()).expect("opened").media;
    let fence = |extent| persist(&*media, extent, Site::Data, Site::Commit);
    media.store(0, b"within the limit").expect("in bounds");
    fence(Extent::new(0, 16)).expect("durable");
    let extent = match path.rsplit('/').next() {
        Some("short") => Extent::new(RUN_SIZE - BLOCK_SIZE, 2 * BLOCK_SIZE as u32),
        _ => Extent::new(2 * RUN_SIZE, 10),
    };
    let first = fence(extent).expect_err("past the limit");
    assert!(matches!(first, MediaError::WriteBack { .. }), "{first}");
    let within = fence(Extent::new(0, 1));
    assert!(matches!(within, Err(MediaError::Closed { .. })), "{within:?}");
    assert!(media.closed().is_some());
    assert!(!media.load_some().expect("reads go on"), "nothing is written ahead either");
    assert_eq!(media.bytes(Extent::new(0, 6)).expect("reads go on"), b"within");
}

/// A file that had grown would be the region's length at the next start, for which there is no memory either.
#[test]
fn growing_past_the_memory_changes_nothing() {
    const LEN: u64 = 2 << 30;
    if let Some(path) = limited() {
        let media = open(path.as_ref(), &OpenOptions::default()).expect("opened").media;
        let before = media.len();
        assert!(matches!(media.grow(LEN), Err(MediaError::Io { .. })));
        assert_eq!(media.len(), before);
        return;
    }
    let Some(dir) = disk() else { return };
    let path = dir.path().join("region");
    drop(create(&path, 3).expect("created"));
    let before = fs::metadata(&path).expect("a file").len();
    run_under(&format!("ulimit -d {}", LEN / 1024 / 2), "growing_past_the_memory_changes_nothing", &path);
    assert_eq!(fs::metadata(&path).expect("a file").len(), before);
    open(&path, &OpenOptions::default()).expect("it is there");
}

#[test]
fn growing_past_the_medium_is_full_and_changes_nothing() {
    if let Some(path) = limited() {
        return grow_past_the_limit(&path);
    }
    for dir in places() {
        let path = region(&dir);
        create(&path, 1).expect("created");
        run_limited("growing_past_the_medium_is_full_and_changes_nothing", &path);
    }
}

fn grow_past_the_limit(path: &str) {
    let media = open(path.as_ref(), &OpenOptions::default()).expect("opened").media;
    let result = media.grow(4 * RUN_SIZE);
    assert!(matches!(result, Err(MediaError::Full { .. })), "{result:?}");
    assert_eq!(media.len(), RUN_SIZE);
    assert_eq!(fs::metadata(path).expect("there").len(), RUN_SIZE);
    assert!(media.bytes(Extent::new(RUN_SIZE, 1)).is_err());
    media.store(0, b"goes on").expect("in bounds");
    persist(&*media, Extent::new(0, 7), Site::Data, Site::Commit).expect("a full medium is no failure");
}

#[test]
fn a_region_larger_than_the_medium_is_full_and_leaves_nothing() {
    if let Some(path) = limited() {
        let error = create(path.as_ref(), 2).expect_err("past the limit");
        assert!(matches!(error, MediaError::Full { wanted, .. } if wanted == 2 * RUN_SIZE), "{error}");
        return;
    }
    for dir in places() {
        let home = dir.path().join("home");
        fs::create_dir(&home).expect("a directory");
        run_limited("a_region_larger_than_the_medium_is_full_and_leaves_nothing", &home.join("region"));
        assert_eq!(fs::read_dir(&home).expect("a directory").count(), 0);
    }
}
