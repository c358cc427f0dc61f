//! A chain whose nodes have regions of different sizes: the smallest one says when the chain is full.

mod common;

use common::chain::{Chain, LIMIT, REPLY_LIMIT};
use common::faults::Over;
use common::{Reply, Resp, bulk, ok, pattern, wait_until};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest time for an answer, also of a full chain.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Clients that write at once.
const CLIENTS: u64 = 4;

/// Nodes with regions of these sizes, in step: the first one knows how much room all have.
fn chain<const N: usize>(capacities: [&str; N], flags: &[&str]) -> Chain {
    let mut chain = Chain::new(N, flags);
    for (node, capacity) in chain.nodes.iter_mut().zip(capacities) {
        node.flags = vec!["--capacity".into(), capacity.into()];
    }
    chain.start_all();
    chain.wait_until_in_step();
    chain
}

fn is_full(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("OOM command not allowed: the region is full"))
}

/// A length of a value, mixed: most are short, some are long.
fn length(seed: u64) -> usize {
    match seed % 16 {
        0 => 300_000,
        1..4 => 20_000,
        4..10 => 2_000,
        _ => 40,
    }
}

/// A value, of which many can be compressed.
fn value(seed: u64) -> Vec<u8> {
    let mut bytes = pattern(seed, length(seed));
    if !seed.is_multiple_of(5) {
        bytes.chunks_mut(100).for_each(|part| part.iter_mut().skip(40).for_each(|byte| *byte = 0));
    }
    bytes
}

/// Sends words and panics if there is no answer in time.
fn answer(resp: &mut Resp, words: &[&[u8]]) -> Reply {
    let begun = Instant::now();
    let reply = resp.call(words).unwrap_or_else(|error| panic!("no answer to {:?}: {error}", &words[..1]));
    assert!(begun.elapsed() < ANSWER_MAX, "{:?} took {:?}", &words[..1], begun.elapsed());
    reply
}

/// Writes until the chain is full. Returns what was acknowledged: keys, and the seeds of their values.
fn fill(chain: &Chain, first: usize, client: u64, round: u64) -> BTreeMap<String, u64> {
    let (mut resp, mut known) = (chain.resp(first), BTreeMap::new());
    for index in 0_u64.. {
        let (key, seed) = (format!("{round}:{client}:{index}"), index * 7 + client * 3 + round);
        let reply = answer(&mut resp, &[b"SET", key.as_bytes(), &value(seed)]);
        if reply == ok() {
            known.insert(key, seed);
        } else {
            assert!(is_full(&reply), "{reply:?}");
            break;
        }
    }
    known
}

/// [`fill`] by several clients at once.
fn fill_by_all(chain: &Chain, first: usize, round: u64) -> BTreeMap<String, u64> {
    std::thread::scope(|threads| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|client| threads.spawn(move || fill(chain, first, client, round))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// Fails unless a node has exactly this.
fn has(chain: &Chain, node: usize, known: &BTreeMap<String, u64>) {
    let mut resp = chain.resp(node);
    let Reply::Int(count) = resp.call(&[b"DBSIZE"]).unwrap() else { panic!("a number") };
    assert_eq!(usize::try_from(count).unwrap(), known.len(), "node {node}");
    for (key, seed) in known {
        let found = resp.call(&[b"GET", key.as_bytes()]).unwrap();
        assert!(found == Reply::Bulk(value(*seed)), "{key} at node {node}");
    }
}

/// Deletes every second key.
fn delete_half(chain: &Chain, first: usize, known: &mut BTreeMap<String, u64>) {
    let mut resp = chain.resp(first);
    let gone: Vec<String> = known.keys().step_by(2).cloned().collect();
    for key in gone {
        assert_eq!(answer(&mut resp, &[b"DEL", key.as_bytes()]), Reply::Int(1));
        known.remove(&key);
    }
}

/// A chain is filled, half of it deleted, filled again, killed, flushed and filled. Returns it.
fn fill_delete_and_fill(capacities: [&str; 3], flags: &[&str]) -> Chain {
    let mut chain = chain(capacities, flags);
    let mut known = fill_by_all(&chain, 0, 0);
    assert!(known.len() > 500, "{} keys", known.len());
    (0..3).for_each(|node| has(&chain, node, &known));
    delete_half(&chain, 0, &mut known);
    let more = fill_by_all(&chain, 0, 1);
    assert!(more.len() > known.len() / 4, "{} more, of {}", more.len(), known.len());
    known.extend(more);
    (0..3).for_each(|node| has(&chain, node, &known));
    (0..3).for_each(|node| chain.kill(node));
    chain.start_all();
    (0..3).for_each(|node| has(&chain, node, &known));
    assert_eq!(answer(&mut chain.resp(0), &[b"FLUSHALL", b"SYNC"]), ok());
    assert!(fill_by_all(&chain, 0, 2).len() > 500);
    chain
}

#[test]
fn the_smallest_region_says_when_the_chain_is_full_and_deletes_make_room_at_all_nodes() {
    for capacities in [["128MiB", "64MiB", "96MiB"], ["128MiB", "96MiB", "64MiB"]] {
        fill_delete_and_fill(capacities, &["--workers", "2"]);
    }
}

/// What is packed lies beside its values for a moment, and takes no room from what was admitted.
#[test]
fn a_full_chain_that_compresses_refuses_nothing_that_it_has_admitted() {
    let chain =
        fill_delete_and_fill(["128MiB", "64MiB", "96MiB"], &["--workers", "2", "--compression", "lz4"]);
    for node in 0..3 {
        let log = chain.nodes[node].place.log();
        assert!(!log.contains("has no room for what the chain has"), "{log}");
    }
    assert!(chain.server(1).metric("landfall_chain_unpacked_bytes_total") > 1_000_000.0);
}

#[test]
fn a_value_or_a_transaction_that_is_too_long_for_one_node_is_refused_and_the_chain_goes_on() {
    let chain = chain(["256MiB", "256MiB", "64MiB"], &["--workers", "2"]);
    let mut resp = chain.resp(0);
    let long = pattern(1, 80 << 20);
    assert!(is_full(&answer(&mut resp, &[b"SET", b"long", &long])));
    assert!(is_full(&answer(&mut resp, &[b"MSET", b"a", &long[..40 << 20], b"b", &long[40 << 20..]])));
    assert_eq!(answer(&mut resp, &[b"MULTI"]), ok());
    for part in long.chunks(16 << 20) {
        let key = part.len().to_string();
        resp.call(&[b"SET", key.as_bytes(), &part[..1000]]).unwrap();
        resp.call(&[b"APPEND", b"all", part]).unwrap();
    }
    assert!(is_full(&answer(&mut resp, &[b"EXEC"])));
    // More keys than a group has records.
    let keys: Vec<Vec<u8>> = (0..9000_u32).map(|index| format!("key:{index}").into_bytes()).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    keys.iter().for_each(|key| words.extend([&key[..], &long[..8000]]));
    assert!(is_full(&answer(&mut resp, &words)));
    assert_eq!(answer(&mut resp, &[b"DBSIZE"]), Reply::Int(0));
    let refused = chain.server(0).http().call("PUT", "/kv/long", "", &long).unwrap();
    assert_eq!(refused.status, 507, "{}", String::from_utf8_lossy(&refused.body));
    // What has room is taken, over and over: replaced versions make room for the next ones. Of the last node's 64 runs, 4
    // are slabs and spare slabs, 1 is the table, 23 are reserved, and up to 10 are being filled, most of them by two
    // transports, which ask for 2 to 4 each: 13 may be left beside a version of 13 runs.
    for seed in 0..20_u64 {
        assert_eq!(answer(&mut resp, &[b"SET", b"k", &pattern(seed, 12 << 20)]), ok(), "{seed}");
    }
    assert_eq!(answer(&mut chain.resp(2), &[b"GET", b"k"]), Reply::Bulk(pattern(19, 12 << 20)));
}

#[test]
fn a_chain_of_the_smallest_regions_takes_values() {
    let chain = chain(["32MiB"; 2], &["--workers", "2"]);
    let mut resp = chain.resp(0);
    for seed in 0..200_u64 {
        assert_eq!(answer(&mut resp, &[b"SET", b"k", &pattern(seed, 20_000)]), ok(), "{seed}");
    }
}

#[test]
fn room_that_appears_at_a_replica_is_noticed_without_a_write() {
    let chain = chain(["128MiB", "64MiB", "128MiB"], &[]);
    let (mut resp, part) = (chain.resp(0), pattern(1, 1 << 20));
    let begun = Instant::now();
    assert_eq!(answer(&mut resp, &[b"SET", b"soon", &pattern(1, 20 << 20), b"PX", b"10000"]), ok());
    let mut set = |key: u32| answer(&mut resp, &[b"SET", key.to_string().as_bytes(), &part]) == ok();
    let first_refused = (0..).find(|key| !set(*key)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(9), "it is full before the key expires");
    let is_taken = || set(first_refused).then_some(());
    wait_until(REPLY_LIMIT, is_taken).expect("the key has expired at the replica");
}

#[test]
fn values_find_room_while_others_are_deleted_and_all_nodes_are_killed() {
    let mut chain = chain(["64MiB", "96MiB", "64MiB"], &["--workers", "2"]);
    let over = AtomicBool::new(false);
    let (written, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let known: Vec<BTreeMap<String, u64>> = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (chain, over, written, refused) = (&chain, &over, &written, &refused);
                threads.spawn(move || {
                    let (mut resp, mut known) = (chain.resp(0), BTreeMap::new());
                    for index in 0_u64.. {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        let (key, seed) = (format!("{client}:{}", index * 7919 % 1500), index * 5 + client);
                        let words: [&[u8]; 3] = [b"SET", key.as_bytes(), &value(seed)];
                        let reply = answer(&mut resp, &words);
                        if reply == ok() {
                            known.insert(key, seed);
                            written.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        assert!(is_full(&reply), "{reply:?}");
                        refused.fetch_add(1, Ordering::Relaxed);
                        // Some of its keys make way.
                        let gone: Vec<String> = known.keys().step_by(5).cloned().collect();
                        for key in gone {
                            assert_eq!(answer(&mut resp, &[b"DEL", key.as_bytes()]), Reply::Int(1));
                            known.remove(&key);
                        }
                    }
                    known
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(8));
        // A busy machine takes longer.
        let was_full = wait_until(LIMIT, || (refused.load(Ordering::Relaxed) > 3).then_some(()));
        over.store(true, Ordering::Relaxed);
        assert!(was_full.is_some(), "it was full: {refused:?} of {written:?}");
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let known: BTreeMap<String, u64> = known.into_iter().flatten().collect();
    (0..3).for_each(|node| has(&chain, node, &known));
    (0..3).for_each(|node| chain.kill(node));
    chain.start_all();
    (0..3).for_each(|node| has(&chain, node, &known));
    // Another node takes writes.
    chain.kill(0);
    chain.remove(0);
    assert_eq!(chain.wait_until_in_step(), 1);
    let mut known = known;
    known.extend(fill_by_all(&chain, 1, 9));
    delete_half(&chain, 1, &mut known);
    known.extend(fill_by_all(&chain, 1, 10));
    [1, 2].iter().for_each(|node| has(&chain, *node, &known));
}

#[test]
fn a_node_without_room_for_a_copy_is_left_out_and_says_so_until_it_has_room() {
    let mut chain = chain(["128MiB", "128MiB", "128MiB"], &["--workers", "2"]);
    chain.kill(2);
    chain.remove(2);
    chain.wait_until_in_step();
    let known = fill(&chain, 0, 0, 0);
    chain.nodes[2].flags[1] = "64MiB".into();
    chain.nodes[2].lose_disk();
    chain.add(2);
    chain.start(2);
    let is_left_out = || {
        let says = |node: usize, text: &str| chain.nodes[node].place.log().contains(text);
        let is_full = chain.info(1, "chain_next").is_some_and(|next| next.ends_with("state=full"));
        (is_full
            && says(1, "the node behind has no room for a copy: the chain goes on without it")
            && says(2, "c has no room for what the chain has: start it with a larger --capacity"))
        .then_some(())
    };
    wait_until(REPLY_LIMIT, is_left_out).unwrap_or_else(|| panic!("nobody says so{}", chain.words()));
    assert_eq!(chain.server(1).metric("landfall_chain_next_full"), 1.0);
    let mut resp = chain.resp(0);
    for key in known.keys() {
        assert_eq!(answer(&mut resp, &[b"DEL", key.as_bytes()]), Reply::Int(1));
    }
    assert_eq!(answer(&mut resp, &[b"SET", b"k", b"v"]), ok());
    chain.wait_until_in_step();
    assert_eq!(answer(&mut chain.resp(2), &[b"GET", b"k"]), bulk("v"));
    assert_eq!(chain.server(1).metric("landfall_chain_next_full"), 0.0);
}

#[test]
fn a_long_value_in_a_nearly_full_chain_survives_lost_connections() {
    let mut chain = chain(["96MiB", "64MiB", "64MiB"], &[]);
    let mut resp = chain.resp(0);
    let long = pattern(1, 30 << 20);
    assert_eq!(answer(&mut resp, &[b"SET", b"long", &long]), ok());
    for node in [2, 1, 0] {
        chain.kill(node);
        chain.start(node);
        chain.wait_until_in_step();
        let mut resp = chain.resp(0);
        assert_eq!(answer(&mut resp, &[b"SET", b"short", b"v"]), ok(), "node {node}");
        assert_eq!(answer(&mut resp, &[b"GET", b"long"]), Reply::Bulk(long.clone()));
    }
}

#[test]
fn long_values_under_way_are_sent_again_where_they_have_room_only_once() {
    let mut chain = chain(["128MiB", "64MiB", "64MiB"], &["--workers", "1"]);
    let (stays, long) = (pattern(1, 11 << 20), |seed: u64| pattern(seed, 11 << 20));
    assert_eq!(answer(&mut chain.resp(0), &[b"SET", b"stays", &stays]), ok());
    let over = AtomicBool::new(false);
    let mut resp = chain.resp(0);
    let last = std::thread::scope(|threads| {
        let ends = Over(&over);
        let writer = threads.spawn(|| {
            let mut seed = 0;
            while !over.load(Ordering::Relaxed) || seed <= 5 {
                seed += 1;
                assert_eq!(resp.call(&[b"SET", b"long", &long(seed)]).unwrap(), ok(), "{seed}");
            }
            seed
        });
        for node in [2, 1, 2, 1, 1, 2] {
            std::thread::sleep(Duration::from_millis(700));
            chain.kill(node);
            chain.start(node);
        }
        chain.wait_until_in_step();
        std::thread::sleep(Duration::from_millis(500));
        drop(ends);
        writer.join().unwrap()
    });
    for node in 0..3 {
        let mut resp = chain.resp(node);
        assert_eq!(resp.call(&[b"GET", b"stays"]).unwrap(), Reply::Bulk(stays.clone()));
        assert_eq!(resp.call(&[b"GET", b"long"]).unwrap(), Reply::Bulk(long(last)), "node {node}");
    }
}

/// What a key may have: the seeds of its values, `None` for no value. One of them after an acknowledgement.
type Possible = BTreeMap<String, Vec<Option<u64>>>;

/// Writes and deletes keys of its own at the first node, whichever that is, until the end. Returns what they may have.
fn write_and_delete(
    first: &Mutex<Option<SocketAddr>>,
    over: &AtomicBool,
    client: u64,
    refused: &AtomicU64,
) -> Possible {
    let (mut resp, mut possible, mut seed) = (None, Possible::new(), client);
    while !over.load(Ordering::Relaxed) {
        let Some(to) = &mut resp else {
            resp = first.lock().unwrap().and_then(|address| Resp::connect(address, REPLY_LIMIT).ok());
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        seed += CLIENTS;
        let key = format!("{client}:{}", seed * 7919 % 1009);
        let next = (!seed.is_multiple_of(3)).then_some(seed);
        let known = possible.entry(key.clone()).or_insert_with(|| vec![None]);
        known.push(next);
        let value = value(seed);
        let reply = match next {
            Some(_) => to.call(&[b"SET", key.as_bytes(), &value]),
            None => to.call(&[b"DEL", key.as_bytes()]),
        };
        match reply {
            Ok(reply) if reply == ok() || matches!(reply, Reply::Int(_)) => *known = vec![next],
            Ok(reply) if is_full(&reply) => {
                refused.fetch_add(1, Ordering::Relaxed);
                known.pop();
            }
            _ => resp = None,
        }
    }
    possible
}

#[test]
fn a_chain_that_is_nearly_full_loses_nothing_whatever_is_killed_removed_or_added() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (kills, mut draw) = (number("LANDFALL_KILLS", 6), number("LANDFALL_SEED", 1));
    let mut below = |bound: u64| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (draw >> 33) % bound
    };
    let mut chain = chain(["48MiB"; 3], &["--workers", "2"]);
    let (first, over) = (Mutex::new(Some(chain.server(0).resp)), AtomicBool::new(false));
    let refused = AtomicU64::new(0);
    let possible: Possible = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (first, over, refused) = (&first, &over, &refused);
                threads.spawn(move || write_and_delete(first, over, client, refused))
            })
            .collect();
        let ends = Over(&over);
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(500 + below(1500)));
            let victim = below(3) as usize;
            *first.lock().unwrap() = None;
            chain.kill(victim);
            if below(3) == 0 {
                chain.remove(victim);
                *first.lock().unwrap() = Some(chain.server(chain.wait_until_in_step()).resp);
                std::thread::sleep(Duration::from_millis(below(500)));
                chain.add(victim);
            }
            chain.start(victim);
            *first.lock().unwrap() = Some(chain.server(chain.wait_until_in_step()).resp);
        }
        std::thread::sleep(Duration::from_millis(500));
        let was_full = wait_until(LIMIT, || (refused.load(Ordering::Relaxed) > 10).then_some(()));
        assert!(was_full.is_some(), "{refused:?} were refused");
        drop(ends);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    for node in 0..3 {
        let mut resp = chain.resp(node);
        for (key, seeds) in &possible {
            let reply = resp.call(&[b"GET", key.as_bytes()]).unwrap();
            let is_one = seeds.iter().any(|seed| match seed {
                Some(seed) => reply == Reply::Bulk(value(*seed)),
                None => reply == Reply::Nil,
            });
            assert!(is_one, "{key} at node {node}: none of {seeds:?}{}", chain.words());
        }
    }
    let mut resp = chain.resp(chain.wait_until_in_step());
    assert_eq!(answer(&mut resp, &[b"FLUSHALL"]), ok());
    assert_eq!(answer(&mut resp, &[b"SET", b"k", &pattern(1, 1 << 20)]), ok());
}

#[test]
fn a_transaction_that_deletes_more_long_keys_than_a_full_chain_has_room_for_is_refused() {
    let mut chain = Chain::new(2, &["--workers", "1", "--capacity", "64MiB"]);
    chain.start_all();
    let (mut resp, mut writer) = (chain.resp(0), chain.resp(0));
    let mut fill = || {
        let taken = |seed: &u64| {
            let reply = answer(&mut writer, &[b"SET", &pattern(*seed, 60_000), b"v"]);
            assert!(reply == ok() || is_full(&reply), "{reply:?}");
            reply == ok()
        };
        (0..).take_while(taken).count()
    };
    let stored = fill();
    assert_eq!(answer(&mut resp, &[b"MULTI"]), ok());
    answer(&mut resp, &[b"FLUSHDB"]);
    // Its tombstones have the keys.
    let refused = answer(&mut resp, &[b"EXEC"]);
    assert!(is_full(&refused), "{refused:?}");
    let count = Reply::Int(i64::try_from(stored).unwrap());
    assert_eq!(answer(&mut resp, &[b"DBSIZE"]), count);
    // A part of them has room, and so has everything by itself.
    assert_eq!(answer(&mut resp, &[b"DEL", &pattern(0, 60_000), &pattern(1, 60_000)]), Reply::Int(2));
    assert_eq!(answer(&mut resp, &[b"FLUSHDB"]), ok());
    assert!(fill() > stored / 2);
}

/// Requests find no room at a full chain; some wait for an answer of the node behind, and are refused at the first one
/// meanwhile. What they have waited for is not held against the next one.
#[test]
fn who_finds_no_room_is_not_refused_for_what_others_have_waited_for() {
    let mut chain = chain(["48MiB"; 2], &["--workers", "1"]);
    let mut resp = chain.resp(0);
    for round in 0..12 {
        let (over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
        let first = Mutex::new(Some(chain.server(0).resp));
        std::thread::scope(|threads| {
            for client in 0..CLIENTS {
                let (first, over, refused) = (&first, &over, &refused);
                threads.spawn(move || write_and_delete(first, over, client + round * CLIENTS, refused));
            }
            let ends = Over(&over);
            let is_full = || (refused.load(Ordering::Relaxed) > 20).then_some(());
            wait_until(LIMIT, is_full).expect("it is full");
            drop(ends);
        });
        assert_eq!(answer(&mut resp, &[b"FLUSHALL"]), ok());
        assert_eq!(answer(&mut resp, &[b"SET", b"k", &pattern(1, 1 << 20)]), ok(), "round {round}");
    }
    chain.end(&[0, 1]);
}
