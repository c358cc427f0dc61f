//! The C example behind a device: every acknowledged update is applied once, in order, although its server is killed.

mod common;

use common::{SYSTEM_LIBRARIES, cc, crate_dir, has, libraries, run};
use landfall_media::{MediaRequest, RUN_SIZE};
use landfall_switch::RegionConfig;
use landfall_switch::relay::{Relay, RelayConfig};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

const WORDS: usize = 600;
/// The server is killed when these numbers of words are durable.
const KILLS: [usize; 3] = [110, 260, 410];
/// The relay's ports towards the server. The kernel assigns none of them, and other tests use none of them.
const PORTS: std::ops::RangeInclusive<u16> = 21_800..=21_820;

/// Longest wait for a program's output.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(60);
const LINES_MAX: usize = 1000;

struct Example {
    server: PathBuf,
    client: PathBuf,
    libraries: PathBuf,
}

/// Builds the server with the static library and the client with the shared one, as the Makefile does.
fn build(dir: &Path) -> Example {
    let (sources, libraries) = (crate_dir().join("examples/c"), libraries());
    let example = Example { server: dir.join("server"), client: dir.join("client"), libraries };
    let mut server = cc();
    server.args([sources.join("server.c"), sources.join("store.c"), example.libraries.join("libpmnet.a")]);
    run(server.args(SYSTEM_LIBRARIES).arg("-o").arg(&example.server));
    let mut client = cc();
    client.arg(sources.join("client.c")).arg("-L").arg(&example.libraries).arg("-lpmnet");
    run(client.arg("-o").arg(&example.client));
    example
}

/// A program that is killed when it goes out of scope.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (to, lines) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| to.send(line)).unwrap_or_default();
        });
        Self { child, lines }
    }

    /// The next line of output; `None` at the end.
    fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(OUTPUT_TIMEOUT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program prints nothing for {OUTPUT_TIMEOUT:?}"),
        }
    }

    fn wait_for(&self, line: &str) {
        while self.next().unwrap_or_else(|| panic!("the program has ended without {line:?}")) != line {}
    }

    /// Kills the program with SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Example {
    fn serve(&self, listen: SocketAddr, journal: &Path) -> (Running, SocketAddr) {
        let server = Running::start(Command::new(&self.server).arg(listen.to_string()).arg(journal));
        let line = server.next().expect("the server listens");
        let address = line.strip_prefix("listening ").expect("an address").parse().unwrap();
        (server, address)
    }

    fn client(&self, server: SocketAddr, devices: u8, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.client);
        command.env("LD_LIBRARY_PATH", &self.libraries).args([server.to_string(), devices.to_string()]);
        command.args(arguments);
        command
    }

    /// The list that the server returns.
    fn list(&self, server: SocketAddr, name: &str) -> String {
        let output = run(&mut self.client(server, 0, &[name]));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }
}

struct Device {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    fn start(dir: &Path, server: SocketAddr) -> Self {
        let region =
            RegionConfig { dir: dir.into(), capacity: 32 * RUN_SIZE, media: MediaRequest::Auto, flush: None };
        let device = landfall_pmnet::device::DeviceConfig {
            number: Some(0),
            heartbeat_every: Duration::from_millis(100),
            ..Default::default()
        };
        let relay = Relay::open(&RelayConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            server,
            upstream_ports: PORTS,
            spin: Duration::ZERO,
            region,
            limits: landfall_pmnet::log::Limits::default(),
            device,
            paths: landfall_pmnet::paths::PathLimits::default(),
            key: None,
            metrics: None,
        })
        .unwrap();
        let (address, stop) = (relay.address().unwrap(), Arc::new(AtomicBool::new(false)));
        let stopping = Arc::clone(&stop);
        let thread = Some(std::thread::spawn(move || relay.run(&stopping).unwrap()));
        Self { address, stop, thread }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            assert!(joined.is_ok() || std::thread::panicking());
        }
    }
}

fn words(count: usize) -> String {
    (1..=count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ")
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn acknowledged_updates_of_the_c_client_survive_kills_of_the_c_server() {
    if !has("cc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (example, journal) = (build(dir.path()), dir.path().join("journal"));
    let (mut server, address) = example.serve(any(), &journal);
    let device = Device::start(&dir.path().join("device"), address);
    let count = WORDS.to_string();
    let mut client = Running::start(&mut example.client(device.address, 1, &["list", &count]));
    for at in KILLS {
        client.wait_for(&format!("durable {at}"));
        server.kill();
        // Updates become durable without the server, until the client verifies its words at the next multiple of 50.
        client.wait_for(&format!("durable {}", at + 40));
        server = example.serve(address, &journal).0;
    }
    client.wait_for(&format!("durable {WORDS}"));
    assert_eq!(client.next(), None);
    assert!(client.child.wait().unwrap().success(), "the client has found wrong words");
    server.kill();
    let (_server, address) = example.serve(address, &journal);
    assert_eq!(example.list(address, "list"), words(WORDS));
}

#[test]
fn the_c_example_works_without_a_device_and_stops_on_a_signal() {
    if !has("cc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (example, journal) = (build(dir.path()), dir.path().join("journal"));
    let (mut server, address) = example.serve(any(), &journal);
    run(&mut example.client(address, 0, &["list", "55"]));
    assert_eq!(example.list(address, "list"), words(55));
    assert_eq!(example.list(address, "other"), "");
    run(Command::new("kill").arg(server.child.id().to_string()));
    assert_eq!(server.next(), None);
    assert!(server.child.wait().unwrap().success());
    // A torn block at the end is truncated, and every block before it is kept.
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, [&bytes[..], b"QST1torn"].concat()).unwrap();
    let (_server, address) = example.serve(any(), &journal);
    assert_eq!(example.list(address, "list"), words(55));
    assert_eq!(std::fs::read(&journal).unwrap()[..bytes.len()], bytes);
}
