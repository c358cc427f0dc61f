//! Directories in which tests keep regions. Each test program uses some of them.
#![allow(dead_code, reason = "each test program uses some of the parts")]

use std::path::{Path, PathBuf};

use landfall_media::{MediaError, MediaKind, OpenOptions, Opened, RUN_SIZE, open};
use tempfile::TempDir;

/// A directory on an ordinary file system, or `None`, with the reason printed, where there is none.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
pub fn disk() -> Option<TempDir> {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let kind = create(&dir.path().join("probe"), 1).expect("a region").kind;
    if kind == MediaKind::File {
        return Some(dir);
    }
    eprintln!("skipped: the build directory is {}, not an ordinary file system", kind.name());
    None
}

/// A directory in memory, or `None`, with the reason printed, where there is none.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
pub fn memory() -> Option<TempDir> {
    let dir = TempDir::new_in("/dev/shm");
    dir.inspect_err(|e| eprintln!("skipped: no directory in /dev/shm: {e}")).ok()
}

/// Both directories, where they exist.
pub fn places() -> Vec<TempDir> {
    disk().into_iter().chain(memory()).collect()
}

/// Options to create `runs` runs.
pub fn creating(runs: u64) -> OpenOptions {
    OpenOptions { create: Some(runs * RUN_SIZE), ..OpenOptions::default() }
}

/// Creates or opens a region of `runs` runs.
pub fn create(path: &Path, runs: u64) -> Result<Opened, MediaError> {
    open(path, &creating(runs))
}

/// The path of the region in a directory.
pub fn region(dir: &TempDir) -> PathBuf {
    dir.path().join("region")
}
