//! Tests of linearizable keys: which packets a device holds, for which updates, and for how long.

mod support;

use landfall_pmnet::device::{Action, Codec, DeviceConfig, LinearizableConfig, Side, Verdict};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Fragment, Packet, Refusal};
use std::time::Duration;
use support::{Bench, blank, flow};

const MS: Duration = Duration::from_millis(1);
const SESSION: u16 = 1;

fn config() -> DeviceConfig {
    let order = LinearizableConfig { packet_life: MS, ..LinearizableConfig::new(Codec::Plain) };
    DeviceConfig {
        number: Some(3),
        heartbeat_every: Duration::ZERO,
        resend_after: Duration::from_secs(1000),
        linearizable: Some(order),
        ..DeviceConfig::default()
    }
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::over(blank(false), config());
        bench.wait(2 * MS);
        for client in [1, 2] {
            let started = Body::SessionStarted {
                nonce: 1,
                first_update: 1,
                first_bypass: FIRST_BYPASS,
                incarnation: 1,
                lease: 0,
            };
            bench.down(client, 1, started);
        }
        bench
    }

    fn down(&mut self, client: u8, seq: u32, body: Body<'_>) {
        self.arrive(Side::Server, flow(client.into()), &Packet::new(SESSION, seq, body).to_bytes());
    }

    /// Sends an update, which is forwarded or held, and fences the log.
    fn set(&mut self, client: u8, seq: u32, key: &str) -> Verdict {
        let request = request(b'S', key, "value");
        let bytes = Packet::new(SESSION, seq, Body::Update(&request)).to_bytes();
        let verdict = self.arrive(Side::Clients, flow(client.into()), &bytes);
        self.device.commit().unwrap();
        verdict
    }

    fn get(&mut self, client: u8, key: &str) -> Verdict {
        self.arrive(Side::Clients, flow(client.into()), &get(key))
    }

    /// The packets that are now forwarded to the server.
    fn released(&mut self) -> Vec<Vec<u8>> {
        let mut released = Vec::new();
        while let Some(action) = self.device.poll_action() {
            if let Action::Logged { stored, .. } = action {
                released.push(self.device.log().bytes_of(&stored).unwrap());
                self.device.sent(&stored);
            }
        }
        released
    }
}

fn request(operation: u8, key: &str, value: &str) -> Vec<u8> {
    let head = [&[operation][..], &(key.len() as u16).to_le_bytes()].concat();
    [&head, key.as_bytes(), value.as_bytes()].concat()
}

fn get(key: &str) -> Vec<u8> {
    let request = request(b'G', key, "");
    Packet::new(SESSION, FIRST_BYPASS, Body::Bypass { after: None, request: &request }).to_bytes()
}

#[test]
fn a_read_of_another_session_waits_for_acknowledged_updates_of_its_key_only() {
    let mut bench = Bench::new();
    assert_eq!(bench.set(1, 1, "a"), Verdict::Forward);
    assert_eq!(bench.get(2, "b"), Verdict::Forward, "it reads another key");
    assert_eq!(bench.get(1, "a"), Verdict::Forward, "the session itself orders it");
    assert_eq!(bench.get(2, "a"), Verdict::Taken);
    // An update that is acknowledged later: the read began before that.
    bench.set(1, 2, "a");
    assert!(bench.released().is_empty());
    bench.down(1, 1, Body::ServerAck);
    assert_eq!(bench.released(), [get("a")]);
    assert_eq!((bench.device.stats().held, bench.device.stats().held_dropped), (1, 0));
}

#[test]
fn a_packet_that_names_no_key_waits_for_every_blocker() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    let bytes = Packet::new(SESSION, FIRST_BYPASS, Body::Bypass { after: None, request: b"?" }).to_bytes();
    assert_eq!(bench.arrive(Side::Clients, flow(2), &bytes), Verdict::Taken);
    bench.down(1, 1, Body::ServerAck);
    assert_eq!(bench.released(), [bytes]);
}

#[test]
fn an_update_is_held_until_acknowledged_updates_of_its_key_in_other_sessions_are_applied() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    assert_eq!(bench.set(2, 1, "a"), Verdict::Taken);
    assert_eq!((bench.device.log().len(), bench.released().len()), (1, 0));
    bench.down(1, 1, Body::ServerAck);
    assert_eq!((bench.device.log().len(), bench.released().len()), (1, 1));
    bench.device.commit().unwrap();
    assert_eq!(bench.device.stats().acknowledged, 2);
}

/// Sends three pieces of an update of 3000 bytes in `order`, and fences the log. Returns the verdict of each.
fn set_pieces(bench: &mut Bench, client: u8, key: &str, order: [u16; 3]) -> [Verdict; 3] {
    let request = request(b'S', key, &"x".repeat(3000 - 3 - key.len()));
    let verdict = |index: u16| {
        let place = Fragment { index, count: 3, total: 3000 };
        let body = Body::UpdateFragment(place, request.chunks(1000).nth(index.into()).unwrap());
        let bytes = Packet::new(SESSION, 1 + u32::from(index), body).to_bytes();
        let verdict = bench.arrive(Side::Clients, flow(client.into()), &bytes);
        bench.device.commit().unwrap();
        verdict
    };
    order.map(verdict)
}

#[test]
fn an_update_of_several_packets_concerns_the_key_in_its_first_packet() {
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut bench = Bench::new();
        assert_eq!(set_pieces(&mut bench, 1, "a", order), [Verdict::Forward; 3]);
        assert_eq!(bench.get(2, "b"), Verdict::Forward, "{order:?}");
        assert_eq!(bench.get(2, "a"), Verdict::Taken, "{order:?}");
        bench.down(1, 3, Body::ServerAck);
        assert_eq!(bench.released(), [get("a")]);
    }
}

#[test]
fn an_update_of_several_packets_waits_for_its_key_only_after_the_first_packet() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    assert_eq!(set_pieces(&mut bench, 2, "b", [0, 1, 2]), [Verdict::Forward; 3]);
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    let held = set_pieces(&mut bench, 2, "b", [1, 0, 2]);
    assert_eq!(
        held,
        [Verdict::Taken, Verdict::Forward, Verdict::Forward],
        "the first packet to arrive names no key"
    );
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    assert_eq!(set_pieces(&mut bench, 2, "a", [0, 1, 2]), [Verdict::Taken; 3]);
    bench.down(1, 1, Body::ServerAck);
    assert_eq!(bench.released().len(), 3);
}

#[test]
fn a_packet_held_for_too_long_is_dropped_and_its_repetition_waits_for_no_later_update() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    bench.get(2, "a");
    let held = bench.device.log().heap().runs().counts().free;
    bench.wait(250 * MS);
    assert_eq!((bench.device.stats().held_dropped, bench.released().len()), (1, 0));
    assert!(bench.device.log().heap().runs().counts().free >= held);
    bench.set(1, 2, "a");
    bench.down(1, 1, Body::ServerAck);
    assert!(bench.released().is_empty(), "it was dropped");
    assert_eq!(bench.get(2, "a"), Verdict::Forward, "it began before the second update");
    assert_eq!(bench.get(2, "a"), Verdict::Taken, "from now on it counts as another packet");
}

#[test]
fn a_restarted_device_holds_packets_for_the_updates_in_its_log() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    let mut bench = bench.restarted(config());
    assert_eq!(bench.get(2, "b"), Verdict::Forward);
    assert_eq!(bench.get(2, "a"), Verdict::Taken);
    bench.down(1, 1, Body::ServerAck);
    assert_eq!(bench.released(), [get("a")]);
}

#[test]
fn updates_behind_a_gap_block_no_packet() {
    let mut bench = Bench::new();
    bench.set(1, 2, "a");
    assert_eq!(bench.get(2, "a"), Verdict::Forward, "no client was told of it");
    // After a restart the gap is known when the server requests the missing update.
    let mut bench = bench.restarted(config());
    assert_eq!(bench.get(2, "a"), Verdict::Taken);
    bench.wait(2 * MS);
    bench.down(1, 1, Body::Retransmit { count: 1 });
    assert!(bench.released().contains(&get("a")), "besides the updates that are sent again after a restart");
}

#[test]
fn a_session_that_is_behind_blocks_no_packet() {
    let mut bench = Bench::new();
    bench.set(1, 1, "a");
    assert_eq!(bench.get(2, "a"), Verdict::Taken);
    bench.down(1, 1, Body::SessionRefused(Refusal::Behind));
    assert_eq!(bench.released(), [get("a")]);
}
