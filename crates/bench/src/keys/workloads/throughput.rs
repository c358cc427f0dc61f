//! Requests a second, latency and server CPU of SET and GET, servers in turns.

use super::{Bench, capacity_for};
use crate::common::clients::{Load, LoadResult, Operation, Shape, loader, value_of};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::PeerChoice;
use crate::common::peers::{Peer, Server};
use crate::common::progress::say;
use crate::keys::args::MediaChoice;
use serde::{Deserialize, Serialize};

/// Batches of the run in front of the measured one: just enough to know the rate.
const WARM_UP_BATCHES: u64 = 10;
/// The number of values for which there is room beside the load's own.
const SPARE_RECORDS: u64 = 4096;

/// One server under one load on one medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    pub(crate) peer: String,
    pub(crate) operation: Operation,
    pub(crate) shape: Shape,
    /// Requests a second.
    pub(crate) rps: Summary,
    /// Latency, µs, from a pipeline's first request to its last reply.
    pub(crate) p50_us: Summary,
    pub(crate) p95_us: Summary,
    pub(crate) p99_us: Summary,
    /// The 99.9th percentile, which only the built-in client reports.
    pub(crate) p999_us: Option<Summary>,
    /// CPU time of the server, all threads, µs a request.
    pub(crate) cpu_us: Summary,
}

/// The measurements of one run.
#[derive(Clone, Copy, Debug)]
struct Sample {
    result: LoadResult,
    cpu_us: f64,
}

/// Clients and pipelines of the SETs that are compared on a medium; the last one is the fastest.
pub(crate) const fn set_loads(media: MediaChoice) -> &'static [(usize, usize)] {
    match media {
        MediaChoice::Pm => &[(50, 1), FASTEST],
        MediaChoice::File => &[(1, 1), (50, 1), FASTEST],
    }
}

/// Fifty clients that send sixteen requests at a time.
pub(crate) const FASTEST: (usize, usize) = (50, 16);

/// SETs: every load with the first number of keys, the fastest with the further ones and with a single key.
pub(crate) fn set_shapes(bench: &Bench, media: MediaChoice) -> Vec<Shape> {
    let args = &bench.args;
    let further = args.random_keys.iter().skip(1).copied().chain([0]);
    let loads = set_loads(media).iter().map(|load| (*load, args.keys()));
    let loads: Vec<_> = loads.chain(further.map(|keys| (FASTEST, keys))).collect();
    args.sizes.iter().flat_map(|size| loads.iter().map(|(load, keys)| shape(*load, *size, *keys))).collect()
}

/// GETs: as many keys as are loaded in front of them.
pub(crate) fn get_shapes(bench: &Bench) -> Vec<Shape> {
    let sizes = bench.args.sizes.iter();
    sizes.map(|size| shape(FASTEST, *size, bench.args.keys())).collect()
}

const fn shape((clients, pipeline): (usize, usize), value_bytes: usize, random_keys: u64) -> Shape {
    Shape { clients, pipeline, value_bytes, random_keys }
}

/// Measures one load on every server that supports it.
pub(crate) fn measure(
    bench: &Bench,
    media: MediaChoice,
    operation: Operation,
    shape: Shape,
) -> Result<Vec<Row>, BenchError> {
    let finds = |choice: &PeerChoice| operation == Operation::Set || *choice != PeerChoice::Discard;
    let chosen: Vec<_> = bench.args.peers.iter().copied().filter(finds).collect();
    compare(bench, media, operation, shape, &bench.programs.peers(&chosen))
}

/// Runs servers in turns, A B C A B C ..., so that a disturbance of the machine affects every server.
fn compare(
    bench: &Bench,
    media: MediaChoice,
    operation: Operation,
    shape: Shape,
    peers: &[Box<dyn Peer>],
) -> Result<Vec<Row>, BenchError> {
    let mut samples = vec![Vec::new(); peers.len()];
    for round in 0..bench.args.rounds {
        for (peer, samples) in peers.iter().zip(&mut samples) {
            say(format_args!(
                "  {}: {} by {}, round {}: {}",
                media.name(),
                operation.name(),
                shape.describe(),
                round + 1,
                peer.name()
            ));
            samples.push(measure_peer(bench, media, operation, shape, &**peer)?);
        }
    }
    let rows = peers
        .iter()
        .zip(&samples)
        .filter_map(|(peer, samples)| Row::of(media, peer.name(), operation, shape, samples));
    Ok(rows.collect())
}

/// One server, just started. It holds nothing before SETs, and every key before GETs.
fn measure_peer(
    bench: &Bench,
    media: MediaChoice,
    operation: Operation,
    shape: Shape,
    peer: &dyn Peer,
) -> Result<Sample, BenchError> {
    let records = shape.random_keys + SPARE_RECORDS;
    let fresh = bench.fresh(media, peer, capacity_for(records, shape.value_bytes))?;
    let server = &fresh.server;
    if operation == Operation::Get {
        let value = value_of(shape.value_bytes);
        loader::load(server.resp, peer.name(), 0..shape.random_keys, &value)?;
    }
    measure_load(bench, server, operation, shape)
}

fn measure_load(
    bench: &Bench,
    server: &Server,
    operation: Operation,
    shape: Shape,
) -> Result<Sample, BenchError> {
    let step = (shape.clients * shape.pipeline) as u64;
    let warm_up =
        (step * WARM_UP_BATCHES).max(crate::keys::args::limits::REQUESTS_MIN).next_multiple_of(step);
    let load = |requests| Load { address: server.resp, operation, shape, requests };
    let rate = bench.client.run(&load(warm_up))?.rps;
    let requests = bench.requests(rate, step);
    let before = server.cpu();
    let result = bench.client.run(&load(requests))?;
    let cpu_ns = server.cpu().since_ns(before);
    Ok(Sample { result, cpu_us: cpu_ns as f64 / 1000.0 / requests as f64 })
}

impl Row {
    fn of(
        media: MediaChoice,
        peer: &str,
        operation: Operation,
        shape: Shape,
        samples: &[Sample],
    ) -> Option<Self> {
        let summary = |of: fn(&Sample) -> f64| Summary::of(samples.iter().map(of));
        Some(Self {
            media,
            peer: peer.into(),
            operation,
            shape,
            rps: summary(|sample| sample.result.rps)?,
            p50_us: summary(|sample| sample.result.p50_us)?,
            p95_us: summary(|sample| sample.result.p95_us)?,
            p99_us: summary(|sample| sample.result.p99_us)?,
            p999_us: summary(|sample| sample.result.p999_us.unwrap_or(f64::NAN)),
            cpu_us: summary(|sample| sample.cpu_us)?,
        })
    }
}
