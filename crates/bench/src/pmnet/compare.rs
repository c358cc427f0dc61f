//! Measures contestants in turns.

use super::app::App;
use super::course::Course;
use super::design::{Spec, Waits};
use super::lab::Lab;
use super::load::{Channel, Framing, Measured, Patience, Plan, Rest, StreamChannel, UdpChannel, drive};
use super::settle::{confirm, drain};
use super::stand::{Extent, Stand};
use super::sys::sleep_exactly;
use super::work::{Ask, Settings, check_executed, clients, fill};
use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::common::sys::pin;
use crate::common::turns::in_turns;
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
/// The clients that fill an application.
const FILLERS: usize = 16;

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
    /// CPU time of all servers, loggers and side-cars, µs a request: from the first request until everything is
    /// executed, over all requests of that time. The warm-up and what follows the last acknowledgement are part of it.
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

/// A run whose updates all are executed.
#[derive(Debug)]
struct Run {
    /// The marks are the CPU time of the devices.
    measured: Measured<Vec<CpuTime>>,
    /// CPU time of the servers, ns, for all requests that were completed. `None` without servers.
    servers_ns: Option<u64>,
}

/// Runs contestants in turns. One that fails is noted and left out.
pub(crate) fn run(lab: &Lab, specs: &[Spec], notes: &mut Vec<String>) -> Result<Vec<Row>, BenchError> {
    let once = |round: u32, spec: Spec| {
        say(format_args!("  round {round} of {}: {}", lab.args.rounds, spec.describe()));
        turn(lab, spec)
    };
    let fail = |spec: Spec, error: &BenchError| {
        let note = format!("FAILED {}: {error}", spec.describe());
        say(format_args!("  {note}"));
        notes.push(note);
    };
    let able = specs.iter().copied().filter(|spec| lab.can_run(spec));
    let runs = in_turns(lab.args.rounds, able, once, fail)?;
    Ok(runs.iter().filter_map(|(spec, samples)| Row::of(*spec, samples)).collect())
}

fn turn(lab: &Lab, spec: Spec) -> Result<Sample, BenchError> {
    let stand = Stand::start(lab, spec, Extent::of(lab))?;
    let _awake = lab.keep_awake(spec.waits);
    let run = stand.course.client.enter(|| {
        lab.is_pinning().then(|| pin(lab.args.client_core));
        sleep_exactly();
        prefer_slices_of(CLIENT_SLICE);
        run_clients(lab, &stand, spec)
    });
    let run = run.inspect_err(|error| {
        if !matches!(error, BenchError::Interrupted) {
            stand.report_state();
        }
    })?;
    sample(&run, spec.rests)
}

/// Fills the application and runs its clients, until servers have executed everything.
fn run_clients(lab: &Lab, stand: &Stand, spec: Spec) -> Result<Run, BenchError> {
    let settings = settings_of(lab, spec);
    let filled = load(stand, settings)?;
    let servers = stand.cpu_of_servers();
    let mut channel = stand.open_channel()?;
    let work = clients(settings, spec.clients);
    let measured = drive(&mut *channel, work, plan_of(lab, spec), || Ok(stand.cpu_of_devices()))?;
    // A device acknowledges what the server has yet to execute.
    let sent = filled + channel.updates();
    drain(stand, sent)?;
    let servers_ns = used_ns(&servers, &stand.cpu_of_servers());
    confirm(stand, sent)?;
    Ok(Run { measured, servers_ns })
}

fn plan_of(lab: &Lab, spec: Spec) -> Plan {
    let sleeps = spec.waits != Waits::Spin;
    let length_of_rest = Duration::from_micros(lab.args.rest_us) * spec.rest_factor();
    let rest = spec.rests.then_some(Rest { length: length_of_rest, sleeps });
    Plan { warm_up: lab.args.warm_up, length: Duration::from_secs_f64(lab.args.seconds), rest }
}

/// Returns the CPU time that processes have used between two marks, ns. `None` without processes.
fn used_ns(before: &[CpuTime], after: &[CpuTime]) -> Option<u64> {
    let used = after.iter().zip(before).map(|(after, before)| after.since_ns(*before));
    (!after.is_empty()).then(|| used.sum())
}

pub(crate) fn settings_of(lab: &Lab, spec: Spec) -> Settings {
    let (payload, updates) = (spec.payload, spec.updates);
    Settings { app: spec.app, payload, updates, keys: lab.args.keys, seed: SEED }
}

/// Fills the application, and waits until its server has executed that. Where possible, the requests bypass the devices
/// that are measured. Returns the number of updates that did not.
pub(crate) fn load(stand: &Stand, settings: Settings) -> Result<u64, BenchError> {
    let requests = fill(settings);
    if requests.is_empty() {
        return Ok(0);
    }
    let mut channel = filler(stand, settings.app)?;
    send_all(&mut *channel, settings.app, requests)?;
    let sent = channel.updates();
    drain(stand, sent)?;
    Ok(sent)
}

fn filler(stand: &Stand, app: App) -> Result<Box<dyn Channel>, BenchError> {
    if app.speaks_resp() {
        let at = Course::at_server(super::course::RESP_PORT);
        return Ok(Box::new(StreamChannel::open(at, FILLERS, Framing::Resp, Patience::WAITS)?));
    }
    match stand.plain_address() {
        Some(at) => Ok(Box::new(UdpChannel::open(at, FILLERS, Patience::WAITS)?)),
        None => stand.open_filler(FILLERS),
    }
}

/// Sends requests by [`FILLERS`] clients, and waits until all are complete. Reads are measured later that must find what
/// was filled, so that a request that was not executed is an error.
fn send_all(channel: &mut dyn Channel, app: App, requests: Vec<Vec<u8>>) -> Result<(), BenchError> {
    let mut free: Vec<usize> = (0..FILLERS).collect();
    for bytes in requests {
        while free.is_empty() {
            free.extend(complete(channel, app)?);
        }
        let client = free.pop().unwrap_or(0);
        channel.send(client, &Ask { bytes, update: true, ends: true, ..Ask::default() })?;
    }
    while free.len() < FILLERS {
        free.extend(complete(channel, app)?);
    }
    Ok(())
}

/// Returns the clients whose requests have been executed, or acknowledged by a log.
fn complete(channel: &mut dyn Channel, app: App) -> Result<Vec<usize>, BenchError> {
    check_stop()?;
    let mut done = Vec::new();
    channel.receive(&mut done)?;
    done.iter().map(|done| check_executed(app, &done.reply).map(|()| done.client)).collect()
}

fn sample(run: &Run, rests: bool) -> Result<Sample, BenchError> {
    let measured = &run.measured;
    let requests = measured.all.len() as f64;
    if measured.all.is_empty() {
        return Err(BenchError::Nothing("no request was completed"));
    }
    // The rate of a client that pauses leaves out the pauses.
    let waited = measured.all.mean() * requests / 1e9;
    let seconds = if rests { waited } else { measured.took.as_secs_f64() };
    let (before, after) = &measured.marks;
    let each_us = |ns: Option<u64>, requests: f64| ns.map_or(f64::NAN, |ns| ns as f64 / 1000.0 / requests);
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
        device_us: each_us(used_ns(before, after), requests),
        server_us: each_us(run.servers_ns, measured.completed as f64),
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

/// Groups rows by a key of their specs.
pub(crate) fn groups<K: Ord>(rows: &[Row], key: impl Fn(&Spec) -> K) -> BTreeMap<K, Vec<&Row>> {
    let mut found: BTreeMap<K, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        found.entry(key(&row.spec)).or_default().push(row);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::clients::builtin::histogram;
    use crate::pmnet::app::On;
    use crate::pmnet::load::{By, Done};
    use landfall_bench_handlers::Structure;

    /// Gives every request the same reply.
    struct Replies {
        reply: &'static [u8],
        waiting: Vec<usize>,
        sent: usize,
    }

    impl Channel for Replies {
        fn send(&mut self, client: usize, _ask: &Ask) -> Result<(), BenchError> {
            self.waiting.push(client);
            self.sent += 1;
            Ok(())
        }

        fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError> {
            let reply = |client| Done { client, reply: self.reply.to_vec(), by: By::Server };
            done.extend(self.waiting.drain(..).map(reply));
            Ok(())
        }

        fn sent_again(&self) -> u64 {
            0
        }
    }

    #[test]
    fn an_application_is_filled_only_if_every_request_was_executed() {
        let (redis, map) = (App::Redis(On::File), App::Map(Structure::BTree));
        for (app, reply, executed) in [
            (redis, &b"+OK\r\n"[..], true),
            (App::Twitter(On::Memory), b":0\r\n", true),
            (redis, b"-OOM command not allowed\r\n", false),
            (App::Landfall, b"-NOSPACE the region is full\r\n", false),
            (map, b"O", true),
            (map, b"Eshort request", false),
            // The acknowledgement of a log.
            (map, b"", true),
        ] {
            let mut channel = Replies { reply, waiting: Vec::new(), sent: 0 };
            let requests = vec![b"request".to_vec(); 2 * FILLERS + 1];
            let filled = send_all(&mut channel, app, requests);
            assert_eq!(filled.is_ok(), executed, "{app:?}: {filled:?}");
            assert!(!executed || channel.sent == 2 * FILLERS + 1);
        }
    }

    /// A second with two requests of 1 ms each.
    fn run() -> Run {
        let mut all = histogram();
        all.record_n(1_000_000, 2).unwrap();
        let measured = Measured {
            updates: all.clone(),
            all,
            took: Duration::from_secs(1),
            transactions: 2,
            from_cache: 0,
            by_devices: 2,
            locks: 0,
            sent_again: 0,
            completed: 2,
            marks: (Vec::new(), Vec::new()),
        };
        Run { measured, servers_ns: Some(8_000) }
    }

    #[test]
    fn the_time_of_servers_is_divided_by_all_requests_that_they_executed() {
        let mut run = run();
        assert_eq!(sample(&run, false).unwrap().server_us, 4.0);
        // Two requests in front of the measured part: the servers' time has them, the client's rate has not.
        run.measured.completed = 4;
        let found = sample(&run, false).unwrap();
        assert_eq!((found.server_us, found.rps), (2.0, 2.0));
        run.servers_ns = None;
        assert!(sample(&run, false).unwrap().server_us.is_nan());
    }
}
