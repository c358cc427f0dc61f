//! Tests of both side-cars in front of a real server.

#![allow(clippy::print_stderr, reason = "a skipped test reports why")]

mod common;

use common::{Client, Redis, Running, Sidecars as Pair, anywhere, until};
use landfall_pmnet_io::redis::client::{self, SidecarConfig};
use landfall_pmnet_io::redis::server::{self, ServerSideConfig, ServerSideReports};
use landfall_pmnet_io::runtime::Published;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn clients_get_the_replies_that_the_server_would_send() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let (mut ours, mut theirs) = (pair.client(), redis.client());
    assert_eq!(ours.call(&["SET", "k", "v"]), "+OK\r\n");
    assert_eq!(ours.call(&["GET", "k"]), "$1\r\nv\r\n", "a session reads its own writes");
    assert_eq!(theirs.call(&["GET", "k"]), "$1\r\nv\r\n");
    for command in [
        "INCR @n",
        "HSET @h f v g w",
        "HGETALL @h",
        "INCR @h",
        "SET @k v EX 0",
        "SET @k",
        "NOVELTY x",
        "LPUSH @l a b",
        "LRANGE @l 0 -1",
        "SET @n w NX",
        "EVAL return(redis.call('INCR',KEYS[1])) 1 @c",
        "GET @missing",
        "XADD @s 1-1 f v",
        "SET @k v GET",
    ] {
        let with = |prefix| command.replace('@', prefix);
        let (here, there) = (with("a:"), with("b:"));
        let here = ours.call(&here.split(' ').collect::<Vec<_>>());
        let there = theirs.call(&there.split(' ').collect::<Vec<_>>());
        assert_eq!(here, there, "{command}");
    }
    assert_eq!(theirs.call(&["GET", "a:n"]), "$1\r\n1\r\n");
    let early = until("a report", || Some(pair.report.get()).filter(|report| report.complete_by_server > 0));
    assert_eq!(
        (early.early, early.complete_by_server),
        (1, 1),
        "one command was early, and there is no device"
    );
}

#[test]
fn the_first_commands_of_client_libraries_are_answered() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let mut client = pair.client();
    assert!(client.call(&["HELLO", "3"]).starts_with("%7\r\n"));
    assert!(client.call(&["CLIENT", "MAINT_NOTIFICATIONS", "ON"]).starts_with("-ERR"));
    assert_eq!(client.call(&["CLIENT", "SETINFO", "LIB-NAME", "x"]), "+OK\r\n");
    assert_eq!(client.call(&["SELECT", "0"]), "+OK\r\n");
    assert!(client.call(&["INFO", "server"]).contains("redis_version"));
    assert_eq!(client.call(&["HSET", "h", "f", "v"]), ":1\r\n");
    assert_eq!(client.call(&["HGETALL", "h"]), "%1\r\n$1\r\nf\r\n$1\r\nv\r\n", "RESP3 for those who asked");
    let mut other = pair.client();
    assert_eq!(other.call(&["HGETALL", "h"]), "*2\r\n$1\r\nf\r\n$1\r\nv\r\n", "and RESP2 for the others");
    assert!(other.call(&["CONFIG", "GET", "save"]).starts_with("*2\r\n"));
    assert!(other.call(&["SUBSCRIBE", "c"]).starts_with("-ERR PMNet"));
    assert_eq!(other.call(&["PING"]), "+PONG\r\n");
}

#[test]
fn a_client_without_the_password_may_send_little_and_try_a_few_times() {
    let Some(redis) = Redis::start() else { return };
    let with_password = |config: &mut SidecarConfig| config.password = Some("secret".to_owned());
    let pair = Pair::start_with(redis.address, |_| {}, with_password);
    let last_words = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(pair.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut words = String::new();
        stream.read_to_string(&mut words).unwrap();
        words
    };
    assert!(last_words(b"*11\r\n").contains("unauthenticated multibulk length"));
    assert!(last_words(b"*2\r\n$4\r\nECHO\r\n$16385\r\n").contains("unauthenticated bulk length"));
    let words = last_words(&b"AUTH wrong\r\n".repeat(10));
    assert_eq!(words.matches("WRONGPASS").count(), 10);
    let mut client = pair.client();
    assert_eq!(client.call(&["AUTH", "secret"]), "+OK\r\n");
    let value = "v".repeat(100_000);
    assert_eq!(client.call(&["SET", "k", &value]), "+OK\r\n");
    let words: Vec<&str> = std::iter::once("DEL").chain(std::iter::repeat_n("k", 1000)).collect();
    assert_eq!(client.call(&words), ":1\r\n");
}

#[test]
fn pipelines_are_answered_in_order() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let mut client = pair.client();
    const COMMANDS: usize = 500;
    for n in 0..COMMANDS {
        let value = n.to_string();
        client.send(&["SET", "k", &value]);
        client.send(&["APPEND", "log", "x"]);
        if n % 10 == 0 {
            client.send(&["GET", "k"]);
        }
        client.send(&["ECHO", &value]);
    }
    for n in 0..COMMANDS {
        let value = n.to_string();
        assert_eq!(client.reply(), "+OK\r\n");
        assert_eq!(client.reply(), format!(":{}\r\n", n + 1));
        if n % 10 == 0 {
            assert_eq!(client.reply(), format!("${}\r\n{value}\r\n", value.len()));
        }
        assert_eq!(client.reply(), format!("${}\r\n{value}\r\n", value.len()));
    }
}

#[test]
fn transactions_are_executed_as_one() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let mut client = pair.client();
    assert_eq!(client.call(&["MULTI"]), "+OK\r\n");
    assert_eq!(client.call(&["SET", "a", "1"]), "+QUEUED\r\n");
    assert_eq!(client.call(&["INCR", "a"]), "+QUEUED\r\n");
    assert_eq!(client.call(&["LPUSH", "a", "x"]), "+QUEUED\r\n");
    let reply = client.call(&["EXEC"]);
    assert!(reply.starts_with("*3\r\n+OK\r\n:2\r\n-WRONGTYPE"), "{reply}");
    client.call(&["MULTI"]);
    client.call(&["SET", "a"]);
    client.call(&["SET", "a", "lost"]);
    assert!(client.call(&["EXEC"]).starts_with("-EXECABORT"));
    client.call(&["MULTI"]);
    assert_eq!(client.call(&["DISCARD"]), "+OK\r\n");
    assert_eq!(client.call(&["GET", "a"]), "$1\r\n2\r\n");
}

#[test]
fn blocking_commands_get_entries_that_arrive_later() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let (mut client, mut other) = (pair.client(), pair.client());
    assert_eq!(client.call(&["BLPOP", "queue", "0.05"]), "*-1\r\n");
    client.send(&["BLPOP", "queue", "10"]);
    client.send(&["PING"]);
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(other.call(&["RPUSH", "queue", "x"]), ":1\r\n");
    assert_eq!(client.reply(), "*2\r\n$5\r\nqueue\r\n$1\r\nx\r\n");
    assert_eq!(client.reply(), "+PONG\r\n");
    assert_eq!(other.call(&["LLEN", "queue"]), ":0\r\n");
}

#[test]
fn a_restarted_server_side_car_continues_its_sessions() {
    let Some(redis) = Redis::start() else { return };
    let mut pair = Pair::start(redis.address);
    let mut client = pair.client();
    for n in 1..=10 {
        assert_eq!(client.call(&["INCR", "n"]), format!(":{n}\r\n"));
    }
    pair.restart_server();
    for n in 11..=20 {
        assert_eq!(client.call(&["INCR", "n"]), format!(":{n}\r\n"));
        assert_eq!(client.call(&["SET", "k", &n.to_string()]), "+OK\r\n");
    }
    assert_eq!(redis.client().call(&["GET", "k"]), "$2\r\n20\r\n");
}

#[test]
fn flushed_rows_are_written_again() {
    let Some(redis) = Redis::start() else { return };
    let mut pair = Pair::start(redis.address);
    let mut client = pair.client();
    assert_eq!(client.call(&["INCR", "n"]), ":1\r\n");
    assert_eq!(redis.client().call(&["FLUSHALL"]), "+OK\r\n");
    assert_eq!(client.call(&["INCR", "n"]), ":1\r\n");
    assert_eq!(client.call(&["FLUSHALL"]), "+OK\r\n");
    assert_eq!(client.call(&["EVAL", "return redis.call('FLUSHALL')", "0"]), "+OK\r\n");
    pair.restart_server();
    assert_eq!(client.call(&["INCR", "n"]), ":1\r\n", "the session is still known");
    assert_eq!(client.call(&["INCR", "n"]), ":2\r\n");
}

/// A restart of either side may follow the transaction at once, so that the rows are written in it.
#[test]
fn the_transaction_of_a_script_that_flushes_writes_the_rows_of_all_sessions_again() {
    let Some(redis) = Redis::start() else { return };
    let mut admin = redis.client();
    let loaded = admin.call(&["SCRIPT", "LOAD", "return redis.call('FLUSHALL')"]);
    let sha = loaded.lines().nth(1).expect("a checksum").to_owned();
    // The second user may execute scripts by their checksums only.
    for (user, eval) in [("first", "+eval"), ("second", "-eval")] {
        let acl = ["ACL", "SETUSER", user, "on", ">pw", "+@all", eval, "~*"];
        assert_eq!(admin.call(&acl), "+OK\r\n");
        let as_user = |config: &mut ServerSideConfig| {
            (config.user, config.password) = (Some(user.to_owned()), Some("pw".to_owned()));
        };
        let mut pair = Pair::start_with(redis.address, as_user, |_| {});
        let (mut one, mut two) = (pair.client(), pair.client());
        assert_eq!(one.call(&["INCR", "n"]), ":1\r\n");
        assert_eq!(two.call(&["EVALSHA", &sha, "0"]), "+OK\r\n", "{user}");
        assert_eq!(admin.call(&["EXISTS", "n", "landfall:pmnet:meta"]), ":1\r\n", "{user}");
        assert_eq!(pair.reports.redis.get().restored, 0, "{user}: nothing was left to write");
        pair.restart_server();
        assert_eq!(one.call(&["INCR", "n"]), ":1\r\n", "{user}: the session is still known");
        assert_eq!(two.call(&["EVALSHA", &sha, "0"]), "+OK\r\n", "{user}");
    }
}

#[test]
fn a_row_that_another_program_has_changed_is_detected_and_written_again() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let (mut ours, mut theirs) = (pair.client(), redis.client());
    let key = "landfall:pmnet:row:0";
    for (detected, change) in (0..).zip([&["DEL", key][..], &["SET", key, "else"]]) {
        ours.call(&["SET", "k", "v"]);
        ours.call(&["GET", "k"]);
        assert_eq!(pair.reports.redis.get().foreign_rows, detected);
        theirs.call(change);
        ours.call(&["SET", "k", "w"]);
        assert_eq!(ours.call(&["GET", "k"]), "$1\r\nw\r\n");
        let is_detected = || pair.reports.redis.get().foreign_rows == detected + 1;
        until("the change to be detected", || is_detected().then_some(()));
    }
}

#[test]
fn a_second_side_car_on_the_same_keys_takes_over_and_the_first_commits_nothing_more() {
    let Some(redis) = Redis::start() else { return };
    let reports = Arc::new(ServerSideReports::default());
    let first = ServerSideConfig::new(anywhere(), redis.address);
    let stop = Arc::new(AtomicBool::new(false));
    let (published, stopping) = (reports.clone(), stop.clone());
    let thread = std::thread::spawn(move || server::run(first, published, stopping));
    let listens = until("the first start", || reports.network.get().listens);
    let mut config = SidecarConfig::new(anywhere(), listens);
    config.client.give_up = Duration::from_secs(1);
    let report = Arc::new(Published::default());
    let published = report.clone();
    let _client = Running::start(move |stop| client::run(config, published, stop).unwrap());
    let address = until("the client's start", || report.get().listens);
    let mut client = Client::connect(address);
    assert_eq!(client.call(&["INCR", "n"]), ":1\r\n");
    let second = Pair::start(redis.address);
    assert_eq!(second.client().call(&["INCR", "n"]), ":2\r\n");
    let answer = client.call(&["INCR", "n"]);
    assert!(answer.starts_with("-LANDFALL the session has failed"), "{answer}");
    let error = thread.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("another server's side-car"), "{error}");
    assert_eq!(second.client().call(&["INCR", "n"]), ":3\r\n");
}

#[test]
fn acknowledged_commands_that_the_server_rejects_are_kept() {
    let Some(redis) = Redis::start() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    let mut admin = redis.client();
    // A user that may write only some keys.
    let acl = ["ACL", "SETUSER", "car", "on", ">pw", "+@all", "~landfall:*", "~ok:*"];
    assert_eq!(admin.call(&acl), "+OK\r\n");
    let pair = Pair::start_with(
        redis.address,
        |config| {
            (config.user, config.password) = (Some("car".to_owned()), Some("pw".to_owned()));
            config.rejected_file = Some(path.clone());
            config.rejected_max = 3;
        },
        |config| config.typed_early = true,
    );
    let mut client = pair.client();
    assert_eq!(client.call(&["SET", "ok:1", "v"]), "+OK\r\n");
    for n in 0..4 {
        assert_eq!(client.call(&["SET", "secret", &n.to_string()]), "+OK\r\n", "acknowledged early");
    }
    assert_eq!(client.call(&["SET", "ok:2", "v"]), "+OK\r\n");
    assert_eq!(
        client.call(&["HMSET", "ok:2", "f", "v"]),
        "+OK\r\n",
        "typed, and early because the side-car is set so"
    );
    assert_eq!(client.call(&["GET", "ok:1"]), "$1\r\nv\r\n", "other commands are executed");
    let kept = server::rejected(&pair.config).unwrap();
    let shown: Vec<String> = kept.iter().map(|one| one.command()).collect();
    assert_eq!(shown, ["SET secret 2", "SET secret 3", "HMSET ok:2 f v"], "the latest three");
    assert!(kept[0].error.starts_with("NOPERM") && kept[2].error.starts_with("WRONGTYPE"), "{kept:?}");
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines.lines().count(), 5, "{lines}");
    assert_eq!(pair.reports.redis.get().rejected, 5);
    assert_eq!(admin.call(&["EXISTS", "secret"]), ":0\r\n");
}

#[test]
fn updates_wait_while_the_server_has_no_memory_and_bypasses_get_its_error() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let (mut client, mut admin) = (pair.client(), redis.client());
    assert_eq!(client.call(&["SET", "k", "old"]), "+OK\r\n");
    assert_eq!(admin.call(&["CONFIG", "SET", "maxmemory", "1"]), "+OK\r\n");
    let reply = client.call(&["APPEND", "k", "x"]);
    assert!(reply.starts_with("-OOM"), "{reply}");
    client.send(&["SET", "k", "new"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(admin.call(&["GET", "k"]), "$3\r\nold\r\n");
    assert_eq!(admin.call(&["CONFIG", "SET", "maxmemory", "0"]), "+OK\r\n");
    assert_eq!(client.reply(), "+OK\r\n", "once there is memory");
    assert_eq!(admin.call(&["GET", "k"]), "$3\r\nnew\r\n");
    assert_eq!(pair.reports.redis.get().rejected, 0);
}

/// Everything that was sent is sent again to the next connection, and so is what ended the last one.
#[test]
fn a_request_at_which_the_server_ends_the_connection_is_refused_and_stops_nobody() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let (mut client, mut other, mut admin) = (pair.client(), pair.client(), redis.client());
    assert_eq!(other.call(&["INCR", "n"]), ":1\r\n");
    assert_eq!(admin.call(&["CONFIG", "SET", "proto-max-bulk-len", "1mb"]), "+OK\r\n");
    let long = "x".repeat(1_200_000);
    for command in [&["APPEND", "k", &long][..], &["SET", "k", &long]] {
        client.send(command);
        assert!(other.call(&["INCR", "n"]).starts_with(':'), "others are served");
        let reply = client.reply();
        if command[0] == "SET" {
            assert_eq!(reply, "+OK\r\n", "it is kept among the rejected ones");
        } else {
            assert!(reply.starts_with("-LANDFALL"), "{reply}");
        }
    }
    assert_eq!(client.call(&["SET", "k", "v"]), "+OK\r\n");
    assert_eq!(client.call(&["GET", "k"]), "$1\r\nv\r\n");
    assert_eq!(other.call(&["GET", "n"]), "$1\r\n3\r\n");
    assert_eq!(pair.reports.redis.get().rejected, 1);
}

/// Redis ends the connection at such a line. It is the connection of all sessions, and the request would be sent again.
#[test]
fn a_request_of_http_ends_its_own_connection_and_no_other() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let mut other = pair.client();
    assert_eq!(other.call(&["SET", "k", "v"]), "+OK\r\n");
    for head in ["POST / HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: a"] {
        let mut stranger = TcpStream::connect(pair.address).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stranger.write_all(format!("{head}\r\nA: b\r\n\r\nFLUSHALL\r\n").as_bytes()).unwrap();
        let mut replies = String::new();
        // What it sent behind that line is not read: the connection may be reset.
        let _ = stranger.read_to_string(&mut replies);
        assert!(replies.contains("not HTTP") && replies.lines().count() <= 2, "{replies}");
        assert_eq!(other.call(&["GET", "k"]), "$1\r\nv\r\n");
        assert_eq!(other.call(&["INCR", "n"]).get(..1), Some(":"));
    }
    assert_eq!(pair.reports.redis.get().connections, 1);
}

#[test]
fn redis_benchmark_and_redis_cli_work_through_the_side_cars() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let port = pair.address.port().to_string();
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(["-p", &port, "-n", "2000", "-c", "20", "-q", "-t", "set,get,incr,lpush,mset,hset"]);
    let Ok(output) = benchmark.output() else {
        eprintln!("SKIP: redis-benchmark: not installed, see `cargo xtask peers`");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("HSET"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(redis.client().call(&["GET", "counter:__rand_int__"]), "$4\r\n2000\r\n");
    let mut piped = Command::new("redis-benchmark");
    piped.args(["-p", &port, "-n", "4000", "-P", "16", "-q", "-t", "set"]);
    let piped = piped.stdout(Stdio::null()).status().unwrap();
    assert!(piped.success());
    let shown =
        Command::new("redis-cli").args(["-p", &port, "GET", "counter:__rand_int__"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&shown.stdout).trim(), "2000");
}

/// The replies that one writer got, and the requests whose outcome it does not know.
#[derive(Default)]
struct Outcome {
    set: u64,
    sent: u64,
    appended: u64,
    /// Appends whose reply was lost or never came.
    unknown: u64,
}

/// Sets a key of its own to growing numbers and appends to a log of its own, until `stop` is set.
fn write(address: SocketAddr, writer: usize, stop: &AtomicBool) -> Outcome {
    let mut outcome = Outcome::default();
    let (key, log) = (format!("set:{writer}"), format!("log:{writer}"));
    let mut client = Client::connect(address);
    while !stop.load(Ordering::Relaxed) || outcome.set <= 10 {
        outcome.sent += 1;
        assert_eq!(client.call(&["SET", &key, &outcome.sent.to_string()]), "+OK\r\n");
        outcome.set = outcome.sent;
        let reply = client.call(&["APPEND", &log, "x"]);
        match reply.strip_prefix(':').map(|len| len.trim_end().parse::<u64>().unwrap()) {
            Some(len) => {
                outcome.appended += 1;
                let least = outcome.appended;
                let most = least + outcome.unknown;
                assert!((least..=most).contains(&len), "{len} after {least} to {most}");
            }
            None if reply.starts_with("-LANDFALL the command may have been executed") => outcome.unknown += 1,
            None => panic!("{reply}"),
        }
    }
    outcome
}

#[test]
fn a_server_killed_under_load_loses_no_acknowledged_update_and_executes_none_twice() {
    let Some(mut redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (stop, address) = (stop.clone(), pair.address);
            std::thread::spawn(move || write(address, writer, &stop))
        })
        .collect();
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(150));
        let before = pair.reports.redis.get().connections;
        redis.kill_and_restart();
        until("the side-car is connected again", || {
            (pair.reports.redis.get().connections > before).then_some(())
        });
    }
    std::thread::sleep(Duration::from_millis(150));
    stop.store(true, Ordering::Relaxed);
    let outcomes: BTreeMap<usize, Outcome> =
        writers.into_iter().map(|writer| writer.join().unwrap()).enumerate().collect();
    let mut client = redis.client();
    for (writer, outcome) in &outcomes {
        let value = client.call(&["GET", &format!("set:{writer}")]);
        assert!(value.ends_with(&format!("\r\n{}\r\n", outcome.set)), "{value:?} instead of {}", outcome.set);
        let len = client.call(&["STRLEN", &format!("log:{writer}")]);
        let len: u64 = len.trim_start_matches(':').trim_end().parse().unwrap();
        let (least, most) = (outcome.appended, outcome.appended + outcome.unknown);
        assert!((least..=most).contains(&len), "{len} instead of {least} to {most}");
    }
    assert!(pair.reports.redis.get().connections >= 5);
    drop(pair);
}

/// The first line of a reply, and the length of the rest without its line end.
fn shape(reply: &str) -> (&str, usize) {
    let (head, body) = reply.split_once("\r\n").expect("a line");
    (head, body.len().saturating_sub(2))
}

/// More bytes than 1024 fragments of a response carry.
const LONG: usize = 40 << 20;

#[test]
fn long_replies_arrive_whole_and_in_order() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let (mut ours, mut theirs) = (pair.client(), redis.client());
    let lens = [40_000, 60_000, 1_482_000, 1_482_753, 5_000_000, LONG];
    for (at, len) in lens.iter().enumerate() {
        let key = format!("k{at}");
        theirs.call(&["SETRANGE", &key, &(len - 1).to_string(), "x"]);
        theirs.call(&["SET", &format!("s{at}"), &key]);
        ours.send(&["GET", &key]);
        ours.send(&["GET", &format!("s{at}")]);
        ours.send(&["STRLEN", &key]);
    }
    for (at, len) in lens.iter().enumerate() {
        let reply = ours.reply();
        assert_eq!(shape(&reply), (format!("${len}").as_str(), *len), "the value of k{at}");
        assert!(reply.ends_with("x\r\n"));
        assert_eq!(ours.reply(), format!("$2\r\nk{at}\r\n"), "the reply behind k{at}'s");
        assert_eq!(ours.reply(), format!(":{len}\r\n"));
    }
    let word = "w".repeat(1000);
    let words: Vec<&str> = ["RPUSH", "l"].into_iter().chain([word.as_str(); 5000]).collect();
    theirs.call(&words);
    for start in [&["HELLO", "2"][..], &["HELLO", "3"]] {
        ours.call(start);
        let expected = theirs.call(&["LRANGE", "l", "0", "-1"]);
        assert!(ours.call(&["LRANGE", "l", "0", "-1"]) == expected, "a long array after {start:?}");
        ours.call(&["MULTI"]);
        ours.call(&["GETSET", "k3", "new"]);
        ours.call(&["LLEN", "l"]);
        let reply = ours.call(&["EXEC"]);
        assert!(reply.starts_with("*2\r\n$") && reply.ends_with(":5000\r\n"));
    }
}

#[test]
fn replies_beyond_the_limit_are_errors_that_name_the_option_and_the_connection_stays_usable() {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = redis.client();
    theirs.call(&["SETRANGE", "k", "2999999", "x"]);
    theirs.call(&["SETRANGE", "fits", "1999999", "x"]);
    for side in ["server", "client"] {
        let pair = Pair::start_with(
            redis.address,
            |config| {
                config.options.server.response_bytes_max = if side == "server" { 2_500_000 } else { 1 << 30 }
            },
            |config| config.client.response_bytes_max = if side == "client" { 2_500_000 } else { 1 << 30 },
        );
        let mut ours = pair.client();
        for request in [&["GET", "k"][..], &["GETEX", "k", "PERSIST"]] {
            ours.send(request);
            ours.send(&["GET", "fits"]);
            let error = ours.reply();
            let option = format!("raise --max-reply of landfall pmnet {side}");
            assert!(error.starts_with("-ERR the reply of 30000") && error.contains(&option), "{error}");
            assert_eq!(shape(&ours.reply()), ("$2000000", 2_000_000));
        }
    }
}

#[test]
fn requests_beyond_the_limit_are_errors_and_the_connection_stays_usable() {
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start(redis.address);
    let mut ours = pair.client();
    for command in ["SET", "GETSET"] {
        let error = ours.call(&[command, "k", &"v".repeat(2 << 20)]);
        assert!(
            error.starts_with("-ERR a request of 20971") && error.contains("write less at once"),
            "{error}"
        );
        assert_eq!(ours.call(&["GET", "k"]), "$-1\r\n");
    }
}

#[test]
fn many_clients_fetch_long_replies_at_once_within_the_servers_bound() {
    let Some(redis) = Redis::start() else { return };
    let bound = |config: &mut ServerSideConfig| config.options.server.responses_long_bytes_max = 12_000_000;
    let pair = Pair::start_with(redis.address, bound, |_| {});
    redis.client().call(&["SETRANGE", "k", "4999999", "x"]);
    let mut clients: Vec<Client> = (0..8).map(|_| pair.client()).collect();
    clients.iter_mut().for_each(|client| client.send(&["GET", "k"]));
    for client in &mut clients {
        assert_eq!(shape(&client.reply()), ("$5000000", 5_000_000));
    }
}

#[test]
fn unread_replies_of_slow_clients_are_bounded_in_sum_and_other_clients_are_served() {
    const MAX: usize = 4 << 20;
    const GETS: usize = 1000;
    let Some(redis) = Redis::start() else { return };
    let pair = Pair::start_with(redis.address, |_| {}, |config| config.replies_bytes_max = MAX);
    redis.client().call(&["SETRANGE", "k", "9999", "x"]);
    let mut slow: Vec<Client> = (0..20).map(|_| pair.client()).collect();
    slow.iter_mut().for_each(|client| (0..GETS).for_each(|_| client.send(&["GET", "k"])));
    let mut quick = pair.client();
    let (mut most, mut served) = (0, 0);
    while most < MAX / 2 || served < 2000 {
        assert_eq!(shape(&quick.call(&["GET", "k"])), ("$10000", 10_000));
        most = most.max(pair.report.get().unread_bytes as usize);
        served += 1;
        assert!(served < 200_000, "no more than {most} bytes wait");
    }
    // Two replies of each connection may be under way when it reaches its limit.
    assert!(most <= MAX + 21 * 2 * 12_000, "{most}");
    for client in &mut slow {
        (0..GETS).for_each(|_| assert_eq!(shape(&client.reply()), ("$10000", 10_000)));
    }
}
