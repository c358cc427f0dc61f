//! Tests of a device between the authors' clients and servers: `docs/format/pmnet.md`, "Foreign clients and servers".

mod support;

use landfall_pmnet::Dialect;
use landfall_pmnet::Dialect::{ForeignBoth, ForeignClients, Landfall};
use landfall_pmnet::device::{Action, CacheConfig, Codec, DeviceConfig, Side, Verdict};
use landfall_pmnet::wire::{Body, FROM_HOSTS, Header, Packet, Refusal, SENT_AGAIN, kind};
use std::time::Duration;
use support::{Bench, blank, flow};

const SESSION: u16 = 50_000;
const MS: Duration = Duration::from_millis(1);

/// A packet that the device sends: to one side, or an update of the log unchanged.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    ToClient(Vec<u8>),
    ToServer(Vec<u8>),
    Again(Vec<u8>),
}

/// The hash that the release's clients write, of a number or of a key.
fn hash(of: u32) -> u32 {
    of.wrapping_mul(2048) % 0x8000_0000 + 0x8000_0000
}

fn packet(kind: u8, seq: u32, hash: u32, request: &[u8]) -> Vec<u8> {
    let header = Header { kind, ack_count: FROM_HOSTS, session: SESSION, seq, hash };
    [&header.to_bytes()[..], request].concat()
}

fn update(seq: u32) -> Vec<u8> {
    packet(
        kind::UPDATE,
        seq,
        hash(seq),
        format!("*3\r\n$3\r\nSET\r\n$1\r\n{}\r\n$1\r\nv\r\n", seq % 10).as_bytes(),
    )
}

/// A read of the release's clients. Its keys are numbers, which are hashed.
fn read(seq: u32, key: u32) -> Vec<u8> {
    packet(kind::BYPASS, seq, hash(key), format!("*2\r\n$3\r\nGET\r\n$1\r\n{key}\r\n").as_bytes())
}

fn response(seq: u32) -> Vec<u8> {
    Packet::new(SESSION, seq, Body::Response(b"+OK\r\n")).to_bytes()
}

/// A recover packet in the release's form.
fn recover(seq: u32) -> Vec<u8> {
    packet(kind::RECOVER, seq, hash(seq), b"")
}

fn ack(seq: u32) -> Sent {
    Sent::ToClient(packet(kind::PMNET_ACK, seq, hash(seq), b""))
}

fn speaking(dialect: Dialect) -> DeviceConfig {
    DeviceConfig { dialect, ..DeviceConfig::default() }
}

impl Bench {
    fn new(dialect: Dialect) -> Self {
        Self::over(blank(false), speaking(dialect))
    }

    /// A packet from the client. Its log entry is fenced.
    fn up(&mut self, bytes: &[u8]) -> Verdict {
        let verdict = self.arrive(Side::Clients, flow(1), bytes);
        self.device.commit().unwrap();
        verdict
    }

    fn down(&mut self, bytes: &[u8]) -> Verdict {
        self.arrive(Side::Server, flow(1), bytes)
    }

    fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(action) = self.device.poll_action() {
            sent.push(match action {
                Action::Datagram { towards: Side::Clients, payload, .. } => Sent::ToClient(payload),
                Action::Datagram { payload, .. } => Sent::ToServer(payload),
                Action::Logged { stored, .. } => {
                    let bytes = self.device.log().bytes_of(&stored).unwrap();
                    self.device.sent(&stored);
                    Sent::Again(bytes)
                }
            });
        }
        sent
    }

    /// A device with a session that the server has accepted.
    fn taken(dialect: Dialect) -> Self {
        let mut bench = Self::new(dialect);
        bench.up(&update(0));
        bench.down(&response(0));
        bench.sent();
        bench
    }
}

#[test]
fn an_acknowledgement_carries_the_hash_of_its_update_even_if_it_is_repeated() {
    for dialect in [ForeignBoth, ForeignClients, Landfall] {
        let mut bench = Bench::taken(dialect);
        assert_eq!(bench.up(&update(1)), Verdict::Forward);
        assert_eq!(bench.sent(), [ack(1)], "{dialect:?}");
        bench.up(&update(1));
        assert_eq!(bench.sent(), [ack(1)], "{dialect:?}");
    }
}

#[test]
fn an_update_is_not_acknowledged_before_its_server_has_accepted_the_session() {
    let mut bench = Bench::new(ForeignClients);
    assert_eq!(bench.up(&update(0)), Verdict::Forward);
    assert_eq!(bench.up(&update(1)), Verdict::Forward);
    assert_eq!((bench.sent(), bench.device.log().len()), (vec![], 0));
    let refused = Packet::new(SESSION, 0, Body::SessionRefused(Refusal::Unknown)).to_bytes();
    assert_eq!(bench.down(&refused), Verdict::Forward, "the client receives the refusal");
    bench.up(&update(1));
    assert_eq!(bench.sent(), []);
    bench.down(&response(0));
    bench.up(&update(1));
    assert_eq!(bench.sent(), [ack(1)]);
    bench.down(&refused);
    assert_eq!(
        bench.device.log().len(),
        1,
        "acknowledged updates stay, even if the server loses the session"
    );
    let mut bench = bench.restarted(speaking(ForeignClients));
    bench.up(&update(2));
    assert_eq!(bench.sent(), [ack(2)], "the log stores that the session was accepted");
}

#[test]
fn without_the_mode_the_first_update_of_a_foreign_session_is_not_acknowledged() {
    let mut bench = Bench::new(Landfall);
    assert_eq!(bench.up(&update(0)), Verdict::Forward);
    assert_eq!((bench.sent(), bench.device.log().len()), (vec![], 0));
}

#[test]
fn a_server_of_the_release_accepts_all_sessions_and_update_0_is_logged() {
    let mut bench = Bench::new(ForeignBoth);
    bench.up(&update(0));
    assert_eq!(bench.sent(), [ack(0)]);
    bench.wait(100 * MS);
    assert_eq!(bench.sent(), [Sent::Again(update(0))], "unchanged");
    bench.down(&response(0));
    bench.wait(10_000 * MS);
    assert_eq!((bench.sent(), bench.device.log().len()), (vec![], 0));
    bench.up(&update(0));
    assert_eq!(bench.sent(), [ack(0)], "0 has no special meaning");
}

#[test]
fn recover_in_the_releases_form_means_exactly_this_number() {
    let mut bench = Bench::new(ForeignBoth);
    (0..4).for_each(|seq| assert_eq!(bench.up(&update(seq)), Verdict::Forward));
    bench.sent();
    for seq in [0, 2] {
        assert_eq!(bench.down(&recover(seq)), Verdict::Taken, "a client that awaits this number would exit");
        assert_eq!(bench.sent(), [Sent::Again(update(seq))]);
    }
    assert_eq!((bench.down(&recover(7)), bench.sent()), (Verdict::Forward, vec![]));
    let ours = Packet::new(SESSION, 1, Body::Recover { incarnation: 9 }).to_bytes();
    assert_eq!(bench.down(&ours), Verdict::Forward);
    bench.wait(MS);
    assert_eq!(
        bench.sent(),
        [Sent::Again(update(2)), Sent::Again(update(3))],
        "Landfall's form asks for all later updates"
    );
}

#[test]
fn only_a_landfall_server_is_told_that_no_log_has_a_number_and_only_by_the_first_device() {
    let mut bench = Bench::taken(ForeignClients);
    bench.up(&update(1));
    bench.sent();
    assert_eq!(bench.down(&recover(2)), Verdict::Taken);
    assert_eq!(bench.sent(), [Sent::ToServer(Packet::new(SESSION, 2, Body::Other(b"")).to_bytes())]);
    let config = DeviceConfig { dialect: ForeignClients, number: Some(1), ..DeviceConfig::default() };
    let mut second = Bench::over(blank(false), config);
    assert_eq!((second.down(&recover(2)), second.sent()), (Verdict::Forward, vec![]));
}

#[test]
fn updates_from_the_log_are_marked_for_a_landfall_server() {
    let mut bench = Bench::taken(ForeignClients);
    bench.up(&update(1));
    let own = Packet::new(7, 1, Body::Update(b"set")).to_bytes();
    bench.up(&own);
    bench.sent();
    let mut marked = update(1);
    marked[1] = SENT_AGAIN;
    bench.down(&recover(1));
    assert_eq!(bench.sent(), [Sent::ToServer(marked.clone())]);
    bench.wait(100 * MS);
    assert!(bench.sent().contains(&Sent::Again(own)), "updates of Landfall's clients are not marked");
}

#[test]
fn a_response_of_a_landfall_server_confirms_all_before_it_and_one_of_the_release_itself() {
    for (dialect, left) in [(ForeignClients, 1), (ForeignBoth, 3)] {
        let mut bench = Bench::taken(dialect);
        [1, 2, 4, 6].iter().for_each(|seq| assert_eq!(bench.up(&update(*seq)), Verdict::Forward));
        bench.down(&response(5));
        bench.down(&response(4));
        assert_eq!(bench.device.log().len(), left, "{dialect:?}");
    }
}

#[test]
fn servers_of_the_release_receive_only_requests() {
    let mut bench = Bench::new(ForeignBoth);
    bench.up(&update(0));
    bench.down(&response(0));
    bench.sent();
    for _ in 0..100 {
        bench.wait(100 * MS);
        assert_eq!(bench.sent(), []);
    }
    assert!(bench.device.next_timeout().is_none());
    let mut ours = Bench::taken(ForeignClients);
    ours.up(&update(1));
    ours.down(&response(1));
    ours.sent();
    ours.wait(200 * MS);
    assert!(matches!(&ours.sent()[..], [Sent::ToServer(bytes)] if bytes[0] == kind::HEARTBEAT));
}

#[test]
fn a_new_session_waits_until_the_log_has_no_updates_of_the_old_one_with_its_name() {
    let mut bench = Bench::taken(ForeignClients);
    bench.up(&update(1));
    bench.sent();
    assert_eq!(bench.up(&update(0)), Verdict::Taken);
    assert_eq!(bench.up(&packet(kind::BYPASS, 0, hash(0), b"get")), Verdict::Taken);
    assert_eq!(bench.device.stats().withheld, 2);
    bench.down(&response(1));
    assert_eq!(bench.up(&update(0)), Verdict::Forward);
    bench.up(&update(1));
    assert_eq!(bench.sent(), [], "its server has not accepted it yet");
    bench.down(&response(0));
    bench.up(&update(1));
    assert_eq!(bench.sent(), [ack(1)], "numbers of the old session do not matter");
}

fn cached(dialect: Dialect) -> Bench {
    let cache = Some(CacheConfig::new(Codec::Resp { keep_responses: true }));
    Bench::over(blank(false), DeviceConfig { dialect, cache, ..DeviceConfig::default() })
}

#[test]
fn a_cache_response_carries_number_and_hash_of_the_update_and_the_read_is_forwarded() {
    let mut bench = cached(ForeignClients);
    bench.up(&update(0));
    bench.down(&response(0));
    bench.up(&update(1));
    bench.sent();
    assert_eq!(bench.up(&read(2, 1)), Verdict::Forward, "the server must see no gap in the numbers");
    let hit = |key| Sent::ToClient(packet(kind::CACHE_RESPONSE, key, hash(key), b"$1\r\nv\r\n"));
    assert_eq!(bench.sent(), [hit(1)]);
    bench.down(&response(1));
    bench.down(&response(2));
    bench.up(&read(3, 1));
    assert_eq!(bench.sent(), [hit(1)], "after the confirmation it is still the key's value");
    bench.down(&response(3));
    bench.up(&update(14));
    bench.sent();
    bench.up(&read(15, 4));
    assert_eq!(
        bench.sent(),
        [],
        "the update of key 4 has another hash: the client would not recognise the answer"
    );
    assert_eq!(bench.device.stats().cache_hits, 2);
}

#[test]
fn reads_in_the_shared_numbering_do_not_drop_values() {
    let mut bench = cached(ForeignClients);
    for seq in 0..100 {
        let bytes = if seq % 2 == 0 { update(seq) } else { read(seq, (seq - 1) % 10) };
        bench.up(&bytes);
        bench.down(&response(seq));
    }
    assert_eq!(bench.device.cached().0, 5, "no response has made it drop values");
}

#[test]
fn a_value_from_a_response_is_not_served_to_foreign_clients() {
    let mut bench = cached(ForeignClients);
    bench.up(&update(0));
    bench.down(&response(0));
    bench.up(&read(1, 7));
    bench.down(&Packet::new(SESSION, 1, Body::Response(b"$1\r\nv\r\n")).to_bytes());
    assert_eq!(bench.device.cached().0, 1);
    bench.up(&read(2, 7));
    assert_eq!(bench.sent(), []);
}

#[test]
fn a_new_session_does_not_inherit_confirmations_of_an_old_one_with_its_name() {
    let mut bench = cached(ForeignClients);
    for seq in 0..5 {
        bench.up(&update(seq));
        bench.down(&response(seq));
    }
    let other = packet(kind::UPDATE, 1, hash(1), b"*3\r\n$3\r\nSET\r\n$1\r\n4\r\n$1\r\nw\r\n");
    bench.up(&update(0));
    bench.down(&response(0));
    bench.up(&other);
    bench.sent();
    bench.up(&read(2, 4));
    assert_eq!(bench.sent(), [], "key 4 was set by the new session's update 1: the old value would be stale");
}

#[test]
fn a_server_without_an_order_gets_no_cache() {
    let mut bench = cached(ForeignBoth);
    bench.up(&update(0));
    bench.sent();
    assert_eq!(bench.up(&read(1, 0)), Verdict::Forward);
    assert_eq!((bench.sent(), bench.device.cached()), (vec![], (0, 0)));
}

#[test]
fn a_value_is_served_unless_its_update_has_the_number_that_the_reader_awaits() {
    let mut bench = cached(ForeignClients);
    for seq in 0..3 {
        bench.up(&update(seq));
        bench.down(&response(seq));
    }
    bench.sent();
    let of_other = |mut bytes: Vec<u8>| {
        bytes[2] ^= 1;
        bytes
    };
    for seq in 0..2 {
        bench.up(&of_other(read(seq, 9)));
        bench.down(&of_other(response(seq)));
    }
    bench.up(&of_other(read(2, 2)));
    assert_eq!(bench.sent(), [], "a client that awaits 2 would exit after a cache response numbered 2");
    bench.up(&of_other(read(3, 2)));
    let hit = packet(kind::CACHE_RESPONSE, 2, hash(2), b"$1\r\nv\r\n");
    assert_eq!(bench.sent(), [Sent::ToClient(of_other(hit))]);
}
