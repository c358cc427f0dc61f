//! A server process that ends when its guard is dropped.

use crate::common::clients::conn::{Conn, wait_for_keys};
use crate::common::clients::http::Http;
use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::progress::check_stop;
use crate::common::sys;
use landfall_resp::Reply;
use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that is not ready after this long has failed.
pub(crate) const READY_SECONDS_MAX: u64 = 300;
/// A server that has not ended this long after it was asked to counts as hung.
const END_SECONDS_MAX: u64 = 60;
/// Bytes of a server's log shown when it fails.
const LOG_SHOWN: usize = 600;

/// A running server; killed (SIGKILL) when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) peer: String,
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// The address of its RESP service.
    pub(crate) resp: SocketAddr,
    /// The address of its HTTP service, if it has one.
    pub(crate) http: Option<SocketAddr>,
    /// Its own description: version, medium.
    pub(crate) about: String,
    /// The time just before it was started.
    pub(crate) began: Instant,
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn cpu(&self) -> CpuTime {
        CpuTime::of(self.pid())
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Result<Conn, BenchError> {
        Conn::open(self.resp, &self.peer)
    }

    /// Returns its `/metrics`.
    pub(crate) fn metrics(&self) -> Result<String, BenchError> {
        let none = BenchError::Nothing("a server without HTTP has no metrics to read");
        let mut body = Vec::new();
        Http::open(self.http.ok_or(none)?)?.get("/metrics", &mut body)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Waits until it answers `PING`: it has loaded what it had.
    pub(crate) fn wait_ready(&mut self) -> Result<(), BenchError> {
        let began = Instant::now();
        while began.elapsed().as_secs() < READY_SECONDS_MAX {
            check_stop()?;
            if let Ok(mut conn) = self.connect()
                && matches!(conn.ask(&[b"PING"]), Ok(Reply::Simple(b"PONG")))
            {
                return Ok(());
            }
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(not_ready(&self.peer, &self.dir))
    }

    /// Waits until it has `keys`. Returns the time since it was started.
    pub(crate) fn wait_for_keys(&self, keys: u64) -> Result<Duration, BenchError> {
        wait_for_keys(self.resp, &self.peer, keys, self.began, Duration::from_secs(READY_SECONDS_MAX))
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn shut_down(mut self) -> Result<(), BenchError> {
        // It may close the connection instead of answering.
        let _ = self.connect()?.ask(&[b"SHUTDOWN"]);
        let began = Instant::now();
        while began.elapsed().as_secs() < END_SECONDS_MAX {
            check_stop()?;
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(BenchError::TooLong { what: format!("the end of {}", self.peer), seconds: END_SECONDS_MAX })
    }

    /// Kills it, like a crash of the process. The page cache keeps its contents.
    pub(crate) fn kill(self) {}

    /// Kills it as [`Self::kill`] does, and keeps what is known of it.
    pub(crate) fn kill_now(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_now();
    }
}

/// Starts a program. Its standard error goes to a log beside its data.
pub(crate) fn spawn(mut command: Command, dir: &Path, stdout: Stdio) -> Result<Child, BenchError> {
    command.stdin(Stdio::null()).stdout(stdout);
    spawn_logged(command, dir)
}

/// Starts a program to which something is to be said. What it says goes to a log beside its data.
pub(crate) fn spawn_with_input(mut command: Command, dir: &Path) -> Result<Child, BenchError> {
    command.stdin(Stdio::piped()).stdout(log_file(dir)?);
    spawn_logged(command, dir)
}

fn spawn_logged(mut command: Command, dir: &Path) -> Result<Child, BenchError> {
    let log = log_file(dir)?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.stderr(log);
    sys::end_with_parent(&mut command);
    command.spawn().map_err(|source| BenchError::Spawn { program, source })
}

/// Opens the log of a server on `dir` for appending.
pub(crate) fn log_file(dir: &Path) -> Result<File, BenchError> {
    let path = log_path(dir);
    OpenOptions::new().create(true).append(true).open(&path).map_err(BenchError::file(&path))
}

fn log_path(dir: &Path) -> PathBuf {
    dir.with_extension("log")
}

/// The error of a server that did not come up, with the end of its log.
pub(crate) fn not_ready(peer: &str, dir: &Path) -> BenchError {
    BenchError::NotReady { peer: peer.into(), seconds: READY_SECONDS_MAX, log: end_of_log(dir) }
}

/// Returns the end of the log of a server on `dir`.
pub(crate) fn end_of_log(dir: &Path) -> String {
    let log = fs::read(log_path(dir)).unwrap_or_default();
    String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_SHOWN)..]).into_owned()
}
