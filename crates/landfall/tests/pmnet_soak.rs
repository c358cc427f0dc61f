//! Bursts of connections through side-cars and a relay, repeatedly: none is refused, and memory does not grow.
//!
//! `cargo test` runs a few; `LANDFALL_SOAK_BURSTS=N` runs N: each is 500 connections, and some 250 new sessions.
//! `LANDFALL_SOAK_BINARY=PATH` runs another build of the program, such as `target/release/landfall`.

#![allow(clippy::print_stdout, reason = "a soak test prints its result")]

mod common;
mod deployment;

use common::{Place, Reply, Resp, binary};
use deployment::Process;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const BURST: usize = 500;
const BURSTS: usize = 6;
/// Allowed growth of resident memory after the first third: rows of ended sessions are kept, up to a limit.
const GROWTH_KIB_MAX: u64 = 64 << 10;

#[test]
fn repeated_bursts_of_connections_are_served_in_constant_memory() {
    let bursts =
        std::env::var("LANDFALL_SOAK_BURSTS").ok().and_then(|text| text.parse().ok()).unwrap_or(BURSTS);
    let program = std::env::var_os("LANDFALL_SOAK_BINARY").map_or_else(binary, PathBuf::from);
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let store = place.start(&["--http", "off"]);
    let log = files.path().join("log");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("pmnet").args(arguments);
        Process::start(command, &log)
    };
    let server = start(&["server", "--listen", "127.0.0.1:0", "--redis", &store.resp.to_string()]);
    let listens = server.address("listen").to_string();
    let dir = files.path().join("device").to_str().unwrap().to_owned();
    let region = ["--dir", &dir, "--capacity", "64MiB", "--upstream-ports", "23200-23220", "--number", "0"];
    let relay = start(&[&["switch", "--listen", "127.0.0.1:0", "--server", &listens][..], &region].concat());
    let front = relay.address("listen").to_string();
    let client = start(&["client", "--listen", "127.0.0.1:0", "--server", &front, "--devices", "1"]);
    let address = client.address("resp");
    let parts = [("server", &server), ("relay", &relay), ("client", &client)];
    let (begun, mut early) = (Instant::now(), None);
    for burst in 0..bursts {
        let mut all: Vec<Resp> = (0..BURST).map(|_| Resp::connect(address, LIMIT).unwrap()).collect();
        for (at, resp) in all.iter_mut().enumerate() {
            resp.push(&[b"SET", format!("key:{at}").as_bytes(), b"value"]);
            resp.flush().unwrap();
        }
        for (at, resp) in all.iter_mut().enumerate() {
            let reply = resp.read();
            assert!(matches!(&reply, Ok(Reply::Simple(ok)) if ok == "OK"), "burst {burst}, {at}: {reply:?}");
        }
        if burst == bursts / 3 {
            early = Some(parts.map(|(_, part)| part.resident_kib()));
        }
    }
    let late = parts.map(|(_, part)| part.resident_kib());
    let early = early.unwrap();
    println!(
        "{} connections in {:?}, 0 refused; KiB after a third {early:?}, in the end {late:?}",
        bursts * BURST,
        begun.elapsed()
    );
    for (((name, _), early), late) in parts.iter().zip(early).zip(late) {
        assert!(late <= early + GROWTH_KIB_MAX, "{name}: {early} KiB, then {late}");
    }
}
