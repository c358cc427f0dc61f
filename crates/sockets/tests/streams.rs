//! Bytes arrive as they were sent, stay where they landed, and are sent from there.

mod common;

use common::{Echo, Noise, Rig};
use landfall_media::{Extent, RUN_SIZE};
use landfall_sockets::{Event, LIMITED_BYTES_MAX, Outgoing, TransportRequest};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

on_both_transports! {
    random_chunks_are_echoed_unchanged,
    sixty_four_connections_are_served_at_once,
    a_stream_lands_without_gaps_over_run_ends,
    connections_receive_little_a_turn_until_they_are_trusted,
    a_slow_reader_gets_a_large_reply_whole,
    a_reply_of_a_thousand_parts_is_sent_in_order,
    bytes_and_stored_parts_keep_their_order,
    an_empty_reply_is_reported_as_sent,
}

/// Sends `data` in random chunks while it reads the echo; returns the echo.
fn echo_client(address: SocketAddr, data: &[u8], seed: u64) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut reader = socket.try_clone().unwrap();
    let reading = thread::spawn(move || {
        let mut back = Vec::new();
        reader.read_to_end(&mut back).unwrap();
        back
    });
    let (mut noise, mut rest) = (Noise(seed), data);
    while !rest.is_empty() {
        let size = 1 + usize::try_from(noise.next() % 40_000).unwrap();
        let (chunk, left) = rest.split_at(size.min(rest.len()));
        socket.write_all(chunk).unwrap();
        rest = left;
    }
    socket.shutdown(Shutdown::Write).unwrap();
    reading.join().unwrap()
}

fn echo_round(request: TransportRequest, clients: usize, bytes_each: usize, runs: u64) {
    let mut rig = Rig::new(request, runs);
    let address = rig.address;
    let all: Vec<_> = (1..=clients as u64)
        .map(|seed| {
            thread::spawn(move || {
                let data = Noise(seed).bytes(bytes_each);
                assert!(echo_client(address, &data, seed) == data, "client {seed} got other bytes");
            })
        })
        .collect();
    let mut echo = Echo::default();
    echo.serve(&mut rig, || all.iter().all(thread::JoinHandle::is_finished));
    assert_eq!(echo.closed, clients);
    all.into_iter().for_each(|client| client.join().unwrap());
    rig.finish();
}

fn random_chunks_are_echoed_unchanged(request: TransportRequest) {
    // Large replies to a slow reader: the number of the kernel's retries depends on timing.
    (0..3).for_each(|_| echo_round(request, 1, 20 << 20, 40));
}

fn sixty_four_connections_are_served_at_once(request: TransportRequest) {
    echo_round(request, 64, 300_000, 40);
}

fn a_stream_lands_without_gaps_over_run_ends(request: TransportRequest) {
    let mut rig = Rig::new(request, 8);
    let (mut client, conn) = rig.connect();
    let data = Noise(5).bytes(usize::try_from(3 * RUN_SIZE + 12_345).unwrap());
    let sent = data.clone();
    let sending = thread::spawn(move || client.write_all(&sent).map(|()| client).unwrap());
    // The fake heap itself checks that each extent starts at the end of the previous one in the run.
    assert!(rig.receive(conn, data.len()) == data);
    assert!(rig.frames.runs_taken >= 4 && rig.frames.held() == 0);
    drop(sending.join().unwrap());
    rig.finish();
}

fn connections_receive_little_a_turn_until_they_are_trusted(request: TransportRequest) {
    let mut rig = Rig::new(request, 12);
    let (mut client, conn) = rig.connect();
    const LEN: usize = 8 << 20;
    let sending = thread::spawn(move || client.write_all(&vec![b'x'; LEN]).map(|()| client).unwrap());
    let (mut received, mut most) = (0, [0; 2]);
    while received < LEN {
        let trusted = received >= LEN / 2;
        if trusted && most[1] == 0 {
            rig.transport.trust(conn);
            // The operation in progress may still be a limited one.
            received += len_received(&mut rig);
        }
        let len = len_received(&mut rig);
        let most = &mut most[usize::from(trusted)];
        *most = len.max(*most);
        received += len;
    }
    assert!(most[0] <= LIMITED_BYTES_MAX as usize, "{most:?}");
    assert!(most[1] > LIMITED_BYTES_MAX as usize, "{most:?}");
    drop(sending.join().unwrap());
    rig.finish();
}

/// Number of bytes that one turn received.
fn len_received(rig: &mut Rig) -> usize {
    let events = rig.poll();
    rig.release_received(&events);
    let len = |event: &Event| match event {
        Event::Received { extent, .. } => extent.len() as usize,
        _ => 0,
    };
    events.iter().map(len).sum()
}

/// Reads `len` bytes, slowly.
fn read_slowly(client: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut got = vec![0; len];
    for piece in got.chunks_mut(1 << 19) {
        client.read_exact(piece).unwrap();
        thread::sleep(Duration::from_millis(3));
    }
    got
}

fn a_slow_reader_gets_a_large_reply_whole(request: TransportRequest) {
    let mut rig = Rig::new(request, 16);
    let (mut client, conn) = rig.connect();
    let data = Noise(6).bytes(usize::try_from(8 * RUN_SIZE).unwrap());
    let mut out = Outgoing::new();
    for run in data.chunks(usize::try_from(RUN_SIZE).unwrap()) {
        let off = rig.frames.claim();
        rig.frames.store(off, run);
        let extent = Extent::new(off, RUN_SIZE as u32);
        rig.frames.hold_stored(extent);
        out.push_stored(extent);
    }
    let reading = thread::spawn(move || (read_slowly(&mut client, 8 << 20), client));
    rig.transport.send(&mut rig.frames, conn, out);
    assert_eq!(rig.frames.held(), 8, "nothing is released while it is being sent");
    rig.expect("sending", |event| matches!(event, Event::Sent { .. }).then_some(()));
    assert_eq!(rig.frames.held(), 0);
    assert!(reading.join().unwrap().0 == data);
    rig.finish();
}

fn a_reply_of_a_thousand_parts_is_sent_in_order(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    let off = rig.frames.claim();
    let data = Noise(7).bytes(1000 * 300);
    rig.frames.store(off, &data);
    let mut out = Outgoing::new();
    for part in 0..1000 {
        let extent = Extent::new(off + part * 300, 300);
        rig.frames.hold_stored(extent);
        out.push_stored(extent);
    }
    let reading = thread::spawn(move || (read_slowly(&mut client, 300_000), client));
    rig.transport.send(&mut rig.frames, conn, out);
    rig.expect("sending", |event| matches!(event, Event::Sent { .. }).then_some(()));
    assert!(reading.join().unwrap().0 == data);
    rig.finish();
}

fn bytes_and_stored_parts_keep_their_order(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    let off = rig.frames.claim();
    rig.frames.store(off, b"stored");
    let extent = Extent::new(off, 6);
    rig.frames.hold_stored(extent);
    rig.frames.hold_stored(extent);
    let mut out = Outgoing::new();
    out.bytes.extend_from_slice(b"$6\r\n");
    out.push_stored(extent);
    out.bytes.extend_from_slice(b"\r\n$6\r\n");
    out.push_stored(extent);
    out.bytes.extend_from_slice(b"\r\n");
    rig.transport.send(&mut rig.frames, conn, out);
    rig.expect("sending", |event| matches!(event, Event::Sent { .. }).then_some(()));
    let mut got = vec![0; 24];
    client.read_exact(&mut got).unwrap();
    assert_eq!(got, b"$6\r\nstored\r\n$6\r\nstored\r\n");
    rig.finish();
}

fn an_empty_reply_is_reported_as_sent(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (_client, conn) = rig.connect();
    rig.transport.send(&mut rig.frames, conn, Outgoing::new());
    rig.expect("sending", |event| matches!(event, Event::Sent { .. }).then_some(()));
    rig.finish();
}
