//! Equal results of equal operations over every transport and on every available medium.

mod common;
#[path = "../../server/tests/resp_support/words.rs"]
mod words;
mod xdp;

use common::{Place, Reply, Server, bulk, error_text, ok, pattern};
use landfall_testbed::LinkOptions;
use std::io::{Read, Write};
use xdp::Net;

#[test]
fn operations_agree_over_both_transports_on_a_file() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        exercise_and_restart(&place, &["--transport", transport]);
    }
}

#[test]
fn operations_agree_over_both_transports_on_shared_memory() {
    for transport in ["uring", "epoll"] {
        let Some(place) = Place::in_memory() else {
            eprintln!("SKIP: shared memory: cannot be written");
            return;
        };
        exercise_and_restart(&place, &["--transport", transport, "--media", "volatile"]);
    }
}

#[test]
fn operations_agree_with_several_workers() {
    let place = Place::new();
    exercise_and_restart(&place, &["--workers", "3"]);
}

/// The commands that are also compared with Redis.
const COMMANDS: &str = include_str!("../../server/tests/resp_commands.txt");

#[test]
fn every_command_is_answered_over_xdp_as_over_sockets() {
    let Some(net) = Net::new() else { return };
    let (here, there) = (Place::new(), Place::new());
    let replies = answers(&here.start(&[]));
    assert!(replies.len() > 20_000, "{} bytes", replies.len());
    let over_xdp = answers(&net.start(&there, &[]));
    let differs = replies.iter().zip(&over_xdp).position(|(a, b)| a != b);
    let at = differs.unwrap_or(replies.len().min(over_xdp.len())).saturating_sub(100);
    let around = |bytes: &[u8]| bytes[at..bytes.len().min(at + 200)].escape_ascii().to_string();
    assert!(replies == over_xdp, "sockets: {}\nxdp: {}", around(&replies), around(&over_xdp));
}

/// All replies to the commands, in one pipeline.
fn answers(server: &Server) -> Vec<u8> {
    // Replies whose order is undefined differ from region to region.
    let lines = COMMANDS.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with('#') && !line.starts_with("sorted "));
    let mut bytes = Vec::new();
    for words in lines.chain(["QUIT"]).map(words::words) {
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(&[&word[..], b"\r\n"].concat());
        }
    }
    let mut stream = xdp::stream(server, server.resp);
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&bytes));
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    writer.join().unwrap().unwrap();
    replies
}

#[test]
fn a_missing_medium_is_refused() {
    let place = Place::new();
    let on_memory = Place::in_memory();
    let refused = place.try_start(&["--media", "dax"]).err().expect("refused");
    assert!(refused.words.contains("dax"), "{}", refused.words);
    if let Some(memory) = on_memory {
        let refused = memory.try_start(&["--media", "file"]).err().expect("refused");
        assert!(refused.words.contains("file"), "{}", refused.words);
    }
}

#[test]
fn operations_agree_over_xdp_on_shared_memory_and_on_a_file() {
    let Some(net) = Net::new() else { return };
    for place in [Place::in_memory(), Some(Place::new())].into_iter().flatten() {
        exercise_and_restart_by(&place, || net.start(&place, &[]));
    }
}

#[test]
fn operations_agree_over_xdp_with_several_workers_and_over_ipv6() {
    let options = LinkOptions { queues: 2, ..xdp::link() };
    let Some(net) = Net::with(&options) else { return };
    let place = Place::new();
    exercise_and_restart_by(&place, || net.start_at(&place, xdp::OWN_V6, &["--workers", "2"]));
}

/// The mode for media whose memory the kernel cannot pin.
#[test]
fn operations_agree_over_xdp_where_packets_land_beside_the_region() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    exercise_and_restart_by(&place, || {
        let server = net.start(&place, &["--xdp-bounce"]);
        assert!(server.lines.iter().any(|line| line.contains("beside the region")), "{:?}", server.lines);
        server
    });
}

fn exercise_and_restart(place: &Place, flags: &[&str]) {
    exercise_and_restart_by(place, || place.start(flags));
}

fn exercise_and_restart_by(place: &Place, start: impl Fn() -> Server) {
    let server = start();
    exercise(&server);
    remains(&server);
    server.kill();
    let server = start();
    remains(&server);
    assert!(server.stop().success());
    remains(&start());
    assert_eq!(place.check(&[]).status.code(), Some(0), "clean after a kill");
}

fn exercise(server: &Server) {
    let mut resp = server.resp();
    let mut http = server.http();
    let large = pattern(1, 3 << 20);
    let mut call = |words: &[&[u8]]| resp.call(words).unwrap();
    assert_eq!(call(&[b"SET", b"empty", b""]), ok());
    assert_eq!(call(&[b"SET", b"small", b"0123456789"]), ok());
    assert_eq!(call(&[b"SET", b"large", &large]), ok());
    assert_eq!(call(&[b"GET", b"large"]), Reply::Bulk(large));
    assert_eq!(call(&[b"SET", &pattern(2, 5000), b"long key"]), ok());
    assert_eq!(call(&[b"MSET", b"m1", b"a", b"m2", b"b"]), ok());
    assert_eq!(call(&[b"APPEND", b"small", b"abc"]), Reply::Int(13));
    assert_eq!(call(&[b"SETRANGE", b"small", b"1", b"xyz"]), Reply::Int(13));
    assert_eq!(call(&[b"INCRBY", b"count", b"41"]), Reply::Int(41));
    assert_eq!(call(&[b"SET", b"gone", b"1"]), ok());
    assert_eq!(call(&[b"DEL", b"gone", b"never"]), Reply::Int(1));
    assert_eq!(call(&[b"SET", b"brief", b"1", b"PX", b"1"]), ok());
    assert_eq!(call(&[b"SET", b"lasting", b"1", b"EX", b"1000"]), ok());
    assert!(error_text(&call(&[b"INCR", b"empty"])).starts_with("ERR"));
    for words in [&[&b"MULTI"[..]][..], &[b"INCR", b"count"], &[b"SET", b"tied", b"42"]] {
        assert!(matches!(call(words), Reply::Simple(_)));
    }
    assert_eq!(call(&[b"EXEC"]), Reply::Array(vec![Reply::Int(42), ok()]));
    let body = pattern(3, 200_000);
    assert_eq!(http.call("PUT", "/kv/body%2Fone", "", &body).unwrap().status, 201);
    assert_eq!(http.call("PUT", "/kv/body%2Fone", "", &body).unwrap().status, 204);
    assert_eq!(http.call("PUT", "/kv/off", "", b"x").unwrap().status, 201);
    assert_eq!(http.call("DELETE", "/kv/off", "", b"").unwrap().status, 204);
    assert_eq!(http.call("DELETE", "/kv/off", "", b"").unwrap().status, 404);
    assert_eq!(http.call("PATCH", "/kv/off", "", b"").unwrap().status, 405);
}

fn remains(server: &Server) {
    let mut resp = server.resp();
    let mut http = server.http();
    let mut call = |words: &[&[u8]]| resp.call(words).unwrap();
    assert_eq!(call(&[b"GET", b"empty"]), bulk(""));
    assert_eq!(call(&[b"GET", b"small"]), bulk("0xyz456789abc"));
    assert_eq!(call(&[b"GET", b"large"]), Reply::Bulk(pattern(1, 3 << 20)));
    assert_eq!(
        call(&[b"GETRANGE", b"large", b"1000000", b"1000009"]),
        bulk(&pattern(1, 3 << 20)[1_000_000..1_000_010])
    );
    assert_eq!(call(&[b"GET", &pattern(2, 5000)]), bulk("long key"));
    assert_eq!(call(&[b"MGET", b"m1", b"m2", b"gone"]), Reply::Array(vec![bulk("a"), bulk("b"), Reply::Nil]));
    assert_eq!(call(&[b"MGET", b"count", b"tied"]), Reply::Array(vec![bulk("42"), bulk("42")]));
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(call(&[b"EXISTS", b"brief", b"gone", b"off"]), Reply::Int(0));
    let Reply::Int(left) = call(&[b"TTL", b"lasting"]) else { panic!("an integer") };
    assert!((900..=1000).contains(&left), "{left}");
    let read = http.call("GET", "/kv/body%2Fone", "", b"").unwrap();
    assert_eq!((read.status, read.body == pattern(3, 200_000)), (200, true));
    assert_eq!(http.call("GET", "/kv/large", "", b"").unwrap().body, pattern(1, 3 << 20));
    assert_eq!(http.call("GET", "/kv/off", "", b"").unwrap().status, 404);
}
