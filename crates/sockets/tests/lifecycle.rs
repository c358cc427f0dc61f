//! Connections open, pause, resume and close: no data are lost and no memory stays held.

mod common;

use common::{Noise, PATIENCE, Rig};
use landfall_media::{Extent, RUN_SIZE};
use landfall_sockets::{Event, Outgoing, TransportRequest, Wait};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

on_both_transports! {
    a_paused_connection_stops_its_client_and_loses_no_data,
    pausing_and_resuming_at_once_continues_to_receive,
    a_reply_in_flight_is_delivered_before_a_close,
    a_client_that_never_reads_is_cut_off_after_a_close,
    a_reset_ends_the_connection_with_an_error,
    a_reset_during_a_send_releases_the_reply,
    a_reply_to_a_closed_connection_is_released,
    bytes_that_land_after_a_close_are_released,
    starvation_is_reported_once_and_receiving_recovers,
    a_wake_from_another_thread_ends_a_wait,
    no_wake_is_lost_among_many,
    what_comes_for_a_watched_descriptor_ends_a_wait,
    a_wait_ends_at_its_time_limit,
    lingering_gathers_events_and_ends_in_time,
    the_end_of_a_stream_is_reported_and_replies_still_go_out,
    shutting_down_with_everything_in_flight_returns_all_runs,
    dropping_without_shutting_down_ends_the_connections,
}

fn a_paused_connection_stops_its_client_and_loses_no_data(request: TransportRequest) {
    let mut rig = Rig::new(request, 40);
    let (mut client, conn) = rig.connect();
    rig.transport.pause(conn);
    let data = Noise(1).bytes(24 << 20);
    let sent = data.clone();
    let sending = thread::spawn(move || client.write_all(&sent).map(|()| client).unwrap());
    let (mut got, until) = (Vec::new(), Instant::now() + Duration::from_millis(200));
    while Instant::now() < until {
        let events = rig.poll();
        for event in &events {
            if let Event::Received { extent, .. } = event {
                got.extend(rig.frames.bytes(*extent));
            }
        }
        rig.release_received(&events);
    }
    assert!(!sending.is_finished() && got.len() < data.len(), "the window holds the client back");
    rig.transport.resume(&mut rig.frames, conn);
    got.extend(rig.receive(conn, data.len() - got.len()));
    assert!(got == data, "what arrived while paused comes in its place");
    drop(sending.join().unwrap());
    rig.finish();
}

fn pausing_and_resuming_at_once_continues_to_receive(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    for round in 0..50u8 {
        rig.transport.pause(conn);
        rig.transport.resume(&mut rig.frames, conn);
        client.write_all(&[round; 100]).unwrap();
        if round % 2 == 0 {
            rig.transport.pause(conn);
            rig.transport.resume(&mut rig.frames, conn);
        }
        assert_eq!(rig.receive(conn, 100), [round; 100]);
    }
    rig.finish();
}

/// A reply of four stored runs, which is more than socket buffers hold.
fn large_reply(rig: &mut Rig) -> (Outgoing, Vec<u8>) {
    let (mut out, mut all) = (Outgoing::new(), Vec::new());
    for seed in 1..=12 {
        let data = Noise(seed).bytes(usize::try_from(RUN_SIZE).unwrap());
        let off = rig.frames.claim();
        rig.frames.store(off, &data);
        let extent = Extent::new(off, RUN_SIZE as u32);
        rig.frames.hold_stored(extent);
        out.push_stored(extent);
        all.extend(data);
    }
    (out, all)
}

fn a_reply_in_flight_is_delivered_before_a_close(request: TransportRequest) {
    let mut rig = Rig::new(request, 20);
    let (mut client, conn) = rig.connect();
    let (out, data) = large_reply(&mut rig);
    rig.transport.send(&mut rig.frames, conn, out);
    rig.poll();
    assert_eq!(rig.frames.held(), 12, "the reply is stuck in front of a full socket");
    rig.transport.close(&mut rig.frames, conn);
    let reading = thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    assert_eq!(rig.expect_closed(conn), None);
    assert_eq!(rig.frames.held(), 0);
    assert!(reading.join().unwrap() == data);
    rig.finish();
}

fn a_client_that_never_reads_is_cut_off_after_a_close(request: TransportRequest) {
    let mut rig = Rig::new(request, 20);
    let (_client, conn) = rig.connect();
    let (out, _) = large_reply(&mut rig);
    rig.transport.send(&mut rig.frames, conn, out);
    rig.poll();
    rig.transport.close(&mut rig.frames, conn);
    rig.transport.close(&mut rig.frames, conn);
    assert_eq!(rig.expect_closed(conn), None);
    assert_eq!(rig.frames.held(), 0);
    rig.finish();
}

/// Closes a socket so that its peer sees a reset.
fn reset(client: TcpStream) {
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
}

fn a_reset_ends_the_connection_with_an_error(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    client.write_all(b"half a request").unwrap();
    rig.receive(conn, 14);
    reset(client);
    assert_eq!(rig.expect_closed(conn), Some(std::io::ErrorKind::ConnectionReset));
    rig.finish();
}

fn a_reset_during_a_send_releases_the_reply(request: TransportRequest) {
    let mut rig = Rig::new(request, 20);
    let (client, conn) = rig.connect();
    let (out, _) = large_reply(&mut rig);
    rig.transport.send(&mut rig.frames, conn, out);
    rig.poll();
    reset(client);
    assert!(rig.expect_closed(conn).is_some());
    assert_eq!(rig.frames.held(), 0);
    rig.finish();
}

fn a_reply_to_a_closed_connection_is_released(request: TransportRequest) {
    let mut rig = Rig::new(request, 20);
    let (_client, conn) = rig.connect();
    rig.transport.close(&mut rig.frames, conn);
    let (out, _) = large_reply(&mut rig);
    rig.transport.send(&mut rig.frames, conn, out);
    assert_eq!(rig.frames.held(), 0);
    rig.expect_closed(conn);
    rig.transport.close(&mut rig.frames, conn);
    rig.transport.pause(conn);
    rig.transport.resume(&mut rig.frames, conn);
    assert!(rig.poll().is_empty(), "a closed id means nothing");
    rig.finish();
}

fn bytes_that_land_after_a_close_are_released(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut other, other_conn) = rig.connect();
    for round in 0..20u8 {
        let (mut client, conn) = rig.connect();
        client.write_all(&[round; 5000]).unwrap();
        // The receive is in the kernel and the bytes are there: the receive completes while it is cancelled.
        rig.transport.close(&mut rig.frames, conn);
        let events = rig.poll_for(PATIENCE);
        assert!(
            !events.iter().any(|event| matches!(event, Event::Received { .. })),
            "nothing is reported after a close: {events:?}"
        );
        if !events.iter().any(|event| matches!(event, Event::Closed { .. })) {
            rig.expect_closed(conn);
        }
        assert_eq!(rig.frames.held(), 0);
        // The next bytes land directly behind, which the fake heap checks.
        other.write_all(&[round; 100]).unwrap();
        assert_eq!(rig.receive(other_conn, 100), [round; 100]);
    }
    rig.finish();
}

fn starvation_is_reported_once_and_receiving_recovers(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    let data = Noise(3).bytes(usize::try_from(6 * RUN_SIZE).unwrap());
    let sent = data.clone();
    let sending = thread::spawn(move || client.write_all(&sent).map(|()| client).unwrap());
    // The test holds all received data, which uses up all runs.
    let (mut kept, mut starved, mut got) = (Vec::new(), 0, Vec::new());
    let (mut until, all) = (Instant::now() + PATIENCE, usize::try_from(4 * RUN_SIZE).unwrap());
    while Instant::now() < until {
        if got.len() == all {
            // Some more polls, which must not report starvation again.
            until = until.min(Instant::now() + Duration::from_millis(100));
        }
        for event in rig.poll() {
            match event {
                Event::Received { extent, .. } => {
                    got.extend(rig.frames.bytes(extent));
                    kept.push(extent);
                }
                Event::Starved => starved += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!((starved, got.len()), (1, all));
    kept.drain(..).for_each(|extent| landfall_sockets::Frames::release(&mut rig.frames, extent));
    got.extend(rig.receive(conn, data.len() - got.len()));
    assert!(got == data);
    drop(sending.join().unwrap());
    rig.finish();
}

const FOR_EVER: Wait = Wait { timeout: None, events_min: 1, linger: Duration::ZERO };

fn a_wake_from_another_thread_ends_a_wait(request: TransportRequest) {
    let mut rig = Rig::new(request, 1);
    let waker = rig.transport.waker();
    for _ in 0..3 {
        let waker = waker.clone();
        let waking = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let mut events = Vec::new();
        rig.transport.poll(&mut rig.frames, FOR_EVER, &mut events).unwrap();
        assert!(matches!(events[..], [Event::Woken]), "{events:?}");
        waking.join().unwrap();
    }
    rig.finish();
}

/// As a chain watches the connections to the node behind: an epoll instance, to which they are added one after the other.
fn what_comes_for_a_watched_descriptor_ends_a_wait(request: TransportRequest) {
    use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
    let mut rig = Rig::new(request, 1);
    let watched = create(CreateFlags::CLOEXEC).unwrap();
    rig.transport.watch(watched.try_clone().unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for connection in 0..3u8 {
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        add(&watched, &near, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).unwrap();
        for answer in 0..3u8 {
            let answering = thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                far.write_all(&[connection, answer]).map(|()| far).unwrap()
            });
            let (mut events, mut bytes) = (Vec::new(), [0; 2]);
            rig.transport.poll(&mut rig.frames, FOR_EVER, &mut events).unwrap();
            assert!(matches!(events[..], [Event::Woken]), "{events:?}");
            near.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [connection, answer]);
            far = answering.join().unwrap();
        }
        drop(near);
        assert!(rig.poll().is_empty(), "nothing has come");
    }
    rig.finish();
}

fn no_wake_is_lost_among_many(request: TransportRequest) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    const WAKES: u32 = 20_000;
    let mut rig = Rig::new(request, 1);
    let sent = Arc::new(AtomicU32::new(0));
    let (waker, count) = (rig.transport.waker(), Arc::clone(&sent));
    let waking = thread::spawn(move || {
        for _ in 0..WAKES {
            count.fetch_add(1, Ordering::Release);
            waker.wake();
        }
    });
    // Each round sees everything that was counted before the wake that ended it, so the last number is seen.
    let mut seen = 0;
    while seen < WAKES {
        let events = rig.poll_for(PATIENCE);
        assert!(!events.is_empty(), "a wake was lost after {seen}");
        seen = sent.load(Ordering::Acquire);
    }
    waking.join().unwrap();
    rig.finish();
}

fn a_wait_ends_at_its_time_limit(request: TransportRequest) {
    let mut rig = Rig::new(request, 1);
    let started = Instant::now();
    assert!(rig.poll_for(Duration::from_millis(30)).is_empty());
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(29) && took < Duration::from_secs(5), "{took:?}");
    let started = Instant::now();
    assert!(rig.poll_for(Duration::ZERO).is_empty());
    assert!(started.elapsed() < Duration::from_secs(1));
    rig.finish();
}

fn lingering_gathers_events_and_ends_in_time(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    client.write_all(b"x").unwrap();
    let wait = Wait { timeout: Some(PATIENCE), events_min: 100, linger: Duration::from_millis(20) };
    let (started, mut events) = (Instant::now(), Vec::new());
    rig.transport.poll(&mut rig.frames, wait, &mut events).unwrap();
    assert!(started.elapsed() < PATIENCE / 2, "one event is enough once the linger time is over");
    assert!(matches!(events[..], [Event::Received { conn: from, .. }] if from == conn), "{events:?}");
    rig.release_received(&events);
    rig.finish();
}

fn the_end_of_a_stream_is_reported_and_replies_still_go_out(request: TransportRequest) {
    let mut rig = Rig::new(request, 4);
    let (mut client, conn) = rig.connect();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    rig.expect("the end", |event| matches!(event, Event::Eof { .. }).then_some(()));
    rig.send_text(conn, b"+OK\r\n");
    rig.transport.close(&mut rig.frames, conn);
    assert_eq!(rig.expect_closed(conn), None);
    let mut got = String::new();
    client.read_to_string(&mut got).unwrap();
    assert_eq!(got, "+OK\r\n");
    rig.finish();
}

fn shutting_down_with_everything_in_flight_returns_all_runs(request: TransportRequest) {
    let mut rig = Rig::new(request, 40);
    let (_stuck, stuck_conn) = rig.connect();
    let (mut talking, _) = rig.connect();
    let (_paused, paused_conn) = rig.connect();
    rig.transport.pause(paused_conn);
    let (out, _) = large_reply(&mut rig);
    rig.transport.send(&mut rig.frames, stuck_conn, out);
    rig.poll();
    talking.write_all(&[7; 50_000]).unwrap();
    rig.finish();
}

fn dropping_without_shutting_down_ends_the_connections(request: TransportRequest) {
    let mut rig = Rig::new(request, 20);
    let (mut client, conn) = rig.connect();
    let (out, _) = large_reply(&mut rig);
    rig.transport.send(&mut rig.frames, conn, out);
    rig.poll();
    drop(rig.transport);
    let mut got = Vec::new();
    let read = client.read_to_end(&mut got);
    assert!(read.is_err() || got.len() < 12 << 20, "the reply was cut off");
}
