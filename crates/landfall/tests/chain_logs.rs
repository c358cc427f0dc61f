//! Logs on a chain: what the first server acknowledges, every server has, at the same offsets.

mod common;

use common::chain::{Chain, REPLY_LIMIT};
use common::faults::{Addresses, Over, hunt};
use common::{Reply, Resp, bulk, ok, pattern, wait_until};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CLIENTS: usize = 4;
const LOGS: usize = 3;

/// A log at one node: first offset, entries by offset, settings, position of the consumer `reader`.
type Found = (u64, BTreeMap<u64, Vec<u8>>, String, Reply);

fn int(reply: Reply) -> u64 {
    let Reply::Int(number) = reply else { panic!("a number, not {reply:?}") };
    u64::try_from(number).unwrap()
}

fn text(reply: Reply) -> Vec<u8> {
    let Reply::Bulk(text) = reply else { panic!("a text, not {reply:?}") };
    text
}

fn entries(resp: &mut Resp, log: &str, first: u64) -> BTreeMap<u64, Vec<u8>> {
    let (mut all, mut next) = (BTreeMap::new(), first);
    loop {
        let from = next.to_string();
        let read = resp.call(&[b"LF.READ", log.as_bytes(), from.as_bytes(), b"COUNT", b"500"]).unwrap();
        let Reply::Array(page) = read else { panic!("entries of {log} from {from}: {read:?}") };
        if page.is_empty() {
            return all;
        }
        for entry in page {
            let Reply::Array(entry) = entry else { panic!("an entry") };
            let [offset, value] = <[Reply; 2]>::try_from(entry).unwrap();
            let offset = int(offset);
            assert_eq!(offset, next, "offsets are dense");
            all.insert(offset, text(value));
            next += 1;
        }
    }
}

/// All logs of a node.
fn logs(resp: &mut Resp) -> BTreeMap<String, Found> {
    let Reply::Array(logs) = resp.call(&[b"LF.LOGS"]).unwrap() else { panic!("logs") };
    let describe = |log: Reply| {
        let Reply::Array(fields) = log else { panic!("a log: {log:?}") };
        let name = String::from_utf8(text(fields[1].clone())).unwrap();
        let first = int(fields[3].clone());
        let retained = format!("{:?}", resp.call(&[b"LF.RETAIN", name.as_bytes()]).unwrap());
        let position = resp.call(&[b"LF.POSITION", name.as_bytes(), b"reader"]).unwrap();
        let found = (first, entries(resp, &name, first), retained, position);
        (name, found)
    };
    logs.into_iter().map(describe).collect()
}

/// Fails unless all nodes have the same logs. Returns them.
fn same_everywhere(chain: &Chain) -> BTreeMap<String, Found> {
    let first = logs(&mut chain.resp(0));
    for index in 1..chain.nodes.len() {
        let found = logs(&mut chain.resp(index));
        let differs = |log: &&String| found.get(*log) != first.get(*log);
        let differing: Vec<&String> = first.keys().chain(found.keys()).filter(differs).collect();
        assert!(differing.is_empty(), "{}: {differing:?}{}", chain.nodes[index].name, chain.words());
    }
    first
}

#[test]
fn what_the_first_server_acknowledges_all_have_at_the_same_offsets() {
    let mut chain = Chain::new(3, &["--workers", "2"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    let long = pattern(3, 3 << 20);
    assert_eq!(int(resp.call(&[b"LF.APPEND", b"orders", b"one", b"", &long]).unwrap()), 0);
    assert_eq!(int(resp.call(&[b"LF.APPEND", b"orders", b"four"]).unwrap()), 3);
    assert_eq!(int(resp.call(&[b"LF.TRIM", b"orders", b"1"]).unwrap()), 1);
    assert_eq!(resp.call(&[b"LF.RETAIN", b"orders", b"ENTRIES", b"100"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"LF.COMMIT", b"orders", b"reader", b"2"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"LF.COMMIT", b"orders", b"gone", b"2"]).unwrap(), ok());
    assert_eq!(int(resp.call(&[b"LF.FORGET", b"orders", b"gone"]).unwrap()), 1);
    for log in [&b"short"[..], b"again"] {
        assert_eq!(int(resp.call(&[b"LF.APPEND", log, b"old"]).unwrap()), 0);
        assert_eq!(int(resp.call(&[b"LF.DELLOG", log]).unwrap()), 1);
    }
    assert_eq!(int(resp.call(&[b"LF.APPEND", b"again", b"new"]).unwrap()), 0);
    assert_eq!(chain.server(0).http().call("POST", "/wal/by-http", "", b"x").unwrap().status, 201);
    let all = same_everywhere(&chain);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["again", "by-http", "orders"]);
    let (first, entries, _, position) = &all["orders"];
    assert_eq!((*first, position), (1, &Reply::Int(2)));
    assert_eq!(entries.values().collect::<Vec<_>>(), [&b""[..], &long, b"four"]);
    assert_eq!(all["again"].1[&0], b"new");
}

#[test]
fn entries_land_at_every_server_without_a_copy() {
    let mut chain = Chain::new(3, &["--scrub-rate", "0"]);
    chain.start_all();
    let copied = |index: usize| {
        let of = |path: &str| {
            chain.server(index).metric(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}"))
        };
        ["placed", "reply", "stalled", "consolidated"].map(of)
    };
    let mut resp = chain.resp(0);
    // The head of a log is placed where the bytes of small values are.
    assert_eq!(int(resp.call(&[b"LF.APPEND", b"log", b"small"]).unwrap()), 0);
    let before: Vec<_> = (0..3).map(copied).collect();
    for seed in 0..50_u64 {
        resp.call(&[b"LF.APPEND", b"log", &pattern(seed, 4096), &pattern(seed + 1, 4096)]).unwrap();
    }
    assert_eq!(before, (0..3).map(copied).collect::<Vec<_>>());
    assert_eq!(same_everywhere(&chain)["log"].1.len(), 101);
}

#[test]
fn a_replica_answers_readers_that_wait_and_refuses_what_changes_a_log() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(int(chain.server(0).call(&["LF.APPEND", "log", "x"])), 0);
    let replica = chain.server(1);
    for refused in [
        &["LF.APPEND", "log", "y"][..],
        &["LF.TRIM", "log", "1"],
        &["LF.COMMIT", "log", "reader", "1"],
        &["LF.DELLOG", "log"],
        &["LF.RETAIN", "log", "ENTRIES", "5"],
    ] {
        let reply = replica.call(refused);
        assert!(matches!(&reply, Reply::Error(text) if text.starts_with("READONLY")), "{reply:?}");
    }
    assert_eq!(replica.http().call("DELETE", "/wal/log", "", b"").unwrap().status, 403);
    std::thread::scope(|threads| {
        // It need not wait yet when the entry comes.
        let waiting = threads.spawn(|| replica.call(&["LF.READ", "log", "1", "BLOCK", "20000"]));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(int(chain.server(0).call(&["LF.APPEND", "log", "y"])), 1);
        let Reply::Array(read) = waiting.join().unwrap() else { panic!("an entry") };
        assert_eq!(read, [Reply::Array(vec![Reply::Int(1), bulk("y")])]);
    });
}

#[test]
fn a_log_that_many_append_to_keeps_nobody_waiting_for_ever() {
    let mut chain = Chain::new(2, &["--workers", "2"]);
    chain.start_all();
    let counts: Mutex<Vec<u64>> = Mutex::new(vec![0; 8]);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for client in 0..8 {
            let (counts, over, mut resp) = (&counts, &over, chain.resp(0));
            threads.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    int(resp.call(&[b"LF.APPEND", b"log", client.to_string().as_bytes()]).unwrap());
                    counts.lock().unwrap()[client] += 1;
                }
            });
        }
        let _ends = Over(&over);
        let all_have_50 = || counts.lock().unwrap().iter().all(|count| *count >= 50).then_some(());
        wait_until(REPLY_LIMIT, all_have_50).unwrap_or_else(|| panic!("{:?}", counts.lock().unwrap()));
    });
    let all = same_everywhere(&chain);
    assert_eq!(all["log"].1.len() as u64, counts.into_inner().unwrap().iter().sum::<u64>());
}

/// What clients know of the entries of all logs.
#[derive(Default)]
struct Known {
    /// Values that were acknowledged, by log and offset.
    acknowledged: BTreeMap<(usize, u64), Vec<u8>>,
    /// Entries below these offsets may be gone.
    trimmed: [u64; LOGS],
}

fn name(log: usize) -> String {
    format!("log{log}")
}

/// Appends to all logs in turn, and trims them now and then, at the node that takes writes, until the end.
fn append(addresses: &Addresses, over: &AtomicBool, known: &Mutex<Known>, client: usize) {
    addresses.write_until(over, |to, number| {
        let log = (number as usize + client) % LOGS;
        let value =
            [format!("{client}:{number}:").into_bytes(), pattern(number, number as usize % 900)].concat();
        let appended = to.call(&[b"LF.APPEND", name(log).as_bytes(), &value, b"second"]);
        let Ok(Reply::Int(offset)) = appended else { return false };
        let offset = u64::try_from(offset).unwrap();
        let mut known = known.lock().unwrap();
        known.acknowledged.insert((log, offset), value);
        known.acknowledged.insert((log, offset + 1), b"second".to_vec());
        if !number.is_multiple_of(97) {
            return true;
        }
        let before = offset.saturating_sub(50);
        known.trimmed[log] = known.trimmed[log].max(before);
        drop(known);
        let trimmed = to.call(&[b"LF.TRIM", name(log).as_bytes(), before.to_string().as_bytes()]);
        matches!(trimmed, Ok(Reply::Int(_)))
    });
}

/// Reads at all nodes in turn, until the end: what was shown stays.
fn read(addresses: &Addresses, over: &AtomicBool, known: &Mutex<Known>, nodes: usize) {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        count += 1;
        std::thread::sleep(Duration::from_millis(5));
        let Some(mut resp) = addresses.of(count % nodes) else { continue };
        for log in 0..LOGS {
            let last = |known: &Known| {
                let of_log = known.acknowledged.range((log, 0)..(log + 1, 0));
                of_log.last().map_or(0, |((_, offset), _)| *offset)
            };
            let from = last(&known.lock().unwrap()).saturating_sub(5).to_string();
            let read = resp.call(&[b"LF.READ", name(log).as_bytes(), from.as_bytes(), b"COUNT", b"50"]);
            let Ok(Reply::Array(page)) = read else { continue };
            for entry in page {
                let Reply::Array(entry) = entry else { panic!("an entry") };
                let [offset, value] = <[Reply; 2]>::try_from(entry).unwrap();
                let (offset, value) = (int(offset), text(value));
                let mut known = known.lock().unwrap();
                let before = known.acknowledged.entry((log, offset)).or_insert_with(|| value.clone());
                assert!(*before == value, "log{log}, offset {offset}: another entry");
            }
        }
    }
}

/// Appends entries of this length, 100 at once.
fn append_many(resp: &mut Resp, log: &str, count: u64, len: usize) {
    let first = int(resp.call(&[b"LF.APPEND", log.as_bytes(), b"begin"]).unwrap());
    for begin in (0..count).step_by(100) {
        let values: Vec<Vec<u8>> = (begin..begin + 100).map(|seed| pattern(first + seed, len)).collect();
        let mut words: Vec<&[u8]> = vec![b"LF.APPEND", log.as_bytes()];
        words.extend(values.iter().map(|value| &value[..]));
        int(resp.call(&words).unwrap());
    }
}

#[test]
fn a_node_that_comes_back_keeps_its_entries_and_gets_those_that_it_lacks() {
    let mut chain = Chain::new(3, &["--workers", "2", "--capacity", "128MiB"]);
    chain.start_all();
    let mut resp = chain.resp(0);
    append_many(&mut resp, "long", 12_000, 1000);
    append_many(&mut resp, "short", 10_000, 20);
    append_many(&mut resp, "gone", 500, 100);
    append_many(&mut resp, "again", 500, 100);
    assert_eq!(resp.call(&[b"LF.COMMIT", b"long", b"reader", b"700"]).unwrap(), ok());
    assert!(chain.take(2).stop().success());
    chain.remove(2);
    chain.wait_until_in_step();
    append_many(&mut resp, "long", 1000, 1000);
    append_many(&mut resp, "new", 100, 1000);
    assert_eq!(int(resp.call(&[b"LF.TRIM", b"long", b"500"]).unwrap()), 500);
    assert_eq!(resp.call(&[b"LF.COMMIT", b"long", b"reader", b"900"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"LF.RETAIN", b"short", b"ENTRIES", b"100000"]).unwrap(), ok());
    for log in [b"gone", &b"again"[..]] {
        assert_eq!(int(resp.call(&[b"LF.DELLOG", log]).unwrap()), 1);
    }
    append_many(&mut resp, "again", 500, 100);
    let appended = 1100.0 * 1000.0 + 500.0 * 100.0;
    let sent = |chain: &Chain| chain.server(1).metric("landfall_chain_copy_bytes_total");
    let before = sent(&chain);
    chain.add(2);
    chain.start(2);
    chain.wait_until_in_step();
    let sent = sent(&chain) - before;
    assert!(sent < 1.3 * appended, "{sent} bytes for {appended} that were appended");
    let found = same_everywhere(&chain);
    assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), ["again", "long", "new", "short"]);
    // What it has taken over is there after a crash.
    chain.kill(2);
    chain.start(2);
    chain.wait_until_in_step();
    assert!(same_everywhere(&chain) == found);
}

#[test]
fn whatever_is_killed_removed_or_added_logs_keep_what_was_acknowledged_or_shown() {
    let mut chain = Chain::new(3, &["--workers", "2"]);
    chain.start_all();
    let addresses = Addresses::of_all(&chain);
    let (over, known) = (AtomicBool::new(false), Mutex::new(Known::default()));
    std::thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (addresses, over, known) = (&addresses, &over, &known);
            threads.spawn(move || append(addresses, over, known, client));
        }
        threads.spawn(|| read(&addresses, &over, &known, 3));
        let _ends = Over(&over);
        hunt(&mut chain, &addresses);
    });
    let all = same_everywhere(&chain);
    let known = known.into_inner().unwrap();
    for ((log, offset), value) in &known.acknowledged {
        let (first, entries, ..) = &all[&name(*log)];
        let is_kept = entries.get(offset) == Some(value);
        assert!(is_kept || offset < first, "log{log}, offset {offset}{}", chain.words());
        assert!(*first <= known.trimmed[*log], "log{log} was trimmed to {first}");
    }
    assert!(known.acknowledged.len() > 100, "they did append: {}", known.acknowledged.len());
}
