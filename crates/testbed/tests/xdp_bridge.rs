//! Tests of bridges: client, device and server in a row, with two bridges at the device.

#![allow(clippy::print_stderr, reason = "a skipped test reports why")]

mod common;

use common::wire::*;
use common::*;
use landfall_testbed::{Host, Memory, PacketSocket};
use landfall_xdp::{
    AttachMode, Bridge, Interface, Mode, Piece, Received, Socket, Statistics, Umem, XdpError,
};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Ethernet, IPv4 and UDP headers.
const HEADERS: u64 = 42;
/// Environment variables for the child process of a test: the device's interfaces, and the folder of the pins.
const CHILD_SIDES: [&str; 2] = ["LANDFALL_TEST_LEFT", "LANDFALL_TEST_RIGHT"];
const CHILD_PINS: &str = "LANDFALL_TEST_PINS";

/// A socket on each side over one UMEM, each with its own chunks to receive into.
fn sockets(umem: &Umem, sides: &[Interface; 2]) -> [Socket; 2] {
    [0, 1].map(|side| {
        let mut socket = Socket::open(umem, &sides[side], 0, RINGS, Mode::Auto).unwrap();
        socket.fill(chunks(side as u64 * 100, side as u64 * 100 + 100));
        socket
    })
}

/// Transmits a packet in place on the other side, and returns its chunk to the side that received it.
fn pass_on(packet: Received, from: &mut Socket, to: &mut Socket) {
    to.transmit(&[Piece { addr: packet.addr, len: packet.len }]).unwrap();
    to.kick().unwrap();
    assert_eq!(complete(to, 1), [packet.addr]);
    assert_eq!(from.fill([packet.addr].into_iter()), 1);
}

/// Sends an echo request of the client and waits for the reply. The server has then resolved the client's address.
fn ping(wire: &Wire) {
    let socket = wire.client.enter(|| PacketSocket::open(&wire.ends[0].name)).unwrap();
    let mut frame = udp_headers((wire.ends[0].mac, wire.ends[1].mac), (CLIENT, 0), (SERVER, 0), 4);
    frame[23] = 1;
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum);
    frame.truncate(34);
    frame.extend([8, 0, 0, 0, 1, 2, 3, 4, b'p', b'i', b'n', b'g']);
    let sum = checksum(&frame[34..]);
    frame[36..38].copy_from_slice(&sum);
    socket.send(&frame).unwrap();
    let (started, mut got) = (Instant::now(), [0; 100]);
    loop {
        let answered =
            socket.receive(&mut got).is_ok() && got[34..36] == [0, 0] && got[38..46] == frame[38..46];
        if answered && got[23] == 1 {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "no echo reply");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Sends a megabyte over TCP to the server and back.
fn stream(wire: &Wire, to: SocketAddr) {
    let listener = wire.server.enter(|| TcpListener::bind(to)).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        stream.write_all(&got).unwrap();
    });
    let mut stream = wire.client.enter(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..1u32 << 20).map(|at| (at % 251) as u8).collect();
    stream.write_all(&sent).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    echo.join().unwrap();
    assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
}

/// Sends one datagram on PMNet's port to the server and one back, through the kernel.
fn exchange([client, server]: &[UdpSocket; 2]) {
    let mut got = [0; 16];
    client.send_to(b"update", (SERVER, PORT)).unwrap();
    let (length, from) = server.recv_from(&mut got).unwrap();
    assert_eq!(&got[..length], b"update");
    server.send_to(b"ack", from).unwrap();
    assert_eq!(client.recv(&mut got).unwrap(), 3);
}

#[test]
fn traffic_other_than_pmnet_passes_the_device_unchanged() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let (_memory, umem) = memory();
    let mut sockets = wire.device.enter(|| sockets(&umem, &wire.sides));
    let bridges = wire.bridges();
    for (bridge, socket) in bridges.iter().zip(&sockets) {
        assert_eq!((bridge.queues(), bridge.is_native()), (1, true));
        bridge.set_socket(0, socket).unwrap();
    }
    ping(&wire);
    stream(&wire, (SERVER, 80).into());
    stream(&wire, (SERVER6.parse::<std::net::Ipv6Addr>().unwrap(), 80).into());
    // TCP on a port of PMNet, and a datagram in fragments, of which only the first has ports.
    stream(&wire, (SERVER, PORT).into());
    let [client, server] = wire.udp_sockets();
    client.send_to(&[7; 4000], (SERVER, PORT)).unwrap();
    assert_eq!(server.recv(&mut [0; 5000]).unwrap(), 4000);
    let mut received = Vec::new();
    assert!(sockets.iter_mut().all(|socket| socket.receive(9, &mut received) == 0), "{received:?}");
}

#[test]
fn pmnet_packets_reach_the_sockets_and_are_forwarded_from_the_chunk_they_landed_in() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let (memory, umem) = memory();
    let [mut left, mut right] = wire.device.enter(|| sockets(&umem, &wire.sides));
    let bridges = wire.bridges();
    bridges[0].set_socket(0, &left).unwrap();
    bridges[1].set_socket(0, &right).unwrap();
    let [client, server] = wire.udp_sockets();
    let (mut got, mut earlier) = ([0; 2000], 0);
    for n in 0..200u8 {
        let payload = vec![n; usize::from(n) * 7 + 1];
        client.send_to(&payload, (SERVER, PORT)).unwrap();
        let packet = receive(&mut left, 1)[0];
        assert_eq!(memory.read(packet.addr + HEADERS, packet.len - HEADERS as u32), payload);
        assert!(packet.stamp_ns > earlier, "{} after {earlier}", packet.stamp_ns);
        earlier = packet.stamp_ns;
        pass_on(packet, &mut left, &mut right);
        let (length, from) = server.recv_from(&mut got).unwrap();
        assert_eq!((&got[..length], from), (&payload[..], client.local_addr().unwrap()));
        // On the way back, PMNet's port is the source port.
        server.send_to(&payload, from).unwrap();
        let packet = receive(&mut right, 1)[0];
        pass_on(packet, &mut right, &mut left);
        let (length, from) = client.recv_from(&mut got).unwrap();
        assert_eq!((&got[..length], from), (&payload[..], server.local_addr().unwrap()));
    }
    for socket in [&left, &right] {
        let statistics = socket.statistics().unwrap();
        assert_eq!(Statistics { tx_ring_empty: 0, ..statistics }, Statistics::default());
    }
}

#[test]
fn pmnet_packets_over_ipv6_reach_the_sockets_too() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let (memory, umem) = memory();
    let [mut left, mut right] = wire.device.enter(|| sockets(&umem, &wire.sides));
    let bridges = wire.bridges();
    bridges[0].set_socket(0, &left).unwrap();
    let [near, far] = [(CLIENT6, 40_000), (SERVER6, PORT)]
        .map(|(address, port)| SocketAddr::new(address.parse().unwrap(), port));
    let (client, server) = (wire.udp(&wire.client, near), wire.udp(&wire.server, far));
    client.send_to(b"over IPv6", far).unwrap();
    let packet = receive(&mut left, 1)[0];
    assert_eq!(memory.read(packet.addr + 62, 9), b"over IPv6");
    pass_on(packet, &mut left, &mut right);
    let mut got = [0; 16];
    assert_eq!(server.recv_from(&mut got).unwrap(), (9, near));
    // The other side's bridge has no socket, so that the kernel forwards the reply.
    server.send_to(b"back", near).unwrap();
    assert_eq!(client.recv(&mut got).unwrap(), 4);
}

/// The frame that answers a client's datagram, with addresses and ports swapped. The packet is not changed.
fn acknowledgement(memory: &Memory, packet: Received, payload: &[u8]) -> Vec<u8> {
    let frame = memory.read(packet.addr, packet.len);
    let mac = |at: usize| frame[at..at + 6].try_into().unwrap();
    let end = |at: usize, port: usize| {
        let address: [u8; 4] = frame[at..at + 4].try_into().unwrap();
        (Ipv4Addr::from(address), u16::from(frame[port]) << 8 | u16::from(frame[port + 1]))
    };
    let mut answer = udp_headers((mac(0), mac(6)), end(30, 36), end(26, 34), payload.len());
    answer.extend(payload);
    answer
}

#[test]
fn a_packet_is_answered_at_the_device_before_it_is_forwarded() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let (memory, umem) = memory();
    let [mut left, mut right] = wire.device.enter(|| sockets(&umem, &wire.sides));
    let bridges = wire.bridges();
    bridges[0].set_socket(0, &left).unwrap();
    bridges[1].set_socket(0, &right).unwrap();
    let [client, server] = wire.udp_sockets();
    client.send_to(b"update", (SERVER, PORT)).unwrap();
    let packet = receive(&mut left, 1)[0];
    let answer = acknowledgement(&memory, packet, b"kept");
    memory.write(SEND_FROM, &answer);
    left.transmit(&[Piece { addr: SEND_FROM, len: answer.len() as u32 }]).unwrap();
    left.kick().unwrap();
    let mut got = [0; 16];
    let (length, from) = client.recv_from(&mut got).unwrap();
    assert_eq!((&got[..length], from), (&b"kept"[..], server.local_addr().unwrap()));
    assert_eq!(complete(&mut left, 1), [SEND_FROM]);
    pass_on(packet, &mut left, &mut right);
    assert_eq!((server.recv(&mut got).unwrap(), &got[..6]), (6, &b"update"[..]));
}

#[test]
fn without_sockets_pmnet_flows_in_the_kernel_and_dropped_bridges_cut_the_wire() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let (_memory, umem) = memory();
    let sockets_of_ends = wire.udp_sockets();
    let bridges = wire.bridges();
    exchange(&sockets_of_ends);
    let [mut left, right] = wire.device.enter(|| sockets(&umem, &wire.sides));
    bridges[0].set_socket(0, &left).unwrap();
    bridges[1].set_socket(0, &right).unwrap();
    sockets_of_ends[0].send_to(b"stays here", (SERVER, PORT)).unwrap();
    assert_eq!(receive(&mut left, 1).len(), 1);
    drop([left, right]);
    exchange(&sockets_of_ends);
    drop(bridges);
    sockets_of_ends[0].send_to(b"nowhere to go", (SERVER, PORT)).unwrap();
    sockets_of_ends[1].set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(sockets_of_ends[1].recv(&mut [0; 16]).is_err());
}

/// As a test, it does nothing. As the child process of a test, it is a device that takes PMNet packets and forwards
/// none.
#[test]
fn child_that_bridges_until_it_is_killed() {
    let Ok(pins) = std::env::var(CHILD_PINS).map(PathBuf::from) else { return };
    let sides = CHILD_SIDES.map(|side| Interface::find(&std::env::var(side).unwrap()).unwrap());
    let (_memory, umem) = memory();
    let sockets = sockets(&umem, &sides);
    let _bridges = [0, 1].map(|side| {
        let (pin, peer) = (pins.join(format!("side{side}")), Some(&sides[1 - side]));
        let ports = Bridge::PMNET_PORTS;
        let bridge = Bridge::attach(&sides[side], peer, ports, AttachMode::Auto, Some(&pin)).unwrap();
        bridge.set_socket(0, &sockets[side]).unwrap();
        bridge
    });
    report_ready_and_wait();
}

#[test]
fn pinned_bridges_keep_the_wire_whole_when_the_device_is_killed() {
    let Some(testbed) = testbed() else { return };
    let Some(folder) = BpfFolder::new("bridge") else { return };
    let wire = Wire::new(&testbed);
    let sockets_of_ends = wire.udp_sockets();
    for _ in 0..2 {
        let device = Killed::start(&wire.device, "child_that_bridges_until_it_is_killed", |command| {
            command.envs(CHILD_SIDES.into_iter().zip(wire.sides.iter().map(|side| &side.name)));
            command.env(CHILD_PINS, folder.path());
        });
        ping(&wire);
        sockets_of_ends[0].send_to(b"the device's", (SERVER, PORT)).unwrap();
        let refused = wire.bridge(0, Some(&folder.pin("side0")));
        assert!(matches!(refused, Err(XdpError::PinInUse { .. })), "{refused:?}");
        device.kill();
        exchange(&sockets_of_ends);
        stream(&wire, (SERVER, 80).into());
    }
    for side in ["side0", "side1"] {
        assert!(Bridge::remove_pin(&folder.pin(side)).unwrap());
    }
    drop(wire.bridges());
}

#[test]
fn the_next_start_takes_over_without_losing_a_packet() {
    const TAKE_OVERS: u32 = 20;
    /// Most datagrams that are sent and not received yet. The receiver's buffer holds about fifty.
    const WINDOW: u32 = 16;

    let Some(testbed) = testbed() else { return };
    let Some(folder) = BpfFolder::new("takeover") else { return };
    let wire = Wire::new(&testbed);
    let pins = ["side0", "side1"].map(|side| folder.pin(side));
    let start = || [0, 1].map(|side| wire.bridge(side, Some(&pins[side])).unwrap());
    drop(start());
    let [client, server] = wire.udp_sockets();
    exchange(&[client.try_clone().unwrap(), server.try_clone().unwrap()]);
    let (over, received) = (AtomicBool::new(false), AtomicU32::new(0));
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sent = 0u32;
            while !over.load(Ordering::Relaxed) {
                if sent - received.load(Ordering::Relaxed) < WINDOW {
                    client.send_to(&sent.to_le_bytes(), (SERVER, PORT)).unwrap();
                    sent += 1;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
            client.send_to(&u32::MAX.to_le_bytes(), (SERVER, PORT)).unwrap();
            sent
        });
        let receiver = scope.spawn(|| {
            let mut got = [0; 4];
            while server.recv(&mut got).is_ok() && got != u32::MAX.to_le_bytes() {
                let expected = received.fetch_add(1, Ordering::Relaxed);
                assert_eq!(got, expected.to_le_bytes(), "in order, none lost");
            }
            received.load(Ordering::Relaxed)
        });
        for _ in 0..TAKE_OVERS {
            assert!(start().iter().all(Bridge::is_native));
        }
        over.store(true, Ordering::Relaxed);
        let sent = sender.join().unwrap();
        assert_eq!(receiver.join().unwrap(), sent);
        sent
    });
    assert!(sent >= TAKE_OVERS, "only {sent} packets");
    for pin in pins {
        assert!(Bridge::remove_pin(&pin).unwrap());
    }
}

#[test]
fn a_pin_of_another_mode_or_interface_is_replaced() {
    let Some(testbed) = testbed() else { return };
    let Some(folder) = BpfFolder::new("otherpin") else { return };
    let (wire, pin) = (Wire::new(&testbed), folder.pin("side"));
    let attach = |side: usize, mode| {
        let (here, there) = (&wire.sides[side], Some(&wire.sides[1 - side]));
        let attached = || Bridge::attach(here, there, Bridge::PMNET_PORTS, mode, Some(&pin));
        wire.device.enter(attached).unwrap().is_native()
    };
    assert!(!attach(0, AttachMode::Skb) && !attach(0, AttachMode::Skb));
    assert!(attach(0, AttachMode::Auto) && !attach(0, AttachMode::Skb) && attach(0, AttachMode::Native));
    // The first interface has no program attached any more.
    assert!(attach(1, AttachMode::Auto));
    drop(wire.bridge(0, None).unwrap());
    assert!(Bridge::remove_pin(&pin).unwrap());
}

#[test]
fn without_another_side_the_kernel_gets_all_traffic_but_pmnet() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let attach = |mode| Bridge::attach(&pair.interface, None, Bridge::PMNET_PORTS, mode, None);
    for (mode, native) in [(AttachMode::Auto, true), (AttachMode::Skb, false)] {
        let bridge = pair.xdp.enter(|| attach(mode)).unwrap();
        assert_eq!(bridge.is_native(), native);
        let [pmnet, other] =
            [PORT, 53].map(|port| pair.xdp.enter(|| UdpSocket::bind((XDP_ADDRESS, port))).unwrap());
        pmnet.set_read_timeout(Some(PATIENCE)).unwrap();
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        // A fixed port, because a port that the kernel chooses could be one of PMNet's.
        let peer = pair.peer.enter(|| UdpSocket::bind((PEER_ADDRESS, 40_000))).unwrap();
        peer.send_to(b"without a socket", (XDP_ADDRESS, PORT)).unwrap();
        assert_eq!(pmnet.recv(&mut [0; 32]).unwrap(), 16);
        bridge.set_socket(0, &socket).unwrap();
        peer.send_to(b"with a socket", (XDP_ADDRESS, PORT)).unwrap();
        let packet = receive(&mut socket, 1)[0];
        assert_eq!(memory.read(packet.addr + HEADERS, 13), b"with a socket");
        peer.send_to(b"others", (XDP_ADDRESS, 53)).unwrap();
        assert_eq!(other.recv(&mut [0; 32]).unwrap(), 6);
    }
}

#[test]
fn a_bridge_works_in_the_generic_path() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let _bridges = [0, 1].map(|side| {
        let (here, there) = (&wire.sides[side], Some(&wire.sides[1 - side]));
        let attach = || Bridge::attach(here, there, Bridge::PMNET_PORTS, AttachMode::Skb, None);
        wire.device.enter(attach).unwrap()
    });
    ping(&wire);
    exchange(&wire.udp_sockets());
    stream(&wire, (SERVER, 80).into());
}

/// True if an interface accepts frames to other hosts.
fn is_promiscuous(host: &Host, interface: &str) -> bool {
    let shown = host.command("ip").args(["-d", "link", "show", interface]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("promiscuity"), "{shown}");
    !shown.contains("promiscuity 0")
}

#[test]
fn interfaces_accept_frames_to_other_hosts_while_they_are_bridged() {
    let Some(testbed) = testbed() else { return };
    let Some(folder) = BpfFolder::new("promiscuous") else { return };
    let (wire, pin) = (Wire::new(&testbed), folder.pin("side0"));
    let promiscuous = || wire.sides.each_ref().map(|side| is_promiscuous(&wire.device, &side.name));
    assert_eq!(promiscuous(), [false; 2]);
    let bridges = wire.bridges();
    assert_eq!(promiscuous(), [true; 2]);
    drop(bridges);
    assert_eq!(promiscuous(), [false; 2]);
    drop(wire.bridge(0, Some(&pin)).unwrap());
    assert_eq!(promiscuous(), [true, false], "as long as a pinned program may be attached");
    assert!(Bridge::remove_pin(&pin).unwrap());
}

#[test]
fn bridges_that_cannot_work_are_refused_with_advice() {
    let Some(testbed) = testbed() else { return };
    let wire = Wire::new(&testbed);
    let [left, right] = &wire.sides;
    let attach = |peer, ports| {
        wire.device.enter(|| Bridge::attach(left, Some(peer), ports, AttachMode::Auto, None)).unwrap_err()
    };
    #[expect(clippy::reversed_empty_ranges, reason = "an empty range must be refused")]
    let refused = attach(right, 2..=1);
    assert!(matches!(refused, XdpError::NoPorts { first: 2, last: 1 }), "{refused:?}");
    let refused = attach(left, 1..=2);
    assert!(matches!(refused, XdpError::BadPeer { .. }), "{refused:?}");
    let refused = attach(&wire.ends[1], 1..=2);
    assert!(matches!(refused, XdpError::OtherNamespace { .. }), "{refused:?}");
    wire.device.ip(&format!("link set {} mtu 1400\n", right.name)).unwrap();
    let shorter = wire.device.enter(|| Interface::find(&right.name)).unwrap();
    let refused = attach(&shorter, 1..=2);
    assert!(matches!(refused, XdpError::BadPeer { mtu: 1500, peer_mtu: 1400, .. }), "{refused:?}");
}
