//! Contestants in turns.

use super::app::App;
use super::course::Course;
use super::design::{Spec, Waits};
use super::lab::Lab;
use super::load::{Channel, Framing, Measured, Patience, Plan, Rest, StreamChannel, UdpChannel, drive};
use super::stand::{Extent, Stand};
use super::sys::rest_exactly;
use super::work::{Ask, Settings, clients, fill};
use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::common::sys::pin;
use hdrhistogram::Histogram;
use landfall_sockets::prefer_slices_of;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Points of a latency distribution, percent.
pub(crate) const PERCENTILES: [f64; 16] =
    [0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9];
const SEED: u64 = 11;
/// How long the clients' thread runs at a time where it shares its core: the shortest that the kernel grants. On a machine of its
/// own it would wait for nobody; here whoever works behind its back would keep it waiting for the rest of a slice.
const CLIENT_SLICE: Duration = Duration::from_micros(100);

/// One contestant under one load, over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) spec: Spec,
    /// Requests a second.
    pub(crate) rps: Summary,
    /// Transactions a second; requests, where each is one.
    pub(crate) tps: Summary,
    /// Latency of a request, µs.
    pub(crate) mean_us: Summary,
    pub(crate) p50_us: Summary,
    pub(crate) p99_us: Summary,
    /// Of updates alone.
    pub(crate) update_p50_us: Option<Summary>,
    pub(crate) update_mean_us: Option<Summary>,
    /// Requests that read, and bypasses that change something (locks, numbers), of a hundred.
    pub(crate) reads: Summary,
    pub(crate) locks: Summary,
    /// [`PERCENTILES`] of a request's latency, µs.
    pub(crate) distribution: Vec<Summary>,
    /// CPU time of all devices, µs a request; of one that spins, the time of its core.
    pub(crate) device_us: Option<Summary>,
    /// CPU time of all servers, loggers and side-cars, µs a request.
    pub(crate) server_us: Option<Summary>,
    /// Requests sent again, of a thousand.
    pub(crate) again: Summary,
    /// Requests that the devices' acknowledgements completed, of a hundred.
    pub(crate) acknowledged: Summary,
    /// Requests that the read cache answered, of a hundred.
    pub(crate) cached: Summary,
}

/// One run.
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

/// What is read before and after.
#[derive(Debug)]
struct Marks {
    devices: Vec<CpuTime>,
    servers: Vec<CpuTime>,
}

/// Runs contestants in turns: A B C A B C ..., so that what disturbs the machine for a while disturbs all. One that
/// fails is left out from then on, and noted.
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
        rest_exactly();
        prefer_slices_of(CLIENT_SLICE);
        load(&stand, settings)?;
        let mut channel = stand.open_channel()?;
        drive(&mut *channel, clients(settings, spec.clients), plan, mark)
    });
    let measured = measured.inspect_err(|error| {
        if !matches!(error, BenchError::Interrupted) {
            stand.tell_last();
        }
    })?;
    sample(&measured, spec.rests)
}

pub(crate) fn settings_of(lab: &Lab, spec: Spec) -> Settings {
    let (payload, updates) = (spec.payload, spec.updates);
    Settings { app: spec.app, payload, updates, keys: lab.args.keys, seed: SEED }
}

/// Fills the application, past whatever is measured where that is possible.
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
        match stand.is_plain() {
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
        return Err(BenchError::Nothing("no request came to its end"));
    }
    // Of a client that rests: what it would do if it did not, and nobody worked behind its back.
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

/// µs; no number without samples.
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
            reads: summary(|sample| sample.reads)?,
            locks: summary(|sample| sample.locks)?,
            device_us: summary(|sample| sample.device_us),
            server_us: summary(|sample| sample.server_us),
            again: summary(|sample| sample.again)?,
            acknowledged: summary(|sample| sample.acknowledged)?,
            cached: summary(|sample| sample.cached)?,
            distribution,
        })
    }
}

/// The row of a contestant under a load.
pub(crate) fn find(rows: &[Row], spec: Spec) -> Option<&Row> {
    rows.iter().find(|row| row.spec == spec)
}

/// Whether anything is known of an application.
pub(crate) fn has_app(rows: &[Row], app: App) -> bool {
    rows.iter().any(|row| row.spec.app == app)
}

/// Rows by what their specs have in common.
pub(crate) fn groups<K: Ord>(rows: &[Row], key: impl Fn(&Spec) -> K) -> BTreeMap<K, Vec<&Row>> {
    let mut found: BTreeMap<K, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        found.entry(key(&row.spec)).or_default().push(row);
    }
    found
}
