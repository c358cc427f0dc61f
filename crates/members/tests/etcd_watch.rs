//! Watching the keys with a prefix in a real etcd.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod server;

use landfall_members::etcd::{Change, Op, PrefixWatch, Seen, Txn};
use landfall_members::{EtcdClient, EtcdConfig, EtcdUser, MembersError};
use server::gate::Gate;
use server::{Certificates, Server, Setup};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(10);

fn client(addresses: &[String]) -> EtcdClient {
    EtcdClient::new(&EtcdConfig::at(addresses)).unwrap()
}

/// The next report.
fn next(watch: &PrefixWatch) -> Seen {
    watch.next(WAIT).expect("a report")
}

/// The next changes, as `KEY=VALUE` and `-KEY`. Losing etcd for a while is not what is asked for.
fn changes(watch: &PrefixWatch) -> Vec<String> {
    loop {
        match next(watch) {
            Seen::Changes(changes) => return changes.iter().map(told).collect(),
            Seen::Lost(_) | Seen::Back => {}
            other => panic!("{other:?}"),
        }
    }
}

fn told(change: &Change) -> String {
    match change {
        Change::Put(entry) => format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)),
        Change::Deleted { key, .. } => format!("-{key}"),
    }
}

/// The next `count` changes of one key each, however they come.
fn many(watch: &PrefixWatch, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(changes(watch));
    }
    all
}

/// Puts a value; other members may have to elect a leader first. The same value again does not matter.
fn put(client: &EtcdClient, key: &str, value: &str) {
    let begun = Instant::now();
    while let Err(error) = client.within(LIMIT).put(key, value.as_bytes(), None) {
        assert!(begun.elapsed() < WAIT, "{error}");
    }
}

#[test]
fn changes_come_from_the_revision_on_in_order_and_those_of_one_revision_together() {
    let Some(server) = Server::start() else { return };
    let client = client(&[server.endpoint()]);
    let calls = client.within(LIMIT);
    calls.put("/w/early", b"0", None).unwrap();
    let from = calls.put("/w/a", b"1", None).unwrap().number;
    let watch = client.watch_prefix("/w/", from).unwrap();
    assert_eq!(changes(&watch), ["/w/a=1"]);
    calls.put("/x", b"not of the prefix", None).unwrap();
    let put = |key: &str| Op::Put { key: key.to_owned(), value: b"2".to_vec(), lease: None };
    let then = vec![put("/w/b"), put("/w/c"), Op::Delete { key: "/w/a".into() }];
    let revision = calls.txn(&Txn { then, ..Txn::default() }).unwrap().revision.number;
    let Seen::Changes(together) = next(&watch) else { panic!("no changes") };
    assert_eq!(together.iter().map(told).collect::<Vec<_>>(), ["/w/b=2", "/w/c=2", "-/w/a"]);
    assert!(together.iter().all(|change| change.revision() == revision));
    let (lease, _) = calls.grant(Duration::from_secs(1)).unwrap();
    calls.put("/w/leased", b"", Some(lease)).unwrap();
    assert_eq!(many(&watch, 2), ["/w/leased=", "-/w/leased"]);
}

#[test]
fn streams_that_end_are_opened_again_without_losing_or_repeating_a_change() {
    let Some(server) = Server::start() else { return };
    let client = client(&[server.endpoint()]);
    let watch = client.watch_prefix("/w/", 1).unwrap();
    // Longer than two streams last.
    for n in 0..60 {
        client.within(LIMIT).put("/w/n", n.to_string().as_bytes(), None).unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
    let wanted: Vec<String> = (0..60).map(|n| format!("/w/n={n}")).collect();
    assert_eq!(many(&watch, 60), wanted);
}

#[test]
fn history_that_is_compacted_is_answered_by_reading_anew() {
    let Some(server) = Server::start() else { return };
    let client = client(&[server.endpoint()]);
    let calls = client.within(LIMIT);
    for n in 0..5 {
        calls.put("/w/k", n.to_string().as_bytes(), None).unwrap();
    }
    let last = calls.put("/w/other", b"", None).unwrap().number;
    server.post("/v3/kv/compaction", &format!(r#"{{"revision":"{last}","physical":true}}"#), None);
    let watch = client.watch_prefix("/w/", 2).unwrap();
    let Seen::Anew(range) = next(&watch) else { panic!("history was made up") };
    assert_eq!(range.revision.number, last);
    let found: Vec<_> =
        range.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_slice())).collect();
    assert_eq!(found, [("/w/k", &b"4"[..]), ("/w/other", b"")]);
    calls.put("/w/k", b"5", None).unwrap();
    assert_eq!(changes(&watch), ["/w/k=5"]);
}

#[test]
fn a_watch_that_was_cut_off_while_history_was_compacted_reads_anew() {
    let Some(server) = Server::start() else { return };
    let direct = client(&[server.endpoint()]);
    let gate = Gate::to(&server);
    let calls = direct.within(LIMIT);
    let watch = client(&[gate.address()]).watch_prefix("/w/", 1).unwrap();
    calls.put("/w/k", b"1", None).unwrap();
    assert_eq!(changes(&watch), ["/w/k=1"]);
    gate.close();
    assert!(matches!(
        next(&watch),
        Seen::Lost(MembersError::Unreachable { .. } | MembersError::Answer { .. })
    ));
    calls.delete("/w/k").unwrap();
    let last = calls.put("/w/l", b"2", None).unwrap().number;
    server.post("/v3/kv/compaction", &format!(r#"{{"revision":"{last}"}}"#), None);
    gate.open();
    assert!(matches!(next(&watch), Seen::Back));
    let Seen::Anew(range) = next(&watch) else { panic!("history was made up") };
    assert_eq!(range.entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["/w/l"]);
    calls.put("/w/m", b"3", None).unwrap();
    assert_eq!(changes(&watch), ["/w/m=3"]);
}

/// The next report that is none of an etcd that is away for a while.
fn anew(watch: &PrefixWatch) -> Vec<String> {
    loop {
        match next(watch) {
            Seen::Anew(range) => return range.entries.into_iter().map(|entry| entry.key).collect(),
            Seen::Lost(_) | Seen::Back => {}
            changes => panic!("{changes:?}"),
        }
    }
}

#[test]
fn another_etcd_at_the_address_is_read_anew() {
    let Some(server) = Server::start() else { return };
    let Some(other) = Server::start() else { return };
    let gate = Gate::to(&server);
    let watch = client(&[gate.address()]).watch_prefix("/w/", 1).unwrap();
    put(&client(&[server.endpoint()]), "/w/k", "1");
    many(&watch, 1);
    // Its revisions go further, so that only the cluster tells.
    (0..9).for_each(|n| put(&client(&[other.endpoint()]), "/w/other", &n.to_string()));
    gate.lead_to(&other);
    assert_eq!(anew(&watch), ["/w/other"]);
    put(&client(&[other.endpoint()]), "/w/next", "1");
    assert_eq!(changes(&watch), ["/w/next=1"]);
}

#[test]
fn an_etcd_that_was_restored_from_an_older_copy_is_read_anew() {
    let Some(mut server) = Server::start() else { return };
    let client = client(&[server.endpoint()]);
    put(&client, "/w/early", "");
    server.kill();
    server.keep_copy();
    server.restart();
    let watch = client.watch_prefix("/w/", 1).unwrap();
    (0..9).for_each(|n| put(&client, "/w/late", &n.to_string()));
    many(&watch, 10);
    server.kill();
    server.restore_copy();
    server.restart();
    assert_eq!(anew(&watch), ["/w/early"]);
    put(&client, "/w/next", "1");
    assert_eq!(changes(&watch), ["/w/next=1"]);
}

#[test]
fn a_watch_goes_on_when_the_member_that_it_watches_is_killed() {
    let Some(mut servers) = Server::cluster(&Setup::default(), 3) else { return };
    let addresses: Vec<String> = servers.iter().map(Server::endpoint).collect();
    let watch = client(&addresses).watch_prefix("/w/", 1).unwrap();
    put(&client(&addresses), "/w/n", "before");
    assert_eq!(changes(&watch), ["/w/n=before"]);
    servers[0].kill();
    let others = client(&addresses[1..]);
    put(&others, "/w/n", "after");
    assert_eq!(changes(&watch), ["/w/n=after"]);
    // One of three is no majority: it has no leader, so that its watch ends.
    servers[1].kill();
    while !matches!(next(&watch), Seen::Lost(_)) {}
    servers[0].restart();
    put(&client(&addresses), "/w/n", "again");
    let seen = loop {
        match changes(&watch).pop().unwrap() {
            // The write of this value may have been repeated.
            after if after == "/w/n=after" => {}
            last => break last,
        }
    };
    assert_eq!(seen, "/w/n=again");
}

#[test]
fn a_member_that_never_answers_is_left_for_another() {
    let Some(server) = Server::start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silence = listener.local_addr().unwrap().to_string();
    let watch = client(&[silence, server.endpoint()]).watch_prefix("/w/", 1).unwrap();
    put(&client(&[server.endpoint()]), "/w/k", "1");
    assert_eq!(changes(&watch), ["/w/k=1"]);
}

#[test]
fn a_member_that_hangs_while_it_is_watched_is_left_for_another() {
    let Some(servers) = Server::cluster(&Setup::default(), 3) else { return };
    let addresses: Vec<String> = servers.iter().map(Server::endpoint).collect();
    let watch = client(&addresses).watch_prefix("/w/", 1).unwrap();
    put(&client(&addresses[1..]), "/w/k", "1");
    assert_eq!(changes(&watch), ["/w/k=1"]);
    servers[0].pause();
    put(&client(&addresses[1..]), "/w/k", "2");
    let seen = loop {
        match changes(&watch).pop().unwrap() {
            before if before == "/w/k=1" => {}
            last => break last,
        }
    };
    servers[0].resume();
    assert_eq!(seen, "/w/k=2");
}

#[test]
fn a_watch_goes_on_over_tls_with_a_user_whose_tokens_expire() {
    let Some(mut server) = Server::start() else { return };
    for (path, json) in [
        ("user/add", r#"{"name":"root","password":"secret"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        server.post(&format!("/v3/auth/{path}"), json, None);
    }
    let mut setup = Setup::encrypted(&Certificates::new()).with(&["--auth-token-ttl", "1"]);
    setup.client.user = Some(EtcdUser::new("root", "secret"));
    server.restart_as(&setup);
    let client = EtcdClient::new(&server.config()).unwrap();
    let watch = client.watch_prefix("/w/", 1).unwrap();
    for n in 0..3 {
        // A stream ends in each pause, and the token expires.
        std::thread::sleep(Duration::from_secs(6));
        put(&client, "/w/n", &n.to_string());
        assert_eq!(changes(&watch), [format!("/w/n={n}")]);
    }
}

#[test]
fn dropping_a_watch_ends_it_at_once() {
    let Some(server) = Server::start() else { return };
    let client = client(&[server.endpoint()]);
    let watches: Vec<PrefixWatch> = (0..4).map(|_| client.watch_prefix("/w/", 1).unwrap()).collect();
    put(&client, "/w/k", "1");
    watches.iter().for_each(|watch| drop(changes(watch)));
    let begun = Instant::now();
    drop(watches);
    // Four streams would last for up to twenty seconds.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
