//! Tests of the relay. Client and server are plain sockets that send hand-made packets.

use landfall_media::{MediaRequest, RUN_SIZE};
use landfall_pmnet::device::DeviceConfig;
use landfall_pmnet::log::Limits;
use landfall_pmnet::paths::PathLimits;
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet, Refusal, Start, kind};
use landfall_switch::RegionConfig;
use landfall_switch::relay::{Relay, RelayConfig};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

struct Running {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    status: Arc<landfall_switch::status::Status>,
}

impl Running {
    fn metric(&self, name: &str) -> u64 {
        let text = self.status.metrics();
        let line = text.lines().find(|line| line.starts_with(&format!("landfall_pmnet_{name} ")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn config(dir: &Path, server: SocketAddr, ports: u16) -> RelayConfig {
    RelayConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        server,
        upstream_ports: ports..=ports + 20,
        spin: Duration::ZERO,
        region: RegionConfig {
            dir: dir.into(),
            capacity: 32 * RUN_SIZE,
            media: MediaRequest::Auto,
            flush: None,
        },
        limits: Limits::default(),
        device: DeviceConfig { number: Some(0), heartbeat_every: Duration::ZERO, ..DeviceConfig::default() },
        paths: PathLimits::default(),
        key: None,
        metrics: None,
    }
}

fn start(config: &RelayConfig) -> Running {
    let relay = Relay::open(config).unwrap();
    let (address, status) = (relay.address().unwrap(), relay.status());
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let thread = std::thread::spawn(move || relay.run(&stopping).unwrap());
    Running { address, stop, thread: Some(thread), status }
}

fn host() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 65536];
    let (len, from) = socket.recv_from(&mut bytes).expect("a packet");
    bytes.truncate(len);
    (bytes, from)
}

fn update(seq: u32) -> Vec<u8> {
    Packet::new(7, seq, Body::Update(format!("request {seq}").as_bytes())).to_bytes()
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn updates_are_acknowledged_forwarded_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let relay = start(&config(dir.path(), server.local_addr().unwrap(), 21_000));
    client.send_to(&update(1), relay.address).unwrap();
    let (bytes, from) = receive(&server);
    assert_eq!(bytes, update(1));
    let (bytes, _) = receive(&client);
    let ack = Packet::parse(&bytes).unwrap();
    assert_eq!((ack.header.kind, ack.header.ack_count, ack.header.seq), (kind::PMNET_ACK, 0, 1));
    eventually("one update in the log", || relay.metric("log_entries") == 1);
    server.send_to(&Packet::new(7, 1, Body::ServerAck).to_bytes(), from).unwrap();
    let (bytes, _) = receive(&client);
    assert_eq!(Packet::parse(&bytes).unwrap().body, Body::ServerAck);
    eventually("an empty log", || relay.metric("log_entries") == 0);
}

/// An ICMP message that a datagram from `from` to `to`, on this machine, cannot be delivered (RFC 792).
#[allow(clippy::big_endian_bytes, reason = "the order of networks")]
fn unreachable(code: u8, (from, to): (u16, u16)) -> Vec<u8> {
    // The MTU of the next hop, for code 4 (RFC 1191), and the head of the datagram.
    let mut message = vec![3, code, 0, 0, 0, 0, 3, 232];
    message.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    for half in [from, to, 20, 0] {
        message.extend(half.to_be_bytes());
    }
    let sum: u32 = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn what_the_network_says_of_earlier_packets_does_not_end_a_relay() {
    let Ok(icmp) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
        eprintln!("SKIP: raw sockets need root");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let relay = start(&config(dir.path(), server.local_addr().unwrap(), 21_800));
    let exchange = |seq| {
        client.send_to(&update(seq), relay.address).unwrap();
        // What nobody confirms is sent again, so that earlier ones may come, too.
        let mut received = std::iter::repeat_with(|| receive(&server));
        let (_, from) = received.find(|(bytes, _)| *bytes == update(seq)).unwrap();
        receive(&client);
        from.port()
    };
    let to = server.local_addr().unwrap().port();
    let from = exchange(1);
    // Protocol unreachable, fragmentation needed, prohibited for the host, and by administration.
    for (seq, code) in (2..).zip([2, 4, 10, 13]) {
        let this_machine = SocketAddr::from(([127, 0, 0, 1], 0));
        icmp.send_to(&unreachable(code, (from, to)), &this_machine.into()).unwrap();
        assert_eq!(exchange(seq), from);
    }
}

#[test]
fn a_restarted_relay_sends_what_was_not_confirmed_from_the_same_port() {
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let config = config(dir.path(), server.local_addr().unwrap(), 21_100);
    let relay = start(&config);
    let mut port = None;
    for seq in 1..=20 {
        client.send_to(&update(seq), relay.address).unwrap();
        port = Some(receive(&server).1);
        let (bytes, _) = receive(&client);
        assert_eq!(Packet::parse(&bytes).unwrap().header.seq, seq);
    }
    drop(relay);
    // Packets that the first relay has sent again are discarded.
    server.set_nonblocking(true).unwrap();
    while server.recv(&mut [0; 100]).is_ok() {}
    server.set_nonblocking(false).unwrap();
    let relay = start(&config);
    let mut missing: BTreeSet<u32> = (1..=20).collect();
    while !missing.is_empty() {
        let (bytes, from) = receive(&server);
        let seq = Packet::parse(&bytes).unwrap().header.seq;
        assert_eq!((bytes, Some(from)), (update(seq), port));
        missing.remove(&seq);
    }
    server.send_to(&Packet::new(7, 20, Body::ServerAck).to_bytes(), port.unwrap()).unwrap();
    eventually("an empty log", || relay.metric("log_entries") == 0);
}

#[test]
fn updates_that_the_server_misses_come_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let relay = start(&config(dir.path(), server.local_addr().unwrap(), 21_200));
    client.send_to(&update(1), relay.address).unwrap();
    let (_, from) = receive(&server);
    receive(&client);
    let ask = |seq| Packet::new(7, seq, Body::Retransmit { count: 1 }).to_bytes();
    server.send_to(&ask(1), from).unwrap();
    assert_eq!(receive(&server).0, update(1));
    // The relay forwards the request to the client if the update is not in its log.
    server.send_to(&ask(2), from).unwrap();
    assert_eq!(receive(&client).0, ask(2));
}

#[test]
fn long_and_foreign_packets_are_forwarded_both_ways_and_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let relay = start(&config(dir.path(), server.local_addr().unwrap(), 21_300));
    let long = Packet::new(7, 1, Body::Update(&[b'x'; 9000])).to_bytes();
    for bytes in [long, b"not PMNet".to_vec(), vec![]] {
        client.send_to(&bytes, relay.address).unwrap();
        let (got, from) = receive(&server);
        assert_eq!(got, bytes);
        server.send_to(&bytes, from).unwrap();
        assert_eq!(receive(&client).0, bytes);
    }
    eventually("nothing logged", || relay.metric("packets_total") >= 5 && relay.metric("logged_total") == 0);
}

/// Begins a session and ends it. Returns the client's port; `None` if it gets no answer.
fn short_session(relay: SocketAddr, server: &UdpSocket) -> Option<u16> {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (first_update, first_bypass) = (1, FIRST_BYPASS);
    let started = Body::SessionStarted { nonce: 1, first_update, first_bypass, incarnation: 1, lease: 0 };
    for (ask, answer) in [
        (Body::SessionStart { nonce: 1, asks: Start::Plain }, started),
        (Body::SessionEnd, Body::SessionEnded),
    ] {
        client.send_to(&Packet::new(7, 0, ask).to_bytes(), relay).unwrap();
        let (_, from) = server.recv_from(&mut [0; 100]).ok()?;
        server.send_to(&Packet::new(7, 0, answer).to_bytes(), from).unwrap();
        client.recv(&mut [0; 100]).ok()?;
    }
    Some(client.local_addr().unwrap().port())
}

#[test]
fn ports_of_sessions_that_have_ended_are_reused() {
    let dir = tempfile::tempdir().unwrap();
    let server = host();
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut config = config(dir.path(), server.local_addr().unwrap(), 21_400);
    config.paths.linger = Duration::from_millis(1);
    let relay = start(&config);
    // There are 21 ports. Who comes with an address that has one still gets that.
    let mut clients = BTreeSet::new();
    for number in 0..200 {
        let begun = Instant::now();
        let client = loop {
            if let Some(client) = short_session(relay.address, &server) {
                break client;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "client {number} gets no port");
        };
        clients.insert(client);
    }
    eventually("all ports are released", || relay.metric("paths") == 0);
    assert!(clients.len() > 100 && relay.metric("paths_closed_total") >= clients.len() as u64);
    drop(relay);
    start(&config);
}

/// The server would not know the session under another port, and what a device has acknowledged would be gone.
#[test]
fn an_update_of_a_session_that_the_relay_has_forgotten_is_refused_and_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let mut config = config(dir.path(), server.local_addr().unwrap(), 23_900);
    (config.paths.idle, config.paths.linger) = (Duration::from_secs(1), Duration::from_millis(100));
    let relay = start(&config);
    let begin = |relay: &Running, session: u16| {
        let (first_update, first_bypass) = (1, FIRST_BYPASS);
        let started = Body::SessionStarted { nonce: 1, first_update, first_bypass, incarnation: 1, lease: 0 };
        let start = Body::SessionStart { nonce: 1, asks: Start::Plain };
        client.send_to(&Packet::new(session, 0, start).to_bytes(), relay.address).unwrap();
        let (_, from) = receive(&server);
        server.send_to(&Packet::new(session, 0, started).to_bytes(), from).unwrap();
        receive(&client);
    };
    let is_refused = |relay: &Running| {
        client.send_to(&update(5), relay.address).unwrap();
        let refusal = Packet::new(7, 5, Body::SessionRefused(Refusal::Unknown)).to_bytes();
        assert_eq!(receive(&client).0, refusal);
    };
    begin(&relay, 7);
    client.send_to(&update(4), relay.address).unwrap();
    let (bytes, from) = receive(&server);
    assert_eq!(
        (bytes, Packet::parse(&receive(&client).0).unwrap().header.kind),
        (update(4), kind::PMNET_ACK)
    );
    server.send_to(&Packet::new(7, 4, Body::ServerAck).to_bytes(), from).unwrap();
    receive(&client);
    eventually("the path of the silent client is closed", || relay.metric("paths_closed_total") == 1);
    is_refused(&relay);
    begin(&relay, 8);
    is_refused(&relay);
    // After a restart nobody knows which sessions have begun on the new path: the server has to say so.
    drop(relay);
    config.paths.idle = Duration::from_secs(60);
    let relay = start(&config);
    let send = |session, seq| {
        let bytes = Packet::new(session, seq, Body::Update(b"x")).to_bytes();
        client.send_to(&bytes, relay.address).unwrap();
        let (received, from) = receive(&server);
        assert_eq!(received, bytes);
        from
    };
    send(7, 5);
    for (seq, first) in [(1, kind::SERVER_ACK), (2, kind::PMNET_ACK)] {
        let from = send(8, seq);
        if first == kind::SERVER_ACK {
            server.send_to(&Packet::new(8, seq, Body::ServerAck).to_bytes(), from).unwrap();
        }
        let header = Packet::parse(&receive(&client).0).unwrap().header;
        assert_eq!((header.session, header.seq, header.kind), (8, seq, first));
    }
}

/// Runs a server that accepts sessions and refuses updates of unknown sessions, until `stop` is set.
fn refuse_unknown_sessions(server: UdpSocket, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut bytes = [0; 100];
        while !stop.load(Ordering::Relaxed) {
            let Ok((len, from)) = server.recv_from(&mut bytes) else { continue };
            let packet = Packet::parse(&bytes[..len]).unwrap();
            let (first_update, first_bypass, incarnation) = (1, FIRST_BYPASS, 1);
            let body = match packet.body {
                Body::SessionStart { nonce, .. } => {
                    Body::SessionStarted { nonce, first_update, first_bypass, incarnation, lease: 0 }
                }
                _ => Body::SessionRefused(Refusal::Unknown),
            };
            let reply = Packet::new(packet.header.session, packet.header.seq, body).to_bytes();
            server.send_to(&reply, from).unwrap();
        }
    })
}

#[test]
fn unknown_sessions_leave_ports_for_new_clients() {
    let dir = tempfile::tempdir().unwrap();
    let server = host();
    let mut config = config(dir.path(), server.local_addr().unwrap(), 23_800);
    config.paths.settle = Duration::from_millis(50);
    let relay = start(&config);
    let stop = Arc::new(AtomicBool::new(false));
    let refusing = refuse_unknown_sessions(server, Arc::clone(&stop));
    // There are ten times as many strangers as ports. Their sockets stay open, so that the kernel does not reuse their
    // ports.
    let strangers: Vec<UdpSocket> = (0..210).map(|_| host()).collect();
    for stranger in &strangers {
        stranger.send_to(&update(5), relay.address).unwrap();
    }
    eventually("junk has arrived", || {
        relay.metric("paths_opened_total") + relay.metric("paths_refused_total") >= 210
    });
    // There are as many clients as ports: the relay closes the paths of the strangers.
    for number in 0..21 {
        let client = host();
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let begun = Instant::now();
        let start = Packet::new(7, 0, Body::SessionStart { nonce: number, asks: Start::Plain }).to_bytes();
        loop {
            client.send_to(&start, relay.address).unwrap();
            if client.recv(&mut [0; 100]).is_ok() {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "client {number} gets no port");
        }
    }
    assert!(relay.metric("paths_gave_way_total") > 0);
    assert_eq!(relay.metric("paths"), 21);
    // A stranger gets no port of a client.
    let before = relay.metric("paths_refused_total");
    host().send_to(&update(5), relay.address).unwrap();
    eventually("junk is refused", || relay.metric("paths_refused_total") == before + 1);
    stop.store(true, Ordering::Relaxed);
    refusing.join().unwrap();
}

#[test]
fn junk_gets_no_port_and_a_packet_of_an_unknown_session_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (client, server) = (host(), host());
    let relay = start(&config(dir.path(), server.local_addr().unwrap(), 21_500));
    let bypass = Packet::new(7, FIRST_BYPASS + 5, Body::Bypass { request: b"read", after: None }).to_bytes();
    for bytes in [b"junk".to_vec(), vec![], Packet::new(7, 1, Body::ServerAck).to_bytes(), bypass] {
        client.send_to(&bytes, relay.address).unwrap();
    }
    assert_eq!(
        receive(&client).0,
        Packet::new(7, FIRST_BYPASS + 5, Body::SessionRefused(Refusal::Unknown)).to_bytes()
    );
    eventually("four strangers", || relay.metric("strangers_total") == 4);
    assert_eq!(relay.metric("paths"), 0);
}

#[test]
fn an_ipv4_client_of_a_relay_for_both_families_keeps_its_port_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let Ok(server) = UdpSocket::bind("[::1]:0") else { return };
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let client = host();
    let mut config = config(dir.path(), server.local_addr().unwrap(), 23_700);
    config.listen = "[::]:0".parse().unwrap();
    let mut ports = BTreeSet::new();
    for seq in 1..=2 {
        let relay = start(&config);
        client.send_to(&update(seq), ("127.0.0.1", relay.address.port())).unwrap();
        let (bytes, _) = receive(&client);
        assert_eq!(Packet::parse(&bytes).unwrap().header.kind, kind::PMNET_ACK, "the client gets an answer");
        // Updates that were logged before the restart come from that port, too.
        let mut arrived = Vec::new();
        while arrived != update(seq) {
            let (bytes, from) = receive(&server);
            ports.insert(from.port());
            arrived = bytes;
        }
    }
    assert_eq!(ports.len(), 1, "{ports:?}");
}
