//! The kernel's TCP and Landfall's with equal sessions through equally bad networks: clients see equal results.
//!
//! A session is a seeded stream of commands that is cut anywhere, with pauses, slow readers, half-closes and broken
//! connections. `LANDFALL_FUZZ_SEED` selects other sessions.

#![allow(clippy::print_stderr, reason = "a test prints its seed")]

mod common;
mod xdp;

use common::{Place, Server, binary, pattern};
use landfall_testbed::Faults;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use xdp::{Net, Numbers};

/// Sessions at once, and number of rounds.
const AT_ONCE: u64 = 4;
const ROUNDS: u64 = 4;
const COMMANDS: u64 = 120;
/// Bytes written or read at once, at most.
const CUT_MAX: u64 = 5000;
const PAUSE_MAX_US: u64 = 3000;

fn seed() -> u64 {
    xdp::seed(0x2545_f491)
}

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// The client sends QUIT and reads the last reply.
    Quits,
    /// The client closes its sending side; the server answers everything and closes the other side.
    HalfCloses,
    /// The client closes in the middle of a command and reads nothing.
    IsTornOff,
}

/// What a client sees.
#[derive(PartialEq, Eq)]
struct Seen {
    replies: Vec<u8>,
    end: Result<(), ErrorKind>,
}

fn leaves(seed: u64) -> Leaves {
    [Leaves::Quits, Leaves::HalfCloses, Leaves::IsTornOff][(seed % 3) as usize]
}

/// Commands on keys of this session only, so that replies depend on nothing else.
fn commands(seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed | 1);
    let mut bytes = Vec::new();
    let mut put = |words: &[&[u8]]| {
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(&[word, &b"\r\n"[..]].concat());
        }
    };
    for _ in 0..COMMANDS {
        let key = format!("{seed}:{}", numbers.below(6));
        let key = key.as_bytes();
        let len = [0, 3, 200, 1024, 1448, 4000, 60_000][numbers.below(7) as usize];
        let value = pattern(numbers.next(), len);
        match numbers.below(8) {
            0..=2 => put(&[b"SET", key, &value]),
            3 | 4 => put(&[b"GET", key]),
            5 => put(&[b"APPEND", key, &value[..len.min(500)]]),
            6 => put(&[b"STRLEN", key]),
            _ => put(&[b"ECHO", &value]),
        }
    }
    if leaves(seed) == Leaves::Quits {
        put(&[b"QUIT"]);
    }
    bytes
}

/// One session.
fn session(server: &Server, seed: u64) -> Seen {
    let mut stream = xdp::stream(server, server.resp);
    let leaves = leaves(seed);
    let mut bytes = commands(seed);
    if leaves == Leaves::IsTornOff {
        bytes.truncate(bytes.len() / 2 + 1);
    }
    let writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || write(writing, &bytes, leaves, Numbers(!seed)));
    if leaves == Leaves::IsTornOff {
        writer.join().unwrap();
        // There are unread replies, so the kernel sends a reset.
        return Seen { replies: Vec::new(), end: Ok(()) };
    }
    let mut numbers = Numbers(seed.rotate_left(17) | 1);
    let (mut replies, mut part) = (Vec::new(), vec![0; CUT_MAX as usize]);
    let end = loop {
        match stream.read(&mut part[..=numbers.below(CUT_MAX) as usize]) {
            Ok(0) => break Ok(()),
            Ok(len) => replies.extend_from_slice(&part[..len]),
            Err(error) => break Err(error.kind()),
        }
        if numbers.below(40) == 0 {
            std::thread::sleep(Duration::from_micros(numbers.below(PAUSE_MAX_US)));
        }
    };
    writer.join().unwrap();
    Seen { replies, end }
}

fn write(mut stream: TcpStream, bytes: &[u8], leaves: Leaves, mut numbers: Numbers) {
    stream.set_nodelay(numbers.below(2) == 0).unwrap();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + numbers.below(CUT_MAX) as usize));
        stream.write_all(now).unwrap();
        rest = later;
        if numbers.below(20) == 0 {
            std::thread::sleep(Duration::from_micros(numbers.below(PAUSE_MAX_US)));
        }
    }
    if leaves == Leaves::HalfCloses {
        stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// Runs all sessions, some at once; returns what they and the next client see.
fn all_seen(server: &Server) -> Vec<Seen> {
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let seeds: Vec<u64> = (0..AT_ONCE).map(|index| seed() + round * AT_ONCE + index).collect();
        std::thread::scope(|scope| {
            let running: Vec<_> =
                seeds.iter().map(|seed| scope.spawn(move || session(server, *seed))).collect();
            seen.extend(running.into_iter().map(|session| session.join().unwrap()));
        });
    }
    xdp::settles(server, "landfall_connections", |count| count <= 1.0);
    seen
}

#[test]
fn clients_see_equal_results_over_the_kernels_tcp_and_ours() {
    let hold = Duration::from_millis(2);
    let calm = Faults { seed: seed(), hold, ..Faults::default() };
    for faults in [calm, xdp::bad(calm)] {
        let Some((net, _middlebox)) = Net::through(faults) else { return };
        eprintln!("LANDFALL_FUZZ_SEED={} {faults:?}", seed());
        let (here, there) = (Place::new(), Place::new());
        let capacity = ["--capacity", "256MiB"];
        let kernels = {
            let server = start_on_sockets(&net, &here, &capacity);
            all_seen(&server)
        };
        let ours = all_seen(&net.start(&there, &capacity));
        assert_eq!(kernels.len(), ours.len());
        for (index, (kernels, ours)) in kernels.iter().zip(&ours).enumerate() {
            let seed = seed() + index as u64;
            assert_eq!(kernels.end, ours.end, "session {seed}: {:?}", leaves(seed));
            let differs = kernels.replies.iter().zip(&ours.replies).position(|(a, b)| a != b);
            let lens = [kernels.replies.len(), ours.replies.len()];
            assert!(kernels == ours, "session {seed}: {lens:?} bytes, different at {differs:?}");
            assert!(leaves(seed) == Leaves::IsTornOff || lens[0] > 10_000, "session {seed}: {lens:?} bytes");
        }
    }
}

/// Starts an equal server at the address of the host's kernel.
fn start_on_sockets(net: &Net, place: &Place, flags: &[&str]) -> Server {
    let address = |port| format!("{}:{port}", xdp::SERVER);
    let (resp, http) = (address(xdp::RESP_PORT), address(xdp::HTTP_PORT));
    let ours = ["--resp", &resp, "--http", &http, "--workers", "1", "--insecure-no-password"];
    let command = net.server.command(binary().to_str().unwrap());
    let mut server = place
        .try_start_by(command, &[&ours[..], flags].concat())
        .unwrap_or_else(|why| panic!("the server did not start: {why}"));
    server.clients = Some(net.client.clone());
    server
}
