//! The kernel runs the steering program on crafted packets. A model checks its decisions against an independent reading
//! of the rules.
//!
//! The tests need root to load programs. Nothing is attached.

mod bridge;

use super::*;
use crate::sys::RawSocket;
use crate::sys::bpf::{Program, SocketMap};
use crate::{PORTS_MAX, Rules, TARGETS_MAX, Target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PASS: u32 = 2;
const REDIRECT: u32 = 4;
const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);
const SHARED4: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x12, 0x3456);
const SHARED6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4);
const PORT: u16 = 7007;

/// A loaded program whose queue 0 has a socket.
struct Loaded {
    program: Program,
    _sockets: SocketMap,
    _socket: RawSocket,
}

impl Loaded {
    /// `None` if programs cannot be loaded: the test is skipped.
    fn new(rules: &Rules, cookie: Option<u64>) -> Option<Self> {
        rules.check().unwrap();
        let sockets = SocketMap::new(1).and_then(|map| RawSocket::new().map(|socket| (map, socket)));
        let (sockets, socket) = sockets
            .inspect_err(|e| eprintln!("SKIP: BPF maps and AF_XDP sockets (root is needed): {e}"))
            .ok()?;
        sockets.set(0, socket.fd()).unwrap();
        let code = steering(Plan { rules, sockets: sockets.fd(), cookie });
        let program = Program::load(*b"landfall_tested\0", &code, false)
            .unwrap_or_else(|refused| panic!("{refused:?}"));
        Some(Self { program, _sockets: sockets, _socket: socket })
    }

    fn is_ours(&self, frame: &[u8]) -> bool {
        match self.program.test_run(frame).unwrap().0 {
            REDIRECT => true,
            PASS => false,
            other => panic!("answered {other}"),
        }
    }
}

fn rules() -> Rules {
    let ports = |address: IpAddr| Target::Ports { address, ports: vec![80, PORT] };
    let targets = vec![
        Target::Own(OWN4.into()),
        Target::Own(OWN6.into()),
        ports(SHARED4.into()),
        ports(SHARED6.into()),
    ];
    Rules { targets, stamp: false }
}

fn ethernet(kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], kind.as_slice(), rest].concat()
}

fn port_bytes(port: u16) -> [u8; 2] {
    [(port >> 8) as u8, port as u8]
}

/// Source port 1, then the destination port, then eight bytes.
fn transport(port: u16) -> Vec<u8> {
    [&[0, 1], port_bytes(port).as_slice(), &[0; 8]].concat()
}

/// `words`: length of the header in 32-bit words. `fragment`: flags and offset.
fn ipv4(to: Ipv4Addr, protocol: u8, words: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x40 | words, 0, 0, 0, 0, 0];
    header.extend(port_bytes(fragment));
    header.extend([64, protocol, 0, 0, 10, 0, 0, 1]);
    header.extend(to.octets());
    header.extend(vec![1; usize::from(words.max(5) - 5) * 4]);
    ethernet([8, 0], &[header.as_slice(), rest].concat())
}

fn ipv6(to: Ipv6Addr, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    header.extend(Ipv6Addr::LOCALHOST.octets());
    header.extend(to.octets());
    ethernet([0x86, 0xdd], &[header.as_slice(), rest].concat())
}

fn arp(operation: u8, target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    packet.extend(target.octets());
    ethernet([8, 6], &packet)
}

fn icmpv6(kind: u8, target: Ipv6Addr) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], target.octets().as_slice(), &[1, 1, 2, 0, 0, 0, 0, 2]].concat()
}

#[test]
fn packets_of_an_own_address_are_selected() {
    let Some(loaded) = Loaded::new(&rules(), None) else { return };
    for protocol in [1, 6, 17, 132] {
        assert!(loaded.is_ours(&ipv4(OWN4, protocol, 5, 0, &transport(9))), "{protocol}");
        assert!(loaded.is_ours(&ipv6(OWN6, protocol, &transport(9))), "{protocol}");
    }
    assert!(loaded.is_ours(&ipv4(OWN4, 17, 5, 0x2000, &transport(9))), "a first fragment");
    assert!(loaded.is_ours(&ipv4(OWN4, 17, 15, 0x00ff, &[])), "a last fragment, with options");
    assert!(loaded.is_ours(&ipv6(OWN6, 44, &[17, 0, 0, 1, 0, 0, 0, 0])), "an IPv6 fragment");
    assert!(loaded.is_ours(&arp(1, OWN4)) && loaded.is_ours(&arp(2, OWN4)));
    assert!(loaded.is_ours(&ipv6(solicited_node(OWN6), 58, &icmpv6(135, OWN6))));
}

#[test]
fn only_listed_ports_of_a_shared_address_are_ours() {
    let Some(loaded) = Loaded::new(&rules(), None) else { return };
    for protocol in [6, 17] {
        for words in [5, 6, 15] {
            assert!(loaded.is_ours(&ipv4(SHARED4, protocol, words, 0x4000, &transport(PORT))));
            assert!(!loaded.is_ours(&ipv4(SHARED4, protocol, words, 0x4000, &transport(PORT + 1))));
        }
        assert!(loaded.is_ours(&ipv6(SHARED6, protocol, &transport(80))));
        assert!(!loaded.is_ours(&ipv6(SHARED6, protocol, &transport(81))));
        assert!(!loaded.is_ours(&ipv4(SHARED4, protocol, 5, 0x2000, &transport(PORT))), "more fragments");
        assert!(!loaded.is_ours(&ipv4(SHARED4, protocol, 5, 1, &transport(PORT))), "a later fragment");
    }
    assert!(!loaded.is_ours(&ipv4(SHARED4, 1, 5, 0, &transport(PORT))), "ICMP");
    assert!(!loaded.is_ours(&ipv6(SHARED6, 58, &transport(PORT))), "ICMPv6");
    for extension in [0, 43, 44, 60] {
        let rest = [[6, 0, 0, 0, 0, 0, 0, 0].as_slice(), &transport(PORT)].concat();
        assert!(!loaded.is_ours(&ipv6(SHARED6, extension, &rest)), "extension header {extension}");
    }
    assert!(!loaded.is_ours(&arp(1, SHARED4)));
    assert!(!loaded.is_ours(&ipv6(solicited_node(SHARED6), 58, &icmpv6(135, SHARED6))));
}

#[test]
fn other_packets_pass_to_the_kernel() {
    let Some(loaded) = Loaded::new(&rules(), None) else { return };
    let other4 = Ipv4Addr::new(10, 0, 0, 201);
    // This address shares its solicited-node address with an own one.
    let other6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xff12, 0x3456);
    assert_eq!(solicited_node(other6), solicited_node(OWN6));
    assert!(!loaded.is_ours(&ipv4(other4, 6, 5, 0, &transport(PORT))));
    assert!(!loaded.is_ours(&ipv6(other6, 6, &transport(PORT))));
    assert!(!loaded.is_ours(&arp(1, other4)) && !loaded.is_ours(&arp(2, other4)));
    assert!(!loaded.is_ours(&arp(3, OWN4)), "a reverse request");
    assert!(!loaded.is_ours(&ipv6(solicited_node(OWN6), 58, &icmpv6(135, other6))));
    assert!(!loaded.is_ours(&ipv6(solicited_node(OWN6), 58, &icmpv6(136, OWN6))), "an advertisement");
    assert!(!loaded.is_ours(&ipv6(solicited_node(OWN6), 17, &icmpv6(135, OWN6))), "UDP");
    let mut tagged = ipv4(OWN4, 6, 5, 0, &transport(PORT));
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    assert!(!loaded.is_ours(&tagged), "a VLAN tag");
    for version in [0x05, 0x54, 0x44, 0x40] {
        let mut frame = ipv4(OWN4, 6, 5, 0, &transport(PORT));
        frame[14] = version;
        assert!(!loaded.is_ours(&frame), "version and length {version:#x}");
    }
    let mut frame = ipv6(OWN6, 6, &transport(PORT));
    frame[14] = 0x40;
    assert!(!loaded.is_ours(&frame));
}

#[test]
fn truncated_packets_are_selected_only_with_the_headers_that_decide() {
    let Some(loaded) = Loaded::new(&rules(), None) else { return };
    // Each frame, and the least length at which its headers decide that it is for the sockets.
    let frames = [
        (ipv4(OWN4, 6, 5, 0, &transport(PORT)), 34),
        (ipv6(OWN6, 6, &transport(PORT)), 54),
        (arp(1, OWN4), 42),
        (ipv6(solicited_node(OWN6), 58, &icmpv6(135, OWN6)), 78),
        (ipv4(SHARED4, 6, 5, 0, &transport(PORT)), 38),
        (ipv4(SHARED4, 17, 15, 0, &transport(PORT)), 78),
        (ipv6(SHARED6, 17, &transport(PORT)), 58),
    ];
    for (frame, needed) in frames {
        for length in 14..=frame.len() {
            assert_eq!(loaded.is_ours(&frame[..length]), length >= needed, "{length} of {frame:x?}");
        }
    }
}

#[test]
fn without_a_socket_on_the_queue_everything_passes() {
    let Some(loaded) = Loaded::new(&rules(), Some(77)) else { return };
    let Loaded { program, _sockets, _socket } = loaded;
    let frame = ipv4(OWN4, 6, 5, 0, &transport(PORT));
    assert_eq!(program.test_run(&frame).unwrap().0, REDIRECT);
    drop(_socket);
    assert_eq!(program.test_run(&frame).unwrap().0, PASS);
}

#[test]
fn every_mix_of_targets_loads() {
    let mut all = rules().targets;
    all.push(Target::Ports { address: SHARED4.into(), ports: vec![] });
    for mix in 0u32..1 << all.len() {
        let chosen = all.iter().enumerate().filter(|(n, _)| mix >> n & 1 == 1);
        let targets: Vec<Target> = chosen.map(|(_, target)| target.clone()).collect();
        if targets.len() <= TARGETS_MAX {
            let Some(loaded) = Loaded::new(&Rules { targets, stamp: true }, Some(5)) else { return };
            assert_eq!(loaded.is_ours(&arp(1, OWN4)), mix & 1 == 1, "{mix:b}");
        }
    }
}

#[test]
fn largest_rules_load_and_decide() {
    let ports: Vec<u16> = (0..PORTS_MAX as u16).map(|n| 1000 + n * 1111).collect();
    for shared in [IpAddr::from(SHARED4), IpAddr::from(SHARED6)] {
        let target = |n: usize| {
            let address = match shared {
                IpAddr::V4(v4) => IpAddr::from((u32::from(v4) + n as u32).to_le_bytes().map(|b| b.max(1))),
                IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) + n as u128).into(),
            };
            Target::Ports { address, ports: ports.clone() }
        };
        let mut rules = Rules { targets: (0..TARGETS_MAX - 1).map(target).collect(), stamp: true };
        rules.targets.push(Target::Ports { address: shared, ports: ports.clone() });
        let Some(loaded) = Loaded::new(&rules, Some(1)) else { return };
        for port in &ports {
            let frame = |port| match shared {
                IpAddr::V4(to) => ipv4(to, 6, 5, 0, &transport(port)),
                IpAddr::V6(to) => ipv6(to, 6, &transport(port)),
            };
            assert!(loaded.is_ours(&frame(*port)) && !loaded.is_ours(&frame(port + 1)));
        }
    }
}

/// A model of the rules that reads a frame as slices. A frame whose headers are not complete is not for the sockets.
fn model(rules: &Rules, frame: &[u8]) -> bool {
    decide(rules, frame).unwrap_or(false)
}

fn decide(rules: &Rules, frame: &[u8]) -> Option<bool> {
    let packet = frame.get(14..)?;
    let own = |address: IpAddr| rules.targets.contains(&Target::Own(address));
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    let listed = |address: IpAddr, protocol: u8, at: usize| {
        let port = packet.get(at + 2..at + 4)?;
        let shared = rules.shared().into_iter().find(|(shared, _)| *shared == address)?;
        Some(matches!(protocol, 6 | 17) && shared.1.iter().any(|p| port_bytes(*p) == port))
    };
    match frame[12..14] {
        [8, 0] => {
            let (to, header) = (v4(16)?, usize::from(packet[0] & 15) * 4);
            if packet[0] >> 4 != 4 || header < 20 {
                return Some(false);
            }
            let whole = packet[6] & 0x3f == 0 && packet[7] == 0;
            Some(own(to) || whole && listed(to, packet[9], header)?)
        }
        [0x86, 0xdd] => {
            let to = v6(24)?;
            if packet[0] >> 4 != 6 {
                return Some(false);
            }
            if own(to.into()) || listed(to.into(), packet[6], 40).unwrap_or(false) {
                return Some(true);
            }
            let target = v6(48)?;
            let solicitation = packet[6] == 58 && packet[40] == 135;
            Some(solicitation && own(target.into()) && to == solicited_node(target))
        }
        [8, 6] => {
            let target = v4(24)?;
            let known = packet[..7] == [0, 1, 8, 0, 6, 4, 0] && matches!(packet[7], 1 | 2);
            Some(known && own(target))
        }
        _ => Some(false),
    }
}

/// Nearly valid frames: a crafted one, cut anywhere, with some bytes changed.
fn nearly_right() -> impl Strategy<Value = Vec<u8>> {
    let frames = prop::sample::select(vec![
        ipv4(OWN4, 6, 5, 0, &transport(PORT)),
        ipv4(SHARED4, 17, 5, 0, &transport(PORT)),
        ipv4(SHARED4, 6, 8, 0x4000, &transport(80)),
        ipv6(OWN6, 6, &transport(PORT)),
        ipv6(SHARED6, 17, &transport(80)),
        ipv6(solicited_node(OWN6), 58, &icmpv6(135, OWN6)),
        arp(1, OWN4),
        arp(2, SHARED4),
    ]);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (frames, any::<prop::sample::Index>(), any::<bool>(), changes).prop_map(
        |(mut frame, cut, whole, changes)| {
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

#[test]
fn program_and_model_agree_on_nearly_valid_frames() {
    let rules = rules();
    let Some(loaded) = Loaded::new(&rules, None) else { return };
    let mut runner =
        TestRunner::new(Config { cases: 20_000, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&nearly_right(), |frame| {
        prop_assert_eq!(loaded.is_ours(&frame), model(&rules, &frame), "{:x?}", frame);
        Ok(())
    });
    checked.unwrap();
}
