//! An etcd for a test: on loopback, in a folder of its own, ended by its process id.

use landfall_members::{Etcd, Membership};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take on a machine that does other things, too.
const START: Duration = Duration::from_secs(30);
/// Ports that the kernel chose can be taken by others before etcd listens.
const TRIES: usize = 5;

/// A running etcd; it ends when this is dropped.
pub struct Server {
    folder: tempfile::TempDir,
    ports: [u16; 2],
    child: Child,
}

impl Server {
    /// Starts one, or says why the test is skipped.
    pub fn start() -> Option<Self> {
        let probed =
            Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !probed.is_ok_and(|status| status.success()) {
            eprintln!("SKIP: etcd: not installed, see `cargo xtask peers`");
            return None;
        }
        (0..TRIES).find_map(|_| Self::on(free_ports())).or_else(|| panic!("etcd does not start"))
    }

    fn on(ports: [u16; 2]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { child: spawn(&folder, ports), folder, ports };
        server.answers().then_some(server)
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// The chain of this name, with calls that are given up soon.
    pub fn membership(&self, chain: &str) -> Membership {
        let etcd = Etcd::new(&[self.endpoint()], chain).unwrap();
        Membership::Etcd(etcd.with_limit(Duration::from_secs(1)))
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It goes on listening, but does nothing.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// It goes on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// Starts it again, on the same ports and data.
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, self.ports);
        assert!(self.answers(), "etcd does not start again");
    }

    /// Whether it answers before it ends or takes too long.
    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        let probe = self.membership("probe");
        while begun.elapsed() < START && self.child.try_wait().unwrap().is_none() {
            let listens = TcpStream::connect(("127.0.0.1", self.ports[0])).is_ok();
            let missing = |error: &_| matches!(error, landfall_members::MembersError::NoChain { .. });
            if listens && probe.show().as_ref().err().is_some_and(missing) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn spawn(folder: &tempfile::TempDir, [clients, peers]: [u16; 2]) -> Child {
    let [clients, peers] = [clients, peers].map(|port| format!("http://127.0.0.1:{port}"));
    let log = std::fs::File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
    // Faster heartbeats than usual: the shortest lease is one and a half elections.
    Command::new("etcd")
        .env_clear()
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
