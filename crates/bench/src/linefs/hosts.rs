//! Processes beside servers: what a host of LineFS is to its NIC.

use crate::common::error::BenchError;
use crate::common::peers::{not_ready, spawn};
use crate::common::progress::check_stop;
use crate::common::sys;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it may take until a server serves mounts, or a program goes on.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// How often it is tried.
const STEP: Duration = Duration::from_millis(10);
/// Bytes of one append of a program.
const APPEND_BYTES: usize = 16 << 10;

/// Where the server of a mount listens.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    Socket(&'a Path),
    /// As on another machine, with so much memory for what it keeps (`--cache`).
    Address(SocketAddr, &'a str),
}

/// A process that mounts the files of a server. It is killed, and what is mounted is removed, when this is dropped.
#[derive(Debug)]
pub(super) struct Host {
    process: Child,
    point: PathBuf,
}

impl Host {
    /// Mounts at a folder, made if absent, as soon as the server there serves mounts.
    pub(super) fn mount(from: From<'_>, point: &Path) -> Result<Self, BenchError> {
        fs::create_dir_all(point).map_err(BenchError::file(point))?;
        let began = Instant::now();
        loop {
            check_stop()?;
            if let Some(host) = Self::try_mount(from, point)? {
                // The kernel asks once whether closing a file needs a request: a child of this process closes all files
                // when it becomes another program, and must not wait for a host that has failed.
                let asked = point.join("closed");
                let closed = File::create(&asked).map(drop).and_then(|()| fs::remove_file(&asked));
                closed.map_err(BenchError::file(&asked))?;
                return Ok(host);
            }
            if began.elapsed() > LIMIT {
                return Err(not_ready("landfall fs mount", point));
            }
            std::thread::sleep(STEP);
        }
    }

    /// `None` if the server refuses it.
    fn try_mount(from: From<'_>, point: &Path) -> Result<Option<Self>, BenchError> {
        let mut command = mount_command(from, point)?;
        command.stdin(Stdio::null());
        let mut process = spawn(command, point, Stdio::piped())?;
        let stdout = process.stdout.take();
        // The guard first: whatever goes wrong from here on ends the process.
        let host = Self { process, point: point.into() };
        let line = stdout.and_then(|stdout| BufReader::new(stdout).lines().next());
        let is_mounted = line.is_some_and(|line| line.is_ok_and(|line| line.starts_with("mounted")));
        Ok(is_mounted.then_some(host))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Kills it.
    pub(super) fn kill(self) {}
}

impl Drop for Host {
    fn drop(&mut self) {
        // Who waits for the mount ends with its process. A mount that is still busy is detached.
        let _ = self.process.kill();
        let _ = landfall_fuse::unmount(&self.point, landfall_fuse::Unmount::Lazily);
        let _ = self.process.wait();
    }
}

fn mount_command(from: From<'_>, point: &Path) -> Result<Command, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
    let mut command = Command::new(program);
    command.args(["fs", "mount"]).arg(point);
    match from {
        From::Socket(socket) => command.arg("--shared").arg("--offload").arg(socket),
        From::Address(address, cache) => command.args(["--server", &address.to_string(), "--cache", cache]),
    };
    Ok(command)
}

/// Tries to mount at a server once a second, for ever: its arguments are that command.
const STANDBY: &str = "while :; do \"$@\"; sleep 1; done";

/// The host of a replica: a process that mounts as soon as its server is the first one. All processes are killed when this is
/// dropped.
#[derive(Debug)]
pub(super) struct Standby {
    shell: Child,
    point: PathBuf,
}

impl Standby {
    pub(super) fn start(socket: &Path, point: &Path) -> Result<Self, BenchError> {
        fs::create_dir_all(point).map_err(BenchError::file(point))?;
        let mount = mount_command(From::Socket(socket), point)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", STANDBY, "sh"]).arg(mount.get_program()).args(mount.get_args());
        Ok(Self { shell: spawn(shell, point, Stdio::null())?, point: point.into() })
    }

    /// Kills all of its processes.
    pub(super) fn kill(self) {}
}

impl Drop for Standby {
    fn drop(&mut self) {
        sys::kill_group(self.shell.id());
        let _ = self.shell.wait();
        let _ = landfall_fuse::unmount(&self.point, landfall_fuse::Unmount::Lazily);
    }
}

/// A program at a mount that appends and makes durable, until it is told to end or its host fails.
#[derive(Debug)]
pub(super) struct Program {
    over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

impl Program {
    pub(super) fn start(path: PathBuf) -> Self {
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, count) = (Arc::clone(&over), Arc::clone(&done));
        let append = move || {
            let mut file = File::options().append(true).create(true).open(path)?;
            while !is_over.load(Ordering::Acquire) {
                file.write_all(&[7; APPEND_BYTES])?;
                file.sync_all()?;
                count.fetch_add(1, Ordering::AcqRel);
            }
            Ok(())
        };
        Self { over, done, thread: std::thread::spawn(append) }
    }

    /// Waits until it has done some more.
    pub(super) fn wait_until_it_goes_on(&self) -> Result<(), BenchError> {
        let (before, began) = (self.done.load(Ordering::Acquire), Instant::now());
        // What was under way may have ended before.
        while self.done.load(Ordering::Acquire) < before + 2 {
            check_stop()?;
            if began.elapsed() > LIMIT {
                let what = "a program beside the load".into();
                return Err(BenchError::TooLong { what, seconds: LIMIT.as_secs() });
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Ends it. What has become of it is that of its host.
    pub(super) fn end(self) {
        self.over.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}
