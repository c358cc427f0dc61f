//! Instructions of a SET over RESP, counted by callgrind: they do not depend on the machine's speed or on what else it
//! does.
//!
//! The real server runs under callgrind, twice for each count: with few requests and with many. What both have in
//! common (opening the region, a connection) cancels out. Only the worker's instructions in user space are counted.

use super::{Bench, Scratch};
use crate::common::clients::conn::Conn;
use crate::common::clients::{Random, encode, find_program, key_of, value_of};
use crate::common::error::BenchError;
use crate::common::measure::callgrind::{Parts, parts, total};
use crate::common::peers::Counted;
use crate::common::progress::check_stop;
use crate::common::progress::say;
use crate::keys::args::MediaChoice;
use landfall_resp::Reply;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Requests that are sent before their replies are read.
pub(crate) const PIPELINE: usize = 16;
/// Length of a value, bytes, and keys that are there before and that requests choose from.
pub(crate) const VALUE_BYTES: usize = 1024;
pub(crate) const KEYS: u64 = 1000;
/// Pipelines of the shorter and of the longer run; in a quick run.
const BATCHES: (u32, u32) = (50, 250);
const QUICK_BATCHES: (u32, u32) = (10, 30);
const CAPACITY: u64 = 256 << 20;

/// The kinds of requests. Each makes the server do more than the one before.
#[derive(Clone, Copy, Debug)]
struct Step {
    stage: &'static str,
    request: Request,
    discard: bool,
    flush: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Ping,
    /// For a key that exists.
    Overwrite,
    /// For a key that does not exist.
    Insert,
}

const STEPS: [Step; 5] = [
    Step { stage: "PING: receive, parse, reply", request: Request::Ping, discard: true, flush: "none" },
    Step {
        stage: "SET with a value of 1 KiB, stored nowhere",
        request: Request::Overwrite,
        discard: true,
        flush: "none",
    },
    Step {
        stage: "index, record, checksum, commit, the old value's release",
        request: Request::Overwrite,
        discard: false,
        flush: "none",
    },
    Step { stage: "flush (`clflush`)", request: Request::Overwrite, discard: false, flush: "clflush" },
    Step {
        stage: "a key that is new, instead of one that is there",
        request: Request::Insert,
        discard: false,
        flush: "clflush",
    },
];
/// The part of the program that only workers execute.
const PARSER: &str = "resp";
/// The step whose total is the instructions of a SET.
const WHOLE: usize = 2;

/// Instructions of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Instructions that this stage adds to the stage before.
    pub(crate) stage: String,
    pub(crate) instructions: f64,
    /// Instructions of this stage and all stages before it.
    pub(crate) so_far: f64,
    /// Of a SET that is stored, without its flush.
    pub(crate) is_whole: bool,
    /// The instructions of this stage and all stages before it, by the part of the program.
    pub(crate) parts: Parts,
}

/// Returns why instructions cannot be counted. `None` if they can.
pub(crate) fn missing() -> Option<String> {
    find_program("valgrind")
        .is_none()
        .then(|| "SKIPPED instructions: valgrind is not installed (Debian: apt-get install valgrind)".into())
}

/// Counts every stage.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row>, BenchError> {
    let valgrind = find_program("valgrind").ok_or(BenchError::Nothing("valgrind is not installed"))?;
    let (mut rows, mut before) = (Vec::new(), 0.0);
    for (index, step) in STEPS.iter().enumerate() {
        say(format_args!("  callgrind: {}", step.stage));
        let (so_far, parts) = count(bench, &valgrind, step)?;
        let (stage, instructions) = (step.stage.to_owned(), so_far - before);
        rows.push(Row { stage, instructions, so_far, is_whole: index == WHOLE, parts });
        before = so_far;
    }
    Ok(rows)
}

/// The worker's instructions for a request, in total and by part.
fn count(bench: &Bench, valgrind: &Path, step: &Step) -> Result<(f64, Parts), BenchError> {
    let batches = if bench.args.quick { QUICK_BATCHES } else { BATCHES };
    let fewer = profile(bench, valgrind, step, batches.0)?;
    let more = profile(bench, valgrind, step, batches.1)?;
    let requests = f64::from(batches.1 - batches.0) * PIPELINE as f64;
    growth(&fewer, &more, requests)
        .ok_or_else(|| BenchError::reply("callgrind", "profiles without totals", "one for each thread"))
}

/// Profiles by thread.
type Threads = BTreeMap<String, String>;

/// Returns the instructions that each request adds to the worker, the thread that parses requests.
fn growth(fewer: &Threads, more: &Threads, requests: f64) -> Option<(f64, Parts)> {
    let parses = |parts: &Parts| parts.get(PARSER).copied().unwrap_or(0.0);
    let threads = more.iter().map(|(thread, profile)| (thread, profile, parts(profile)));
    let (thread, more, mut grown) = threads.max_by(|a, b| parses(&a.2).total_cmp(&parses(&b.2)))?;
    let fewer = fewer.get(thread)?;
    let instructions = total(more)? - total(fewer)?;
    let fewer = parts(fewer);
    for (part, count) in &mut grown {
        *count = (*count - fewer.get(part).copied().unwrap_or(0.0)) / requests;
    }
    Some((instructions / requests, grown))
}

/// Runs a server under callgrind.
fn profile(bench: &Bench, valgrind: &Path, step: &Step, batches: u32) -> Result<Threads, BenchError> {
    let scratch = bench.scratch(MediaChoice::Pm)?;
    let (dir, profile) = (scratch.data(), scratch.beside("callgrind.out"));
    let peer = bench.programs.landfall_with_one_worker(step.discard);
    let counted = Counted { valgrind, profile: &profile, dir: &dir, capacity: CAPACITY, flush: step.flush };
    let mut server = peer.start_counted(&counted)?;
    server.wait_ready()?;
    send(&mut server.connect()?, step, batches)?;
    server.shut_down()?;
    read_profiles(&scratch)
}

/// Sets every key once, in both runs, and then sends the requests that are counted.
fn send(conn: &mut Conn, step: &Step, batches: u32) -> Result<(), BenchError> {
    let (value, mut random) = (value_of(VALUE_BYTES), Random::new(1));
    let mut fresh = 0..;
    let set = |requests: &mut Vec<u8>, key: u64| encode(requests, &[b"SET", &key_of(key), &value]);
    for _ in 0..KEYS.div_ceil(PIPELINE as u64) {
        pipeline(conn, |requests| set(requests, fresh.next().unwrap_or(0)))?;
    }
    for _ in 0..batches {
        check_stop()?;
        pipeline(conn, |requests| match step.request {
            Request::Ping => encode(requests, &[b"PING"]),
            Request::Overwrite => set(requests, random.below(KEYS)),
            Request::Insert => set(requests, fresh.next().unwrap_or(0)),
        })?;
    }
    Ok(())
}

/// Sends a pipeline of requests and waits for their replies.
fn pipeline(conn: &mut Conn, mut request: impl FnMut(&mut Vec<u8>)) -> Result<(), BenchError> {
    let mut requests = Vec::new();
    (0..PIPELINE).for_each(|_| request(&mut requests));
    conn.send(&requests)?;
    for _ in 0..PIPELINE {
        match conn.reply()? {
            Reply::Simple(b"OK" | b"PONG") => {}
            other => return Err(BenchError::reply("landfall", other, "+OK or +PONG")),
        }
    }
    Ok(())
}

/// Reads the profiles of callgrind by thread.
fn read_profiles(scratch: &Scratch) -> Result<Threads, BenchError> {
    let dir = scratch.path();
    let files = fs::read_dir(dir).map_err(BenchError::file(dir))?.flatten();
    let profiles = files.filter_map(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        let thread = name.strip_prefix("callgrind.out-")?.to_owned();
        Some((thread, file.path()))
    });
    profiles
        .map(|(thread, path)| Ok((thread, fs::read_to_string(&path).map_err(BenchError::file(&path))?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Threads, growth};

    fn threads(totals: [(&str, u32, u32); 2]) -> Threads {
        let profile = |kv: u32, resp: u32| {
            format!(
                "fl=(1) crates/kv/src/a.rs\nfn=(1) a\n1 {kv}\nfl=(2) crates/resp/src/b.rs\n1 {resp}\ntotals: {}\n",
                kv + resp
            )
        };
        totals.into_iter().map(|(thread, kv, resp)| (thread.to_owned(), profile(kv, resp))).collect()
    }

    #[test]
    fn what_grows_with_the_requests_is_theirs_and_the_rest_cancels_out() {
        // The background thread grows, too: with the time that passes.
        let fewer = threads([("01", 900_000, 0), ("02", 1000, 100)]);
        let more = threads([("01", 9_000_000, 0), ("02", 3000, 600)]);
        let (instructions, parts) = growth(&fewer, &more, 100.0).unwrap();
        assert_eq!((instructions, parts["kv"], parts["resp"]), (25.0, 20.0, 5.0));
    }

    #[test]
    fn without_profiles_nothing_is_counted() {
        assert!(growth(&Threads::new(), &Threads::new(), 1.0).is_none());
    }
}
