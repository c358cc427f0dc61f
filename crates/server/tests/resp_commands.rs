//! What commands do differently from Redis or in addition: limits, references to frames, Landfall's own commands.

mod resp_support;

use landfall_heap::{CopyPath, Gated};
use landfall_kv::{SetRequest, Written};
use landfall_server::Config;
use landfall_server::config::Size;
use landfall_server::writes::{Destination, PlainWrites, WriteError};
use resp_support::{Asked, Worker, shared, shared_with, words};

fn text(reply: Vec<u8>) -> String {
    reply.escape_ascii().to_string()
}

#[test]
fn long_values_are_stored_and_sent_without_a_copy() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let copies = &shared.engine.heap().copies;
    let copied = || [CopyPath::Placed, CopyPath::Reply, CopyPath::Inline].map(|path| copies.get(path));
    let none = copied();
    worker.ask("SET k @100000");
    let value = worker.ask("GET k");
    worker.ask("APPEND k @5000");
    worker.ask("SETRANGE k 50000 @1000");
    worker.ask("GETRANGE k 10 90000");
    worker.ask("EXPIRE k 100");
    worker.ask("RENAME k k2");
    worker.ask("COPY k2 k3");
    for line in ["MULTI", "SET t @9000", "APPEND t @9000", "GET t", "EXEC"] {
        worker.ask(line);
    }
    assert_eq!(copied(), none, "placed, reply, inline");
    let want = [b"$100000\r\n".as_slice(), &words("@100000")[0], b"\r\n"].concat();
    assert!(value == want, "the value came back changed");
}

#[test]
fn appending_many_pieces_keeps_their_order_and_their_number_bounded() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let mut want = Vec::new();
    for index in 0..300 {
        let piece = &words(&format!("@{}", 900 + index))[0];
        want.extend_from_slice(piece);
        worker.ask_words(&[b"APPEND".to_vec(), b"k".to_vec(), piece.clone()]);
    }
    let item = shared.engine.get(0, b"k", 1).unwrap().ungated().unwrap();
    assert!(item.extents().len() <= 64 + want.len() / 1500, "{} pieces", item.extents().len());
    assert!(*item.bytes().unwrap() == want);
}

#[test]
fn a_queue_holds_its_values_and_releases_them() {
    let shared = shared();
    let heap = shared.engine.heap().clone();
    for end in ["EXEC", "DISCARD", "RESET", ""] {
        let mut worker = Worker::new(&shared, 1);
        let free = heap.runs().free_count();
        worker.ask("MULTI");
        worker.ask("SET big @3000000");
        worker.ask("DEL big");
        assert!(heap.runs().free_count() < free);
        worker.ask(if end.is_empty() { "PING" } else { end });
        worker.end();
        worker.commit();
        drop(worker);
        // The writer's slab stays, and the landing runs become free.
        assert!(heap.runs().free_count() + 2 >= free, "{end:?}: {} of {free} free", heap.runs().free_count());
    }
}

#[test]
fn more_keys_than_a_group_holds_are_written_and_deleted_as_one() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let pairs = |count: usize| (0..count).flat_map(|n| [format!("key{n}").into_bytes(), b"v".to_vec()]);
    let keys = |count: usize| (0..count).map(|n| format!("key{n}").into_bytes());
    let command = |name: &str, words: Vec<Vec<u8>>| [vec![name.as_bytes().to_vec()], words].concat();
    assert_eq!(text(worker.ask_words(&command("MSET", pairs(24_000).collect()))), "+OK\\r\\n");
    assert_eq!(text(worker.ask("DBSIZE")), ":24000\\r\\n");
    assert_eq!(text(worker.ask_words(&command("MSETNX", pairs(24_001).collect()))), ":0\\r\\n");
    assert_eq!(text(worker.ask("GET key23999")), "$1\\r\\nv\\r\\n");
    worker.ask("MULTI");
    worker.ask_words(&command("DEL", keys(9000).collect()));
    worker.ask("SET key0 again");
    assert_eq!(text(worker.ask("EXEC")), "*2\\r\\n:9000\\r\\n+OK\\r\\n");
    assert_eq!(text(worker.ask_words(&command("DEL", keys(20_000).collect()))), ":11001\\r\\n");
    worker.ask("MULTI");
    worker.ask("FLUSHDB");
    assert_eq!(text(worker.ask("EXEC")), "*1\\r\\n+OK\\r\\n");
    assert_eq!(text(worker.ask("DBSIZE")), ":0\\r\\n");
}

#[test]
fn a_long_delete_that_has_to_wait_has_deleted_nothing_before() {
    let config = Config::default();
    let (shared, _media) = shared_with(config);
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for part in 0..2 {
        let pairs = (0..8000).flat_map(|n| [format!("key{}", part * 8000 + n).into_bytes(), b"v".to_vec()]);
        first.ask_words(&[vec![b"MSET".to_vec()], pairs.collect()].concat());
    }
    // The last key cannot be changed until the other worker has committed.
    assert!(matches!(second.try_line("SET key15999 pending"), Asked::Pending));
    let delete: Vec<Vec<u8>> =
        std::iter::once(b"DEL".to_vec()).chain((0..16_000).map(|n| format!("key{n}").into_bytes())).collect();
    assert!(matches!(first.try_words(&delete), Asked::Waits));
    assert_eq!(text(first.ask("EXISTS key0 key8000")), ":2\\r\\n");
    first.commit();
    second.commit();
    assert_eq!(text(first.ask_words(&delete)), ":16000\\r\\n");
    assert_eq!(text(first.ask("DEL key0")), ":0\\r\\n");
}

#[test]
fn flushing_one_database_leaves_the_others() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for n in 0..3 {
        let pairs = (0..3000).flat_map(|k| [format!("key{n}:{k}").into_bytes(), b"v".to_vec()]);
        worker.ask_words(&[vec![b"MSET".to_vec()], pairs.collect()].concat());
    }
    worker.ask("SELECT 5");
    worker.ask("SET kept v");
    worker.ask("SELECT 0");
    assert!(matches!(worker.try_line("FLUSHDB"), Asked::Waits), "others get their turn in between");
    assert_eq!(worker.say("FLUSHDB"), "+OK\\r\\n");
    assert_eq!(worker.say("DBSIZE"), ":0\\r\\n");
    worker.ask("SELECT 5");
    assert_eq!(worker.say("GET kept"), "$4\\r\\nkept\\r\\n".replace("$4", "$1").replace("kept", "v"));
    let mut lines = vec!["MULTI"];
    lines.extend(["SET a 1", "FLUSHALL", "SET b 2", "DBSIZE", "LF.RANGE - +"]);
    lines.iter().for_each(|line| drop(worker.ask(line)));
    assert_eq!(
        worker.say("EXEC"),
        "*5\\r\\n+OK\\r\\n+OK\\r\\n+OK\\r\\n:1\\r\\n*2\\r\\n$1\\r\\nb\\r\\n$1\\r\\n2\\r\\n"
    );
    assert_eq!(worker.say("EXISTS kept a b"), ":1\\r\\n");
}

#[test]
fn ranges_have_bounds_limits_and_a_direction() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    worker.ask("MSET a 1 b 2 c 3 d 4");
    let mut keys = |line: &str| -> String {
        let reply = String::from_utf8(worker.ask(line)).unwrap();
        if reply.starts_with('-') {
            return reply;
        }
        reply.lines().skip(1).filter(|line| !line.starts_with('$')).collect()
    };
    assert_eq!(keys("LF.RANGE - +"), "a1b2c3d4");
    assert_eq!(keys("LF.RANGE b c"), "b2c3");
    assert_eq!(keys("LF.RANGE (b d"), "c3d4");
    assert_eq!(keys("LF.RANGE [b (d"), "b2c3");
    assert_eq!(keys("LF.RANGE - + REV"), "d4c3b2a1");
    assert_eq!(keys("LF.RANGE - + LIMIT 2"), "a1b2");
    assert_eq!(keys("lf.range b + limit 2 rev"), "d4c3");
    assert_eq!(keys("LF.RANGE d a"), "");
    assert_eq!(keys("LF.RANGE - + LIMIT 0"), "");
    assert_eq!(keys("LF.RANGE - + LIMIT"), "-ERR syntax error\r\n");
    assert_eq!(keys("LF.RANGE - + LIMIT -1"), "-ERR value is out of range, must be positive\r\n");
    assert_eq!(keys("LF.RANGE -"), "-ERR wrong number of arguments for 'lf.range' command\r\n");
}

#[test]
fn listings_that_are_too_long_for_a_reply_are_refused() {
    let (shared, _media) = shared_with(Config { max_output: Size(16), ..Config::default() });
    let mut worker = Worker::new(&shared, 1);
    for n in 0..40 {
        worker.ask(&format!("SET a-key-that-is-rather-long-{n:02} @40"));
    }
    for line in ["LF.RANGE - +", "KEYS *"] {
        assert!(worker.say(line).starts_with("-ERR the reply would exceed 1024 bytes: "), "{line}");
    }
    assert!(worker.say("LF.RANGE - + LIMIT 3").starts_with("*6"));
    assert!(worker.say("SCAN 0").starts_with("*2"));
}

/// The cursor and the keys of a reply to `SCAN`.
fn scanned(reply: &[u8]) -> (String, Vec<String>) {
    let mut bulk =
        std::str::from_utf8(reply).unwrap().split("\r\n").filter(|line| !line.starts_with(['$', '*']));
    let cursor = bulk.next().unwrap().to_owned();
    (cursor, bulk.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[test]
fn a_scan_sees_every_key_that_stays() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for n in 0..1000 {
        worker.ask(&format!("SET key:{n} v"));
    }
    let (mut cursor, mut seen) = ("0".to_owned(), std::collections::BTreeSet::new());
    for step in 0.. {
        let reply = worker.ask(&format!("SCAN {cursor} COUNT 37 MATCH key:*"));
        let keys;
        (cursor, keys) = scanned(&reply);
        seen.extend(keys);
        worker.ask(&format!("DEL key:{}", 999 - step));
        worker.ask(&format!("SET other:{step} v"));
        if cursor == "0" {
            break;
        }
        assert!(step < 100, "the scan does not end");
    }
    assert!((0..900).all(|n| seen.contains(&format!("key:{n}"))));
    assert!(seen.iter().all(|key| key.starts_with("key:")));
    let (_, first) = scanned(&worker.ask("SCAN 987654321 COUNT 3"));
    assert_eq!(first.len(), 3, "a forgotten cursor starts over");
}

#[test]
fn a_scan_of_long_keys_ends_early_and_goes_on() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for n in 0..600 {
        worker.ask_words(&[b"SET".to_vec(), format!("{n:08000}").into_bytes(), b"v".to_vec()]);
    }
    let (mut cursor, mut pages) = ("0".to_owned(), Vec::new());
    while pages.is_empty() || cursor != "0" {
        let keys;
        (cursor, keys) = scanned(&worker.ask(&format!("SCAN {cursor} COUNT 100000")));
        pages.push(keys.len());
    }
    assert_eq!(pages.iter().sum::<usize>(), 600);
    assert!(pages.len() > 1, "{pages:?}");
}

#[test]
fn what_a_transaction_keeps_takes_bounded_memory() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    // Empty arguments take none but for their places.
    let mut many = vec![b"DEL".to_vec()];
    many.resize(100_000, Vec::new());
    worker.ask("MULTI");
    let queued = (0..100).take_while(|_| worker.ask_words(&many) == b"+QUEUED\r\n").count();
    assert!((1..20).contains(&queued), "{queued} commands of 100,000 words");
    assert!(worker.say("EXEC").starts_with("-EXECABORT"));
    worker.ask("WATCH @6000000");
    assert!(worker.say("WATCH @6000001 @6000002").starts_with("-ERR a client watches at most"));
    assert_eq!(worker.say("WATCH @6000000 a b a"), "+OK\\r\\n", "those that it watches count once more");
    worker.ask("SET a 1");
    worker.ask("MULTI");
    assert_eq!(worker.say("EXEC"), "*-1\\r\\n");
}

#[test]
fn random_keys_exist_and_differ() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for n in 0..500 {
        worker.ask(&format!("SET user:{n} v"));
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        worker.now_ns += 1_000_003;
        seen.insert(worker.say("RANDOMKEY"));
    }
    assert!(seen.len() > 50, "{} different keys", seen.len());
    assert!(seen.iter().all(|reply| reply.contains("user:")));
}

#[test]
fn commands_are_refused_without_the_password() {
    let (shared, _media) = shared_with(Config { password: Some("secret".into()), ..Config::default() });
    let mut worker = Worker::new(&shared, 1);
    for line in
        ["GET k", "SET k v", "PING", "INFO", "MULTI", "EXEC", "CLIENT ID", "HELLO 3", "SHUTDOWN", "HELLO"]
    {
        let reply = worker.say(line);
        assert!(reply.contains("NOAUTH"), "{line}: {reply}");
    }
    assert_eq!(
        worker.say("AUTH wrong"),
        "-WRONGPASS invalid username-password pair or user is disabled.\\r\\n"
    );
    assert!(worker.say("AUTH other secret").starts_with("-WRONGPASS"));
    assert!(worker.say("HELLO 3 AUTH default wrong").starts_with("-WRONGPASS"));
    assert!(!worker.session.is_authenticated() && !worker.closed);
    assert_eq!(worker.say("AUTH secret"), "+OK\\r\\n");
    assert_eq!(worker.say("PING"), "+PONG\\r\\n");
    assert_eq!(worker.say("RESET"), "+RESET\\r\\n");
    assert!(worker.say("PING").starts_with("-NOAUTH"));
    assert!(
        worker
            .say("HELLO 3 AUTH default secret SETNAME me")
            .starts_with("%7\\r\\n$6\\r\\nserver\\r\\n$5\\r\\nredis")
    );
    assert_eq!(worker.say("CLIENT GETNAME"), "$2\\r\\nme\\r\\n");
}

#[test]
fn guessing_passwords_closes_the_connection() {
    let (shared, _media) = shared_with(Config { password: Some("secret".into()), ..Config::default() });
    let mut worker = Worker::new(&shared, 1);
    for attempt in 1..=10 {
        assert!(!worker.closed, "cut off before attempt {attempt}");
        worker.ask(&format!("AUTH guess{attempt}"));
    }
    assert!(worker.closed);
}

#[test]
fn a_full_region_refuses_writes_and_still_reads_and_deletes() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let mut stored = 0;
    let reply = loop {
        let reply = worker.say(&format!("SET key{stored} @400000"));
        if reply != "+OK\\r\\n" {
            break reply;
        }
        stored += 1;
        assert!(stored < 1000, "the region is never full");
    };
    assert!(reply.starts_with("-OOM "), "{reply}");
    assert!(worker.say("APPEND key0 x").starts_with("-OOM "));
    assert_eq!(worker.say("STRLEN key0"), ":400000\\r\\n");
    assert_eq!(worker.say("DEL key0 key1 key2 key3 key4 key5 key6 key7 key8 key9"), ":10\\r\\n");
    worker.end();
    let mut worker = Worker::new(&shared, 2);
    assert_eq!(worker.say("SET again @1000"), "+OK\\r\\n");
}

#[test]
fn a_damaged_value_is_an_error_until_it_is_overwritten() {
    let (shared, media) = shared_with(Config::default());
    let mut worker = Worker::new(&shared, 1);
    worker.ask("MSET k @5000 fine 1");
    let at = shared.engine.peek(0, b"k", 1).unwrap().ungated().unwrap().extents()[0].off;
    media.damage(at + 100, 4);
    for line in ["GET k", "MGET fine k", "GETRANGE k 0 1", "LF.RANGE - +", "GETSET k x"] {
        assert!(worker.say(line).starts_with("-DAMAGED "), "{line}");
    }
    assert_eq!(worker.say("GET fine"), "$1\\r\\n1\\r\\n");
    worker.ask("MULTI");
    worker.ask("GET k");
    worker.ask("GET fine");
    assert!(worker.say("EXEC").starts_with("*2\\r\\n-DAMAGED "));
    worker.ask("APPEND k more");
    assert!(worker.say("GET k").starts_with("-DAMAGED "), "appending must not hide the damage");
    assert_eq!(worker.say("SET k healed"), "+OK\\r\\n");
    assert_eq!(worker.say("GET k"), "$6\\r\\nhealed\\r\\n");
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
fn discarded_plain_writes_are_acknowledged_and_not_stored() {
    let (mut shared, _media) = shared_with(Config::default());
    shared.writes = Box::new(Nowhere);
    let mut worker = Worker::new(&shared, 1);
    assert!(matches!(worker.try_line("SET k v"), Asked::Replied(reply) if reply == b"+OK\r\n"));
    assert_eq!(worker.say("GET k"), "$-1\\r\\n");
}

#[test]
fn keys_expire_on_the_clock_and_are_counted_until_purged() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    worker.ask("SET k v PX 1500");
    assert_eq!(worker.say("PTTL k"), ":1500\\r\\n");
    worker.now_ns += 1_000_000_000;
    assert_eq!(worker.say("PTTL k"), ":500\\r\\n");
    assert_eq!(worker.say("TTL k"), ":1\\r\\n");
    worker.now_ns += 500_000_000;
    assert_eq!(worker.say("GET k"), "$-1\\r\\n");
    assert_eq!(worker.say("SET k v NX"), "+OK\\r\\n");
}

#[test]
fn a_watched_key_that_expires_has_changed() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    worker.ask("SET k v PX 100");
    worker.ask("WATCH k");
    worker.now_ns += 200_000_000;
    worker.ask("MULTI");
    worker.ask("PING");
    assert_eq!(worker.say("EXEC"), "*-1\\r\\n");
}

#[test]
fn a_key_that_another_client_changes_fails_the_transaction() {
    let shared = shared();
    let (mut watcher, mut other) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for (before, change) in
        [("SET k 1", "SET k 1"), ("SET k 1", "DEL k"), ("DEL k", "SET k 1"), ("SET k 1", "FLUSHALL")]
    {
        watcher.ask(before);
        for (line, want) in
            [("WATCH k", "+OK\\r\\n"), ("MULTI", "+OK\\r\\n"), ("SET k mine", "+QUEUED\\r\\n")]
        {
            assert_eq!(watcher.say(line), want);
        }
        other.ask(change);
        assert_eq!(watcher.say("EXEC"), "*-1\\r\\n", "{before}, {change}");
        watcher.ask("MULTI");
        watcher.ask("SET k mine");
        assert_eq!(watcher.say("EXEC"), "*1\\r\\n+OK\\r\\n", "the failed transaction has ended the watch");
    }
}

#[test]
fn parts_of_a_long_value_are_changed_within_a_transaction_too() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let word = |text: &str| words(text)[0].clone();
    let mut value = word("@300000");
    worker.ask("SET k @300000");
    let change = |value: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        value.resize(value.len().max(at + bytes.len()), 0);
        value[at..at + bytes.len()].copy_from_slice(bytes);
    };
    worker.ask("MULTI");
    worker.ask("APPEND k @10");
    change(&mut value, 300_000, &word("@10"));
    worker.ask("SETRANGE k 299000 @9000");
    change(&mut value, 299_000, &word("@9000"));
    worker.ask("SETRANGE k 400000 end");
    change(&mut value, 400_000, b"end");
    worker.ask("COPY k copy");
    worker.ask("APPEND k @70000");
    let copy = value.clone();
    change(&mut value, 400_003, &word("@70000"));
    worker.ask("GETRANGE k 298990 299010");
    worker.ask("STRLEN k");
    let replies = worker.ask("EXEC");
    let wanted = [
        b"*7\r\n:300010\r\n:308000\r\n:400003\r\n:1\r\n:470003\r\n$21\r\n".as_slice(),
        &value[298_990..299_011],
        b"\r\n:470003\r\n",
    ];
    assert_eq!(text(replies), text(wanted.concat()));
    for (key, value) in [("k", &value), ("copy", &copy)] {
        let reply = worker.ask(&format!("GET {key}"));
        let wanted = [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
        assert!(reply == wanted, "{key}");
    }
    worker.ask("SETRANGE copy 5 other");
    worker.ask("SETRANGE k 5 another");
    let parts = [worker.ask("GETRANGE copy 0 14"), worker.ask("GETRANGE k 0 14")];
    let beginning = |other: &[u8]| {
        let mut bytes = value[..15].to_vec();
        bytes[5..5 + other.len()].copy_from_slice(other);
        [b"$15\r\n".as_slice(), &bytes, b"\r\n"].concat()
    };
    assert_eq!(parts.map(text), [b"other".as_slice(), b"another"].map(|other| text(beginning(other))));
    assert_eq!(
        text(worker.ask("SETRANGE k 536870910 toolong")),
        text(worker.ask("SETRANGE none 536870910 toolong"))
    );
}
