//! A region that is ten times larger than its memory, beside one that is in memory as a whole, and beside the bare device.

mod data;
mod device;
mod resident;

pub(crate) use resident::Resident;

use super::{Bench, Fresh};
use crate::common::clients::{Load, LoadResult, Operation, Shape, Walk, builtin};
use crate::common::error::BenchError;
use crate::common::measure::proc::{memory_bytes, peak_resident};
use crate::common::measure::stats::Summary;
use crate::common::peers::{Landfall, Server};
use crate::common::progress::say;
use crate::keys::args::MediaChoice;
use data::{Data, HOT_BYTES, KINDS, MIXED};
use device::{Fio, Rate};
use resident::{field, keep_most};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Of the region, one part in so many may be in memory.
const PARTS: u64 = 10;
/// Connections and pipeline of the loads of hot keys.
const HIT_LOADS: [(usize, usize); 2] = [(50, 1), (50, 16)];
/// Connections that read cold keys, which is fio's depth.
pub(crate) const DEPTHS: [usize; 3] = [1, 16, 64];
/// Hot keys of the lone connection: few, so that it comes back to each before the clock does.
const LONE_KEYS: u64 = 64;
/// Connections that read cold keys beside it, and the time that they run alone.
const BESIDE: usize = 16;
const HEAD_START: Duration = Duration::from_millis(100);

/// All that was measured with one region.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) region_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) keys: u64,
    pub(crate) value_bytes: u64,
    /// Seconds that the load took, with all in memory and with little.
    pub(crate) load_seconds: [f64; 2],
    pub(crate) hits: Vec<Hits>,
    pub(crate) misses: Vec<Misses>,
    pub(crate) lone: Option<Lone>,
    pub(crate) resident: Vec<Resident>,
    /// The most that was ever resident of the server with little memory, bytes.
    pub(crate) peak_rss: u64,
}

/// GETs of hot keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hits {
    pub(crate) shape: Shape,
    /// The server with all of its region in memory.
    pub(crate) whole: Gets,
    /// The server with a tenth.
    pub(crate) paged: Gets,
}

/// GETs of cold keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Misses {
    pub(crate) kind: String,
    pub(crate) connections: usize,
    pub(crate) gets: Gets,
    /// GETs of these values from the server with all of its region in memory.
    pub(crate) whole: Gets,
    pub(crate) device: Option<Device>,
}

/// Direct reads of fio.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Reads a second.
    pub(crate) reads: Summary,
    /// Bytes a second.
    pub(crate) bytes: Summary,
    /// Processor time of a read, microseconds.
    pub(crate) cpu_us: Summary,
}

/// GETs of hot keys by one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Lone {
    pub(crate) alone: Gets,
    /// Beside connections that read cold keys.
    pub(crate) beside_misses: Gets,
    /// The same, with all of the region in memory.
    pub(crate) beside_whole: Gets,
    /// Values that these other connections read a second, of each server.
    pub(crate) misses_rps: Summary,
    pub(crate) whole_rps: Summary,
}

/// One load of GETs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gets {
    pub(crate) rps: Summary,
    /// Bytes of values a second.
    pub(crate) bytes: Summary,
    pub(crate) p50_us: Summary,
    pub(crate) p99_us: Summary,
    /// CPU time of the server, all threads, µs a request.
    pub(crate) cpu_us: Summary,
    /// Requests to the loader for each GET; 0 where all is in memory.
    pub(crate) loads: Summary,
}

/// One run of GETs.
#[derive(Clone, Copy, Debug)]
struct Sample {
    result: LoadResult,
    bytes: f64,
    cpu_us: f64,
    loads: f64,
}

/// Measures everything, round by round.
pub(crate) fn measure(bench: &Bench, media: MediaChoice) -> Result<Vec<Measured>, BenchError> {
    let mut campaign = Campaign::start(bench, media)?;
    let mut rounds = Vec::new();
    for round in 0..bench.args.rounds {
        say(format_args!("  {}: paging, round {}", media.name(), round + 1));
        rounds.push(campaign.round()?);
    }
    Ok(campaign.measured(&rounds).into_iter().collect())
}

/// Both servers, loaded.
struct Campaign {
    seconds: f64,
    region: u64,
    memory: u64,
    data: Data,
    cold: Vec<Walk>,
    whole: Fresh,
    paged: Fresh,
    load_seconds: [f64; 2],
    fio: Option<Fio>,
    resident: Vec<Resident>,
}

/// GETs of cold keys, of such keys in memory, and reads of the device.
struct Miss {
    paged: Sample,
    whole: Sample,
    device: Option<Rate>,
}

/// One round: every load once.
struct Round {
    hits: Vec<[Sample; 2]>,
    misses: Vec<Miss>,
    lone: [Sample; 3],
    /// GETs a second of the connections beside: with little in memory, and with all.
    beside: [f64; 2],
}

impl Campaign {
    fn start(bench: &Bench, media: MediaChoice) -> Result<Self, BenchError> {
        let region = bench.args.paged_mib << 20;
        let memory = region / PARTS;
        if memory_bytes("MemAvailable").is_some_and(|available| available < region + region / 2) {
            return Err(BenchError::Nothing(
                "too little memory to hold a whole region beside: see --paged-mib",
            ));
        }
        let data = Data::of(region, memory);
        let peer = |memory: u64| bench.programs.landfall(false).with_memory(memory);
        let whole = bench.fresh(media, &peer(region * 2), region)?;
        let paged = bench.fresh(media, &peer(memory), region)?;
        let mut resident = vec![Resident::of(&paged.server, "start")?];
        let load_seconds = [
            load(&data, &peer(region * 2), &whole.server, "all")?,
            load(&data, &peer(memory), &paged.server, "a tenth")?,
        ];
        resident.push(Resident::of(&paged.server, "load")?);
        let fio = Fio::on(&paged.beside("device"), data.bytes_of_a_kind())?;
        if fio.is_none() {
            say(format_args!(
                "  fio is not installed (Debian: apt-get install fio): no device to compare with"
            ));
        }
        let (seconds, cold) = (bench.args.seconds, data.cold_walks());
        Ok(Self { seconds, region, memory, data, cold, whole, paged, load_seconds, fio, resident })
    }

    fn round(&mut self) -> Result<Round, BenchError> {
        let mut hits = Vec::new();
        for load in HIT_LOADS {
            hits.push([self.hits(&self.whole.server, load)?, self.hits(&self.paged.server, load)?]);
        }
        self.note_resident("hits")?;
        let mut misses = Vec::new();
        for (kind, walk) in KINDS.iter().zip(&self.cold) {
            for depth in DEPTHS {
                let gets = |server| gets(server, shape(depth, 1, 0), Some(walk), self.seconds);
                let (paged, whole) = (gets(&self.paged.server)?, gets(&self.whole.server)?);
                let device = self.fio.as_ref().map(|fio| fio.read(kind, depth, self.seconds)).transpose()?;
                misses.push(Miss { paged, whole, device });
            }
        }
        self.note_resident("misses")?;
        let (alone, _) = self.lone(&self.paged.server, None)?;
        let (beside_misses, misses_rps) = self.lone(&self.paged.server, Some(&self.cold[MIXED]))?;
        let (beside_whole, whole_rps) = self.lone(&self.whole.server, Some(&self.cold[MIXED]))?;
        self.note_resident("hits beside misses")?;
        let lone = [alone, beside_misses, beside_whole];
        Ok(Round { hits, misses, lone, beside: [misses_rps, whole_rps] })
    }

    fn note_resident(&mut self, after: &str) -> Result<(), BenchError> {
        keep_most(&mut self.resident, Resident::of(&self.paged.server, after)?);
        Ok(())
    }

    /// GETs of hot keys, all of which have just been read once.
    fn hits(&self, server: &Server, (clients, pipeline): (usize, usize)) -> Result<Sample, BenchError> {
        let walk = self.data.hot_walk();
        let shape = shape(clients, pipeline, self.data.hot);
        let warm_up = walk.len().next_multiple_of((clients * pipeline) as u64);
        builtin::run_counted(&load_of(server, shape), Some(&walk), builtin::Until::Count(warm_up))?;
        gets(server, shape, None, self.seconds)
    }

    /// One connection reads a few hot keys, while others read along a walk; how many these read a second.
    fn lone(&self, server: &Server, beside: Option<&Walk>) -> Result<(Sample, f64), BenchError> {
        let shape_of_hits = shape(1, 1, LONE_KEYS.min(self.data.hot));
        let hits = || gets(server, shape_of_hits, None, self.seconds);
        // Once before: the keys are in memory.
        gets(server, shape_of_hits, None, self.seconds.min(HEAD_START.as_secs_f64()))?;
        let Some(walk) = beside else { return Ok((hits()?, 0.0)) };
        let until = Instant::now() + HEAD_START + Duration::from_secs_f64(self.seconds) + HEAD_START;
        std::thread::scope(|scope| {
            let load = load_of(server, shape(BESIDE, 1, 0));
            let until = builtin::Until::Time(until);
            let readers = scope.spawn(move || builtin::run_counted(&load, Some(walk), until));
            std::thread::sleep(HEAD_START);
            let hits = hits();
            let read = readers.join().unwrap_or(Err(BenchError::Nothing("the load generator panicked")))?;
            Ok((hits?, read.result.rps))
        })
    }

    /// `None` without a round.
    fn measured(self, rounds: &[Round]) -> Option<Measured> {
        let hits = HIT_LOADS.iter().enumerate().filter_map(|(index, (clients, pipeline))| {
            let of = |server: usize| Gets::of(rounds.iter().map(|round| round.hits[index][server]));
            Some(Hits { shape: shape(*clients, *pipeline, self.data.hot), whole: of(0)?, paged: of(1)? })
        });
        let loads = KINDS.iter().flat_map(|kind| DEPTHS.map(|depth| (kind.name, depth)));
        let misses = loads.enumerate().filter_map(|(index, (kind, connections))| {
            let all = || rounds.iter().map(|round| &round.misses[index]);
            let gets = Gets::of(all().map(|miss| miss.paged))?;
            let whole = Gets::of(all().map(|miss| miss.whole))?;
            Some(Misses {
                kind: kind.into(),
                connections,
                gets,
                whole,
                device: Device::of(all().filter_map(|miss| miss.device)),
            })
        });
        Some(Measured {
            region_bytes: self.region,
            memory_bytes: self.memory,
            keys: self.data.keys(),
            value_bytes: self.data.bytes(),
            load_seconds: self.load_seconds,
            hits: hits.collect(),
            misses: misses.collect(),
            lone: Lone::of(rounds),
            peak_rss: peak_resident(self.paged.server.pid()),
            resident: self.resident,
        })
    }
}

/// Loads a server; the seconds that it took.
fn load(data: &Data, peer: &Landfall, server: &Server, what: &str) -> Result<f64, BenchError> {
    say(format_args!("  paging: {} keys, {what} of the region in memory", data.keys()));
    let begun = Instant::now();
    data.load(peer, server)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn shape(clients: usize, pipeline: usize, random_keys: u64) -> Shape {
    Shape { clients, pipeline, value_bytes: HOT_BYTES, random_keys }
}

fn load_of(server: &Server, shape: Shape) -> Load {
    Load { address: server.resp, operation: Operation::Get, shape, requests: u64::MAX }
}

/// GETs for a while, of random keys or along a walk.
fn gets(server: &Server, shape: Shape, walk: Option<&Walk>, seconds: f64) -> Result<Sample, BenchError> {
    let (loads_before, cpu_before) = (loads(server)?, server.cpu());
    let until = builtin::Until::Time(Instant::now() + Duration::from_secs_f64(seconds));
    let counted = builtin::run_counted(&load_of(server, shape), walk, until)?;
    let cpu_ns = server.cpu().since_ns(cpu_before);
    let requests = counted.requests as f64;
    Ok(Sample {
        result: counted.result,
        bytes: counted.bytes_per_second,
        cpu_us: cpu_ns as f64 / 1000.0 / requests,
        loads: (loads(server)? - loads_before) / requests,
    })
}

/// Requests to the loader so far; a server with all of its region in memory has none.
fn loads(server: &Server) -> Result<f64, BenchError> {
    Ok(field(server, "region_loads")?.unwrap_or(0.0))
}

impl Gets {
    /// `None` without a sample.
    fn of(samples: impl Iterator<Item = Sample>) -> Option<Self> {
        let samples: Vec<Sample> = samples.collect();
        let summary = |of: fn(&Sample) -> f64| Summary::of(samples.iter().map(of));
        Some(Self {
            rps: summary(|sample| sample.result.rps)?,
            bytes: summary(|sample| sample.bytes)?,
            p50_us: summary(|sample| sample.result.p50_us)?,
            p99_us: summary(|sample| sample.result.p99_us)?,
            cpu_us: summary(|sample| sample.cpu_us)?,
            loads: summary(|sample| sample.loads)?,
        })
    }
}

impl Device {
    /// `None` without a read.
    fn of(rates: impl Iterator<Item = Rate>) -> Option<Self> {
        let rates: Vec<Rate> = rates.collect();
        let summary = |of: fn(&Rate) -> f64| Summary::of(rates.iter().map(of));
        Some(Self {
            reads: summary(|rate| rate.reads)?,
            bytes: summary(|rate| rate.bytes)?,
            cpu_us: summary(|rate| rate.cpu_us)?,
        })
    }
}

impl Lone {
    fn of(rounds: &[Round]) -> Option<Self> {
        let gets = |index: usize| Gets::of(rounds.iter().map(|round| round.lone[index]));
        let rps = |index: usize| Summary::of(rounds.iter().map(|round| round.beside[index]));
        Some(Self {
            alone: gets(0)?,
            beside_misses: gets(1)?,
            beside_whole: gets(2)?,
            misses_rps: rps(0)?,
            whole_rps: rps(1)?,
        })
    }
}
