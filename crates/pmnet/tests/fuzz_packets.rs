//! Fuzz targets: the packet parser, and a device's pipeline with arbitrary packets.

mod support;

use bolero::TypeGenerator;
use landfall_pmnet::Instant;
use landfall_pmnet::device::{Action, Arrival, CacheConfig, Codec, Device, DeviceConfig, Side};
use landfall_pmnet::log::Limits;
use landfall_pmnet::wire::{Body, Packet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use support::{Landing, blank, flow, open};

#[test]
fn fuzz_any_bytes_as_a_packet() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let again = packet.to_bytes();
        let same = match packet.body {
            // The body of an unknown packet does not contain its type.
            Body::Other(_) => return,
            _ => Packet::parse(&again),
        };
        assert_eq!(same, Ok(packet));
        assert!(again.len() <= bytes.len().max(24), "{} bytes of {}", again.len(), bytes.len());
    });
}

#[derive(Debug, TypeGenerator)]
enum Step {
    /// A packet of any type, from or to a client, with any bytes after its header.
    Packet {
        up: bool,
        kind: u8,
        client: u8,
        session: u8,
        seq: u8,
        rest: Vec<u8>,
    },
    /// Any bytes.
    Bytes {
        up: bool,
        client: u8,
        bytes: Vec<u8>,
    },
    Commit,
    Wait {
        millis: u16,
    },
}

/// Mostly types with a meaning.
const KINDS: [u8; 24] = [
    1, 1, 1, 2, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x18, 0x18, 0x19, 0x1a, 0x21, 0x23, 0x28,
    0x29, 0xff,
];

struct World {
    device: Device,
    landing: Landing,
    now: Instant,
}

impl World {
    fn arrive(&mut self, up: bool, client: u8, bytes: &[u8]) {
        let flow = flow(u16::from(client % 3));
        let (from, to) = if up { (flow.client, flow.server) } else { (flow.server, flow.client) };
        let side = if up { Side::Clients } else { Side::Server };
        self.pass(side, (from, to), bytes);
    }

    fn pass(&mut self, side: Side, (from, to): (SocketAddr, SocketAddr), bytes: &[u8]) {
        let heap = Arc::clone(self.device.log().heap());
        let bytes = &bytes[..bytes.len().min(2048)];
        let packet = self.landing.land(&heap, bytes);
        let arrival = Arrival { side, from, to, payload: bytes, packet, header_at: 0, arrival_ns: 1 };
        self.device.handle(&arrival, self.now);
        heap.runs().release(packet);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Packet { up, kind, client, session, seq, rest } => {
                let ack_count = if *up { 0xfb } else { client % 5 };
                let kind = KINDS[usize::from(*kind) % KINDS.len()];
                let mut bytes = vec![kind, ack_count, session % 2, 0, seq % 16];
                bytes.resize(16, 0);
                bytes.extend_from_slice(rest);
                self.arrive(*up, *client, &bytes);
            }
            Step::Bytes { up, client, bytes } => self.arrive(*up, *client, bytes),
            Step::Commit => self.device.commit().unwrap(),
            Step::Wait { millis } => {
                self.now = self.now + Duration::from_millis(u64::from(*millis));
                self.device.handle_timeout(self.now);
            }
        }
        self.send();
    }

    /// Sends all packets, and checks that each packet from the log is an update.
    fn send(&mut self) {
        while let Some(action) = self.device.poll_action() {
            match action {
                Action::Datagram { payload, .. } => {
                    assert!(Packet::parse(&payload).is_ok(), "the device made {payload:?}");
                }
                Action::Logged { identity, stored } => {
                    let bytes = self.device.log().bytes_of(&stored).unwrap();
                    let header = Packet::parse(&bytes).unwrap().header;
                    assert_eq!((header.session, header.seq), (identity.session, identity.seq));
                    self.device.sent(&stored);
                }
            }
        }
    }
}

#[test]
fn fuzz_any_packets_through_a_device() {
    let config = DeviceConfig {
        number: Some(1),
        incarnation: 5,
        cache: Some(CacheConfig::new(Codec::Plain)),
        ..DeviceConfig::default()
    };
    bolero::check!().with_iterations(40).with_type::<Vec<Step>>().for_each(|steps| {
        let now = Instant::from_nanos(1);
        let device = Device::new(config, open(&blank(false), Limits::default()), now);
        let mut world = World { device, landing: Landing::default(), now };
        steps.iter().take(120).for_each(|step| world.step(step));
        // Server-ACKs empty the log, whatever it contains.
        world.device.commit().unwrap();
        for session in world.device.log().sessions() {
            let ack = Packet::new(session.session, u32::MAX, Body::ServerAck).to_bytes();
            world.pass(Side::Server, (session.flow.server, session.flow.client), &ack);
        }
        assert_eq!((world.device.log().len(), world.device.log().bytes()), (0, 0));
        assert_eq!(world.device.log().heap().runs().live_bytes(), 0, "frames are held without an owner");
    });
}
