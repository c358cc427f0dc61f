//! PMNet in front of a Redis with replicas, and over connections that break around `EXEC`: the paper's "Server
//! replication system fails before sending server-ACK" (section IV-E), with real processes on loopback.

mod common;
mod deployment;

use common::{Reply, Resp, landfall};
use deployment::loopback::{Loopback, Store, count, until, wait_for_empty_log};
use deployment::proxy::{Cut, Proxy};
use deployment::{Process, Writers, has_redis};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const SHORTAGE: &str = "too few replicas have the last commit";

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn connect(client: &Process) -> Resp {
    Resp::connect(client.address("resp"), LIMIT).unwrap()
}

fn loopback(ports: &'static str) -> Option<Loopback> {
    has_redis().then(|| Loopback::new(ports))
}

/// Checks that each key was set to these values, in order and once each, by the server's append-only file.
fn must_be_executed_once(store: &Store, wanted: &[(String, u64)]) {
    for (key, last) in wanted {
        let values: Vec<String> = (1..=*last).map(|value| value.to_string()).collect();
        assert_eq!(store.executed("SET", key), values, "{key}: each once, in order");
    }
}

/// Checks the values at once, without waiting.
fn has(store: &Store, wanted: &[(String, u64)]) {
    for (key, last) in wanted {
        assert_eq!(store.get(key), Some(last.to_string()), "{key} at {}", store.address());
    }
}

/// Sets a key to the numbers from `first` on.
fn set(client: &mut Resp, key: &str, first: u64, count: u64) {
    for value in first..first + count {
        let reply = client.call(&[b"SET", key.as_bytes(), value.to_string().as_bytes()]);
        assert_eq!(reply.unwrap(), Reply::Simple("OK".into()));
    }
}

#[test]
fn with_replicas_updates_are_confirmed_once_all_of_them_have_them() {
    let Some(net) = loopback("22300-22319") else { return };
    let primary = net.store("primary", None);
    let replicas = [net.store("a", Some(&primary)), net.store("b", Some(&primary))];
    let server = net.server(anywhere(), primary.address(), &["--replicas", "2"]);
    let relay = net.relay(&server, &[]);
    let client = net.client(&relay, &[]);
    let wanted = Writers::start(3, || connect(&client)).finish_after(900);
    wait_for_empty_log(&relay);
    replicas.iter().for_each(|replica| has(replica, &wanted));
    must_be_executed_once(&primary, &wanted);
}

/// Sets a key while a replica is stopped: all writes are acknowledged, and all of them stay in the device's log.
fn must_stay_in_the_log(relay: &Process, client: &mut Resp, first: u64, updates: u64) {
    set(client, "key:0", first, updates);
    assert_eq!(count(relay, "log_entries"), updates);
    let resent = count(relay, "resent_total");
    until("repetitions", || (count(relay, "resent_total") > resent + updates).then_some(()));
    assert_eq!(count(relay, "log_entries"), updates, "resent, and not confirmed");
}

#[test]
fn while_a_replica_is_away_updates_are_acknowledged_and_stay_in_the_log_until_it_is_back() {
    let Some(net) = loopback("22320-22339") else { return };
    let primary = net.store("primary", None);
    let (near, mut far) = (net.store("a", Some(&primary)), net.store("b", Some(&primary)));
    let server = net.server(anywhere(), primary.address(), &["--replicas", "2"]);
    let relay = net.relay(&server, &[]);
    let client = net.client(&relay, &[]);
    let (mut setter, mut pusher) = (connect(&client), connect(&client));
    assert_eq!(pusher.call(&[b"RPUSH", b"list", b"before"]).unwrap(), Reply::Int(1));
    set(&mut setter, "key:0", 1, 50);
    wait_for_empty_log(&relay);
    far.signal("STOP");
    // A command that is not an update waits, because its reply would reveal data that can still be lost.
    let pushed = std::thread::spawn(move || pusher.call(&[b"RPUSH", b"list", b"meanwhile"]).unwrap());
    must_stay_in_the_log(&relay, &mut setter, 51, 100);
    until("a warning", || net.log("server").contains(SHORTAGE).then_some(()));
    assert!(!pushed.is_finished());
    far.signal("CONT");
    assert_eq!(pushed.join().unwrap(), Reply::Int(2));
    wait_for_empty_log(&relay);
    far.kill();
    must_stay_in_the_log(&relay, &mut setter, 151, 50);
    far.restart();
    wait_for_empty_log(&relay);
    let wanted = [("key:0".to_owned(), 200)];
    must_be_executed_once(&primary, &wanted);
    for store in [&near, &far] {
        has(store, &wanted);
        assert_eq!(store.list("list"), ["before", "meanwhile"]);
    }
    let log = net.log("server");
    assert!(log.contains("enough replicas have the last commit again"), "{log}");
}

#[test]
fn while_a_replica_is_away_and_the_log_is_full_clients_wait_and_nothing_is_lost() {
    let Some(net) = loopback("22420-22439") else { return };
    let primary = net.store("primary", None);
    let replica = net.store("a", Some(&primary));
    let server = net.server(anywhere(), primary.address(), &["--replicas", "1"]);
    let relay = net.relay(&server, &["--log-entries", "40"]);
    let client = net.client(&relay, &[]);
    let mut setter = connect(&client);
    set(&mut setter, "key:0", 1, 1);
    wait_for_empty_log(&relay);
    replica.signal("STOP");
    set(&mut setter, "key:0", 2, 40);
    let more = std::thread::spawn(move || set(&mut setter, "key:0", 42, 10));
    until("a full log", || (count(&relay, "not_logged_total{why=\"Full\"}") > 0).then_some(()));
    assert!(!more.is_finished(), "the server alone can acknowledge it");
    // A side-car that waits ends when it is told to; the next one continues.
    until("a warning", || net.log("server").contains(SHORTAGE).then_some(()));
    let listens = server.address("listen");
    server.end();
    replica.signal("CONT");
    let _server = net.server(listens, primary.address(), &["--replicas", "1"]);
    more.join().unwrap();
    wait_for_empty_log(&relay);
    let wanted = [("key:0".to_owned(), 51)];
    must_be_executed_once(&primary, &wanted);
    has(&replica, &wanted);
}

#[test]
fn without_a_replica_from_the_start_the_side_car_gives_advice_and_can_be_stopped() {
    let Some(net) = loopback("22340-22359") else { return };
    let primary = net.store("primary", None);
    let redis = primary.address().to_string();
    let mut command = Loopback::command(&["server", "--listen", "127.0.0.1:0", "--redis", &redis]);
    command.args(["--replicas", "1"]);
    let server = Process::launch(command, &net.place.path().join("server"));
    until("a warning", || net.log("server").contains(SHORTAGE).then_some(()));
    server.end();
    assert!(net.log("server").contains("shortages: 1"), "{}", net.log("server"));
}

#[test]
fn a_primary_that_is_lost_for_good_is_replaced_by_a_replica_with_the_rows_that_say_what_it_has() {
    let Some(net) = loopback("22360-22379") else { return };
    let primary = net.store("primary", None);
    let (mut heir, mut other) = (net.store("a", Some(&primary)), net.store("b", Some(&primary)));
    let server = net.server(anywhere(), primary.address(), &["--replicas", "2"]);
    let relay = net.relay(&server, &[]);
    let client = net.client(&relay, &[]);
    let writers = Writers::start(3, || connect(&client));
    writers.wait_for(1000);
    primary.lose();
    // Now only the device can acknowledge.
    writers.wait_for(500);
    let listens = server.address("listen");
    server.kill();
    heir.follow(None);
    other.follow(Some(&heir));
    // Effects and rows are replicated together: each session's row has exactly the value of its key.
    let mut applied: Vec<u64> = heir.rows().iter().map(|row| row.update.into()).collect();
    let value = |writer: u64| heir.get(&format!("key:{writer}")).map_or(0, |value| value.parse().unwrap());
    let mut values: Vec<u64> = (0..3).map(value).collect();
    applied.sort_unstable();
    values.sort_unstable();
    assert_eq!(applied, values, "updates by the rows, and by the keys");
    let _server = net.server(listens, heir.address(), &["--replicas", "1"]);
    let wanted = writers.finish_after(1000);
    wait_for_empty_log(&relay);
    must_be_executed_once(&heir, &wanted);
    [&heir, &other].into_iter().for_each(|store| has(store, &wanted));
}

/// The replies that a worker got.
#[derive(Debug, Default)]
struct Replies {
    sets: u64,
    /// Members of its list, in order, and members whose reply said that the result is unknown.
    pushed: Vec<u64>,
    doubtful: Vec<u64>,
}

/// Workers that alternately set a key and push to a list, until told to end.
struct Workers {
    stop: Arc<AtomicBool>,
    turns: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<Replies>>,
}

impl Workers {
    fn start(workers: usize, client: &Process) -> Self {
        let (stop, turns) = (Arc::new(AtomicBool::new(false)), vec![(); workers]);
        let turns: Vec<Arc<AtomicU64>> = turns.iter().map(|()| Arc::default()).collect();
        let start = |(worker, turns): (usize, &Arc<AtomicU64>)| {
            let (resp, stop, turns) = (connect(client), Arc::clone(&stop), Arc::clone(turns));
            std::thread::spawn(move || work(resp, worker, &stop, &turns))
        };
        let threads = turns.iter().enumerate().map(start).collect();
        Self { stop, turns, threads }
    }

    /// Waits until each worker has had some more turns.
    fn wait(&self) {
        for turns in &self.turns {
            let wanted = turns.load(Ordering::SeqCst) + 3;
            until("every worker's turns", || (turns.load(Ordering::SeqCst) >= wanted).then_some(()));
        }
    }

    fn finish(self) -> Vec<Replies> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn work(mut resp: Resp, worker: usize, stop: &AtomicBool, turns: &AtomicU64) -> Replies {
    let (mut replies, key, list) = (Replies::default(), format!("key:{worker}"), format!("list:{worker}"));
    while !stop.load(Ordering::SeqCst) {
        let turn = turns.fetch_add(1, Ordering::SeqCst) + 1;
        set(&mut resp, &key, turn, 1);
        replies.sets = turn;
        match resp.call(&[b"RPUSH", list.as_bytes(), turn.to_string().as_bytes()]).unwrap() {
            Reply::Int(_) => replies.pushed.push(turn),
            Reply::Error(error) if error.starts_with("LANDFALL the command may have been executed") => {
                replies.doubtful.push(turn);
            }
            other => panic!("{list} {turn}: {other:?}"),
        }
    }
    replies
}

#[test]
fn connections_that_break_around_exec_leave_everything_executed_once_and_doubts_reported() {
    let Some(net) = loopback("22380-22399") else { return };
    let redis = net.store("primary", None);
    let proxy = Proxy::start(redis.address());
    let server = net.server(anywhere(), proxy.address, &[]);
    let relay = net.relay(&server, &[]);
    let client = net.client(&relay, &[]);
    let workers = Workers::start(4, &client);
    workers.wait();
    for _ in 0..5 {
        for cut in [Cut::LoseReply, Cut::LoseRequest, Cut::Delay] {
            for marker in ["RPUSH", "SET\r\n$5\r\nkey:"] {
                proxy.cut(cut, marker);
                workers.wait();
            }
        }
    }
    let replies = workers.finish();
    wait_for_empty_log(&relay);
    assert_eq!(proxy.executed_late(), 0, "what comes late is fenced by the watched key");
    for (worker, replies) in replies.iter().enumerate() {
        must_be_executed_once(&redis, &[(format!("key:{worker}"), replies.sets)]);
        let mut wanted = [&replies.pushed[..], &replies.doubtful].concat();
        wanted.sort_unstable();
        let wanted: Vec<String> = wanted.iter().map(u64::to_string).collect();
        assert_eq!(redis.list(&format!("list:{worker}")), wanted, "once each, in order: {replies:?}");
    }
    // A lost reply of a transaction with a bypass leaves at least one unknown result; a lost request leaves none.
    let doubts: usize = replies.iter().map(|replies| replies.doubtful.len()).sum();
    assert!((5..=5 * 2 * replies.len()).contains(&doubts), "{doubts} doubts");
}

fn rejected(redis: &Store) -> Vec<String> {
    let output = landfall(&["pmnet", "rejected", "--redis", &redis.address().to_string()]);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn an_unseen_rejection_is_kept_as_in_doubt_and_a_seen_one_is_not() {
    let Some(net) = loopback("22400-22419") else { return };
    let mut redis = net.store("primary", None);
    let proxy = Proxy::start(redis.address());
    let server = net.server(anywhere(), proxy.address, &[]);
    let relay = net.relay(&server, &[]);
    let client = net.client(&relay, &["--typed-early"]);
    let mut resp = connect(&client);
    set(&mut resp, "key:0", 1, 1);
    wait_for_empty_log(&relay);
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| proxy.cut(Cut::LoseReply, "HMSET"));
        until("the proxy's readiness", || proxy.is_ready().then_some(()));
        let reply = resp.call(&[b"HMSET", b"key:0", b"f", b"v"]).unwrap();
        assert_eq!(reply, Reply::Simple("OK".into()), "acknowledged by the device, as was asked for");
        cut.join().unwrap();
    });
    wait_for_empty_log(&relay);
    let kept = rejected(&redis);
    assert!(
        kept.len() == 1 && kept[0].contains("in doubt") && kept[0].ends_with("HMSET key:0 f v"),
        "{kept:?}"
    );
    // The reply of this command arrives. The next transaction is not executed, so the note of this command still exists
    // then.
    assert_eq!(resp.call(&[b"HMSET", b"hash", b"f", b"v"]).unwrap(), Reply::Simple("OK".into()));
    wait_for_empty_log(&relay);
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| proxy.cut(Cut::LoseRequest, "RPUSH"));
        until("the proxy's readiness", || proxy.is_ready().then_some(()));
        assert_eq!(resp.call(&[b"RPUSH", b"list", b"once"]).unwrap(), Reply::Int(1));
        cut.join().unwrap();
    });
    assert_eq!(resp.call(&[b"HMSET", b"hash", b"f", b"w"]).unwrap(), Reply::Simple("OK".into()));
    wait_for_empty_log(&relay);
    redis.kill();
    redis.restart();
    assert_eq!(resp.call(&[b"RPUSH", b"list", b"twice"]).unwrap(), Reply::Int(2));
    assert_eq!(rejected(&redis), kept, "nothing more was in doubt");
    // A reply that does not arrive, of a command whose effect exists.
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| proxy.cut(Cut::LoseReply, "HMSET"));
        until("the proxy's readiness", || proxy.is_ready().then_some(()));
        assert_eq!(resp.call(&[b"HMSET", b"hash", b"f", b"x"]).unwrap(), Reply::Simple("OK".into()));
        cut.join().unwrap();
    });
    wait_for_empty_log(&relay);
    assert_eq!(rejected(&redis), kept, "what was executed is in no doubt");
}
