//! An etcd for a test.

#[path = "../../../members/tests/server/certificates.rs"]
mod certificates;

use super::{own_address, signal, wait_until};
use certificates::Certificates;
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
    start: Start,
    pub(crate) url: String,
    /// Flags of programs that are its clients.
    pub(crate) client: Vec<String>,
    /// The files that some of the flags name.
    certificates: Option<Certificates>,
}

/// What one is started with.
struct Start {
    dir: PathBuf,
    /// Flags of etcd.
    flags: Vec<String>,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `None`, with a message, if etcd is not installed.
pub(crate) fn start_etcd(dir: &Path) -> Option<Etcd> {
    start(dir, format!("http://{}", own_address()), Vec::new(), Vec::new())
}

/// As [`start_etcd`]. It demands a certificate of its clients, and the first of its addresses is of nobody.
pub(crate) fn start_etcd_with_tls(dir: &Path) -> Option<Etcd> {
    let (certificates, address) = (Certificates::new(), own_address());
    let [certificate, key] = certificates.sign("server", &[&address.ip().to_string()], Some("etcd"));
    let [own_certificate, own_key] = certificates.sign("client", &[], Some("landfall"));
    let words = |pairs: &[(&str, &Path)]| -> Vec<String> {
        pairs.iter().flat_map(|(flag, path)| [(*flag).to_owned(), path.display().to_string()]).collect()
    };
    let ca = certificates.ca();
    let flags = words(&[("--cert-file", &certificate), ("--key-file", &key), ("--trusted-ca-file", &ca)]);
    let mut client =
        words(&[("--etcd-ca", &ca), ("--etcd-cert", &own_certificate), ("--etcd-key", &own_key)]);
    client.extend(["--etcd".to_owned(), format!("https://{}", own_address())]);
    let flags = [flags, vec!["--client-cert-auth".to_owned()]].concat();
    let mut etcd = start(dir, format!("https://{address}"), flags, client)?;
    etcd.certificates = Some(certificates);
    Some(etcd)
}

fn start(dir: &Path, url: String, flags: Vec<String>, mut client: Vec<String>) -> Option<Etcd> {
    let peers = format!("http://{}", own_address());
    let listen = [
        ("--listen-client-urls", &url),
        ("--advertise-client-urls", &url),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
    ];
    let mut all: Vec<String> =
        listen.iter().flat_map(|(flag, url)| [(*flag).to_owned(), (*url).clone()]).collect();
    all.extend(["--initial-cluster".to_owned(), format!("default={peers}")]);
    all.extend(flags);
    let start = Start { dir: dir.into(), flags: all };
    let Ok(child) = start.spawn() else {
        eprintln!("SKIP: etcd: not installed, see `cargo xtask peers`");
        return None;
    };
    client.extend(["--etcd".to_owned(), url.clone()]);
    Some(Etcd { child, start, url, client, certificates: None })
}

impl Start {
    fn spawn(&self) -> std::io::Result<Child> {
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(&self.dir).args(&self.flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }
}

impl Etcd {
    /// Waits until it accepts connections.
    pub(crate) fn wait(&self) {
        let (_, address) = self.url.split_once("://").unwrap();
        wait_until(LIMIT, || TcpStream::connect(address).ok()).expect("etcd listens");
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
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
        self.child = self.start.spawn().unwrap();
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
