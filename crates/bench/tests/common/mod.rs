//! What the end-to-end tests of the measurements share.

#![allow(clippy::print_stderr, reason = "a test says what it skips")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs the program under test to its end.
pub(crate) fn landfall_bench(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

/// As [`landfall_bench`], where no other program can be found.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn landfall_bench_alone(arguments: &[&str]) -> Output {
    command(arguments).env("PATH", "/nonexistent").output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let binary = std::env::var_os("CARGO_BIN_EXE_landfall-bench")
        .map_or_else(|| env!("CARGO_BIN_EXE_landfall-bench").into(), PathBuf::from);
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Where a measurement works on tmpfs, and where its report goes; both are gone with it.
pub(crate) struct BenchPlace {
    _directory: tempfile::TempDir,
    pub(crate) work: PathBuf,
    pub(crate) out: PathBuf,
}

impl BenchPlace {
    /// `None`, and said so, where there is no tmpfs.
    pub(crate) fn new() -> Option<Self> {
        if !Path::new("/dev/shm").is_dir() {
            eprintln!("SKIP: /dev/shm: there is none");
            return None;
        }
        let directory = tempfile::Builder::new().prefix("landfall-test-").tempdir_in("/dev/shm").unwrap();
        let (work, out) = (directory.path().join("work"), directory.path().join("out"));
        std::fs::create_dir(&work).unwrap();
        Some(Self { _directory: directory, work, out })
    }

    /// No file where it measured, and no process whose command line names that place.
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_eq!(std::fs::read_dir(&self.work).unwrap().count(), 0, "nothing is left where it measured");
        let name = self.work.to_str().unwrap().as_bytes();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        let left = lines.filter(|line| line.windows(name.len()).any(|window| window == name)).count();
        assert_eq!(left, 0, "no process is left");
    }
}
