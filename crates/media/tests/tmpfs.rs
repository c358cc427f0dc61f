//! Regions on a tmpfs that each test mounts, in a mount namespace that ends with the process. These tests are skipped
//! where the user may not create one (user namespaces, or root).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use landfall_media::{Media, MediaError, OpenOptions, RUN_SIZE, open};

/// The mount point, in the process that runs the case.
const MOUNTED: &str = "LANDFALL_TEST_TMPFS";

/// The exit code that says that no tmpfs could be mounted.
const NO_MOUNT: i32 = 77;

/// Runs `case`, for the test `name`, in its own process and namespace, on a tmpfs with these options.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn on_tmpfs(name: &str, options: &str, case: impl FnOnce(&Path)) {
    if let Ok(dir) = std::env::var(MOUNTED) {
        return case(dir.as_ref());
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script =
        format!("mount -t tmpfs -o {options} tmpfs \"$0\" 2>/dev/null || exit {NO_MOUNT}; exec \"$@\"");
    let status = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", &script])
        .arg(dir.path())
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture"])
        .env(MOUNTED, dir.path())
        .status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => {}
        Some(NO_MOUNT | 1) | None => {
            eprintln!("skipped: this user may not mount a tmpfs (huge pages, a full one)")
        }
        Some(code) => panic!("{name} on a tmpfs of its own: exit {code}"),
    }
}

/// A region of `runs` runs.
fn region(path: &Path, runs: u64) -> Arc<dyn Media> {
    let options = OpenOptions { create: Some(runs * RUN_SIZE), ..OpenOptions::default() };
    open(path, &options).expect("created").media
}

/// Stores a byte in each of these runs.
fn touch(media: &dyn Media, mut runs: std::ops::Range<u64>) -> Result<(), MediaError> {
    runs.try_for_each(|run| media.store(run * RUN_SIZE, b"x"))
}

/// Bytes of this process's memory that are huge pages of a file in memory.
fn huge_bytes() -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("readable");
    let of_line =
        |line: &str| line.strip_prefix("ShmemPmdMapped:")?.split_whitespace().next()?.parse::<u64>().ok();
    smaps.lines().filter_map(of_line).sum::<u64>() * 1024
}

#[test]
fn a_region_asks_for_huge_pages_and_uses_them() {
    on_tmpfs("a_region_asks_for_huge_pages_and_uses_them", "huge=advise,size=64m", |dir| {
        let media = region(&dir.join("region"), 16);
        touch(&*media, 0..16).expect("there is space");
        assert!(huge_bytes() >= 2 * RUN_SIZE, "{} bytes in huge pages", huge_bytes());
    });
}

#[test]
fn claiming_a_run_on_a_full_tmpfs_is_an_error_and_allocates_nothing() {
    on_tmpfs("claiming_a_run_on_a_full_tmpfs_is_an_error_and_allocates_nothing", "size=8m", |dir| {
        let (path, other) = (dir.join("region"), dir.join("other"));
        let media = region(&path, 4);
        let taken = || fs::metadata(&path).expect("there").blocks() * 512;
        assert_eq!(taken(), 0, "memory is taken with its use");
        touch(&*media, 0..1).expect("there is space");
        let before = taken();
        // Another file takes all but half a run of the space.
        let others = 8 * RUN_SIZE - before - RUN_SIZE / 2;
        fs::write(&other, vec![1; others as usize]).expect("there is space");
        let full = touch(&*media, 1..2).expect_err("there is no space for a run");
        assert!(matches!(full, MediaError::Full { .. }), "{full}");
        assert_eq!(taken(), before);
        fs::remove_file(&other).expect("removed");
        touch(&*media, 1..4).expect("there is space again");
    });
}
