//! Networks that lose, duplicate, reorder, corrupt and truncate packets, networks that fail, and clients that vanish.

#![allow(clippy::print_stderr, reason = "a test prints its seed")]

mod common;
mod xdp;

use common::{Place, Reply, Server, bulk, has_program, ok, pattern, wait_until};
use landfall_testbed::{Faults, Middlebox};
use std::io::Write;
use std::time::Duration;
use xdp::{Net, Numbers};

/// Each fault alone, and all of them together.
fn weathers() -> Vec<(&'static str, Faults)> {
    let hold = Duration::from_millis(3);
    let calm = Faults { seed: seed(), hold, ..Faults::default() };
    vec![
        ("loses", Faults { lose: 300, ..calm }),
        ("repeats", Faults { duplicate: 2000, ..calm }),
        ("reorders", Faults { reorder: 2000, ..calm }),
        ("damages", Faults { corrupt: 300, ..calm }),
        ("cuts", Faults { truncate: 300, ..calm }),
        ("does it all", xdp::bad(calm)),
    ]
}

fn seed() -> u64 {
    xdp::seed(0x9e37_79b9)
}

fn say_seed(what: &str) {
    eprintln!("network that {what}: LANDFALL_FUZZ_SEED={} cargo test -p landfall --test xdp_faults", seed());
}

fn nothing_is_left(server: &Server) {
    // The client that asks has a connection itself.
    xdp::settles(server, "landfall_connections", |count| count <= 1.0);
    assert_eq!(server.call(&["SET", "after", "1"]), ok());
    assert_eq!(server.call(&["GET", "after"]), bulk("1"));
}

#[test]
fn acknowledged_writes_read_back_equal_over_any_network() {
    let calm = Faults { seed: seed(), ..Faults::default() };
    let Some((net, middlebox)) = Net::through(calm) else { return };
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "256MiB"]);
    for (round, (what, faults)) in (1..).zip(weathers()) {
        say_seed(what);
        middlebox.set_faults(faults);
        let written = write_and_read(&server, seed() ^ round);
        middlebox.set_faults(calm);
        let mut resp = server.resp();
        for (key, value) in &written {
            let got = resp.call(&[b"GET", key.as_bytes()]).unwrap();
            assert!(got == Reply::Bulk(value.clone()), "{what}: {key} is not what was acknowledged");
        }
        assert!(written.len() > 50, "{what}: {} writes", written.len());
    }
    saw_faults(&middlebox);
    nothing_is_left(&server);
}

/// A bounded workload of distinct values over one connection; returns what was acknowledged.
fn write_and_read(server: &Server, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut numbers = Numbers(seed | 1);
    let mut resp = server.resp();
    let mut written: Vec<(String, Vec<u8>)> = Vec::new();
    for index in 0..80 {
        let len = [5, 500, 1024, 3000, 20_000][numbers.below(5) as usize];
        let (key, value) = (format!("{seed}:{index}"), pattern(numbers.next(), len));
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok());
        written.push((key, value));
        let (key, value) = &written[numbers.below(written.len() as u64) as usize];
        let got = resp.call(&[b"GET", key.as_bytes()]).unwrap();
        assert!(got == Reply::Bulk(value.clone()), "{key} is not what was acknowledged");
    }
    written
}

fn saw_faults(middlebox: &Middlebox) {
    for tally in middlebox.tallies() {
        let kinds = [tally.lost, tally.duplicated, tally.reordered, tally.corrupted, tally.truncated];
        assert!(kinds.iter().all(|count| *count > 0), "{tally:?}");
    }
}

#[test]
fn curl_uploads_and_downloads_through_a_bad_network() {
    if !has_program("curl", &["--version"]) {
        return;
    }
    let (what, faults) = weathers().pop().unwrap();
    let Some((net, _middlebox)) = Net::through(faults) else { return };
    say_seed(what);
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "256MiB"]);
    let body = pattern(seed(), 1_000_000);
    let (file, answer) = (place.path().join("body"), place.path().join("answer"));
    std::fs::write(&file, &body).unwrap();
    for round in 0..2 {
        let url = format!("http://{}/kv/curl{round}", server.http);
        let mut curl = server.client("curl");
        let (well, text) = common::run(curl.args(["-sS", "-f", "-T"]).arg(&file).arg(&url), xdp::PATIENCE);
        assert!(well, "{text}");
        let mut curl = server.client("curl");
        let (well, text) = common::run(curl.args(["-sS", "-f", "-o"]).arg(&answer).arg(&url), xdp::PATIENCE);
        assert!(well, "{text}");
        assert!(std::fs::read(&answer).unwrap() == body, "round {round}");
    }
}

#[test]
fn requests_whose_network_is_cut_leave_nothing_behind() {
    let Some((net, middlebox)) = Net::through(Faults::default()) else { return };
    let place = Place::new();
    let server = net.start(&place, &["--request-timeout", "2"]);
    let free = "landfall_runs{use=\"free\"}";
    // The leaks of one round would add up over six rounds: each has requests and replies of two runs or more.
    (0..6).for_each(|_| cut_off(&server, &middlebox));
    // Of 63 runs; landing space in use takes about fourteen.
    let enough = wait_until(Duration::from_secs(20), || (server.metric(free) >= 43.0).then_some(()));
    assert!(enough.is_some(), "{} runs are free", server.metric(free));
    nothing_is_left(&server);
}

/// Fifty clients in the middle of a request, and five in the middle of a reply, lose their network.
fn cut_off(server: &Server, middlebox: &Middlebox) {
    let halves: Vec<_> = (0..50)
        .map(|index| {
            let mut half = xdp::stream(server, server.resp);
            half.write_all(format!("*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$90000\r\n{index}").as_bytes()).unwrap();
            half.write_all(&pattern(index, 20_000)).unwrap();
            half
        })
        .collect();
    assert_eq!(server.call(&["SET", "big", &"x".repeat(900_000)]), ok());
    let deaf: Vec<_> = (0..5)
        .map(|_| {
            let mut deaf = xdp::stream(server, server.resp);
            deaf.write_all(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(20)).unwrap();
            deaf
        })
        .collect();
    middlebox.set_faults(Faults { lose: 10_000, ..Faults::default() });
    drop((halves, deaf));
    std::thread::sleep(Duration::from_secs(4));
    middlebox.set_faults(Faults::default());
    xdp::settles(server, "landfall_connections", |count| count <= 1.0);
    assert_eq!(server.call(&["EXISTS", "half"]), Reply::Int(0));
    assert_eq!(server.call(&["DEL", "big"]), Reply::Int(1));
}

#[test]
fn client_that_vanishes_in_half_a_request_is_closed() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--request-timeout", "1"]);
    let mut half = xdp::stream(&server, server.resp);
    half.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5000\r\nthe beginning").unwrap();
    let mut whole = server.resp();
    assert_eq!(whole.call(&[b"SET", b"b", b"1"]).unwrap(), ok());
    net.client.ip(&format!("link set {} down\n", net.client_interface)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    net.client.ip(&format!("link set {} up\n", net.client_interface)).unwrap();
    xdp::settles(&server, "landfall_connections", |count| count <= 2.0);
    assert!(server.metric("landfall_timeouts_total") >= 1.0);
    assert_eq!(
        whole.call(&[b"GET", b"b"]).unwrap(),
        bulk("1"),
        "a whole connection outlives the interruption"
    );
    assert_eq!(server.call(&["EXISTS", "a"]), Reply::Int(0));
    drop(half);
}

#[test]
fn connections_survive_a_link_that_goes_down() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let set = |state: &str| net.server.ip(&format!("link set {} {state}\n", net.interface)).unwrap();
    // The server also starts without a link.
    set("down");
    let server = net.start(&place, &["--request-timeout", "60"]);
    set("up");
    let mut kept = server.resp();
    let value = pattern(4, 30_000);
    for round in 0..3u64 {
        assert_eq!(kept.call(&[b"SET", b"a", &value]).unwrap(), ok());
        kept.push(&[b"GET", b"a"]);
        server.signal("STOP");
        kept.flush().unwrap();
        set("down");
        // The server has a reply to send, and cannot send it.
        server.signal("CONT");
        std::thread::sleep(Duration::from_millis(600));
        set("up");
        assert!(kept.read().unwrap() == Reply::Bulk(value.clone()), "round {round}");
    }
    assert_eq!(server.call(&["PING"]), Reply::Simple("PONG".into()));
}
