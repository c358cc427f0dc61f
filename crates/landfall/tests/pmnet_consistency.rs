//! What a connection sees of the updates of other connections (`docs/pmnet.md`), with real processes and a Redis: the
//! time between a device's acknowledgement and the server's execution.

mod common;
mod deployment;

use common::{Reply, Resp, bulk, landfall, ok};
use deployment::loopback::{Loopback, Store, count, until, wait_for_empty_log};
use deployment::{Process, has_redis};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Types of packets (`docs/format/pmnet.md`): an update, and a fragment of one.
const UPDATES: [u8; 2] = [1, 0x10];
/// Pause between two polls for packets.
const PAUSE: Duration = Duration::from_micros(200);

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn socket_to_nobody() -> UdpSocket {
    let socket = UdpSocket::bind(anywhere()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The path between relay and server, which can lose updates and nothing else.
struct Path {
    address: SocketAddr,
    loses_updates: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Path {
    fn to(server: SocketAddr) -> Self {
        let (front, loses_updates, stop) = (socket_to_nobody(), Arc::default(), Arc::default());
        let address = front.local_addr().unwrap();
        let (loses, stopped) = (Arc::clone(&loses_updates), Arc::clone(&stop));
        let thread = std::thread::spawn(move || pass_on(&front, server, &loses, &stopped));
        Self { address, loses_updates, stop, thread: Some(thread) }
    }

    fn lose_updates(&self, loses: bool) {
        self.loses_updates.store(loses, Ordering::SeqCst);
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Forwards packets; each port of the relay gets a port of its own.
fn pass_on(front: &UdpSocket, server: SocketAddr, loses_updates: &AtomicBool, stop: &AtomicBool) {
    let (mut ports, mut bytes) = (BTreeMap::new(), vec![0; 1 << 16]);
    while !stop.load(Ordering::SeqCst) {
        while let Ok((len, from)) = front.recv_from(&mut bytes) {
            let is_lost = loses_updates.load(Ordering::SeqCst) && UPDATES.contains(&bytes[0]);
            if !is_lost {
                // A packet that the kernel does not accept is lost, as on any path.
                let _ = ports.entry(from).or_insert_with(socket_to_nobody).send_to(&bytes[..len], server);
            }
        }
        for (relay, port) in &ports {
            while let Ok(len) = port.recv(&mut bytes) {
                let _ = front.send_to(&bytes[..len], relay);
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Two connections that share the keys `shared` and `other`, both `old`, through a relay whose updates the server has
/// all executed.
struct Deployment {
    writer: Resp,
    reader: Resp,
    client: Process,
    relay: Process,
    path: Path,
    server: Process,
    _store: Store,
    _net: Loopback,
}

impl Deployment {
    fn start(ports: &'static str, flags: &[&str]) -> Option<Self> {
        let net = has_redis().then(|| Loopback::new(ports))?;
        let store = net.store("redis", None);
        let server = net.server(anywhere(), store.address(), &[]);
        let path = Path::to(server.address("listen"));
        let relay = net.relay_to(path.address, flags);
        let client = net.client(&relay, &[]);
        let connect = || Resp::connect(client.address("resp"), LIMIT).unwrap();
        let (mut writer, mut reader) = (connect(), connect());
        for key in ["shared", "other"] {
            assert_eq!(writer.call(&[b"SET", key.as_bytes(), b"old"]).unwrap(), ok());
        }
        wait_for_empty_log(&relay);
        assert_eq!(get(&mut reader, "shared"), bulk("old"));
        Some(Self { writer, reader, client, relay, path, server, _store: store, _net: net })
    }

    fn connect(&self) -> Resp {
        Resp::connect(self.client.address("resp"), LIMIT).unwrap()
    }

    /// Sends an update that only the device acknowledges: the server does not get it.
    fn update(&mut self, value: &str) {
        assert_eq!(self.writer.call(&[b"SET", b"shared", value.as_bytes()]).unwrap(), ok());
        assert!(count(&self.relay, "log_entries") > 0, "the server has confirmed nothing");
    }
}

fn get(resp: &mut Resp, key: &str) -> Reply {
    resp.call(&[b"GET", key.as_bytes()]).unwrap()
}

/// A read of `shared` that may have to wait.
fn read_later(mut resp: Resp) -> JoinHandle<Reply> {
    std::thread::spawn(move || get(&mut resp, "shared"))
}

#[test]
fn linearizable_a_read_waits_for_acknowledged_updates_of_its_key_only() {
    let Some(mut net) = Deployment::start("23000-23019", &["--consistency", "linearizable"]) else { return };
    net.path.lose_updates(true);
    net.update("new");
    let read = read_later(net.connect());
    until("a read that is held", || (count(&net.relay, "held_total") > 0).then_some(()));
    assert_eq!(get(&mut net.reader, "other"), bulk("old"), "a key without writers does not wait");
    // After the maximum time that the device holds a packet, its client sends it again.
    until("a read that was held for too long", || {
        (count(&net.relay, "held_dropped_total") > 0).then_some(())
    });
    assert!(!read.is_finished(), "the server has nothing but the old value");
    net.path.lose_updates(false);
    assert_eq!(read.join().unwrap(), bulk("new"));
    assert_eq!(get(&mut net.reader, "shared"), bulk("new"));
}

#[test]
fn linearizable_a_read_of_another_connection_waits_while_the_server_is_stopped() {
    let Some(mut net) = Deployment::start("23020-23039", &["--consistency", "linearizable"]) else { return };
    net.server.signal("STOP");
    for value in 0..3 {
        net.update(&value.to_string());
    }
    let Deployment { reader, relay, server, .. } = &mut net;
    std::thread::scope(|scope| {
        let read = scope.spawn(|| get(reader, "shared"));
        until("a read that is held", || (count(relay, "held_total") > 0).then_some(()));
        assert!(!read.is_finished());
        server.signal("CONT");
        assert_eq!(read.join().unwrap(), bulk("2"));
    });
}

#[test]
fn session_a_connection_reads_its_own_writes_and_those_that_the_server_has_applied() {
    let Some(mut net) = Deployment::start("23040-23059", &[]) else { return };
    net.path.lose_updates(true);
    net.update("new");
    assert_eq!(get(&mut net.reader, "shared"), bulk("old"), "acknowledged, and not applied");
    let Deployment { writer, mut reader, relay, path, .. } = net;
    let own = read_later(writer);
    assert_eq!(get(&mut reader, "shared"), bulk("old"));
    assert!(!own.is_finished(), "its own update comes first");
    path.lose_updates(false);
    assert_eq!(own.join().unwrap(), bulk("new"));
    // A client that has read a value does not read an older one.
    for _ in 0..20 {
        assert_eq!(get(&mut reader, "shared"), bulk("new"));
    }
    assert_eq!(count(&relay, "held_total"), 0, "no request is held");
}

#[test]
fn linearizable_is_refused_where_it_cannot_hold_with_advice() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("device");
    let relay = ["--listen", "127.0.0.1:0", "--server", "127.0.0.1:9"];
    let refusals: [(&[&str], &str); 4] = [
        (&["--between", "lo,lo"], "needs a relay (--listen, --server)"),
        (&["--nic", "lo"], "needs a relay (--listen, --server)"),
        (&[&relay[..], &["--foreign"]].concat(), "give --consistency session"),
        (&[&relay[..], &["--foreign=both"]].concat(), "give --consistency session"),
    ];
    for (flags, wanted) in refusals {
        let consistency =
            ["pmnet", "switch", "--consistency", "linearizable", "--dir", dir.to_str().unwrap()];
        let output = landfall(&[&consistency[..], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{flags:?}: {said}");
        assert!(!dir.exists(), "{flags:?}: no region is made for what does not run");
    }
}
