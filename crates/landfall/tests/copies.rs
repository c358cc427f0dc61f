//! `COPY` by reference, as a client sees it: copies cost only records, also after compaction and after a kill.
#![allow(clippy::print_stdout, reason = "the figures belong to the result")]

mod common;

use common::{Place, REPLY_LIMIT, Reply, Resp, Server, pattern, wait_until};

/// Number of keys that are copied, and copies of each.
const KEYS: u64 = 100;
const COPIES: u64 = 100;
/// 100 B to 1 MiB, most of them short.
const LENS: [usize; 10] = [100, 200, 500, 1000, 2000, 4000, 16_000, 64_000, 256_000, 1 << 20];
/// A small region, which must be compacted: the originals and the filler between them take two thirds of it.
const CAPACITY: &str = "64MiB";
const FILLER: usize = 200_000;

/// How much of the region is in use.
#[derive(Clone, Copy, Debug)]
struct Use {
    live_bytes: f64,
    data_runs: f64,
    slab_runs: f64,
    moved: f64,
    unshared: f64,
}

fn used(server: &Server) -> Use {
    let metrics = server.metrics();
    let get = |name: &str| *metrics.get(name).unwrap_or_else(|| panic!("no metric {name}"));
    Use {
        live_bytes: get("landfall_live_bytes"),
        data_runs: get("landfall_runs{use=\"data\"}"),
        slab_runs: get("landfall_runs{use=\"slab\"}"),
        moved: get("landfall_copied_bytes_total{path=\"moved\"}"),
        unshared: get("landfall_unshared_bytes_total"),
    }
}

fn len(key: u64) -> usize {
    // One key in a hundred has a value of a mebibyte.
    LENS[if key == 0 { 9 } else { (key % 9) as usize }]
}

fn call(resp: &mut Resp, words: &[&[u8]], wanted: &Reply) {
    assert_eq!(&resp.call(words).unwrap(), wanted, "{:?}", String::from_utf8_lossy(words[0]));
}

/// Sends commands as a pipeline; each must get the reply `wanted`.
fn pipelined(resp: &mut Resp, commands: impl Iterator<Item = Vec<Vec<u8>>>, wanted: &Reply) {
    let commands: Vec<Vec<Vec<u8>>> = commands.collect();
    for chunk in commands.chunks(500) {
        for words in chunk {
            resp.push(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        resp.flush().unwrap();
        for words in chunk {
            assert_eq!(&resp.read().unwrap(), wanted, "{:?}", String::from_utf8_lossy(&words[0]));
        }
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn fill(resp: &mut Resp) {
    for key in 0..KEYS {
        call(resp, &[b"SET", format!("key:{key}").as_bytes(), &pattern(key, len(key))], &common::ok());
        call(resp, &[b"SET", format!("gap:{key}").as_bytes(), &pattern(key, FILLER)], &common::ok());
    }
}

/// Keys that are overwritten in turn: together with the runs of the originals they do not fit into the region.
const CHURN: u64 = 200;

/// Deletes the filler, and writes and deletes until the compactor has moved everything that remains.
fn compact(server: &Server, before: Use, values: f64) -> Use {
    let mut resp = server.resp();
    let names = (0..KEYS).flat_map(|key| [format!("key:{key}"), format!("gap:{key}")]);
    pipelined(&mut resp, names.map(|name| words(&["DEL", &name])), &Reply::Int(1));
    let mut round = 0;
    wait_until(REPLY_LIMIT, || {
        for index in 0..20 {
            // A part of each batch stays for a while, so that runs become sparse and not empty.
            let name = format!("churn:{}", (round * 20 + index) % CHURN);
            call(&mut resp, &[b"SET", name.as_bytes(), &pattern(round, FILLER)], &common::ok());
        }
        round += 1;
        let now = used(server);
        (now.moved > before.moved + values / 2.0).then_some(now)
    })
    .expect("the compactor moves what is shared")
}

fn check_values(server: &Server) {
    let mut resp = server.resp();
    for key in 0..KEYS {
        for copy in (0..COPIES).step_by(if len(key) > 100_000 { 33 } else { 7 }) {
            let name = format!("copy:{key}:{copy}");
            let value = Reply::Bulk(pattern(key, len(key)));
            assert!(resp.call(&[b"GET", name.as_bytes()]).unwrap() == value, "{name}");
        }
    }
}

#[test]
fn ten_thousand_copies_cost_records_before_and_after_compaction_and_a_kill() {
    let place = Place::new();
    let server = place.start(&["--capacity", CAPACITY, "--scrub-rate", "0"]);
    let mut resp = server.resp();
    fill(&mut resp);
    let values: f64 = (0..KEYS).map(|key| len(key) as f64).sum();
    let before = used(&server);
    let copies = (0..COPIES).flat_map(|copy| {
        (0..KEYS).map(move |key| words(&["COPY", &format!("key:{key}"), &format!("copy:{key}:{copy}")]))
    });
    pipelined(&mut resp, copies, &Reply::Int(1));
    let copied = used(&server);
    println!("before: {before:?}\ncopied: {copied:?}");
    assert!(copied.live_bytes - before.live_bytes < 1.0, "copies are records alone");
    // Requests also land in runs, which become free again.
    assert!(copied.data_runs <= before.data_runs + 4.0, "{before:?}, {copied:?}");
    assert!(
        copied.slab_runs <= before.slab_runs + 2.0,
        "10,000 records take 1.2 slabs: {before:?}, {copied:?}"
    );
    let compacted = compact(&server, copied, values);
    check_values(&server);
    println!("compacted: {compacted:?}");
    server.kill();
    let output = place.check(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let server = place.start(&["--capacity", CAPACITY, "--scrub-rate", "0"]);
    check_values(&server);
    let mut resp = server.resp();
    let churn = (0..CHURN).map(|index| words(&["DEL", &format!("churn:{index}")]));
    pipelined(&mut resp, churn, &Reply::Int(1));
    let restarted = used(&server);
    println!("restarted: {restarted:?}, values: {values}");
    let doubled = restarted.live_bytes - values;
    assert!(doubled >= 0.0 && doubled <= compacted.unshared + (1 << 20) as f64, "{restarted:?}");
    let copies =
        (0..KEYS).flat_map(|key| (0..COPIES).map(move |copy| words(&["DEL", &format!("copy:{key}:{copy}")])));
    pipelined(&mut resp, copies, &Reply::Int(1));
    assert!(used(&server).live_bytes < 1.0, "nothing is left");
    assert!(server.stop().success());
}
