//! Tests of the rules in `docs/format/pmnet.md`, "The client", packet by packet.

use landfall_pmnet::client::{ClientError, CompletedBy, Event, Failure, RequestId};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, FROM_HOSTS, Fragment, Packet, Refusal, Role, kind};
use landfall_pmnet::{Client, ClientConfig, Instant};
use std::time::Duration;

const SESSION: u16 = 7;
const NONCE: u64 = 99;

/// A client and the time.
struct Peer {
    client: Client,
    now: Instant,
}

/// A packet in short form: type, number, and the request's bytes.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Update(u32, Vec<u8>),
    Piece(u32, u16),
    Bypass(u32, Option<u32>),
    Other(u8, u32),
}

fn config(devices: u8) -> ClientConfig {
    ClientConfig { devices, ..ClientConfig::default() }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Peer {
    /// A client whose session start has not been sent.
    fn new(config: ClientConfig) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self { client: Client::new(config, SESSION, NONCE, now), now }
    }

    /// A client whose session has started with the lowest numbers.
    fn started(config: ClientConfig) -> Self {
        let mut peer = Self::new(config);
        assert_eq!(peer.sent(), [Sent::Other(0x20, 0)]);
        peer.start(1);
        assert_eq!(peer.events(), [Event::Started]);
        peer
    }

    fn start(&mut self, first_update: u32) {
        self.receive(
            0,
            Body::SessionStarted {
                nonce: NONCE,
                first_update,
                first_bypass: FIRST_BYPASS,
                incarnation: 5,
                lease: 0,
            },
        );
    }

    fn sent(&mut self) -> Vec<Sent> {
        let read = |bytes: Vec<u8>| {
            let packet = Packet::parse(&bytes).unwrap();
            let seq = packet.header.seq;
            match packet.body {
                Body::Update(request) => Sent::Update(seq, request.to_vec()),
                Body::UpdateFragment(place, _) => Sent::Piece(seq, place.index),
                Body::Bypass { after, .. } => Sent::Bypass(seq, after),
                body => Sent::Other(body.kind(), seq),
            }
        };
        std::iter::from_fn(|| self.client.poll_transmit()).map(read).collect()
    }

    fn seqs(&mut self) -> Vec<u32> {
        let seq = |sent: Sent| match sent {
            Sent::Update(seq, _) | Sent::Piece(seq, _) | Sent::Bypass(seq, _) | Sent::Other(_, seq) => seq,
        };
        self.sent().into_iter().map(seq).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    fn receive(&mut self, seq: u32, body: Body<'_>) {
        self.client.handle_datagram(&Packet::new(SESSION, seq, body).to_bytes(), self.now);
    }

    fn ack(&mut self, seq: u32, device: u8) {
        let mut packet = Packet::new(SESSION, seq, Body::PmnetAck);
        packet.header.ack_count = device;
        self.client.handle_datagram(&packet.to_bytes(), self.now);
    }

    fn update(&mut self, request: &[u8]) -> RequestId {
        self.client.update(request, self.now).unwrap()
    }

    fn updates(&mut self, count: u32) {
        for _ in 0..count {
            self.update(b"set");
        }
    }

    fn bypass(&mut self, request: &[u8]) -> RequestId {
        self.client.bypass(request, self.now).unwrap()
    }

    fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.client.handle_timeout(self.now);
    }
}

fn complete(id: u64, by: CompletedBy) -> Event {
    Event::Complete { id: RequestId(id), by }
}

#[test]
fn the_session_start_is_sent_again_until_it_is_answered() {
    let mut peer = Peer::new(config(0));
    for pause in [50, 100, 200] {
        assert_eq!(peer.sent(), [Sent::Other(0x20, 0)]);
        peer.wait(ms(pause - 1));
        assert_eq!(peer.sent(), []);
        peer.wait(ms(1));
    }
    peer.receive(
        0,
        Body::SessionStarted {
            nonce: 1,
            first_update: 1,
            first_bypass: FIRST_BYPASS,
            incarnation: 5,
            lease: 0,
        },
    );
    assert_eq!(peer.events(), [], "the answer to another client");
    peer.start(1);
    assert_eq!(peer.events(), [Event::Started]);
    assert_eq!(peer.sent(), []);
    peer.start(9);
    assert_eq!((peer.events(), peer.client.stats().ignored), (vec![], 2));
}

#[test]
fn after_a_refusal_a_client_restarts_with_its_queued_requests() {
    let mut peer = Peer::new(config(0));
    peer.update(b"set");
    peer.sent();
    peer.receive(0, Body::SessionRefused(Refusal::InUse));
    assert_eq!(peer.events(), [Event::Refused(Refusal::InUse)]);
    peer.wait(ms(1000));
    assert_eq!(peer.sent(), []);
    peer.client.restart(SESSION, NONCE, peer.now);
    assert_eq!(peer.sent(), [Sent::Other(0x20, 0)]);
    peer.start(41);
    assert_eq!(peer.sent(), [Sent::Update(41, b"set".to_vec())]);
}

#[test]
fn an_update_is_complete_when_every_device_of_the_chain_has_it() {
    let mut peer = Peer::started(config(3));
    peer.update(b"set");
    peer.sent();
    for device in [0, 2, 2, 3, FROM_HOSTS] {
        peer.ack(1, device);
        assert_eq!(peer.events(), [], "after {device}");
    }
    peer.ack(1, 1);
    assert_eq!(peer.events(), [complete(0, CompletedBy::Devices)]);
    peer.ack(1, 1);
    assert_eq!(peer.events(), []);
    assert_eq!((peer.client.stats().acks, peer.client.stats().acks_again), (3, 4));
}

#[test]
fn a_joint_ack_acknowledges_for_several_devices() {
    let mut peer = Peer::started(config(3));
    let receive = |peer: &mut Peer, nearest, others| {
        let mut packet = Packet::new(SESSION, 1, Body::JointAck(others));
        packet.header.ack_count = nearest;
        peer.client.handle_datagram(&packet.to_bytes(), peer.now);
    };
    peer.update(b"set");
    peer.sent();
    receive(&mut peer, 1, &[2, 7, 2]);
    assert_eq!(peer.events(), [], "device 0 has not acknowledged");
    receive(&mut peer, 0, &[1, 2]);
    assert_eq!(peer.events(), [complete(0, CompletedBy::Devices)]);
    assert_eq!((peer.client.stats().acks, peer.client.stats().acks_again), (3, 4));
}

#[test]
fn a_device_without_a_number_counts_for_a_chain_of_one() {
    for (devices, completes) in [(0, false), (1, true), (2, false)] {
        let mut peer = Peer::started(config(devices));
        peer.update(b"set");
        peer.sent();
        peer.ack(1, FROM_HOSTS);
        assert_eq!(peer.events().len(), usize::from(completes), "{devices} devices");
    }
}

#[test]
fn updates_are_complete_in_order_whatever_the_order_of_acknowledgements() {
    let mut peer = Peer::started(config(1));
    peer.updates(3);
    peer.sent();
    peer.ack(3, 0);
    peer.ack(2, 0);
    assert_eq!(peer.events(), []);
    peer.ack(1, 0);
    assert_eq!(peer.events(), [0, 1, 2].map(|id| complete(id, CompletedBy::Devices)));
}

#[test]
fn a_request_is_complete_when_its_last_piece_is_acknowledged() {
    let mut peer = Peer::started(config(1));
    peer.update(&[1; 3000]);
    assert_eq!(peer.sent(), [Sent::Piece(1, 0), Sent::Piece(2, 1), Sent::Piece(3, 2)]);
    peer.ack(1, 0);
    peer.ack(3, 0);
    assert_eq!(peer.events(), []);
    peer.ack(2, 0);
    assert_eq!(peer.events(), [complete(0, CompletedBy::Devices)]);
}

#[test]
fn a_server_ack_completes_everything_up_to_its_number() {
    for devices in [0, 1] {
        let mut peer = Peer::started(config(devices));
        peer.updates(3);
        peer.sent();
        peer.receive(9, Body::ServerAck);
        assert_eq!(peer.events(), [], "it names an update that was never sent");
        peer.receive(2, Body::ServerAck);
        assert_eq!(peer.events(), [0, 1].map(|id| complete(id, CompletedBy::Server)));
        peer.receive(1, Body::ServerAck);
        assert_eq!((peer.events(), peer.client.stats().server_acks), (vec![], 1));
    }
}

#[test]
fn packets_of_other_sessions_and_malformed_ones_change_nothing() {
    let mut peer = Peer::started(config(1));
    peer.update(b"set");
    peer.sent();
    for session in [SESSION + 1, 0] {
        let packet = Packet::new(session, 1, Body::ServerAck).to_bytes();
        peer.client.handle_datagram(&packet, peer.now);
    }
    peer.client.handle_datagram(b"", peer.now);
    peer.client.handle_datagram(&[0x19; 17], peer.now);
    peer.receive(1, Body::Update(b"set"));
    assert_eq!((peer.events(), peer.client.stats().ignored), (vec![], 5));
}

#[test]
fn the_window_limits_packets_in_flight_but_the_oldest_request_is_sent_completely() {
    let mut peer = Peer::started(ClientConfig { window: 2, ..config(1) });
    peer.update(&[1; 6000]);
    peer.update(&[2; 3000]);
    peer.update(b"set");
    assert_eq!(peer.seqs(), [1, 2, 3, 4, 5]);
    (1..=3).for_each(|seq| peer.ack(seq, 0));
    assert_eq!(peer.seqs(), []);
    peer.ack(4, 0);
    assert_eq!(peer.seqs(), [6]);
    peer.ack(5, 0);
    assert_eq!(peer.seqs(), [7, 8], "the request is now the oldest");
    (6..=8).for_each(|seq| peer.ack(seq, 0));
    assert_eq!(peer.seqs(), [9]);
}

#[test]
fn nothing_is_sent_more_than_4096_packets_beyond_the_last_server_ack() {
    let mut peer = Peer::started(ClientConfig { requests_max: 5000, ..config(1) });
    peer.updates(5000);
    let mut last = 0;
    while let Some(seq) = peer.seqs().last().copied() {
        (last + 1..=seq).for_each(|seq| peer.ack(seq, 0));
        last = seq;
    }
    assert_eq!(last, 4096);
    peer.receive(10, Body::ServerAck);
    assert_eq!(peer.seqs().last(), Some(&4106));
}

#[test]
fn unacknowledged_updates_are_sent_again_after_a_timeout_that_doubles() {
    let mut peer = Peer::started(config(1));
    peer.update(b"set");
    peer.update(b"del");
    peer.sent();
    peer.ack(2, 0);
    for pause in [50, 100, 200, 400, 800, 1000, 1000] {
        assert_eq!(peer.client.next_timeout(), Some(peer.now + ms(pause)));
        peer.wait(ms(pause));
        assert_eq!(peer.sent(), [Sent::Update(1, b"set".to_vec())]);
    }
    assert_eq!(peer.client.stats().timeouts, 7);
}

#[test]
fn the_timeout_follows_measured_round_trips_but_not_those_of_repeated_packets() {
    let mut peer = Peer::started(config(1));
    let trip = |peer: &mut Peer, seq: u32, millis: u64| {
        peer.update(b"set");
        peer.sent();
        peer.wait(ms(millis));
        peer.sent();
        peer.ack(seq, 0);
        peer.events();
    };
    (1..=20).for_each(|seq| trip(&mut peer, seq, 3));
    assert_eq!(peer.client.stats().timeout, ms(6));
    trip(&mut peer, 21, 30);
    assert_eq!(
        peer.client.stats().timeout,
        ms(12),
        "the timeout has doubled, but no round trip was measured"
    );
    trip(&mut peer, 22, 3);
    assert_eq!(peer.client.stats().timeout, ms(6));
}

#[test]
fn retransmission_requests_are_answered_until_a_server_ack_covers_the_packets() {
    let mut peer = Peer::started(config(1));
    peer.updates(4);
    peer.sent();
    (1..=4).for_each(|seq| peer.ack(seq, 0));
    peer.receive(2, Body::Retransmit { count: 2 });
    assert_eq!(peer.seqs(), [2, 3]);
    peer.receive(2, Body::ServerAck);
    peer.receive(1, Body::Retransmit { count: 100 });
    let sent =
        [Sent::Other(kind::CONFIRMED, 2), Sent::Update(3, b"set".to_vec()), Sent::Update(4, b"set".to_vec())];
    assert_eq!(peer.sent(), sent);
}

#[test]
fn after_recover_all_later_updates_and_the_bypass_are_sent_again() {
    let mut peer = Peer::started(config(1));
    peer.updates(3);
    peer.bypass(b"get");
    peer.sent();
    (1..=3).for_each(|seq| peer.ack(seq, 0));
    peer.events();
    peer.receive(1, Body::Recover { incarnation: 6 });
    assert_eq!(peer.events(), [Event::ServerRestarted { incarnation: 6 }]);
    assert_eq!(peer.seqs(), [2, 3, FIRST_BYPASS]);
    peer.receive(1, Body::Recover { incarnation: 6 });
    assert_eq!((peer.events(), peer.seqs()), (vec![], vec![2, 3]));
}

#[test]
fn a_bypass_is_ordered_while_updates_are_not_known_to_be_applied() {
    let mut peer = Peer::started(config(1));
    peer.bypass(b"get");
    assert_eq!(peer.sent(), [Sent::Bypass(FIRST_BYPASS, None)]);
    peer.receive(FIRST_BYPASS, Body::Response(b"1"));
    peer.update(b"set");
    peer.bypass(b"get");
    assert_eq!(peer.sent(), [Sent::Update(1, b"set".to_vec()), Sent::Bypass(FIRST_BYPASS + 1, Some(1))]);
    peer.receive(FIRST_BYPASS + 1, Body::Response(b"2"));
    peer.receive(1, Body::ServerAck);
    peer.bypass(b"get");
    assert_eq!(peer.sent(), [Sent::Bypass(FIRST_BYPASS + 2, None)]);
}

#[test]
fn requests_after_a_bypass_wait_for_its_response() {
    let mut peer = Peer::started(config(1));
    let first = peer.bypass(b"get");
    peer.bypass(b"get");
    peer.update(b"set");
    assert_eq!(peer.seqs(), [FIRST_BYPASS]);
    peer.receive(FIRST_BYPASS + 1, Body::Response(b"not asked"));
    assert_eq!(peer.seqs(), []);
    peer.receive(FIRST_BYPASS, Body::CacheResponse(b"1"));
    let response = Event::Response { id: first, bytes: b"1".to_vec(), from_cache: true };
    assert_eq!((peer.events(), peer.seqs()), (vec![response], vec![FIRST_BYPASS + 1]));
    peer.receive(FIRST_BYPASS, Body::Response(b"1"));
    assert_eq!(peer.events(), [], "it is already answered");
    peer.receive(FIRST_BYPASS + 1, Body::Response(b"2"));
    assert_eq!(peer.seqs(), [1]);
}

#[test]
fn a_bypass_that_is_not_answered_is_sent_again_with_its_number() {
    let mut peer = Peer::started(config(1));
    peer.bypass(b"get");
    for pause in [50, 100, 200] {
        assert_eq!(peer.seqs(), [FIRST_BYPASS]);
        peer.wait(ms(pause));
    }
    assert_eq!(peer.seqs(), [FIRST_BYPASS]);
}

#[test]
fn pieces_of_a_response_carry_the_check_of_the_whole() {
    let mut peer = Peer::started(config(1));
    let id = peer.bypass(b"get");
    peer.sent();
    let whole = [(1, &b"56789"[..]), (0, b"1234")];
    for hash in [0xcbf4_3927, 0xcbf4_3926] {
        assert_eq!(peer.events(), []);
        for (index, piece) in whole {
            let place = Fragment { index, count: 2, total: 9 };
            let mut packet = Packet::new(SESSION, FIRST_BYPASS, Body::ResponseFragment(place, piece));
            packet.header.hash = hash;
            peer.client.handle_datagram(&packet.to_bytes(), peer.now);
        }
    }
    assert_eq!(peer.events(), [Event::Response { id, bytes: b"123456789".to_vec(), from_cache: false }]);
}

#[test]
fn the_session_ends_when_every_request_is_complete_or_answered() {
    let mut peer = Peer::started(config(1));
    peer.update(b"set");
    peer.bypass(b"get");
    peer.client.end(peer.now);
    assert_eq!(peer.client.update(b"set", peer.now), Err(ClientError::Ended));
    assert_eq!(peer.seqs(), [1, FIRST_BYPASS]);
    peer.receive(FIRST_BYPASS, Body::Response(b"1"));
    assert_eq!(peer.seqs(), []);
    peer.ack(1, 0);
    assert_eq!(peer.sent(), [Sent::Other(0x22, 1)]);
    peer.receive(1, Body::Retransmit { count: 1 });
    assert_eq!(peer.seqs(), [1]);
    peer.wait(ms(50));
    assert_eq!(peer.sent(), [Sent::Other(0x22, 1)]);
    peer.events();
    peer.receive(0, Body::SessionEnded);
    assert_eq!(peer.events(), [], "it belongs to another session with this number");
    peer.receive(1, Body::SessionEnded);
    assert_eq!((peer.events(), peer.client.next_timeout()), (vec![Event::Ended], None));
    assert_eq!(peer.client.bypass(b"get", peer.now), Err(ClientError::Ended));
}

#[test]
fn a_session_without_updates_ends_with_the_number_before_its_first_update() {
    let mut peer = Peer::new(config(0));
    peer.client.end(peer.now);
    peer.sent();
    peer.start(31);
    peer.events();
    assert_eq!(peer.sent(), [Sent::Other(0x22, 30)]);
    peer.receive(30, Body::SessionEnded);
    assert_eq!(peer.events(), [Event::Ended]);
}

#[test]
fn a_session_fails_without_an_answer_but_not_while_it_awaits_none() {
    let mut peer = Peer::started(config(1));
    peer.wait(ms(100_000));
    assert_eq!(peer.events(), []);
    peer.update(b"set");
    peer.update(b"set");
    peer.sent();
    peer.wait(ms(29_000));
    peer.ack(1, 0);
    peer.wait(ms(29_999));
    assert_eq!(peer.events().len(), 1);
    peer.wait(ms(1));
    assert_eq!(peer.events(), [Event::Failed(Failure::NoAnswer)]);
    assert_eq!((peer.sent(), peer.client.next_timeout()), (vec![], None));
    assert_eq!(peer.client.update(b"set", peer.now), Err(ClientError::Ended));
}

/// The newest update is sent again every few seconds while the server says nothing, and the device answers each time.
#[test]
fn a_session_whose_device_only_repeats_itself_fails_unless_it_waits_for_devices() {
    for waits_for_devices in [false, true] {
        let mut peer = Peer::started(ClientConfig { waits_for_devices, ..config(1) });
        peer.update(b"set");
        peer.sent();
        peer.ack(1, 0);
        peer.bypass(b"get");
        peer.sent();
        peer.events();
        for _ in 0..5 {
            peer.wait(ms(5000));
            peer.ack(1, 0);
        }
        assert_eq!(peer.events(), [], "not yet");
        for _ in 0..120 {
            peer.wait(ms(5000));
            peer.ack(1, 0);
        }
        let failed: &[Event] = if waits_for_devices { &[] } else { &[Event::Failed(Failure::NoAnswer)] };
        assert_eq!(peer.events(), failed);
    }
}

#[test]
fn a_session_that_the_server_has_lost_is_over() {
    let mut peer = Peer::started(config(1));
    peer.update(b"set");
    peer.sent();
    peer.receive(2, Body::SessionRefused(Refusal::Unknown));
    assert_eq!(peer.events(), [], "the number is not one of this session");
    peer.receive(1, Body::SessionRefused(Refusal::Unknown));
    assert_eq!(peer.events(), [Event::Refused(Refusal::Unknown)]);
    assert_eq!(peer.sent(), []);
}

#[test]
fn incomplete_updates_need_the_acknowledgements_of_a_new_chain() {
    let mut peer = Peer::started(config(2));
    peer.updates(3);
    peer.sent();
    peer.ack(1, 0);
    peer.ack(1, 1);
    peer.ack(3, 0);
    assert_eq!(peer.events(), [complete(0, CompletedBy::Devices)]);
    peer.client.set_devices(1, peer.now);
    assert_eq!(peer.seqs(), [2, 3], "earlier acknowledgements may be those of the removed device");
    peer.ack(2, 0);
    peer.client.set_devices(0, peer.now);
    peer.ack(3, 0);
    assert_eq!(peer.events(), [complete(1, CompletedBy::Devices)]);
    peer.receive(3, Body::ServerAck);
    assert_eq!(peer.events(), [complete(2, CompletedBy::Server)]);
}

#[test]
fn acknowledgements_of_a_replaced_device_do_not_count_for_the_new_one() {
    let mut peer = Peer::started(config(2));
    peer.updates(2);
    peer.sent();
    peer.ack(2, 0);
    peer.client.set_devices(2, peer.now);
    [(1, 0), (1, 1), (2, 1)].into_iter().for_each(|(seq, device)| peer.ack(seq, device));
    assert_eq!(peer.events(), [complete(0, CompletedBy::Devices)]);
    peer.ack(2, 0);
    assert_eq!(peer.events(), [complete(1, CompletedBy::Devices)]);
}

#[test]
fn the_server_is_probed_when_devices_have_every_update_and_it_says_nothing() {
    let mut peer = Peer::started(config(1));
    peer.updates(3);
    peer.sent();
    (1..=3).for_each(|seq| peer.ack(seq, 0));
    for pause in [200, 400, 800] {
        peer.wait(ms(pause - 1));
        assert_eq!(peer.seqs(), []);
        peer.wait(ms(1));
        assert_eq!(peer.seqs(), [3]);
        peer.ack(3, 0);
    }
    peer.receive(3, Body::ServerAck);
    assert_eq!(peer.client.next_timeout(), None);
}

#[test]
fn requests_that_do_not_fit_are_rejected() {
    let mut peer = Peer::started(ClientConfig { requests_max: 2, ..config(1) });
    let long = vec![0; 1448 * 1024 + 1];
    assert!(peer.client.update(&long[1..], peer.now).is_ok());
    let error = ClientError::TooLarge { len: 1448 * 1024 + 1, max: 1448 * 1024 };
    assert_eq!(peer.client.update(&long, peer.now), Err(error));
    assert!(peer.client.bypass(b"get", peer.now).is_ok());
    assert_eq!(peer.client.update(b"set", peer.now), Err(ClientError::Full));
    assert_eq!(peer.sent().len(), 1025);
    peer.receive(1024, Body::ServerAck);
    assert_eq!(peer.client.update(b"set", peer.now), Err(ClientError::Full), "its event is not fetched");
    peer.events();
    assert!(peer.client.update(b"set", peer.now).is_ok());
}

#[test]
fn a_session_with_high_numbers_needs_a_successor() {
    let mut peer = Peer::new(config(1));
    peer.start(1 << 30);
    assert!(!peer.client.needs_successor());
    peer.update(b"set");
    peer.sent();
    assert!(peer.client.needs_successor());
    assert!(peer.client.update(b"set", peer.now).is_ok());
}

#[test]
fn replies_to_heartbeats_are_reported_from_devices_and_servers() {
    let mut peer = Peer::started(config(1));
    peer.client.heartbeat(77);
    assert_eq!(peer.sent(), [Sent::Other(0x28, 0)]);
    let reply = |nonce, role, number, incarnation| Body::HeartbeatReply {
        nonce,
        role,
        number,
        declines: true,
        incarnation,
    };
    peer.receive(0, reply(78, Role::Device, 1, 8));
    peer.receive(0, reply(77, Role::Device, 1, 8));
    peer.receive(0, reply(77, Role::Server, 0, 9));
    let alive = |role, number, incarnation| Event::Alive { role, number, declines: true, incarnation };
    let restarted = Event::ServerRestarted { incarnation: 9 };
    assert_eq!(peer.events(), [alive(Role::Device, 1, 8), restarted, alive(Role::Server, 0, 9)]);
}

#[test]
fn a_chain_that_has_lost_a_device_needs_only_the_others() {
    let mut peer = Peer::started(config(3));
    peer.update(b"request");
    peer.sent();
    [0, 2].into_iter().for_each(|device| peer.ack(1, device));
    assert_eq!(peer.events(), []);
    peer.client.set_chain([0, 2].into_iter().collect(), peer.now);
    assert_eq!(peer.seqs(), [1]);
    [0, 1].into_iter().for_each(|device| peer.ack(1, device));
    assert_eq!(peer.events(), []);
    peer.ack(1, 2);
    assert_eq!(peer.events(), [complete(0, CompletedBy::Devices)]);
}

#[test]
fn a_server_that_requests_confirmed_updates_is_told_what_it_confirmed() {
    let mut peer = Peer::started(config(0));
    peer.updates(3);
    peer.sent();
    peer.receive(2, Body::ServerAck);
    peer.sent();
    peer.receive(2, Body::Recover { incarnation: 6 });
    assert!(
        !peer.sent().contains(&Sent::Other(kind::CONFIRMED, 2)),
        "the server has every update that it confirmed"
    );
    peer.receive(1, Body::Recover { incarnation: 7 });
    assert!(peer.sent().contains(&Sent::Other(kind::CONFIRMED, 2)));
    peer.receive(2, Body::Retransmit { count: 1 });
    assert!(peer.sent().contains(&Sent::Other(kind::CONFIRMED, 2)));
    peer.events();
    peer.receive(3, Body::SessionRefused(Refusal::Behind));
    assert_eq!(peer.events(), [Event::Refused(Refusal::Behind)]);
}
