//! All resources except values: metrics, health, help, methods, the password, malformed requests.

mod http_support;

use http_support::{Rig, guarded};
use landfall_server::counters::count;
use std::collections::{BTreeMap, BTreeSet};

/// One sample: name, labels, value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Parses the text format strictly (version 0.0.4): each metric has one HELP and one TYPE line, directly followed by
/// all of its samples.
fn samples(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'));
    let (mut samples, mut done, mut current) = (Vec::new(), BTreeSet::new(), (String::new(), String::new()));
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty() && done.insert(name.to_owned()), "{name} twice");
            let kind = lines.next().unwrap().strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
            assert_eq!(kind.0, name);
            assert!(["counter", "gauge", "histogram"].contains(&kind.1), "{line}");
            assert!(kind.1 != "counter" || name.ends_with("_total"), "{name}");
            current = (name.to_owned(), kind.1.to_owned());
            continue;
        }
        let sample = sample(line);
        let of_histogram =
            ["_bucket", "_sum", "_count"].iter().any(|end| sample.0 == format!("{}{end}", current.0));
        assert!(
            sample.0 == current.0 || current.1 == "histogram" && of_histogram,
            "{line} under {current:?}"
        );
        samples.push(sample);
    }
    samples
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
        None => (series, ""),
    };
    assert!(
        name.starts_with("landfall_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
        "{line}"
    );
    let mut found = BTreeMap::new();
    let mut rest = labels;
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").unwrap();
        let (mut text, mut chars) = (String::new(), after.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => text.push(chars.next().unwrap().1),
                (_, char) => text.push(char),
            }
        };
        found.insert(label.to_owned(), text);
        rest = after[end + 1..].strip_prefix(',').unwrap_or(&after[end + 1..]);
    }
    (name.to_owned(), found, value.parse().unwrap())
}

#[test]
fn metrics_are_well_formed_and_tell_what_happened() {
    let mut rig = Rig::new();
    rig.put("/kv/a", &[1; 5000]);
    rig.put("/kv/b?db=3", b"v");
    rig.with_fields("PUT", "/kv/t", "X-Landfall-TTL: 5s\r\n", b"v");
    rig.get("/kv/a");
    rig.get("/kv/none");
    rig.get("/nowhere?");
    count(&rig.shared.counters.commits, 2);
    count(&rig.shared.counters.commit_ns, 2_003_000);
    count(&rig.shared.counters.commit_buckets[1], 1);
    count(&rig.shared.counters.commit_buckets[15], 1);
    let answer = rig.get("/metrics");
    assert_eq!(answer.field("content-type").as_deref(), Some("text/plain; version=0.0.4; charset=utf-8"));
    let samples = samples(answer.text());
    let get = |name: &str, label: &str| {
        let is = |sample: &&Sample| {
            sample.0 == format!("landfall_{name}")
                && (label.is_empty() || sample.1.values().any(|v| v == label))
        };
        samples.iter().find(is).unwrap_or_else(|| panic!("no {name} {label}")).2
    };
    assert_eq!([get("keys", "0"), get("keys", "3"), get("keys", "15")], [2.0, 1.0, 0.0]);
    assert_eq!([get("keys_expiring", ""), get("hits_total", ""), get("misses_total", "")], [1.0, 1.0, 1.0]);
    assert_eq!([get("http_requests_total", ""), get("region_closed", "")], [6.0, 0.0]);
    assert_eq!([get("commits_total", ""), get("commit_duration_seconds_sum", "")], [2.0, 0.002003]);
    assert_eq!(
        [
            get("commit_duration_seconds_bucket", "0.000001"),
            get("commit_duration_seconds_bucket", "0.000002")
        ],
        [0.0, 1.0]
    );
    assert_eq!(
        [get("commit_duration_seconds_bucket", "1"), get("commit_duration_seconds_bucket", "+Inf")],
        [1.0, 2.0]
    );
    assert_eq!(get("commit_duration_seconds_count", ""), 2.0);
    assert_eq!([get("copied_bytes_total", "inline"), get("copied_bytes_total", "placed")], [2.0, 0.0]);
    assert_eq!(get("recovery_seconds", ""), 0.0015);
    let runs: f64 = ["free", "data", "slab", "table"].map(|used_for| get("runs", used_for)).iter().sum();
    assert_eq!(runs * 1048576.0, get("region_bytes", ""));
    assert!(get("process_resident_memory_bytes", "") > 1e5 && get("process_start_time_seconds", "") > 1.7e9);
    assert!(get("uptime_seconds", "") >= 0.0 && get("live_bytes", "") >= 5000.0);
    let info = samples.iter().find(|sample| sample.0 == "landfall_info").unwrap();
    assert_eq!((info.1["media"].as_str(), info.1["transport"].as_str()), ("simulated", "epoll"));
    assert_eq!(info.1["transport_reason"], "a \"reason\"");
}

#[test]
fn health_is_reported() {
    let mut rig = Rig::new();
    for target in ["/healthz", "/healthz?ready=1"] {
        let answer = rig.get(target);
        assert_eq!((answer.status, answer.text()), (200, "ok\n"));
    }
    let head = rig.with_fields("HEAD", "/healthz", "", b"");
    assert_eq!((head.status, head.field("content-length").as_deref()), (200, Some("3")));
    assert_eq!(rig.get("/healthz?depth=1").status, 400);
}

#[test]
fn the_root_names_every_route() {
    let answer = Rig::new().get("/");
    assert_eq!(answer.status, 200);
    for route in ["/kv/{key}", "/kv ", "/metrics", "/healthz"] {
        assert!(answer.text().contains(route), "{route}");
    }
}

#[test]
fn unknown_resources_are_404_and_unknown_methods_405_with_allow() {
    let mut rig = Rig::new();
    for target in ["/nowhere", "/kvx", "/metrics/", "/healthz/x", "//"] {
        let answer = rig.get(target);
        assert_eq!((answer.status, answer.closes), (404, false), "{target}");
    }
    for (method, target, allow) in [
        ("PATCH", "/kv/a", "GET, HEAD, PUT, POST, DELETE, OPTIONS"),
        ("PUT", "/kv", "GET, HEAD, OPTIONS"),
        ("DELETE", "/kv", "GET, HEAD, OPTIONS"),
        ("POST", "/metrics", "GET, HEAD, OPTIONS"),
        ("TRACE", "/", "GET, HEAD, OPTIONS"),
    ] {
        let answer = rig.with_fields(method, target, "", b"");
        assert_eq!(
            (answer.status, answer.field("allow").as_deref()),
            (405, Some(allow)),
            "{method} {target}"
        );
        assert!(answer.text().contains(allow), "{}", answer.text());
    }
}

#[test]
fn options_list_the_methods() {
    let mut rig = Rig::new();
    for (target, allow) in [
        ("/kv/a", "GET, HEAD, PUT, POST, DELETE, OPTIONS"),
        ("/kv", "GET, HEAD, OPTIONS"),
        ("*", "GET, HEAD, PUT, POST, DELETE, OPTIONS"),
    ] {
        let answer = rig.with_fields("OPTIONS", target, "", b"");
        assert_eq!((answer.status, answer.field("allow").as_deref()), (204, Some(allow)), "{target}");
    }
}

#[test]
fn the_password_protects_everything_but_health() {
    let mut rig = Rig::with(guarded("open:sesame"));
    for (target, status) in
        [("/kv/a", 401), ("/kv", 401), ("/metrics", 401), ("/", 401), ("/nowhere", 401), ("/healthz", 200)]
    {
        let answer = rig.get(target);
        assert_eq!((answer.status, answer.closes), (status, false), "{target}");
        assert_eq!(answer.field("www-authenticate").is_some(), status == 401, "{target}");
    }
    assert_eq!(rig.put("/kv/a", b"v").status, 401);
    // Basic: "any:open:sesame", ":open:sesame"; Bearer.
    for right in ["Basic YW55Om9wZW46c2VzYW1l", "basic Om9wZW46c2VzYW1l", "Bearer open:sesame"] {
        let answer = rig.with_fields("GET", "/kv/a", &format!("Authorization: {right}\r\n"), b"");
        assert_eq!(answer.status, 404, "{right}: nothing was stored without it");
    }
    for wrong in
        ["Basic YW55OnNlc2FtZQ==", "Bearer open", "Bearer open:sesamee", "Bearer", "Basic =", "Digest x"]
    {
        let answer = rig.with_fields("GET", "/kv/a", &format!("Authorization: {wrong}\r\n"), b"");
        assert_eq!(answer.status, 401, "{wrong}");
    }
    let expecting = b"PUT /kv/a HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    let refused = rig.ask(expecting);
    assert_eq!((refused.status, refused.closes), (401, true), "before the body is sent");
}

#[test]
fn malformed_requests_are_refused_and_end_the_connection() {
    let mut rig = Rig::new();
    let answer = rig.ask(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(
        (answer.status, answer.closes, answer.field("connection").as_deref()),
        (400, true, Some("close"))
    );
    assert_eq!(answer.field("date").as_deref(), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
}

#[test]
fn every_reply_has_the_date_of_its_second() {
    let mut rig = Rig::new();
    assert_eq!(rig.get("/").field("date").as_deref(), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
    rig.now_ms += 999;
    assert_eq!(rig.get("/").field("date").as_deref(), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
    rig.now_ms += 1;
    assert_eq!(rig.get("/").field("date").as_deref(), Some("Tue, 14 Nov 2023 22:13:21 GMT"));
}
