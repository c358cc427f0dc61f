//! Latency of one GET client beside a SET load.

use super::{Bench, capacity_for};
use crate::common::clients::conn::info_field;
use crate::common::clients::{Client, Load, Operation, Shape, builtin, loader, redis_benchmark, value_of};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::PeerChoice;
use crate::common::peers::{Peer, Server};
use crate::common::progress::{check_stop, say};
use crate::keys::args::{MediaChoice, limits};
use landfall_resp::Reply;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The key that is read; the load writes others.
const READ_KEY: &[u8] = b"bench:read";
/// The load alone, before reading begins.
const HEAD_START: Duration = Duration::from_millis(300);
/// Records that fit beside the load's own.
const SPARE_RECORDS: u64 = 4096;

/// One server beside one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) media: MediaChoice,
    pub(crate) peer: String,
    /// The SET load.
    pub(crate) load: Shape,
    /// Latency of GET, µs.
    pub(crate) p50_us: Summary,
    pub(crate) p99_us: Summary,
    pub(crate) p999_us: Summary,
    /// Commands a second that the server executed meanwhile, where it reports them.
    pub(crate) commands_per_second: Option<Summary>,
}

struct Sample {
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    commands_per_second: f64,
}

/// Measures on one medium beside 50 clients with a pipeline of `pipeline`.
pub(crate) fn measure(bench: &Bench, media: MediaChoice, pipeline: usize) -> Result<Vec<Row>, BenchError> {
    let compared = [PeerChoice::Landfall, PeerChoice::RedisAlways, PeerChoice::RedisNone];
    let chosen: Vec<_> = compared.into_iter().filter(|choice| bench.args.peers.contains(choice)).collect();
    let peers = bench.programs.peers(&chosen);
    let (value_bytes, random_keys) = (bench.args.value_bytes(), bench.args.keys());
    let load = Shape { clients: 50, pipeline, value_bytes, random_keys };
    let mut samples: Vec<Vec<Sample>> = peers.iter().map(|_| Vec::new()).collect();
    for round in 0..bench.args.rounds {
        for (peer, samples) in peers.iter().zip(&mut samples) {
            say(format_args!(
                "  {}: GET beside {}, round {}: {}",
                media.name(),
                load.describe(),
                round + 1,
                peer.name()
            ));
            samples.push(measure_peer(bench, media, load, &**peer)?);
        }
    }
    Ok(peers
        .iter()
        .zip(&samples)
        .filter_map(|(peer, samples)| Row::of(media, peer.name(), load, samples))
        .collect())
}

fn measure_peer(
    bench: &Bench,
    media: MediaChoice,
    shape: Shape,
    peer: &dyn Peer,
) -> Result<Sample, BenchError> {
    let fresh =
        bench.fresh(media, peer, capacity_for(shape.random_keys + SPARE_RECORDS, shape.value_bytes))?;
    let server = &fresh.server;
    let value = value_of(shape.value_bytes);
    loader::load_one(server.resp, peer.name(), READ_KEY, &value)?;
    let load =
        Load { address: server.resp, operation: Operation::Set, shape, requests: limits::REQUESTS_MAX };
    let length = Duration::from_secs_f64(bench.args.seconds);
    match &bench.client {
        Client::RedisBenchmark(program) => {
            let mut running = redis_benchmark::keep_running(program, &load)?;
            std::thread::sleep(HEAD_START);
            let sample = read_for(server, length, &value)?;
            if running.is_running() {
                Ok(sample)
            } else {
                Err(BenchError::Nothing("the SET load ended too early"))
            }
        }
        Client::Builtin => beside_builtin(server, &load, length, &value),
    }
}

fn beside_builtin(
    server: &Server,
    load: &Load,
    length: Duration,
    value: &[u8],
) -> Result<Sample, BenchError> {
    let until = Instant::now() + HEAD_START + length + HEAD_START;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| builtin::run(load, builtin::Until::Time(until)));
        std::thread::sleep(HEAD_START);
        let sample = read_for(server, length, value);
        let wrote = writer.join().unwrap_or(Err(BenchError::Nothing("the load generator panicked")));
        wrote.and(sample)
    })
}

/// Reads one key repeatedly for a while, and checks the replies.
fn read_for(server: &Server, length: Duration, value: &[u8]) -> Result<Sample, BenchError> {
    let mut conn = server.connect()?;
    let mut latencies = builtin::histogram();
    let commands_before = info_field(&mut conn, "stats", "total_commands_processed")?;
    let begun = Instant::now();
    while begun.elapsed() < length {
        check_stop()?;
        let asked = Instant::now();
        let reply = conn.ask(&[b"GET", READ_KEY])?;
        let took = asked.elapsed();
        if reply != Reply::Bulk(value) {
            return Err(BenchError::reply(&server.peer, reply, "the value written"));
        }
        latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    let took = begun.elapsed();
    let commands_after = info_field(&mut conn, "stats", "total_commands_processed")?;
    let result = builtin::result_of(&latencies, latencies.len(), took);
    let commands = commands_before.zip(commands_after).map_or(f64::NAN, |(before, after)| after - before);
    Ok(Sample {
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        p999_us: result.p999_us.unwrap_or(f64::NAN),
        commands_per_second: commands / took.as_secs_f64(),
    })
}

impl Row {
    fn of(media: MediaChoice, peer: &str, load: Shape, samples: &[Sample]) -> Option<Self> {
        let summary = |of: fn(&Sample) -> f64| Summary::of(samples.iter().map(of));
        Some(Self {
            media,
            peer: peer.into(),
            load,
            p50_us: summary(|sample| sample.p50_us)?,
            p99_us: summary(|sample| sample.p99_us)?,
            p999_us: summary(|sample| sample.p999_us)?,
            commands_per_second: summary(|sample| sample.commands_per_second),
        })
    }
}
