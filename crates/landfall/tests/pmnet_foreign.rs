//! The packets of the authors' public release of PMNet, through Landfall's devices and to its server.
//!
//! Clients and servers in this file use the release's packets and behave as its sources do:
//! `docs/pmnet-interoperability.md`, "What they do".

mod common;
mod deployment;

use common::{Http, Place, Reply, Resp, Server, binary};
use deployment::Process;
use deployment::loopback::until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// Each of their clients has one session, with this number.
const SESSION: u16 = 50_000;
const HEADER: usize = 16;
/// Requests that their servers have not answered, at most, while a client continues.
const WINDOW: u32 = 64;

const UPDATE: u8 = 1;
const ACK: u8 = 2;
const RESPONSE: u8 = 3;
const BYPASS: u8 = 4;
const RECOVER: u8 = 5;
const CACHE_RESPONSE: u8 = 6;

fn hash(of: u32) -> u32 {
    of.wrapping_mul(2048) % 0x8000_0000 + 0x8000_0000
}

/// A packet of the release: the bytes behind the hash are random stack content.
fn packet(kind: u8, seq: u32, hash: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0xfb];
    bytes.extend(SESSION.to_le_bytes());
    bytes.extend(seq.to_le_bytes());
    bytes.extend(hash.swap_bytes().to_le_bytes());
    bytes.extend([0x7f, 0x3a, 0x11, 0x22]);
    bytes.extend(payload);
    bytes
}

struct Heard {
    kind: u8,
    session: u16,
    seq: u32,
    hash: u32,
    payload: Vec<u8>,
}

fn parse(bytes: &[u8]) -> Heard {
    assert!(bytes.len() >= HEADER, "a packet of {} bytes", bytes.len());
    Heard {
        kind: bytes[0],
        session: u16::from_le_bytes([bytes[2], bytes[3]]),
        seq: u32::from_le_bytes(bytes[4..8].try_into().unwrap()),
        hash: u32::from_le_bytes(bytes[8..12].try_into().unwrap()).swap_bytes(),
        payload: bytes[HEADER..].to_vec(),
    }
}

fn command(parts: &[&str]) -> Vec<u8> {
    let part = |part: &&str| format!("${}\r\n{part}\r\n", part.len());
    format!("*{}\r\n{}", parts.len(), parts.iter().map(part).collect::<String>()).into_bytes()
}

/// Which packet answered a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Device,
    Server(Vec<u8>),
    Cache,
}

/// The release's YCSB client, and its TPC-C client where that differs: one request after the other, without any
/// retransmission.
struct Client {
    socket: UdpSocket,
    seq: u32,
    answered: u32,
    /// True if the client recognises cache responses, by the number in the read's hash.
    knows_cache: bool,
}

impl Client {
    fn connect(to: SocketAddr, knows_cache: bool) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self { socket, seq: 0, answered: 0, knows_cache }
    }

    fn receive(&self) -> Heard {
        let mut bytes = [0; 5000];
        let len = self.socket.recv(&mut bytes).expect("their client waits for ever");
        parse(&bytes[..len])
    }

    /// Sends a request and waits as the release does; returns which packet answered first.
    fn ask(&mut self, kind: u8, of: u32, request: &[u8]) -> Answer {
        self.socket.send(&packet(kind, self.seq, hash(of), request)).unwrap();
        let (mut answer, mut drains) = (None, false);
        while drains || answer.is_none() {
            let heard = self.receive();
            if heard.kind == RESPONSE {
                self.answered = self.answered.max(heard.seq);
            }
            if heard.seq == self.seq && heard.session == SESSION {
                assert!(matches!(heard.kind, ACK | RESPONSE), "their client ends: type {:#x}", heard.kind);
                if heard.kind == ACK {
                    assert_eq!(heard.hash, hash(of), "the update's");
                }
                let by = if heard.kind == ACK { Answer::Device } else { Answer::Server(heard.payload) };
                answer.get_or_insert(by);
                drains = self.seq - self.answered >= WINDOW;
            } else if self.knows_cache && heard.kind == CACHE_RESPONSE && heard.seq == of {
                answer.get_or_insert(Answer::Cache);
            }
        }
        self.seq += 1;
        answer.unwrap()
    }

    fn set(&mut self, key: &str, value: &str) -> Answer {
        self.ask(UPDATE, self.seq, &command(&["SET", key, value]))
    }

    /// A read of a numeric key, as in YCSB.
    fn get(&mut self, key: u32) -> Answer {
        self.ask(BYPASS, key, &command(&["GET", &key.to_string()]))
    }

    /// A read as TPC-C sends it: with the number's own hash.
    fn get_by_name(&mut self, key: &str) -> String {
        match self.ask(BYPASS, self.seq, &command(&["GET", key])) {
            Answer::Server(reply) => {
                String::from_utf8(reply).unwrap().lines().nth(1).unwrap_or_default().into()
            }
            other => panic!("{other:?} answers a read"),
        }
    }
}

/// The release's Redis adaptor: forwards the content of a packet to Redis, and the reply back.
struct Adaptor {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Adaptor {
    fn start(redis: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap();
        let (requests, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, stops) = (Arc::clone(&requests), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut store = TcpStream::connect(redis).unwrap();
            let mut bytes = [0; 4096];
            while !stops.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                let heard = parse(&bytes[..len]);
                assert!(
                    !heard.payload.is_empty(),
                    "their adaptor ends: type {:#x} carries nothing",
                    heard.kind
                );
                counts.fetch_add(1, Ordering::Relaxed);
                let reply = execute(&mut store, &heard.payload);
                socket.send_to(&packet(RESPONSE, heard.seq, hash(heard.seq), &reply), from).unwrap();
            }
        });
        Self { address, requests, stop, thread: Some(thread) }
    }

    fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().expect("the adaptor ends without a panic");
    }
}

/// One read of the socket is one reply, as in the release.
fn execute(store: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    store.write_all(request).unwrap();
    let mut reply = [0; 4096];
    let len = store.read(&mut reply).unwrap();
    reply[..len].to_vec()
}

/// A store, and Landfall's processes in front of it.
struct Network {
    // It ends before its directory is removed: fields drop in order.
    store: Server,
    files: tempfile::TempDir,
    _place: Place,
    ports: &'static str,
}

impl Network {
    fn new(ports: &'static str) -> Self {
        let place = Place::new();
        let store = place.start(&["--http", "off"]);
        Self { files: tempfile::tempdir().unwrap(), _place: place, store, ports }
    }

    fn path(&self) -> &Path {
        self.files.path()
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(binary());
        command.arg("pmnet").args(arguments);
        Process::start(command, &self.path().join("log"))
    }

    fn server(&self, listen: &str, flags: &[&str]) -> Process {
        let store = self.store.resp.to_string();
        self.start(&[&["server", "--listen", listen, "--redis", &store][..], flags].concat())
    }

    fn relay(&self, listen: &str, server: SocketAddr, flags: &[&str]) -> Process {
        let (dir, server) = (self.path().join("device"), server.to_string());
        let fixed = ["switch", "--listen", listen, "--server", &server, "--dir", dir.to_str().unwrap()];
        let more = ["--capacity", "64MiB", "--upstream-ports", self.ports, "--metrics", "127.0.0.1:0"];
        self.start(&[&fixed[..], &more, flags].concat())
    }

    fn value(&self, key: &str) -> Option<String> {
        let mut resp = Resp::connect(self.store.resp, LIMIT).unwrap();
        match resp.call(&[b"GET", key.as_bytes()]).unwrap() {
            Reply::Bulk(value) => Some(String::from_utf8(value).unwrap()),
            _ => None,
        }
    }

    fn must_have(&self, key: &str, value: &str) {
        until(key, || (self.value(key).as_deref() == Some(value)).then_some(()));
    }
}

fn count(device: &Process, name: &str) -> u64 {
    let line = device.lines.iter().find_map(|line| line.strip_prefix("metrics: http://")).unwrap();
    let address = line.trim_end_matches("/metrics").parse().unwrap();
    let response = Http::connect(address, LIMIT).unwrap().call("GET", "/metrics", "", b"").unwrap();
    let text = String::from_utf8(response.body).unwrap();
    let prefix = format!("landfall_pmnet_{name} ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().parse().unwrap()
}

const ANY: &str = "127.0.0.1:0";

/// The release's YCSB client: writes and reads alternate, and keys are the numbers of the requests. Returns how many
/// answers were early or from a cache.
fn ycsb(client: &mut Client, operations: u32, value: &str) -> (u32, u32) {
    let (mut early, mut cached) = (0, 0);
    for at in 0..operations {
        let answer = if at % 2 == 0 { client.set(&at.to_string(), value) } else { client.get(at / 4 * 2) };
        early += u32::from(answer == Answer::Device);
        cached += u32::from(answer == Answer::Cache);
    }
    (early, cached)
}

#[test]
fn their_clients_are_served_by_our_server_and_acknowledged_early_by_our_relay() {
    let network = Network::new("22600-22619");
    let server = network.server(ANY, &["--foreign"]);
    let relay = network.relay(ANY, server.address("listen"), &["--foreign"]);
    let front = relay.address("listen");
    let clients: Vec<JoinHandle<u32>> = (0..4)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(front, false);
                let mut early = 0;
                for at in 0..300 {
                    let key = format!("{number}:{}", at % 50);
                    if at % 3 == 2 {
                        let before = format!("{number}:{}", (at - 1) % 50);
                        assert_eq!(
                            client.get_by_name(&before),
                            (at - 1).to_string(),
                            "it reads its own writes"
                        );
                    } else {
                        early += u32::from(client.set(&key, &at.to_string()) == Answer::Device);
                    }
                }
                early
            })
        })
        .collect();
    let early: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    // Either acknowledgement or response may be faster; the server alone acknowledges the first update of each client.
    assert!(early > 0, "none of 800 updates was acknowledged by the device");
    until("the log's count", || (count(&relay, "logged_total") == 796).then_some(()));
    for number in 0..4 {
        (250..300)
            .filter(|at| at % 3 != 2)
            .for_each(|at| network.must_have(&format!("{number}:{}", at % 50), &at.to_string()));
    }
    until("an empty log", || (count(&relay, "log_entries") == 0).then_some(()));
}

#[test]
fn acknowledged_updates_of_their_clients_survive_kills_of_the_server_and_of_the_relay() {
    let network = Network::new("22620-22639");
    let server = network.server(ANY, &["--foreign"]);
    let listens = server.address("listen");
    let relay = network.relay(ANY, listens, &["--foreign"]);
    let front = relay.address("listen");
    let mut client = Client::connect(front, false);
    (0..20).for_each(|at| drop(client.set(&format!("k{at}"), "before")));
    assert_eq!(client.get_by_name("k19"), "before");
    server.kill();
    for at in 0..40 {
        assert_eq!(
            client.set(&format!("k{}", at % 10), &format!("v{at}")),
            Answer::Device,
            "no server answers"
        );
    }
    relay.kill();
    let relay = network.relay(&front.to_string(), listens, &["--foreign"]);
    // Removing an entry writes nothing: updates that the server had confirmed may be found again, and are confirmed
    // again.
    assert!(count(&relay, "recovered_entries") >= 40);
    assert_eq!(client.set("k0", "after"), Answer::Device, "the log knows that the session was taken");
    let _server = network.server(&listens.to_string(), &["--foreign"]);
    network.must_have("k0", "after");
    (1..10).for_each(|at| network.must_have(&format!("k{at}"), &format!("v{}", 30 + at)));
    until("an empty log", || (count(&relay, "log_entries") == 0).then_some(()));
    for at in 0..100 {
        client.set("k0", &at.to_string());
        assert_eq!(client.get_by_name("k0"), at.to_string());
    }
}

#[test]
fn a_read_cache_answers_their_ycsb_client_in_its_form_and_no_other_client_of_theirs() {
    let network = Network::new("22640-22659");
    let server = network.server(ANY, &["--foreign"]);
    let relay = network.relay(ANY, server.address("listen"), &["--foreign", "--cache", "resp"]);
    let front = relay.address("listen");
    let (early, cached) = ycsb(&mut Client::connect(front, true), 1000, "value");
    assert!(early > 0 && cached > 20, "{early} updates early, {cached} reads from the cache");
    (0..500).for_each(|at| network.must_have(&(2 * at).to_string(), "value"));
    let mut tpcc = Client::connect(front, false);
    for at in 0..100 {
        tpcc.set("name", &at.to_string());
        assert_eq!(tpcc.get_by_name("name"), at.to_string());
    }
    until("an empty log", || (count(&relay, "log_entries") == 0).then_some(()));
    assert!(count(&relay, "cache_hits_total") >= u64::from(cached));
}

#[test]
fn their_clients_and_their_adaptor_work_through_our_relay_which_adds_nothing_of_its_own() {
    let network = Network::new("22660-22679");
    let adaptor = Adaptor::start(network.store.resp);
    let relay = network.relay(ANY, adaptor.address, &["--foreign=both"]);
    let mut client = Client::connect(relay.address("listen"), true);
    let (early, cached) = ycsb(&mut client, 600, "value");
    assert!(early > 0 && cached == 0, "{early} updates early, {cached} reads from a cache");
    until("the log's count", || (count(&relay, "logged_total") == 300).then_some(()));
    (0..300).for_each(|at| network.must_have(&(2 * at).to_string(), "value"));
    until("an empty log", || (count(&relay, "log_entries") == 0).then_some(()));
    // Longer than the interval of heartbeats.
    std::thread::sleep(Duration::from_millis(500));
    assert!(adaptor.requests.load(Ordering::Relaxed) >= 600);
    adaptor.end();
}

#[test]
fn their_recovery_test_gets_each_update_by_its_number() {
    const UPDATES: u32 = 200;
    let network = Network::new("22680-22699");
    let adaptor = UdpSocket::bind(ANY).unwrap();
    adaptor.set_read_timeout(Some(LIMIT)).unwrap();
    let flags = ["--foreign=both", "--resend-after", "600000"];
    let relay = network.relay(ANY, adaptor.local_addr().unwrap(), &flags);
    let client = UdpSocket::bind(ANY).unwrap();
    client.connect(relay.address("listen")).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = [0; 5000];
    let mut from = None;
    let update = |seq: u32| packet(UPDATE, seq, hash(seq), &command(&["SET", &seq.to_string(), "value"]));
    for seq in 0..UPDATES {
        client.send(&update(seq)).unwrap();
        let len = client.recv(&mut bytes).unwrap();
        let heard = parse(&bytes[..len]);
        assert_eq!((heard.kind, heard.seq), (ACK, seq), "its server says nothing");
        from = Some(adaptor.recv_from(&mut bytes).unwrap().1);
    }
    for seq in 0..UPDATES {
        adaptor.send_to(&packet(RECOVER, seq, hash(seq), b""), from.unwrap()).unwrap();
        let (len, _) = adaptor.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..len], update(seq), "exactly this one, as it was");
    }
    adaptor.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(adaptor.recv_from(&mut bytes).is_err(), "and no other");
    client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    assert!(client.recv(&mut bytes).is_err(), "the client hears nothing of it");
}

#[test]
fn nothing_is_acknowledged_early_to_a_client_whose_session_the_server_refuses() {
    for flags in [&["--foreign"][..], &[]] {
        let network = Network::new("22700-22719");
        let server = network.server(ANY, &[]);
        let relay = network.relay(ANY, server.address("listen"), flags);
        let client = Client::connect(relay.address("listen"), false);
        client.socket.send(&packet(UPDATE, 0, hash(0), &command(&["SET", "0", "value"]))).unwrap();
        assert_eq!(client.receive().kind, 0x24, "its end, and no acknowledgement before: {flags:?}");
        client.socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(client.socket.recv(&mut [0; 100]).is_err(), "nor behind it");
        assert_eq!((count(&relay, "log_entries"), network.value("0")), (0, None));
    }
}

#[test]
fn incompatible_flags_are_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [
        &["switch", "--server", "127.0.0.1:51500", "--foreign=both", "--cache", "resp"][..],
        &["switch", "--server", "127.0.0.1:51500", "--foreign=some"],
        &["switch", "--server", "127.0.0.1:51500", "--foreign", "--key-file", "key"],
        &["server", "--foreign", "--key-file", "key"],
    ] {
        let output =
            Command::new(binary()).arg("pmnet").args(flags).current_dir(&directory).output().unwrap();
        assert!(!output.status.success(), "{flags:?}");
        assert!(!output.stderr.is_empty(), "{flags:?}");
    }
}
