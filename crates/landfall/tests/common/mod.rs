//! The harness of the end-to-end tests. Each test starts its own server, on a port that the kernel chooses, in a
//! separate directory, and ends it by process id.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stderr,
    reason = "each test program uses its part, and says what it skips"
)]

pub(crate) mod chain;
pub(crate) mod etcd;
pub(crate) mod far;
pub(crate) mod faults;
pub(crate) mod follower;
pub(crate) mod locks;
pub(crate) mod mounts;
pub(crate) mod nodes;
#[path = "../../src/demo/wire.rs"]
pub(crate) mod wire;
pub(crate) mod writers;

use landfall_testbed::{Host, own_loopback_address};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
pub(crate) use wire::{Http, Reply, Resp};

/// Time limit to fetch and build a client of another project.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(90);
/// Time limit for a server to start, or to stop.
const LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a reply.
pub(crate) const REPLY_LIMIT: Duration = Duration::from_secs(20);
/// The first port of those that are chosen here. The kernel chooses higher ones.
const FIRST_PORT: u16 = 7101;
/// Unread lines of start-up output, at most.
const LINES_MAX: usize = 64;

/// The program under test.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_landfall")
        .map_or_else(|| env!("CARGO_BIN_EXE_landfall").into(), PathBuf::from)
}

/// Where a server is to listen that must have the same address each time it starts: no other test has it.
pub(crate) fn own_address() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    SocketAddr::from((own_loopback_address(), FIRST_PORT + TAKEN.fetch_add(1, Ordering::Relaxed)))
}

/// A directory for a region, with the server's log beside it.
pub(crate) struct Place {
    temporary: tempfile::TempDir,
}

impl Place {
    /// A place on the file system of temporary files.
    pub(crate) fn new() -> Self {
        Self { temporary: tempfile::tempdir().unwrap() }
    }

    /// A place on shared memory; `None` if there is none.
    pub(crate) fn in_memory() -> Option<Self> {
        let shm = Path::new("/dev/shm");
        Some(Self { temporary: tempfile::Builder::new().prefix("landfall-test-").tempdir_in(shm).ok()? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.temporary.path()
    }

    /// The data directory of the server.
    pub(crate) fn dir(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn region(&self) -> PathBuf {
        self.dir().join("region.lf")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log")).unwrap_or_default()
    }

    /// Writes a file beside the directory.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Starts a server with a small region and further flags.
    pub(crate) fn start(&self, flags: &[&str]) -> Server {
        match self.try_start(flags) {
            Ok(server) => server,
            Err(why) => panic!("the server did not start: {why}"),
        }
    }

    /// Starts a server; returns its error output if it does not start.
    pub(crate) fn try_start(&self, flags: &[&str]) -> Result<Server, Refused> {
        self.try_start_by(Command::new(binary()), flags)
    }

    /// Starts a server by a command that runs the program in a special way.
    pub(crate) fn try_start_by(&self, mut command: Command, flags: &[&str]) -> Result<Server, Refused> {
        Server::start(command.args(self.arguments(flags)), &self.log_path())
    }

    /// A process that becomes a server when it is told to. This process may have files of a shared mount open when the
    /// server before has ended: a child closes all of them when it becomes another program, for which the mount asks the
    /// server.
    pub(crate) fn stand_by(&self, flags: &[&str]) -> StandBy {
        let mut command = stand_by();
        command.args(self.arguments(flags));
        let mut server = StandBy::spawn(&mut command, &self.log_path());
        wait_until_it_stands_by(&mut server.child);
        server
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("log")
    }

    fn arguments(&self, flags: &[&str]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["serve".into(), "--dir".into(), self.dir().into()];
        for (flag, value) in [("--capacity", "64MiB"), ("--resp", "127.0.0.1:0"), ("--http", "127.0.0.1:0")] {
            if !flags.contains(&flag) {
                arguments.extend([flag.into(), value.into()]);
            }
        }
        arguments.extend(flags.iter().map(OsString::from));
        arguments
    }

    /// Starts a server whose writes past the first `kib` KiB of any file fail, as on a device that breaks.
    pub(crate) fn start_with_failing_writes(&self, kib: u32) -> Server {
        let mut command = Command::new("bash");
        let limited = format!("trap '' XFSZ; ulimit -f {kib} && exec \"$@\"");
        command.args(["-c", &limited, "bash"]).arg(binary()).arg("serve").arg("--dir").arg(self.dir());
        command.args(["--capacity", "64MiB", "--resp", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        Server::start(&mut command, &self.path().join("log"))
            .unwrap_or_else(|why| panic!("it did not start: {why}"))
    }

    /// Runs `landfall check` on this region to its end.
    pub(crate) fn check(&self, flags: &[&str]) -> Output {
        landfall(&[&["check", self.dir().to_str().unwrap()], flags].concat())
    }
}

/// Runs the program to its end.
pub(crate) fn landfall(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Why a server did not start.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: Option<i32>,
    /// Error output.
    pub(crate) words: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {:?}: {}", self.code, self.words)
    }
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) resp: SocketAddr,
    pub(crate) http: SocketAddr,
    /// Output lines until the server was ready.
    pub(crate) lines: Vec<String>,
    /// The host of its clients; `None`: this host.
    pub(crate) clients: Option<Host>,
}

/// Sends a signal by name. It takes no child: that would close this process's files, and may have to wait for a mount. A
/// process that is to stop has stopped afterwards: on a busy machine it goes on for milliseconds behind the signal.
pub(crate) fn signal(child: &Child, name: &str) {
    let signal = match name {
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "STOP" => Signal::STOP,
        "CONT" => Signal::CONT,
        "USR1" => Signal::USR1,
        other => panic!("{other}"),
    };
    let pid = Pid::from_child(child);
    kill_process(pid, signal).unwrap();
    if signal == Signal::STOP {
        let mut still = 0;
        let has_stopped = || {
            let states = states_of_threads(child.id());
            let is_still = states.contains(&'T') && states.iter().all(|state| matches!(state, 'T' | 'D'));
            still = if is_still { still + 1 } else { 0 };
            (still == STILL).then_some(())
        };
        if wait_until(LIMIT, has_stopped).is_none() {
            // Who waits for it would wait for ever, and the test with it.
            let _ = kill_process(pid, Signal::CONT);
            panic!("all its threads stop: {:?}", states_of_threads(child.id()));
        }
    }
}

/// How often in a row a process is found stopped before it is: a thread in the kernel may end its call first.
const STILL: u32 = 3;

/// The states of a process's threads, as `proc_pid_stat(5)` names them. Once one has stopped (T), none runs more of its program
/// that has stopped, too, or waits in the kernel (D): a mount's thread may wait there for a call that the mount itself is to answer.
fn states_of_threads(pid: u32) -> Vec<char> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let state = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    tasks.filter_map(|task| state(task.ok()?)).collect()
}

/// A process that becomes this program, with the arguments that are added, when it reads a line.
pub(crate) fn stand_by() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo; read _ && exec \"$0\" \"$@\" </dev/null"]).arg(binary());
    command.stdin(Stdio::piped());
    command
}

/// Waits until it has closed what it has inherited: a child may be known to run before.
pub(crate) fn wait_until_it_stands_by(child: &mut Child) {
    let mut line = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
}

/// A process that is to become a server.
pub(crate) struct StandBy {
    child: Child,
    log: PathBuf,
    /// Bytes that others have written to the log.
    before: usize,
}

impl StandBy {
    fn spawn(command: &mut Command, log: &Path) -> Self {
        let stderr = File::options().create(true).append(true).open(log).unwrap();
        let before = std::fs::read_to_string(log).map_or(0, |text| text.len());
        let child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        Self { child, log: log.to_owned(), before }
    }

    /// It becomes one.
    pub(crate) fn start(mut self) -> Result<Server, Refused> {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        Server::hear(self)
    }
}

impl Server {
    fn start(command: &mut Command, log: &Path) -> Result<Self, Refused> {
        Self::hear(StandBy::spawn(command.stdin(Stdio::null()), log))
    }

    fn hear(StandBy { mut child, log, before }: StandBy) -> Result<Self, Refused> {
        let lines = follow(&mut child);
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, resp: nowhere, http: nowhere, lines: Vec::new(), clients: None };
        let until = Instant::now() + LIMIT;
        while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line == "ready" {
                return Ok(server);
            }
            server.take(line);
        }
        let code = server.wait().and_then(|status| status.code());
        let log = std::fs::read_to_string(log).unwrap_or_default();
        Err(Refused { code, words: log[before..].to_owned() })
    }

    fn take(&mut self, line: String) {
        if let Some(address) = line.strip_prefix("resp: ") {
            self.resp = address.parse().unwrap();
        } else if let Some(address) = line.strip_prefix("http: ") {
            self.http = address.parse().unwrap();
        }
        self.lines.push(line);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn resp(&self) -> Resp {
        self.at_clients(|| Resp::connect(self.resp, REPLY_LIMIT)).unwrap()
    }

    pub(crate) fn http(&self) -> Http {
        self.at_clients(|| Http::connect(self.http, REPLY_LIMIT)).unwrap()
    }

    /// Runs `work` in the network namespace of the clients.
    pub(crate) fn at_clients<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.clients {
            Some(host) => host.enter(work),
            None => work(),
        }
    }

    /// A program to run on the clients' host.
    pub(crate) fn client(&self, program: &str) -> Command {
        self.clients.as_ref().map_or_else(|| Command::new(program), |host| host.command(program))
    }

    /// Sends one command on a new connection.
    pub(crate) fn call(&self, words: &[&str]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.resp().call(&words).unwrap()
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait().expect("it ends when asked")
    }

    /// Waits for the end; `None` if the server keeps running.
    pub(crate) fn wait(&mut self) -> Option<ExitStatus> {
        wait_until(LIMIT, || self.child.try_wait().unwrap())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Every sample of `/metrics`, by name with labels.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let response = self.http().call("GET", "/metrics", "", b"").unwrap();
        assert_eq!(response.status, 200);
        let text = String::from_utf8(response.body).unwrap();
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        *self.metrics().get(name).unwrap_or_else(|| panic!("no metric {name}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(child: &mut Child) -> Receiver<String> {
    let stdout = child.stdout.take();
    let (send, lines) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
            // The receiver is dropped once the server is ready.
            let _ = send.try_send(line);
        }
    });
    lines
}

/// What is counted at a mount, by the name in its metrics; `None` where these cannot be read.
pub(crate) fn mount_metric(point: &Path, name: &str) -> Option<u64> {
    let mut page = vec![0; 1 << 16];
    let len = rustix::fs::lgetxattr(point, "landfall.metrics", &mut page[..]).ok()?;
    let page = String::from_utf8_lossy(&page[..len]);
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    page.lines().find_map(value)
}

/// Repeats `ask` until it returns a value, or the time limit has passed.
pub(crate) fn wait_until<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Copies a program, for all to execute. A process of its own writes the copy: children that other threads of this one
/// start meanwhile would inherit the open file, and a file that is open for writing cannot be executed.
pub(crate) fn install_program(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status();
    assert!(status.expect("coreutils are installed").success(), "{} was not copied", from.display());
}

/// True if a program can be run; otherwise reports that the test is skipped.
pub(crate) fn has_program(name: &str, probe: &[&str]) -> bool {
    let found = Command::new(name).args(probe).stdin(Stdio::null()).output();
    // wrk prints its version and fails.
    let found = found.is_ok_and(|output| output.status.success() || name == "wrk");
    if !found {
        eprintln!("SKIP: {name}: not installed, see `cargo xtask peers`");
    }
    found
}

/// A Python that has redis-py. Says SKIP if there is none.
pub(crate) fn python_with_redis() -> Option<PathBuf> {
    let has_redis = |python: &PathBuf| {
        let there =
            Command::new(python).arg("--version").output().is_ok_and(|output| output.status.success());
        there && run(Command::new(python).args(["-c", "import redis"]), LIMIT).0
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().map(PathBuf::from).find(has_redis);
    if found.is_none() {
        eprintln!("SKIP: redis-py: not installed, see `cargo xtask peers`");
    }
    found
}

/// Builds the go-redis client of the tests. Says SKIP if that is not possible.
pub(crate) fn build_go_client(place: &Place) -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIP: go-redis: no go here");
        return None;
    }
    // The build directory is not that of the sources, so nothing is written beside them.
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/go"));
    for name in ["go.mod", "go.sum", "main.go", "failover.go"] {
        std::fs::copy(sources.join(name), place.path().join(name)).unwrap();
    }
    let client = place.path().join("client");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&client).arg(".").current_dir(place.path()).env("GOFLAGS", "-mod=mod");
    let (built, text) = run(&mut build, BUILD_LIMIT);
    if !built {
        let is_away = ["dial", "lookup", "proxy", "disabled"].iter().any(|word| text.contains(word));
        assert!(is_away, "{text}");
        eprintln!("SKIP: go-redis: its module is not to be had");
        return None;
    }
    Some(client)
}

/// Runs a program to its end within a limit; returns its success and both outputs.
pub(crate) fn run(command: &mut Command, limit: Duration) -> (bool, String) {
    let mut out = tempfile::tempfile().unwrap();
    command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    let status = wait_until(limit, || child.try_wait().unwrap());
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut text = Vec::new();
    std::io::Seek::rewind(&mut out).unwrap();
    out.read_to_end(&mut text).unwrap();
    (status.is_some_and(|status| status.success()), String::from_utf8_lossy(&text).into_owned())
}

/// Shorthand for replies.
/// True if FUSE mounts are possible here. Says SKIP if not.
pub(crate) fn can_mount() -> bool {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("SKIP: a FUSE mount: /dev/fuse: {error}");
    }
    opened.is_ok()
}

pub(crate) fn ok() -> Reply {
    Reply::Simple("OK".into())
}

pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
    Reply::Bulk(bytes.as_ref().to_vec())
}

/// The text of an error reply.
pub(crate) fn error_text(reply: &Reply) -> &str {
    match reply {
        Reply::Error(text) => text,
        other => panic!("an error was expected, not {other:?}"),
    }
}

/// Bytes that differ from position to position and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |word: &mut u64| {
        *word ^= *word << 13;
        *word ^= *word >> 7;
        *word ^= *word << 17;
        (*word >> 24) as u8
    };
    (0..len).map(|_| next(&mut word)).collect()
}
