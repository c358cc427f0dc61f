//! A mount in a process of its own (the example `mount`), so that it can be killed, and so that mapping its files cannot
//! wait for the test's own process.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stderr,
    reason = "each test program uses its part, and says what it skips"
)]

pub(crate) mod library;
pub(crate) mod ring;
pub(crate) mod sys;

use landfall_fuse::{Unmount, unmount};
use ring::RingAllowed;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The test program whose mounts use io_uring.
const OVER_RING: bool = is_ring(env!("CARGO_CRATE_NAME"));
/// How long a mount may take to end.
const END_LIMIT: Duration = Duration::from_secs(60);

const fn is_ring(program: &str) -> bool {
    matches!(program.as_bytes(), b"ring")
}

/// A mounted file system in a process of its own. It is unmounted when this is dropped, and when this process ends.
pub(crate) struct Mounted {
    place: TempDir,
    mib: u32,
    words: Vec<&'static str>,
    /// Writes behind so many KiB of the region fail.
    pub(crate) fails_behind_kib: Option<u32>,
    serving: Option<(Child, ChildStdin)>,
}

impl Mounted {
    /// Mounts a new region of so many MiB. `None` where that is not possible, which was said.
    pub(crate) fn new(mib: u32, words: &[&'static str]) -> Option<Self> {
        Self::new_at(mib, words, tempfile::tempdir().expect("a directory"))
    }

    /// As [`Self::new`], in memory, with a socket for libraries.
    pub(crate) fn in_memory(mib: u32, words: &[&'static str]) -> Option<Self> {
        let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("SKIP: a region in memory: there is no /dev/shm");
            return None;
        };
        Self::new_at(mib, &[words, &["socket"]].concat(), place)
    }

    /// As [`Self::in_memory`], on a file system that keeps its files on a device.
    pub(crate) fn on_disk(mib: u32) -> Option<Self> {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        Self::new_at(mib, &["socket"], place)
    }

    fn new_at(mib: u32, words: &[&'static str], place: TempDir) -> Option<Self> {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("SKIP: a FUSE mount: /dev/fuse: {error}");
            return None;
        }
        let mut words = words.to_vec();
        if OVER_RING {
            RingAllowed::new()?;
            words.push("uring");
        }
        std::fs::create_dir(place.path().join("point")).expect("a directory");
        let mut mounted = Self { place, mib, words, fails_behind_kib: None, serving: None };
        mounted.start();
        Some(mounted)
    }

    /// The mountpoint.
    pub(crate) fn point(&self) -> PathBuf {
        self.place.path().join("point")
    }

    /// Where libraries connect, and the `st_dev` of the files.
    pub(crate) fn door(&self) -> (PathBuf, u64) {
        let device = std::fs::metadata(self.point()).expect("it is mounted").dev();
        (self.place.path().join("files.sock"), device)
    }

    /// A path in the mount.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.point().join(name)
    }

    /// A counter of the mount's page of metrics.
    pub(crate) fn counted(&self, name: &str) -> u64 {
        let page = sys::xattr(&self.point(), "landfall.metrics", 1 << 16).expect("the page");
        let page = String::from_utf8(page).expect("text");
        let value = |line: &str| {
            line.strip_prefix("landfall_fs_")?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()
        };
        page.lines().find_map(value).unwrap_or_else(|| panic!("{name}: {page}"))
    }

    fn command(&self) -> Command {
        let test = std::env::current_exe().expect("the test's path");
        let built = test.parent().and_then(Path::parent).expect("target/PROFILE/deps");
        let program = built.join("examples/mount");
        let mut command = match self.fails_behind_kib {
            None => Command::new(program),
            Some(kib) => {
                let mut command = Command::new("bash");
                let limited = format!("trap '' XFSZ; ulimit -f {kib} && exec \"$@\"");
                command.args(["-c", &limited, "bash"]).arg(program);
                command
            }
        };
        command.arg(self.point()).arg(self.place.path().join("region")).arg(self.mib.to_string());
        command.args(&self.words).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Mounts again.
    pub(crate) fn start(&mut self) {
        let _allowed = OVER_RING.then(|| RingAllowed::new().expect("it was possible before"));
        let mut child =
            self.command().spawn().expect("the example `mount`, which `cargo test -p landfall-fs-io` builds");
        let stdin = child.stdin.take().expect("it is piped");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        self.serving = Some((child, stdin));
        let mut line = String::new();
        out.read_line(&mut line).expect("it says something");
        assert_eq!(line, "mounted\n");
    }

    /// Tries to mount a second time, which must fail. Returns what was said.
    pub(crate) fn refusal(&self) -> String {
        let mut child = self.command().stderr(Stdio::piped()).spawn().expect("the example is built");
        drop(child.stdin.take());
        let mut text = String::new();
        child.stderr.take().expect("it is piped").read_to_string(&mut text).expect("text");
        assert!(!child.wait().expect("it ends").success());
        text
    }

    /// Unmounts in good order.
    pub(crate) fn stop(&mut self) {
        let (child, stdin) = self.serving.take().expect("it is mounted");
        drop(stdin);
        assert!(ended(child).success(), "it ends in good order");
    }

    /// Unmounts a mount whose medium has failed.
    pub(crate) fn stop_failed(&mut self) {
        let (child, stdin) = self.serving.take().expect("it is mounted");
        drop(stdin);
        assert!(!ended(child).success(), "the region is not left clean");
    }

    /// Waits until the mount, which somebody else has unmounted, has ended.
    pub(crate) fn wait(&mut self) {
        let (child, stdin) = self.serving.take().expect("it is mounted");
        assert!(ended(child).success(), "it ends in good order");
        drop(stdin);
    }

    /// Kills the server, and removes what is left of its mount.
    pub(crate) fn kill(&mut self) {
        self.kill_server();
        self.remove();
    }

    /// Kills the server. Its mount stays: all calls fail with `ENOTCONN`.
    pub(crate) fn kill_server(&mut self) {
        let (mut child, _stdin) = self.serving.take().expect("it is mounted");
        child.kill().expect("a signal");
        child.wait().expect("it has ended");
    }

    /// Removes the mount of a server that was killed.
    pub(crate) fn remove(&self) {
        unmount(&self.point(), Unmount::Lazily).expect("nobody serves it");
    }
}

fn ended(mut child: Child) -> ExitStatus {
    let until = Instant::now() + END_LIMIT;
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        assert!(Instant::now() < until, "the mount does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A test that has failed is being unwound: nothing here may fail.
        if let Some((mut child, _stdin)) = self.serving.take() {
            let _ = (child.kill(), child.wait());
        }
        // A server that was killed has left its mount.
        let _ = unmount(&self.point(), Unmount::Lazily);
    }
}
