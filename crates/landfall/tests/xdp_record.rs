//! The packet is the record: headers, request and value lie in the region as they arrived, nothing is copied, and a
//! record contains the arrival time of its packet.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::{Place, Reply, ok, pattern, wait_until};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xdp::{CLIENT, Net};

const LEN: usize = 1024;
const COUNT: u64 = 50;
/// Number of values that take half of the region.
const COUNT_MANY: u64 = 16_000;

/// A client's request to set a key.
fn request(key: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()).into_bytes();
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[test]
fn region_holds_the_packet_headers_in_front_of_the_request_and_the_value() {
    let Some(net) = Net::new() else { return };
    let Some(place) = Place::in_memory() else {
        eprintln!("SKIP: shared memory: cannot be written");
        return;
    };
    let server = net.start(&place, &[]);
    let value = pattern(77, LEN);
    let mut stream = xdp::stream(&server, server.resp);
    let bytes = request("k", &value);
    stream.write_all(&bytes).unwrap();
    let mut reply = [0; 5];
    std::io::Read::read_exact(&mut stream, &mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    let port = stream.local_addr().unwrap().port();
    drop(stream);
    // The record refers to the packet's own bytes: they are also there after the server has ended.
    assert!(server.stop().success());
    let region = std::fs::read(place.region()).unwrap();
    let places = xdp::positions(&region, &bytes);
    // The client's kernel may have sent the packet again.
    assert!(!places.is_empty(), "the request lies in the region");
    assert_eq!(xdp::positions(&region, &value).len(), places.len(), "each value is a packet's");
    places.iter().for_each(|place| check_headers(&region[..*place], &net, port, bytes.len()));
    assert_eq!(net.start(&place, &[]).call(&["GET", "k"]), Reply::Bulk(value));
}

/// Checks Ethernet, IPv4 and TCP headers (RFC 791, RFC 9293) at the end of `before`.
fn check_headers(before: &[u8], net: &Net, port: u16, payload: usize) {
    let [server_mac, client_mac] = net.macs();
    let number = |bytes: &[u8]| usize::from(bytes[0]) << 8 | usize::from(bytes[1]);
    // The TCP header contains its length: 20 bytes, or 32 with timestamps.
    let tcp = [20, 32]
        .map(|len| &before[before.len() - len..])
        .into_iter()
        .find(|tcp| number(tcp) == usize::from(port) && usize::from(tcp[12] >> 4) * 4 == tcp.len());
    let tcp = tcp.expect("a TCP header in front of the request");
    assert_eq!(number(&tcp[2..]), usize::from(xdp::RESP_PORT));
    let before = &before[..before.len() - tcp.len()];
    let (before, ip) = before.split_at(before.len() - 20);
    assert_eq!((ip[0], ip[9]), (0x45, 6), "IPv4 that carries TCP");
    assert_eq!(number(&ip[2..]), 20 + tcp.len() + payload, "total length");
    assert_eq!(ip[12..16], CLIENT.octets());
    assert_eq!(ip[16..20], [10, 9, 0, 3]);
    let ethernet = &before[before.len() - 14..];
    assert_eq!(ethernet[..6], server_mac);
    assert_eq!(ethernet[6..12], client_mac);
    assert_eq!(ethernet[12..], [0x08, 0x00]);
}

#[test]
fn kibibyte_values_are_stored_and_sent_without_a_copy() {
    let Some(net) = Net::new() else { return };
    for address in [xdp::OWN, xdp::OWN_V6] {
        for place in [Some(Place::new()), Place::in_memory()].into_iter().flatten() {
            let server = net.start_at(&place, address, &["--scrub-rate", "0"]);
            let (mut resp, mut http) = (server.resp(), server.http());
            let before = copies(&server.metrics());
            for seed in 0..COUNT {
                let (key, value) = (format!("key:{seed}"), pattern(seed, LEN));
                assert_eq!(resp.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok());
                assert_eq!(resp.call(&[b"GET", key.as_bytes()]).unwrap(), Reply::Bulk(value.clone()));
                let path = format!("/kv/http:{seed}");
                assert_eq!(http.call("PUT", &path, "", &value).unwrap().status, 201);
                assert_eq!(http.call("GET", &path, "", b"").unwrap().body, value);
            }
            assert_eq!(copies(&server.metrics()), before, "{address}");
        }
    }
}

fn copies(metrics: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let copied = metrics.iter().filter(|(name, _)| name.starts_with("landfall_copied_bytes_total{"));
    let copied: BTreeMap<_, _> = copied.map(|(name, value)| (name.clone(), *value)).collect();
    assert!(copied.len() >= 7, "{copied:?}");
    copied
}

#[test]
fn record_keeps_the_time_of_its_packet_not_of_its_execution() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &[]);
    let mut resp = server.resp();
    assert_eq!(resp.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into()));
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // The server is stopped while the packet arrives, as in any long pause.
    server.signal("STOP");
    let state = || std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    wait_until(xdp::PATIENCE, || state().contains("T (stopped)").then_some(())).expect("it stands still");
    resp.push(&[b"SET", b"k", b"v"]);
    resp.flush().unwrap();
    let sent = seconds();
    std::thread::sleep(Duration::from_secs(4));
    server.signal("CONT");
    assert_eq!(resp.read().unwrap(), ok());
    let mut http = xdp::stream(&server, server.http);
    http.write_all(b"HEAD /kv/k HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut head = String::new();
    std::io::Read::read_to_string(&mut http, &mut head).unwrap();
    let modified = head.lines().find_map(|line| line.strip_prefix("Last-Modified: ")).expect("a time");
    let second: u64 = modified[23..25].parse().unwrap();
    let late = (second + 60 - sent % 60) % 60;
    assert!(late <= 2 || late == 59, "sent at second {}, kept {modified}", sent % 60);
}

#[test]
fn packets_kept_by_records_are_released_by_deletes() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &[]);
    let mut resp = server.resp();
    let free = "landfall_runs{use=\"free\"}";
    for from in (0..COUNT_MANY).step_by(100) {
        for seed in from..from + 100 {
            resp.push(&[b"SET", format!("k{seed}").as_bytes(), &pattern(seed, LEN)]);
        }
        resp.flush().unwrap();
        (0..100).for_each(|_| assert_eq!(resp.read().unwrap(), ok()));
    }
    let low = server.metric(free);
    for from in (0..COUNT_MANY).step_by(100) {
        (from..from + 100).for_each(|seed| resp.push(&[b"DEL", format!("k{seed}").as_bytes()]));
        resp.flush().unwrap();
        (0..100).for_each(|_| assert_eq!(resp.read().unwrap(), Reply::Int(1)));
    }
    // Records and landing space in use remain.
    xdp::settles(&server, free, |now| now >= low + 10.0);
}
