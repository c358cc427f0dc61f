//! Parts of long values, as a client reads and changes them, and what a kill leaves of that.
#![allow(clippy::print_stdout, reason = "the figures belong to the result")]

mod common;

use common::{Place, Reply, Resp, bulk, ok, pattern};
use std::fmt::Write as _;
use std::time::Instant;

const CAPACITY: &str = "160MiB";
/// Some hundred pieces.
const LEN: usize = 24 << 20;
const CYCLES: u64 = 4;
const CHANGES: u64 = 60;

/// One change of a value: what a client sends, and what comes of it.
struct Change {
    words: Vec<Vec<u8>>,
    at: usize,
    bytes: Vec<u8>,
}

impl Change {
    /// Drawn from a number: where, and how much.
    fn drawn(number: u64, len: usize) -> Self {
        let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
        let bytes = pattern(number, [1, 10, 700, 5000, 90_000, 300_000][(mixed % 6) as usize]);
        let at = (mixed / 6) as usize % (len + 5000);
        match mixed % 5 {
            0 | 1 => Self::of("APPEND", len, bytes),
            _ => Self::of("SETRANGE", at, bytes),
        }
    }

    fn of(name: &str, at: usize, bytes: Vec<u8>) -> Self {
        let mut words = vec![name.as_bytes().to_vec(), b"long".to_vec()];
        if name == "SETRANGE" {
            words.push(at.to_string().into_bytes());
        }
        words.push(bytes.clone());
        Self { words, at, bytes }
    }

    fn words(&self) -> Vec<&[u8]> {
        self.words.iter().map(Vec::as_slice).collect()
    }

    fn apply(&self, value: &mut Vec<u8>) {
        value.resize(value.len().max(self.at + self.bytes.len()), 0);
        value[self.at..self.at + self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

fn get(resp: &mut Resp, key: &str) -> Vec<u8> {
    match resp.call(&[b"GET", key.as_bytes()]).unwrap() {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn kills_lose_no_acknowledged_change_of_a_part_and_leave_none_in_part() {
    let place = Place::new();
    let flags = ["--capacity", CAPACITY];
    let mut value = pattern(1, LEN);
    let server = place.start(&flags);
    let mut resp = server.resp();
    assert_eq!(resp.call(&[b"SET", b"long", &value]).unwrap(), ok());
    let (mut server, mut copied) = (server, None::<Vec<u8>>);
    for cycle in 0..CYCLES {
        let mut resp = server.resp();
        for number in 0..CHANGES {
            let change = Change::drawn(cycle * 1000 + number, value.len());
            change.apply(&mut value);
            let len = i64::try_from(value.len()).unwrap();
            assert_eq!(resp.call(&change.words()).unwrap(), Reply::Int(len));
        }
        if cycle % 2 == 0 {
            assert_eq!(resp.call(&[b"COPY", b"long", b"copy", b"REPLACE"]).unwrap(), Reply::Int(1));
            copied = Some(value.clone());
        }
        // This one may count or not.
        let last = Change::drawn(cycle * 1000 + 999, value.len());
        resp.push(&last.words());
        resp.flush().unwrap();
        server.kill();
        let output = place.check(&[]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        server = place.start(&flags);
        let mut resp = server.resp();
        let found = get(&mut resp, "long");
        if found != value {
            last.apply(&mut value);
        }
        assert!(
            found == value,
            "after kill {cycle} the value is neither with the last change nor without it"
        );
        copied.iter().for_each(|copied| assert!(get(&mut resp, "copy") == *copied, "the copy has changed"));
        for start in (0..value.len()).step_by(value.len() / 50) {
            let end = (start + 3000).min(value.len());
            let words = ["GETRANGE", "long", &start.to_string(), &(end - 1).to_string()];
            assert!(server.call(&words) == bulk(&value[start..end]), "{start}");
        }
    }
}

/// Median time of a call, microseconds.
fn median(resp: &mut Resp, calls: usize, mut words: impl FnMut(usize) -> Vec<Vec<u8>>) -> u128 {
    let mut times: Vec<u128> = (0..calls)
        .map(|call| {
            let words = words(call);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let begun = Instant::now();
            let reply = resp.call(&words).unwrap();
            assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
            begun.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    times[calls / 2]
}

/// Reports what parts of a value of `LANDFALL_LONG_MIB` mebibytes cost, 64 without it.
#[test]
fn parts_of_a_long_value_cost_less_than_the_whole() {
    let mib: usize = std::env::var("LANDFALL_LONG_MIB").ok().map_or(64, |text| text.parse().unwrap());
    let place = Place::new();
    let capacity = format!("{}MiB", 2 * mib + 200);
    let server = place.start(&["--capacity", &capacity, "--max-request", "512MiB"]);
    let mut resp = server.resp();
    let value = pattern(2, mib << 20);
    let begun = Instant::now();
    assert_eq!(resp.call(&[b"SET", b"long", &value]).unwrap(), ok());
    let mut report = format!("SET of {mib} MiB: {} ms", begun.elapsed().as_millis());
    let at = |call: usize| (call * 7_919_777 % (value.len() - 10)).to_string().into_bytes();
    let word = |text: &str| text.as_bytes().to_vec();
    let whole = median(&mut resp, 3, |_| vec![word("GET"), word("long")]);
    let ranges = median(&mut resp, 101, |call| {
        let end = String::from_utf8(at(call)).unwrap().parse::<usize>().unwrap() + 9;
        vec![word("GETRANGE"), word("long"), at(call), end.to_string().into_bytes()]
    });
    let changes =
        median(&mut resp, 101, |call| vec![word("SETRANGE"), word("long"), at(call), word("0123456789")]);
    let appends = median(&mut resp, 101, |_| vec![word("APPEND"), word("long"), word("0123456789")]);
    let short = median(&mut resp, 101, |_| vec![word("APPEND"), word("short"), word("0123456789")]);
    write!(
        report,
        "; GET {whole} us, GETRANGE of 10 B {ranges} us, SETRANGE {changes} us, APPEND {appends} us"
    )
    .unwrap();
    println!("{report}, APPEND to a short value {short} us");
    assert!(ranges * 10 < whole, "{report}");
    let len = i64::try_from(value.len() + 1010).unwrap();
    assert_eq!(resp.call(&[b"STRLEN", b"long"]).unwrap(), Reply::Int(len));
}
