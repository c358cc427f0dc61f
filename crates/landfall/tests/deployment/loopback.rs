//! A PMNet deployment on loopback, without privileges: a relay, side-cars, and Redis servers with replication.

use super::{PATIENCE, Process};
use crate::common::{Reply, Resp, binary, landfall};
use landfall_pmnet::SessionRow;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// Waits for an expected event.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not happen in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A Redis that syncs every commit, and that may be a replica.
pub(crate) struct Store {
    child: Child,
    port: u16,
    dir: PathBuf,
    primary: Option<u16>,
}

impl Store {
    /// Starts a server, as a replica of `primary` if there is one.
    pub(crate) fn start(dir: PathBuf, primary: Option<&Self>) -> Self {
        std::fs::create_dir(&dir).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let primary = primary.map(|primary| primary.port);
        let mut store = Self { child: spawn(&dir, port, primary), port, dir, primary };
        store.wait();
        store
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    pub(crate) fn resp(&self) -> Resp {
        Resp::connect(self.address(), REPLY_LIMIT).unwrap()
    }

    /// Waits until the server answers, has everything that its primary has, and the primary counts it as a replica.
    /// Starts it again if its port was in use for a moment.
    fn wait(&mut self) {
        let (port, follower) =
            (self.primary.unwrap_or(self.port), format!("port={},state=online", self.port));
        until("redis-server", || {
            if let Ok(Some(_)) = self.child.try_wait() {
                self.child = spawn(&self.dir, self.port, self.primary);
            }
            let own = replication(self.port)?;
            let seen = replication(port)?;
            let follows = own.contains("master_link_status:up") && seen.contains(&follower);
            (follows || self.primary.is_none()).then_some(())
        });
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        crate::common::signal(&self.child, signal);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again after a kill, with its files.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.dir, self.port, self.primary);
        self.wait();
    }

    /// Sends SIGKILL and deletes the files.
    pub(crate) fn lose(mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }

    /// Makes the server a replica of `primary` from now on, or of none.
    pub(crate) fn follow(&mut self, primary: Option<&Self>) {
        self.primary = primary.map(|primary| primary.port);
        let port = self.primary.map(|port| port.to_string());
        let words: [&[u8]; 3] = match &port {
            Some(port) => [b"REPLICAOF", b"127.0.0.1", port.as_bytes()],
            None => [b"REPLICAOF", b"NO", b"ONE"],
        };
        assert_eq!(self.resp().call(&words).unwrap(), Reply::Simple("OK".into()));
        self.wait();
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        text(self.resp().call(&[b"GET", key.as_bytes()]).unwrap())
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        match self.resp().call(&[b"LRANGE", key.as_bytes(), b"0", b"-1"]).unwrap() {
            Reply::Array(members) => members.into_iter().filter_map(text).collect(),
            other => panic!("{key}: {other:?}"),
        }
    }

    /// The rows of the sessions, as the side-car has committed them.
    pub(crate) fn rows(&self) -> Vec<SessionRow> {
        let mut resp = self.resp();
        let row = |slot: u32| match resp.call(&[b"GET", format!("landfall:pmnet:row:{slot}").as_bytes()]) {
            Ok(Reply::Bulk(row)) => row.get(..SessionRow::BYTES).and_then(SessionRow::from_bytes),
            _ => None,
        };
        (0..64).filter_map(row).collect()
    }

    /// Executed commands with this name and key, in order, from the server's append-only file: their last arguments.
    pub(crate) fn executed(&self, command: &str, key: &str) -> Vec<String> {
        let mut files: Vec<_> = std::fs::read_dir(self.dir.join("appendonlydir"))
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "aof"))
            .collect();
        // The base file comes before the increments.
        files.sort();
        let bytes: Vec<u8> = files.iter().flat_map(|path| std::fs::read(path).unwrap()).collect();
        let wanted = |words: &Vec<String>| words[0].eq_ignore_ascii_case(command) && words[1] == key;
        let commands = commands(&bytes).into_iter().filter(|words| words.len() > 2);
        commands.filter(wanted).filter_map(|mut words| words.pop()).collect()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path, port: u16, primary: Option<u16>) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
    command.args(["--aof-use-rdb-preamble", "no", "--auto-aof-rewrite-percentage", "0"]);
    command.args(["--repl-diskless-sync-delay", "0"]).arg("--port").arg(port.to_string());
    if let Some(primary) = primary {
        command.args(["--replicaof", &format!("127.0.0.1 {primary}")]);
    }
    command.arg("--dir").arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The answer to `INFO replication`, once a server answers.
fn replication(port: u16) -> Option<String> {
    let mut resp = Resp::connect(([127, 0, 0, 1], port).into(), REPLY_LIMIT).ok()?;
    text(resp.call(&[b"INFO", b"replication"]).ok()?)
}

fn text(reply: Reply) -> Option<String> {
    match reply {
        Reply::Bulk(value) => String::from_utf8(value).ok(),
        _ => None,
    }
}

/// The commands of an append-only file; a truncated one ends the list.
fn commands(bytes: &[u8]) -> Vec<Vec<String>> {
    let mut at = 0;
    let mut line = |len: Option<usize>| {
        let rest = bytes.get(at..)?;
        let len = len.or_else(|| rest.windows(2).position(|two| two == b"\r\n"))?;
        let line = rest.get(..len)?;
        at += len + 2;
        Some(String::from_utf8_lossy(line).into_owned())
    };
    let mut commands = Vec::new();
    while let Some(count) = line(None).and_then(|line| line.strip_prefix('*')?.parse().ok()) {
        let mut word = || {
            let len = line(None)?.strip_prefix('$')?.parse().ok()?;
            line(Some(len))
        };
        let Some(words) = (0_usize..count).map(|_| word()).collect() else { break };
        commands.push(words);
    }
    commands
}

/// A relay and side-cars around a Redis.
pub(crate) struct Loopback {
    pub(crate) place: tempfile::TempDir,
    /// The relay's ports towards the server, which no other test uses.
    ports: &'static str,
}

impl Loopback {
    pub(crate) fn new(ports: &'static str) -> Self {
        Self { place: tempfile::tempdir().unwrap(), ports }
    }

    /// A deployment on shared memory; `None`, with a message, if there is none.
    pub(crate) fn in_memory(ports: &'static str) -> Option<Self> {
        let place = tempfile::Builder::new().prefix("landfall-test-").tempdir_in("/dev/shm");
        if place.is_err() {
            eprintln!("SKIP: /dev/shm: there is none");
        }
        Some(Self { place: place.ok()?, ports })
    }

    pub(crate) fn store(&self, name: &str, primary: Option<&Store>) -> Store {
        Store::start(self.place.path().join(name), primary)
    }

    /// The log of a part.
    pub(crate) fn log(&self, part: &str) -> String {
        std::fs::read_to_string(self.place.path().join(part)).unwrap_or_default()
    }

    pub(crate) fn command(arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("pmnet").args(arguments);
        command
    }

    fn start(&self, part: &str, arguments: &[&str], flags: &[&str]) -> Process {
        let command = Self::command(&[&[part], arguments, flags].concat());
        Process::start(command, &self.place.path().join(part))
    }

    /// The side-car of the server. `listen` is the address of an earlier one, or has port 0.
    pub(crate) fn server(&self, listen: SocketAddr, redis: SocketAddr, flags: &[&str]) -> Process {
        let (listen, redis) = (listen.to_string(), redis.to_string());
        self.start("server", &["--listen", &listen, "--redis", &redis], flags)
    }

    pub(crate) fn relay(&self, server: &Process, flags: &[&str]) -> Process {
        self.relay_to(server.address("listen"), flags)
    }

    pub(crate) fn relay_to(&self, server: SocketAddr, flags: &[&str]) -> Process {
        let (server, dir) = (server.to_string(), self.place.path().join("device"));
        let places = ["--listen", "127.0.0.1:0", "--server", &server, "--dir", dir.to_str().unwrap()];
        let own = ["--capacity", "64MiB", "--upstream-ports", self.ports, "--number", "0"];
        let metrics = ["--metrics", "127.0.0.1:0"];
        self.start("switch", &places, &[&own[..], &metrics, flags].concat())
    }

    pub(crate) fn client(&self, relay: &Process, flags: &[&str]) -> Process {
        let server = relay.address("listen").to_string();
        self.start("client", &["--listen", "127.0.0.1:0", "--server", &server, "--devices", "1"], flags)
    }
}

/// The counters of a device, as it published them last.
fn counts(relay: &Process) -> BTreeMap<String, u64> {
    let line = relay.lines.iter().find_map(|line| line.strip_prefix("metrics: http://")).unwrap();
    let metrics = line.strip_suffix("/metrics").unwrap();
    let output = landfall(&["pmnet", "top", "--metrics", metrics, "--count", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let count = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}

/// A counter of a device, published after this call began. Heartbeats ensure that packets arrive.
pub(crate) fn count(relay: &Process, name: &str) -> u64 {
    let before = counts(relay);
    until("counts", || {
        let now = counts(relay);
        (now["packets_total"] > before["packets_total"]).then(|| now.get(name).copied().unwrap_or(0))
    })
}

/// Waits until the server has confirmed everything that the device has.
pub(crate) fn wait_for_empty_log(relay: &Process) {
    until("an empty log", || (count(relay, "log_entries") == 0).then_some(()));
}
