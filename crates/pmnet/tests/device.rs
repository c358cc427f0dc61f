//! Tests of the device's pipeline, packet by packet.

mod support;

use landfall_pmnet::Flow;
use landfall_pmnet::device::{Action, CacheConfig, Codec, DeviceConfig, ServerState, Side, Verdict};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Fragment, Packet, Refusal, Role, kind};
use std::net::SocketAddr;
use std::time::Duration;
use support::{Bench, blank, flow, identity, update};

const MS: Duration = Duration::from_millis(1);

/// A packet that a device sends, in a form for comparisons.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Made { from: SocketAddr, to: SocketAddr, bytes: Vec<u8> },
    Again(Vec<u8>),
}

impl Bench {
    fn new(config: DeviceConfig) -> Self {
        Self::over(blank(false), config)
    }

    fn up(&mut self, flow: Flow, bytes: &[u8]) -> Verdict {
        self.arrive(Side::Clients, flow, bytes)
    }

    fn down(&mut self, flow: Flow, bytes: &[u8]) -> Verdict {
        self.arrive(Side::Server, flow, bytes)
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(action) = self.device.poll_action() {
            sent.push(match action {
                Action::Datagram { from, to, payload, .. } => Sent::Made { from, to, bytes: payload },
                Action::Logged { stored, .. } => {
                    let bytes = self.device.log().bytes_of(&stored).unwrap();
                    self.device.sent(&stored);
                    Sent::Again(bytes)
                }
            });
        }
        sent
    }

    fn free_runs(&self) -> u32 {
        self.device.log().heap().runs().counts().free
    }
}

fn quiet() -> DeviceConfig {
    DeviceConfig {
        number: Some(3),
        incarnation: 77,
        heartbeat_every: Duration::ZERO,
        ..DeviceConfig::default()
    }
}

fn ack(flow: Flow, seq: u32) -> Sent {
    let mut header = Packet::new(1, seq, Body::Update(b"")).header;
    (header.kind, header.ack_count) = (kind::PMNET_ACK, 3);
    Sent::Made { from: flow.server, to: flow.client, bytes: header.to_bytes().to_vec() }
}

#[test]
fn an_update_is_forwarded_at_once_and_acknowledged_after_the_fence() {
    let mut bench = Bench::new(quiet());
    let bytes = update(&identity(1, 1, 9), 300);
    assert_eq!(bench.up(flow(1), &bytes), Verdict::Forward);
    assert_eq!(bench.sent(), []);
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [ack(flow(1), 9)]);
    // A repeated update is acknowledged again at once.
    assert_eq!(bench.up(flow(1), &bytes), Verdict::Forward);
    assert_eq!(bench.sent(), [ack(flow(1), 9)]);
    // Another packet with its identity is never acknowledged.
    assert_eq!(bench.up(flow(1), &update(&identity(1, 1, 9), 301)), Verdict::Forward);
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), []);
}

#[test]
fn unconfirmed_updates_are_sent_again_with_growing_pauses() {
    let mut bench = Bench::new(quiet());
    let bytes = update(&identity(1, 1, 1), 60);
    bench.up(flow(1), &bytes);
    bench.device.commit().unwrap();
    bench.sent();
    let mut times = Vec::new();
    for at in 1..=2000_u32 {
        bench.wait(MS);
        if bench.sent() == [Sent::Again(bytes.clone())] {
            times.push(at);
        }
    }
    assert_eq!(times, [100, 300, 700, 1500]);
    bench.down(flow(1), &Packet::new(1, 1, Body::ServerAck).to_bytes());
    bench.wait(Duration::from_secs(100));
    assert_eq!(bench.sent(), []);
    assert!(bench.device.log().is_empty());
}

#[test]
fn no_more_than_a_window_of_repetitions_is_unconfirmed() {
    let mut bench = Bench::new(DeviceConfig { resend_window: 8, ..quiet() });
    for seq in 1..=100 {
        bench.up(flow(1), &update(&identity(1, 1, seq), 60));
    }
    bench.device.commit().unwrap();
    let mut bench = bench.restarted(DeviceConfig { resend_window: 8, ..quiet() });
    let mut confirmed = 0;
    while confirmed < 100 {
        bench.wait(Duration::ZERO);
        let sent = bench.sent();
        assert_eq!(sent.len(), 8.min(100 - confirmed as usize));
        let expected: Vec<_> = (confirmed + 1..)
            .map(|seq| Sent::Again(update(&identity(1, 1, seq), 60)))
            .take(sent.len())
            .collect();
        assert_eq!(sent, expected);
        confirmed += sent.len() as u32;
        bench.down(flow(1), &Packet::new(1, confirmed, Body::ServerAck).to_bytes());
    }
    assert!(bench.device.log().is_empty());
}

#[test]
fn a_silent_server_gets_nothing_and_then_all_its_updates_when_it_answers() {
    let config = DeviceConfig { heartbeat_every: 10 * MS, resend_after: 50 * MS, ..quiet() };
    let mut bench = Bench::new(config);
    let bytes = update(&identity(1, 1, 1), 60);
    bench.up(flow(1), &bytes);
    bench.device.commit().unwrap();
    let answer = |bench: &mut Bench, incarnation| {
        bench.wait(10 * MS);
        let heartbeat = bench.sent().into_iter().find_map(|sent| match sent {
            Sent::Made { to, bytes, .. } if to == flow(1).server => Some(bytes),
            _ => None,
        });
        let heartbeat = heartbeat.expect("a heartbeat");
        let asked = Packet::parse(&heartbeat).unwrap();
        let Body::Heartbeat { nonce, role: Role::Device, number: 3 } = asked.body else {
            panic!("{asked:?}")
        };
        let reply =
            Body::HeartbeatReply { nonce, role: Role::Server, number: 0, declines: false, incarnation };
        assert_eq!(bench.down(flow(1), &Packet::new(0, 0, reply).to_bytes()), Verdict::Taken);
    };
    answer(&mut bench, 5);
    assert_eq!(bench.device.servers().next(), Some((flow(1).server, ServerState::Alive)));
    for _ in 0..5 {
        bench.wait(10 * MS);
        bench.sent();
    }
    assert_eq!(bench.device.servers().next(), Some((flow(1).server, ServerState::Silent)));
    let mut again = 0;
    for _ in 0..30 {
        bench.wait(10 * MS);
        again += bench.sent().iter().filter(|sent| matches!(sent, Sent::Again(_))).count();
    }
    assert_eq!(again, 0, "nothing is sent to a silent server");
    answer(&mut bench, 6);
    bench.wait(Duration::ZERO);
    assert_eq!(bench.sent(), [Sent::Again(bytes)]);
}

#[test]
fn retransmission_and_recovery_requests_are_answered_from_the_log() {
    let mut bench = Bench::new(quiet());
    for seq in [1, 2, 4] {
        bench.up(flow(1), &update(&identity(1, 1, seq), 60));
    }
    bench.device.commit().unwrap();
    bench.sent();
    let again = |seq| Sent::Again(update(&identity(1, 1, seq), 60));
    let ask = |seq, count| Packet::new(1, seq, Body::Retransmit { count }).to_bytes();
    assert_eq!(bench.down(flow(1), &ask(1, 2)), Verdict::Taken);
    assert_eq!(bench.sent(), [again(1), again(2)]);
    assert_eq!(bench.down(flow(1), &ask(2, 3)), Verdict::Forward, "the client must send 3");
    assert_eq!(bench.sent(), [again(2), again(4)]);
    let recover = Packet::new(1, 1, Body::Recover { incarnation: 8 }).to_bytes();
    assert_eq!(bench.down(flow(1), &recover), Verdict::Forward);
    bench.wait(Duration::ZERO);
    assert_eq!(bench.sent(), [again(2), again(4)]);
}

#[test]
fn a_heartbeat_is_answered_and_forwarded_and_replies_to_others_are_forwarded() {
    let mut bench = Bench::new(quiet());
    let ask = Packet::new(0, 0, Body::Heartbeat { nonce: 42, role: Role::Client, number: 0 }).to_bytes();
    assert_eq!(bench.up(flow(1), &ask), Verdict::Forward);
    let reply =
        Body::HeartbeatReply { nonce: 42, role: Role::Device, number: 3, declines: false, incarnation: 77 };
    let bytes = Packet::new(0, 0, reply).to_bytes();
    assert_eq!(bench.sent(), [Sent::Made { from: flow(1).server, to: flow(1).client, bytes: bytes.clone() }]);
    assert_eq!(bench.down(flow(1), &bytes), Verdict::Forward);
}

#[test]
fn packets_of_unknown_types_are_forwarded() {
    let mut bench = Bench::new(quiet());
    for bytes in [&b""[..], b"short", &[0x77; 40], &[0xff; 16], &[kind::UPDATE_FRAGMENT; 16]] {
        assert_eq!(bench.up(flow(1), bytes), Verdict::Forward);
        assert_eq!(bench.down(flow(1), bytes), Verdict::Forward);
    }
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), []);
}

#[test]
fn packets_of_servers_are_not_accepted_from_the_clients_side() {
    let mut bench = Bench::new(DeviceConfig { heartbeat_every: 10 * MS, ..quiet() });
    bench.up(flow(1), &update(&identity(1, 1, 1), 60));
    bench.device.commit().unwrap();
    bench.sent();
    let nonce = 77 ^ 3_u64.rotate_left(17);
    let reply =
        Body::HeartbeatReply { nonce, role: Role::Server, number: 0, declines: false, incarnation: 9 };
    let forged = [
        Packet::new(1, 1, Body::ServerAck),
        Packet::new(1, 1, Body::Response(b"done")),
        Packet::new(1, 0, Body::Recover { incarnation: 8 }),
        Packet::new(1, 1, Body::Retransmit { count: 1 }),
        Packet::new(0, 0, reply),
    ];
    let Flow { client, server } = flow(1);
    let turned = Flow { client: server, server: client };
    for packet in forged {
        let verdict = bench.arrive(Side::Clients, turned, &packet.to_bytes());
        assert_eq!(verdict, Verdict::Forward, "{packet:?}");
        bench.wait(Duration::ZERO);
        assert!(bench.device.log().contains(&identity(1, 1, 1)), "{packet:?}");
        assert_eq!(bench.sent(), [], "{packet:?}");
    }
    assert_eq!(bench.device.servers().next(), Some((server, ServerState::Unknown)));
    // Updates are not accepted from the server's side.
    bench.arrive(Side::Server, turned, &update(&identity(1, 1, 2), 60));
    assert!(!bench.device.log().contains(&identity(1, 1, 2)));
    assert_eq!(bench.device.stats().wrong_side, 6);
    bench.down(flow(1), &Packet::new(1, 1, Body::ServerAck).to_bytes());
    assert!(bench.device.log().is_empty());
}

fn refused(seq: u32, why: Refusal) -> Vec<u8> {
    Packet::new(1, seq, Body::SessionRefused(why)).to_bytes()
}

#[test]
fn updates_of_a_session_that_the_server_does_not_know_are_removed() {
    let mut bench = Bench::new(quiet());
    for seq in [1, 2] {
        bench.up(flow(1), &update(&identity(1, 1, seq), 60));
    }
    bench.device.commit().unwrap();
    bench.down(flow(1), &refused(1, Refusal::InUse));
    bench.up(flow(1), &refused(1, Refusal::Unknown));
    assert_eq!(bench.device.log().len(), 2, "another reason, or from the clients' side");
    assert_eq!(bench.down(flow(1), &refused(1, Refusal::Unknown)), Verdict::Forward);
    assert!(
        !bench.device.log().contains(&identity(1, 1, 1)) && bench.device.log().contains(&identity(1, 1, 2))
    );
    // After a crash the update may be in the log again, and is removed again.
    let mut bench = bench.restarted(quiet());
    for seq in [1, 2] {
        bench.down(flow(1), &refused(seq, Refusal::Unknown));
    }
    assert!(bench.device.log().is_empty());
}

#[test]
fn acknowledged_updates_of_an_accepted_session_stay_when_it_is_refused() {
    let mut bench = Bench::new(quiet());
    start(&mut bench, flow(1));
    bench.up(flow(1), &update(&identity(1, 1, 1), 60));
    bench.up(flow(2), &update(&identity(2, 1, 1), 60));
    start(&mut bench, flow(2));
    bench.up(flow(2), &update(&identity(2, 1, 2), 60));
    // A server also confirms numbers at or below its floor in sessions that it does not know.
    for seq in [1, 2] {
        bench.up(flow(3), &update(&identity(3, 1, seq), 60));
    }
    bench.down(flow(3), &Packet::new(1, 1, Body::ServerAck).to_bytes());
    bench.device.commit().unwrap();
    let refuse = |bench: &mut Bench| {
        for (client, seq) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)] {
            bench.down(flow(client), &refused(seq, Refusal::Unknown));
        }
        bench.device.log().identities(|_| true)
    };
    let kept = [identity(1, 1, 1), identity(2, 1, 1), identity(2, 1, 2)];
    assert_eq!(refuse(&mut bench), kept);
    // A crash does not change that: the server may have lost its state, and may get it back.
    let mut bench = bench.restarted(quiet());
    assert_eq!(refuse(&mut bench), kept);
}

#[test]
fn heartbeats_carry_the_address_of_a_client_that_has_a_path() {
    let mut bench = Bench::new(DeviceConfig { heartbeat_every: 10 * MS, ..quiet() });
    for client in [1, 2] {
        bench.device.log_mut().set_path(flow(client), 600 + client, 1).unwrap();
        bench.up(flow(client), &update(&identity(client, 1, 1), 60));
    }
    bench.device.commit().unwrap();
    bench.sent();
    bench.down(flow(2), &Packet::new(1, 1, Body::ServerAck).to_bytes());
    assert!(!bench.device.remove_path(flow(1)) && bench.device.remove_path(flow(2)));
    bench.wait(10 * MS);
    let asked: Vec<Sent> = bench.sent();
    assert!(matches!(&asked[..], [Sent::Made { from, .. }] if *from == flow(1).client), "{asked:?}");
    bench.down(flow(1), &Packet::new(1, 1, Body::ServerAck).to_bytes());
    assert!(bench.device.remove_path(flow(1)));
    bench.wait(10 * MS);
    assert_eq!((bench.sent(), bench.device.servers().next()), (vec![], None));
}

#[test]
fn another_devices_acknowledgement_is_forwarded() {
    let mut bench = Bench::new(quiet());
    assert_eq!(bench.down(flow(1), &Packet::new(1, 1, Body::PmnetAck).to_bytes()), Verdict::Forward);
}

fn cached() -> DeviceConfig {
    let cache = CacheConfig { packet_life: 500 * MS, ..CacheConfig::new(Codec::Plain) };
    DeviceConfig { cache: Some(cache), ..quiet() }
}

fn request(op: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    [&[op][..], &(key.len() as u16).to_le_bytes(), key, value].concat()
}

fn set(seq: u32, key: &[u8], value: &[u8]) -> Vec<u8> {
    Packet::new(1, seq, Body::Update(&request(b'S', key, value))).to_bytes()
}

fn get(number: u32, key: &[u8]) -> Vec<u8> {
    let request = request(b'G', key, b"");
    Packet::new(1, FIRST_BYPASS + number, Body::Bypass { after: None, request: &request }).to_bytes()
}

fn start(bench: &mut Bench, flow: Flow) {
    let started = Body::SessionStarted {
        nonce: 1,
        first_update: 1,
        first_bypass: FIRST_BYPASS,
        incarnation: 1,
        lease: 0,
    };
    bench.down(flow, &Packet::new(1, 0, started).to_bytes());
}

fn hit(flow: Flow, number: u32, response: &[u8]) -> Sent {
    let bytes = Packet::new(1, FIRST_BYPASS + number, Body::CacheResponse(response)).to_bytes();
    Sent::Made { from: flow.server, to: flow.client, bytes }
}

#[test]
fn a_read_is_answered_from_the_cache_once_the_update_is_durable() {
    let mut bench = Bench::new(cached());
    start(&mut bench, flow(1));
    bench.up(flow(1), &set(1, b"k", b"new"));
    assert_eq!(bench.up(flow(1), &get(0, b"k")), Verdict::Forward, "not durable yet");
    bench.device.commit().unwrap();
    bench.sent();
    assert_eq!(bench.up(flow(1), &get(1, b"k")), Verdict::Taken);
    assert_eq!(bench.sent(), [hit(flow(1), 1, b"Vnew")]);
    // The order of this update and another session's update of the key is not known.
    start(&mut bench, flow(2));
    bench.up(flow(2), &set(1, b"k", b"newer"));
    bench.device.commit().unwrap();
    bench.sent();
    assert_eq!(bench.up(flow(1), &get(2, b"k")), Verdict::Forward);
    assert_eq!(bench.up(flow(1), &get(3, b"other")), Verdict::Forward);
}

#[test]
fn a_response_fills_the_cache_and_an_update_evicts_it() {
    let mut bench = Bench::new(cached());
    start(&mut bench, flow(1));
    assert_eq!(bench.up(flow(1), &get(0, b"k")), Verdict::Forward);
    bench.down(flow(1), &Packet::new(1, FIRST_BYPASS, Body::Response(b"Vold")).to_bytes());
    assert_eq!(bench.up(flow(2), &get(1, b"k")), Verdict::Taken);
    assert_eq!(bench.sent(), [hit(flow(2), 1, b"Vold")]);
    bench.up(flow(1), &Packet::new(1, 1, Body::Update(&request(b'D', b"k", b""))).to_bytes());
    assert_eq!(bench.up(flow(2), &get(2, b"k")), Verdict::Forward);
}

/// The pieces of a `SET`, numbered from `first` on, on a path with an MTU of 1500.
fn long_set(first: u32, key: &str, len: usize) -> Vec<Vec<u8>> {
    let (bytes, value) = (key.len(), "x".repeat(len));
    let request = format!("*3\r\n$3\r\nSET\r\n${bytes}\r\n{key}\r\n${len}\r\n{value}\r\n");
    let (count, total) = (request.len().div_ceil(1448) as u16, request.len() as u32);
    let place = |index| Fragment { index, count, total };
    let piece = |(index, piece)| {
        Packet::new(1, first + u32::from(index), Body::UpdateFragment(place(index), piece)).to_bytes()
    };
    (0..).zip(request.as_bytes().chunks(1448)).map(piece).collect()
}

/// A device whose cache has the server's values of `other` and `long`.
fn with_two_values() -> Bench {
    let cache = CacheConfig::new(Codec::Resp { keep_responses: true });
    let mut bench = Bench::new(DeviceConfig { cache: Some(cache), ..quiet() });
    start(&mut bench, flow(1));
    start(&mut bench, flow(2));
    fill(&mut bench, 0, "other");
    fill(&mut bench, 1, "long");
    assert!(is_hit(&mut bench, 2, "other") && is_hit(&mut bench, 3, "long"));
    bench
}

/// A read misses, and its response fills the cache.
fn fill(bench: &mut Bench, number: u32, key: &str) {
    assert!(!is_hit(bench, number, key));
    let response = Body::Response(b"$3\r\nold\r\n");
    bench.down(flow(2), &Packet::new(1, FIRST_BYPASS + number, response).to_bytes());
}

fn is_hit(bench: &mut Bench, number: u32, key: &str) -> bool {
    let request = format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len());
    let body = Body::Bypass { after: None, request: request.as_bytes() };
    bench.up(flow(2), &Packet::new(1, FIRST_BYPASS + number, body).to_bytes()) == Verdict::Taken
}

#[test]
fn an_update_of_several_packets_evicts_only_its_own_key_until_all_of_it_is_applied() {
    let mut bench = with_two_values();
    let mut number = 4..;
    let mut reads =
        |bench: &mut Bench| ["other", "long"].map(|key| is_hit(bench, number.next().unwrap(), key));
    for piece in long_set(1, "long", 5000) {
        bench.up(flow(1), &piece);
        assert_eq!(reads(&mut bench), [true, false]);
    }
    bench.device.commit().unwrap();
    assert_eq!(reads(&mut bench), [true, false], "no packet contains the whole value");
    bench.down(flow(1), &Packet::new(1, 3, Body::ServerAck).to_bytes());
    fill(&mut bench, 50, "long");
    assert_eq!(reads(&mut bench), [true, false], "the last piece is not applied");
    bench.down(flow(1), &Packet::new(1, 4, Body::ServerAck).to_bytes());
    fill(&mut bench, 51, "long");
    assert_eq!(reads(&mut bench), [true, true]);
}

#[test]
fn pieces_that_arrive_before_the_first_may_change_any_key() {
    let mut bench = with_two_values();
    let pieces = long_set(1, "long", 5000);
    bench.up(flow(1), &pieces[2]);
    assert!(!is_hit(&mut bench, 10, "other") && !is_hit(&mut bench, 11, "long"));
    for index in [0, 1, 3, 2, 0] {
        bench.up(flow(1), &pieces[index]);
    }
    assert!(
        !is_hit(&mut bench, 12, "other"),
        "values are dropped, and none is stored before the update is applied"
    );
    bench.down(flow(1), &Packet::new(1, 4, Body::ServerAck).to_bytes());
    fill(&mut bench, 13, "other");
    fill(&mut bench, 14, "long");
    assert!(is_hit(&mut bench, 15, "other") && is_hit(&mut bench, 16, "long"));
}

#[test]
fn after_a_restart_reads_are_answered_only_when_packets_from_before_are_gone() {
    let mut bench = Bench::new(cached());
    start(&mut bench, flow(1));
    bench.up(flow(1), &set(1, b"k", b"v"));
    bench.device.commit().unwrap();
    let mut bench = bench.restarted(cached());
    bench.sent();
    assert_eq!(bench.up(flow(2), &get(1, b"k")), Verdict::Forward);
    bench.wait(501 * MS);
    // The server's value fills the cache when nothing is in flight, for a session whose reads are known to be new.
    bench.down(flow(1), &Packet::new(1, 1, Body::ServerAck).to_bytes());
    start(&mut bench, flow(3));
    assert_eq!(bench.up(flow(3), &get(0, b"k")), Verdict::Forward);
    bench.down(flow(3), &Packet::new(1, FIRST_BYPASS, Body::Response(b"Vv")).to_bytes());
    bench.sent();
    assert_eq!(bench.up(flow(3), &get(1, b"k")), Verdict::Taken);
    assert_eq!(bench.sent(), [hit(flow(3), 1, b"Vv")]);
}

#[test]
fn a_cache_holds_no_more_than_its_bytes_when_the_server_confirms_before_the_fence() {
    let mut config = cached();
    config.cache.as_mut().unwrap().limits.bytes_max = 10_000;
    let mut bench = Bench::new(config);
    start(&mut bench, flow(1));
    let free = bench.free_runs();
    for seq in 1..=8000 {
        bench.up(flow(1), &set(seq, b"k", &[b'v'; 1200]));
        bench.down(flow(1), &Packet::new(1, seq, Body::ServerAck).to_bytes());
        bench.device.commit().unwrap();
        assert_eq!(bench.device.cached(), (0, 0), "update {seq}");
    }
    assert!(
        bench.free_runs() + 2 >= free,
        "frames are still held: {} of {free} runs are free",
        bench.free_runs()
    );
}

#[test]
fn a_long_value_is_stored_by_reference_and_a_short_one_is_copied() {
    let mut bench = Bench::new(cached());
    start(&mut bench, flow(1));
    bench.up(flow(1), &set(1, b"long", &[b'v'; 1200]));
    bench.up(flow(1), &set(2, b"short", b"v"));
    bench.device.commit().unwrap();
    bench.sent();
    assert_eq!(bench.device.cached(), (2, 4 + 2048 + 5 + 1));
    bench.down(flow(1), &Packet::new(1, 2, Body::ServerAck).to_bytes());
    // The entries are removed. The frame of the long value is still held.
    assert!(bench.device.log().is_empty());
    assert_eq!(bench.up(flow(2), &get(1, b"long")), Verdict::Taken);
    assert_eq!(bench.sent(), [hit(flow(2), 1, &[b"V", &[b'v'; 1200][..]].concat())]);
    assert_eq!(bench.up(flow(2), &get(2, b"short")), Verdict::Taken);
    assert_eq!(bench.sent(), [hit(flow(2), 2, b"Vv")]);
}

#[test]
fn a_response_in_the_cache_is_stored_by_reference() {
    let mut bench = Bench::new(cached());
    start(&mut bench, flow(1));
    bench.up(flow(1), &get(0, b"k"));
    let response = [b"V", &[b'o'; 1100][..]].concat();
    bench.down(flow(1), &Packet::new(1, FIRST_BYPASS, Body::Response(&response)).to_bytes());
    assert_eq!(bench.device.cached(), (1, 1 + 2048));
    // Meanwhile the landing space is reused several times.
    for number in 1..2000 {
        bench.up(flow(2), &get(number, b"other"));
    }
    bench.sent();
    assert_eq!(bench.up(flow(1), &get(1, b"k")), Verdict::Taken);
    assert_eq!(bench.sent(), [hit(flow(1), 1, &response)]);
}

#[test]
fn the_cache_releases_frames_when_the_log_needs_them() {
    let mut config = cached();
    config.cache.as_mut().unwrap().limits.bytes_max = 1 << 30;
    let mut bench = Bench::new(config);
    start(&mut bench, flow(1));
    let value = [b'v'; 1200];
    // One value in each run holds its frame. These values alone would keep every run from being freed.
    for seq in 1_u32..=20_000 {
        let key = if seq % 400 == 0 { seq.to_le_bytes() } else { [0; 4] };
        bench.up(flow(1), &set(seq, &key, &value));
        bench.device.commit().unwrap();
        bench.down(flow(1), &Packet::new(1, seq, Body::ServerAck).to_bytes());
    }
    let stats = bench.device.stats();
    assert_eq!((stats.logged, stats.not_logged.len()), (20_000, 0));
    assert!(bench.device.cached().0 > 1);
}

/// The acknowledgement of other devices for an update: a joint one if there are `more`.
fn others(seq: u32, nearest: u8, more: &[u8]) -> Vec<u8> {
    let body = if more.is_empty() { Body::PmnetAck } else { Body::JointAck(more) };
    let mut packet = Packet::new(1, seq, body);
    packet.header.ack_count = nearest;
    packet.header.hash = Packet::new(1, seq, Body::Update(b"")).header.hash;
    packet.to_bytes()
}

/// The joint acknowledgement of this device and others that the device sends.
fn joint(flow: Flow, seq: u32, more: &[u8]) -> Sent {
    let mut header = Packet::new(1, seq, Body::Update(b"")).header;
    (header.kind, header.ack_count) = (kind::JOINT_ACK, 3);
    let bytes = Packet { header, body: Body::JointAck(more) }.to_bytes();
    Sent::Made { from: flow.server, to: flow.client, bytes }
}

/// A device in front of others, which have acknowledged one update without delay.
fn in_front_of_others(config: DeviceConfig) -> Bench {
    let mut bench = Bench::new(config);
    bench.up(flow(1), &update(&identity(1, 1, 1), 40));
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [ack(flow(1), 1)], "no other device is known yet");
    assert_eq!(bench.down(flow(1), &others(1, 4, &[])), Verdict::Forward);
    assert_eq!(bench.sent(), []);
    bench
}

#[test]
fn a_device_in_front_of_others_acknowledges_with_them_in_one_packet() {
    let mut bench = in_front_of_others(quiet());
    bench.up(flow(1), &update(&identity(1, 1, 2), 40));
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [], "its own acknowledgement is delayed");
    assert_eq!(bench.down(flow(1), &others(2, 4, &[5, 6])), Verdict::Taken);
    assert_eq!(bench.sent(), [joint(flow(1), 2, &[4, 5, 6])]);
    // No acknowledgement of its own remains to be joined.
    assert_eq!(bench.down(flow(1), &others(2, 4, &[5, 6])), Verdict::Forward);
    let stats = bench.device.stats();
    assert_eq!((stats.acknowledged, stats.joined), (1, 1));
}

#[test]
fn others_acknowledgements_wait_for_this_devices_fence() {
    let mut bench = in_front_of_others(quiet());
    bench.up(flow(1), &update(&identity(1, 1, 2), 40));
    for (nearest, more) in [(4, &[][..]), (5, &[]), (4, &[5])] {
        assert_eq!(bench.down(flow(1), &others(2, nearest, more)), Verdict::Taken);
        assert_eq!(bench.sent(), []);
    }
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [joint(flow(1), 2, &[4, 5])]);
}

#[test]
fn a_delayed_acknowledgement_is_sent_when_the_update_arrives_again() {
    let mut bench = in_front_of_others(quiet());
    let bytes = update(&identity(1, 1, 2), 40);
    bench.up(flow(1), &bytes);
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.up(flow(1), &bytes), Verdict::Forward);
    assert_eq!(bench.sent(), [ack(flow(1), 2)]);
    // There may be no device behind it any more, so it does not wait until one acknowledges.
    bench.up(flow(1), &update(&identity(1, 1, 3), 40));
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [ack(flow(1), 3)]);
    assert_eq!(bench.down(flow(1), &others(3, 4, &[])), Verdict::Forward);
    bench.up(flow(1), &update(&identity(1, 1, 4), 40));
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), []);
}

#[test]
fn no_acknowledgement_is_delayed_for_slow_devices() {
    let mut bench = Bench::new(quiet());
    let mut kept = Vec::new();
    // They take 20 µs, then 1 µs. The device delays its own when their smoothed lag is at most 5 µs.
    for seq in 1..=40 {
        bench.up(flow(1), &update(&identity(1, 1, seq), 40));
        bench.device.commit().unwrap();
        if bench.sent().is_empty() {
            kept.push(seq);
        }
        bench.now = bench.now + Duration::from_micros(if seq <= 10 { 20 } else { 1 });
        bench.down(flow(1), &others(seq, 4, &[]));
        bench.sent();
    }
    let first = *kept.first().expect("some are delayed");
    assert!((12..30).contains(&first) && kept.len() as u32 == 41 - first, "{kept:?}");
}

#[test]
fn the_lag_is_measured_for_each_server() {
    let mut bench = in_front_of_others(quiet());
    let other = Flow { server: "10.0.0.3:51000".parse().unwrap(), ..flow(1) };
    bench.up(other, &update(&identity(1, 1, 2), 40));
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [ack(other, 2)]);
}

#[test]
fn acknowledgements_that_cannot_be_joined_are_forwarded() {
    let mut bench = in_front_of_others(quiet());
    bench.up(flow(1), &update(&identity(1, 1, 2), 40));
    // An unknown update; the device's own number, which is a misconfiguration; no number.
    for bytes in [others(9, 4, &[]), others(2, 3, &[]), others(2, 4, &[3]), others(2, 251, &[])] {
        assert_eq!(bench.down(flow(1), &bytes), Verdict::Forward);
    }
    // The update is removed while others' acknowledgements wait: the client no longer needs them.
    assert_eq!(bench.down(flow(1), &others(2, 4, &[])), Verdict::Taken);
    bench.down(flow(1), &Packet::new(1, 2, Body::ServerAck).to_bytes());
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.down(flow(1), &others(2, 4, &[])), Verdict::Forward);
    // After a failure of the medium no further update will be durable here.
    bench.up(flow(1), &update(&identity(1, 1, 3), 40));
    bench.media.fail_at(bench.media.ops().fences + 1);
    bench.device.commit().unwrap_err();
    assert_eq!(bench.down(flow(1), &others(3, 4, &[])), Verdict::Forward);
    assert_eq!(bench.sent(), []);
}

#[test]
fn a_device_without_a_number_or_with_joining_disabled_joins_nothing() {
    let separate = DeviceConfig { keep_back: Duration::ZERO, ..quiet() };
    for config in [DeviceConfig { number: None, ..quiet() }, separate] {
        let mut bench = Bench::new(config);
        for seq in 1..=2 {
            bench.up(flow(1), &update(&identity(1, 1, seq), 40));
            assert_eq!(bench.down(flow(1), &others(seq, 4, &[])), Verdict::Forward);
            bench.device.commit().unwrap();
            assert_eq!(bench.sent().len(), 1);
            assert_eq!(bench.down(flow(1), &others(seq, 4, &[])), Verdict::Forward);
        }
    }
}

#[test]
fn updates_of_a_session_that_is_behind_are_not_acknowledged_and_logged_ones_stay() {
    let mut bench = Bench::new(quiet());
    let (old, new) = (update(&identity(1, 1, 9), 300), update(&identity(1, 1, 10), 300));
    let started =
        Body::SessionStarted { nonce: 1, first_update: 9, first_bypass: 1 << 31, incarnation: 1, lease: 0 };
    bench.down(flow(1), &Packet::new(1, 0, started).to_bytes());
    bench.up(flow(1), &old);
    bench.device.commit().unwrap();
    bench.sent();
    let refusal = |reason| Packet::new(1, 9, Body::SessionRefused(reason)).to_bytes();
    bench.down(flow(1), &refusal(Refusal::Unknown));
    bench.up(flow(1), &old);
    assert_eq!(bench.sent(), [ack(flow(1), 9)], "only this reason stops acknowledgements");
    assert_eq!(bench.down(flow(1), &refusal(Refusal::Behind)), Verdict::Forward);
    for bytes in [&old, &new] {
        assert_eq!(bench.up(flow(1), bytes), Verdict::Forward);
    }
    bench.up(flow(2), &update(&identity(2, 1, 1), 300));
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [ack(flow(2), 1)], "other sessions are not affected");
    assert!(bench.device.log().contains(&identity(1, 1, 9)) && bench.device.stats().refused == 2);
    // The server continues the session.
    bench.down(flow(1), &Packet::new(1, 8, Body::ServerAck).to_bytes());
    bench.up(flow(1), &new);
    bench.device.commit().unwrap();
    assert_eq!(bench.sent(), [ack(flow(1), 10)]);
}

#[test]
fn a_server_is_told_how_many_updates_are_logged_fenced_or_not() {
    let mut bench = Bench::new(quiet());
    for seq in 3..=6 {
        bench.up(flow(1), &update(&identity(1, 1, seq), 40));
        if seq == 4 {
            bench.device.commit().unwrap();
        }
    }
    bench.sent();
    for (session, above, expected) in [(1, 4, 2), (1, 6, 0), (1, 0, 4), (2, 0, 0)] {
        let ask = Packet::new(session, above, Body::HeldRequest { nonce: 9 }).to_bytes();
        assert_eq!(bench.down(flow(1), &ask), Verdict::Forward, "the client must receive it, too");
        let held =
            Packet::new(session, above, Body::Held { nonce: 9, number: 3, count: expected }).to_bytes();
        assert_eq!(bench.sent(), [Sent::Made { from: flow(1).client, to: flow(1).server, bytes: held }]);
    }
    // From the clients' side it does not come from a server.
    assert_eq!(
        bench.up(flow(1), &Packet::new(1, 0, Body::HeldRequest { nonce: 9 }).to_bytes()),
        Verdict::Forward
    );
    assert_eq!(bench.sent(), []);
}
