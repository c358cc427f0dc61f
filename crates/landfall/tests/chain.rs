//! Servers in a chain: what one acknowledges, all nodes have, whatever is killed, removed or added.

mod common;

use common::chain::{Chain, LIMIT, REPLY_LIMIT, codes_answered, contents, same_everywhere};
use common::faults::{Addresses, Over, hunt};
use common::{Place, Reply, Server, bulk, ok, pattern, wait_until};
use landfall_chain::{Acknowledged, Code, Header, RecordKind, Report, Welcome};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keys of a client.
const KEYS: usize = 20;
/// Clients that write.
const CLIENTS: usize = 4;

#[test]
fn what_one_node_acknowledges_all_have() {
    let mut chain = Chain::new(3, &["--workers", "2"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    let long = pattern(7, 5 << 20);
    assert_eq!(resp.call(&[b"SET", b"short", b"1"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"long", &long]).unwrap(), ok());
    assert_eq!(resp.call(&[b"MSET", b"m1", b"a", b"m2", &pattern(1, 3000), b"m3", b""]).unwrap(), ok());
    assert_eq!(resp.call(&[b"APPEND", b"long", b"end"]).unwrap(), Reply::Int(5_242_883));
    assert_eq!(resp.call(&[b"SET", b"soon", b"gone", b"PX", b"100000"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"deleted", b"1"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"DEL", b"deleted"]).unwrap(), Reply::Int(1));
    assert_eq!(resp.call(&[b"COPY", b"long", b"copy"]).unwrap(), Reply::Int(1));
    assert_eq!(resp.call(&[b"RENAME", b"m1", b"renamed"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SELECT", b"3"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"short", b"of another database"]).unwrap(), ok());
    let metric = |index: usize, name: &str| chain.server(index).metric(&format!("landfall_chain_{name}"));
    assert_eq!([0, 1, 2].map(|index| metric(index, "copies_behind").to_string()), ["2", "1", "0"]);
    assert_eq!([0, 1, 2].map(|index| metric(index, "first").to_string()), ["1", "0", "0"]);
    assert!(metric(0, "batches_total") >= 9.0 && metric(0, "value_bytes_total") > long.len() as f64);
    assert_eq!(resp.call(&[b"WAIT", b"2", b"0"]).unwrap(), Reply::Int(2));
    assert_eq!(
        resp.call(&[b"WAITAOF", b"1", b"2", b"0"]).unwrap(),
        Reply::Array(vec![Reply::Int(1), Reply::Int(2)])
    );
    let all = same_everywhere(&chain, &[0, 1, 2]);
    assert_eq!(all.len(), 8);
    assert_eq!(all[&(0, b"copy".to_vec())], [&long[..], b"end"].concat());
    let Reply::Int(left) = chain.server(2).call(&["PTTL", "soon"]) else { panic!("a time") };
    assert!((1..=100_000).contains(&left), "{left}");
    assert_eq!(resp.call(&[b"FLUSHALL"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"after", b"1"]).unwrap(), ok());
    assert_eq!(same_everywhere(&chain, &[0, 1, 2]).len(), 1);
}

#[test]
fn a_transaction_is_there_whole() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let mut resp = chain.resp(0);
    // More keys than a group has records.
    let keys: Vec<Vec<u8>> = (0..9000_u32).map(|index| format!("key:{index}").into_bytes()).collect();
    for round in [b"1", b"2"] {
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        keys.iter().for_each(|key| words.extend([&key[..], &round[..]]));
        assert_eq!(resp.call(&words).unwrap(), ok());
        let all = same_everywhere(&chain, &[0, 1]);
        assert_eq!(all.len(), keys.len());
        assert!(all.values().all(|value| value == round));
    }
}

#[test]
fn a_transaction_with_very_long_keys_is_there_whole() {
    let mut chain = Chain::new(2, &["--capacity", "512MiB"]);
    chain.start_all();
    // 72 MB of keys, in one message.
    let keys: Vec<Vec<u8>> = (0..1200_u64).map(|seed| pattern(seed, 60_000)).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    keys.iter().for_each(|key| words.extend([&key[..], b"value"]));
    assert_eq!(chain.resp(0).call(&words).unwrap(), ok());
    assert_eq!(chain.server(1).call(&["DBSIZE"]), Reply::Int(1200));
}

#[test]
fn values_land_at_every_node_without_a_copy() {
    let mut chain = Chain::new(3, &["--scrub-rate", "0"]);
    chain.start_all();
    let copied = |server: &Server| {
        let of = |path: &str| server.metric(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}"));
        ["placed", "reply", "stalled", "consolidated"].map(of)
    };
    let before: Vec<_> = (0..3).map(|index| copied(chain.server(index))).collect();
    let mut resp = chain.resp(0);
    for seed in 0..50_u64 {
        let key = format!("key:{seed}");
        assert_eq!(resp.call(&[b"SET", key.as_bytes(), &pattern(seed, 4096)]).unwrap(), ok());
    }
    let after: Vec<_> = (0..3).map(|index| copied(chain.server(index))).collect();
    assert_eq!(before, after);
    assert_eq!(same_everywhere(&chain, &[0, 1, 2]).len(), 50);
}

/// Who waits for an answer sends a short batch itself, and reads the answer: no other thread is woken for it.
#[test]
fn short_batches_are_sent_by_who_waits_for_them() {
    for extra in [&[][..], &["--transport", "epoll"], &["--spin", "50"]] {
        let mut chain = Chain::new(3, extra);
        chain.start_all();
        let sent = |node: usize| {
            let of = |name: &str| chain.server(node).metric(&format!("landfall_chain_{name}_total"));
            ["batches", "own_batches"].map(of)
        };
        let before = [sent(0), sent(1)];
        let mut resp = chain.resp(0);
        for seed in 0..500_u64 {
            let key = format!("key:{seed}");
            assert_eq!(resp.call(&[b"SET", key.as_bytes(), &pattern(seed, 4096)]).unwrap(), ok());
        }
        for (node, [batches, own]) in before.into_iter().enumerate() {
            let [all_batches, all_own] = sent(node);
            let (batches, own) = (all_batches - batches, all_own - own);
            assert!(batches >= 500.0 && own >= batches * 0.9, "node {node}: {own} of {batches}");
        }
        assert_eq!(same_everywhere(&chain, &[0, 1, 2]).len(), 500);
    }
}

/// Kills both nodes of a chain, the second one first: what is written between is durable at the first one only.
fn write_at_first_only(chain: &mut Chain, words: &'static [&'static [u8]]) {
    chain.kill(1);
    let mut resp = chain.resp(0);
    let waits = std::thread::spawn(move || resp.call(words).is_err());
    std::thread::sleep(Duration::from_secs(1));
    chain.kill(0);
    assert!(waits.join().unwrap(), "nobody has acknowledged it");
}

/// A batch that only the first node has is sent when the others are back, however often it has started meanwhile.
#[test]
fn what_was_not_sent_is_sent_after_a_second_crash() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    (0..50).for_each(|at| assert_eq!(chain.server(0).call(&["SET", &format!("key:{at}"), "old"]), ok()));
    // Long enough to note that they are complete.
    std::thread::sleep(Duration::from_millis(2500));
    write_at_first_only(&mut chain, &[b"SET", b"key", b"new"]);
    chain.start(0);
    std::thread::sleep(Duration::from_millis(2500));
    chain.kill(0);
    chain.start(1);
    chain.start(0);
    chain.wait_until_in_step();
    let all = same_everywhere(&chain, &[0, 1]);
    assert_eq!(all[&(0, b"key".to_vec())], b"new");
    let log = chain.nodes[0].place.log();
    let sent: Vec<&str> = log.lines().filter(|line| line.contains("what may not have been sent")).collect();
    assert!(sent.iter().any(|line| line.ends_with("=1")), "one record, and not all: {sent:?}");
}

/// Numbers of records that were drawn and not used, as by a program's lease on a file that it only read, are complete too:
/// what is written after the next start has higher ones, or it would count as sent.
#[test]
fn what_was_not_sent_is_sent_although_numbers_were_drawn_in_vain() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["SET", "key", "old"]), ok());
    chain.end(&[0, 1]);
    chain.nodes[0].draw_numbers();
    chain.start_all();
    chain.wait_until_in_step();
    write_at_first_only(&mut chain, &[b"SET", b"key", b"new"]);
    chain.start_all();
    chain.wait_until_in_step();
    assert_eq!(same_everywhere(&chain, &[0, 1])[&(0, b"key".to_vec())], b"new");
}

/// What the next server may lack is listed by its records: they stay, and so do their bytes, until it has them.
#[test]
fn what_was_not_sent_stays_until_it_is_although_it_expires() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["SET", "key", "old"]), ok());
    write_at_first_only(&mut chain, &[b"SET", b"key", b"new", b"PX", b"2500"]);
    chain.start(0);
    std::thread::sleep(Duration::from_secs(3));
    let expired = |chain: &Chain, node: usize| chain.server(node).metric("landfall_expired_keys_total");
    assert!(expired(&chain, 0) < 1.0, "it is not sent yet");
    chain.start(1);
    chain.wait_until_in_step();
    (0..2).for_each(|node| assert_eq!(chain.server(node).call(&["GET", "key"]), Reply::Nil));
    wait_until(LIMIT, || (expired(&chain, 0) > 0.0).then_some(())).expect("it is purged then");
    assert_eq!(same_everywhere(&chain, &[0, 1]).len(), 0);
}

#[test]
fn replicas_answer_reads_and_refuse_writes() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    let replica = chain.server(1);
    assert_eq!(replica.call(&["GET", "k"]), bulk("v"));
    let refused = |reply: Reply, code: &str| matches!(reply, Reply::Error(text) if text.starts_with(code));
    assert!(refused(replica.call(&["SET", "k", "w"]), "READONLY"));
    assert!(refused(replica.call(&["FLUSHALL"]), "READONLY"));
    let mut resp = replica.resp();
    assert_eq!(resp.call(&[b"MULTI"]).unwrap(), ok());
    assert!(refused(resp.call(&[b"INCR", b"k"]).unwrap(), "READONLY"));
    assert!(refused(resp.call(&[b"EXEC"]).unwrap(), "EXECABORT"));
    assert_eq!(replica.http().call("PUT", "/kv/k", "", b"w").unwrap().status, 403);
    assert_eq!(replica.http().call("GET", "/kv/k", "", b"").unwrap().body, b"v");
    assert!(refused(replica.call(&["LF.APPEND", "log", "x"]), "READONLY"));
    assert_eq!(replica.http().call("POST", "/wal/log", "", b"x").unwrap().status, 403);
}

/// Two servers may number two versions of a key alike.
#[test]
fn an_entity_tag_of_another_server_is_none_of_any_version_here() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let tag = |node: usize, request: &str| {
        let mut stream = TcpStream::connect(chain.server(node).http).unwrap();
        write!(stream, "{request}\r\nHost: a\r\nConnection: close\r\n").unwrap();
        stream.write_all(b"Content-Length: 1\r\n\r\nv").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let tag = reply.lines().find_map(|line| line.strip_prefix("ETag: "));
        tag.unwrap_or_else(|| panic!("no tag: {reply}")).to_owned()
    };
    let written = tag(0, "PUT /kv/k HTTP/1.1");
    assert_eq!(tag(0, "GET /kv/k HTTP/1.1"), written);
    let theirs = tag(1, "GET /kv/k HTTP/1.1");
    assert_ne!(theirs, written);
    let put = |tag: &str| {
        let header = format!("If-Match: {tag}\r\n");
        chain.server(0).http().call("PUT", "/kv/k", &header, b"w").unwrap().status
    };
    assert_eq!([put(&theirs), put(&written)], [412, 204]);
}

#[test]
fn a_write_waits_for_a_node_that_is_away_and_goes_on_when_it_is_back_or_removed() {
    let mut chain = Chain::new(3, &[]);
    chain.start_all();
    for is_removed in [false, true] {
        chain.kill(1);
        let mut resp = chain.resp(0);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                assert_eq!(resp.call(&[b"SET", b"k", is_removed.to_string().as_bytes()]).unwrap(), ok());
                is_done.store(true, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(500));
            assert!(!is_done.load(Ordering::Acquire), "no other node has it");
            if is_removed { chain.remove(1) } else { chain.start(1) }
        });
        chain.wait_until_in_step();
        assert_eq!(chain.server(2).call(&["GET", "k"]), bulk(if is_removed { "true" } else { "false" }));
    }
}

/// More keys than one batch has: a replica waits for the next one while it executes them.
#[test]
fn a_long_transaction_that_waits_for_a_dead_node_goes_on_when_that_is_removed() {
    let mut chain = Chain::new(3, &[]);
    chain.start_all();
    chain.kill(2);
    let mut resp = chain.resp(0);
    let words: Vec<String> = std::iter::once("MSET".into())
        .chain((0..9000).flat_map(|key| [format!("key:{key}"), "value".into()]))
        .collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            assert_eq!(resp.call(&words).unwrap(), ok());
            is_done.store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(500));
        assert!(!is_done.load(Ordering::Acquire), "the last node does not have it");
        chain.remove(2);
    });
    chain.wait_until_in_step();
    assert_eq!(same_everywhere(&chain, &[0, 1]).len(), 9000);
}

#[test]
fn wait_counts_the_nodes_of_the_view_although_nobody_writes() {
    let mut chain = Chain::new(3, &[]);
    chain.start_all();
    let copies = |chain: &Chain| chain.server(0).call(&["WAIT", "2", "0"]);
    let counts = |chain: &Chain, wanted: i64| {
        let counted = wait_until(LIMIT, || (copies(chain) == Reply::Int(wanted)).then_some(()));
        assert!(counted.is_some(), "{:?} and not {wanted}", copies(chain));
    };
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    assert_eq!(copies(&chain), Reply::Int(2));
    chain.remove(2);
    counts(&chain, 1);
    chain.kill(2);
    chain.add(2);
    chain.start(2);
    counts(&chain, 2);
}

#[test]
fn wrong_places_are_refused_with_what_to_do() {
    let mut chain = Chain::new(2, &[]);
    let refused = |chain: &Chain, index| chain.try_start(index).err().expect("it is refused").words;
    chain.start_all();
    chain.kill(0);
    // The data of the first node are gone: those of the others must not be replaced by nothing.
    chain.nodes[0].lose_disk();
    let words = refused(&chain, 0);
    assert!(
        words.contains("its region does not hold the chain's data") && words.contains("chain init"),
        "{words}"
    );
    chain.kill(1);
    std::fs::rename(chain.nodes[1].place.dir(), chain.nodes[0].place.dir()).unwrap();
    let words = refused(&chain, 0);
    assert!(words.contains("is b of the chain orders"), "{words}");
    std::fs::rename(chain.nodes[0].place.dir(), chain.nodes[1].place.dir()).unwrap();
    std::fs::write(chain.view_path(), "nonsense").unwrap();
    let words = refused(&chain, 1);
    assert!(words.contains("no view of a chain"), "{words}");
    let output = common::landfall(&["serve", "--chain", chain.view()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--node NAME"));
}

#[test]
fn the_region_of_a_node_is_served_in_its_chain_only() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    chain.kill(1);
    let dir = chain.nodes[1].place.dir().to_str().unwrap().to_owned();
    let point = tempfile::tempdir().unwrap();
    let refused = |words: &[&str]| {
        let output = common::landfall(&[words, &["--dir", &dir]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && said.contains("the node b of the chain orders"),
            "{words:?}: {said}"
        );
    };
    let insecure = "--insecure-no-password";
    refused(&["serve", "--resp", "127.0.0.1:0", "--http", "off", insecure]);
    refused(&["wal", "serve", "--resp", "127.0.0.1:0", "--http", "off", insecure]);
    refused(&["fs", "mount", point.path().to_str().unwrap()]);
    refused(&["fs", "serve"]);
    // Who knows what that means may.
    std::fs::remove_file(chain.nodes[1].place.dir().join("chain")).unwrap();
    let server = chain.nodes[1].place.start(&[]);
    assert_eq!(server.call(&["SET", "outside", "yes"]), ok());
    assert!(server.stop().success());
}

#[test]
fn an_older_view_is_ignored_and_a_removed_node_serves_nothing() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let first = std::fs::read_to_string(chain.view_path()).unwrap();
    let mut begun = chain.resp(0);
    assert_eq!(begun.call(&[b"MULTI"]).unwrap(), ok());
    assert_eq!(begun.call(&[b"SET", b"k", b"queued before"]).unwrap(), Reply::Simple("QUEUED".into()));
    chain.remove(0);
    assert_eq!(chain.wait_until_in_step(), 1);
    let is_removed = || {
        let reply = chain.server(0).call(&["GET", "k"]);
        matches!(reply, Reply::Error(text) if text.starts_with("MASTERDOWN")).then_some(())
    };
    wait_until(REPLY_LIMIT, is_removed).expect("it serves nothing");
    let refused = begun.call(&[b"EXEC"]).unwrap();
    assert!(matches!(&refused, Reply::Error(text) if text.starts_with("EXECABORT")), "{refused:?}");
    assert!(begun.read().is_err(), "the client has to find another server");
    std::fs::write(chain.view_path(), first).unwrap();
    let is_ignored =
        || chain.nodes[1].place.log().contains("the view that was read before counts").then_some(());
    wait_until(REPLY_LIMIT, is_ignored).expect("it says so");
    assert_eq!(chain.server(1).call(&["SET", "k", "v"]), ok());
    // Nor does it count at their next starts.
    for index in [0, 1] {
        chain.kill(index);
        let words = chain.try_start(index).err().expect("it is refused").words;
        assert!(words.contains("nodes may have missed what was written since"), "{words}");
    }
}

#[test]
fn a_view_that_has_a_node_back_as_if_it_had_missed_nothing_is_ignored() {
    let mut chain = Chain::new(3, &[]);
    chain.start_all();
    let first = std::fs::read_to_string(chain.view_path()).unwrap();
    chain.kill(1);
    chain.remove(1);
    wait_until(REPLY_LIMIT, || (chain.server(0).call(&["SET", "k", "v"]) == ok()).then_some(()))
        .expect("served");
    let raised = |line: &str| match line.strip_prefix("version = ") {
        Some(version) => format!("version = {}\n", version.parse::<u64>().unwrap() + 2),
        None => format!("{line}\n"),
    };
    std::fs::write(chain.view_path(), first.lines().map(raised).collect::<String>()).unwrap();
    let is_ignored =
        || chain.nodes[0].place.log().contains("b was no member all the time since").then_some(());
    wait_until(REPLY_LIMIT, is_ignored).expect("it says so");
    assert_eq!(chain.server(0).call(&["SET", "k", "w"]), ok());
}

#[test]
fn a_region_that_is_not_the_nodes_own_is_copied_to() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    chain.kill(1);
    // The file beside it says that it has the chain's data.
    std::fs::remove_file(chain.nodes[1].place.region()).unwrap();
    chain.start(1);
    assert_eq!(chain.wait_until_in_step(), 0);
    let mut replica = chain.resp(1);
    assert_eq!(replica.call(&[b"GET", b"k"]).unwrap(), bulk("v"));
    chain.kill(0);
    std::fs::remove_file(chain.nodes[0].place.region()).unwrap();
    let words = chain.try_start(0).err().expect("it is refused").words;
    assert!(words.contains("its region does not hold the chain's data"), "{words}");
    let words = chain.try_start(0).err().expect("it is refused again").words;
    assert!(words.contains("its region does not hold the chain's data"), "{words}");
}

#[test]
fn a_chain_that_is_made_anew_has_nothing_of_an_earlier_one_of_its_name() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["SET", "k", "old"]), ok());
    chain.kill(0);
    chain.kill(1);
    // The first region leaves the chain, and serves alone.
    std::fs::remove_file(chain.nodes[0].place.dir().join("chain")).unwrap();
    let alone = chain.nodes[0].place.start(&[]);
    assert_eq!(alone.call(&["SET", "k", "new"]), ok());
    assert!(alone.stop().success());
    // A chain has its time of creation, in seconds.
    std::thread::sleep(Duration::from_millis(1100));
    chain.create_again();
    chain.start_all();
    assert_eq!(chain.wait_until_in_step(), 0);
    let mut replica = chain.resp(1);
    assert_eq!(replica.call(&[b"GET", b"k"]).unwrap(), bulk("new"));
}

#[test]
fn nodes_with_different_passwords_do_not_talk() {
    let mut chain = Chain::new(2, &[]);
    let (one, other) = (Place::new(), Place::new());
    let (one, other) = (one.file("one", "secret\n"), other.file("other", "another\n"));
    let start = |chain: &Chain, index: usize, password: &std::path::Path| {
        let flags = ["--chain", chain.view(), "--node", &chain.nodes[index].name, "--password-file"];
        chain.nodes[index].place.start(&[&flags[..], &[password.to_str().unwrap()]].concat())
    };
    let first = start(&chain, 0, &one);
    let second = start(&chain, 1, &other);
    let says = |chain: &Chain| chain.nodes[0].place.log().contains("wrong password").then_some(());
    wait_until(REPLY_LIMIT, || says(&chain)).expect("it says so");
    second.kill();
    let second = start(&chain, 1, &one);
    let mut resp = first.resp();
    assert_eq!(resp.call(&[b"AUTH", b"secret"]).unwrap(), ok());
    wait_until(REPLY_LIMIT, || (resp.call(&[b"SET", b"k", b"v"]).unwrap() == ok()).then_some(()))
        .expect("served");
    let mut resp = second.resp();
    assert_eq!(resp.call(&[b"AUTH", b"secret"]).unwrap(), ok());
    wait_until(REPLY_LIMIT, || (resp.call(&[b"GET", b"k"]).unwrap() == bulk("v")).then_some(()))
        .expect("copied");
    chain.nodes.clear();
}

#[test]
fn strangers_at_a_nodes_address_get_nothing_and_harm_nothing() {
    let mut chain = Chain::new(1, &[]);
    chain.start_all();
    let long = landfall_chain::message(Code::Chunk, 1, 1, &[7; 4000], 1 << 20);
    for bytes in [b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: somebody\r\n\r\n".to_vec(), vec![0; 4096], long]
    {
        let mut stranger = TcpStream::connect(chain.nodes[0].address).unwrap();
        stranger.set_read_timeout(Some(REPLY_LIMIT)).unwrap();
        stranger.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        // The end may be a reset, as not all was read.
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.len() < 200, "a refusal at most: {}", answer.len());
    }
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    assert_eq!(contents(chain.server(0)).len(), 1);
}

#[test]
fn strangers_in_any_number_keep_neither_a_node_nor_clients_out() {
    let mut chain = Chain::new(2, &["--max-clients", "20"]);
    chain.start_all();
    let (address, over) = (chain.nodes[1].address, AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut held = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let stranger = TcpStream::connect(address).and_then(|mut stranger| {
                    stranger.write_all(&b"LFCH"[..held.len() % 5])?;
                    Ok(stranger)
                });
                held.extend(stranger.ok());
                if held.len() >= 400 {
                    held.drain(..100);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _ends = Over(&over);
        std::thread::sleep(Duration::from_millis(800));
        assert!(chain.server(1).call(&["PING"]) == Reply::Simple("PONG".into()), "clients of b");
        chain.kill(0);
        chain.start(0);
        chain.wait_until_in_step();
        assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    });
    assert_eq!(same_everywhere(&chain, &[0, 1]).len(), 1);
}

/// A chunk with one group of records, under a version of the view.
fn chunk_of(version: u64, records: &[(RecordKind, u8, &[u8])]) -> Vec<u8> {
    let (mut head, value) = (Vec::new(), b"value");
    for (at, (kind, space, key)) in records.iter().enumerate() {
        let is_put = *kind == RecordKind::Put;
        let record = landfall_chain::Record {
            kind: *kind,
            more: at + 1 < records.len(),
            space: *space,
            aux: 0,
            arrival_ns: 1,
            mark: 0,
            key,
            value_len: if is_put { value.len() as u32 } else { 0 },
            value_crc: if is_put { crc32c(value) } else { 0 },
        };
        record.encode(&mut head);
    }
    let values: Vec<u8> =
        records.iter().filter(|put| put.0 == RecordKind::Put).flat_map(|_| *value).collect();
    let message = landfall_chain::message(Code::Chunk, version, 1, &head, values.len() as u64);
    [message, values].concat()
}

/// The CRC-32C of some bytes, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Somebody who knows the password, or a node with a fault, sends records of other systems in the place of keys.
#[test]
fn records_out_of_place_are_refused_and_change_nothing() {
    let mut chain = Chain::new(2, &[]);
    chain.start(1);
    let version = chain.version();
    let (put, tombstone) = (RecordKind::Put, RecordKind::Tombstone);
    let hostile: [&[(RecordKind, u8, &[u8])]; 8] = [
        &[(put, 0, b"key"), (put, 53, b"0123456789ab")],
        &[(put, 53, b"0123456789ab"), (put, 0, b"key")],
        &[(put, 0, b"key"), (tombstone, 49, b"01234567")],
        &[(tombstone, 53, b"0123456789ab")],
        &[(put, 200, b"key")],
        &[(RecordKind::Flush, 0, b""), (put, 0, b"key")],
        &[(put, 0, b"key"), (put, 16, b"01234567log")],
        &[(RecordKind::Bound, 0, b"key")],
    ];
    for (at, records) in (1..).zip(hostile) {
        let hello = landfall_chain::Hello {
            stream: 0,
            incarnation: 1000 + at,
            is_in_step: true,
            chain: "orders".into(),
            from: "a".into(),
            to: "b".into(),
            password: Vec::new(),
        };
        let message = [hello.encode(version), chunk_of(version, records)].concat();
        // A node that has just started welcomes nobody for a moment.
        let codes = wait_until(REPLY_LIMIT, || {
            let codes = codes_answered(chain.nodes[1].address, &message);
            (codes.first() == Some(&(Code::Welcome as u8))).then_some(codes)
        });
        assert_eq!(codes, Some(vec![Code::Welcome as u8, Code::Refused as u8]), "{records:?}");
    }
    // It is alive, and what it has can be opened again.
    assert!(chain.info(1, "chain_role").is_some());
    chain.kill(1);
    let checked = chain.nodes[1].place.check(&[]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    chain.start(1);
    assert!(chain.info(1, "chain_role").is_some());
}

#[test]
fn a_node_of_another_release_is_refused_and_the_log_says_so_once() {
    let mut chain = Chain::new(2, &[]);
    chain.start(1);
    let hello = landfall_chain::Hello {
        stream: 0,
        incarnation: 1000,
        is_in_step: true,
        chain: "orders".into(),
        from: "a".into(),
        to: "b".into(),
        password: Vec::new(),
    };
    let mut message = hello.encode(chain.version());
    message[4] += 1;
    for _ in 0..3 {
        assert_eq!(codes_answered(chain.nodes[1].address, &message), [Code::Refused as u8]);
    }
    let log = chain.nodes[1].place.log();
    assert_eq!(log.matches("is of another release").count(), 1, "{log}");
    assert!(chain.info(1, "chain_role").is_some());
}

/// Answers as a node in step with room since the first version, but not to the first chunk.
fn answer_all_but_the_first_chunk(
    mut peer: TcpStream,
    version: u64,
    chunks: &AtomicU64,
) -> std::io::Result<()> {
    loop {
        let mut bytes = [0; landfall_chain::HEADER_BYTES];
        peer.read_exact(&mut bytes)?;
        let header = Header::decode(&bytes).unwrap();
        let mut rest = vec![0; header.message_len() - bytes.len()];
        peer.read_exact(&mut rest)?;
        let room = Report { order: header.number + 1, free: 1 << 30, obtainable: 1 << 30 };
        match header.code {
            Code::Hello => peer.write_all(&Welcome { since: version, files: 0 }.encode(version, room))?,
            Code::Chunk if chunks.fetch_add(1, Ordering::SeqCst) == 0 => {}
            _ => peer.write_all(&Acknowledged { nodes: 1, room }.encode(version, header.number))?,
        }
    }
}

/// Its machine lives, and so does the connection.
#[test]
fn a_node_that_does_not_answer_is_connected_to_anew() {
    let mut chain = Chain::new(2, &["--workers", "1"]);
    let (listener, chunks) =
        (TcpListener::bind(chain.nodes[1].address).unwrap(), Arc::new(AtomicU64::new(0)));
    let (counted, version) = (Arc::clone(&chunks), chain.version());
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            let chunks = Arc::clone(&counted);
            std::thread::spawn(move || answer_all_but_the_first_chunk(peer.unwrap(), version, &chunks));
        }
    });
    chain.start(0);
    let is_first = || (chain.info(0, "chain_role").as_deref() == Some("first")).then_some(());
    wait_until(LIMIT, is_first).expect("it serves");
    assert_eq!(chain.resp(0).call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    assert_eq!(chunks.load(Ordering::SeqCst), 2, "the batch was sent again");
    let words = chain.words();
    assert!(words.contains("no answer to a batch for 30 s"), "{words}");
}

#[test]
fn an_address_that_others_reach_needs_a_password() {
    let chain = Chain::new(1, &[]);
    let text = std::fs::read_to_string(chain.view_path()).unwrap();
    std::fs::write(chain.view_path(), text.replace("127.", "192.")).unwrap();
    let words = chain.try_start(0).err().expect("it is refused").words;
    assert!(words.contains("reachable from other machines"), "{words}");
}

/// What a client knows of its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The highest number that was acknowledged.
    acknowledged: u64,
    /// The highest number that was sent.
    sent: u64,
    /// The highest number that a reader has seen, at any node.
    seen: u64,
}

/// Writes numbers that only grow, to the node that takes writes, until the end.
fn write(addresses: &Addresses, over: &AtomicBool, known: &Mutex<Vec<Known>>, client: usize) {
    addresses.write_until(over, |to, number| {
        let at = client * KEYS + number as usize % KEYS;
        known.lock().unwrap()[at].sent = number;
        let value = [format!("{number}:").into_bytes(), pattern(number, number as usize % 700)].concat();
        let is_acknowledged =
            to.call(&[b"SET", format!("key:{at}").as_bytes(), &value]).is_ok_and(|reply| reply == ok());
        if is_acknowledged {
            known.lock().unwrap()[at].acknowledged = number;
        }
        is_acknowledged
    });
}

fn number_of(value: &[u8]) -> u64 {
    let end = value.iter().position(|byte| *byte == b':').expect("a number");
    let number = std::str::from_utf8(&value[..end]).unwrap().parse().unwrap();
    assert_eq!(value[end + 1..], pattern(number, number as usize % 700), "torn");
    number
}

/// Reads at all nodes in turn, until the end.
fn read(addresses: &Addresses, over: &AtomicBool, known: &Mutex<Vec<Known>>, nodes: usize) {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        count += 1;
        let Some(mut resp) = addresses.of(count % nodes) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        for at in 0..CLIENTS * KEYS {
            let Ok(reply) = resp.call(&[b"GET", format!("key:{at}").as_bytes()]) else { break };
            if let Reply::Bulk(value) = reply {
                let number = number_of(&value);
                let known = &mut known.lock().unwrap()[at];
                known.seen = known.seen.max(number);
            }
        }
    }
}

#[test]
fn whatever_is_killed_removed_or_added_nothing_acknowledged_or_shown_is_lost() {
    let mut chain = Chain::new(3, &["--workers", "2"]);
    chain.start_all();
    let addresses = Addresses::of_all(&chain);
    let (over, known) = (AtomicBool::new(false), Mutex::new(vec![Known::default(); CLIENTS * KEYS]));
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (addresses, over, known) = (&addresses, &over, &known);
            threads.spawn(move || write(addresses, over, known, client));
        }
        threads.spawn(|| read(&addresses, &over, &known, 3));
        let _ends = Over(&over);
        hunt(&mut chain, &addresses);
    });
    let all = same_everywhere(&chain, &[0, 1, 2]);
    let mut acknowledged = 0;
    for (at, known) in known.lock().unwrap().iter().enumerate() {
        let found = all.get(&(0, format!("key:{at}").into_bytes())).map_or(0, |value| number_of(value));
        let least = known.acknowledged.max(known.seen);
        assert!((least..=known.sent).contains(&found), "key:{at}: {found}, {known:?}{}", chain.words());
        acknowledged += known.acknowledged;
    }
    assert!(acknowledged > 100, "they did write: {acknowledged}");
}
