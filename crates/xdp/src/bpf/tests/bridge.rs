//! Tests of the bridge program against a model of what it selects.

use super::{ethernet, ipv4, ipv6, port_bytes};
use crate::bpf::{BridgePlan, bridge};
use crate::sys::RawSocket;
use crate::sys::bpf::{Counter, DeviceMap, Program, SocketMap};
use crate::{Bits, Kind, Wanted};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

const PASS: u32 = 2;
const REDIRECT: u32 = 4;
const PORTS: RangeInclusive<u16> = 51000..=52000;
const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const V6: Ipv6Addr = Ipv6Addr::LOCALHOST;
const LOOPBACK: u32 = 1;

/// A loaded program. The verdict is the same for the socket and for the peer; either map may be empty.
struct Loaded {
    program: Program,
    others: Counter,
    _sockets: SocketMap,
    _socket: RawSocket,
}

impl Loaded {
    /// `peer`: the program has a peer map, which holds an interface if the value is true. `None` if programs cannot be
    /// loaded.
    fn new(ports: &RangeInclusive<u16>, socket: bool, peer: Option<bool>) -> Option<Self> {
        Self::of(&ports.clone().into(), socket, peer)
    }

    fn of(Wanted { ports, kinds }: &Wanted, socket: bool, peer: Option<bool>) -> Option<Self> {
        let made = SocketMap::new(1).and_then(|map| Ok((map, RawSocket::new()?, DeviceMap::new()?)));
        let (sockets, raw, map) = made
            .inspect_err(|e| eprintln!("SKIP: BPF maps and AF_XDP sockets (root is needed): {e}"))
            .ok()?;
        if socket {
            sockets.set(0, raw.fd()).unwrap();
        }
        if peer == Some(true) {
            map.set(LOOPBACK).unwrap();
        }
        let others = Counter::new().unwrap();
        let plan = BridgePlan {
            ports: (*ports.start(), *ports.end()),
            kinds: kinds.as_deref().map(|kinds| (kinds, others.fd())),
            sockets: sockets.fd(),
            peer: peer.map(|_| map.fd()),
            cookie: 0x1234_5678_9abc_def1,
        };
        let loaded = Program::load(*b"landfall_tested\0", &bridge(plan), false);
        let program = loaded.unwrap_or_else(|refused| panic!("{refused:?}"));
        Some(Self { program, others, _sockets: sockets, _socket: raw })
    }

    fn redirects(&self, frame: &[u8]) -> bool {
        match self.program.test_run(frame).unwrap().0 {
            REDIRECT => true,
            PASS => false,
            other => panic!("answered {other}"),
        }
    }
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    [port_bytes(source).as_slice(), &port_bytes(destination), &[0, 12, 0, 0], b"data"].concat()
}

/// A model of the selection that reads a frame as slices. A frame whose headers are not complete is not selected.
fn model(ports: &RangeInclusive<u16>, frame: &[u8]) -> bool {
    let packet = &frame[14..];
    let datagram = match &frame[12..14] {
        [0x08, 0x00] if packet.len() >= 20 => {
            let header = usize::from(packet[0] & 15) * 4;
            let whole = packet[6] & 0x3f == 0 && packet[7] == 0;
            let right = packet[0] >> 4 == 4 && header >= 20 && packet[9] == 17 && whole;
            packet.get(header..).filter(|_| right)
        }
        [0x86, 0xdd] if packet.len() >= 40 => {
            packet.get(40..).filter(|_| packet[0] >> 4 == 6 && packet[6] == 17)
        }
        _ => None,
    };
    datagram.is_some_and(|datagram| {
        let port = |at| u16::from(datagram[at]) << 8 | u16::from(datagram[at + 1]);
        datagram.len() >= 8 && (ports.contains(&port(0)) || ports.contains(&port(2)))
    })
}

#[test]
fn either_port_in_the_range_makes_a_datagram_ours() {
    let Some(loaded) = Loaded::new(&PORTS, true, None) else { return };
    let edges = [0, 1, 255, 256, 14535, 50999, 51000, 51001, 51500, 51999, 52000, 52001, 65535];
    for (source, destination) in edges.into_iter().flat_map(|a| edges.map(|b| (a, b))) {
        let ours = PORTS.contains(&source) || PORTS.contains(&destination);
        let datagram = udp(source, destination);
        for words in [5, 6, 15] {
            let frame = ipv4(V4, 17, words, 0x4000, &datagram);
            assert_eq!(loaded.redirects(&frame), ours, "{source} {destination} {words}");
        }
        assert_eq!(loaded.redirects(&ipv6(V6, 17, &datagram)), ours, "{source} {destination}");
    }
}

#[test]
fn every_port_is_matched_exactly_in_every_range() {
    for ports in [PORTS, 0..=0, 7..=7, 65535..=65535, 0..=65535, 1..=65535, 0..=65534, 255..=256] {
        let Some(loaded) = Loaded::new(&ports, true, None) else { return };
        let edges = [*ports.start(), *ports.end(), ports.start() / 2 + ports.end() / 2];
        let near = edges.into_iter().flat_map(|port| [port.wrapping_sub(1), port, port.wrapping_add(1)]);
        for port in near.chain((0..=u16::MAX).step_by(97)) {
            // The other port is outside the range, if any port is.
            let other = if ports.contains(&0) { 65535 } else { 0 };
            for (source, destination) in [(port, other), (other, port)] {
                let frame = ipv4(V4, 17, 5, 0, &udp(source, destination));
                assert_eq!(loaded.redirects(&frame), model(&ports, &frame), "{port} in {ports:?}");
            }
        }
    }
}

#[test]
fn only_whole_udp_datagrams_are_selected() {
    let Some(loaded) = Loaded::new(&PORTS, true, None) else { return };
    let datagram = udp(51000, 51000);
    for protocol in (0..=255).filter(|protocol| *protocol != 17) {
        assert!(!loaded.redirects(&ipv4(V4, protocol, 5, 0, &datagram)), "protocol {protocol}");
        assert!(!loaded.redirects(&ipv6(V6, protocol, &datagram)), "next header {protocol}");
    }
    for fragment in (0..14).map(|bit| 1 << bit) {
        assert!(!loaded.redirects(&ipv4(V4, 17, 5, fragment, &datagram)), "fragment {fragment:#x}");
    }
    for version in (0..=255).filter(|byte| byte >> 4 != 4 || byte & 15 < 5) {
        let mut frame = ipv4(V4, 17, 5, 0, &datagram);
        frame[14] = version;
        assert!(!loaded.redirects(&frame), "version and length {version:#x}");
    }
    for kind in [[0x08, 0x06], [0x81, 0x00], [0x88, 0xa8], [0x00, 0x08]] {
        let frame = ethernet(kind, &ipv4(V4, 17, 5, 0, &datagram)[14..]);
        assert!(!loaded.redirects(&frame), "{kind:x?}");
    }
    let mut tagged = ipv4(V4, 17, 5, 0, &datagram);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert!(!loaded.redirects(&tagged), "a VLAN tag");
}

#[test]
fn truncated_datagrams_are_selected_if_the_udp_header_is_whole() {
    let Some(loaded) = Loaded::new(&PORTS, true, None) else { return };
    let datagram = udp(9, 51000);
    for (frame, needed) in [
        (ipv4(V4, 17, 5, 0, &datagram), 42),
        (ipv4(V4, 17, 15, 0, &datagram), 82),
        (ipv6(V6, 17, &datagram), 62),
    ] {
        for length in 14..=frame.len() {
            assert_eq!(loaded.redirects(&frame[..length]), length >= needed, "{length} of {frame:x?}");
        }
    }
}

#[test]
fn without_a_socket_everything_goes_to_the_peer() {
    let ours = ipv4(V4, 17, 5, 0, &udp(51000, 9));
    let others = [ipv4(V4, 6, 5, 0, &udp(51000, 9)), ethernet([8, 6], &[0; 28]), ethernet([9, 9], &[])];
    let Some(whole) = Loaded::new(&PORTS, false, Some(true)) else { return };
    assert!(whole.redirects(&ours) && others.iter().all(|frame| whole.redirects(frame)));
    let alone = Loaded::new(&PORTS, false, None).unwrap();
    assert!(!alone.redirects(&ours) && !others.iter().any(|frame| alone.redirects(frame)));
    // With a socket but an empty peer map, only selected datagrams are redirected, so they go to the socket.
    let cut = Loaded::new(&PORTS, true, Some(false)).unwrap();
    assert!(cut.redirects(&ours) && !others.iter().any(|frame| cut.redirects(frame)));
    let gone = Loaded::new(&PORTS, false, Some(false)).unwrap();
    assert!(!gone.redirects(&ours) && !others.iter().any(|frame| gone.redirects(frame)));
}

/// Kinds as for a device without a read cache: some bytes, and one byte together with a bit of another byte.
fn some_kinds() -> Wanted {
    let plain = |first| Kind { first, zero: None };
    let low = Kind { first: 3, zero: Some(Bits { at: 7, mask: 0x80 }) };
    Wanted { ports: PORTS, kinds: Some(vec![plain(1), low, plain(0x10), plain(0xff)]) }
}

#[test]
fn only_payloads_of_selected_kinds_go_to_the_socket_and_others_are_counted() {
    let Some(loaded) = Loaded::of(&some_kinds(), true, None) else { return };
    let mut passed = 0;
    for first in 0..=u8::MAX {
        for (length, high) in [(0, 0), (1, 0), (7, 0), (8, 0), (8, 0x7f), (8, 0x80), (16, 0xff), (16, 0x7f)] {
            let mut payload = vec![0xee; length];
            payload.first_mut().into_iter().for_each(|byte| *byte = first);
            payload.get_mut(7).into_iter().for_each(|byte| *byte = high);
            let datagram = [&udp(51000, 9)[..8], payload.as_slice()].concat();
            let ours = match first {
                _ if length == 0 => false,
                1 | 0x10 | 0xff => true,
                3 => length >= 8 && high & 0x80 == 0,
                _ => false,
            };
            for frame in
                [ipv4(V4, 17, 5, 0, &datagram), ipv4(V4, 17, 9, 0, &datagram), ipv6(V6, 17, &datagram)]
            {
                assert_eq!(loaded.redirects(&frame), ours, "{first:#x} {length} {high:#x}");
                passed += u64::from(!ours);
                assert_eq!(loaded.others.get().unwrap(), passed);
            }
            // Payloads of other ports are not counted.
            assert!(!loaded.redirects(&ipv4(V4, 17, 5, 0, &[&udp(9, 9)[..8], &payload].concat())));
            assert_eq!(loaded.others.get().unwrap(), passed);
        }
    }
}

#[test]
fn any_list_of_kinds_loads() {
    let lists = [vec![], (0..=u8::MAX).map(|first| Kind { first, zero: None }).collect(), {
        let zero = |at| Some(Bits { at, mask: 0xff });
        (0..=u8::MAX).map(|first| Kind { first, zero: zero(first) }).collect()
    }];
    for (kinds, ours) in lists.into_iter().zip([false, true, false]) {
        let Some(loaded) = Loaded::of(&Wanted { ports: PORTS, kinds: Some(kinds) }, true, None) else {
            return;
        };
        let datagram = [&udp(51000, 9)[..8], [0x55; 300].as_slice()].concat();
        assert_eq!(loaded.redirects(&ipv4(V4, 17, 5, 0, &datagram)), ours);
    }
}

/// Nearly valid frames: datagrams, cut anywhere, with some bytes changed.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let port = || prop::sample::select(vec![9, 50999, 51000, 51777, 52000, 52001]);
    let shape = (0usize..4, port(), port());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (shape, any::<prop::sample::Index>(), any::<bool>(), changes).prop_map(
        |((shape, source, destination), cut, whole, changes)| {
            let datagram = udp(source, destination);
            let mut frame = match shape {
                0 => ipv6(V6, 17, &datagram),
                1 => ipv4(V4, 6, 5, 0, &datagram),
                shape => ipv4(V4, 17, 3 + shape as u8, 0x4000, &datagram),
            };
            if !whole {
                frame.truncate(14 + cut.index(frame.len() - 13));
            }
            for (at, byte) in changes {
                let at = at.index(frame.len());
                frame[at] = byte;
            }
            frame
        },
    )
}

fn agree(frames: impl Strategy<Value = Vec<u8>>) {
    let Some(loaded) = Loaded::new(&PORTS, true, Some(false)) else { return };
    let config = Config { cases: 20_000, failure_persistence: None, ..Config::default() };
    let checked = TestRunner::new(config).run(&frames, |frame| {
        prop_assert_eq!(loaded.redirects(&frame), model(&PORTS, &frame), "{:x?}", frame);
        Ok(())
    });
    checked.unwrap();
}

#[test]
fn bridge_and_model_agree_on_nearly_valid_frames() {
    agree(nearly_right());
}

#[test]
fn bridge_and_model_agree_on_random_frames() {
    let kinds = prop::sample::select(vec![[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]]);
    let bytes = prop::collection::vec(any::<u8>(), 0..120);
    agree((kinds, bytes).prop_map(|(kind, rest)| ethernet(kind, &rest)));
}
