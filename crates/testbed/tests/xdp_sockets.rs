//! Tests of AF_XDP sockets over veth, with a kernel peer.

mod common;

use common::*;
use landfall_xdp::{Mode, NotTaken, PIECES_MAX, Piece, Rules, Socket, Target, XdpError};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

const PORT: u16 = 7007;

fn peer_socket(pair: &Pair) -> UdpSocket {
    let socket = pair.peer.enter(|| UdpSocket::bind((PEER_ADDRESS, 9009))).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn datagrams_of_a_kernel_peer_land_in_the_area_byte_for_byte() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    assert!(!socket.is_zero_copy() && !socket.needs_fill_wakeup());
    assert_eq!(socket.fill(chunks(0, 64)), 64);
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    assert!(steering.is_native());
    steering.set_socket(0, &socket).unwrap();
    let peer = peer_socket(&pair);
    for n in 0..50u8 {
        peer.send_to(&vec![n; usize::from(n) + 1], (XDP_ADDRESS, PORT)).unwrap();
    }
    for (n, packet) in (0u8..).zip(receive(&mut socket, 50)) {
        assert_eq!(packet.addr, u64::from(n) * CHUNK + u64::from(umem.landing()));
        assert!(!packet.is_part && packet.stamp_ns == 0);
        let bytes = memory.read(packet.addr, packet.len);
        assert_eq!(bytes[42..43 + usize::from(n)], vec![n; usize::from(n) + 1]);
        assert_eq!(bytes[6..12], pair.peer_interface.mac);
    }
    assert_eq!(socket.statistics().unwrap(), landfall_xdp::Statistics::default());
}

#[test]
fn packets_of_several_pieces_at_odd_offsets_arrive_as_one_datagram() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    let peer = peer_socket(&pair);
    let macs = (pair.interface.mac, pair.peer_interface.mac);
    for pieces in 1..PIECES_MAX {
        let payload: Vec<u8> = (0..pieces * 70 + 1).map(|i| (i * 7 + pieces) as u8).collect();
        let headers = udp_headers(macs, (XDP_ADDRESS, PORT), (PEER_ADDRESS, 9009), payload.len());
        memory.write(SEND_FROM, &headers);
        let mut packet = vec![Piece { addr: SEND_FROM, len: headers.len() as u32 }];
        let part = payload.len().div_ceil(pieces);
        for (n, part) in (1u64..).zip(payload.chunks(part)) {
            // The last piece ends exactly at the end of its chunk; the others begin at odd offsets.
            let at = SEND_FROM + n * CHUNK;
            let addr = if n == pieces as u64 { at + CHUNK - part.len() as u64 } else { at + 13 * n };
            memory.write(addr, part);
            packet.push(Piece { addr, len: part.len() as u32 });
        }
        socket.transmit(&packet).unwrap();
        socket.kick().unwrap();
        let mut got = vec![0; 2000];
        let (length, from) = peer.recv_from(&mut got).unwrap();
        assert_eq!((&got[..length], from), (&payload[..], SocketAddr::from((XDP_ADDRESS, PORT))));
        let mut done = complete(&mut socket, packet.len());
        done.sort_unstable();
        let mut sent: Vec<u64> = packet.iter().map(|piece| piece.addr).collect();
        sent.sort_unstable();
        assert_eq!(done, sent, "each piece is reported once, by its address");
    }
    assert_eq!(socket.statistics().unwrap().tx_invalid, 0);
}

#[test]
fn pieces_the_kernel_would_drop_are_refused() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    let piece = |addr, len| Piece { addr, len };
    assert_eq!(socket.transmit(&[]), Err(NotTaken::Pieces(0)));
    assert_eq!(socket.transmit(&[piece(0, 1); PIECES_MAX + 1]), Err(NotTaken::Pieces(PIECES_MAX + 1)));
    for (addr, len) in [(0, 0), (CHUNK - 1, 2), (0, 2049), (CHUNK * CHUNKS, 1), (u64::MAX, 1)] {
        assert_eq!(socket.transmit(&[piece(0, 64), piece(addr, len)]), Err(NotTaken::Piece { addr, len }));
    }
    assert_eq!(socket.transmit_pending(), 0);
    // 256 entries hold 14 packets of 18 pieces.
    for _ in 0..14 {
        socket.transmit(&[piece(0, 64); PIECES_MAX]).unwrap();
    }
    assert_eq!(
        (socket.transmit(&[piece(0, 64); PIECES_MAX]), socket.transmit_room()),
        (Err(NotTaken::Full), 4)
    );
    socket.transmit(&[piece(0, 64); 4]).unwrap();
}

#[test]
fn one_kick_sends_a_full_ring() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    let peer = peer_socket(&pair);
    let headers = udp_headers(
        (pair.interface.mac, pair.peer_interface.mac),
        (XDP_ADDRESS, PORT),
        (PEER_ADDRESS, 9009),
        1,
    );
    for n in 0..RINGS.tx {
        let addr = SEND_FROM + u64::from(n) * CHUNK;
        memory.write(addr, &headers);
        memory.write(addr + headers.len() as u64, &[n as u8]);
        socket.transmit(&[Piece { addr, len: headers.len() as u32 + 1 }]).unwrap();
    }
    socket.kick().unwrap();
    assert_eq!(socket.transmit_pending(), 0);
    for n in 0..RINGS.tx {
        let mut got = [0; 8];
        assert_eq!((peer.recv(&mut got).unwrap(), got[0]), (1, n as u8));
    }
    assert_eq!(complete(&mut socket, RINGS.tx as usize).len(), RINGS.tx as usize);
}

#[test]
fn tcp_connection_attempt_of_a_kernel_peer_arrives() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 8));
    let steering = pair.steer(&own(OWN_ADDRESS));
    steering.set_socket(0, &socket).unwrap();
    pair.add_neighbour(OWN_ADDRESS.into());
    let to = SocketAddr::from((OWN_ADDRESS, PORT));
    let refused = pair.peer.enter(|| TcpStream::connect_timeout(&to, Duration::from_millis(50)));
    assert!(refused.is_err(), "no host answers");
    let packet = receive(&mut socket, 1)[0];
    let bytes = memory.read(packet.addr, packet.len);
    assert_eq!((bytes[23], bytes[47] & 0x3f), (6, 2), "a SYN: {bytes:x?}");
    // The checksum is complete: pseudo-header, header and options sum up to zero.
    let mut summed = bytes[26..].to_vec();
    summed.extend([0, 6, 0, (bytes.len() - 34) as u8]);
    assert_eq!(checksum(&summed), [0, 0]);
}

#[test]
fn two_queues_share_one_area() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 2);
    assert_eq!((pair.interface.rx_queues, pair.interface.tx_queues), (2, 2));
    assert!(pair.interface.addresses.contains(&XDP_ADDRESS.into()), "{:?}", pair.interface);
    assert_eq!((pair.interface.mtu, pair.interface.driver.as_deref()), (1500, Some("veth")));
    assert_ne!(pair.interface.mac, pair.peer_interface.mac);
    let (memory, umem) = memory();
    let mut sockets = [pair.open(&umem, 0), pair.open(&umem, 1)];
    assert!(matches!(
        pair.xdp.enter(|| Socket::open(&umem, &pair.interface, 1, RINGS, Mode::Auto)),
        Err(XdpError::QueueBusy { queue: 1, .. })
    ));
    assert!(matches!(
        pair.xdp.enter(|| Socket::open(&umem, &pair.interface, 2, RINGS, Mode::Auto)),
        Err(XdpError::NoSuchQueue { queue: 2, queues: 2, .. })
    ));
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    for (queue, socket) in (0u32..).zip(&mut sockets) {
        let from = u64::from(queue) * 128;
        assert_eq!(socket.fill(chunks(from, from + 100)), 100);
        steering.set_socket(queue, socket).unwrap();
    }
    let peer = peer_socket(&pair);
    let flows: Vec<UdpSocket> =
        (0..32).map(|_| pair.peer.enter(|| UdpSocket::bind((PEER_ADDRESS, 0))).unwrap()).collect();
    for flow in &flows {
        flow.send_to(b"to one of two", (XDP_ADDRESS, PORT)).unwrap();
    }
    let mut received = [Vec::new(), Vec::new()];
    let started = std::time::Instant::now();
    while received[0].len() + received[1].len() < flows.len() {
        for (socket, into) in sockets.iter_mut().zip(&mut received) {
            socket.receive(u32::MAX, into);
        }
        assert!(started.elapsed() < PATIENCE, "{received:?}");
    }
    for (queue, packets) in received.iter().enumerate() {
        let chunks = queue as u64 * 128..queue as u64 * 128 + 100;
        assert!(packets.iter().all(|packet| chunks.contains(&(packet.addr / CHUNK))), "own fill rings");
        assert!(packets.iter().all(|p| &memory.read(p.addr, p.len)[42..55] == b"to one of two"));
    }
    // The second socket can send, too.
    let headers = udp_headers(
        (pair.interface.mac, pair.peer_interface.mac),
        (XDP_ADDRESS, PORT),
        (PEER_ADDRESS, 9009),
        0,
    );
    memory.write(SEND_FROM, &headers);
    sockets[1].transmit(&[Piece { addr: SEND_FROM, len: headers.len() as u32 }]).unwrap();
    sockets[1].kick().unwrap();
    assert_eq!(peer.recv(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn packet_received_on_one_interface_leaves_on_another_from_the_same_chunk() {
    let Some(testbed) = testbed() else { return };
    let (left, mut right) = (Pair::new(&testbed, 1), Pair::new(&testbed, 1));
    // Both links end in one host, as at a device between client and server.
    let options = landfall_testbed::LinkOptions::between("10.9.1.1/24", "10.9.1.2/24");
    let (here, there) = testbed.link(&left.xdp, &right.peer, &options).unwrap();
    right.xdp = left.xdp.clone();
    right.interface = left.xdp.enter(|| landfall_xdp::Interface::find(&here)).unwrap();
    right.peer_interface = right.peer.enter(|| landfall_xdp::Interface::find(&there)).unwrap();
    let (memory, umem) = memory();
    let (mut from, mut to) = (left.open(&umem, 0), right.open(&umem, 0));
    from.fill(chunks(0, 8));
    let steering = left.steer(&ports(XDP_ADDRESS, &[PORT]));
    steering.set_socket(0, &from).unwrap();
    peer_socket(&left).send_to(b"through", (XDP_ADDRESS, PORT)).unwrap();
    let packet = receive(&mut from, 1)[0];
    let far = std::net::Ipv4Addr::new(10, 9, 1, 2);
    let headers = udp_headers(
        (right.interface.mac, right.peer_interface.mac),
        (std::net::Ipv4Addr::new(10, 9, 1, 1), PORT),
        (far, 9009),
        7,
    );
    memory.write(packet.addr, &headers);
    let receiver = right.peer.enter(|| UdpSocket::bind((far, 9009))).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    to.transmit(&[Piece { addr: packet.addr, len: packet.len }]).unwrap();
    to.kick().unwrap();
    let mut got = [0; 16];
    assert_eq!((receiver.recv(&mut got).unwrap(), &got[..7]), (7, &b"through"[..]));
    assert_eq!(complete(&mut to, 1), [packet.addr]);
    assert_eq!(from.fill([packet.addr].into_iter()), 1, "any address in the chunk names it");
}

#[test]
fn a_queue_is_free_as_soon_as_its_socket_is_dropped() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 2);
    let (_memory, umem) = memory();
    for _ in 0..5 {
        let first = pair.open(&umem, 0);
        let second = pair.open(&umem, 1);
        drop(first);
        // The second socket keeps the UMEM alive, so that the first queue can be opened again with it.
        let first = pair.open(&umem, 0);
        drop((second, first));
    }
    let (_other_memory, other) = memory();
    let _socket = pair.open(&other, 0);
    assert!(matches!(
        pair.xdp.enter(|| Socket::open(&umem, &pair.interface, 0, RINGS, Mode::Auto)),
        Err(XdpError::QueueBusy { queue: 0, .. })
    ));
}

#[test]
fn sockets_work_through_a_middlebox() {
    let Some(testbed) = testbed() else { return };
    let (pair, middlebox) = Pair::through(&testbed, landfall_testbed::Faults::default());
    let (memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    steering.set_socket(0, &socket).unwrap();
    let peer = peer_socket(&pair);
    for n in 0..20u8 {
        peer.send_to(&[n; 100], (XDP_ADDRESS, PORT)).unwrap();
        let packet = receive(&mut socket, 1)[0];
        assert_eq!(memory.read(packet.addr + 42, 100), [n; 100]);
        let macs = (pair.interface.mac, pair.peer_interface.mac);
        memory.write(SEND_FROM, &udp_headers(macs, (XDP_ADDRESS, PORT), (PEER_ADDRESS, 9009), 100));
        let headers = Piece { addr: SEND_FROM, len: 42 };
        socket.transmit(&[headers, Piece { addr: packet.addr + 42, len: 100 }]).unwrap();
        socket.kick().unwrap();
        let mut got = [0; 200];
        assert_eq!((peer.recv(&mut got).unwrap(), &got[..100]), (100, &[n; 100][..]));
        assert_eq!(complete(&mut socket, 2), [SEND_FROM, packet.addr + 42]);
    }
    let [there, back] = middlebox.tallies();
    assert!(there.sent >= 20 && back.sent >= 20, "{there:?} {back:?}");
}

#[test]
fn zero_copy_on_veth_is_refused_with_advice() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let refused = pair.xdp.enter(|| Socket::open(&umem, &pair.interface, 0, RINGS, Mode::ZeroCopy));
    assert!(matches!(refused, Err(XdpError::NoZeroCopy { .. })), "{refused:?}");
    assert!(!pair.open(&umem, 0).is_zero_copy());
}

#[test]
fn stamps_lie_between_sending_and_receiving() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let targets = vec![Target::Ports { address: XDP_ADDRESS.into(), ports: vec![PORT] }];
    let steering = pair.steer(&Rules { targets, stamp: true });
    steering.set_socket(0, &socket).unwrap();
    let peer = peer_socket(&pair);
    let mut earlier = 0;
    for _ in 0..50 {
        peer.send_to(&[1], (XDP_ADDRESS, PORT)).unwrap();
        let packet = receive(&mut socket, 1)[0];
        assert!(packet.stamp_ns > earlier, "{} after {earlier}", packet.stamp_ns);
        earlier = packet.stamp_ns;
        assert_eq!(packet.addr % CHUNK, u64::from(umem.landing()), "stamps do not move the frame");
    }
}

#[test]
fn packets_to_other_ports_go_to_the_kernel() {
    let Some(testbed) = testbed() else { return };
    let pair = Pair::new(&testbed, 1);
    let (_memory, umem) = memory();
    let mut socket = pair.open(&umem, 0);
    socket.fill(chunks(0, 64));
    let steering = pair.steer(&ports(XDP_ADDRESS, &[PORT]));
    steering.set_socket(0, &socket).unwrap();
    let kernel = pair.xdp.enter(|| UdpSocket::bind((XDP_ADDRESS, PORT + 1))).unwrap();
    kernel.set_read_timeout(Some(PATIENCE)).unwrap();
    let peer = peer_socket(&pair);
    peer.send_to(b"kernel's", (XDP_ADDRESS, PORT + 1)).unwrap();
    assert_eq!(kernel.recv(&mut [0; 16]).unwrap(), 8);
    // Of a datagram in fragments, only the first fragment has ports. The kernel therefore gets all fragments.
    let whole = pair.xdp.enter(|| UdpSocket::bind((XDP_ADDRESS, PORT))).unwrap();
    whole.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.send_to(&[7; 4000], (XDP_ADDRESS, PORT)).unwrap();
    assert_eq!(whole.recv(&mut [0; 5000]).unwrap(), 4000);
    // Without a socket on the queue, the kernel gets the steered packets again.
    drop(socket);
    peer.send_to(b"again", (XDP_ADDRESS, PORT)).unwrap();
    assert_eq!(whole.recv(&mut [0; 16]).unwrap(), 5);
    let stream = pair.xdp.enter(|| std::net::TcpListener::bind((XDP_ADDRESS, PORT))).unwrap();
    let mut client = pair.peer.enter(|| TcpStream::connect((XDP_ADDRESS, PORT))).unwrap();
    client.write_all(b"x").unwrap();
    drop(stream.accept().unwrap());
}
