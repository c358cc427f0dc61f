//! Tests of silent sessions and of the client's lease, packet by packet: `docs/format/pmnet.md`, "Sessions that fall
//! silent".

use landfall_pmnet::client::{CompletedBy, Event};
use landfall_pmnet::server::{Silence, Trouble};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet, RESUMED, Refusal, Role, Start};
use landfall_pmnet::{Client, ClientConfig, Instant, Server, ServerConfig, SessionKey, SessionRow, Work};
use std::net::SocketAddr;
use std::time::Duration;

const SESSION: u16 = 7;
const NONCE: u64 = 99;
/// Time until a session counts as silent. The lease is 2 s.
const AFTER: Duration = Duration::from_secs(8);

fn client() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 40_000))
}

fn key(session: u16) -> SessionKey {
    SessionKey { client: client(), session }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn started(lease: u16) -> Body<'static> {
    Body::SessionStarted { nonce: NONCE, first_update: 1, first_bypass: FIRST_BYPASS, incarnation: 5, lease }
}

fn config(devices: u8) -> ServerConfig {
    ServerConfig { silence: Some(Silence { devices, after: AFTER }), ..ServerConfig::default() }
}

/// A server and the time.
struct Host {
    server: Server,
    now: Instant,
}

impl Host {
    fn new(config: ServerConfig, rows: &[SessionRow]) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { server: Server::new(config, 5, rows.iter().copied(), 0, now), now }
    }

    /// A server with a session whose update 1 is applied.
    fn with_a_session(config: ServerConfig, asks: Start) -> Self {
        let mut host = Self::new(config, &[]);
        host.receive(0, Body::SessionStart { nonce: NONCE, asks });
        host.commit();
        host.receive(1, Body::Update(b"set"));
        host.commit();
        host.sent();
        host
    }

    fn receive(&mut self, seq: u32, body: Body<'_>) {
        self.server.handle_datagram(client(), &Packet::new(SESSION, seq, body).to_bytes(), self.now);
    }

    fn held(&mut self, nonce: u64, number: u8, count: u32) {
        self.receive(1, Body::Held { nonce, number, count });
    }

    fn commit(&mut self) -> Option<Work> {
        let work = self.server.poll_work()?;
        self.server.committed(work.ticket(), self.now);
        Some(work)
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.server.handle_timeout(self.now);
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.server.poll_transmit()).map(|(_, bytes)| bytes).collect()
    }

    /// The nonce of the only packet that is sent: a held request for updates above 1.
    fn asks(&mut self) -> u64 {
        let sent = self.sent();
        assert_eq!(sent.len(), 1);
        let packet = Packet::parse(&sent[0]).unwrap();
        assert_eq!((packet.header.session, packet.header.seq), (SESSION, 1));
        let Body::HeldRequest { nonce } = packet.body else { panic!("{packet:?}") };
        nonce
    }

    fn says(&mut self) -> Vec<Body<'static>> {
        let kinds = |bytes: Vec<u8>| match Packet::parse(&bytes).unwrap().body {
            Body::SessionStarted { nonce, first_update, first_bypass, incarnation, lease } => {
                Body::SessionStarted { nonce, first_update, first_bypass, incarnation, lease }
            }
            Body::SessionRefused(refusal) => Body::SessionRefused(refusal),
            Body::ServerAck => Body::ServerAck,
            Body::SessionEnded => Body::SessionEnded,
            Body::Recover { incarnation } => Body::Recover { incarnation },
            other => panic!("{other:?}"),
        };
        self.sent().into_iter().map(kinds).collect()
    }
}

#[test]
fn a_silent_session_ends_when_every_device_has_reported_that_it_holds_no_updates() {
    let mut host = Host::with_a_session(config(2), Start::Leased);
    host.wait(AFTER - millis(1));
    assert!(host.sent().is_empty());
    host.wait(millis(1));
    let nonce = host.asks();
    host.held(nonce, 0, 0);
    host.held(nonce, 0, 0);
    host.held(nonce, 1, 3);
    host.held(nonce + 1, 1, 0);
    assert_eq!(host.commit(), None, "one device holds updates");
    host.wait(Duration::from_secs(1));
    assert_eq!(host.asks(), nonce, "the devices are asked again");
    host.held(nonce, 1, 0);
    let Some(Work::Row { row, evicted, .. }) = host.commit() else { panic!("the row is written") };
    assert_eq!((row.key, row.update, row.ended, evicted), (key(SESSION), 1, true, vec![]));
    assert_eq!(host.says(), [Body::ServerAck, Body::SessionEnded]);
    assert_eq!(host.server.poll_trouble(), Some(Trouble::Silent { key: key(SESSION), applied: 1 }));
    let stats = host.server.stats();
    assert_eq!((stats.ended_by_silence, stats.held_requests, stats.held_by_devices), (1, 2, 1));
    // A late copy of an applied update is acknowledged. An update that was not applied is refused.
    host.receive(1, Body::Update(b"set"));
    host.receive(2, Body::Update(b"set"));
    assert_eq!(host.says(), [Body::ServerAck, Body::SessionRefused(Refusal::Unknown)]);
}

#[test]
fn any_packet_of_a_session_ends_the_query() {
    let mut host = Host::with_a_session(config(1), Start::Leased);
    host.wait(AFTER);
    let nonce = host.asks();
    // A device sends an update that the server has not applied.
    host.receive(2, Body::Update(b"set"));
    assert!(matches!(host.commit(), Some(Work::Update { .. })));
    host.sent();
    host.held(nonce, 0, 0);
    assert_eq!(host.commit(), None, "earlier reports no longer count");
    host.wait(AFTER - millis(1));
    assert!(host.sent().is_empty());
    host.wait(millis(1));
    assert_eq!(host.sent().len(), 1);
}

#[test]
fn heartbeats_of_the_client_end_a_silence_and_those_of_devices_do_not() {
    let mut host = Host::with_a_session(config(1), Start::Leased);
    for (role, asked) in [(Role::Client, 0), (Role::Device, 1)] {
        host.wait(AFTER / 2);
        host.receive(0, Body::Heartbeat { nonce: 1, role, number: 0 });
        host.sent();
        host.wait(AFTER / 2);
        assert_eq!(host.sent().len(), asked, "{role:?}");
    }
}

#[test]
fn a_session_start_of_another_client_with_this_number_does_not_end_a_silence() {
    let mut host = Host::with_a_session(config(1), Start::Leased);
    for (nonce, asked) in [(NONCE, 0), (NONCE + 1, 1)] {
        host.wait(AFTER / 2);
        host.receive(0, Body::SessionStart { nonce, asks: Start::Leased });
        host.sent();
        host.wait(AFTER / 2);
        assert_eq!(host.sent().len(), asked, "{nonce}");
    }
}

#[test]
fn a_session_without_a_lease_is_never_ended() {
    let mut host = Host::with_a_session(config(1), Start::Plain);
    host.wait(AFTER * 1000);
    assert!(host.sent().is_empty());
    // No session is ended if the server is not told the number of devices.
    let mut host = Host::with_a_session(ServerConfig::default(), Start::Leased);
    host.wait(AFTER * 1000);
    assert!(host.sent().is_empty());
}

#[test]
fn another_incarnation_keeps_the_announced_lease() {
    let row = SessionRow {
        key: key(SESSION),
        nonce: NONCE,
        update: 1,
        bypass: FIRST_BYPASS - 1,
        ended: false,
        touched: 0,
        lease: 10,
    };
    let quiet = ServerConfig { recover_after: Duration::from_secs(3600), ..config(1) };
    let mut host = Host::new(quiet, &[row]);
    host.wait(Duration::ZERO);
    host.sent();
    host.wait(Duration::from_secs(20) - millis(1));
    assert!(host.sent().is_empty());
    host.wait(millis(1));
    assert_eq!(host.sent().len(), 1);
}

#[test]
fn without_room_half_of_the_silence_is_enough() {
    let mut host = Host::with_a_session(ServerConfig { sessions_max: 1, ..config(1) }, Start::Leased);
    let other = Packet::new(8, 0, Body::SessionStart { nonce: 1, asks: Start::Leased }).to_bytes();
    let no_room = |host: &mut Host| {
        host.server.handle_datagram(client(), &other, host.now);
        let sent = host.sent();
        assert_eq!(Packet::parse(&sent[0]).unwrap().body, Body::SessionRefused(Refusal::NoRoom));
        sent.len()
    };
    host.wait(AFTER / 2 - millis(1));
    assert_eq!(no_room(&mut host), 1);
    host.wait(Duration::from_secs(1));
    host.server.handle_datagram(client(), &other, host.now);
    let sent = host.sent();
    let Body::HeldRequest { nonce } = Packet::parse(&sent[0]).unwrap().body else { panic!("{sent:?}") };
    host.held(nonce, 0, 0);
    assert!(host.commit().is_some());
    host.sent();
    // Its row is evicted for the other session.
    host.server.handle_datagram(client(), &other, host.now);
    let Some(Work::Row { row, evicted, floor, .. }) = host.commit() else { panic!("a row") };
    assert_eq!((row.key, evicted, floor), (key(8), vec![key(SESSION)], 1));
    let troubles: Vec<Trouble> = std::iter::from_fn(|| host.server.poll_trouble()).collect();
    assert_eq!(troubles.len(), 2, "the lack of room is reported once a minute: {troubles:?}");
    assert_eq!(host.server.stats().no_room, 2);
}

#[test]
fn a_session_is_resumed_only_for_its_own_client_and_resuming_never_begins_one() {
    let mut host = Host::with_a_session(config(1), Start::Leased);
    let resume = |host: &mut Host, nonce| host.receive(0, Body::SessionStart { nonce, asks: Start::Resumes });
    resume(&mut host, NONCE);
    let Body::SessionStarted { first_update, lease, .. } = host.says()[0] else {
        panic!("the session continues")
    };
    assert_eq!((first_update, lease), (2, 2));
    resume(&mut host, NONCE + 1);
    assert_eq!(host.says(), [Body::SessionRefused(Refusal::Unknown)]);
    host.wait(AFTER);
    let nonce = host.asks();
    host.held(nonce, 0, 0);
    let work = host.server.poll_work().expect("the session is being ended");
    resume(&mut host, NONCE);
    assert_eq!(host.says(), [], "the outcome is not known yet");
    host.server.committed(work.ticket(), host.now);
    host.sent();
    resume(&mut host, NONCE);
    assert_eq!(host.says(), [Body::SessionRefused(Refusal::Unknown)]);
    let mut empty = Host::new(config(1), &[]);
    resume(&mut empty, NONCE);
    assert_eq!(empty.says(), [Body::SessionRefused(Refusal::Unknown)]);
    assert_eq!(empty.commit(), None);
}

#[test]
fn a_failed_end_leaves_the_session_unchanged() {
    let mut host = Host::with_a_session(config(0), Start::Leased);
    host.wait(AFTER);
    let work = host.server.poll_work().expect("there is no device to ask");
    host.server.failed(work.ticket());
    host.receive(2, Body::Update(b"set"));
    assert!(matches!(host.commit(), Some(Work::Update { .. })));
    assert_eq!(host.server.stats().ended_by_silence, 0);
}

// ---- the client ----

/// A client of a chain of one device whose session has a lease of 4 s.
struct Peer {
    client: Client,
    now: Instant,
}

impl Peer {
    fn new() -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let config = ClientConfig { devices: 1, ..ClientConfig::default() };
        let mut peer = Self { client: Client::new(config, SESSION, NONCE, now), now };
        assert_eq!(peer.sent(), [Body::SessionStart { nonce: NONCE, asks: Start::Leased }]);
        peer.receive(0, started(4));
        assert_eq!(peer.events(), [Event::Started]);
        peer
    }

    fn receive(&mut self, seq: u32, body: Body<'_>) {
        self.client.handle_datagram(&Packet::new(SESSION, seq, body).to_bytes(), self.now);
    }

    fn device_acks(&mut self, seq: u32) {
        self.receive(seq, Body::PmnetAck);
    }

    fn update(&mut self) {
        self.client.update(b"set", self.now).unwrap();
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.client.handle_timeout(self.now);
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    fn complete(&mut self) -> usize {
        self.events().into_iter().filter(|event| matches!(event, Event::Complete { .. })).count()
    }

    fn sent(&mut self) -> Vec<Body<'static>> {
        let read = |bytes: Vec<u8>| match Packet::parse(&bytes).unwrap().body {
            Body::SessionStart { nonce, asks } => Body::SessionStart { nonce, asks },
            Body::Heartbeat { nonce, role, number } => Body::Heartbeat { nonce, role, number },
            Body::Confirmed => Body::Confirmed,
            Body::Update(_) => Body::Update(b""),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| self.client.poll_transmit()).map(read).collect()
    }

    /// The nonce of the heartbeat that is sent.
    fn asks(&mut self) -> u64 {
        match self.sent()[..] {
            [Body::Heartbeat { nonce, role: Role::Client, .. }] => nonce,
            ref sent => panic!("{sent:?}"),
        }
    }

    fn reply(&mut self, nonce: u64, role: Role) {
        self.receive(0, Body::HeartbeatReply { nonce, role, number: 0, declines: false, incarnation: 5 });
    }
}

#[test]
fn a_client_with_an_expired_lease_ignores_acknowledgements_until_its_session_is_resumed() {
    let mut peer = Peer::new();
    peer.update();
    peer.update();
    peer.sent();
    peer.wait(millis(3999));
    peer.device_acks(1);
    assert_eq!(peer.complete(), 1);
    peer.wait(millis(1));
    peer.device_acks(2);
    peer.receive(2, Body::ServerAck);
    assert_eq!(peer.complete(), 0);
    assert_eq!(peer.sent(), [Body::SessionStart { nonce: NONCE, asks: Start::Resumes }]);
    assert_eq!(peer.sent(), [], "nothing else is sent");
    assert!(peer.client.next_timeout().unwrap() > peer.now, "it waits in between");
    peer.receive(0, started(4));
    assert_eq!(peer.sent(), [], "it is an old answer to the first session start");
    peer.receive(RESUMED, started(4));
    assert!(peer.sent().contains(&Body::Update(b"")), "incomplete updates are sent again");
    peer.device_acks(2);
    let by = CompletedBy::Devices;
    assert!(
        peer.events().iter().any(|event| matches!(event, Event::Complete { by: known, .. } if *known == by))
    );
    assert_eq!(peer.client.stats().lapses, 1);
}

#[test]
fn a_client_whose_session_was_ended_is_told() {
    let mut peer = Peer::new();
    peer.update();
    peer.sent();
    peer.wait(Duration::from_secs(5));
    peer.sent();
    peer.receive(0, Body::SessionRefused(Refusal::Unknown));
    assert_eq!(peer.events(), [Event::Refused(Refusal::Unknown)]);
}

#[test]
fn a_lease_begins_when_the_packet_was_sent_that_the_server_has_answered() {
    let mut peer = Peer::new();
    peer.wait(millis(1000));
    let nonce = peer.asks();
    peer.wait(millis(250));
    assert_eq!(peer.asks(), nonce, "the heartbeat is sent again");
    peer.reply(nonce, Role::Device);
    peer.wait(millis(1000));
    peer.sent();
    peer.reply(nonce, Role::Server);
    // The lease begins at 1 s, although the reply arrived at 2.25 s.
    peer.update();
    peer.sent();
    peer.wait(millis(2749));
    peer.device_acks(1);
    assert_eq!(peer.complete(), 1);
    peer.update();
    peer.sent();
    peer.wait(millis(1));
    peer.device_acks(2);
    assert_eq!(peer.complete(), 0);
}

#[test]
fn an_idle_client_keeps_its_lease_with_a_heartbeat_each_quarter_of_it() {
    let mut peer = Peer::new();
    for _ in 0..50 {
        assert_eq!(peer.client.next_timeout(), Some(peer.now + millis(1000)));
        peer.wait(millis(1000));
        let nonce = peer.asks();
        peer.reply(nonce, Role::Server);
        assert_eq!(peer.events(), [], "replies for the lease are not reported to the application");
    }
    assert_eq!(peer.client.stats().lapses, 0);
}

#[test]
fn a_live_client_answers_a_held_request() {
    let mut peer = Peer::new();
    peer.receive(0, Body::HeldRequest { nonce: 3 });
    assert_eq!(peer.sent(), [Body::Confirmed]);
}

#[test]
fn a_session_without_a_lease_never_expires() {
    let mut peer = Peer::new();
    peer.wait(Duration::from_secs(5));
    peer.sent();
    peer.receive(RESUMED, started(0));
    peer.update();
    peer.sent();
    peer.wait(Duration::from_secs(20));
    peer.device_acks(1);
    assert_eq!(peer.complete(), 1);
}
