//! `/kv`: streamed scans of key ranges.

mod http_support;

use http_support::{Answer, Rig, request};
use landfall_heap::CopyPath;
use landfall_server::config::{Config, Size};
use landfall_server::context::Outcome;
use std::time::Instant;

/// Parses the octets layout.
fn pairs(mut body: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    while !body.is_empty() {
        let line = body.iter().position(|byte| *byte == b'\n').unwrap();
        let (key_len, value_len) = std::str::from_utf8(&body[..line]).unwrap().split_once(' ').unwrap();
        let (key_len, value_len): (usize, usize) = (key_len.parse().unwrap(), value_len.parse().unwrap());
        let rest = &body[line + 1..];
        let (pair, rest) = rest.split_at(key_len + value_len);
        assert_eq!(rest[0], b'\n');
        pairs.push((pair[..key_len].to_vec(), pair[key_len..].to_vec()));
        body = &rest[1..];
    }
    pairs
}

fn keys(answer: &Answer) -> Vec<String> {
    assert_eq!((answer.status, answer.complete), (200, true));
    pairs(&answer.body).into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
}

fn filled(count: usize, value_len: usize) -> Rig {
    filled_with(Config::default(), count, value_len)
}

fn filled_with(config: Config, count: usize, value_len: usize) -> Rig {
    let mut rig = Rig::with(config);
    for n in 0..count {
        let bytes = request("PUT", &format!("/kv/k{n:04}"), "", &vec![n as u8; value_len]);
        rig.queue(&bytes);
        if n % 100 == 99 || n + 1 == count {
            rig.commit();
            assert!(!rig.sent().windows(12).any(|window| window == b"HTTP/1.1 507"));
        }
    }
    rig
}

#[test]
fn an_empty_range_is_an_empty_body() {
    let mut rig = Rig::new();
    for target in ["/kv", "/kv?format=ndjson", "/kv?start=b&end=a", "/kv?limit=0", "/kv?prefix=x"] {
        let answer = rig.get(target);
        assert_eq!((answer.status, answer.body.len(), answer.complete), (200, 0, true), "{target}");
    }
}

/// It would be encoded in memory, of which each client may have a part.
#[test]
fn a_value_or_an_entry_that_is_too_long_for_a_line_of_json_is_named_and_left_out() {
    let mut rig = Rig::with(Config { max_output: Size(4096), ..Config::default() });
    let long = vec![b'x'; 200 << 10];
    assert_eq!(rig.put("/kv/a", &long).status, 201);
    assert_eq!(rig.put("/kv/b", b"short").status, 201);
    let answer = rig.get("/kv?format=ndjson");
    let lines = "{\"key\":\"a\",\"error\":\"too long for a line of JSON: read it alone\"}\n{\"key\":\"b\",\"value\":\"short\"}\n";
    assert_eq!((answer.text(), answer.complete), (lines, true));
    assert_eq!(rig.with_fields("POST", "/wal/log", "", &long).status / 100, 2);
    assert_eq!(rig.get("/wal/log?from=0&format=ndjson").status, 413);
    assert!(rig.get("/wal/log/0").body == long);
}

/// It is sent without asking the server, and with the password that the browser knows.
#[test]
fn a_page_of_another_site_writes_nothing() {
    let mut rig = Rig::new();
    assert_eq!(rig.put("/kv/a", b"old").status, 201);
    for (method, target) in [("POST", "/kv/a"), ("PUT", "/kv/a"), ("DELETE", "/kv/a"), ("POST", "/wal/a")] {
        let refused = rig.with_fields(method, target, "Sec-Fetch-Site: cross-site\r\n", b"new");
        assert_eq!(refused.status, 403, "{method} {target}");
    }
    assert_eq!(rig.get("/kv/a").text(), "old");
    for fields in ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Origin: http://test:1\r\n"] {
        assert_eq!(rig.with_fields("POST", "/kv/a", fields, b"new").status, 403, "{fields}");
    }
    let others = ["same-origin", "same-site", "none"].map(|site| format!("Sec-Fetch-Site: {site}\r\n"));
    for fields in others.into_iter().chain(["Origin: http://test\r\n".to_owned()]) {
        assert_eq!(rig.with_fields("PUT", "/kv/a", &fields, b"new").status, 204, "{fields}");
    }
}

#[test]
fn bounds_prefixes_limits_and_direction_choose_the_keys() {
    let mut rig = Rig::new();
    for key in ["a", "ab", "abc", "b", "b%00", "b%ff", "c", "d"] {
        rig.put(&format!("/kv/{key}"), format!("value of {key}").as_bytes());
    }
    rig.put("/kv/b2?db=1", b"elsewhere");
    let mut scan = |query: &str| {
        let answer = rig.get(&format!("/kv?{query}"));
        assert!(answer.complete && answer.status == 200);
        pairs(&answer.body)
            .into_iter()
            .map(|(key, _)| key.escape_ascii().to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    for (query, want) in [
        ("", r"a ab abc b b\x00 b\xff c d"),
        ("start=ab&end=b", "ab abc"),
        ("start=ab&end=b%00", "ab abc b"),
        ("start=b%00", r"b\x00 b\xff c d"),
        ("prefix=b", r"b b\x00 b\xff"),
        ("prefix=ab&limit=1", "ab"),
        ("prefix=b&start=b%01&end=c", r"b\xff"),
        ("reverse=1", r"d c b\xff b\x00 b abc ab a"),
        ("reverse&limit=2", "d c"),
        ("reverse&start=ab&end=b", "abc ab"),
        ("reverse=true&prefix=a&limit=2", "abc ab"),
        ("limit=3", "a ab abc"),
        ("db=1", "b2"),
        ("db=2", ""),
    ] {
        assert_eq!(scan(query), want, "{query}");
    }
}

#[test]
fn long_scans_are_streamed_page_by_page_in_both_directions() {
    let mut rig = filled(1000, 300);
    let want: Vec<String> = (0..1000).map(|n| format!("k{n:04}")).collect();
    let up = rig.get("/kv");
    assert!(up.pages >= 3, "{} pages", up.pages);
    assert_eq!(up.field("transfer-encoding").as_deref(), Some("chunked"));
    assert_eq!(keys(&up), want);
    assert!(pairs(&up.body).iter().enumerate().all(|(n, (_, value))| *value == vec![n as u8; 300]));
    let down = rig.get("/kv?reverse=1");
    assert_eq!(keys(&down), want.iter().rev().cloned().collect::<Vec<_>>());
    for limit in [255, 256, 257, 999, 1000, 1001] {
        assert_eq!(keys(&rig.get(&format!("/kv?limit={limit}"))).len(), limit.min(1000), "{limit}");
    }
    assert_eq!(keys(&rig.get("/kv?start=k0300&end=k0900")), want[300..900]);
    assert_eq!(keys(&rig.get("/kv?start=k0300&end=k0900&reverse&limit=400"))[399], "k0500");
}

#[test]
fn large_values_are_sent_from_where_they_lie_in_pages_of_bounded_size() {
    let mut rig = filled_with(Config { max_output: Size(256 << 10), ..Config::default() }, 60, 50_000);
    let before = rig.copied(CopyPath::Reply);
    rig.queue(&request("GET", "/kv", "", b""));
    let mut largest = 0;
    let mut sent = rig.sent();
    while rig.session.is_streaming() {
        assert_eq!(rig.pump(), Outcome::Done);
        largest = largest.max(rig.outbox.len());
        sent.extend(rig.sent());
    }
    assert!(largest <= (128 << 10) + 60_000, "a page of {largest} bytes");
    let (answer, rest) = Answer::parse(&sent, false);
    assert!(rest.is_empty() && keys(&answer).len() == 60);
    assert_eq!(rig.copied(CopyPath::Reply), before);
}

#[test]
fn keys_alone_are_listed_without_their_values() {
    let mut rig = filled(3, 5);
    assert_eq!(rig.get("/kv?keys_only=1").text(), "5\nk0000\n5\nk0001\n5\nk0002\n");
    let lines = rig.get("/kv?keys_only=1&format=ndjson&limit=2");
    assert_eq!(lines.text(), "{\"key\":\"k0000\"}\n{\"key\":\"k0001\"}\n");
}

#[test]
fn lines_are_json_whatever_the_bytes() {
    let mut rig = Rig::new();
    let text: String = (0..128u8).map(char::from).chain("é\u{2028}😀".chars()).collect();
    rig.put("/kv/a%22%5C%0A", text.as_bytes());
    rig.put("/kv/%ff%00", b"\xfe\xff\x00");
    rig.put("/kv/b", b"");
    rig.put("/kv/large", &[b'"'; 2000]);
    let copied = rig.copied(CopyPath::Reply);
    let answer = rig.with_fields("GET", "/kv", "Accept: application/x-ndjson\r\n", b"");
    assert_eq!(answer.field("content-type").as_deref(), Some("application/x-ndjson"));
    let lines: Vec<serde_json::Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0], serde_json::json!({ "key": "a\"\\\n", "value": text }));
    assert_eq!(lines[1], serde_json::json!({ "key": "b", "value": "" }));
    assert_eq!(lines[2], serde_json::json!({ "key": "large", "value": "\"".repeat(2000) }));
    assert_eq!(lines[3], serde_json::json!({ "key64": "/wA=", "value64": "/v8A" }));
    assert_eq!(rig.copied(CopyPath::Reply) - copied, (text.len() + 3 + 2000) as u64);
}

#[test]
fn head_of_a_scan_has_no_body_and_no_stream() {
    let mut rig = filled(600, 3);
    let head = rig.with_fields("HEAD", "/kv", "", b"");
    assert_eq!((head.status, head.pages, head.body.len()), (200, 0, 0));
}

#[test]
fn a_streams_connection_is_closed_after_it_on_request() {
    let mut rig = filled(600, 3);
    let (outcome, _) = rig.execute(&request("GET", "/kv", "Connection: close\r\n", b""));
    assert_eq!(outcome, Outcome::Done, "not before the stream has ended");
    rig.sent();
    while rig.session.is_streaming() {
        let outcome = rig.pump();
        assert_eq!(outcome == Outcome::Close, !rig.session.is_streaming());
    }
    rig.sent();
    let short = rig.with_fields("GET", "/kv?limit=1", "Connection: close\r\n", b"");
    assert!(short.closes && short.complete);
    let kept = rig.get("/kv");
    assert!(!kept.closes && kept.pages > 0);
}

#[test]
fn clients_of_http_1_0_get_a_body_that_ends_with_the_connection() {
    for count in [2, 600] {
        let mut rig = filled(count, 10);
        let answer = rig.ask(b"GET /kv HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(answer.field("transfer-encoding"), None);
        assert_eq!(answer.field("connection").as_deref(), Some("close"));
        assert!(answer.closes);
        assert_eq!(keys(&answer).len(), count);
    }
}

#[test]
fn a_scan_continues_where_it_stopped_while_keys_come_and_go() {
    let mut rig = filled(600, 10);
    rig.queue(&request("GET", "/kv", "", b""));
    let mut sent = rig.sent();
    let scanning = std::mem::replace(&mut rig.session, landfall_server::http::HttpSession::new(&rig.shared));
    for n in (0..600).step_by(2) {
        rig.with_fields("DELETE", &format!("/kv/k{n:04}"), "", b"");
    }
    rig.put("/kv/k0000a", b"behind");
    rig.put("/kv/k0599a", b"ahead");
    rig.session = scanning;
    while rig.session.is_streaming() {
        assert_eq!(rig.pump(), Outcome::Done);
        sent.extend(rig.sent());
    }
    let seen = keys(&Answer::parse(&sent, false).0);
    assert!(seen.is_sorted(), "each key once, in order");
    assert!((0..600).skip(1).step_by(2).all(|n| seen.contains(&format!("k{n:04}"))), "what stays is seen");
    assert!(seen.contains(&"k0599a".into()) && !seen.contains(&"k0000a".into()));
    assert!(!seen.contains(&"k0598".into()), "what went before its page is not");
}

#[test]
fn expired_keys_are_not_listed() {
    let mut rig = Rig::new();
    rig.with_fields("PUT", "/kv/a", "X-Landfall-TTL: 1s\r\n", b"v");
    rig.put("/kv/b", b"v");
    rig.now_ms += 1000;
    assert_eq!(keys(&rig.get("/kv")), ["b"]);
}

/// The promise is 2 µs per key at most; the assertion leaves room for a slow, busy machine.
#[test]
fn a_scan_of_a_thousand_values_of_1_kib_costs_microseconds_a_key() {
    let mut rig = filled(1000, 1024);
    let mut best = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        rig.queue(&request("GET", "/kv", "", b""));
        while rig.session.is_streaming() {
            assert_eq!(rig.pump(), Outcome::Done);
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / 1000.0);
        rig.sent();
    }
    println!("{best:.3} µs a key");
    assert!(best < 20.0, "{best:.3} µs a key");
}
