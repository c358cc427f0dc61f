//! A region larger than its memory, as clients see it: every value comes back, memory stays bounded, also after a kill.
#![allow(clippy::print_stdout, reason = "the figures belong to the result")]

mod common;

use common::{Place, Reply, Resp, Server, can_mount, pattern};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const CAPACITY: &str = "640MiB";
const MEMORY: &str = "64MiB";
const MEMORY_BYTES: f64 = (64 << 20) as f64;
/// What a server of this size takes beside the region: program, stacks, index, counts of frames, bytes.
const BESIDE: f64 = (48 << 20) as f64;
const KEYS: u64 = 1200;
/// 100 B to 1 MiB, 490 MiB in all.
const LENS: [usize; 6] = [100, 3000, 40_000, 250_000, 1 << 20, 1_100_000];

fn len(key: u64) -> usize {
    LENS[(key % 6) as usize] + (key as usize * 37) % 90
}

/// Long keys lie beside values, and leave memory with them.
fn key(key: u64) -> Vec<u8> {
    let mut name = format!("key:{key}:").into_bytes();
    name.resize(name.len() + if key.is_multiple_of(5) { 200 } else { 0 }, b'.');
    name
}

fn set(resp: &mut Resp, number: u64, version: u64) {
    let value = pattern(number + version * 1_000_003, len(number));
    assert_eq!(resp.call(&[b"SET", &key(number), &value]).unwrap(), common::ok());
}

fn expected(number: u64, version: u64) -> Reply {
    Reply::Bulk(pattern(number + version * 1_000_003, len(number)))
}

/// Reads in pipelines, in an order that visits keys far apart.
fn check_all(server: &Server, version: impl Fn(u64) -> u64) {
    let mut resp = server.resp();
    let order: Vec<u64> = (0..KEYS).map(|index| index * 487 % KEYS).collect();
    for chunk in order.chunks(8) {
        chunk.iter().for_each(|number| resp.push(&[b"GET", &key(*number)]));
        resp.flush().unwrap();
        for number in chunk {
            assert!(resp.read().unwrap() == expected(*number, version(*number)), "key {number}");
        }
    }
}

/// Reads that wait for the medium within one command, and within one transaction.
fn check_together(server: &Server) {
    let mut resp = server.resp();
    let numbers = [3_u64, 400, 707, 1101, 90];
    let names: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(names.iter().map(Vec::as_slice));
    let all = Reply::Array(numbers.iter().map(|number| expected(*number, 0)).collect());
    assert!(resp.call(&words).unwrap() == all);
    assert_eq!(resp.call(&[b"MULTI"]).unwrap(), common::ok());
    for name in names.iter().map(|name| [&name[..], b"x"].concat()).chain(names.clone()) {
        resp.call(&[b"GET", &name]).unwrap();
    }
    let nothing = numbers.iter().map(|_| Reply::Nil);
    let found = numbers.iter().map(|number| expected(*number, 0));
    assert!(resp.call(&[b"EXEC"]).unwrap() == Reply::Array(nothing.chain(found).collect()));
}

fn check_memory(server: &Server) {
    let metrics = server.metrics();
    let get = |name: &str| *metrics.get(name).unwrap_or_else(|| panic!("no metric {name}"));
    let (region, process) =
        (get("landfall_region_memory_bytes"), get("landfall_process_resident_memory_bytes"));
    println!("region {:.1} MiB, process {:.1} MiB in memory", region / 1048576.0, process / 1048576.0);
    assert!(region <= MEMORY_BYTES * 1.05, "{region}");
    assert!(process <= MEMORY_BYTES + BESIDE, "{process}");
}

#[test]
fn a_region_eight_times_larger_than_its_memory_serves_every_value_and_survives_a_kill() {
    let place = Place::new();
    let flags = ["--capacity", CAPACITY, "--memory", MEMORY];
    let server = place.start(&flags);
    if !server.metrics().contains_key("landfall_region_memory_bytes") {
        println!("skipped: the directory for tests is on no ordinary file system");
        return;
    }
    let mut resp = server.resp();
    (0..KEYS).for_each(|number| set(&mut resp, number, 0));
    check_memory(&server);
    check_all(&server, |_| 0);
    check_together(&server);
    check_memory(&server);
    assert!(*server.metrics().get("landfall_loads_total").unwrap() > 100.0);
    // Overwritten while others are read; then the process ends without notice.
    for number in (0..KEYS).step_by(3) {
        set(&mut resp, number, 1);
    }
    server.kill();
    assert_eq!(place.check(&[]).status.code(), Some(0));
    let server = place.start(&flags);
    check_all(&server, |number| u64::from(number.is_multiple_of(3)));
    check_memory(&server);
}

#[test]
fn too_little_memory_is_refused_with_what_would_be_enough() {
    let place = Place::new();
    match place.try_start(&["--memory", "1MiB"]) {
        Ok(_) => panic!("1 MiB is too little"),
        Err(refused) => assert!(refused.words.contains("64MiB"), "{refused}"),
    }
}

/// Replies are sent from the region, so that those which nobody reads would fill the memory.
#[test]
fn clients_that_read_nothing_do_not_fill_the_memory() {
    const SLOW: u64 = 150;
    let place = Place::new();
    let server = place.start(&["--capacity", CAPACITY, "--memory", MEMORY]);
    let mut resp = server.resp();
    let values: Vec<Vec<u8>> = (0..SLOW).map(|number| pattern(number, 1 << 20)).collect();
    for (number, value) in values.iter().enumerate() {
        assert_eq!(resp.call(&[b"SET", &key(number as u64), value]).unwrap(), common::ok());
    }
    let mut slow: Vec<Resp> = (0..SLOW)
        .map(|number| {
            let mut slow = server.resp();
            (0..4).for_each(|more| slow.push(&[b"GET", &key((number + 31 * more) % SLOW)]));
            slow.flush().unwrap();
            slow
        })
        .collect();
    // Those who read are served meanwhile.
    let until = Instant::now() + Duration::from_secs(4);
    let mut highest = 0.0_f64;
    for number in (0..SLOW).cycle().step_by(7) {
        if Instant::now() >= until {
            break;
        }
        assert!(resp.call(&[b"GET", &key(number)]).unwrap() == Reply::Bulk(values[number as usize].clone()));
        highest = highest.max(server.metrics()["landfall_region_memory_bytes"]);
    }
    let last = server.metrics()["landfall_region_memory_bytes"];
    println!("in memory: {:.1} MiB, at most {:.1} MiB", last / 1048576.0, highest / 1048576.0);
    assert!(last <= MEMORY_BYTES, "{last}");
    // Without a bound it would be all that these clients ask for: 150 MiB and more.
    assert!(highest <= 2.2 * MEMORY_BYTES, "{highest}");
    // A client that comes back to its replies in time has not lost them.
    let mut patient = server.resp();
    (0..4).for_each(|number| patient.push(&[b"GET", &key(number)]));
    patient.flush().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    for value in values.iter().take(4) {
        assert!(patient.read().unwrap() == Reply::Bulk(value.clone()));
    }
    slow.clear();
}

/// What is published takes the place of records that have left memory: they are read first, and nobody is told of a failure.
#[test]
fn files_that_have_left_memory_are_published_when_they_have_been_read() {
    const BLOCK: usize = 4096;
    const FILES: u64 = 40;
    const BLOCKS: u64 = 1024;
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let files = point.path().to_str().unwrap();
    let server = place.start(&["--capacity", CAPACITY, "--memory", MEMORY, "--files", files]);
    let open = |number: u64| {
        let path = point.path().join(number.to_string());
        File::options().create(true).write(true).truncate(false).open(path).unwrap()
    };
    for number in 0..FILES {
        let file = open(number);
        file.write_all_at(&pattern(number, BLOCKS as usize * BLOCK), 0).unwrap();
        file.sync_all().unwrap();
    }
    for round in 0..1500_u64 {
        let (file, at) = (open(round * 7 % FILES), round * 541 % BLOCKS * BLOCK as u64 + round % 900);
        file.write_all_at(&pattern(round, 100 + round as usize * 37 % 3000), at).unwrap();
        if round % 5 == 0 {
            file.sync_all().unwrap();
        }
    }
    let log = || place.log();
    assert!(!log().contains("publishing fails"), "{}", log());
    assert!(server.stop().success());
    assert_eq!(place.check(&[]).status.code(), Some(0));
}
