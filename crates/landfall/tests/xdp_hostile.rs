//! Clients that begin requests and never end them: a well-behaved client is always answered within two seconds.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::{Place, Server, ok};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xdp::Net;

const ATTACKERS: usize = 50;
/// How long attackers send, and how long the client continues after they have closed.
const ATTACK: Duration = Duration::from_secs(4);
const AFTER: Duration = Duration::from_secs(1);
/// Time limit of an answer to the client, with the time to connect.
const ANSWER_MAX: Duration = Duration::from_secs(2);

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
    /// Sends as much as is accepted over all connections, and closes them.
    fn run(&self, server: &Server, to: SocketAddr) {
        let open = || {
            let mut stream = server.at_clients(|| TcpStream::connect_timeout(&to, xdp::PATIENCE)).ok()?;
            stream.set_nodelay(true).ok()?;
            stream.write_all(self.head).ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(stream)
        };
        let mut streams: Vec<TcpStream> = (0..ATTACKERS).filter_map(|_| open()).collect();
        let end = Instant::now() + ATTACK;
        while Instant::now() < end {
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

/// Connects, stores and disconnects until told to stop; returns the longest time of a round.
fn behave(server: &Server, is_over: &AtomicBool, name: &str) -> Duration {
    let (mut longest, mut rounds) = (Duration::ZERO, 0_u32);
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut client = server.resp();
        for _ in 0..5 {
            let answer = client.call(&[b"SET", b"good", b"value"]).unwrap();
            assert!(answer == ok(), "{name}: {answer:?} after {rounds} rounds");
        }
        longest = longest.max(begun.elapsed());
        rounds += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(rounds > 20, "{name}: {rounds} rounds");
    longest
}

fn withstands(server: &Server, attack: &Attack) {
    let is_over = AtomicBool::new(false);
    let longest = std::thread::scope(|threads| {
        let client = threads.spawn(|| behave(server, &is_over, attack.name));
        attack.run(server, if attack.http { server.http } else { server.resp });
        std::thread::sleep(AFTER);
        is_over.store(true, Ordering::Relaxed);
        client.join().unwrap()
    });
    assert!(longest < ANSWER_MAX, "{}: an answer took {longest:?}", attack.name);
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
