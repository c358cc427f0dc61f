//! `/kv/{key}`: storing, reading and deleting values over HTTP.

mod http_support;

use http_support::{Answer, Rig, START_MS, limited, request};
use landfall_heap::{CopyPath, Gated, Source, Until, Writer};
use landfall_kv::{SetRequest, Written};
use landfall_media::sim::SimOptions;
use landfall_server::config::Config;
use landfall_server::context::Outcome;
use landfall_server::writes::{Destination, PlainWrites, WriteError};
use std::sync::Arc;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn a_value_is_created_read_replaced_and_deleted() {
    let mut rig = Rig::new();
    assert_eq!(rig.get("/kv/a").status, 404);
    let created = rig.put("/kv/a", b"one");
    assert_eq!((created.status, created.field("content-length").as_deref()), (201, Some("0")));
    let replaced = rig.with_fields("POST", "/kv/a", "", b"two!");
    assert_eq!(replaced.status, 204);
    assert_ne!(created.etag(), replaced.etag());
    let got = rig.get("/kv/a");
    assert_eq!((got.status, got.text()), (200, "two!"));
    assert_eq!(got.etag(), replaced.etag(), "the tag in the reply to the write is the tag of the value");
    assert_eq!(got.field("content-type").as_deref(), Some("application/octet-stream"));
    assert_eq!(got.field("last-modified").as_deref(), Some("Tue, 14 Nov 2023 22:13:20 GMT"));
    assert_eq!(got.field("x-landfall-ttl"), None);
    let deleted = rig.with_fields("DELETE", "/kv/a", "", b"");
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(rig.with_fields("DELETE", "/kv/a", "", b"").status, 404);
    assert_eq!(rig.get("/kv/a").status, 404);
}

/// As `curl -C` sends, which has a part of the value and takes what it has sent before for stored.
#[test]
fn a_part_of_a_value_is_not_stored_in_the_place_of_the_whole() {
    let mut rig = Rig::new();
    assert_eq!(rig.put("/kv/a", b"0123456789").status, 201);
    for method in ["PUT", "POST"] {
        let refused = rig.with_fields(method, "/kv/a", "Content-Range: bytes 5-9/10\r\n", b"xxxxx");
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    assert_eq!(rig.get("/kv/a").text(), "0123456789");
}

#[test]
fn values_of_every_size_come_back_and_only_small_ones_are_copied() {
    let mut rig = Rig::new();
    for len in [0, 1, 40, 64, 200, 256, 257, 1024, 100_000, 700_000] {
        let before = [CopyPath::Placed, CopyPath::Reply].map(|path| rig.copied(path));
        assert_eq!(rig.put("/kv/size", &pattern(len)).status / 100, 2, "{len}");
        let got = rig.get("/kv/size");
        assert!(got.body == pattern(len), "{len}");
        let after = [CopyPath::Placed, CopyPath::Reply].map(|path| rig.copied(path));
        assert_eq!(after[0], before[0], "a landed body is never copied");
        assert_eq!(after[1] - before[1], if len <= 256 { len as u64 } else { 0 });
    }
}

#[test]
fn a_body_in_many_segments_is_stored_where_it_landed() {
    let mut rig = Rig::new();
    rig.piece = 700;
    let body = pattern(10_000);
    assert_eq!(rig.put("/kv/split", &body).status, 201);
    assert!(rig.get("/kv/split").body == body);
    assert_eq!(rig.copied(CopyPath::Placed), 0);
}

fn chunked(body: &[u8], chunk: usize) -> Vec<u8> {
    let mut bytes = b"PUT /kv/c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in body.chunks(chunk) {
        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

#[test]
fn chunked_bodies_are_stored_without_their_chunk_headers() {
    let mut rig = Rig::new();
    for (len, chunk) in [(0, 1), (5, 2), (20_000, 5000)] {
        let body = pattern(len);
        assert_eq!(rig.ask(&chunked(&body, chunk)).status / 100, 2);
        assert!(rig.get("/kv/c").body == body, "{len} in chunks of {chunk}");
        assert_eq!(rig.copied(CopyPath::Placed), 0);
    }
}

#[test]
fn a_body_in_very_many_small_chunks_is_copied_together_and_counted() {
    let mut rig = Rig::new();
    let body = pattern(3000);
    assert_eq!(rig.ask(&chunked(&body, 3)).status, 201);
    assert!(rig.get("/kv/c").body == body);
    assert_eq!(rig.copied(CopyPath::Placed), 3000);
}

#[test]
fn keys_may_hold_any_byte_and_databases_keep_them_apart() {
    let mut rig = Rig::new();
    for key in ["a%2Fb", "x/y//z", "%00%01%fe%ff", "%20", "", "caf%C3%A9", "a%3Fb"] {
        assert_eq!(rig.put(&format!("/kv/{key}"), key.as_bytes()).status, 201, "{key}");
    }
    assert_eq!(rig.get("/kv/a/b").text(), "a%2Fb", "an encoded slash is the same key as a plain one");
    assert_eq!(rig.get("/kv/%00%01%FE%FF").text(), "%00%01%fe%ff");
    assert_eq!(rig.get("/kv/caf%c3%a9").text(), "caf%C3%A9");
    assert_eq!(rig.get("/kv/").text(), "");
    assert_eq!(rig.put("/kv/%20?db=15", b"other").status, 201);
    assert_eq!(rig.get("/kv/%20").text(), "%20");
    assert_eq!(rig.get("/kv/%20?db=15").text(), "other");
    for target in ["/kv/a?db=16", "/kv/a?db=", "/kv/a?database=1", "/kv/%4", "/kv/%zz"] {
        let answer = rig.get(target);
        assert_eq!((answer.status, answer.closes), (400, false), "{target}");
        assert!(answer.text().ends_with('\n') && answer.text().lines().count() == 1, "{target}");
    }
}

#[test]
fn long_keys_are_keys_too() {
    let mut rig = Rig::new();
    let target = format!("/kv/{}", "k".repeat(5000));
    assert_eq!(rig.put(&target, b"v").status, 201);
    assert_eq!(rig.get(&target).text(), "v");
    assert_eq!(rig.get(&target[..target.len() - 1]).status, 404);
    let over = rig.get(&format!("/kv/{}", "k".repeat(65 << 10)));
    assert_eq!((over.status, over.closes), (414, true));
}

#[test]
fn head_answers_as_get_without_the_body() {
    let mut rig = Rig::new();
    rig.put("/kv/a", &pattern(1000));
    let (head, get) = (rig.with_fields("HEAD", "/kv/a", "", b""), rig.get("/kv/a"));
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.fields, get.fields);
    assert_eq!(head.field("content-length").as_deref(), Some("1000"));
    let missing = rig.with_fields("HEAD", "/kv/b", "", b"");
    assert_eq!((missing.status, missing.body.len()), (404, 0));
}

#[test]
fn writes_hold_to_if_match_and_if_none_match() {
    let mut rig = Rig::new();
    let mut put = |fields: &str| rig.with_fields("PUT", "/kv/a", fields, b"v");
    assert_eq!(put("If-Match: *\r\n").status, 412);
    assert_eq!(put("If-Match: \"1\"\r\n").status, 412);
    let first = put("If-None-Match: *\r\n");
    assert_eq!(first.status, 201);
    assert_eq!(put("If-None-Match: *\r\n").status, 412);
    assert_eq!(put("If-Match: \"999999\", \"x\"\r\n").status, 412);
    let tag = first.etag();
    assert_eq!(put(&format!("If-Match: W/{tag}\r\n")).status, 412, "weak tags do not match strongly");
    let second = put(&format!("If-Match: \"x\"\r\nif-match: {tag}\r\n"));
    assert_eq!(second.status, 204, "a list may come in several fields");
    assert_eq!(put(&format!("If-Match: {tag}\r\n")).status, 412, "the tag of an older version");
    assert_eq!(put(&format!("If-None-Match: {}\r\n", second.etag())).status, 412);
    assert_eq!(put(&format!("If-None-Match: {tag}\r\n")).status, 204);
    assert_eq!(put("If-Match: nonsense\r\n").status, 400);
}

#[test]
fn conditional_writes_store_bodies_by_reference() {
    let mut rig = Rig::new();
    let body = pattern(5000);
    assert_eq!(rig.with_fields("PUT", "/kv/a", "If-None-Match: *\r\n", &body).status, 201);
    assert!(rig.get("/kv/a").body == body);
    assert_eq!(rig.copied(CopyPath::Placed), 0);
}

#[test]
fn deletes_hold_to_if_match() {
    let mut rig = Rig::new();
    let tag = rig.put("/kv/a", b"v").etag();
    let mut delete = |fields: &str| rig.with_fields("DELETE", "/kv/a", fields, b"").status;
    assert_eq!(delete("If-Match: \"0\"\r\n"), 412);
    assert_eq!(delete(&format!("If-Match: {tag}\r\n")), 204);
    assert_eq!(delete("If-Match: *\r\n"), 404, "conditions do not count where there is nothing");
}

#[test]
fn reads_hold_to_conditions() {
    let mut rig = Rig::new();
    let tag = rig.put("/kv/a", b"v").etag();
    let mut get = |fields: &str| rig.with_fields("GET", "/kv/a", fields, b"");
    let not_modified = get(&format!("If-None-Match: \"x\", W/{tag}\r\n"));
    assert_eq!((not_modified.status, not_modified.etag()), (304, tag.clone()));
    assert!(not_modified.field("last-modified").is_some() && not_modified.field("content-length").is_none());
    assert_eq!(get("If-None-Match: *\r\n").status, 304);
    assert_eq!(get("If-None-Match: \"x\"\r\n").status, 200);
    assert_eq!(get("If-Match: \"x\"\r\n").status, 412);
    assert_eq!(get(&format!("If-Match: {tag}\r\n")).text(), "v");
    for (fields, status) in [
        ("If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", 304),
        ("If-Modified-Since: Tue, 14 Nov 2023 22:13:19 GMT\r\n", 200),
        ("If-Modified-Since: yesterday\r\n", 200),
        ("If-Unmodified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", 200),
        ("If-Unmodified-Since: Tue, 14 Nov 2023 22:13:19 GMT\r\n", 412),
        ("If-None-Match: \"x\"\r\nIf-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", 200),
    ] {
        assert_eq!(get(fields).status, status, "{fields}");
    }
    assert_eq!(rig.with_fields("GET", "/kv/b", "If-Match: *\r\n", b"").status, 404);
}

#[test]
fn a_write_holds_to_if_unmodified_since() {
    let mut rig = Rig::new();
    let mut put = |fields: &str| rig.with_fields("PUT", "/kv/a", fields, b"v").status;
    let (before, at) = (
        "If-Unmodified-Since: Tue, 14 Nov 2023 22:13:19 GMT\r\n",
        "If-Unmodified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n",
    );
    assert_eq!(put(before), 201, "without a date of modification the field is ignored");
    assert_eq!(put(before), 412);
    assert_eq!(put(at), 204);
}

#[test]
fn a_value_lives_for_its_time_to_live() {
    let mut rig = Rig::new();
    let put = rig.with_fields("PUT", "/kv/a", "X-Landfall-TTL: 1500ms\r\n", b"v");
    assert_eq!((put.status, put.field("x-landfall-ttl").as_deref()), (201, Some("1500ms")));
    rig.now_ms += 1499;
    assert_eq!(rig.get("/kv/a").field("x-landfall-ttl").as_deref(), Some("1ms"));
    rig.now_ms += 1;
    assert_eq!(rig.get("/kv/a").status, 404);
    let again = rig.with_fields("PUT", "/kv/a", "x-landfall-ttl: 90\r\n", b"w");
    assert_eq!(again.status, 201, "an expired value counts as absent");
    assert_eq!(rig.get("/kv/a").field("x-landfall-ttl").as_deref(), Some("90000ms"));
    assert_eq!(rig.with_fields("PUT", "/kv/a", "If-Match: *\r\n", b"x").status, 204);
    assert_eq!(rig.get("/kv/a").field("x-landfall-ttl"), None, "a write without one takes it away");
    for bad in ["0", "-5", "1m", "ever", "18446744073709551615"] {
        let answer = rig.with_fields("PUT", "/kv/a", &format!("X-Landfall-TTL: {bad}\r\n"), b"v");
        assert_eq!(answer.status, 400, "{bad}");
    }
}

#[test]
fn no_write_is_acknowledged_before_it_is_durable() {
    let mut rig = Rig::new();
    for bytes in [request("PUT", "/kv/a", "", b"v"), request("DELETE", "/kv/a", "", b"")] {
        rig.queue(&bytes);
        assert_eq!(rig.sent(), b"");
        rig.commit();
        assert_eq!(Answer::parse(&rig.sent(), false).0.status / 100, 2);
    }
}

/// Replies to `asked` before and after the commit of `prepared`.
fn before_and_after_commit(prepared: &[Vec<u8>], asked: Vec<u8>) -> (Vec<u8>, u16) {
    let mut rig = Rig::new();
    rig.put("/kv/old", b"durable");
    for bytes in prepared {
        rig.queue(bytes);
    }
    // Another connection is simulated: the replies to the writes are not its own.
    let writes = std::mem::take(&mut rig.outbox);
    rig.queue(&asked);
    let early = rig.sent();
    rig.commit();
    let late = rig.sent();
    let all = [early.clone(), late].concat();
    drop(writes);
    (early, Answer::parse(&all, asked.starts_with(b"HEAD")).0.status)
}

#[test]
fn no_read_shows_what_a_crash_could_revoke() {
    let (put, delete) = (request("PUT", "/kv/new", "", b"v"), request("DELETE", "/kv/old", "", b""));
    let short = request("PUT", "/kv/old", "X-Landfall-TTL: 1ms\r\n", b"v");
    let get = |target: &str, fields: &str| request("GET", target, fields, b"");
    for (prepared, asked, status) in [
        (vec![put.clone()], get("/kv/new", ""), 200),
        (vec![put.clone()], request("HEAD", "/kv/new", "", b""), 200),
        (vec![put.clone()], get("/kv/new", "If-None-Match: *\r\n"), 304),
        (vec![put.clone()], get("/kv/new", "If-Match: \"0\"\r\n"), 412),
        (vec![put.clone()], request("PUT", "/kv/new", "If-None-Match: *\r\n", b"w"), 412),
        (vec![delete.clone()], get("/kv/old", ""), 404),
        (vec![delete.clone()], request("DELETE", "/kv/old", "", b""), 404),
        (vec![delete.clone()], request("PUT", "/kv/old", "If-Match: *\r\n", b"w"), 412),
        (vec![put.clone()], request("DELETE", "/kv/new", "If-Match: \"0\"\r\n", b""), 412),
        (vec![delete.clone()], get("/kv?limit=10", ""), 200),
        (vec![put.clone()], get("/kv?keys_only=1", ""), 200),
        (vec![short], get("/kv/old", ""), 200),
    ] {
        let name = asked.escape_ascii().to_string();
        let (early, found) = before_and_after_commit(&prepared, asked);
        assert!(early.is_empty(), "{name} was answered early");
        assert_eq!(found, status, "{name}");
    }
}

#[test]
fn reads_of_other_keys_do_not_wait() {
    let (early, status) = before_and_after_commit(
        &[request("PUT", "/kv/new", "", b"v"), request("PUT", "/kv/gone", "", b"v")],
        request("GET", "/kv/old", "", b""),
    );
    assert_eq!(status, 200);
    assert!(early.ends_with(b"durable"));
}

#[test]
fn an_expired_value_that_is_not_durable_hides_the_older_one_only_once_it_is() {
    let mut rig = Rig::new();
    rig.put("/kv/a", b"old");
    rig.queue(&request("PUT", "/kv/a", "X-Landfall-TTL: 1ms\r\n", b"new"));
    rig.outbox = Default::default();
    rig.now_ms += 5;
    rig.queue(&request("GET", "/kv/a", "", b""));
    assert_eq!(rig.sent(), b"", "a crash would bring the old value back");
    rig.commit();
    assert_eq!(Answer::parse(&rig.sent(), false).0.status, 404);
}

#[test]
fn a_write_upon_another_workers_pending_write_waits_and_leaves_no_trace() {
    let mut rig = Rig::new();
    rig.put("/kv/b", b"somewhere to land");
    let mut other = Writer::new(Arc::clone(rig.shared.engine.heap()), 1);
    let set = |rig: &Rig, other: &mut Writer| {
        let arrival_ns = START_MS * 1_000_000;
        let value = Source::Bytes(b"theirs");
        rig.shared
            .engine
            .set(other, &SetRequest { space: 0, key: b"a", key_at: None, value, expiry_ms: 0, arrival_ns })
            .unwrap()
            .tickets()
            .iter()
            .next()
            .unwrap()
    };
    for fields in ["", "If-Match: *\r\n"] {
        let ticket = set(&rig, &mut other);
        let bytes = request("PUT", "/kv/a", fields, b"ours");
        let free = rig.shared.engine.heap().runs().free_count();
        for _ in 0..3 {
            assert_eq!(rig.execute(&bytes).0, Outcome::Wait(Until::Ticket(ticket)));
            assert!(rig.outbox.is_empty());
        }
        assert_eq!(rig.shared.engine.heap().runs().free_count(), free, "nothing is held");
        let delete = request("DELETE", "/kv/a", fields, b"");
        assert_eq!(rig.execute(&delete).0, Outcome::Wait(Until::Ticket(ticket)));
        other.commit_now().unwrap();
        assert_eq!(rig.ask(&bytes).status, 204);
        assert_eq!(rig.get("/kv/a").text(), "ours");
    }
}

#[test]
fn acknowledged_values_are_there_after_a_crash_with_their_tags() {
    let mut rig = Rig::new();
    let tag = rig.put("/kv/a", &pattern(3000)).etag();
    rig.with_fields("PUT", "/kv/t", "X-Landfall-TTL: 60s\r\n", b"v");
    rig.put("/kv/b", b"gone");
    rig.with_fields("DELETE", "/kv/b", "", b"");
    rig.queue(&request("PUT", "/kv/unacknowledged", "", b"v"));
    for seed in 0..8 {
        let image = rig.media.crash_image_seeded(seed);
        let media = landfall_media::sim::SimMedia::from_image(image, SimOptions::default());
        let mut after = Rig::over(media, Config::default());
        let got = after.get("/kv/a");
        assert!(got.body == pattern(3000) && got.etag() == tag, "seed {seed}");
        assert_eq!(after.get("/kv/t").field("x-landfall-ttl").as_deref(), Some("60000ms"));
        assert_eq!(after.get("/kv/b").status, 404);
    }
}

#[test]
fn a_full_region_refuses_writes_and_still_reads_and_deletes() {
    let mut rig = Rig::new();
    let body = pattern(400_000);
    let full = (0..200).find(|n| match rig.put(&format!("/kv/{n}"), &body) {
        answer if answer.status == 201 => false,
        answer => {
            assert_eq!((answer.status, answer.closes), (507, false));
            assert!(answer.text().contains("--capacity"), "{}", answer.text());
            true
        }
    });
    assert!(full.is_some_and(|n| n > 20), "full after {full:?} values");
    assert!(rig.get("/kv/0").body == body);
    assert_eq!(rig.with_fields("PUT", "/kv/0", "If-Match: *\r\n", b"x").status, 507);
    let refused = rig.ask(&expecting("/kv/new", 10, ""));
    assert_eq!((refused.status, refused.closes), (507, true), "before the body is sent");
    for n in 0..10 {
        assert_eq!(rig.with_fields("DELETE", &format!("/kv/{n}"), "", b"").status, 204);
    }
    assert_eq!(rig.put("/kv/new", &body).status, 201, "deleting makes room");
}

/// The head of a request that waits for `100 Continue`.
fn expecting(target: &str, len: u64, fields: &str) -> Vec<u8> {
    format!(
        "PUT {target} HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {len}\r\n{fields}\r\n"
    )
    .into()
}

#[test]
fn bodies_over_the_limit_are_refused_before_they_are_sent() {
    let mut rig = Rig::with(limited(1000));
    let answer = rig.ask(&expecting("/kv/a", 1001, ""));
    assert_eq!(
        (answer.status, answer.closes, answer.field("connection").as_deref()),
        (413, true, Some("close"))
    );
    assert_eq!(rig.put("/kv/a", &pattern(1000)).status, 201);
    let sent = rig.put("/kv/a", &pattern(1001));
    assert_eq!((sent.status, sent.closes), (413, true));
    assert!(rig.get("/kv/a").body == pattern(1000));
}

#[test]
fn only_an_acceptable_body_is_requested() {
    let mut rig = Rig::new();
    rig.queue(&expecting("/kv/a", 10, ""));
    assert!(rig.outbox.is_empty());
    for (target, fields, status) in [
        ("/nowhere", "", 404),
        ("/metrics", "", 405),
        ("/kv/a?db=99", "", 400),
        ("/kv/a", "X-Landfall-TTL: x\r\n", 400),
    ] {
        let answer = rig.ask(&expecting(target, 10, fields));
        assert_eq!((answer.status, answer.closes), (status, true), "{target}");
    }
}

#[test]
fn connections_are_kept_or_closed_as_the_client_asks() {
    let mut rig = Rig::new();
    let kept = rig.put("/kv/a", b"v");
    assert_eq!((kept.closes, kept.field("connection")), (false, None));
    for method in ["GET", "PUT", "DELETE"] {
        let closed = rig.with_fields(method, "/kv/a", "Connection: close\r\n", b"");
        assert_eq!((closed.closes, closed.field("connection").as_deref()), (true, Some("close")), "{method}");
    }
    let missing = rig.with_fields("GET", "/kv/b", "Connection: close\r\n", b"");
    assert_eq!((missing.status, missing.closes), (404, true));
    let old = rig.ask(b"GET /kv/b HTTP/1.0\r\n\r\n");
    assert_eq!((old.closes, old.field("connection").as_deref()), (true, Some("close")));
    let old = rig.ask(b"GET /kv/b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!((old.closes, old.field("connection").as_deref()), (false, Some("keep-alive")));
}

#[test]
fn pipelined_replies_come_in_order() {
    let mut rig = Rig::new();
    let bytes = [
        request("PUT", "/kv/a", "", &pattern(2000)),
        request("GET", "/kv/a", "", b""),
        request("GET", "/kv/none", "", b""),
        request("DELETE", "/kv/a", "", b""),
        request("GET", "/kv/a", "", b""),
    ]
    .concat();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (outcome, taken) = rig.execute(rest);
        assert_eq!(outcome, Outcome::Done);
        rest = &rest[taken..];
    }
    rig.commit();
    let sent = rig.sent();
    let (mut left, mut statuses) = (&sent[..], Vec::new());
    while !left.is_empty() {
        let (answer, rest) = Answer::parse(left, false);
        statuses.push((answer.status, answer.body.len() == 2000));
        left = rest;
    }
    assert_eq!(statuses, [(201, false), (200, true), (404, false), (204, false), (404, false)]);
}

#[test]
fn damage_is_reported_and_never_served() {
    let mut rig = Rig::new();
    let body: Vec<u8> = b"find me in the region ".repeat(50);
    rig.put("/kv/a", &body);
    let len = landfall_media::Media::len(&*rig.media);
    let image =
        landfall_media::Media::bytes(&*rig.media, landfall_media::Extent::new(0, len as u32)).unwrap();
    let at = image.windows(body.len()).position(|window| window == body).unwrap();
    rig.media.damage(at as u64 + 500, 1);
    let got = rig.get("/kv/a");
    assert_eq!(got.status, 500);
    assert!(got.text().contains("damaged") && !got.text().contains("find me"));
    let scanned = rig.get("/kv");
    assert_eq!(scanned.text(), "1 damaged\na\n");
    assert!(rig.get("/kv?format=ndjson").text().starts_with("{\"key\":\"a\",\"error\":\""));
    assert_eq!(rig.put("/kv/a", b"healed").status, 204);
    assert_eq!(rig.get("/kv/a").text(), "healed");
}

#[test]
fn after_a_failed_write_the_region_answers_503_to_writes() {
    let mut rig = Rig::new();
    rig.put("/kv/a", b"v");
    let fences = rig.media.ops().fences;
    rig.media.fail_at(fences + 1);
    rig.queue(&request("PUT", "/kv/b", "", b"v"));
    assert!(rig.writer.commit_now().is_err());
    assert_eq!(rig.sent(), b"", "what failed is not acknowledged");
    rig.outbox = Default::default();
    let reply = |rig: &mut Rig, bytes: &[u8]| {
        let _ = rig.execute(bytes);
        Answer::parse(&rig.sent(), false).0.status
    };
    assert_eq!(reply(&mut rig, &request("GET", "/kv/a", "", b"")), 200, "what is durable is still served");
    assert_eq!(reply(&mut rig, &request("GET", "/kv/b", "", b"")), 503, "what is not never will be");
    assert_eq!(reply(&mut rig, &request("GET", "/healthz", "", b"")), 503);
    assert_eq!(reply(&mut rig, &expecting("/kv/c", 10, "")), 503);
}

/// A destination of plain writes that stores nothing.
#[derive(Debug)]
struct Nowhere;

impl PlainWrites for Nowhere {
    fn keeps_values(&self) -> bool {
        false
    }

    fn set(&self, _: Destination<'_>, _: &SetRequest<'_>) -> Result<Option<Gated<Written>>, WriteError> {
        Ok(None)
    }
}

#[test]
fn discarded_plain_writes_are_acknowledged_and_stored_nowhere() {
    let mut rig = Rig::new();
    rig.shared.writes = Box::new(Nowhere);
    assert_eq!(rig.put("/kv/a", b"v").status, 204);
    assert_eq!(rig.get("/kv/a").status, 404);
    assert!(!rig.writer.has_work());
}

#[test]
fn nothing_stays_held_when_everything_is_deleted() {
    let mut rig = Rig::new();
    rig.put("/kv/first", b"opens the slab");
    let free = rig.shared.engine.heap().runs().free_count();
    for n in 0..10 {
        let target = format!("/kv/{n}");
        rig.put(&target, &pattern(50_000));
        rig.with_fields("PUT", &target, "If-Match: *\r\n", &pattern(60_000));
        rig.with_fields("PUT", &target, "If-Match: \"0\"\r\n", &pattern(60_000));
        rig.get(&target);
        rig.get("/kv");
        rig.with_fields("DELETE", &target, "", b"");
    }
    assert_eq!(rig.shared.engine.heap().runs().free_count(), free);
}

#[test]
fn a_range_of_a_value_is_answered_by_that_part_alone() {
    let mut rig = Rig::new();
    for len in [5, 40, 3000, 700_000] {
        let value = pattern(len);
        assert_eq!(rig.put("/kv/a", &value).status / 100, 2);
        let tag = rig.get("/kv/a").etag();
        let half = len / 2;
        for (range, wanted) in [
            (format!("bytes=0-{}", half - 1), 0..half),
            (format!("bytes={half}-"), half..len),
            ("bytes=-3".to_owned(), len - 3..len),
            (format!("bytes=1-{}", 2 * len), 1..len),
        ] {
            let got = rig.with_fields("GET", "/kv/a", &format!("Range: {range}\r\n"), b"");
            assert_eq!(got.status, 206, "{range}");
            assert!(got.body == value[wanted.clone()], "{range} of {len}");
            let told = format!("bytes {}-{}/{len}", wanted.start, wanted.end - 1);
            assert_eq!(got.field("content-range"), Some(told));
            assert_eq!(got.etag(), tag);
        }
        let beyond = rig.with_fields("GET", "/kv/a", &format!("Range: bytes={len}-\r\n"), b"");
        assert_eq!((beyond.status, beyond.field("content-range")), (416, Some(format!("bytes */{len}"))));
        for ignored in ["items=0-1", "bytes=0-1,3-4", "bytes=4-2"] {
            let got = rig.with_fields("GET", "/kv/a", &format!("Range: {ignored}\r\n"), b"");
            assert!(got.status == 200 && got.body == value, "{ignored}");
        }
        let fields = |condition: &str| format!("Range: bytes=0-1\r\n{condition}\r\n");
        let mut status = |condition: &str| rig.with_fields("GET", "/kv/a", &fields(condition), b"").status;
        assert_eq!(status(&format!("If-Range: {}", tag)), 206);
        assert_eq!(status("If-Range: \"0\""), 200, "of another version the whole value is wanted");
        assert_eq!(status("If-Range: Tue, 14 Nov 2023 22:13:20 GMT"), 200);
        assert_eq!(status(&format!("If-None-Match: {}", tag)), 304);
        assert_eq!(status("If-Match: \"0\""), 412);
        assert_eq!(rig.with_fields("GET", "/kv/none", "Range: bytes=0-1\r\n", b"").status, 404);
    }
}
