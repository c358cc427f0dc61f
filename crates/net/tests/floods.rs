//! Floods of all kinds: everything that the stack keeps is bounded, well-behaved peers are still served, and afterwards
//! no frame is held.

mod support;

use landfall_net::{ConnId, Drop, Event, Instant};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use support::wire::{ACK, FIN, PSH, RST, SYN, Seg, put_long};
use support::{Host, PORT, Rng, config, seg};

/// A host that listens, with small limits.
fn host(change: impl Fn(&mut landfall_net::Config)) -> Host {
    let mut limits = config(0);
    limits.backlog_max = 64;
    limits.connections_max = 256;
    limits.time_wait_max = 16;
    limits.waiting_frames_max = 200;
    limits.waiting_frames_per_connection = 20;
    limits.set_aside_after = Duration::from_millis(100);
    change(&mut limits);
    let mut host = Host::new(limits, 5);
    host.stack.listen(PORT, 1);
    host
}

fn peer(number: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 1, (number >> 8) as u8, number as u8]), 4000 + (number >> 16) as u16)
}

/// The last segment that the stack sends to one peer; other packets are dropped.
fn to(host: &mut Host, now: Instant, remote: SocketAddr) -> Option<Seg> {
    let mut last = None;
    while let Some(frame) = host.transmit(now) {
        last = Seg::parse(&frame).filter(|seg| seg.to == remote).or(last);
    }
    last
}

/// Completes a handshake. Returns the stack's initial sequence number.
fn open(host: &mut Host, now: Instant, remote: SocketAddr) -> Option<u32> {
    host.deliver(now, &seg(remote, SYN, 999, 0).frame());
    let answer = to(host, now, remote)?;
    host.deliver(now, &seg(remote, ACK, 1000, answer.seq.wrapping_add(1)).frame());
    Some(answer.seq.wrapping_add(1))
}

fn accepted(host: &mut Host) -> Vec<ConnId> {
    let mut out = Vec::new();
    while let Some(event) = host.stack.poll_event() {
        if let Event::Accepted { conn, .. } = event {
            out.push(conn);
        }
        host.take(&event);
    }
    out
}

/// Checks that a new connection works from its beginning to its end.
fn assert_serves(host: &mut Host, now: Instant, remote: SocketAddr) {
    let ours = open(host, now, remote).expect("an answer to a SYN");
    let conn = *accepted(host).last().expect("accepted");
    let mut request = seg(remote, ACK | PSH, 1000, ours);
    request.payload = b"are you still there".to_vec();
    host.deliver(now, &request.frame());
    accepted(host);
    assert_eq!(host.received[&conn], b"are you still there");
    assert!(host.send(conn, b"yes", 3, true));
    assert_eq!(to(host, now, remote).expect("a reply").payload, b"yes");
    host.deliver(now, &seg(remote, ACK | FIN, 1019, ours.wrapping_add(3)).frame());
    host.stack.shut_down(conn);
    assert!(to(host, now, remote).expect("a FIN").has(FIN));
    host.deliver(now, &seg(remote, ACK, 1020, ours.wrapping_add(4)).frame());
}

fn let_pass(host: &mut Host, now: &mut Instant, span: Duration) {
    let end = *now + span;
    while let Some(at) = host.stack.deadline().filter(|at| *at <= end) {
        *now = at.max(*now);
        host.stack.handle_time(*now, &mut host.arena);
        while host.transmit(*now).is_some() {}
        accepted(host);
    }
    *now = end;
    host.stack.handle_time(end, &mut host.arena);
}

fn assert_nothing_is_left(host: &mut Host, now: Instant) {
    host.stack.end_all(now, &mut host.arena);
    while host.transmit(now).is_some() {}
    assert_eq!((host.arena.held(), host.stack.waiting_frames()), (0, 0));
    assert_eq!(host.stack.counts().0, 0);
}

const START: Instant = Instant::from_nanos(10_000_000_000);

#[test]
fn a_flood_of_syns_fills_the_backlog_and_no_more_and_cookies_let_others_in() {
    let mut host = host(|_| {});
    let mut now = START;
    for number in 0..20_000 {
        host.deliver(now, &seg(peer(number), SYN, number, 0).frame());
        assert!(host.stack.counts().1 <= 64);
        if number % 1000 == 0 {
            assert_serves(&mut host, now, peer(1 << 20 | number));
        }
        if number % 64 == 0 {
            while host.transmit(now).is_some() {}
        }
        now = now + Duration::from_micros(20);
    }
    assert!(host.stack.stats().cookies_accepted >= 19);
    assert_eq!(host.arena.held(), 0, "half-open connections hold no frame");
    // The half-open connections are given up, and the answers queued for them are removed.
    let_pass(&mut host, &mut now, Duration::from_secs(40));
    assert_eq!(host.stack.counts().1, 0);
    assert_serves(&mut host, now, peer(1 << 21));
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn unsent_answers_are_bounded() {
    let mut host = host(|_| {});
    for number in 0..5000 {
        host.deliver(START, &seg(peer(number), ACK, 7, 8).frame());
    }
    let mut resets = 0;
    while host.transmit(START).is_some() {
        resets += 1;
    }
    assert_eq!(resets, 1024);
}

#[test]
fn holes_on_many_connections_keep_no_more_bytes_than_they_may() {
    let mut host = host(|limits| limits.waiting_bytes_max = 20_000);
    let mut now = START;
    let ours: Vec<u32> = (0..100).map(|n| open(&mut host, now, peer(n)).unwrap()).collect();
    accepted(&mut host);
    for round in 0..60 {
        for (number, ours) in ours.iter().enumerate() {
            let mut tiny = seg(peer(number as u32), ACK, 1002 + 2 * round, *ours);
            tiny.payload = vec![1; 1 + 300 * (number % 2)];
            host.deliver(now, &tiny.frame());
            assert!(host.stack.waiting_bytes() <= 20_000);
        }
        while host.transmit(now).is_some() {}
        now = now + Duration::from_millis(1);
    }
    assert!(host.stack.stats().dropped(Drop::TooMuchWaiting) > 0);
    assert!(host.stack.waiting_bytes() >= 18_000, "{}", host.stack.waiting_bytes());
    assert!(host.stack.waiting_frames() > 100, "single bytes do not count as frames");
    assert_serves(&mut host, now, peer(7000));
    // A peer that fills its hole is served, too.
    let mut fill = seg(peer(0), ACK, 1000, ours[0]);
    fill.payload = vec![2; 300];
    host.deliver(now, &fill.frame());
    accepted(&mut host);
    assert!(host.received.values().any(|got| got.len() == 300));
    let_pass(&mut host, &mut now, Duration::from_millis(500));
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn one_connection_keeps_a_bounded_number_of_pieces_behind_holes_and_longer_ones_are_set_aside() {
    let mut host = host(|_| {});
    let mut now = START;
    let ours = open(&mut host, now, peer(0)).unwrap();
    accepted(&mut host);
    for round in 0..60 {
        let mut part = seg(peer(0), ACK, 1001 + 401 * round, ours);
        part.payload = vec![1; 400];
        host.deliver(now, &part.frame());
    }
    assert_eq!(host.stack.waiting_frames(), 20);
    assert_eq!(host.stack.stats().dropped(Drop::TooMuchWaiting), 40);
    assert_eq!(host.stack.waiting_bytes(), 20 * (2048 + 64));
    let_pass(&mut host, &mut now, Duration::from_millis(500));
    assert_eq!(host.stack.stats().set_aside_bytes, 20 * 400, "each was copied out of its frame once");
    assert_eq!(host.stack.waiting_bytes(), 20 * (400 + 64));
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn readers_that_pause_keep_no_more_frames_than_they_may() {
    let mut host = host(|_| {});
    let now = START;
    let ours: Vec<u32> = (0..50).map(|n| open(&mut host, now, peer(n)).unwrap()).collect();
    for conn in accepted(&mut host) {
        host.stack.pause(conn);
    }
    for round in 0..40 {
        for (number, ours) in ours.iter().enumerate() {
            let mut tiny = seg(peer(number as u32), ACK, 1000 + round, *ours);
            tiny.payload = vec![1];
            host.deliver(now, &tiny.frame());
            // Data behind a dropped segment are copied together: single bytes take no frame each.
            assert!(host.arena.held() <= 210, "{}", host.arena.held());
        }
        while host.transmit(now).is_some() {}
    }
    assert_serves(&mut host, now, peer(7000));
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn peers_that_never_open_their_window_are_kept_to_the_number_of_connections() {
    let mut host = host(|limits| limits.connections_max = 32);
    let mut now = START;
    for number in 0..100 {
        if let Some(ours) = open(&mut host, now, peer(number)) {
            let mut closed = seg(peer(number), ACK, 1000, ours);
            closed.window = 0;
            host.deliver(now, &closed.frame());
        }
        for conn in accepted(&mut host) {
            host.send(conn, &[7; 2000], 1000, true);
        }
    }
    assert_eq!(host.stack.counts().0, 32);
    assert_eq!(host.stack.stats().dropped(Drop::Full), 68);
    assert_eq!(host.arena.held(), 64);
    // No probe is answered.
    let_pass(&mut host, &mut now, Duration::from_secs(600));
    assert_eq!((host.stack.counts().0, host.arena.held()), (0, 0));
    assert_serves(&mut host, now, peer(7000));
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn forged_segments_are_challenged_a_bounded_number_of_times_a_second() {
    let mut host = host(|_| {});
    let mut limits = Vec::new();
    let ours: Vec<u32> = (0..100).map(|n| open(&mut host, START, peer(n)).unwrap()).collect();
    for second in 0..8 {
        let now = START + Duration::from_secs(second);
        let before = host.stack.stats().challenges;
        for (number, ours) in (0..1000).zip(ours.iter().cycle()) {
            host.deliver(now, &seg(peer(number % 100), RST, 1005, 0).frame());
            host.deliver(now, &seg(peer(number % 100), SYN, 5, 0).frame());
            host.deliver(now, &seg(peer(number % 100), ACK, 1000, ours.wrapping_add(9)).frame());
            while host.transmit(now).is_some() {}
        }
        limits.push(host.stack.stats().challenges - before);
    }
    assert!(limits.iter().all(|limit| (50..150).contains(limit)), "{limits:?}");
    limits.dedup();
    assert!(limits.len() > 1, "how many there are cannot be foreseen");
    assert_eq!(host.stack.counts().0, 100);
    assert_nothing_is_left(&mut host, START);
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let mut host = host(|_| {});
    let mut now = START;
    for number in 0..3000 {
        // A few tuples are used again and again: each SYN has a higher number than the last connection's end.
        let remote = peer(number % 5);
        let isn = number * 10_000;
        host.deliver(now, &seg(remote, SYN, isn, 0).frame());
        let ours = to(&mut host, now, remote).unwrap().seq.wrapping_add(1);
        host.deliver(now, &seg(remote, ACK, isn + 1, ours).frame());
        for conn in accepted(&mut host) {
            host.stack.shut_down(conn);
        }
        host.deliver(now, &seg(remote, ACK | FIN, isn + 1, ours.wrapping_add(1)).frame());
        to(&mut host, now, remote);
        host.deliver(now, &seg(remote, ACK | FIN, isn + 1, ours.wrapping_add(1)).frame());
        accepted(&mut host);
        assert!(host.stack.counts().2 <= 16 && host.stack.counts().0 <= 1, "{:?}", host.stack.counts());
        now = now + Duration::from_millis(1);
    }
    assert_eq!(host.stack.stats().opened, 3000);
    assert!(host.stack.timers_queued() <= 2048);
    let_pass(&mut host, &mut now, Duration::from_secs(400));
    assert_eq!(host.stack.counts(), (0, 0, 0));
    assert_eq!(host.stack.deadline(), None);
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn malformed_packets_leave_no_state_and_disturb_no_connection() {
    let mut host = host(|_| {});
    let (mut now, mut rng) = (START, Rng(9));
    let ours = open(&mut host, now, peer(0)).unwrap();
    accepted(&mut host);
    for round in 0..20_000_u32 {
        let mut junk = seg(peer(rng.below(3) as u32), rng.next() as u8, 1000 + rng.below(3000) as u32, ours);
        junk.payload = vec![3; rng.below(1400) as usize];
        if rng.chance(3000) {
            put_long(&mut junk.options, rng.next() as u32);
        }
        let mut frame = junk.frame();
        match rng.below(4) {
            0 => frame[36 + rng.below(8) as usize] ^= 0x55,
            1 => frame[20] = 0x20,
            2 => frame.truncate(rng.below(frame.len() as u64) as usize),
            _ => frame[24] ^= 1,
        }
        host.deliver(now, &frame);
        if round % 500 == 0 {
            assert_serves(&mut host, now, peer(7000 + round));
        }
        while host.transmit(now).is_some() {}
        assert_eq!(host.stack.waiting_frames(), 0);
        now = now + Duration::from_micros(100);
    }
    assert_eq!(host.arena.held(), 0);
    assert_nothing_is_left(&mut host, now);
}

#[test]
fn segments_that_overlap_each_other_in_every_way_are_kept_once() {
    let (now, mut rng) = (START, Rng(4));
    for _ in 0..200 {
        let mut host = host(|limits| limits.waiting_frames_per_connection = 100);
        let ours = open(&mut host, now, peer(0)).unwrap();
        accepted(&mut host);
        let byte = |place: u32| (place * 7 + place / 251) as u8;
        for _ in 0..60 {
            let (start, len) = (rng.below(2000) as u32, 1 + rng.below(1400) as u32);
            let mut part = seg(peer(0), ACK, 1000 + start, ours);
            part.payload = (start..start + len).map(byte).collect();
            host.deliver(now, &part.frame());
            while host.transmit(now).is_some() {}
        }
        let mut whole = seg(peer(0), ACK, 1000, ours);
        whole.payload = (0..1400).map(byte).collect();
        host.deliver(now, &whole.frame());
        accepted(&mut host);
        let got = host.received.values().next().expect("delivered");
        assert!(got.len() >= 1400 && got.iter().zip(0..).all(|(have, place)| *have == byte(place)));
        assert_nothing_is_left(&mut host, now);
    }
}

#[test]
fn single_bytes_are_on_their_way_in_a_bounded_number_of_segments() {
    let mut host = host(|_| {});
    let ours = open(&mut host, START, peer(0)).unwrap();
    let conn = accepted(&mut host)[0];
    let mut acked = ours;
    let mut most = 0;
    for round in 0..20_000_u32 {
        host.stack.send_bytes(conn, b"x").unwrap();
        while host.transmit(START).is_some() {
            most += 1;
        }
        // Enough acknowledgements for the window to grow.
        if round < 6000 {
            acked = ours.wrapping_add(round + 1);
            host.deliver(START, &seg(peer(0), ACK, 1000, acked).frame());
            most = 0;
        }
    }
    assert_eq!(most, 4096);
    // The transfer continues.
    host.deliver(START, &seg(peer(0), ACK, 1000, acked.wrapping_add(4096)).frame());
    assert!(to(&mut host, START, peer(0)).is_some());
    assert_nothing_is_left(&mut host, START);
}

#[test]
fn a_time_limit_of_zero_does_not_stop_the_clock() {
    let mut host = host(|limits| limits.set_aside_after = Duration::ZERO);
    let mut now = START;
    let ours = open(&mut host, now, peer(0)).unwrap();
    let mut tiny = seg(peer(0), ACK, 1002, ours);
    tiny.payload = vec![1];
    host.deliver(now, &tiny.frame());
    let_pass(&mut host, &mut now, Duration::from_millis(20));
    assert_eq!(host.stack.stats().set_aside_bytes, 1);
    assert_nothing_is_left(&mut host, now);
}
