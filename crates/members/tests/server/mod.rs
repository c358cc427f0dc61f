//! An etcd for a test: on loopback, in a folder of its own, ended by its process id.

#![allow(dead_code, reason = "each file of tests uses some of it")]

mod certificates;
pub mod gate;

pub use certificates::Certificates;
use landfall_members::{Etcd, EtcdClient, EtcdConfig, MembersError, Membership};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a start may take on a machine that does other things, too.
const START: Duration = Duration::from_secs(30);
/// Ports that the kernel chose can be taken by others before etcd listens.
const TRIES: usize = 5;

/// How an etcd is started.
#[derive(Clone, Default)]
pub struct Setup {
    /// Further arguments.
    arguments: Vec<String>,
    /// How clients reach it, but for the addresses.
    pub client: EtcdConfig,
    /// With TLS, by these.
    certificates: Option<Certificates>,
}

impl Setup {
    /// With TLS, by a certificate for loopback. Clients trust its CA.
    pub fn encrypted(certificates: &Certificates) -> Self {
        let [certificate, key] = certificates.sign("server", &["127.0.0.1", "localhost"], Some("etcd"));
        let paths = [("--cert-file", certificate), ("--key-file", key)];
        let arguments =
            paths.iter().flat_map(|(flag, path)| [(*flag).to_owned(), path.display().to_string()]);
        let client = EtcdConfig { ca: Some(certificates.ca()), ..EtcdConfig::default() };
        Self { arguments: arguments.collect(), client, certificates: Some(certificates.clone()) }
    }

    /// Clients must have a certificate of the CA.
    pub fn demanding(certificates: &Certificates) -> Self {
        let ca = certificates.ca().display().to_string();
        Self::encrypted(certificates).with(&["--client-cert-auth", "--trusted-ca-file", &ca])
    }

    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    fn scheme(&self) -> &'static str {
        if self.certificates.is_some() { "https" } else { "http" }
    }
}

/// A running etcd; it ends when this is dropped.
pub struct Server {
    folder: tempfile::TempDir,
    setup: Setup,
    name: String,
    ports: [u16; 2],
    /// `NAME=URL` of each member.
    members: String,
    child: Child,
}

impl Server {
    /// Starts one, or says why the test is skipped.
    pub fn start() -> Option<Self> {
        Self::start_as(&Setup::default())
    }

    /// As [`Server::start`].
    pub fn start_as(setup: &Setup) -> Option<Self> {
        Self::cluster(setup, 1).and_then(|mut members| members.pop())
    }

    /// Starts several that are one cluster.
    pub fn cluster(setup: &Setup, count: usize) -> Option<Vec<Self>> {
        let probed =
            Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !probed.is_ok_and(|status| status.success()) {
            eprintln!("SKIP: etcd: not installed, see `cargo xtask peers`");
            return None;
        }
        (0..TRIES).find_map(|_| Self::try_cluster(setup, count)).or_else(|| panic!("etcd does not start"))
    }

    fn try_cluster(setup: &Setup, count: usize) -> Option<Vec<Self>> {
        let ports = free_ports(count * 2);
        let ports: Vec<[u16; 2]> = ports.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        let member = |(at, [_, peers]): (usize, &[u16; 2])| format!("m{at}=http://127.0.0.1:{peers}");
        let members = ports.iter().enumerate().map(member).collect::<Vec<_>>().join(",");
        let start = |(at, ports): (usize, &[u16; 2])| {
            let (folder, name) = (tempfile::tempdir().unwrap(), format!("m{at}"));
            let child = spawn(&folder, setup, &name, *ports, &members);
            Self { folder, setup: setup.clone(), name, ports: *ports, members: members.clone(), child }
        };
        let mut servers: Vec<Self> = ports.iter().enumerate().map(start).collect();
        servers.iter_mut().all(Self::answers).then_some(servers)
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.setup.scheme(), self.ports[0])
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports[0]).into()
    }

    /// How it is reached.
    pub fn config(&self) -> EtcdConfig {
        EtcdConfig { addresses: vec![self.endpoint()], ..self.setup.client.clone() }
    }

    /// The chain of this name, with calls that are given up soon.
    pub fn membership(&self, chain: &str) -> Membership {
        membership(&self.config(), chain)
    }

    /// Posts JSON to the gateway of an etcd without TLS, as an operator with curl would, with the token of a user if
    /// there is one.
    pub fn post(&self, path: &str, json: &str, token: Option<&str>) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).unwrap();
        let token = token.map_or_else(String::new, |token| format!("Authorization: {token}\r\n"));
        let length = json.len();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{token}Connection: close\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{json}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        answer
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
        self.child = spawn(&self.folder, &self.setup, &self.name, self.ports, &self.members);
        assert!(self.answers(), "etcd does not start again");
    }

    /// Keeps a copy of its data, which do not change at the moment.
    pub fn keep_copy(&self) {
        self.copy("data", "copy");
    }

    /// Puts the copy in the place of its data.
    pub fn restore_copy(&self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.copy("copy", "data");
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    }

    /// Ends it, and starts it on the same data, but otherwise set up.
    pub fn restart_as(&mut self, setup: &Setup) {
        self.kill();
        self.setup = setup.clone();
        self.restart();
    }

    /// Whether it answers before it ends or takes too long.
    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        let probe = self.membership("probe");
        while begun.elapsed() < START && self.child.try_wait().unwrap().is_none() {
            let listens = TcpStream::connect(("127.0.0.1", self.ports[0])).is_ok();
            let missing = |error: &_| matches!(error, MembersError::NoChain { .. });
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

/// The chain of this name, with calls that are given up soon.
pub fn membership(config: &EtcdConfig, chain: &str) -> Membership {
    let etcd = Etcd::of(EtcdClient::new(config).unwrap(), chain).unwrap();
    Membership::Etcd(etcd.with_limit(Duration::from_secs(1)))
}

fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn spawn(
    folder: &tempfile::TempDir,
    setup: &Setup,
    name: &str,
    [clients, peers]: [u16; 2],
    members: &str,
) -> Child {
    let clients = format!("{}://127.0.0.1:{clients}", setup.scheme());
    let peers = format!("http://127.0.0.1:{peers}");
    let log = std::fs::File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
    // Faster heartbeats than usual: the shortest lease is one and a half elections.
    Command::new("etcd")
        .env_clear()
        .args(["--name", name, "--data-dir"])
        .arg(folder.path().join("data"))
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", members])
        .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
        .args(&setup.arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
