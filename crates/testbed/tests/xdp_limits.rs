//! Limits of AF_XDP: large packets, full rings, the generic path, unusable memory, missing privileges.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a skipped test reports why, and a child process its state"
)]

mod common;

use common::*;
use landfall_testbed::{LinkOptions, Memory};
use landfall_xdp::{
    AttachMode, Chunk, Interface, Mode, Piece, Rules, Socket, Steering, Target, Umem, XdpError, check_mtu,
};
use std::net::{Ipv6Addr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

const PORT: u16 = 7007;
const CHILD: &str = "LANDFALL_TEST_WITHOUT_PRIVILEGES";

fn jumbo(testbed: &landfall_testbed::Testbed, mtu: u32) -> Pair {
    let (xdp, peer) = (testbed.host("xdp").unwrap(), testbed.host("peer").unwrap());
    let between = LinkOptions::between("10.9.0.1/24", "10.9.0.2/24");
    let options = LinkOptions { mtu, checksum_offload: false, ..between };
    let (name, peer_name) = testbed.link(&xdp, &peer, &options).unwrap();
    let interface = xdp.enter(|| Interface::find(&name)).unwrap();
    let peer_interface = peer.enter(|| Interface::find(&peer_name)).unwrap();
    Pair { xdp, peer, interface, peer_interface }
}

fn send(pair: &Pair, payload: &[u8]) {
    let peer = pair.peer.enter(|| UdpSocket::bind((PEER_ADDRESS, 0))).unwrap();
    peer.send_to(payload, (XDP_ADDRESS, PORT)).unwrap();
}

#[test]
fn packets_larger_than_a_chunk_arrive_in_parts_that_are_marked() {
    let Some(testbed) = testbed() else { return };
    let pair = jumbo(&testbed, 9000);
    assert!(check_mtu(Chunk::Bytes2048, 0, pair.interface.mtu).is_err());
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    assert!(steering.is_native());
    steering.set_socket(0, &socket).unwrap();
    for size in [1u32, 1700, 1800, 3500, 3600, 5000, 8900] {
        let payload: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        send(&pair, &payload);
        let mut frame = Vec::new();
        loop {
            let part = receive(&mut socket, 1)[0];
            frame.extend(memory.read(part.addr, part.len));
            socket.fill([part.addr].into_iter());
            assert_eq!(part.is_part, size + 42 > 1792, "{size}: the last part is marked, too");
            if frame.len() >= payload.len() + 42 {
                break;
            }
        }
        assert!(frame[42..] == payload, "{size}: {} bytes", frame.len());
    }
}

#[test]
fn one_chunk_of_4096_holds_a_packet_of_a_large_mtu() {
    let Some(testbed) = testbed() else { return };
    let pair = jumbo(&testbed, 3400);
    check_mtu(Chunk::Bytes4096, 64, pair.interface.mtu).unwrap();
    let memory = Memory::new(64 * 4096).unwrap();
    let umem = Umem::register(memory.area(), Chunk::Bytes4096, 64).unwrap();
    let mut socket = pair.open(&umem, 0);
    socket.fill((0..64).map(|n| n * 4096));
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    assert!(steering.is_native());
    steering.set_socket(0, &socket).unwrap();
    send(&pair, &[9; 3372]);
    let packet = receive(&mut socket, 1)[0];
    assert_eq!((packet.addr, packet.len, packet.is_part), (64 + 256, 3414, false));
    assert_eq!(memory.read(packet.addr + 42, 3372), [9; 3372]);
}

#[test]
fn the_generic_path_steers_and_stamps() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let targets = vec![Target::Ports { address: XDP_ADDRESS.into(), ports: vec![PORT] }];
    let rules = Rules { targets, stamp: true };
    let attach = || Steering::attach(&pair.interface, &rules, 1, AttachMode::Skb, None);
    let steering = pair.xdp.enter(attach).unwrap();
    assert!(!steering.is_native());
    steering.set_socket(0, &socket).unwrap();
    for n in 0..20u8 {
        send(&pair, &[n; 30]);
        let packet = receive(&mut socket, 1)[0];
        assert_eq!(memory.read(packet.addr + 42, 30), [n; 30]);
        assert!(packet.stamp_ns > 0);
    }
}

#[test]
fn a_full_completion_ring_holds_packets_back_until_it_is_emptied() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    let macs = (pair.interface.mac, pair.peer_interface.mac);
    let headers = udp_headers(macs, (XDP_ADDRESS, PORT), (PEER_ADDRESS, 9), 0);
    memory.write(SEND_FROM, &headers);
    let piece = Piece { addr: SEND_FROM, len: headers.len() as u32 };
    let queue = |socket: &mut Socket| {
        (0..RINGS.tx).for_each(|_| socket.transmit(&[piece]).unwrap());
        socket.kick().unwrap();
    };
    queue(&mut socket);
    assert_eq!(socket.transmit_pending(), 0);
    queue(&mut socket);
    assert_eq!(socket.transmit_pending(), RINGS.tx, "the first completions have not been taken");
    assert_eq!(complete(&mut socket, 2 * RINGS.tx as usize).len(), 512);
    assert_eq!(socket.transmit_pending(), 0);
}

#[test]
fn packets_that_find_the_fill_ring_empty_are_dropped_and_counted() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    assert_eq!((socket.fill_room(), socket.fill(chunks(0, 2))), (RINGS.fill, 2));
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    steering.set_socket(0, &socket).unwrap();
    (0..5).for_each(|_| send(&pair, b"x"));
    assert_eq!(receive(&mut socket, 2).len(), 2);
    let started = std::time::Instant::now();
    while socket.statistics().unwrap().fill_ring_empty < 3 {
        assert!(started.elapsed() < PATIENCE, "{:?}", socket.statistics());
    }
    let statistics = socket.statistics().unwrap();
    assert_eq!((statistics.fill_ring_empty, statistics.rx_dropped), (3, 0), "each packet is counted once");
}

#[test]
fn the_socket_gets_a_peers_address_resolution_requests_for_an_own_address() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let own6: Ipv6Addr = "fd09::77".parse().unwrap();
    let targets = vec![Target::Own(OWN_ADDRESS.into()), Target::Own(own6.into())];
    let steering = pair.steer(&Rules { targets, stamp: false });
    steering.set_socket(0, &socket).unwrap();
    let joined =
        pair.xdp.command("ip").args(["maddr", "show", "dev", &pair.interface.name]).output().unwrap();
    let joined = String::from_utf8_lossy(&joined.stdout);
    assert!(joined.contains("33:33:ff:00:00:77"), "the device accepts the multicast group");
    let peer = pair.peer.enter(|| UdpSocket::bind((PEER_ADDRESS, 0))).unwrap();
    peer.send_to(b"?", (OWN_ADDRESS, PORT)).unwrap();
    let asked = receive(&mut socket, 1)[0];
    let frame = memory.read(asked.addr, asked.len);
    assert_eq!(
        (&frame[..6], &frame[12..14], &frame[38..42]),
        (&[0xff; 6][..], &[8, 6][..], &[10, 9, 0, 77][..])
    );
    pair.peer.ip(&format!("addr add fd09::2/64 dev {} nodad\n", pair.peer_interface.name)).unwrap();
    let peer = pair.peer.enter(|| UdpSocket::bind("[fd09::2]:0")).unwrap();
    peer.send_to(b"?", (own6, PORT)).unwrap();
    // The ARP request may be repeated meanwhile.
    let solicitation = loop {
        let packet = receive(&mut socket, 1)[0];
        let frame = memory.read(packet.addr, packet.len);
        if frame[12..14] == [0x86, 0xdd] {
            break frame;
        }
    };
    assert_eq!((solicitation[54], &solicitation[62..78]), (135, &own6.octets()[..]));
    assert_eq!(solicitation[..6], [0x33, 0x33, 0xff, 0, 0, 0x77]);
}

#[test]
fn a_mapping_of_an_ordinary_file_is_refused_with_advice() {
    let Some(_testbed) = testbed() else { return };
    let file = std::env::temp_dir().join(format!("landfall-umem-{}", std::process::id()));
    let open = || std::fs::File::options().read(true).write(true).create_new(true).open(&file);
    let opened = open().unwrap();
    std::fs::remove_file(&file).unwrap();
    opened.set_len(1 << 20).unwrap();
    let memory = Memory::map(&opened, 1 << 20).unwrap();
    match Umem::register(memory.area(), Chunk::Bytes2048, 0) {
        Err(refused) => {
            assert!(matches!(refused, XdpError::CannotPin { .. }), "{refused:?}");
            assert!(refused.to_string().contains("tmpfs"), "{refused}");
        }
        Ok(_) => eprintln!("SKIP: files in {} can be pinned (tmpfs)", std::env::temp_dir().display()),
    }
}

/// As a test, it does nothing. As the child process of a test, it checks what the kernel refuses, and reports it.
#[test]
fn child_without_privileges_asks_for_a_socket() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let memory = Memory::new(1 << 20).unwrap();
    let refused = Umem::register(memory.area(), Chunk::Bytes2048, 0).unwrap_err();
    assert!(matches!(refused, XdpError::NoPrivilege { .. }), "{refused:?}");
    let lo = Interface::find("lo").unwrap();
    let refused = Steering::attach(&lo, &ports([127, 0, 0, 1], &[1]), 1, AttachMode::Auto, None).unwrap_err();
    assert!(matches!(refused, XdpError::NoPrivilege { .. }), "{refused:?}");
    println!("refused as expected");
}

#[test]
fn without_privileges_sockets_and_programs_are_refused_with_advice() {
    let Some(_testbed) = testbed() else { return };
    // The program is copied to a place where an unprivileged user can run it, by another process: a child that another test
    // forks meanwhile would have it open for writing until it executes something, and then it could not be run.
    let program = std::env::temp_dir().join(format!("landfall-unprivileged-{}", std::process::id()));
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success(), "cp: {copied}");
    let mut command = Command::new(&program);
    command.args(["--exact", "child_without_privileges_asks_for_a_socket", "--nocapture"]);
    let output = command.env(CHILD, "1").uid(65534).gid(65534).stdin(Stdio::null()).output();
    std::fs::remove_file(&program).unwrap();
    let output = output.unwrap();
    let reported = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        reported.contains("refused as expected"),
        "{reported}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_requested_mode_is_used() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let mut socket = pair.xdp.enter(|| Socket::open(&umem, &pair.interface, 0, RINGS, Mode::Copy)).unwrap();
    assert!(!socket.is_zero_copy());
    assert!(socket.prefer_busy_poll(50), "root may set it");
    socket.wake_receive().unwrap();
    assert!(socket.descriptor() > 2);
}
