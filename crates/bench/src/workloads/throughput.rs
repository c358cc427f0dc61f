//! Requests a second, latency and server CPU of SET and GET, servers in turns.

use super::{Bench, capacity_for};
use crate::args::{MediaChoice, PeerChoice};
use crate::clients::{Load, LoadResult, ONE_KEY, Operation, Shape, loader, value_of};
use crate::error::BenchError;
use crate::measure::stats::Summary;
use crate::peers::{Peer, Server};
use crate::say;
use serde::Serialize;

/// Runs of a warm-up: enough to touch memory and connections, and to know the rate.
const WARM_UP_BATCHES: u64 = 50;
/// Values that fit beside the load's own.
const SPARE_RECORDS: u64 = 4096;

/// One server under one load on one medium.
#[derive(Clone, Debug, Serialize)]
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
    /// Only from the built-in client.
    pub(crate) p999_us: Option<Summary>,
    /// CPU time of the server, all threads, µs a request.
    pub(crate) cpu_us: Summary,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Sample {
    result: LoadResult,
    cpu_us: f64,
}

/// The shapes that are compared: one client, many, many with pipelines.
pub(crate) const SHAPES: [(usize, usize); 3] = [(1, 1), (50, 1), (50, 16)];

/// All shapes on a medium that the flags ask for.
pub(crate) fn shapes(bench: &Bench) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for value_bytes in bench.args.sizes.iter().copied() {
        for random_keys in
            [0, bench.args.random_keys].into_iter().take(1 + usize::from(bench.args.random_keys > 0))
        {
            shapes.extend(SHAPES.map(|(clients, pipeline)| Shape {
                clients,
                pipeline,
                value_bytes,
                random_keys,
            }));
        }
    }
    shapes
}

/// Measures one shape: SET, and GET where many ask.
pub(crate) fn measure(bench: &Bench, media: MediaChoice, shape: Shape) -> Result<Vec<Row>, BenchError> {
    let peers = bench.programs.peers(&bench.args.peers);
    let operations: &[_] =
        if shape.clients > 1 { &[Operation::Set, Operation::Get] } else { &[Operation::Set] };
    compare(bench, media, shape, &peers, operations)
}

/// The shapes at which storing is compared with not storing: many clients, without and with pipelines.
pub(crate) fn discard_shapes(bench: &Bench) -> impl Iterator<Item = Shape> {
    let value_bytes = bench.args.sizes.first().copied().unwrap_or(1024);
    let many = SHAPES.into_iter().filter(|(clients, _)| *clients > 1);
    many.map(move |(clients, pipeline)| Shape { clients, pipeline, value_bytes, random_keys: 0 })
}

/// landfall with and without storing: SET. Beside them the peers that the targets name: what the server that
/// stores nothing reaches against these is the most that storing could reach.
pub(crate) fn measure_discard(
    bench: &Bench,
    media: MediaChoice,
    shape: Shape,
) -> Result<Vec<Row>, BenchError> {
    let mut peers: Vec<Box<dyn Peer>> =
        vec![Box::new(bench.programs.landfall(false)), Box::new(bench.programs.landfall(true))];
    let named = [PeerChoice::RedisAlways, PeerChoice::RedisNone];
    let chosen: Vec<_> = named.into_iter().filter(|peer| bench.args.peers.contains(peer)).collect();
    peers.extend(bench.programs.peers(&chosen));
    compare(bench, media, shape, &peers, &[Operation::Set])
}

/// A B C A B C ...: what disturbs the machine for a while disturbs every server.
fn compare(
    bench: &Bench,
    media: MediaChoice,
    shape: Shape,
    peers: &[Box<dyn Peer>],
    operations: &[Operation],
) -> Result<Vec<Row>, BenchError> {
    let mut samples = vec![Vec::new(); peers.len() * operations.len()];
    for round in 0..bench.args.rounds {
        for (index, peer) in peers.iter().enumerate() {
            say(format_args!(
                "  {}: {}, round {}: {}",
                media.name(),
                shape.describe(),
                round + 1,
                peer.name()
            ));
            let found = measure_peer(bench, media, shape, &**peer, operations)?;
            let places = samples[index * operations.len()..].iter_mut();
            places.zip(found).for_each(|(place, sample)| place.push(sample));
        }
    }
    let places = peers.iter().flat_map(|peer| operations.iter().map(move |operation| (peer, *operation)));
    let rows = places
        .zip(&samples)
        .filter_map(|((peer, operation), samples)| Row::of(media, peer.name(), operation, shape, samples));
    Ok(rows.collect())
}

/// One server, fresh: every operation once, warmed up.
fn measure_peer(
    bench: &Bench,
    media: MediaChoice,
    shape: Shape,
    peer: &dyn Peer,
    operations: &[Operation],
) -> Result<Vec<Sample>, BenchError> {
    let records = shape.random_keys + SPARE_RECORDS;
    let fresh = bench.fresh(media, peer, capacity_for(records, shape.value_bytes))?;
    let server = &fresh.server;
    let value = value_of(shape.value_bytes);
    if shape.random_keys > 0 && peer.name() != crate::peers::names::DISCARD {
        loader::load(server.resp, peer.name(), 0..shape.random_keys, &value)?;
    }
    loader::load_one(server.resp, peer.name(), ONE_KEY, &value)?;
    operations.iter().map(|operation| measure_load(bench, server, *operation, shape)).collect()
}

fn measure_load(
    bench: &Bench,
    server: &Server,
    operation: Operation,
    shape: Shape,
) -> Result<Sample, BenchError> {
    let step = (shape.clients * shape.pipeline) as u64;
    let warm_up = (step * WARM_UP_BATCHES).max(crate::args::limits::REQUESTS_MIN).next_multiple_of(step);
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
