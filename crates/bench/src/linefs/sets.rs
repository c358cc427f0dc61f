//! Durable SETs with three copies: a chain, and redis with two replicas.

use crate::common::clients::builtin::{self, Until};
use crate::common::clients::conn::wait_for_replicas;
use crate::common::clients::{Load, LoadResult, Operation, Shape};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::peers::{Peer, Programs, Server};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::place::{ALONE, CHAIN, Used, scratch_in};
use crate::linefs::servers::{Served, Servers, Setting};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};

/// The name in reports of redis with three copies.
pub(super) const REDIS: &str = "redis always, two replicas, WAIT 2";
/// Replicas of redis.
const REPLICAS: usize = 2;
/// How long they may take to follow.
const FOLLOW_MAX: Duration = Duration::from_secs(60);
/// The share of a run that goes ahead of it, not measured.
const WARM_UP: f64 = 0.1;
/// A quick run does one in so many of the SETs that go ahead of it.
const QUICK_PART: u64 = 100;
/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Loads: fifty clients, without and with a pipeline.
pub(super) const SHAPES: [Shape; 2] = [shape(1), shape(16)];

const fn shape(pipeline: usize) -> Shape {
    Shape { clients: 50, pipeline, value_bytes: VALUE_BYTES, random_keys: 100_000 }
}

/// Who keeps the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    Alone,
    Chain,
    Redis,
}

/// One load on one kind of server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SetRow {
    pub(super) place: String,
    pub(super) shape: Shape,
    /// SETs a second.
    pub(super) rps: Summary,
    /// Latency, µs, from a pipeline's first request to its last reply.
    pub(super) p50_us: Summary,
    pub(super) p99_us: Summary,
    /// CPU time of all servers, µs a SET.
    pub(super) cpu_us: Summary,
}

/// What one run has found.
pub(super) struct SetSample {
    result: LoadResult,
    cpu_us: f64,
}

impl Keeper {
    pub(super) const ALL: [Self; 3] = [Self::Alone, Self::Chain, Self::Redis];

    /// The name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => ALONE,
            Self::Chain => CHAIN,
            Self::Redis => REDIS,
        }
    }
}

impl SetRow {
    /// Of all rounds; `None` if there is none.
    pub(super) fn of(keeper: Keeper, shape: Shape, samples: &[SetSample]) -> Option<Self> {
        let summary = |of: fn(&SetSample) -> f64| Summary::of(samples.iter().map(of));
        Some(Self {
            place: keeper.name().into(),
            shape,
            rps: summary(|sample| sample.result.rps)?,
            p50_us: summary(|sample| sample.result.p50_us)?,
            p99_us: summary(|sample| sample.result.p99_us)?,
            cpu_us: summary(|sample| sample.cpu_us)?,
        })
    }
}

/// Runs a load on servers that have just been started.
pub(super) fn once(
    keeper: Keeper,
    shape: Shape,
    programs: &Programs,
    args: &LinefsArgs,
) -> Result<SetSample, BenchError> {
    let scratch = scratch_in(&args.of_loads())?;
    let bytes = args.region_bytes(LinefsLoad::Set);
    let setting =
        Setting { programs, scratch: scratch.path(), bytes, files: Served::Nothing, etcd: None, flags: &[] };
    match keeper {
        Keeper::Alone => load(Servers::alone(setting)?, None, shape, args),
        Keeper::Chain => load(Servers::in_chain(setting)?, None, shape, args),
        Keeper::Redis => load(redis_with_replicas(programs, scratch.path())?, Some(REPLICAS), shape, args),
    }
}

/// SETs at each place before those that are measured: as many as a region has room for, if servers are to be used.
pub(super) fn sets_before(args: &LinefsArgs) -> u64 {
    let all = args.region_bytes(LinefsLoad::Set) / VALUE_BYTES as u64;
    match (args.used, args.quick) {
        (false, _) => 0,
        (true, false) => all,
        (true, true) => all / QUICK_PART,
    }
}

fn redis_with_replicas(programs: &Programs, scratch: &Path) -> Result<Servers, BenchError> {
    let redis = programs.redis_always()?;
    let mut primary = redis.start(&scratch.join("primary"), 0)?;
    primary.wait_ready()?;
    let follow = |number| redis.following(primary.resp).start(&scratch.join(format!("replica-{number}")), 0);
    let replicas = (0..REPLICAS).map(follow).collect::<Result<Vec<Server>, _>>()?;
    wait_for_replicas(&mut primary.connect()?, REPLICAS, FOLLOW_MAX)?;
    Ok(Servers::of(primary, replicas))
}

fn load(
    servers: Servers,
    replicas: Option<usize>,
    shape: Shape,
    args: &LinefsArgs,
) -> Result<SetSample, BenchError> {
    let load = Load { address: servers.first().resp, operation: Operation::Set, shape, requests: u64::MAX };
    let run_until = |load: &Load, until| match replicas {
        Some(replicas) => builtin::run_with_replicas(load, replicas, until),
        None => builtin::run(load, until),
    };
    let run = |seconds: f64| run_until(&load, Until::Time(Instant::now() + Duration::from_secs_f64(seconds)));
    if args.used {
        // The same for all, by what takes them soonest.
        let soonest = Load { shape: SHAPES[1], ..load };
        run_until(&soonest, Until::Count(sets_before(args)))?;
    }
    run(args.seconds * WARM_UP)?;
    let (used, began) = (Used::by(servers.pids()), Instant::now());
    let result = run(args.seconds)?;
    let requests = result.rps * began.elapsed().as_secs_f64();
    Ok(SetSample { cpu_us: used.ns_since() as f64 / 1000.0 / requests.max(1.0), result })
}
