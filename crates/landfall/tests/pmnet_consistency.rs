//! What a connection sees of another's updates (`docs/pmnet.md`), with real processes and a Redis: between what a device has
//! acknowledged and what the server has applied.

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
/// Pause between two looks for packets.
const PAUSE: Duration = Duration::from_micros(200);

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn socket_to_nobody() -> UdpSocket {
    let socket = UdpSocket::bind(anywhere()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The way between relay and server. It can lose updates, and nothing else.
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

/// A port for each of the relay's.
fn pass_on(front: &UdpSocket, server: SocketAddr, loses_updates: &AtomicBool, stop: &AtomicBool) {
    let (mut ports, mut bytes) = (BTreeMap::new(), vec![0; 1 << 16]);
    while !stop.load(Ordering::SeqCst) {
        while let Ok((len, from)) = front.recv_from(&mut bytes) {
            let is_lost = loses_updates.load(Ordering::SeqCst) && UPDATES.contains(&bytes[0]);
            if !is_lost {
                // What the kernel does not take is lost, as on any path.
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

/// Two connections that share keys `shared` and `other`, both `old`, through a relay of which the server has everything.
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

    /// The device alone acknowledges: the server has none of it.
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
fn linearizable_a_read_of_another_connection_waits_for_what_was_acknowledged_and_of_other_keys_for_nothing() {
    let Some(mut net) = Deployment::start("22600-22619", &["--consistency", "linearizable"]) else { return };
    net.path.lose_updates(true);
    net.update("new");
    let read = read_later(net.connect());
    until("a read that is held", || (count(&net.relay, "held_total") > 0).then_some(()));
    assert_eq!(get(&mut net.reader, "other"), bulk("old"), "a key that nobody writes waits for nothing");
    // Beyond what a packet is held for, its client sends it again.
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
    let Some(mut net) = Deployment::start("22620-22639", &["--consistency", "linearizable"]) else { return };
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
fn session_a_connection_reads_its_own_writes_and_others_once_the_server_has_applied_them() {
    let Some(mut net) = Deployment::start("22640-22659", &[]) else { return };
    net.path.lose_updates(true);
    net.update("new");
    assert_eq!(get(&mut net.reader, "shared"), bulk("old"), "acknowledged, and not applied");
    let Deployment { writer, mut reader, relay, path, .. } = net;
    let own = read_later(writer);
    assert_eq!(get(&mut reader, "shared"), bulk("old"));
    assert!(!own.is_finished(), "its own update comes first");
    path.lose_updates(false);
    assert_eq!(own.join().unwrap(), bulk("new"));
    // Who has read it reads nothing older.
    for _ in 0..20 {
        assert_eq!(get(&mut reader, "shared"), bulk("new"));
    }
    assert_eq!(count(&relay, "held_total"), 0, "nobody is held");
}

#[test]
fn linearizable_is_refused_where_it_cannot_hold_with_what_to_do() {
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
