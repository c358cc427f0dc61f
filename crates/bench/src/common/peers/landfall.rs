//! This executable as a server.

use super::names;
use super::peer::Peer;
use super::server::{READY_SECONDS_MAX, Server, not_ready, spawn};
use crate::common::clients::http::metric;
use crate::common::error::BenchError;
use crate::common::measure::stats::whole;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// Bytes of a run: the region is used in pieces of this size.
const RUN_BYTES: f64 = 1_048_576.0;
/// The largest number of start-up lines that are parsed.
const LINES_MAX: usize = 16;

/// `landfall serve`.
#[derive(Debug)]
pub(crate) struct Landfall {
    program: PathBuf,
    workers: Option<usize>,
    discard: bool,
    /// The memory for a region on a file, bytes. Without it, the server's default applies.
    memory: Option<u64>,
    /// Further flags of the server.
    flags: Vec<OsString>,
}

impl Landfall {
    pub(crate) fn new(program: PathBuf, workers: Option<usize>, discard: bool) -> Self {
        Self { program, workers, discard, memory: None, flags: Vec::new() }
    }

    /// Limits the memory for a region on a file, bytes.
    pub(crate) fn with_memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Gives the server further flags.
    pub(crate) fn with_flags(self, flags: Vec<OsString>) -> Self {
        Self { flags, ..self }
    }

    fn command(&self, dir: &Path, capacity: u64) -> Command {
        let mut command = Command::new(&self.program);
        self.add_arguments(&mut command, dir, capacity);
        command
    }

    fn add_arguments(&self, command: &mut Command, dir: &Path, capacity: u64) {
        let serve: &[&str] =
            if self.discard { &["bench", "server", "--store", "discard"] } else { &["serve"] };
        command.args(serve).args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.arg("--dir").arg(dir).arg("--capacity").arg(capacity.to_string());
        if let Some(workers) = self.workers {
            command.arg("--workers").arg(workers.to_string());
        }
        if let Some(memory) = self.memory {
            command.arg("--memory").arg(memory.to_string());
        }
        command.args(&self.flags);
    }

    /// Starts under callgrind, which writes a profile of each thread once the server has ended: the profile's name
    /// with the thread's number. Valgrind knows no `clwb` and little of io_uring.
    pub(crate) fn start_counted(&self, counted: &Counted<'_>) -> Result<Server, BenchError> {
        let mut command = Command::new(counted.valgrind);
        command.args(["--tool=callgrind", "--separate-threads=yes"]);
        command.arg(format!("--callgrind-out-file={}", counted.profile.display()));
        command.arg(&self.program);
        self.add_arguments(&mut command, counted.dir, counted.capacity);
        command.args(["--transport", "epoll", "--scrub-rate", "0", "--flush", counted.flush]);
        launch(command, counted.dir, self.name())
    }
}

/// A start under callgrind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) valgrind: &'a Path,
    pub(crate) profile: &'a Path,
    pub(crate) dir: &'a Path,
    /// Size of the region, bytes.
    pub(crate) capacity: u64,
    /// Flush instruction.
    pub(crate) flush: &'a str,
}

impl Peer for Landfall {
    fn name(&self) -> &str {
        if self.discard { names::DISCARD } else { names::LANDFALL }
    }

    fn start(&self, dir: &Path, capacity: u64) -> Result<Server, BenchError> {
        let server = launch(self.command(dir, capacity), dir, self.name())?;
        if server.resp == UNSET { Err(not_ready(self.name(), dir)) } else { Ok(server) }
    }

    fn media_bytes(&self, server: &Server) -> Result<u64, BenchError> {
        let text = server.metrics()?;
        used_bytes(&text)
            .ok_or_else(|| BenchError::reply("landfall", "/metrics without runs", "landfall_runs"))
    }
}

/// An address at which nothing is served.
pub(crate) const UNSET: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Starts a program that says where it serves as this one does, and waits until it does.
pub(crate) fn launch(command: Command, dir: &Path, name: &str) -> Result<Server, BenchError> {
    let began = Instant::now();
    let mut child = spawn(command, dir, Stdio::piped())?;
    let lines = child.stdout.take().map(forward_lines);
    let (peer, dir_held) = (name.to_owned(), dir.into());
    // The guard first: whatever goes wrong from here on ends the child.
    let mut server =
        Server { child, peer, dir: dir_held, resp: UNSET, http: None, about: String::new(), began };
    let announced = lines.map(|lines| Announced::wait(&lines)).unwrap_or_default();
    if announced == Announced::default() {
        return Err(not_ready(name, dir));
    }
    server.resp = announced.resp.unwrap_or(UNSET);
    server.http = announced.http;
    server.about = announced.about;
    Ok(server)
}

/// Runs that are not free, in bytes.
fn used_bytes(metrics: &str) -> Option<u64> {
    let all = metric(metrics, "landfall_runs")?;
    let free = metric(metrics, "landfall_runs{use=\"free\"")?;
    Some(whole((all - free) * RUN_BYTES))
}

/// The contents of the start-up lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct Announced {
    about: String,
    resp: Option<SocketAddr>,
    http: Option<SocketAddr>,
}

impl Announced {
    /// Reads until `ready`, until the server ends, or for a bounded time.
    fn wait(lines: &Receiver<String>) -> Self {
        let mut found = Self::default();
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        for _ in 0..LINES_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = lines.recv_timeout(left) else { return Self::default() };
            if found.take(&line) {
                return found;
            }
        }
        Self::default()
    }

    /// Parses one line. True for the last one.
    fn take(&mut self, line: &str) -> bool {
        if let Some(address) = line.strip_prefix("resp: ") {
            self.resp = address.trim().parse().ok();
        } else if let Some(address) = line.strip_prefix("http: ") {
            self.http = address.trim().parse().ok();
        } else if ["landfall ", "transport: ", "store: "].iter().any(|word| line.starts_with(word)) {
            if !self.about.is_empty() {
                self.about.push_str("; ");
            }
            self.about.push_str(line.trim());
        }
        line.trim() == "ready"
    }
}

/// Hands on the first lines, then reads on so that the server never meets a closed or full pipe.
fn forward_lines(stdout: ChildStdout) -> Receiver<String> {
    let (to, from) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // No thread waits for lines after the first ones.
            let _ = to.try_send(line);
        }
    });
    from
}

#[cfg(test)]
mod tests {
    use super::{Announced, used_bytes};

    #[test]
    fn addresses_are_read_from_the_start_up_lines() {
        let mut found = Announced::default();
        let lines = [
            "landfall 0.1.0 on tmpfs",
            "transport: io_uring; workers: 1",
            "resp: 127.0.0.1:4321",
            "http: 127.0.0.1:99",
        ];
        assert!(lines.iter().all(|line| !found.take(line)));
        assert!(found.take("ready"));
        assert_eq!(found.resp, "127.0.0.1:4321".parse().ok());
        assert_eq!(found.http, "127.0.0.1:99".parse().ok());
        assert_eq!(found.about, "landfall 0.1.0 on tmpfs; transport: io_uring; workers: 1");
    }

    #[test]
    fn used_bytes_are_all_runs_but_free_ones() {
        let text =
            "landfall_runs{use=\"free\"} 5\nlandfall_runs{use=\"data\"} 2\nlandfall_runs{use=\"slab\"} 1\n";
        assert_eq!(used_bytes(text), Some(3 << 20));
        assert_eq!(used_bytes("nothing"), None);
    }
}
