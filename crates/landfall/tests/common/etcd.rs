//! An etcd for a test.

use super::wait_until;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a start may take.
const LIMIT: Duration = Duration::from_secs(30);

/// An etcd on loopback, killed when dropped.
pub(crate) struct Etcd {
    child: Child,
    dir: PathBuf,
    pub(crate) url: String,
    peers: String,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `None`, with a message, if etcd is not installed.
pub(crate) fn start_etcd(dir: &Path) -> Option<Etcd> {
    let port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let [url, peers] = [port(), port()].map(|port| format!("http://127.0.0.1:{port}"));
    let Ok(child) = spawn(dir, &url, &peers) else {
        eprintln!("SKIP: etcd: not installed, see `cargo xtask peers`");
        return None;
    };
    Some(Etcd { child, dir: dir.into(), url, peers })
}

fn spawn(dir: &Path, url: &str, peers: &str) -> std::io::Result<Child> {
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(dir).args(["--listen-client-urls", url, "--advertise-client-urls", url]);
    command.args(["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Etcd {
    /// Waits until it accepts connections.
    pub(crate) fn wait(&self) {
        let address = self.url.strip_prefix("http://").unwrap();
        wait_until(LIMIT, || TcpStream::connect(address).ok()).expect("etcd listens");
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again with what it had.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.dir, &self.url, &self.peers).unwrap();
        self.wait();
    }
}

/// A port that leads to an etcd until it is closed. Its thread ends with the test's process.
pub(crate) struct Gate {
    address: SocketAddr,
    is_open: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Gate {
    pub(crate) fn to(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = etcd.url.strip_prefix("http://").unwrap().to_owned();
        let gate = Self {
            address: listener.local_addr().unwrap(),
            is_open: Arc::new(AtomicBool::new(true)),
            connections: Arc::default(),
        };
        let (is_open, connections) = (Arc::clone(&gate.is_open), Arc::clone(&gate.connections));
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if !is_open.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&to) else { continue };
                forward(&client, &server);
                forward(&server, &client);
                connections.lock().unwrap().extend([client, server]);
            }
        });
        gate
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts all connections, and closes new ones.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        for connection in self.connections.lock().unwrap().drain(..) {
            // It may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

fn forward(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
