//! A PMNet deployment of real processes: side-cars, devices and a real server, each on a separate host.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stderr,
    reason = "each test program uses its part, and says what it skips"
)]

pub(crate) mod loopback;
pub(crate) mod proxy;

use crate::common::{Reply, Resp, binary};
use landfall_testbed::{Host, LinkOptions, Testbed};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of expected events, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// PMNet address of the server.
const SERVER: &str = "10.9.0.2:51500";
const SERVER_V6: &str = "[fd09::2]:51500";
/// Port of Redis on its host.
const REDIS_PORT: u16 = 6390;

/// A program that was started, with its start-up lines.
pub(crate) struct Process {
    child: Child,
    pub(crate) lines: Vec<String>,
}

impl Process {
    /// Starts a command and waits until it is ready.
    pub(crate) fn start(command: Command, log: &Path) -> Self {
        let mut process = Self::launch(command, log);
        let mut output = BufReader::new(process.child.stdout.take().unwrap()).lines();
        loop {
            match output.next() {
                Some(Ok(line)) if line == "ready" => return process,
                Some(Ok(line)) => process.lines.push(line),
                _ => panic!("it did not start: {}", std::fs::read_to_string(log).unwrap_or_default()),
            }
        }
    }

    /// Starts a command without waiting until it is ready.
    pub(crate) fn launch(mut command: Command, log: &Path) -> Self {
        let stderr = File::options().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        Self { child: command.spawn().unwrap(), lines: Vec::new() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address in a start-up line.
    pub(crate) fn address(&self, what: &str) -> SocketAddr {
        let prefix = format!("{what}: ");
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {what} in {:?}", self.lines)).parse().unwrap()
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        crate::common::signal(&self.child, signal);
    }

    /// Resident memory, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits for a successful end.
    pub(crate) fn end(mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE, "it did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The real server.
pub(crate) struct Redis(Child);

impl Redis {
    /// SIGKILL.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Clients, a row of devices, and a server, each on a separate host in one subnet.
pub(crate) struct Net {
    pub(crate) client: Host,
    pub(crate) devices: Vec<Host>,
    pub(crate) server: Host,
    /// Address that the server listens on.
    address: &'static str,
    /// The server's interface.
    server_interface: String,
    /// The interfaces of each device, towards the clients and towards the server.
    sides: Vec<[String; 2]>,
    pub(crate) place: tempfile::TempDir,
    /// Flags of every part of the deployment.
    pub(crate) flags: Vec<String>,
    /// Directory of the devices' regions.
    memory: tempfile::TempDir,
}

impl Net {
    /// `None`, with a message, if hosts cannot be created here.
    pub(crate) fn new(devices: usize) -> Option<Self> {
        Self::with(devices, ["10.9.0.1/24", "10.9.0.2/24"], SERVER)
    }

    /// A deployment over IPv6.
    pub(crate) fn over_ipv6(devices: usize) -> Option<Self> {
        Self::with(devices, ["fd09::1/64", "fd09::2/64"], SERVER_V6)
    }

    /// `clients` and `servers` are the addresses of the interfaces.
    fn with(devices: usize, [clients, servers]: [&str; 2], address: &'static str) -> Option<Self> {
        let testbed = Testbed::new().inspect_err(|reason| eprintln!("SKIP: {reason}")).ok()?;
        let host = |name: &str| testbed.host(name).unwrap();
        let mut hosts = vec![host("client")];
        hosts.extend((0..devices).map(|_| host("device")));
        hosts.push(host("server"));
        let mut links = Vec::new();
        for (at, pair) in hosts.windows(2).enumerate() {
            let addresses = |index: usize, address: &str| match index {
                0 => vec![address.to_owned()],
                _ => vec![],
            };
            let ends = [addresses(at, clients), addresses(devices - at, servers)];
            let options = LinkOptions { addresses: ends, checksum_offload: false, ..LinkOptions::default() };
            let link = testbed.link(&pair[0], &pair[1], &options).unwrap();
            pair[0].accept_redirected(&link.0).unwrap();
            pair[1].accept_redirected(&link.1).unwrap();
            links.push(link);
        }
        let server_interface = links.last()?.1.clone();
        let sides = links.windows(2).map(|two| [two[0].1.clone(), two[1].0.clone()]).collect();
        let (server, client) = (hosts.pop()?, hosts.remove(0));
        let temporary = |dir: &str| tempfile::Builder::new().prefix("landfall-test-").tempdir_in(dir);
        let place = tempfile::tempdir().unwrap();
        Some(Self {
            client,
            devices: hosts,
            server,
            address,
            server_interface,
            sides,
            place,
            flags: Vec::new(),
            memory: temporary("/dev/shm").ok()?,
        })
    }

    fn command(&self, host: &Host, arguments: &[&str]) -> Command {
        let mut command = host.command(binary().to_str().unwrap());
        command.args(arguments).args(&self.flags);
        command
    }

    pub(crate) fn device_dir(&self, index: usize) -> PathBuf {
        self.memory.path().join(format!("device{index}"))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    pub(crate) fn start_device(&self, index: usize, flags: &[&str]) -> Process {
        let between = self.sides[index].join(",");
        let (dir, number) = (self.device_dir(index), index.to_string());
        let own = ["pmnet", "switch", "--between", &between, "--capacity", "64MiB", "--number", &number];
        let dir = ["--dir", dir.to_str().unwrap()];
        Process::start(self.command(&self.devices[index], &[&own[..], &dir, flags].concat()), &self.log())
    }

    /// Starts a device as the server's own network card.
    pub(crate) fn start_nic(&self, flags: &[&str]) -> Process {
        let dir = self.device_dir(0);
        let own =
            ["pmnet", "switch", "--nic", &self.server_interface, "--capacity", "64MiB", "--number", "0"];
        let dir = ["--dir", dir.to_str().unwrap()];
        Process::start(self.command(&self.server, &[&own[..], &dir, flags].concat()), &self.log())
    }

    /// Starts Redis with `appendfsync always`, with the data of the last one.
    pub(crate) fn start_redis(&self) -> Redis {
        let dir = self.place.path().join("redis");
        std::fs::create_dir_all(&dir).unwrap();
        let mut command = self.server.command("redis-server");
        command.args(["--port", &REDIS_PORT.to_string(), "--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--save", ""]).arg("--dir").arg(dir).stdout(Stdio::null()).stderr(Stdio::null());
        let started = Redis(command.stdin(Stdio::null()).spawn().unwrap());
        let begun = Instant::now();
        while self.redis().is_none() {
            assert!(begun.elapsed() < PATIENCE, "redis did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        started
    }

    /// A connection to Redis itself, once it has loaded its data.
    pub(crate) fn redis(&self) -> Option<Resp> {
        let address = SocketAddr::from(([127, 0, 0, 1], REDIS_PORT));
        let mut resp = self.server.enter(|| Resp::connect(address, Duration::from_secs(20))).ok()?;
        matches!(resp.call(&[b"PING"]), Ok(Reply::Simple(_))).then_some(resp)
    }

    pub(crate) fn start_server(&self) -> Process {
        let redis = format!("127.0.0.1:{REDIS_PORT}");
        let arguments = ["pmnet", "server", "--listen", self.address, "--redis", &redis];
        Process::start(self.command(&self.server, &arguments), &self.log())
    }

    pub(crate) fn start_client(&self, devices: usize) -> Process {
        let devices = devices.to_string();
        let arguments =
            ["pmnet", "client", "--listen", "127.0.0.1:0", "--server", self.address, "--devices", &devices];
        Process::start(self.command(&self.client, &arguments), &self.log())
    }
}

/// How many writes may be ahead of those that a test waits for. The limit makes a kill happen under load, and makes the
/// load end.
const AHEAD: u64 = 1000;

/// Writers that set one key each to 1, 2, 3, ... and record what was acknowledged.
pub(crate) struct Writers {
    acknowledged: Vec<Arc<AtomicU64>>,
    ration: Arc<Ration>,
    threads: Vec<JoinHandle<()>>,
}

/// How many writes all writers together may send.
#[derive(Default)]
struct Ration {
    taken: AtomicU64,
    allowed: AtomicU64,
    is_last: AtomicBool,
}

impl Ration {
    /// Waits for permission for one more write; false if there will be none.
    fn take(&self) -> bool {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        loop {
            // The flag is read before the number, because the last ration is granted before the flag is set.
            let is_last = self.is_last.load(Ordering::Acquire);
            if number < self.allowed.load(Ordering::Acquire) {
                return true;
            }
            if is_last {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Writers {
    /// Starts writers, each on a connection made by `connect`.
    pub(crate) fn start(writers: usize, connect: impl Fn() -> Resp) -> Self {
        let ration = Arc::<Ration>::default();
        let acknowledged: Vec<Arc<AtomicU64>> = (0..writers).map(|_| Arc::default()).collect();
        let threads = acknowledged.iter().enumerate().map(|(writer, acknowledged)| {
            let (mut resp, acknowledged, ration) = (connect(), Arc::clone(acknowledged), Arc::clone(&ration));
            std::thread::spawn(move || {
                for value in 1u64.. {
                    if !ration.take() {
                        return;
                    }
                    let (key, value_text) = (key(writer), value.to_string());
                    let reply = resp.call(&[b"SET", key.as_bytes(), value_text.as_bytes()]);
                    assert!(
                        matches!(&reply, Ok(Reply::Simple(ok)) if ok == "OK"),
                        "{key} {value}: {reply:?}"
                    );
                    acknowledged.store(value, Ordering::Relaxed);
                }
            })
        });
        let threads = threads.collect();
        Self { acknowledged, ration, threads }
    }

    fn total(&self) -> u64 {
        self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Waits until `more` further writes have been acknowledged.
    pub(crate) fn wait_for(&self, more: u64) {
        let (wanted, begun) = (self.total() + more, Instant::now());
        self.ration.allowed.fetch_max(wanted + AHEAD, Ordering::Release);
        while self.total() < wanted {
            assert!(begun.elapsed() < PATIENCE, "{} of {wanted} writes", self.total());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for at least `more` further writes, and ends the writers. Returns the expected value of each key.
    pub(crate) fn finish_after(self, more: u64) -> Vec<(String, u64)> {
        self.ration.allowed.fetch_max(self.total() + more, Ordering::Release);
        self.ration.is_last.store(true, Ordering::Release);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let last = self.acknowledged.iter().map(|count| count.load(Ordering::Relaxed));
        last.enumerate().map(|(writer, value)| (key(writer), value)).collect()
    }
}

fn key(writer: usize) -> String {
    format!("key:{writer}")
}

/// Waits until a store has these values.
pub(crate) fn must_have(mut resp: Resp, wanted: &[(String, u64)]) {
    let begun = Instant::now();
    loop {
        let get = |resp: &mut Resp, key: &str| match resp.call(&[b"GET", key.as_bytes()]) {
            Ok(Reply::Bulk(value)) => String::from_utf8(value).ok(),
            _ => None,
        };
        let missing: Vec<_> = wanted
            .iter()
            .map(|(key, value)| (key, get(&mut resp, key), value))
            .filter(|(_, found, value)| found.as_deref() != Some(&value.to_string()))
            .collect();
        if missing.is_empty() {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "acknowledged and lost: {missing:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reports if Redis is not installed.
#[expect(clippy::print_stderr, reason = "a test says what it skips")]
pub(crate) fn has_redis() -> bool {
    let there = Command::new("redis-server").arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIP: redis-server: not installed, see `cargo xtask peers`");
    }
    there
}
