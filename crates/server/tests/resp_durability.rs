//! A session shows and acknowledges only what a crash cannot revoke.

mod resp_support;

use landfall_kv::Recovery;
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_server::Config;
use resp_support::{Asked, Worker, shared, shared_on, shared_with};

#[track_caller]
fn assert_pending(worker: &mut Worker<'_>, line: &str) {
    let asked = worker.try_line(line);
    assert!(matches!(asked, Asked::Pending), "{line}: {asked:?}");
    assert_eq!(worker.replies(), b"", "{line} was answered before the commit");
}

#[track_caller]
fn assert_at_once(worker: &mut Worker<'_>, line: &str, want: &str) {
    match worker.try_line(line) {
        Asked::Replied(reply) => assert_eq!(reply.escape_ascii().to_string(), want, "{line}"),
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_write_is_acknowledged_only_after_its_commit() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for (line, want) in [
        ("SET k v", "+OK\r\n"),
        ("SET k v2 NX GET", "$1\r\nv\r\n"),
        ("INCR n", ":1\r\n"),
        ("APPEND a xyz", ":3\r\n"),
        ("MSET b 1 c 2", "+OK\r\n"),
        ("EXPIRE b 100", ":1\r\n"),
        ("DEL b", ":1\r\n"),
        ("SELECT 1", "+OK\r\n"),
    ] {
        if line.starts_with("SELECT") || line.contains("NX GET") {
            assert_at_once(&mut worker, line, &want.as_bytes().escape_ascii().to_string());
        } else {
            assert_pending(&mut worker, line);
            assert_eq!(worker.commit(), want.as_bytes(), "{line}");
        }
    }
    assert_pending(&mut worker, "FLUSHALL");
    assert_eq!(worker.commit(), b"+OK\r\n");
}

#[test]
fn what_another_worker_has_not_committed_is_not_shown() {
    let shared = shared();
    let (mut writer, mut reader) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    writer.ask("SET other v");
    for line in [
        "GET k",
        "MGET k other",
        "STRLEN k",
        "EXISTS k",
        "TYPE k",
        "TTL k",
        "GETRANGE k 0 -1",
        "DBSIZE",
        "KEYS *",
        "SCAN 0 COUNT 100",
        "LF.RANGE - +",
        "RANDOMKEY",
        "OBJECT ENCODING k",
    ] {
        assert_pending(&mut writer, "SET k value EX 1000");
        assert_pending(&mut reader, line);
        writer.commit();
        assert!(!reader.replies().is_empty(), "{line} after the commit");
        writer.ask("DEL k");
    }
    assert_pending(&mut writer, "SET k value");
    assert_at_once(&mut reader, "GET other", "$1\\r\\nv\\r\\n");
}

#[test]
fn an_absence_that_a_crash_could_revoke_is_not_shown() {
    let shared = shared();
    let (mut writer, mut reader) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for remove in ["DEL k", "FLUSHALL", "FLUSHDB", "GETDEL k", "RENAME k k2", "PEXPIRE k -1"] {
        for line in
            ["GET k", "EXISTS k", "STRLEN k", "TTL k", "DBSIZE", "KEYS k", "SCAN 0", "LF.RANGE k k", "MGET k"]
        {
            writer.ask("FLUSHALL");
            writer.ask("SET k v");
            assert_pending(&mut writer, remove);
            assert_pending(&mut reader, line);
            writer.commit();
            assert!(!reader.replies().is_empty(), "{line} after {remove}");
        }
    }
    assert_at_once(&mut reader, "GET k", "$-1\\r\\n");
    assert_at_once(&mut reader, "GET never", "$-1\\r\\n");
}

#[test]
fn a_command_does_not_build_on_what_another_worker_may_lose() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for line in [
        "INCR n",
        "SET n 5",
        "APPEND n 0",
        "GETSET n 1",
        "DEL n",
        "EXPIRE n 100",
        "SETNX n 1",
        "MSET n 1 m 2",
    ] {
        first.ask("SET n 1");
        assert_not_built_upon(&mut first, "SET n 2", &mut second, line);
    }
}

/// Checks that the command of `second` waits until `first` has committed its own.
fn assert_not_built_upon(first: &mut Worker, pending: &str, second: &mut Worker, line: &str) {
    assert_pending(first, pending);
    let asked = second.try_line(line);
    assert!(matches!(asked, Asked::Waits), "{line} upon {pending}: {asked:?}");
    first.commit();
    let asked = second.try_line(line);
    assert!(!matches!(asked, Asked::Waits), "{line} after the commit: {asked:?}");
    second.commit();
}

#[test]
fn a_command_does_not_build_on_a_flush_that_another_worker_may_lose() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for flush in ["FLUSHALL", "FLUSHDB"] {
        for line in
            ["INCR n", "SET n 5", "APPEND n 0", "GETSET n 1", "SETNX n 1", "MSET n 1 m 2", "SET fresh 1"]
        {
            first.ask("SET n 41");
            assert_not_built_upon(&mut first, flush, &mut second, line);
        }
    }
}

#[test]
fn a_transaction_refused_for_a_watched_key_waits_for_what_changed_it() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for change in ["SET k 2", "DEL k", "FLUSHALL"] {
        first.ask("SET k 1");
        for line in ["WATCH k", "MULTI", "SET n 1"] {
            second.ask(line);
        }
        assert_pending(&mut first, change);
        // A crash could revoke the change, and with it the reason for the refusal.
        assert_pending(&mut second, "EXEC");
        first.commit();
        assert_eq!(second.replies(), b"*-1\r\n", "after {change}");
    }
}

#[test]
fn a_transaction_that_waits_leaves_no_trace() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    for line in ["MULTI", "SET early 1", "CLIENT SETNAME changed", "SELECT 3", "INCR n", "SELECT 0"] {
        second.ask(line);
    }
    first.ask("SELECT 3");
    assert_pending(&mut first, "SET n 41");
    assert!(matches!(second.try_line("EXEC"), Asked::Waits));
    assert!(matches!(second.try_line("EXEC"), Asked::Waits));
    assert_at_once(&mut Worker::new(&shared, 3), "GET early", "$-1\\r\\n");
    first.commit();
    assert_pending(&mut second, "EXEC");
    assert_eq!(second.commit(), b"*5\r\n+OK\r\n+OK\r\n+OK\r\n:42\r\n+OK\r\n");
    assert_eq!(second.say("CLIENT GETNAME"), "$7\\r\\nchanged\\r\\n");
    assert_eq!(second.say("GET early"), "$1\\r\\n1\\r\\n");
}

#[test]
fn errors_that_reveal_a_value_wait_for_it_too() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    assert_pending(&mut worker, "SET n text");
    assert!(matches!(worker.try_line("INCR n"), Asked::Pending));
    let replies = worker.commit();
    assert_eq!(replies, b"+OK\r\n-ERR value is not an integer or out of range\r\n");
}

/// Recovers the medium after a crash and sends a command in a new session.
fn after_crash(media: &SimMedia, seed: u64, line: &str) -> String {
    let image = media.crash_image_seeded(seed);
    let (engine, _) = Recovery::run(SimMedia::from_image(image, SimOptions::default()), 4).unwrap();
    let shared = landfall_server::shared::Shared { engine, ..shared() };
    Worker::new(&shared, 9).say(line)
}

#[test]
fn a_crash_takes_all_of_a_transaction_or_nothing_and_nothing_acknowledged() {
    let (shared, media) = shared_with(Config::default());
    let mut worker = Worker::new(&shared, 1);
    worker.ask("MSET a 1 b 1 c 1");
    worker.ask("SET d @5000");
    for line in ["MULTI", "INCR a", "APPEND b 2", "DEL c", "SET e @3000"] {
        worker.ask(line);
    }
    assert!(matches!(worker.try_line("EXEC"), Asked::Pending));
    let seen: std::collections::BTreeSet<String> =
        (0..24).map(|seed| after_crash(&media, seed, "MGET a b c")).collect();
    let before = "*3\\r\\n$1\\r\\n1\\r\\n$1\\r\\n1\\r\\n$1\\r\\n1\\r\\n".to_owned();
    let after = "*3\\r\\n$1\\r\\n2\\r\\n$2\\r\\n12\\r\\n$-1\\r\\n".to_owned();
    assert!(seen.iter().all(|reply| [&before, &after].contains(&reply)), "{seen:?}");
    assert!(seen.contains(&before));
    worker.commit();
    for seed in 0..3 {
        assert_eq!(after_crash(&media, seed, "MGET a b c"), after);
        assert_eq!(after_crash(&media, seed, "STRLEN d"), ":5000\\r\\n");
        assert_eq!(after_crash(&media, seed, "STRLEN e"), ":3000\\r\\n");
    }
}

#[test]
fn after_a_failed_write_nothing_unsaved_is_shown_or_acknowledged() {
    let (shared, media) = shared_with(Config::default());
    let mut worker = Worker::new(&shared, 1);
    worker.ask("SET safe v");
    media.fail_at(media.ops().fences + 1);
    assert_pending(&mut worker, "SET k lost");
    worker.writer.commit_now().unwrap_err();
    assert_eq!(worker.replies(), b"");
    let mut reader = Worker::new(&shared, 2);
    assert!(reader.say("GET k").starts_with("-MISCONF "), "an unsaved value");
    assert_eq!(reader.say("GET safe"), "$1\\r\\nv\\r\\n");
    assert!(reader.say("INFO persistence").contains("aof_last_write_status:err"));
}

#[test]
fn a_batch_that_fills_its_slab_makes_commands_wait_for_the_commit() {
    let (shared, _media) = shared_on(Config::default(), SimOptions { deferred: true });
    let mut worker = Worker::new(&shared, 1);
    let pairs = (0..8000).flat_map(|n| [format!("key{n}").into_bytes(), b"v".to_vec()]);
    let fill: Vec<Vec<u8>> = std::iter::once(b"MSET".to_vec()).chain(pairs).collect();
    let delete: Vec<Vec<u8>> =
        std::iter::once(b"DEL".to_vec()).chain((0..300).map(|n| format!("key{n}").into_bytes())).collect();
    assert!(matches!(worker.try_words(&fill), Asked::Pending));
    assert!(matches!(worker.try_words(&delete), Asked::Waits));
    assert_eq!(worker.commit(), b"+OK\r\n");
    assert_eq!(worker.ask_words(&delete), b":300\r\n");
    assert!(matches!(worker.try_words(&fill), Asked::Waits | Asked::Pending));
    worker.commit();
    for line in ["MULTI", "SELECT 2", "SET in-two 1"] {
        worker.ask(line);
    }
    worker.ask_words(&delete);
    assert_eq!(worker.say("EXEC"), "*3\\r\\n+OK\\r\\n+OK\\r\\n:0\\r\\n");
    assert_eq!(worker.say("DBSIZE"), ":1\\r\\n");
}
