//! Tests of the rules in `docs/format/pmnet.md`, "The server", packet by packet.

use landfall_pmnet::server::{ResponseTooLong, Trouble};
use landfall_pmnet::wire::{
    Body, FIRST_BYPASS, Fragment, Packet, RESPONSE_WINDOW, Refusal, Role, Start, Wanted, kind,
};
use landfall_pmnet::{Instant, Server, ServerConfig, SessionKey, SessionRow, Ticket, Work};
use std::net::SocketAddr;
use std::time::Duration;

const SESSION: u16 = 7;
const NONCE: u64 = 99;

/// A server and the time.
struct Peer {
    server: Server,
    now: Instant,
}

fn client() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 40_000))
}

fn key(session: u16) -> SessionKey {
    SessionKey { client: client(), session }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The row of an open session.
fn row(update: u32, bypass: u32) -> SessionRow {
    SessionRow { key: key(SESSION), nonce: NONCE, update, bypass, ended: false, touched: 0, lease: 0 }
}

fn ended(session: u16, update: u32) -> SessionRow {
    let bypass = FIRST_BYPASS - 1;
    SessionRow {
        key: key(session),
        nonce: 1,
        update,
        bypass,
        ended: true,
        touched: u64::from(session),
        lease: 0,
    }
}

impl Peer {
    fn with_rows(config: ServerConfig, rows: &[SessionRow], floor: u32) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { server: Server::new(config, 5, rows.iter().copied(), floor, now), now }
    }

    /// A server with a session that begins with update 1.
    fn started() -> Self {
        let mut peer = Self::with_rows(ServerConfig::default(), &[], 0);
        peer.receive(0, Body::SessionStart { nonce: NONCE, asks: Start::Plain });
        let work = peer.work();
        peer.server.committed(work.ticket(), peer.now);
        peer.sent();
        peer
    }

    fn receive_in(&mut self, session: u16, seq: u32, body: Body<'_>) {
        self.server.handle_datagram(client(), &Packet::new(session, seq, body).to_bytes(), self.now);
    }

    fn receive(&mut self, seq: u32, body: Body<'_>) {
        self.receive_in(SESSION, seq, body);
    }

    fn update(&mut self, seq: u32) {
        self.receive(seq, Body::Update(&seq.to_le_bytes()));
    }

    /// Type and number of each packet that is sent.
    fn sent(&mut self) -> Vec<(u8, u32)> {
        let read = |(to, bytes): (SocketAddr, Vec<u8>)| {
            assert_eq!(to, client());
            let header = Packet::parse(&bytes).unwrap().header;
            (header.kind, header.seq)
        };
        std::iter::from_fn(|| self.server.poll_transmit()).map(read).collect()
    }

    fn one_sent(&mut self) -> Vec<u8> {
        let (_, bytes) = self.server.poll_transmit().expect("a packet is sent");
        assert_eq!(self.server.poll_transmit(), None);
        bytes
    }

    fn work(&mut self) -> Work {
        self.server.poll_work().expect("there is work")
    }

    /// The tickets and last numbers of the updates that the server hands out.
    fn updates(&mut self) -> Vec<(Ticket, u32)> {
        let mut updates = Vec::new();
        while let Some(work) = self.server.poll_work() {
            let Work::Update { ticket, row, .. } = work else { panic!("{work:?} is no update") };
            updates.push((ticket, row.update));
        }
        updates
    }

    /// The ticket of a bypass that the server hands out.
    fn bypass(&mut self, number: u32) -> Ticket {
        self.receive(FIRST_BYPASS + number, Body::Bypass { after: None, request: b"get" });
        self.work().ticket()
    }

    fn commit(&mut self, ticket: Ticket) {
        self.server.committed(ticket, self.now);
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.server.handle_timeout(self.now);
    }
}

fn numbers(updates: &[(Ticket, u32)]) -> Vec<u32> {
    updates.iter().map(|(_, last)| *last).collect()
}

#[test]
fn a_session_starts_once_its_row_is_committed() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[], 40);
    peer.receive(0, Body::SessionStart { nonce: NONCE, asks: Start::Plain });
    peer.receive(0, Body::SessionStart { nonce: NONCE, asks: Start::Plain });
    let work = peer.work();
    let expected = row(40, FIRST_BYPASS - 1 + 40);
    assert_eq!(work, Work::Row { ticket: work.ticket(), row: expected, evicted: vec![], floor: 40 });
    assert_eq!((peer.server.poll_work(), peer.sent()), (None, vec![]));
    peer.commit(work.ticket());
    for _ in 0..2 {
        let bytes = peer.one_sent();
        let body = Packet::parse(&bytes).unwrap().body;
        let first_bypass = FIRST_BYPASS + 40;
        assert_eq!(
            body,
            Body::SessionStarted { nonce: NONCE, first_update: 41, first_bypass, incarnation: 5, lease: 0 }
        );
        peer.receive(0, Body::SessionStart { nonce: NONCE, asks: Start::Plain });
    }
}

#[test]
fn the_last_number_of_all_is_no_bypass_and_a_session_that_has_it_begins_no_further() {
    let mut peer = Peer::started();
    peer.receive(u32::MAX, Body::Bypass { after: None, request: b"set" });
    assert!(peer.server.poll_work().is_none(), "it is ignored");
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(3, u32::MAX)], 0);
    peer.receive(0, Body::SessionStart { nonce: NONCE, asks: Start::Plain });
    let bytes = peer.one_sent();
    let body = Packet::parse(&bytes).unwrap().body;
    assert!(matches!(body, Body::SessionStarted { first_bypass: u32::MAX, .. }), "{body:?}");
}

#[test]
fn a_number_that_is_or_was_in_use_is_refused() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(3, FIRST_BYPASS), ended(8, 4)], 0);
    for (session, nonce) in [(SESSION, NONCE + 1), (8, ended(8, 4).nonce)] {
        peer.receive_in(session, 0, Body::SessionStart { nonce, asks: Start::Plain });
        let bytes = peer.one_sent();
        assert_eq!(Packet::parse(&bytes).unwrap().body, Body::SessionRefused(Refusal::InUse), "{session}");
    }
}

#[test]
fn the_number_of_an_ended_session_is_reused_with_higher_sequence_numbers() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[ended(8, 4)], 0);
    peer.receive_in(8, 0, Body::SessionStart { nonce: 77, asks: Start::Plain });
    let Work::Row { ticket, row, evicted, floor } = peer.work() else { panic!("a row") };
    assert_eq!((row.key, row.nonce, row.update, row.ended), (key(8), 77, 5, false));
    assert_eq!((evicted, floor), (vec![], 5), "the old row is replaced");
    peer.commit(ticket);
    peer.sent();
    // Late packets of the old session.
    peer.receive_in(8, 4, Body::SessionEnd);
    peer.receive_in(8, FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    assert_eq!((peer.server.poll_work(), peer.sent()), (None, vec![]));
}

#[test]
fn a_failed_start_with_a_reused_number_keeps_the_old_row() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[ended(8, 4)], 0);
    peer.receive_in(8, 0, Body::SessionStart { nonce: 77, asks: Start::Plain });
    let work = peer.work();
    peer.server.failed(work.ticket());
    peer.receive_in(8, 4, Body::Update(b"set"));
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 4)]);
}

/// One client with one address has three times as many sessions as there are numbers.
#[test]
fn a_client_can_begin_and_end_sessions_without_limit() {
    let mut peer = Peer::with_rows(ServerConfig { sessions_max: 70_000, ..ServerConfig::default() }, &[], 0);
    for session in (0..=u16::MAX).cycle().take(3 << 16) {
        peer.receive_in(
            session,
            0,
            Body::SessionStart { nonce: peer.server.stats().server_acks + 9, asks: Start::Plain },
        );
        let Work::Row { ticket, row, .. } = peer.work() else { panic!("{session} is refused") };
        peer.commit(ticket);
        peer.receive_in(session, row.update, Body::SessionEnd);
        let work = peer.work();
        peer.commit(work.ticket());
        peer.sent();
    }
    let stats = peer.server.stats();
    assert_eq!((stats.refused, stats.sessions), (0, 1 << 16));
}

#[test]
fn updates_are_handed_out_in_order_and_once() {
    let mut peer = Peer::started();
    peer.update(2);
    peer.update(3);
    peer.update(3);
    assert_eq!(peer.server.poll_work(), None);
    peer.update(1);
    peer.update(2);
    let updates = peer.updates();
    assert_eq!(numbers(&updates), [1, 2, 3]);
    assert_eq!((peer.sent(), peer.server.stats().duplicates), (vec![], 2));
}

#[test]
fn one_server_ack_covers_all_updates_that_are_committed_without_a_gap() {
    let mut peer = Peer::started();
    (1..=5).for_each(|seq| peer.update(seq));
    let updates = peer.updates();
    [1, 2, 3].into_iter().for_each(|at: usize| peer.commit(updates[at].0));
    assert_eq!(peer.sent(), [], "the first one is not committed");
    peer.commit(updates[0].0);
    peer.commit(updates[0].0);
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 4)]);
    peer.commit(updates[4].0);
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 5)]);
}

#[test]
fn an_applied_update_that_arrives_again_is_acknowledged_again() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(9, FIRST_BYPASS), ended(8, 4)], 3);
    for (session, seq, answer) in [(SESSION, 2, 9), (8, 4, 4), (1, 3, 3)] {
        peer.receive_in(session, seq, Body::Update(b"set"));
        assert_eq!(peer.sent(), [(kind::SERVER_ACK, answer)], "session {session}");
    }
    assert_eq!((peer.server.poll_work(), peer.server.stats().make_up_acks), (None, 3));
}

#[test]
fn updates_of_no_session_are_refused() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[ended(8, 4)], 3);
    for (session, seq) in [(8, 5), (1, 4), (1, 0)] {
        peer.receive_in(session, seq, Body::Update(b"set"));
        assert_eq!(peer.sent(), [(kind::SESSION_REFUSED, seq)], "session {session}");
    }
    peer.receive_in(1, FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    assert_eq!(peer.sent(), [(kind::SESSION_REFUSED, FIRST_BYPASS)]);
    peer.receive_in(8, FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    assert_eq!(peer.sent(), [], "it is late and needs no answer");
}

#[test]
fn missing_updates_are_requested_after_a_short_wait_and_again() {
    let mut peer = Peer::started();
    [2, 3, 6].into_iter().for_each(|seq| peer.update(seq));
    for pause in [1, 2, 4] {
        peer.wait(ms(pause) - Duration::from_nanos(1));
        assert_eq!(peer.sent(), []);
        peer.wait(Duration::from_nanos(1));
        assert_eq!(peer.sent(), [(kind::RETRANSMIT, 1), (kind::RETRANSMIT, 4)]);
    }
    peer.update(1);
    peer.wait(ms(1));
    let bytes = peer.one_sent();
    assert_eq!(Packet::parse(&bytes).unwrap(), Packet::new(SESSION, 4, Body::Retransmit { count: 2 }));
    peer.update(4);
    peer.update(5);
    assert_eq!((peer.server.next_timeout(), numbers(&peer.updates())), (None, vec![1, 2, 3, 4, 5, 6]));
}

#[test]
fn a_request_in_pieces_is_one_piece_of_work_whose_row_covers_all() {
    let mut peer = Peer::started();
    let piece = |index| Fragment { index, count: 3, total: 5 };
    for (seq, index, bytes) in [(3, 2, &b"e"[..]), (1, 0, b"ab"), (2, 1, b"cd")] {
        assert_eq!(peer.server.poll_work(), None);
        peer.receive(seq, Body::UpdateFragment(piece(index), bytes));
    }
    let work = peer.work();
    let expected = row(3, FIRST_BYPASS - 1);
    assert_eq!(work, Work::Update { ticket: work.ticket(), request: b"abcde".to_vec(), row: expected });
    peer.commit(work.ticket());
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 3)]);
}

#[test]
fn updates_too_far_ahead_are_dropped_and_requested_later() {
    let config = ServerConfig { reorder_max: 4, ..ServerConfig::default() };
    let mut peer = Peer::with_rows(config, &[row(0, FIRST_BYPASS - 1)], 0);
    (2..=6).for_each(|seq| peer.update(seq));
    assert_eq!(peer.server.stats().early_dropped, 2);
    peer.update(1);
    let updates = peer.updates();
    assert_eq!(numbers(&updates), [1, 2, 3, 4]);
    peer.update(5);
    assert_eq!(peer.updates(), [], "not before the first ones are committed");
    updates.iter().for_each(|(ticket, _)| peer.commit(*ticket));
    peer.sent();
    peer.wait(ms(1));
    let bytes = peer.one_sent();
    assert_eq!(Packet::parse(&bytes).unwrap(), Packet::new(SESSION, 5, Body::Retransmit { count: 2 }));
}

#[test]
fn without_room_only_the_next_request_is_accepted() {
    let config = ServerConfig { buffered_bytes_max: 10, ..ServerConfig::default() };
    let mut peer = Peer::with_rows(config, &[row(0, FIRST_BYPASS - 1)], 0);
    (2..=5).for_each(|seq| peer.update(seq));
    assert_eq!(peer.server.stats().early_dropped, 2);
    peer.update(1);
    assert_eq!(numbers(&peer.updates()), [1, 2, 3]);
}

#[test]
fn a_bypass_waits_for_the_updates_that_it_names() {
    let mut peer = Peer::started();
    peer.receive(FIRST_BYPASS, Body::Bypass { after: Some(2), request: b"get" });
    peer.update(1);
    assert_eq!(numbers(&peer.updates()), [1]);
    peer.wait(ms(1));
    assert_eq!(peer.sent(), [(kind::RETRANSMIT, 2)], "the bypass shows that there is one");
    peer.update(2);
    assert!(matches!(peer.work(), Work::Update { .. }));
    let work = peer.work();
    let expected = row(2, FIRST_BYPASS);
    let request = b"get".to_vec();
    assert_eq!(work, Work::Bypass { ticket: work.ticket(), request, row: expected, lost: false });
}

#[test]
fn a_response_is_sent_when_all_earlier_work_is_committed_and_is_stored() {
    let mut peer = Peer::started();
    peer.update(1);
    let update = peer.updates()[0].0;
    peer.receive(FIRST_BYPASS, Body::Bypass { after: Some(1), request: b"get" });
    let bypass = peer.work().ticket();
    peer.receive(FIRST_BYPASS, Body::Bypass { after: Some(1), request: b"get" });
    peer.update(2);
    assert_eq!(peer.server.poll_work(), None, "the changes of the bypass are not known yet");
    peer.server.respond(bypass, b"OK", true, peer.now).unwrap();
    assert_eq!(peer.sent(), []);
    peer.commit(update);
    assert_eq!(peer.sent(), [(kind::RESPONSE, FIRST_BYPASS), (kind::SERVER_ACK, 1)]);
    let Work::Update { row: next, .. } = peer.work() else { panic!("no update") };
    assert_eq!(next, row(2, FIRST_BYPASS), "the row contains the last bypass with a change");
    peer.receive(FIRST_BYPASS, Body::Bypass { after: Some(1), request: b"get" });
    let bytes = peer.one_sent();
    assert_eq!(Packet::parse(&bytes).unwrap().body, Body::Response(b"OK"));
    assert_eq!(peer.server.poll_work(), None);
}

/// A client sends its next bypass when a cache has answered the previous one, which may still be in the network.
#[test]
fn a_bypass_that_arrives_after_a_later_one_does_not_replace_its_response() {
    let config = ServerConfig { responses_kept: 1, ..ServerConfig::default() };
    let mut peer = Peer::with_rows(config, &[row(4, FIRST_BYPASS + 2)], 0);
    let later = peer.bypass(5);
    peer.receive(FIRST_BYPASS + 4, Body::Bypass { after: None, request: b"get" });
    peer.server.respond(later, b"later", false, peer.now).unwrap();
    assert_eq!(peer.sent(), [(kind::RESPONSE, FIRST_BYPASS + 5)]);
    peer.receive(FIRST_BYPASS + 3, Body::Bypass { after: None, request: b"get" });
    assert_eq!(peer.server.poll_work(), None);
    peer.receive(FIRST_BYPASS + 5, Body::Bypass { after: None, request: b"get" });
    let bytes = peer.one_sent();
    assert_eq!(Packet::parse(&bytes).unwrap().body, Body::Response(b"later"));
}

#[test]
fn after_a_restart_a_bypass_with_a_change_is_lost_and_one_that_reads_is_executed_again() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(4, FIRST_BYPASS + 2)], 0);
    for (number, is_lost) in [(2, true), (3, false)] {
        peer.receive(FIRST_BYPASS + number, Body::Bypass { after: None, request: b"x" });
        let work = peer.work();
        let Work::Bypass { lost, .. } = &work else { panic!("{work:?}") };
        assert_eq!(*lost, is_lost);
        peer.server.respond(work.ticket(), b"answer", is_lost, peer.now).unwrap();
        assert_eq!(peer.sent(), [(kind::RESPONSE, FIRST_BYPASS + number)]);
    }
    peer.update(5);
    let Work::Update { row: next, .. } = peer.work() else { panic!("no update") };
    assert_eq!(next, row(5, FIRST_BYPASS + 2), "neither of them has changed anything");
}

#[test]
fn a_bypass_in_pieces_is_reassembled_and_its_long_response_is_split() {
    let mut peer = Peer::started();
    let piece = |index| Fragment { index, count: 2, total: 4 };
    for (index, request) in [(1, b"cd"), (0, b"ab")] {
        assert_eq!(peer.server.poll_work(), None);
        peer.receive(FIRST_BYPASS, Body::BypassFragment { fragment: piece(index), after: 0, request });
    }
    let Work::Bypass { ticket, request, .. } = peer.work() else { panic!("no bypass") };
    assert_eq!(request, b"abcd");
    peer.server.respond(ticket, [3; 3000], false, peer.now).unwrap();
    assert_eq!(peer.sent(), [(kind::RESPONSE_FRAGMENT, FIRST_BYPASS); 3]);
}

#[test]
fn a_response_that_is_too_long_is_rejected_and_can_be_replaced() {
    let config = ServerConfig { response_bytes_max: 10, ..ServerConfig::default() };
    let mut peer = Peer::with_rows(config, &[row(0, FIRST_BYPASS - 1)], 0);
    let ticket = peer.bypass(0);
    let told = peer.server.respond(ticket, [0; 11], false, peer.now);
    assert_eq!(told, Err(ResponseTooLong { len: 11, max: 10 }));
    assert_eq!((peer.sent(), peer.server.stats().responses_too_long), (vec![], 1));
    peer.server.respond(ticket, b"too long", false, peer.now).unwrap();
    assert_eq!(peer.sent(), [(kind::RESPONSE, FIRST_BYPASS)]);
}

/// Length of a response that needs several windows.
const LONG: usize = 500_000;

fn wanted(offset: usize, len: usize) -> Body<'static> {
    Body::ResponseRequest(Wanted { offset: offset as u32, len: len as u32, check: CHECK })
}

/// CRC-32 of [`LONG`] zeros.
const CHECK: u32 = 0x389c_07b1;

#[test]
fn a_long_response_is_sent_window_by_window_on_request() {
    let mut peer = Peer::started();
    let ticket = peer.bypass(0);
    peer.server.respond(ticket, vec![0; LONG], false, peer.now).unwrap();
    assert_eq!(peer.sent(), [(kind::RESPONSE_PART, FIRST_BYPASS); RESPONSE_WINDOW]);
    peer.receive(FIRST_BYPASS, wanted(1448 * 40, 1448 * 2 + 1));
    assert_eq!(peer.sent(), [(kind::RESPONSE_PART, FIRST_BYPASS); 3]);
    peer.receive(FIRST_BYPASS, wanted(LONG, 1));
    let other = Wanted { offset: 0, len: 1, check: CHECK + 1 };
    peer.receive(FIRST_BYPASS, Body::ResponseRequest(other));
    peer.receive(FIRST_BYPASS + 1, wanted(0, 1));
    assert_eq!(peer.sent(), [], "the request is for another response");
    peer.receive(FIRST_BYPASS, wanted(0, LONG));
    assert!(peer.sent().len() <= 256, "one request is answered with at most one largest window");
    peer.receive(FIRST_BYPASS, wanted(0, 0));
    peer.receive(FIRST_BYPASS, wanted(0, 1));
    assert_eq!(peer.sent(), [], "the client has it");
    peer.receive(FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    assert_eq!((peer.server.poll_work(), peer.sent()), (None, vec![]), "the bypass is not executed again");
}

#[test]
fn long_responses_of_all_sessions_are_bounded_and_idle_ones_are_dropped() {
    let config = ServerConfig { responses_long_bytes_max: LONG + 1, ..ServerConfig::default() };
    let rows = [row(0, FIRST_BYPASS - 1), SessionRow { key: key(8), ..row(0, FIRST_BYPASS - 1) }];
    let mut peer = Peer::with_rows(config, &rows, 0);
    peer.wait(ms(1));
    let first = peer.bypass(0);
    peer.server.respond(first, vec![0; LONG], false, peer.now).unwrap();
    peer.sent();
    let get =
        |peer: &mut Peer| peer.receive_in(8, FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    for (pause, changed, sent) in [(4000, false, 0), (1000, true, RESPONSE_WINDOW)] {
        peer.wait(ms(pause));
        peer.sent();
        get(&mut peer);
        let ticket = peer.work().ticket();
        peer.server.respond(ticket, vec![0; LONG], changed, peer.now).unwrap();
        assert_eq!(peer.sent(), vec![(kind::RESPONSE_PART, FIRST_BYPASS); sent]);
    }
    assert_eq!(peer.server.stats().responses_postponed, 1);
    let again = peer.bypass(0);
    peer.server.respond(again, vec![0; LONG], true, peer.now).unwrap();
    assert_eq!(peer.sent(), [], "there is no room for it");
    peer.receive(FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    assert!(
        matches!(peer.work(), Work::Bypass { lost: true, .. }),
        "a bypass with a change is not executed again"
    );
}

#[test]
fn a_session_ends_when_its_last_update_is_applied() {
    let mut peer = Peer::started();
    peer.receive(FIRST_BYPASS, Body::Bypass { after: None, request: b"get" });
    let ticket = peer.work().ticket();
    peer.server.respond(ticket, b"1", false, peer.now).unwrap();
    peer.sent();
    peer.update(1);
    peer.receive(2, Body::SessionEnd);
    let first = peer.updates()[0].0;
    peer.wait(ms(1));
    assert_eq!(peer.sent(), [(kind::RETRANSMIT, 2)]);
    peer.update(2);
    peer.receive(2, Body::SessionEnd);
    let (second, end) = (peer.work().ticket(), peer.work());
    let Work::Row { row: last, .. } = &end else { panic!("{end:?}") };
    let expected = SessionRow { ended: true, touched: 1, ..row(2, FIRST_BYPASS) };
    assert_eq!(*last, expected, "the row contains the last bypass, although it only reads");
    [first, second, end.ticket()].into_iter().for_each(|ticket| peer.commit(ticket));
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 2), (kind::SESSION_ENDED, 2)]);
    peer.receive(2, Body::SessionEnd);
    assert_eq!(peer.sent(), [(kind::SESSION_ENDED, 2)]);
}

#[test]
fn the_oldest_ended_sessions_are_evicted_and_new_ones_begin_above_their_numbers() {
    let config = ServerConfig { sessions_max: 3, ..ServerConfig::default() };
    let mut peer = Peer::with_rows(config, &[ended(2, 90), ended(1, 50), row(5, FIRST_BYPASS)], 0);
    peer.receive_in(9, 0, Body::SessionStart { nonce: 3, asks: Start::Plain });
    let work = peer.work();
    let Work::Row { row: first, evicted, floor, .. } = &work else { panic!("{work:?}") };
    assert_eq!((first.update, first.bypass, evicted, *floor), (50, FIRST_BYPASS + 49, &vec![key(1)], 50));
    peer.commit(work.ticket());
    peer.sent();
    peer.receive_in(1, 50, Body::Update(b"set"));
    peer.receive_in(1, 50, Body::SessionEnd);
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 50), (kind::SESSION_ENDED, 50)]);
    peer.receive_in(10, 0, Body::SessionStart { nonce: 4, asks: Start::Plain });
    peer.work();
    peer.receive_in(11, 0, Body::SessionStart { nonce: 5, asks: Start::Plain });
    let bytes = peer.one_sent();
    assert_eq!(Packet::parse(&bytes).unwrap().body, Body::SessionRefused(Refusal::NoRoom), "none has ended");
}

#[test]
fn a_failed_session_start_evicts_no_row() {
    let config = ServerConfig { sessions_max: 1, ..ServerConfig::default() };
    let mut peer = Peer::with_rows(config, &[ended(1, 50)], 0);
    for _ in 0..2 {
        peer.receive_in(9, 0, Body::SessionStart { nonce: 3, asks: Start::Plain });
        let work = peer.work();
        let Work::Row { evicted, .. } = &work else { panic!("{work:?}") };
        assert_eq!(*evicted, [key(1)]);
        peer.server.failed(work.ticket());
    }
    assert_eq!((peer.sent(), peer.server.stats().sessions), (vec![], 1));
}

#[test]
fn failed_work_and_all_work_behind_it_is_requested_and_handed_out_again() {
    let mut peer = Peer::started();
    (1..=4).for_each(|seq| peer.update(seq));
    let tickets: Vec<Ticket> = (0..3).map(|_| peer.work().ticket()).collect();
    peer.server.failed(tickets[1]);
    peer.update(2);
    assert_eq!(peer.server.poll_work(), None, "the third one is not reported yet");
    peer.commit(tickets[0]);
    peer.server.failed(tickets[2]);
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 1)]);
    peer.wait(ms(100));
    let bytes = peer.one_sent();
    assert_eq!(Packet::parse(&bytes).unwrap(), Packet::new(SESSION, 2, Body::Retransmit { count: 3 }));
    (2..=4).for_each(|seq| peer.update(seq));
    let again = peer.updates();
    assert_eq!(numbers(&again), [2, 3, 4]);
    again.iter().for_each(|(ticket, _)| peer.commit(*ticket));
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 4)]);
}

#[test]
fn a_new_incarnation_sends_recover_to_every_open_session_until_it_answers() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(9, FIRST_BYPASS), ended(8, 4)], 0);
    for pause in [0, 40, 80, 160] {
        peer.wait(ms(pause));
        let bytes = peer.one_sent();
        let expected = Packet::new(SESSION, 9, Body::Recover { incarnation: 5 });
        assert_eq!(Packet::parse(&bytes).unwrap(), expected);
    }
    peer.update(10);
    assert_eq!(peer.server.next_timeout(), None);
}

#[test]
fn packets_that_are_not_for_a_server_change_nothing() {
    let mut peer = Peer::started();
    peer.server.handle_datagram(client(), b"short", peer.now);
    peer.receive(1, Body::ServerAck);
    peer.receive(1, Body::Other(b""));
    peer.receive(FIRST_BYPASS, Body::Update(b"set"));
    peer.receive(5, Body::Bypass { after: None, request: b"get" });
    assert_eq!((peer.server.stats().ignored, peer.server.poll_work()), (5, None));
    peer.receive(FIRST_BYPASS, Body::Bypass { after: Some(FIRST_BYPASS + 1), request: b"get" });
    assert_eq!((peer.server.stats().early_dropped, peer.server.next_timeout()), (1, None));
}

#[test]
fn heartbeats_are_answered() {
    let mut peer = Peer::started();
    peer.receive(3, Body::Heartbeat { nonce: 8, role: Role::Device, number: 1 });
    let body =
        Body::HeartbeatReply { nonce: 8, role: Role::Server, number: 0, declines: false, incarnation: 5 };
    assert_eq!(Packet::parse(&peer.one_sent()).unwrap(), Packet::new(SESSION, 3, body));
}

#[test]
fn an_ipv4_mapped_address_names_the_session_of_its_ipv4_address() {
    let mut peer = Peer::started();
    let mapped = SocketAddr::from((std::net::Ipv4Addr::from([10, 0, 0, 1]).to_ipv6_mapped(), 40_000));
    peer.server.handle_datagram(mapped, &Packet::new(SESSION, 1, Body::Update(b"set")).to_bytes(), peer.now);
    let ticket = peer.updates()[0].0;
    assert_eq!(ticket.session(), key(SESSION));
    peer.commit(ticket);
    assert_eq!(peer.server.poll_transmit().unwrap().0, mapped);
}

fn refused(seq: u32) -> (u8, u32) {
    (kind::SESSION_REFUSED, seq)
}

#[test]
fn a_session_whose_confirmed_updates_are_lost_is_refused_until_the_gap_is_closed() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(3, FIRST_BYPASS)], 0);
    peer.receive(3, Body::Confirmed);
    assert_eq!((peer.sent(), peer.server.poll_trouble()), (vec![], None), "the server has that update");
    peer.receive(5, Body::Confirmed);
    let trouble = Trouble::Behind { key: key(SESSION), applied: 3, confirmed: 5 };
    assert_eq!((peer.sent(), peer.server.poll_trouble()), (vec![refused(3)], Some(trouble)));
    peer.update(6);
    peer.receive(FIRST_BYPASS + 1, Body::Bypass { after: None, request: b"get" });
    peer.receive(6, Body::SessionEnd);
    peer.receive(5, Body::Confirmed);
    assert_eq!(peer.sent(), [refused(6), refused(FIRST_BYPASS + 1), refused(6)]);
    assert_eq!((peer.server.poll_work(), peer.server.poll_trouble()), (None, None), "it is reported once");
    peer.update(4);
    peer.update(5);
    let updates = peer.updates();
    updates.iter().for_each(|(ticket, _)| peer.commit(*ticket));
    assert_eq!(peer.sent(), [(kind::SERVER_ACK, 5)], "a log had the updates");
    peer.update(6);
    assert_eq!(numbers(&peer.updates()), [6]);
}

#[test]
fn a_session_known_to_be_behind_is_refused_from_the_start() {
    let mut peer = Peer::with_rows(ServerConfig::default(), &[row(3, FIRST_BYPASS)], 0);
    peer.server.fall_behind(key(SESSION), 9);
    peer.wait(ms(1000));
    let sent = peer.sent();
    assert!(sent.len() > 1 && sent.iter().all(|packet| *packet == refused(3)), "{sent:?}");
}

#[test]
fn updates_that_stay_missing_are_reported_once_for_each_gap() {
    let mut peer = Peer::started();
    peer.update(2);
    (0..5000).for_each(|_| peer.wait(ms(1)));
    assert_eq!(peer.server.poll_trouble(), Some(Trouble::Missing { key: key(SESSION), first: 1 }));
    assert_eq!(peer.server.poll_trouble(), None);
}
