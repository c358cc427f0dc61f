//! Logs end to end: over HTTP and RESP, by the command line, across kills, damage and repair.

mod common;

use common::faults::Over;
use common::{Place, Reply, Server, bulk, error_text, landfall, ok, pattern};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn entry(offset: i64, value: impl AsRef<[u8]>) -> Reply {
    Reply::Array(vec![Reply::Int(offset), bulk(value)])
}

#[test]
fn logs_are_served_over_both_protocols() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut http = server.http();
    assert_eq!(server.call(&["LF.APPEND", "a", "zero", "one"]), Reply::Int(0));
    let posted = http.call("POST", "/wal/a", "", b"two").unwrap();
    assert_eq!((posted.status, posted.body.as_slice()), (201, &b"{\"offset\":2,\"count\":1}\n"[..]));
    let batch = [&3u32.to_le_bytes()[..], b"abc", &0u32.to_le_bytes(), &1u32.to_le_bytes(), b"d"].concat();
    let posted =
        http.call("POST", "/wal/a", "Content-Type: application/x-landfall-batch\r\n", &batch).unwrap();
    assert_eq!(posted.body, b"{\"offset\":3,\"count\":3}\n");
    assert_eq!(
        server.call(&["LF.READ", "a", "1", "COUNT", "2"]),
        Reply::Array(vec![entry(1, "one"), entry(2, "two")])
    );
    assert_eq!(http.call("GET", "/wal/a?from=3", "", b"").unwrap().body, batch);
    assert_eq!(http.call("GET", "/wal/a/1", "", b"").unwrap().body, b"one");
    let lines = http.call("GET", "/wal/a?from=5&format=ndjson", "", b"").unwrap().body;
    assert!(String::from_utf8(lines).unwrap().contains("\"value\":\"d\""));
    assert_eq!(http.call("GET", "/wal/a/9", "", b"").unwrap().status, 404);
    let beyond = http.call("GET", "/wal/a?from=9", "", b"").unwrap();
    assert_eq!(beyond.status, 416);
    assert!(String::from_utf8(beyond.body).unwrap().contains("0 to before 6"));
    assert!(error_text(&server.call(&["LF.READ", "a", "9"])).starts_with("OUTOFRANGE"));
    assert!(error_text(&server.call(&["LF.READ", "none", "0"])).starts_with("NOLOG"));
    assert_eq!(http.call("POST", "/wal/bad%20name", "", b"x").unwrap().status, 400);
    let short = http.call("POST", "/wal/a", "Content-Type: application/x-landfall-batch\r\n", b"\x09\0\0\0x");
    assert_eq!(short.unwrap().status, 400);
    assert_eq!(server.call(&["LF.LEN", "a"]), Reply::Int(6));
    assert_eq!(server.call(&["LF.LEN", "none"]), Reply::Int(0));
}

#[test]
fn trims_positions_retention_and_deletes_are_served() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut http = server.http();
    for at in 0..8 {
        assert_eq!(server.call(&["LF.APPEND", "a", &format!("v{at}")]), Reply::Int(at));
    }
    assert_eq!(server.call(&["LF.TRIM", "a", "2"]), Reply::Int(2));
    assert_eq!(http.call("DELETE", "/wal/a?before=3", "", b"").unwrap().status, 204);
    assert_eq!(http.call("GET", "/wal/a/2", "", b"").unwrap().status, 404);
    assert_eq!(server.call(&["LF.COMMIT", "a", "mirror", "5"]), ok());
    assert_eq!(http.call("GET", "/wal/a/consumers/mirror", "", b"").unwrap().body, b"5\n");
    assert_eq!(http.call("PUT", "/wal/a/consumers/other", "", b"4").unwrap().status, 204);
    assert_eq!(server.call(&["LF.POSITION", "a", "other"]), Reply::Int(4));
    assert_eq!(server.call(&["LF.FORGET", "a", "other"]), Reply::Int(1));
    assert_eq!(server.call(&["LF.POSITION", "a", "other"]), Reply::Nil);
    assert_eq!(http.call("PUT", "/wal/a/consumers/other", "", b"99").unwrap().status, 416);
    assert_eq!(http.call("PUT", "/wal/a/config?entries=2", "", b"").unwrap().status, 204);
    assert_eq!(
        http.call("GET", "/wal/a/config", "", b"").unwrap().body,
        b"{\"bytes\":0,\"entries\":2,\"ms\":0}\n"
    );
    let kept = common::wait_until(Duration::from_secs(10), || {
        (server.call(&["LF.LEN", "a"]) == Reply::Int(2)).then_some(())
    });
    assert!(kept.is_some(), "retention leaves two");
    let list = http.call("GET", "/wal", "", b"").unwrap().body;
    assert_eq!(
        String::from_utf8(list).unwrap(),
        "{\"log\":\"a\",\"first\":6,\"next\":8,\"bytes\":4,\"consumers\":1}\n"
    );
    assert_eq!(server.metric("landfall_log_entries_trimmed_total"), 6.0);
    assert_eq!(server.call(&["FLUSHALL"]), ok());
    assert_eq!(server.call(&["LF.LEN", "a"]), Reply::Int(2), "keys are flushed, logs are not");
    assert_eq!(server.call(&["LF.DELLOG", "a"]), Reply::Int(1));
    assert_eq!(http.call("GET", "/wal/a", "", b"").unwrap().status, 404);
    assert_eq!(http.call("DELETE", "/wal/a", "", b"").unwrap().status, 404);
}

#[test]
fn readers_wait_for_entries_that_any_worker_appends() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--workers", "2", "--transport", transport]);
        assert_eq!(server.call(&["LF.APPEND", "a", "0"]), Reply::Int(0));
        // Connections are spread over both workers, so every pair of reader and writer occurs.
        for round in 0..6i64 {
            let next = (1 + 2 * round).to_string();
            std::thread::scope(|threads| {
                let readers: Vec<_> = (0..4)
                    .map(|_| {
                        threads
                            .spawn(|| server.call(&["LF.READ", "a", &next, "COUNT", "1", "BLOCK", "20000"]))
                    })
                    .collect();
                let long_poll = threads.spawn(|| {
                    server.http().call("GET", &format!("/wal/a?from={next}&wait=20000&limit=1"), "", b"")
                });
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!(server.call(&["LF.APPEND", "a", "x", "y"]), Reply::Int(1 + 2 * round));
                for reader in readers {
                    let read = reader.join().unwrap();
                    assert_eq!(read, Reply::Array(vec![entry(1 + 2 * round, "x")]), "{transport}");
                }
                assert_eq!(long_poll.join().unwrap().unwrap().body, b"\x01\0\0\0x");
            });
        }
        assert_eq!(server.call(&["LF.READ", "a", "$", "BLOCK", "50"]), Reply::Nil, "its time is up");
        assert_eq!(server.http().call("GET", "/wal/a?from=end&wait=50", "", b"").unwrap().status, 204);
        let mut server = server;
        let waits = server.resp();
        drop(waits);
        assert!(server.is_running());
        assert!(server.stop().success(), "waiting readers do not prevent a stop");
    }
}

/// Entries before each kill, unless [`AT_MOST`] passes first: a fast machine must not fill the region.
const ENTRIES: usize = 4_000;
const AT_MOST: Duration = Duration::from_millis(400);
/// Entries of a run that takes longer for them.
const ENTRIES_MIN: usize = 80;

/// The replies that a writer got, by log: offset and bytes.
type Replies = Mutex<BTreeMap<(usize, i64), Vec<u8>>>;

#[test]
fn kill_loses_no_acknowledged_entry_and_leaves_no_gap() {
    let place = Place::new();
    let replies: Replies = Mutex::default();
    let positions: Mutex<BTreeMap<usize, i64>> = Mutex::default();
    let trimmed: Mutex<BTreeMap<usize, i64>> = Mutex::default();
    for cycle in 0..4 {
        let flags: &[&str] = if cycle % 2 == 0 { &["--workers", "2"] } else { &["--transport", "epoll"] };
        let server = place.start(flags);
        verify(&server, &replies, &positions, &trimmed);
        write_until_killed(server, cycle, &replies, &positions, &trimmed);
    }
    let server = place.start(&[]);
    verify(&server, &replies, &positions, &trimmed);
    assert!(replies.lock().unwrap().len() >= 4 * ENTRIES_MIN, "the writers have written");
    assert!(server.stop().success());
    assert_eq!(place.check(&[]).status.code(), Some(0));
}

fn write_until_killed(
    server: Server,
    cycle: u64,
    replies: &Replies,
    positions: &Mutex<BTreeMap<usize, i64>>,
    trimmed: &Mutex<BTreeMap<usize, i64>>,
) {
    let (over, before) = (AtomicBool::new(false), replies.lock().unwrap().len());
    std::thread::scope(|threads| {
        let _ends = Over(&over);
        for writer in 0..6u64 {
            let mut resp = server.resp();
            let over = &over;
            threads.spawn(move || {
                let log = (writer % 2) as usize;
                let name = format!("log{log}");
                for count in 0.. {
                    let seed = cycle << 40 | writer << 32 | count;
                    let values: Vec<Vec<u8>> = (0..1 + seed % 3)
                        .map(|at| pattern(seed << 2 | at, 20 + (seed * 37 % 3000) as usize))
                        .collect();
                    let mut words: Vec<&[u8]> = vec![b"LF.APPEND", name.as_bytes()];
                    words.extend(values.iter().map(Vec::as_slice));
                    let first = match resp.call(&words) {
                        Ok(Reply::Int(first)) => first,
                        Ok(other) => panic!("{name}: {other:?}"),
                        Err(_) => return,
                    };
                    let mut replies = replies.lock().unwrap();
                    for (offset, value) in (first..).zip(values) {
                        assert!(
                            replies.insert((log, offset), value).is_none(),
                            "{name} {offset} was given twice"
                        );
                    }
                    drop(replies);
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let mut resp = server.resp();
        threads.spawn(move || {
            for count in 0u64.. {
                let log = (count % 2) as usize;
                let name = format!("log{log}");
                let Ok(Reply::Int(len)) = resp.call(&[b"LF.LEN", name.as_bytes()]) else { return };
                let Ok(Reply::Array(entries)) =
                    resp.call(&[b"LF.READ", name.as_bytes(), b"-", b"COUNT", b"1"])
                else {
                    continue;
                };
                let Some(Reply::Array(first)) = entries.first() else { continue };
                let Reply::Int(first) = first[0] else { panic!("an offset") };
                let at = first + len / 2;
                let text = at.to_string();
                if resp.call(&[b"LF.COMMIT", name.as_bytes(), b"c", text.as_bytes()]).is_ok_and(|r| r == ok())
                {
                    positions.lock().unwrap().insert(log, at);
                }
                if count % 5 == 4
                    && let Ok(Reply::Int(first)) = resp.call(&[b"LF.TRIM", name.as_bytes(), text.as_bytes()])
                {
                    trimmed.lock().unwrap().insert(log, first);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let has_come_to = |entries| (replies.lock().unwrap().len() >= before + entries).then_some(());
        common::wait_until(AT_MOST, || has_come_to(ENTRIES));
        common::wait_until(common::REPLY_LIMIT, || has_come_to(ENTRIES_MIN));
        server.kill();
    });
}

fn verify(
    server: &Server,
    replies: &Replies,
    positions: &Mutex<BTreeMap<usize, i64>>,
    trimmed: &Mutex<BTreeMap<usize, i64>>,
) {
    let (replies, positions, trimmed) =
        (replies.lock().unwrap(), positions.lock().unwrap(), trimmed.lock().unwrap());
    for log in 0..2usize {
        let Some((_, last)) = replies.keys().filter(|(of, _)| *of == log).max() else { continue };
        let name = format!("log{log}");
        let found = read_all(server, &name);
        let first = found.keys().next().copied().unwrap_or(last + 1);
        let end = found.keys().next_back().map_or(first, |end| end + 1);
        assert_eq!(i64::try_from(found.len()).unwrap(), end - first, "{name} has no gap");
        assert!(end > *last, "{name} ends at {end}, {last} was acknowledged");
        let floor = trimmed.get(&log).copied().unwrap_or(0);
        assert!(first >= floor, "{name} begins with {first}, trimmed to {floor}");
        for ((_, offset), value) in replies.iter().filter(|((of, offset), _)| *of == log && *offset >= first)
        {
            assert!(found.get(offset) == Some(value), "{name} {offset}");
        }
        if let Some(position) = positions.get(&log) {
            let Reply::Int(now) = server.call(&["LF.POSITION", &name, "c"]) else { panic!("a position") };
            assert!(now >= *position, "{name}: position {now}, {position} was acknowledged");
        }
    }
}

fn read_all(server: &Server, log: &str) -> BTreeMap<i64, Vec<u8>> {
    let (mut all, mut from) = (BTreeMap::new(), "-".to_owned());
    let mut resp = server.resp();
    loop {
        let reply = resp.call(&[b"LF.READ", log.as_bytes(), from.as_bytes(), b"COUNT", b"500"]).unwrap();
        let Reply::Array(entries) = reply else { panic!("{reply:?}") };
        if entries.is_empty() {
            return all;
        }
        for entry in entries {
            let Reply::Array(pair) = entry else { panic!("a pair") };
            let [Reply::Int(offset), Reply::Bulk(value)] = pair.as_slice() else { panic!("{pair:?}") };
            all.insert(*offset, value.clone());
            from = (offset + 1).to_string();
        }
    }
}

#[test]
fn command_line_appends_reads_tails_trims_and_lists() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.resp.to_string();
    let run = |words: &[&str]| {
        let output = landfall(&[&["wal"], words, &["--addr", &address]].concat());
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["append", "a", "one", "two"]), (true, "0\n1\n".into()));
    let mut piped = Command::new(common::binary())
        .args(["wal", "append", "a", "--addr", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(b"three\nfour\n").unwrap();
    assert_eq!(piped.wait_with_output().unwrap().stdout, b"2\n3\n");
    assert_eq!(
        run(&["read", "a", "--from", "1", "--count", "2", "--offsets"]),
        (true, "1\ttwo\n2\tthree\n".into())
    );
    let mut tail = Command::new(common::binary())
        .args(["wal", "tail", "a", "--from", "3", "--count", "2", "--addr", &address])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "four");
    assert_eq!(run(&["append", "a", "five"]), (true, "4\n".into()));
    assert_eq!(lines.next().unwrap().unwrap(), "five");
    assert!(tail.wait().unwrap().success());
    assert_eq!(run(&["trim", "a", "4"]), (true, "4\n".into()));
    assert_eq!(run(&["list"]), (true, "a\t4\t5\t4\t0\n".into()));
    assert!(!run(&["read", "none"]).0);
}

#[test]
fn logs_are_protected_by_the_password() {
    let place = Place::new();
    let password = place.file("password", "secret\n");
    let server = place.start(&["--password-file", password.to_str().unwrap()]);
    assert!(error_text(&server.call(&["LF.APPEND", "a", "x"])).starts_with("NOAUTH"));
    assert_eq!(server.http().call("POST", "/wal/a", "", b"x").unwrap().status, 401);
    let bearer = "Authorization: Bearer secret\r\n";
    assert_eq!(server.http().call("POST", "/wal/a", bearer, b"x").unwrap().status, 201);
    let address = server.resp.to_string();
    let words = ["wal", "read", "a", "--addr", &address, "--password-file", password.to_str().unwrap()];
    assert_eq!(landfall(&words).stdout, b"x\n");
}

#[test]
fn damaged_entries_are_found_named_and_dropped_without_those_behind_them() {
    let place = Place::new();
    let server = place.start(&["--scrub-rate", "0"]);
    for seed in 0..6 {
        assert_eq!(
            server.resp().call(&[b"LF.APPEND", b"a", &pattern(seed, 1000)]).unwrap(),
            Reply::Int(seed.cast_signed())
        );
    }
    assert!(server.stop().success());
    let region = std::fs::read(place.region()).unwrap();
    let file = std::fs::File::options().write(true).open(place.region()).unwrap();
    let value = find(&region, &pattern(2, 1000));
    file.write_all_at(&[!region[value + 9]], value as u64 + 9).unwrap();
    // The record of entry 4: its key, in front of the position of its value. Two bytes of its checksum are changed.
    let key = [&1u32.to_le_bytes()[..], &4u64.to_le_bytes()].concat();
    let record = find(&region, &key) - 64;
    file.write_all_at(&[!region[record], !region[record + 1]], record as u64).unwrap();
    let found = place.check(&[]);
    let text = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(1), "{text}");
    assert!(text.contains("log a, offset 2") && text.contains("log a, offset 4"), "{text}");
    let repaired = place.check(&["--repair"]);
    let text = String::from_utf8(repaired.stdout).unwrap();
    assert!(text.contains("clean now"), "{text}");
    let server = place.start(&[]);
    assert_eq!(server.call(&["LF.LEN", "a"]), Reply::Int(6), "what is behind them stays");
    for (offset, whole) in [(0, true), (1, true), (2, false), (3, true), (4, false), (5, true)] {
        let reply = server.call(&["LF.READ", "a", &offset.to_string(), "COUNT", "1"]);
        match whole {
            true => {
                assert_eq!(reply, Reply::Array(vec![entry(offset, pattern(offset.cast_unsigned(), 1000))]))
            }
            false => assert!(error_text(&reply).starts_with("DAMAGED"), "{reply:?}"),
        }
    }
    assert_eq!(server.call(&["LF.TRIM", "a", "5"]), Reply::Int(5));
    assert!(server.stop().success());
    assert_eq!(place.check(&[]).status.code(), Some(0));
}

/// A consumer that gets an older position reads again what it has read.
#[test]
fn a_position_that_cannot_be_read_is_no_older_one_before_and_after_a_repair() {
    let place = Place::new();
    let server = place.start(&["--scrub-rate", "0"]);
    for seed in 0..6 {
        server.resp().call(&[b"LF.APPEND", b"a", &pattern(seed, 100)]).unwrap();
    }
    for (consumer, offset) in [("cons", "2"), ("other", "3"), ("cons", "5")] {
        assert_eq!(server.call(&["LF.COMMIT", "a", consumer, offset]), ok());
    }
    assert!(server.stop().success());
    let region = std::fs::read(place.region()).unwrap();
    let file = std::fs::File::options().write(true).open(place.region()).unwrap();
    let key = [&1u32.to_le_bytes()[..], b"cons"].concat();
    let record = region.windows(key.len()).rposition(|window| window == key).expect("the newest") - 64;
    file.write_all_at(&[!region[record], !region[record + 1]], record as u64).unwrap();
    let found = String::from_utf8(place.check(&[]).stdout).unwrap();
    assert!(found.contains("log a, consumer cons"), "{found}");
    let server = place.start(&[]);
    let reply = server.call(&["LF.POSITION", "a", "cons"]);
    assert!(error_text(&reply).starts_with("DAMAGED") && error_text(&reply).contains("commit"), "{reply:?}");
    assert_eq!(server.call(&["LF.POSITION", "a", "other"]), Reply::Int(3));
    assert_eq!(server.http().call("GET", "/wal/a/consumers/cons", "", b"").unwrap().status, 500);
    assert!(server.stop().success());
    let repaired = String::from_utf8(place.check(&["--repair"]).stdout).unwrap();
    assert!(repaired.contains("consumer cons: its position is dropped"), "{repaired}");
    assert!(repaired.contains("clean now"), "{repaired}");
    let server = place.start(&[]);
    assert_eq!(server.call(&["LF.POSITION", "a", "cons"]), Reply::Nil);
    assert_eq!(server.call(&["LF.POSITION", "a", "other"]), Reply::Int(3));
    assert!(server.stop().success());
}

fn find(region: &[u8], bytes: &[u8]) -> usize {
    region.windows(bytes.len()).position(|window| window == bytes).expect("it is there")
}

#[test]
fn regions_with_logs_are_refused_by_programs_that_do_not_know_them() {
    let place = Place::new();
    let server = place.start(&[]);
    assert_eq!(server.call(&["SET", "k", "1"]), ok());
    server.kill();
    let features = |at: usize| std::fs::read(place.region()).unwrap()[at + 12 + 4];
    assert_eq!((features(0), features(32 << 10)), (8, 8), "a region without logs is as it was");
    let server = place.start(&[]);
    assert_eq!(server.call(&["LF.APPEND", "a", "x"]), Reply::Int(0));
    server.kill();
    assert_eq!((features(0), features(32 << 10)), (9, 9));
}
