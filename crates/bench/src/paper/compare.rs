//! Measures servers in turns under equal loads.

use super::contestant::{Stand, Store, Who, missing};
use super::lab::Lab;
use super::trip;
use super::wire::Wire;
use super::wrk::{self, Ask, KEYS, VALUE_BYTES};
use crate::common::clients::http::{Http, metric};
use crate::common::clients::{Load, ONE_KEY, Operation, Shape, loader, redis_benchmark, value_of};
use crate::common::error::BenchError;
use crate::common::measure::core::BusyTime;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::stats::{Summary, whole};
use crate::common::progress::{check_stop, say};
use crate::common::turns::in_turns;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;

/// Requests of a warm-up for each connection and place in its pipeline.
const WARM_UP_BATCHES: u64 = 50;
/// Requests of one redis-benchmark run at least, and at most.
const REQUESTS: (u64, u64) = (2_000, 20_000_000);
/// Bytes of a region: room for every load that overwrites keys, and quickly made.
pub(crate) const CAPACITY: u64 = 512 << 20;
/// Bytes of a region that a log grows in: at AF_XDP's 2 KiB a packet, more than any run here appends.
pub(crate) const LOG_CAPACITY: u64 = 4 << 30;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Work {
    /// By wrk.
    Http { ask: Ask, connections: usize },
    /// Writes of 1 KiB over one connection, SET or `POST`, by a client that never waits.
    Trip { resp: bool },
    /// By redis-benchmark, 1 KiB.
    Resp { set: bool, clients: usize, pipeline: usize },
}

impl Work {
    /// False for reads from a server that stores nothing.
    fn suits(self, who: Who) -> bool {
        let reads = matches!(self, Self::Resp { set: false, .. } | Self::Http { ask: Ask::Get, .. });
        !reads || !matches!(who, Who::Landfall { store: Store::Discard, .. })
    }

    /// For a table.
    pub(crate) fn describe(self) -> String {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        match self {
            Self::Http { ask, connections } => {
                format!("{}, {connections} connection{}", ask.name(), plural(connections))
            }
            Self::Trip { resp: false } => "HTTP POST, 1 connection, client spinning".into(),
            Self::Trip { resp: true } => "SET, 1 client, client spinning".into(),
            Self::Resp { set, clients, pipeline } => {
                let name = if set { "SET" } else { "GET" };
                let pipeline = if pipeline == 1 { String::new() } else { format!(", pipeline {pipeline}") };
                format!("{name}, {clients} client{}{pipeline}", plural(clients))
            }
        }
    }
}

/// One server under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(rename = "name")]
    pub(crate) who: Who,
    pub(crate) work: Work,
    pub(crate) mtu: u32,
    /// Requests a second.
    pub(crate) rps: Summary,
    /// Mean latency, µs, if the client reports it. The latency of a RESP pipeline is the time from its first request to
    /// its last reply.
    pub(crate) mean_us: Option<Summary>,
    pub(crate) p50_us: Summary,
    pub(crate) p99_us: Summary,
    /// CPU time of the server, all threads, µs a request.
    pub(crate) cpu_us: Summary,
    /// Time that the client's core was busy, the kernel's work included, µs a request; where clients are pinned.
    /// However fast a server is, there are no more requests than that core can make.
    pub(crate) client_us: Option<Summary>,
    /// Payload bytes that the server copied in user space, a request; where it counts them.
    pub(crate) copied_bytes: Option<Summary>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rps: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    client_us: f64,
    copied_bytes: f64,
}

/// Time used by both ends so far.
#[derive(Clone, Copy, Debug)]
struct Used {
    server: CpuTime,
    client: Option<BusyTime>,
}

impl Used {
    fn so_far(lab: &Lab, stand: &Stand) -> Self {
        let client = lab.is_pinning().then(|| BusyTime::of(lab.args.client_core));
        Self { server: stand.server.cpu(), client }
    }

    /// What the server and the client's core have used since, µs for each of so many requests.
    fn each_us(self, lab: &Lab, stand: &Stand, requests: f64) -> (f64, f64) {
        let now = Self::so_far(lab, stand);
        let client = now.client.zip(self.client).map(|(now, before)| now.since_ns(before) as f64);
        let server = now.server.since_ns(self.server) as f64;
        (server / 1000.0 / requests, client.map_or(f64::NAN, |ns| ns / 1000.0 / requests))
    }
}

/// A comparison.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) base: &'a Path,
    pub(crate) who: &'a [Who],
    /// Each server gets these one after the other; with `afresh`, it is started anew for each.
    pub(crate) works: &'a [Work],
    pub(crate) afresh: bool,
    /// Bytes of a region.
    pub(crate) capacity: u64,
}

impl<'a> Plan<'a> {
    /// Servers that stay for all loads, in the usual folder.
    pub(crate) fn of(lab: &'a Lab, wire: &'a Wire, who: &'a [Who], works: &'a [Work]) -> Self {
        Self { wire, base: &lab.args.dir, who, works, afresh: false, capacity: CAPACITY }
    }
}

/// Runs a plan in turns. A server that fails under one of its loads is noted and left out.
pub(crate) fn run(lab: &Lab, plan: &Plan<'_>, notes: &mut Vec<String>) -> Result<Vec<Row>, BenchError> {
    let once = |round: u32, who: Who| {
        say(format_args!("  round {round} of {}: {}", lab.args.rounds, who.name()));
        turn(lab, plan, who)
    };
    let fail = |who: Who, error: &BenchError| {
        let note = format!("{}: left out: {error}", who.name());
        say(format_args!("  {note}"));
        notes.push(note);
    };
    let runs = in_turns(lab.args.rounds, plan.who.iter().copied(), once, fail)?;
    Ok(runs.iter().flat_map(|(who, rounds)| rows_of(plan, *who, rounds)).collect())
}

/// Returns the rows of a server. A round has a sample for each load that suits it.
fn rows_of(plan: &Plan<'_>, who: Who, rounds: &[Vec<Option<Sample>>]) -> Vec<Row> {
    let row = |(at, work): (usize, &Work)| {
        let samples: Vec<Sample> = rounds.iter().filter_map(|found| *found.get(at)?).collect();
        Row::of(who, *work, plan.wire.mtu, &samples)
    };
    plan.works.iter().enumerate().filter_map(row).collect()
}

/// Runs one server's turn in a round. Skips loads that do not apply to it.
fn turn(lab: &Lab, plan: &Plan<'_>, who: Who) -> Result<Vec<Option<Sample>>, BenchError> {
    let groups: Vec<&[Work]> = if plan.afresh { plan.works.chunks(1).collect() } else { vec![plan.works] };
    let mut samples = Vec::new();
    for works in groups {
        let stand = who.start(lab, plan.wire, plan.base, plan.capacity)?;
        fill(plan.wire, &stand)?;
        for work in works {
            check_stop()?;
            let sample = work.suits(who).then(|| measure(lab, plan.wire, &stand, (who, *work)));
            samples.push(sample.transpose()?);
        }
    }
    Ok(samples)
}

/// Every key that a load uses, so that writes replace and reads find.
fn fill(wire: &Wire, stand: &Stand) -> Result<(), BenchError> {
    let Some(address) = stand.resp() else { return Ok(()) };
    let (peer, value) = (stand.server.peer.clone(), value_of(VALUE_BYTES));
    wire.client.enter(|| {
        loader::load(address, &peer, 0..KEYS, &value)?;
        loader::load_one(address, &peer, ONE_KEY, &value)
    })
}

fn measure(lab: &Lab, wire: &Wire, stand: &Stand, (who, work): (Who, Work)) -> Result<Sample, BenchError> {
    let run = |seconds| match work {
        Work::Http { ask, connections } => wrk::run(lab, wire, stand.http()?, (ask, connections, seconds)),
        Work::Trip { resp: true } => trip::run::<trip::Resp>(lab, wire, resp_of(stand)?, seconds),
        _ => trip::run::<trip::Http>(lab, wire, stand.http()?, seconds),
    };
    match work {
        Work::Resp { .. } => return measure_resp(lab, wire, stand, (who, work)),
        Work::Http { ask: Ask::Append, .. } => check_append(wire, stand)?,
        _ => {}
    }
    // Warm-up: connections, memory, the server's idea of how busy it is.
    run(1)?;
    let copied = || if who.counts_copies() { copied_bytes(wire, stand) } else { Ok(f64::NAN) };
    let (copied_before, before) = (copied()?, Used::so_far(lab, stand));
    let result = run(lab.args.seconds)?;
    let (cpu_us, client_us) = before.each_us(lab, stand, result.requests);
    Ok(Sample {
        rps: result.rps,
        mean_us: result.mean_us,
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        cpu_us,
        client_us,
        copied_bytes: (copied()? - copied_before) / result.requests,
    })
}

fn measure_resp(
    lab: &Lab,
    wire: &Wire,
    stand: &Stand,
    (who, work): (Who, Work),
) -> Result<Sample, BenchError> {
    let Work::Resp { set, clients, pipeline } = work else { return Err(BenchError::Nothing("no RESP load")) };
    let program = lab.redis_benchmark.as_ref().ok_or_else(|| missing("redis-benchmark", "redis-tools"))?;
    let address = resp_of(stand)?;
    let operation = if set { Operation::Set } else { Operation::Get };
    let shape = Shape { clients, pipeline, value_bytes: VALUE_BYTES, random_keys: 0 };
    let step = (clients * pipeline) as u64;
    let run = |requests| {
        let load = Load { address, operation, shape, requests };
        let command = redis_benchmark::command(lab.client_command(wire, program), &load);
        redis_benchmark::run_to_end(command, "redis-benchmark").and_then(redis_benchmark::read)
    };
    let rate = run((step * WARM_UP_BATCHES).max(REQUESTS.0).next_multiple_of(step))?.rps;
    let requests = whole(rate * f64::from(lab.args.seconds)).clamp(REQUESTS.0, REQUESTS.1);
    let requests = requests.next_multiple_of(step);
    let copied = || if who.counts_copies() { copied_bytes(wire, stand) } else { Ok(f64::NAN) };
    let (copied_before, before) = (copied()?, Used::so_far(lab, stand));
    let result = run(requests)?;
    let (cpu_us, client_us) = before.each_us(lab, stand, requests as f64);
    Ok(Sample {
        rps: result.rps,
        mean_us: f64::NAN,
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        cpu_us,
        client_us,
        copied_bytes: (copied()? - copied_before) / requests as f64,
    })
}

fn resp_of(stand: &Stand) -> Result<SocketAddr, BenchError> {
    stand.resp().ok_or(BenchError::Nothing("this server speaks no RESP"))
}

/// Says plainly where a build has no write-ahead logs.
fn check_append(wire: &Wire, stand: &Stand) -> Result<(), BenchError> {
    let address = stand.http()?;
    let status = wire.client.enter(|| Http::open(address)?.post("/wal/paper", &[b'x'; VALUE_BYTES]))?;
    match status {
        200..=299 => Ok(()),
        404 | 405 => {
            Err(BenchError::Missing("write-ahead logs are not in this build (POST /wal/{log})".into()))
        }
        other => Err(BenchError::reply(&stand.server.peer, other, "201")),
    }
}

/// Payload bytes that the server has copied in user space; the compactor's own moves are not a request's.
fn copied_bytes(wire: &Wire, stand: &Stand) -> Result<f64, BenchError> {
    let address = stand.http()?;
    let text = wire.client.enter(|| {
        let mut body = Vec::new();
        Http::open(address)?.get("/metrics", &mut body)?;
        Ok::<_, BenchError>(String::from_utf8_lossy(&body).into_owned())
    })?;
    let name = "landfall_copied_bytes_total";
    let moved = metric(&text, &format!("{name}{{path=\"moved\"")).unwrap_or(0.0);
    Ok(metric(&text, name).unwrap_or(f64::NAN) - moved)
}

impl Row {
    fn of(who: Who, work: Work, mtu: u32, samples: &[Sample]) -> Option<Self> {
        let summary = |of: fn(&Sample) -> f64| Summary::of(samples.iter().map(of));
        Some(Self {
            who,
            work,
            mtu,
            rps: summary(|sample| sample.rps)?,
            mean_us: summary(|sample| sample.mean_us),
            p50_us: summary(|sample| sample.p50_us)?,
            p99_us: summary(|sample| sample.p99_us)?,
            cpu_us: summary(|sample| sample.cpu_us)?,
            client_us: summary(|sample| sample.client_us),
            copied_bytes: summary(|sample| sample.copied_bytes),
        })
    }
}

/// Finds the row of a server under a load.
pub(crate) fn find(rows: &[Row], who: Who, work: Work, mtu: u32) -> Option<&Row> {
    rows.iter().find(|row| (row.who, row.work, row.mtu) == (who, work, mtu))
}
