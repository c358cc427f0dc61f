//! Measures contestants in turns.

use super::app::App;
use super::course::Course;
use super::design::{Spec, Waits};
use super::lab::Lab;
use super::load::{Channel, Framing, Measured, Patience, Plan, Rest, StreamChannel, UdpChannel, drive};
use super::stand::{Extent, Stand};
use super::sys::sleep_exactly;
use super::work::{Ask, Settings, clients, fill};
use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::common::sys::pin;
use hdrhistogram::Histogram;
use landfall_spin::prefer_slices_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Points of a latency distribution, percent.
pub(crate) const PERCENTILES: [f64; 16] =
    [0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9];
const SEED: u64 = 11;
/// The scheduler's slice for the clients' thread: the shortest that the kernel grants. Servers and loggers may share
/// the clients' core, and the clients would otherwise wait until the slice of such a process ends.
const CLIENT_SLICE: Duration = Duration::from_micros(100);

/// One contestant under one load, over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) spec: Spec,
    /// Requests a second.
    pub(crate) rps: Summary,
    /// Transactions a second. Without transactions, every request counts as one.
    pub(crate) tps: Summary,
    /// Latency of a request, µs.
    pub(crate) mean_us: Summary,
    pub(crate) p50_us: Summary,
    pub(crate) p99_us: Summary,
    /// Latency of updates alone, µs.
    pub(crate) update_p50_us: Option<Summary>,
    pub(crate) update_mean_us: Option<Summary>,
    /// Percentage of requests that read. `locks` is the percentage of bypasses that change something (locks, numbers).
    /// `None` of both: a report from before they were counted.
    pub(crate) reads: Option<Summary>,
    pub(crate) locks: Option<Summary>,
    /// The latency of a request at each of [`PERCENTILES`], µs.
    pub(crate) distribution: Vec<Summary>,
    /// CPU time of all devices, µs a request. A device that busy-polls uses all of its core's time.
    pub(crate) device_us: Option<Summary>,
    /// CPU time of all servers, loggers and side-cars, µs a request.
    pub(crate) server_us: Option<Summary>,
    /// Requests sent again, per thousand.
    pub(crate) again: Summary,
    /// Percentage of requests that the devices' acknowledgements completed.
    pub(crate) acknowledged: Summary,
    /// Percentage of requests that the read cache answered.
    pub(crate) cached: Summary,
}

/// The measurements of one run.
#[derive(Clone, Debug)]
struct Sample {
    rps: f64,
    tps: f64,
    mean_us: f64,
    update_p50_us: f64,
    update_mean_us: f64,
    reads: f64,
    locks: f64,
    distribution: Vec<f64>,
    device_us: f64,
    server_us: f64,
    again: f64,
    acknowledged: f64,
    cached: f64,
}

/// The counters that are read before and after a run.
#[derive(Debug)]
struct Marks {
    devices: Vec<CpuTime>,
    servers: Vec<CpuTime>,
}

/// Runs contestants in turns, A B C A B C ..., so that a disturbance of the machine affects all of them. A contestant
/// that fails is noted and left out from then on.
pub(crate) fn run(lab: &Lab, specs: &[Spec], notes: &mut Vec<String>) -> Result<Vec<Row>, BenchError> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); specs.len()];
    let mut failed = vec![false; specs.len()];
    for round in 0..lab.args.rounds {
        for (index, spec) in specs.iter().enumerate().filter(|(_, spec)| lab.can_run(spec)) {
            if failed[index] {
                continue;
            }
            check_stop()?;
            say(format_args!("  round {} of {}: {}", round + 1, lab.args.rounds, spec.describe()));
            match turn(lab, *spec) {
                Ok(sample) => samples[index].push(sample),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    failed[index] = true;
                    let note = format!("FAILED {}: {error}", spec.describe());
                    say(format_args!("  {note}"));
                    notes.push(note);
                }
            }
        }
    }
    let rows = specs.iter().zip(&samples).filter_map(|(spec, samples)| Row::of(*spec, samples));
    Ok(rows.collect())
}

fn turn(lab: &Lab, spec: Spec) -> Result<Sample, BenchError> {
    let stand = Stand::start(lab, spec, Extent::of(lab))?;
    let _awake = lab.keep_awake(spec.waits);
    let settings = settings_of(lab, spec);
    let length = Duration::from_secs_f64(lab.args.seconds);
    let sleeps = spec.waits != Waits::Spin;
    let length_of_rest = Duration::from_micros(lab.args.rest_us) * spec.rest_factor();
    let rest = spec.rests.then_some(Rest { length: length_of_rest, sleeps });
    let plan = Plan { warm_up: lab.args.warm_up, length, rest };
    let mark = || {
        let (devices, servers) = stand.cpu();
        Ok(Marks { devices, servers })
    };
    let measured = stand.course.client.enter(|| {
        lab.is_pinning().then(|| pin(lab.args.client_core));
        sleep_exactly();
        prefer_slices_of(CLIENT_SLICE);
        load(&stand, settings)?;
        let mut channel = stand.open_channel()?;
        drive(&mut *channel, clients(settings, spec.clients), plan, mark)
    });
    let measured = measured.inspect_err(|error| {
        if !matches!(error, BenchError::Interrupted) {
            stand.report_state();
        }
    })?;
    sample(&measured, spec.rests)
}

pub(crate) fn settings_of(lab: &Lab, spec: Spec) -> Settings {
    let (payload, updates) = (spec.payload, spec.updates);
    Settings { app: spec.app, payload, updates, keys: lab.args.keys, seed: SEED }
}

/// Fills the application. Where possible, the requests bypass the devices that are measured.
pub(crate) fn load(stand: &Stand, settings: Settings) -> Result<(), BenchError> {
    let requests = fill(settings);
    if requests.is_empty() {
        return Ok(());
    }
    let filler = || -> Result<(Box<dyn Channel>, usize), BenchError> {
        const CLIENTS: usize = 16;
        if settings.app.speaks_resp() {
            let at = Course::at_server(super::course::RESP_PORT);
            return Ok((
                Box::new(StreamChannel::open(at, CLIENTS, Framing::Resp, Patience::WAITS)?),
                CLIENTS,
            ));
        }
        match stand.plain_address() {
            Some(at) => Ok((Box::new(UdpChannel::open(at, CLIENTS, Patience::WAITS)?), CLIENTS)),
            None => Ok((stand.open_filler(CLIENTS)?, CLIENTS)),
        }
    };
    let (mut channel, clients) = filler()?;
    let (mut waiting, mut done) = (0, Vec::new());
    let mut free: Vec<usize> = (0..clients).collect();
    for bytes in requests {
        while free.is_empty() {
            check_stop()?;
            channel.receive(&mut done)?;
            waiting -= done.len();
            free.extend(done.drain(..).map(|done| done.client));
        }
        let client = free.pop().unwrap_or(0);
        channel.send(client, &Ask { bytes, update: true, ends: true, ..Ask::default() })?;
        waiting += 1;
    }
    while waiting > 0 {
        check_stop()?;
        channel.receive(&mut done)?;
        waiting -= done.len();
        done.clear();
    }
    Ok(())
}

fn sample(measured: &Measured<Marks>, rests: bool) -> Result<Sample, BenchError> {
    let requests = measured.all.len() as f64;
    if measured.all.is_empty() {
        return Err(BenchError::Nothing("no request was completed"));
    }
    // The rate of a client that pauses leaves out the pauses.
    let waited = measured.all.mean() * requests / 1e9;
    let seconds = if rests { waited } else { measured.took.as_secs_f64() };
    let (before, after) = &measured.marks;
    let cpu = |now: &[CpuTime], before: &[CpuTime]| {
        let used: u64 = now.iter().zip(before).map(|(now, before)| now.since_ns(*before)).sum();
        if now.is_empty() { f64::NAN } else { used as f64 / 1000.0 / requests }
    };
    let share = |count: u64| count as f64 * 100.0 / requests;
    Ok(Sample {
        rps: requests / seconds,
        tps: measured.transactions as f64 / seconds,
        mean_us: measured.all.mean() / 1000.0,
        update_p50_us: percentile(&measured.updates, 50.0),
        update_mean_us: if measured.updates.is_empty() { f64::NAN } else { measured.updates.mean() / 1000.0 },
        reads: share(measured.all.len() - measured.updates.len() - measured.locks),
        locks: share(measured.locks),
        distribution: PERCENTILES.iter().map(|at| percentile(&measured.all, *at)).collect(),
        device_us: cpu(&after.devices, &before.devices),
        server_us: cpu(&after.servers, &before.servers),
        again: measured.sent_again as f64 * 1000.0 / requests,
        acknowledged: share(measured.by_devices),
        cached: share(measured.from_cache),
    })
}

/// Returns a percentile in µs, or NaN without samples.
fn percentile(latencies: &Histogram<u64>, at: f64) -> f64 {
    if latencies.is_empty() { f64::NAN } else { latencies.value_at_percentile(at) as f64 / 1000.0 }
}

impl Row {
    fn of(spec: Spec, samples: &[Sample]) -> Option<Self> {
        let summary = |of: fn(&Sample) -> f64| Summary::of(samples.iter().map(of));
        let at = |index: usize| Summary::of(samples.iter().map(|sample| sample.distribution[index]));
        let distribution: Vec<Summary> = (0..PERCENTILES.len()).filter_map(at).collect();
        let point = |percent: f64| {
            let index = PERCENTILES.iter().position(|at| *at == percent)?;
            distribution.get(index).cloned()
        };
        Some(Self {
            spec,
            rps: summary(|sample| sample.rps)?,
            tps: summary(|sample| sample.tps)?,
            mean_us: summary(|sample| sample.mean_us)?,
            p50_us: point(50.0)?,
            p99_us: point(99.0)?,
            update_p50_us: summary(|sample| sample.update_p50_us),
            update_mean_us: summary(|sample| sample.update_mean_us),
            reads: summary(|sample| sample.reads),
            locks: summary(|sample| sample.locks),
            device_us: summary(|sample| sample.device_us),
            server_us: summary(|sample| sample.server_us),
            again: summary(|sample| sample.again)?,
            acknowledged: summary(|sample| sample.acknowledged)?,
            cached: summary(|sample| sample.cached)?,
            distribution,
        })
    }
}

/// Finds the row of a contestant under a load.
pub(crate) fn find(rows: &[Row], spec: Spec) -> Option<&Row> {
    rows.iter().find(|row| row.spec == spec)
}

/// Returns whether any row measures an application.
pub(crate) fn has_app(rows: &[Row], app: App) -> bool {
    rows.iter().any(|row| row.spec.app == app)
}

/// Groups rows by a key of their specs.
pub(crate) fn groups<K: Ord>(rows: &[Row], key: impl Fn(&Spec) -> K) -> BTreeMap<K, Vec<&Row>> {
    let mut found: BTreeMap<K, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        found.entry(key(&row.spec)).or_default().push(row);
    }
    found
}
