//! Simulates client, device and server, each on a core of its own, from costs that were measured on this machine. Two
//! cores cannot show this.
//!
//! The costs of each round are these:
//!
//! - A host's cost for a message is half of a round trip between two hosts that busy-poll over a bare veth pair. Half
//!   of that cost is for sending, half for receiving. The cost of waking a host is what the round trip takes longer if
//!   the hosts wait in the kernel.
//! - The costs of a device's stages are those that [`pipeline`] measures. The cost of sending through a veth pair is
//!   the rest of PMNet's round trip.
//! - The cost of executing a request is the difference between the round trips of the application and of the ideal
//!   handler. For an application on a file, the server's CPU time is the execution and the rest is the commit. Requests
//!   that arrive together share a commit.

mod pipeline;

use super::app::App;
use super::choices::{PAYLOAD, app};
use super::compare::{Row, find};
use super::design::{Design, PMNET, Spec, Waits};
use crate::common::error::BenchError;
use crate::common::measure::stats::Summary;
use crate::common::progress::{check_stop, say};
use crate::pmnet::lab::Lab;
use landfall_sim::pmnet::{Costs, Load, Timed, measure};
pub(crate) use pipeline::Pipeline;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Updates of a single client.
const UPDATES: u64 = 200;
/// Updates of each of [`MANY`] clients.
const UPDATES_EACH: u64 = 60;
/// The number of clients of a simulation with many.
pub(crate) const MANY: usize = 16;
/// The pause after each update of a single client. All work for the update ends within it.
const PAUSE: Duration = Duration::from_millis(20);
/// The latency of a hop in a rack.
const WIRE: Duration = Duration::from_nanos(500);

/// The network ports of simulated devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ports {
    /// Veth pairs, as measured here. The sender also executes the peer's receive path.
    Veth,
    /// Network cards that read and write the device's memory by DMA. The device's only cost is its own instructions,
    /// and a hop takes 500 ns.
    Cards,
    /// Devices and wires without costs. No device can reach a target that these miss.
    Free,
}

impl Ports {
    const ALL: [Self; 3] = [Self::Veth, Self::Cards, Self::Free];

    /// The words in reports.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Veth => "through veth pairs",
            Self::Cards => "through cards",
            Self::Free => "that cost nothing",
        }
    }
}

/// A simulated application. Latencies are means in µs; rates are updates a second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Simulated {
    pub(crate) app: App,
    pub(crate) hosts: Waits,
    pub(crate) ports: Ports,
    pub(crate) client_server: Summary,
    pub(crate) pmnet: Summary,
    pub(crate) replicated: Summary,
    pub(crate) devices_3: Summary,
    /// Rate of [`MANY`] clients over the rate of client-server.
    pub(crate) many: Summary,
}

/// The simulated applications and the costs that they are based on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Model {
    /// The costs of the pipeline's stages in each round.
    pub(crate) pipelines: Vec<Pipeline>,
    pub(crate) rows: Vec<Simulated>,
}

/// Returns the measurements that the simulations are based on.
pub(crate) fn specs(apps: &[App]) -> Vec<Spec> {
    let hosts = [Waits::Block, Waits::Spin].map(|waits| Spec::ideal(Design::Direct, waits, PAYLOAD));
    let device = Spec::ideal(PMNET, Waits::Spin, PAYLOAD);
    let served = std::iter::once(App::Ideal).chain(apps.iter().copied());
    let served = served.map(|it| app(it, Design::ClientServer, 100, 1));
    hosts.into_iter().chain([device]).chain(served).collect()
}

/// Simulates every application whose costs were measured.
pub(crate) fn run(lab: &Lab, rows: &[Row], apps: &[App]) -> Result<Model, BenchError> {
    let pipelines: Result<Vec<_>, _> =
        (0..lab.args.rounds).map(|_| pipeline::measure(&lab.args.dir, PAYLOAD)).collect();
    let mut model = Model { pipelines: pipelines?, rows: Vec::new() };
    for it in std::iter::once(App::Ideal).chain(apps.iter().copied()) {
        for hosts in [Waits::Block, Waits::Spin] {
            for ports in Ports::ALL {
                check_stop()?;
                say(format_args!("  simulated: {}{}, {ports:?}", it.name(), hosts.words()));
                let known = costs(rows, &model.pipelines, it, hosts, ports);
                model.rows.extend(simulate(&known, it, hosts, ports)?);
            }
        }
    }
    Ok(model)
}

fn micros(us: f64) -> Duration {
    Duration::from_secs_f64(us.max(0.0) / 1e6)
}

/// Returns the costs of each round. Empty if a measurement is missing.
fn costs(rows: &[Row], pipelines: &[Pipeline], it: App, hosts: Waits, ports: Ports) -> Vec<Costs> {
    let of = |spec: Spec| find(rows, spec).map(|row| row.p50_us.samples.clone()).unwrap_or_default();
    let trip = of(Spec::ideal(Design::Direct, hosts, PAYLOAD));
    let spinning = of(Spec::ideal(Design::Direct, Waits::Spin, PAYLOAD));
    let logged = of(Spec::ideal(PMNET, Waits::Spin, PAYLOAD));
    let ideal = of(app(App::Ideal, Design::ClientServer, 100, 1));
    let served = of(app(it, Design::ClientServer, 100, 1));
    let cpu = find(rows, app(it, Design::ClientServer, 100, 1)).and_then(|row| row.server_us.clone());
    let cpu = cpu.map(|cpu| cpu.samples).unwrap_or_default();
    let rounds = [&trip, &spinning, &logged, &ideal, &served, &cpu].map(Vec::len).into_iter().min();
    (0..rounds.unwrap_or(0).min(pipelines.len()))
        .map(|round| {
            let stages = if ports == Ports::Free { Pipeline::default() } else { pipelines[round] };
            let own = (stages.take + stages.fence) / 1000.0;
            let longer = (served[round] - ideal[round]).max(0.0);
            let executes = if it.is_on_file() { longer.min(cpu[round]) } else { longer };
            let sends = if ports == Ports::Veth { logged[round] - spinning[round] / 2.0 - own } else { 0.0 };
            Costs {
                wire: if ports == Ports::Cards { WIRE } else { Duration::ZERO },
                host_send: micros(spinning[round] / 4.0),
                host_receive: micros(spinning[round] / 4.0),
                host_wake: micros((trip[round] - spinning[round]) / 2.0),
                take: micros(stages.take / 1000.0),
                look: micros(stages.look / 1000.0),
                join: micros(stages.join / 1000.0),
                fence: micros(stages.fence / 1000.0),
                device_send: micros(sends),
                execute: micros(executes),
                commit: micros(longer - executes),
            }
        })
        .collect()
}

fn simulate(known: &[Costs], app: App, hosts: Waits, ports: Ports) -> Result<Option<Simulated>, BenchError> {
    let alone = |devices, replicas| {
        let load = Load { clients: 1, devices, replicas, updates: UPDATES, pause: PAUSE };
        let each = known.iter().map(|costs| Ok(micros_of(timed(&load, costs)?.mean())));
        summary(each.collect::<Result<Vec<_>, BenchError>>()?)
    };
    let many = |devices| {
        let load = Load { clients: MANY, devices, replicas: 0, updates: UPDATES_EACH, pause: Duration::ZERO };
        let rate = |timed: &Timed| timed.latencies.len() as f64 / timed.span.as_secs_f64();
        let each = known.iter().map(|costs| Ok(rate(&timed(&load, costs)?)));
        summary(each.collect::<Result<Vec<_>, BenchError>>()?)
    };
    if known.is_empty() {
        return Ok(None);
    }
    Ok(Some(Simulated {
        app,
        hosts,
        ports,
        client_server: alone(0, 0)?,
        pmnet: alone(1, 0)?,
        replicated: alone(0, 2)?,
        devices_3: alone(3, 2)?,
        many: many(1)?.over(&many(0)?).ok_or(BenchError::Nothing("no update was completed"))?,
    }))
}

fn timed(load: &Load, costs: &Costs) -> Result<Timed, BenchError> {
    measure(load, costs).map_err(|violation| BenchError::Store(violation.to_string()))
}

fn micros_of(latency: Duration) -> f64 {
    latency.as_secs_f64() * 1e6
}

fn summary(values: Vec<f64>) -> Result<Summary, BenchError> {
    Summary::of(values).ok_or(BenchError::Nothing("nothing was simulated"))
}
