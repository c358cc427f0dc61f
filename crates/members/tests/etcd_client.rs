//! The general client: keys, transactions and leases of a real etcd.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod server;

use landfall_members::etcd::{Calls, Condition, Lease, Op, OpAnswer, Relation, Target, Txn};
use landfall_members::{EtcdClient, EtcdConfig, MembersError};
use server::Server;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(10);

fn client(server: &Server) -> EtcdClient {
    EtcdClient::new(&server.config()).unwrap()
}

fn keys(calls: &Calls<'_>, prefix: &str) -> Vec<String> {
    calls.get_prefix(prefix, 0).unwrap().entries.into_iter().map(|entry| entry.key).collect()
}

#[test]
fn keys_are_written_read_and_deleted_one_by_one_and_by_prefix() {
    let Some(server) = Server::start() else { return };
    let client = client(&server);
    let calls = client.within(LIMIT);
    for key in ["/a", "/a/", "/a/1", "/a/2", "/a0", "/b/\u{10ffff}"] {
        calls.put(key, key.as_bytes(), None).unwrap();
    }
    let last = calls.put("/a/2", b"\x00\xff", None).unwrap();
    let entry = calls.get("/a/2").unwrap().unwrap();
    assert_eq!((entry.value.as_slice(), entry.version, entry.lease), (&b"\x00\xff"[..], 2, None));
    assert_eq!((entry.modified, entry.created), (last.number, last.number - 3));
    assert_eq!(keys(&calls, "/a/"), ["/a/", "/a/1", "/a/2"]);
    assert_eq!(keys(&calls, "/b/\u{10ffff}"), ["/b/\u{10ffff}"]);
    let range = calls.get_prefix("/a/", 2).unwrap();
    assert!(range.more && range.entries.len() == 2 && range.revision == last, "{range:?}");
    assert!(calls.get("/nothing").unwrap().is_none());
    assert!(calls.delete("/a/1").unwrap() && !calls.delete("/a/1").unwrap());
    assert_eq!(calls.delete_prefix("/a/").unwrap(), 2);
    assert_eq!(keys(&calls, "/"), ["/a", "/a0", "/b/\u{10ffff}"]);
}

#[test]
fn each_condition_holds_where_it_should() {
    use Relation::{Equal, Greater, Less, NotEqual};
    let Some(server) = Server::start() else { return };
    let client = client(&server);
    let calls = client.within(LIMIT);
    let created = calls.put("/k", b"a", None).unwrap().number;
    let modified = calls.put("/k", b"b", None).unwrap().number;
    let holds = |key: &str, target: &Target, relation| {
        let when = vec![Condition { key: key.to_owned(), target: target.clone(), relation }];
        calls.txn(&Txn { when, ..Txn::default() }).unwrap().succeeded
    };
    let exact = [
        Target::Version(2),
        Target::Created(created),
        Target::Modified(modified),
        Target::Value(b"b".to_vec()),
    ];
    let below = [
        Target::Version(1),
        Target::Created(created - 1),
        Target::Modified(created),
        Target::Value(b"a".to_vec()),
    ];
    for (exact, below) in exact.iter().zip(&below) {
        for (target, truths) in [(exact, [true, false, false, false]), (below, [false, true, false, true])] {
            let found = [Equal, NotEqual, Less, Greater].map(|relation| holds("/k", target, relation));
            assert_eq!(found, truths, "{target:?}");
        }
    }
    for (target, truth) in
        [(Target::Version(0), true), (Target::Created(0), true), (Target::Modified(0), true)]
    {
        assert_eq!(holds("/nothing", &target, Equal), truth, "{target:?}");
    }
    assert!(!holds("/nothing", &Target::Value(Vec::new()), Equal), "a key that is not there has no value");
    let exists = |key, exists| {
        calls.txn(&Txn { when: vec![Condition::exists(key, exists)], ..Txn::default() }).unwrap().succeeded
    };
    assert!(
        exists("/k", true) && exists("/nothing", false) && !exists("/k", false) && !exists("/nothing", true)
    );
}

#[test]
fn a_transaction_does_one_of_two_things_and_answers_each_operation() {
    let Some(server) = Server::start() else { return };
    let client = client(&server);
    let calls = client.within(LIMIT);
    for key in ["/t/1", "/t/2", "/u"] {
        calls.put(key, b"old", None).unwrap();
    }
    let put = |key: &str| Op::Put { key: key.to_owned(), value: b"new".to_vec(), lease: None };
    let txn = Txn {
        when: vec![Condition::exists("/u", true), Condition::exists("/v", false)],
        then: vec![
            Op::GetPrefix { prefix: "/t/".into() },
            Op::DeletePrefix { prefix: "/t/".into() },
            put("/v"),
            Op::Get { key: "/u".into() },
            Op::Delete { key: "/nothing".into() },
        ],
        otherwise: vec![put("/w")],
    };
    let first = calls.txn(&txn).unwrap();
    assert!(first.succeeded);
    let [
        OpAnswer::Found(two),
        OpAnswer::Deleted(2),
        OpAnswer::Written,
        OpAnswer::Found(one),
        OpAnswer::Deleted(0),
    ] = &first.answers[..]
    else {
        panic!("{first:?}")
    };
    assert_eq!((two.len(), one[0].value.as_slice()), (2, &b"old"[..]));
    assert_eq!(calls.get("/v").unwrap().unwrap().modified, first.revision.number);
    let second = calls.txn(&txn).unwrap();
    assert_eq!((second.succeeded, second.answers), (false, vec![OpAnswer::Written]));
    assert_eq!(keys(&calls, "/"), ["/u", "/v", "/w"]);
    let twice = Txn { then: vec![put("/x"), put("/x")], ..Txn::default() };
    assert!(matches!(calls.txn(&twice), Err(MembersError::Refused { code: 3, .. })));
}

#[test]
fn keys_end_with_their_lease() {
    let Some(server) = Server::start() else { return };
    let client = client(&server);
    let calls = client.within(LIMIT);
    let (kept, _) = calls.grant(Duration::from_secs(3600)).unwrap();
    let (ended, ttl) = calls.grant(Duration::from_secs(1)).unwrap();
    calls.put("/kept", b"", Some(kept)).unwrap();
    calls.put("/ended", b"", Some(ended)).unwrap();
    assert_eq!(calls.get("/kept").unwrap().unwrap().lease, Some(kept));
    assert!(ttl >= Duration::from_secs(1), "{ttl:?}");
    let begun = Instant::now();
    while calls.get("/ended").unwrap().is_some() {
        assert!(begun.elapsed() < WAIT);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(calls.keep_alive(ended).unwrap(), None);
    assert_eq!(calls.keep_alive(kept).unwrap(), Some(Duration::from_secs(3600)));
    calls.revoke(kept).unwrap();
    assert!(calls.get("/kept").unwrap().is_none());
    calls.revoke(kept).unwrap();
    assert!(matches!(calls.put("/k", b"", Lease::new(77)), Err(MembersError::Refused { code: 5, .. })));
}

#[test]
fn each_call_ends_within_its_limit_though_nobody_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = EtcdClient::new(&EtcdConfig::at(&[&address, &address])).unwrap();
    let calls = client.within(Duration::from_secs(1));
    let lease = Lease::new(1).unwrap();
    let ended: [(&str, MembersError); 8] = [
        ("get", calls.get("/k").unwrap_err()),
        ("get_prefix", calls.get_prefix("/k", 0).unwrap_err()),
        ("put", calls.put("/k", b"", None).unwrap_err()),
        ("delete", calls.delete("/k").unwrap_err()),
        ("txn", calls.txn(&Txn::default()).unwrap_err()),
        ("grant", calls.grant(WAIT).unwrap_err()),
        ("keep_alive", calls.keep_alive(lease).unwrap_err()),
        ("revoke", calls.revoke(lease).unwrap_err()),
    ];
    for (call, error) in ended {
        assert!(error.to_string().contains("timed out"), "{call}: {error}");
    }
}
