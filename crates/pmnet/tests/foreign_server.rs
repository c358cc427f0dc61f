//! Tests of a server with sessions of the authors' public release: `docs/format/pmnet.md`, "Foreign clients and
//! servers".

use landfall_pmnet::wire::{Body, Header, Packet, SENT_AGAIN, Start, kind};
use landfall_pmnet::{Instant, Server, ServerConfig, SessionKey, SessionRow, Work};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The session number of all the release's clients.
const SESSION: u16 = 50_000;

/// A packet of the release's clients, with their hash.
fn packet(kind: u8, seq: u32, request: &[u8]) -> Vec<u8> {
    let hash = (seq << 11) % 0x8000_0000 + 0x8000_0000;
    let header = Header { hash, ..Header::new(kind, SESSION, seq) };
    [&header.to_bytes()[..], request].concat()
}

fn client() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 40_000))
}

fn key() -> SessionKey {
    SessionKey { client: client(), session: SESSION }
}

/// A server, its committed rows, and the numbers of the executed requests.
struct Peer {
    server: Server,
    rows: BTreeMap<SessionKey, SessionRow>,
    done: Vec<u32>,
    now: Instant,
}

impl Peer {
    fn with(config: ServerConfig, rows: &[SessionRow]) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let server = Server::new(config, 5, rows.iter().copied(), 0, now);
        Self { server, rows: rows.iter().map(|row| (row.key, *row)).collect(), done: Vec::new(), now }
    }

    fn new() -> Self {
        Self::with(ServerConfig { foreign: true, ..ServerConfig::default() }, &[])
    }

    /// Another incarnation with the committed rows.
    fn restarted(self) -> Self {
        let rows: Vec<SessionRow> = self.rows.values().copied().collect();
        Self {
            done: self.done,
            ..Self::with(ServerConfig { foreign: true, ..ServerConfig::default() }, &rows)
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.server.handle_datagram(client(), bytes, self.now);
    }

    fn update(&mut self, seq: u32) {
        self.receive(&packet(kind::UPDATE, seq, b"set"));
    }

    /// An update that a device sends from its log.
    fn update_again(&mut self, seq: u32) {
        let mut bytes = packet(kind::UPDATE, seq, b"set");
        bytes[1] = SENT_AGAIN;
        self.receive(&bytes);
    }

    fn bypass(&mut self, seq: u32) {
        self.receive(&packet(kind::BYPASS, seq, b"get"));
    }

    fn absent(&mut self, seq: u32) {
        self.receive(&Packet::new(SESSION, seq, Body::Other(b"")).to_bytes());
    }

    /// Executes all work. A bypass changes something if its number is odd.
    fn work(&mut self) {
        while let Some(work) = self.server.poll_work() {
            match work {
                Work::Row { ticket, row, evicted, .. } => {
                    self.rows.retain(|key, _| !evicted.contains(key));
                    self.rows.insert(row.key, row);
                    self.server.committed(ticket, self.now);
                }
                Work::Update { ticket, row, .. } => {
                    self.rows.insert(row.key, row);
                    self.done.push(row.update);
                    self.server.committed(ticket, self.now);
                }
                Work::Bypass { ticket, row, lost, .. } => {
                    assert!(!lost);
                    let changed = row.update % 2 == 1;
                    if changed {
                        self.rows.insert(row.key, row);
                    }
                    self.done.push(row.update);
                    self.server.respond(ticket, b"+OK\r\n", changed, self.now).unwrap();
                }
            }
        }
    }

    /// Type and number of each packet that is sent.
    fn sent(&mut self) -> Vec<(u8, u32)> {
        let read = |(_, bytes): (SocketAddr, Vec<u8>)| {
            let header = Header::parse(&bytes).unwrap();
            (header.kind, header.seq)
        };
        std::iter::from_fn(|| self.server.poll_transmit()).map(read).collect()
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.server.handle_timeout(self.now);
    }
}

const RESPONSE: u8 = kind::RESPONSE;

#[test]
fn updates_and_bypasses_share_one_numbering_from_0_on_and_each_is_answered_by_a_response() {
    let mut peer = Peer::new();
    for seq in 0..6 {
        if seq % 3 == 1 {
            peer.bypass(seq)
        } else {
            peer.update(seq)
        }
        peer.work();
        assert_eq!(peer.sent(), [(RESPONSE, seq)]);
    }
    assert_eq!(peer.done, [0, 1, 2, 3, 4, 5]);
    assert_eq!(peer.rows[&key()].update, 5);
    peer.update(3);
    assert_eq!(peer.sent(), [(RESPONSE, 3)], "confirmed again, and not applied again");
    peer.bypass(4);
    peer.work();
    assert_eq!((peer.sent(), peer.done.len()), (vec![(RESPONSE, 4)], 6), "answered with the stored response");
}

#[test]
fn a_bypass_waits_for_the_previous_update_which_is_requested_by_its_number() {
    let mut peer = Peer::new();
    peer.update(0);
    peer.work();
    peer.sent();
    peer.bypass(3);
    peer.update(4);
    peer.work();
    assert_eq!(peer.done, [0]);
    peer.wait(Duration::from_millis(1));
    let asked: Vec<Vec<u8>> =
        std::iter::from_fn(|| peer.server.poll_transmit()).map(|(_, bytes)| bytes).collect();
    let expected = |seq| Header::new(kind::RECOVER, SESSION, seq).to_bytes().to_vec();
    assert!(asked.starts_with(&[expected(1), expected(2)]), "in the release's form: {asked:?}");
    peer.update_again(2);
    peer.update_again(1);
    peer.work();
    assert_eq!(peer.done, [0, 1, 2, 3, 4]);
    assert_eq!(peer.sent(), [1, 2, 3, 4].map(|seq| (RESPONSE, seq)));
    assert_eq!(peer.server.next_timeout(), None);
}

#[test]
fn only_a_number_that_no_log_has_is_skipped() {
    let mut peer = Peer::new();
    peer.update(0);
    peer.work();
    peer.absent(1);
    peer.update(3);
    peer.absent(2);
    peer.work();
    assert_eq!(peer.done, [0], "nothing was missing yet, and 2 is not the next");
    peer.absent(1);
    peer.work();
    assert_eq!(peer.done, [0]);
    peer.absent(2);
    peer.work();
    assert_eq!(peer.done, [0, 3]);
    peer.absent(4);
    peer.update(4);
    peer.work();
    assert_eq!(peer.done, [0, 3, 4], "a number that is not missing is not skipped");
}

#[test]
fn after_a_restart_no_recover_is_sent_early_and_an_answered_bypass_is_skipped() {
    let mut peer = Peer::new();
    peer.update(0);
    peer.bypass(1);
    peer.bypass(2);
    peer.work();
    let mut peer = peer.restarted();
    assert_eq!((peer.server.next_timeout(), peer.sent()), (None, vec![]));
    peer.update_again(3);
    peer.work();
    assert_eq!(peer.done, [0, 1, 2]);
    peer.wait(Duration::from_millis(1));
    assert_eq!(peer.sent(), [(kind::RECOVER, 2)], "1 had changed something, and is in the row");
    peer.absent(2);
    peer.work();
    assert_eq!(peer.done, [0, 1, 2, 3]);
    peer.update_again(1);
    peer.work();
    assert_eq!(peer.done.len(), 4);
}

#[test]
fn packets_without_a_session_are_neither_accepted_nor_refused() {
    let mut peer = Peer::new();
    peer.update(1);
    peer.update_again(2);
    peer.bypass(7);
    peer.work();
    assert_eq!((peer.done.len(), peer.sent(), peer.server.stats().ignored), (0, vec![], 3));
    let mut closed = Peer::with(ServerConfig::default(), &[]);
    closed.update(0);
    assert_eq!(closed.sent(), [(kind::SESSION_REFUSED, 0)], "if foreign sessions are not accepted");
}

#[test]
fn foreign_and_own_sessions_do_not_interfere() {
    let mut peer = Peer::new();
    peer.server.handle_datagram(client(), &Packet::new(7, 3, Body::Update(b"set")).to_bytes(), peer.now);
    assert_eq!(
        peer.sent(),
        [(kind::SESSION_REFUSED, 3)],
        "a Landfall client is told that its session is not known"
    );
    peer.server.handle_datagram(
        client(),
        &Packet::new(7, 0, Body::SessionStart { nonce: 9, asks: Start::Plain }).to_bytes(),
        peer.now,
    );
    peer.work();
    assert_eq!(peer.sent(), [(kind::SESSION_STARTED, 0)]);
    peer.server.handle_datagram(client(), &Packet::new(7, 1, Body::Update(b"set")).to_bytes(), peer.now);
    peer.update(0);
    peer.work();
    assert_eq!(peer.sent(), [(RESPONSE, 0), (kind::SERVER_ACK, 1)]);
    peer.server.handle_datagram(
        client(),
        &Packet::new(7, 1, Body::SessionStart { nonce: 0, asks: Start::Plain }).to_bytes(),
        peer.now,
    );
    assert_eq!(peer.sent(), [], "without a nonce it would count as a foreign one");
}

#[test]
fn a_first_packet_begins_a_new_session_if_a_client_sends_it_but_not_from_a_log() {
    let mut peer = Peer::new();
    (0..4).for_each(|seq| peer.update(seq));
    peer.work();
    peer.sent();
    peer.update(0);
    assert_eq!(peer.sent(), [(RESPONSE, 0)], "a copy from the network");
    peer.wait(Duration::from_secs(10));
    peer.update_again(0);
    peer.work();
    assert_eq!((peer.sent(), peer.done.len()), (vec![(RESPONSE, 0)], 4), "a device sends it from its log");
    peer.update(0);
    peer.work();
    assert_eq!((peer.sent(), peer.done.len(), peer.rows[&key()].update), (vec![(RESPONSE, 0)], 5, 0));
    peer.bypass(1);
    peer.work();
    assert_eq!(peer.done, [0, 1, 2, 3, 0, 1]);
}

#[test]
fn silent_sessions_are_evicted_after_an_hour_and_not_before() {
    let config = ServerConfig { foreign: true, sessions_max: 2, ..ServerConfig::default() };
    let mut peer = Peer::with(config, &[]);
    let first = |port: u16| (SocketAddr::from(([10, 0, 0, 2], port)), packet(kind::UPDATE, 0, b"set"));
    let begin = |peer: &mut Peer, port| {
        let (from, bytes) = first(port);
        peer.server.handle_datagram(from, &bytes, peer.now);
        peer.work();
        peer.rows.len()
    };
    assert_eq!([begin(&mut peer, 1), begin(&mut peer, 2), begin(&mut peer, 3)], [1, 2, 2]);
    assert_eq!((peer.done.len(), peer.server.stats().early_dropped), (2, 1));
    peer.wait(Duration::from_secs(3599));
    begin(&mut peer, 2);
    peer.wait(Duration::from_secs(1));
    assert_eq!(begin(&mut peer, 3), 2);
    let ports: Vec<u16> = peer.rows.keys().map(|key| key.client.port()).collect();
    assert_eq!(ports, [2, 3], "the session silent for the longest time is evicted");
}

#[test]
fn a_response_longer_than_a_packet_is_rejected() {
    let mut peer = Peer::new();
    peer.bypass(0);
    let mut tickets = Vec::new();
    while let Some(work) = peer.server.poll_work() {
        match work {
            Work::Row { ticket, .. } => peer.server.committed(ticket, peer.now),
            other => tickets.push(other.ticket()),
        }
    }
    assert!(peer.server.respond(tickets[0], vec![b'x'; (32 << 10) + 1], false, peer.now).is_err());
    peer.server.respond(tickets[0], vec![b'x'; 32 << 10], false, peer.now).unwrap();
    let (_, bytes) = peer.server.poll_transmit().unwrap();
    assert_eq!(Packet::parse(&bytes).unwrap().body, Body::Response(&vec![b'x'; 32 << 10]));
    assert_eq!(peer.server.poll_transmit(), None);
}

#[test]
fn failed_work_is_handed_out_again_without_another_request() {
    let mut peer = Peer::new();
    peer.update(0);
    peer.update(1);
    peer.bypass(2);
    let mut work: Vec<Work> = std::iter::from_fn(|| peer.server.poll_work()).collect();
    assert_eq!(work.len(), 4, "the row, and three requests");
    peer.server.failed(work.remove(0).ticket());
    peer.update(3);
    assert_eq!(peer.server.poll_work(), None, "the outcome of the others is not known");
    work.iter().for_each(|work| peer.server.failed(work.ticket()));
    assert_eq!(peer.server.poll_work(), None, "not before the pause");
    peer.wait(ServerConfig::default().retry_after);
    peer.work();
    assert_eq!(peer.done, [0, 1, 2, 3]);
    assert_eq!(peer.sent(), [0, 1, 2, 3].map(|seq| (RESPONSE, seq)), "no packet was requested");
    peer.update(4);
    let work = peer.server.poll_work().unwrap();
    peer.server.failed(work.ticket());
    peer.wait(ServerConfig::default().retry_after);
    peer.work();
    assert_eq!(peer.done, [0, 1, 2, 3, 4]);
}

#[test]
fn a_request_without_room_is_not_requested_while_its_client_awaits_the_answer() {
    // Room for one request.
    let config = ServerConfig { foreign: true, buffered_bytes_max: 3, ..ServerConfig::default() };
    let mut peer = Peer::with(config, &[]);
    peer.update(0);
    peer.update(1);
    peer.work();
    assert_eq!((peer.sent(), peer.server.stats().early_dropped), (vec![(RESPONSE, 0)], 1));
    (0..1000).for_each(|_| peer.wait(Duration::from_millis(1)));
    assert_eq!(peer.sent(), []);
    peer.absent(1);
    peer.update_again(1);
    peer.work();
    assert_eq!(peer.done, [0, 1], "it is not skipped");
}
