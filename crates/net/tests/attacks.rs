//! Attackers that know the addresses and ports of a connection but not its sequence numbers, or that open many
//! connections: other peers are served as before.

mod support;

use landfall_net::{ConnId, Drop, Event, Instant};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use support::wire::{ACK, FIN, PEER_MAC, PSH, RST, SYN, Seg, put_long};
use support::{Host, PORT, Rng, address, config, sent};

const START: Instant = Instant::from_nanos(10_000_000_000);
const ATTACKER_MAC: [u8; 6] = [2, 0, 0, 0, 6, 66];
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 7, 7];

fn host(change: impl Fn(&mut landfall_net::Config)) -> Host {
    let mut limits = config(0);
    change(&mut limits);
    let mut host = Host::new(limits, 5);
    host.stack.listen(PORT, 1);
    host
}

fn peer(number: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 1, 0, 2]), 4000 + number)
}

fn seg(remote: SocketAddr, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Seg {
    Seg { payload: payload.to_vec(), ..support::seg(remote, flags, seq, ack) }
}

fn parsed(frames: &[Vec<u8>]) -> Vec<Seg> {
    frames.iter().filter_map(|frame| Seg::parse(frame)).collect()
}

fn accepted(host: &mut Host) -> Option<ConnId> {
    let mut out = None;
    while let Some(event) = host.stack.poll_event() {
        if let Event::Accepted { conn, .. } = event {
            out = Some(conn);
        }
        host.take(&event);
    }
    out
}

/// Completes a handshake. Returns the connection and the stack's initial sequence number.
fn open(host: &mut Host, now: Instant, remote: SocketAddr) -> (ConnId, u32) {
    host.deliver(now, &seg(remote, SYN, 999, 0, b"").frame());
    let answer = parsed(&sent(host, now)).pop().expect("an answer to a SYN");
    let ours = answer.seq.wrapping_add(1);
    host.deliver(now, &seg(remote, ACK, 1000, ours, b"").frame());
    (accepted(host).expect("a connection"), ours)
}

fn by(mac: [u8; 6], seg: &Seg) -> Vec<u8> {
    let mut frame = seg.frame();
    frame[6..12].copy_from_slice(&mac);
    frame
}

fn reply_goes_to(host: &mut Host, conn: ConnId, now: Instant) -> [u8; 6] {
    host.stack.send_bytes(conn, b"reply").unwrap();
    let frames = sent(host, now);
    let reply = frames.iter().find(|frame| frame.ends_with(b"reply")).expect("a reply");
    reply[..6].try_into().unwrap()
}

#[test]
fn junk_segments_do_not_divert_replies() {
    let mut rng = Rng(7);
    for round in 0..2000_u32 {
        let mut host = host(|_| {});
        let (conn, ours) = open(&mut host, START, peer(0));
        let request = seg(peer(0), ACK | PSH, 1000, ours, b"get");
        host.deliver(START, &request.frame());
        accepted(&mut host);
        // The attacker knows both ends of the connection, and one of the two numbers at best.
        let near = |rng: &mut Rng, of: u32| of.wrapping_add(rng.below(3) as u32).wrapping_sub(1);
        let (seq, ack) = match round % 4 {
            0 => (rng.next() as u32, rng.next() as u32),
            1 => (near(&mut rng, 1003), ours.wrapping_add(1 + rng.below(1 << 31) as u32)),
            2 => (1003_u32.wrapping_add(1 + (1 << 21) + rng.below(1 << 30) as u32), ours),
            _ => (near(&mut rng, 1000), ours.wrapping_sub(100_000 + rng.below(1 << 30) as u32)),
        };
        // A reset with exactly the next number would end the connection (RFC 5961, 3.2).
        let kinds = if round % 4 == 1 { 6 } else { 7 };
        let flags = [ACK, ACK | PSH, SYN, FIN | ACK, SYN | ACK, 0, RST][rng.below(kinds) as usize];
        let junk = seg(peer(0), flags, seq, ack, &vec![9; rng.below(50) as usize]);
        host.deliver(START, &by(ATTACKER_MAC, &junk));
        accepted(&mut host);
        assert_eq!(reply_goes_to(&mut host, conn, START), PEER_MAC, "{junk:?}");
    }
}

#[test]
fn replies_follow_a_peer_whose_router_changes() {
    let mut host = host(|_| {});
    let (conn, ours) = open(&mut host, START, peer(0));
    host.deliver(START, &by(ROUTER_MAC, &seg(peer(0), ACK | PSH, 1000, ours, b"get")));
    accepted(&mut host);
    assert_eq!(reply_goes_to(&mut host, conn, START), ROUTER_MAC);
}

#[test]
fn replies_follow_a_peer_whose_router_changes_while_only_keep_alives_come() {
    for byte in [&b""[..], b"\0"] {
        let mut idle = host(|_| {});
        let (conn, ours) = open(&mut idle, START, peer(0));
        idle.deliver(START, &by(ROUTER_MAC, &seg(peer(0), ACK, 999, ours, byte)));
        let answers = sent(&mut idle, START);
        assert!(!answers.is_empty() && answers.iter().all(|frame| frame[..6] == ROUTER_MAC), "{answers:?}");
        assert_eq!(reply_goes_to(&mut idle, conn, START), ROUTER_MAC);
        // Who does not know both numbers diverts nothing.
        for (seq, by_ack) in [(998, 0), (1001, 0), (999, 1), (999, u32::MAX)] {
            let mut attacked = host(|_| {});
            let (conn, ours) = open(&mut attacked, START, peer(0));
            let junk = seg(peer(0), ACK, seq, ours.wrapping_add(by_ack), byte);
            attacked.deliver(START, &by(ATTACKER_MAC, &junk));
            accepted(&mut attacked);
            assert_eq!(reply_goes_to(&mut attacked, conn, START), PEER_MAC, "{junk:?}");
        }
    }
}

#[test]
fn a_reply_that_was_lost_with_a_router_follows_the_request_that_is_sent_again() {
    let mut host = host(|_| {});
    let (conn, ours) = open(&mut host, START, peer(0));
    let request = seg(peer(0), ACK | PSH, 1000, ours, b"get");
    host.deliver(START, &request.frame());
    accepted(&mut host);
    assert_eq!(reply_goes_to(&mut host, conn, START), PEER_MAC);
    // Before a timeout, a copy of the request proves nothing.
    host.deliver(START, &by(ROUTER_MAC, &request));
    assert!(sent(&mut host, START).iter().all(|frame| frame[..6] == PEER_MAC));
    let mut now = START;
    let mut again = Vec::new();
    while again.is_empty() {
        now = host.stack.deadline().expect("a timeout").max(now);
        host.stack.handle_time(now, &mut host.arena);
        again = sent(&mut host, now);
        again.retain(|frame| frame.ends_with(b"reply"));
        if now.since(START) < Duration::from_millis(200) {
            again.clear();
        }
    }
    assert_eq!(again[0][..6], PEER_MAC);
    host.deliver(now, &by(ROUTER_MAC, &request));
    assert!(sent(&mut host, now).iter().all(|frame| frame[..6] == ROUTER_MAC));
    host.deliver(now, &by(ROUTER_MAC, &seg(peer(0), ACK, 1003, ours.wrapping_add(5), b"")));
    assert_eq!(host.stack.queued(conn), 0);
}

#[test]
fn segments_from_our_own_addresses_are_dropped_in_silence() {
    let mut host = host(|_| {});
    let ours = |port| SocketAddr::new(address(0), port);
    for (flags, port) in [(SYN, PORT), (SYN, 4000), (ACK, 4000), (RST, PORT), (FIN | ACK, 9)] {
        host.deliver(START, &seg(ours(port), flags, 5, 6, b"x").frame());
    }
    assert_eq!(sent(&mut host, START), Vec::<Vec<u8>>::new());
    assert_eq!(host.stack.counts(), (0, 0, 0));
    assert_eq!(host.stack.stats().dropped(Drop::Malformed), 5);
}

#[test]
fn the_first_segment_of_a_cookie_connection_may_be_lost_and_the_second_arrive() {
    let mut host = host(|limits| limits.backlog_max = 0);
    host.deliver(START, &seg(peer(0), SYN, 999, 0, b"").frame());
    let ours = parsed(&sent(&mut host, START)).pop().unwrap().seq.wrapping_add(1);
    // The acknowledgement and the first part of the request are lost.
    let (first, second) =
        (seg(peer(0), ACK, 1000, ours, b"abc"), seg(peer(0), ACK | PSH, 1003, ours, b"def"));
    host.deliver(START, &second.frame());
    host.deliver(START, &seg(peer(0), ACK | FIN, 1006, ours, b"").frame());
    assert_eq!(parsed(&sent(&mut host, START)), [], "no reset");
    host.deliver(START, &first.frame());
    let conn = accepted(&mut host).expect("a connection");
    host.deliver(START, &second.frame());
    accepted(&mut host);
    assert_eq!(host.received[&conn], b"abcdef");
    // Long after the flood, a peer with an unknown connection gets a reset again.
    let later = START + Duration::from_secs(129);
    host.deliver(later, &seg(peer(1), ACK | PSH, 1, 1, b"x").frame());
    assert!(parsed(&sent(&mut host, later)).iter().any(|seg| seg.has(RST)));
}

#[test]
fn a_peer_that_was_answered_with_a_cookie_and_then_without_one_may_use_either() {
    let mut host = host(|limits| limits.backlog_max = 1);
    host.deliver(START, &seg(peer(1), SYN, 7, 0, b"").frame());
    sent(&mut host, START);
    host.deliver(START, &seg(peer(0), SYN, 999, 0, b"").frame());
    let cookie = parsed(&sent(&mut host, START)).pop().unwrap().seq.wrapping_add(1);
    assert_eq!(host.stack.stats().cookies_sent, 1);
    // The backlog has room again when the peer, which the SYN-ACK has not reached, retransmits its SYN.
    host.deliver(START, &seg(peer(1), RST, 8, 0, b"").frame());
    host.deliver(START, &seg(peer(0), SYN, 999, 0, b"").frame());
    assert_eq!(host.stack.counts().1, 1);
    sent(&mut host, START);
    host.deliver(START, &seg(peer(0), ACK | PSH, 1000, cookie, b"request").frame());
    let conn = accepted(&mut host).expect("a connection");
    assert_eq!(host.received[&conn], b"request");
    assert_eq!(host.stack.counts(), (1, 0, 0));
    assert!(parsed(&sent(&mut host, START)).iter().all(|seg| !seg.has(RST)));
}

/// An attacker's connection: segments of `len` bytes with holes of one byte between them.
struct Holes {
    remote: SocketAddr,
    ours: u32,
    next: u32,
}

impl Holes {
    fn send(&mut self, host: &mut Host, now: Instant, len: usize) {
        let span = len as u32 + 1;
        let seq = 1001 + self.next % ((1 << 19) / span) * span;
        self.next += 1;
        host.deliver(now, &seg(self.remote, ACK, seq, self.ours, &vec![3; len]).frame());
    }
}

/// Sends `total` bytes over a connection on which one segment in `LOSS` is lost, while attackers make holes. The sender
/// retransmits by SACK, as a client does. Returns the duration in virtual time.
fn transfer(attackers: u16, len: usize, total: u32) -> Duration {
    const SEGMENT: u32 = 1000;
    const WINDOW: u32 = 64;
    let mut host = host(|limits| {
        limits.waiting_bytes_max = 8 << 20;
        limits.connections_max = 1000;
    });
    let mut now = START;
    let mut holes: Vec<Holes> = (1..=attackers)
        .map(|n| Holes { remote: peer(n), ours: open(&mut host, now, peer(n)).1, next: 0 })
        .collect();
    let (_, ours) = open_with_sack(&mut host, now, peer(0));
    let mut rng = Rng(3);
    let (mut acked, mut have) = (0_u32, vec![false; (total / SEGMENT) as usize]);
    let mut progressed = now;
    while acked < total {
        if now.since(progressed) > Duration::from_millis(200) {
            // A timeout: the stack may have dropped data that it reported (RFC 2018, 8).
            have.fill(false);
            progressed = now;
        }
        for hole in &mut holes {
            (0..8).for_each(|_| hole.send(&mut host, now, len));
        }
        // A round trip: sends the segments in the window that were not reported.
        let first = acked / SEGMENT;
        for index in (first..(first + WINDOW).min(total / SEGMENT)).filter(|at| !have[*at as usize]) {
            if !rng.chance(1000) {
                let part = seg(peer(0), ACK, 1000 + index * SEGMENT, ours, &[1; SEGMENT as usize]);
                host.deliver(now, &part.frame());
            }
        }
        accepted(&mut host);
        for answer in parsed(&sent(&mut host, now)).iter().filter(|seg| seg.to == peer(0)) {
            if answer.ack.wrapping_sub(1000) > acked {
                (acked, progressed) = (answer.ack.wrapping_sub(1000), now);
            }
            for (start, end) in answer.sack_blocks() {
                let segments = start.wrapping_sub(1000) / SEGMENT..end.wrapping_sub(1000) / SEGMENT;
                segments.for_each(|at| have[at as usize] = true);
            }
        }
        now = now + Duration::from_millis(1);
        host.stack.handle_time(now, &mut host.arena);
        assert!(now.since(START) < Duration::from_secs(100), "the transfer is stuck");
    }
    host.stack.end_all(now, &mut host.arena);
    sent(&mut host, now);
    assert_eq!((host.arena.held(), host.stack.waiting_bytes()), (0, 0));
    now.since(START)
}

fn open_with_sack(host: &mut Host, now: Instant, remote: SocketAddr) -> (ConnId, u32) {
    let mut syn = seg(remote, SYN, 999, 0, b"");
    put_long(&mut syn.options, 0x0101_0402);
    host.deliver(now, &syn.frame());
    let answer = parsed(&sent(host, now)).pop().expect("an answer to a SYN");
    let ours = answer.seq.wrapping_add(1);
    host.deliver(now, &seg(remote, ACK, 1000, ours, b"").frame());
    (accepted(host).expect("a connection"), ours)
}

#[test]
fn a_client_that_retransmits_keeps_half_of_its_rate_beside_holes_of_others() {
    let alone = transfer(0, 0, 2_000_000);
    for (attackers, len) in [(10, 1), (10, 1000), (30, 300), (60, 1), (30, 1400)] {
        let beside = transfer(attackers, len, 2_000_000);
        assert!(
            beside <= 2 * alone,
            "{attackers} attackers with {len} bytes: {beside:?} instead of {alone:?}"
        );
    }
}
