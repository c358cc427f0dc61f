//! Clients that begin requests and never end them: a well-behaved client is answered meanwhile.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::faults::Over;
use common::{Place, Server, ok};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use xdp::Net;

const ATTACKERS: usize = 50;
/// Attackers send at least this long, which is when the server has to close some of them.
const ATTACK_MIN: Duration = Duration::from_secs(2);
/// Time limit of the client's rounds, which are done in a second where nothing delays them. A busy machine loses
/// packets, and each lost packet of a handshake takes a second: no single round has a limit.
const ROUNDS_MAX: Duration = Duration::from_secs(60);
/// Rounds of the client while attackers send, and after they have closed.
const ROUNDS: u32 = 30;
const ROUNDS_AFTER: u32 = 10;

/// What attackers send: the beginning of a request, and its continuation.
struct Attack {
    name: &'static str,
    http: bool,
    head: &'static [u8],
    rest: &'static [u8],
}

const SOME: &[u8] = &[b'x'; 65_536];
const ATTACKS: [Attack; 4] = [
    Attack {
        name: "half a value",
        http: false,
        head: b"*3\r\n$3\r\nSET\r\n$4\r\nevil\r\n$20000000\r\n",
        rest: SOME,
    },
    Attack {
        name: "single bytes",
        http: false,
        head: b"*3\r\n$3\r\nSET\r\n$4\r\nevil\r\n$20000000\r\n",
        rest: b"x",
    },
    Attack {
        name: "half a body",
        http: true,
        head: b"PUT /kv/evil HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n",
        rest: SOME,
    },
    Attack {
        name: "half a batch",
        http: true,
        head: b"POST /wal/evil HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n",
        rest: SOME,
    },
];

impl Attack {
    /// Sends as much as is accepted over all connections until `is_over`, and closes them.
    fn run(&self, server: &Server, to: SocketAddr, is_over: impl Fn() -> bool) {
        let open = || {
            let mut stream = server.at_clients(|| TcpStream::connect_timeout(&to, xdp::PATIENCE)).ok()?;
            stream.set_nodelay(true).ok()?;
            stream.write_all(self.head).ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(stream)
        };
        let mut streams: Vec<TcpStream> = (0..ATTACKERS).filter_map(|_| open()).collect();
        while !is_over() {
            let would_block = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            streams.retain_mut(|stream| {
                stream.write(self.rest).map_or_else(|error| would_block(&error), |_| true)
            });
            if self.rest.len() > 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Connects, stores and disconnects until told to stop, and counts the rounds.
fn behave(server: &Server, rounds: &AtomicU32, is_over: &AtomicBool, name: &str) {
    while !is_over.load(Ordering::Relaxed) {
        let mut client = server.resp();
        for _ in 0..5 {
            let answer = client.call(&[b"SET", b"good", b"value"]).unwrap();
            assert!(answer == ok(), "{name}: {answer:?} after {rounds:?} rounds");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Attacks until the client has done its rounds: one that waits for the attackers' end would do none.
fn withstands(server: &Server, attack: &Attack) {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let begun = Instant::now();
    let is_late = || begun.elapsed() > ROUNDS_MAX;
    let done = || rounds.load(Ordering::Relaxed);
    std::thread::scope(|threads| {
        let ends = Over(&is_over);
        threads.spawn(|| behave(server, &rounds, &is_over, attack.name));
        let to = if attack.http { server.http } else { server.resp };
        attack.run(server, to, || is_late() || done() >= ROUNDS && begun.elapsed() > ATTACK_MIN);
        let (during, limit) = (done(), Instant::now() + ROUNDS_MAX);
        while done() < during + ROUNDS_AFTER && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(ends);
        assert!(during >= ROUNDS, "{}: {during} rounds of the client in {:?}", attack.name, begun.elapsed());
        assert!(done() >= during + ROUNDS_AFTER, "{}: {} rounds after it", attack.name, done() - during);
    });
}

#[test]
fn unfinished_requests_of_many_connections_delay_no_client() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "512MiB"]);
    ATTACKS.iter().for_each(|attack| withstands(&server, attack));
    assert!(server.metric("landfall_unfinished_closed_total") > 0.0, "the attacks were felt");
    assert!(server.stop().success());
    let log = place.log();
    assert!(log.contains("unfinished requests hold too much") && !log.contains('\x1b'), "no colours: {log}");
}

/// The attack sends far more than such a region has room for: complete writes have priority.
#[test]
fn in_a_small_region_unfinished_requests_make_room_for_those_that_are_complete() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "64MiB"]);
    withstands(&server, &ATTACKS[0]);
    assert!(server.stop().success());
}

#[test]
fn over_sockets_unfinished_requests_of_many_connections_delay_no_client() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--transport", transport, "--capacity", "512MiB"]);
        ATTACKS.iter().filter(|attack| attack.rest.len() > 1).for_each(|attack| withstands(&server, attack));
        assert!(server.stop().success());
    }
}
