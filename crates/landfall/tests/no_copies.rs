//! A value lies where its packet landed: the counters of copied bytes do not change, and the region contains the bytes
//! of the client's own request around the value.

mod common;

use common::{Place, Reply, ok, pattern};
use std::collections::BTreeMap;

/// Length of a value that does not fit into its record.
const LEN: usize = 1024;
/// Number of values.
const COUNT: u64 = 50;
/// Seeds of log entries.
const LOG_SEEDS: u64 = 10_000;

#[test]
fn kibibyte_values_are_stored_and_sent_without_a_copy() {
    for transport in ["uring", "epoll"] {
        for place in [Some(Place::new()), Place::in_memory()].into_iter().flatten() {
            stored_and_sent(&place, transport);
        }
    }
}

fn stored_and_sent(place: &Place, transport: &str) {
    // Without background work: the compactor's copies are not part of this promise.
    let server = place.start(&["--transport", transport, "--scrub-rate", "0"]);
    let (mut resp, mut http) = (server.resp(), server.http());
    let before = copies(&server.metrics());
    for seed in 0..COUNT {
        let value = pattern(seed, LEN);
        let key = format!("key:{seed}");
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok());
        assert_eq!(resp.call(&[b"GET", key.as_bytes()]).unwrap(), Reply::Bulk(value.clone()));
        assert_eq!(http.call("PUT", &format!("/kv/http:{seed}"), "", &value).unwrap().status, 201);
        assert_eq!(http.call("GET", &format!("/kv/http:{seed}"), "", b"").unwrap().body, value);
        let (log_resp, log_http) = (pattern(LOG_SEEDS + seed, LEN), pattern(2 * LOG_SEEDS + seed, LEN));
        assert_eq!(resp.call(&[b"LF.APPEND", b"resp", &log_resp]).unwrap(), Reply::Int(seed.cast_signed()));
        assert_eq!(http.call("POST", "/wal/http", "", &log_http).unwrap().status, 201);
        let offset = seed.to_string();
        let entry = Reply::Array(vec![Reply::Int(seed.cast_signed()), Reply::Bulk(log_resp)]);
        let read = resp.call(&[b"LF.READ", b"resp", offset.as_bytes()]).unwrap();
        assert_eq!(read, Reply::Array(vec![entry]));
        assert_eq!(http.call("GET", &format!("/wal/http/{seed}"), "", b"").unwrap().body, log_http);
    }
    assert_eq!(copies(&server.metrics()), before, "{transport}");
    assert!(server.stop().success());
    let region = std::fs::read(place.region()).unwrap();
    for seed in [0, COUNT / 2, COUNT - 1] {
        around(&region, &pattern(seed, LEN), b"$1024\r\n", "the client's own bytes before the value");
        around(&region, &pattern(seed, LEN), b"\r\n\r\n", "the end of the HTTP head before the body");
        around(
            &region,
            &pattern(LOG_SEEDS + seed, LEN),
            b"$1024\r\n",
            "the client's own bytes before the entry",
        );
        around(&region, &pattern(2 * LOG_SEEDS + seed, LEN), b"\r\n\r\n", "the HTTP head before the entry");
    }
}

/// Bytes copied, by path, except on paths that never carry the payload of a command.
fn copies(metrics: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let copied = metrics.iter().filter(|(name, _)| name.starts_with("landfall_copied_bytes_total{"));
    let copied: BTreeMap<String, f64> = copied.map(|(name, value)| (name.clone(), *value)).collect();
    for path in ["inline", "placed", "key", "moved", "reply", "list", "stalled"] {
        assert!(
            copied.contains_key(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}")),
            "{path}: {copied:?}"
        );
    }
    copied
}

/// Fails unless the region contains `value` directly behind `before`.
fn around(region: &[u8], value: &[u8], before: &[u8], what: &str) {
    let head = &value[..16];
    let mut at = 0;
    while let Some(found) = region[at..].windows(head.len()).position(|window| window == head) {
        let start = at + found;
        if region[start..].starts_with(value) && region[..start].ends_with(before) {
            return;
        }
        at = start + 1;
    }
    panic!("{what}: not found");
}
