//! Predicts how long requests take, with the cost model, closed-loop clients and no faults.

use super::super::costs::{Core, Costs};
use super::super::history::Told;
use super::super::setup::Setup;
use super::PmnetWorld;
use crate::violation::{Violation, ensure};
use landfall_pmnet::Instant;
use std::time::Duration;

/// Longest time that one request may take.
const LATENCY_MAX: Duration = Duration::from_secs(5);
/// Time until all sessions have started.
const START: Duration = Duration::from_millis(100);
/// Number of registers that clients write in turn.
const KEYS: u64 = 4;

/// The load of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of clients, each with one update under way.
    pub clients: usize,
    /// Number of devices of the chain. Without devices, the server acknowledges.
    pub devices: usize,
    /// Number of replicas of the server.
    pub replicas: usize,
    /// Number of updates of each client.
    pub updates: u64,
    /// Pause of a client after each update.
    pub pause: Duration,
}

/// The times of a load's updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Latency of each update, sorted: from when the client is given the update until it knows that the update is
    /// durable.
    pub latencies: Vec<Duration>,
    /// Time from the start of the first update to the end of the last.
    pub span: Duration,
}

impl Timed {
    /// The latency that `percent` of 100 updates do not exceed; zero without updates.
    pub fn percentile(&self, percent: usize) -> Duration {
        let at = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).copied().unwrap_or_default()
    }

    /// The mean latency; zero without updates.
    pub fn mean(&self) -> Duration {
        let sum: Duration = self.latencies.iter().sum();
        sum.checked_div(self.latencies.len() as u32).unwrap_or_default()
    }
}

/// Runs a load on a system with these costs.
///
/// # Errors
/// A request takes too long; a violation of the rules.
pub fn measure(load: &Load, costs: &Costs) -> Result<Timed, Violation> {
    let mut setup = Setup::calm(load.clients, load.devices, load.replicas);
    setup.costs = Some(*costs);
    setup.server.batches_max = 1;
    // The devices never block, so that they handle every packet.
    setup.devices.iter_mut().for_each(|device| device.passes = false);
    let mut world = PmnetWorld::new(setup)?;
    world.run_for(START)?;
    let mut under_way: Vec<Option<UnderWay>> = vec![None; load.clients];
    let mut remaining = vec![load.updates; load.clients];
    let begun = world.fabric.now;
    let mut timed = Timed { latencies: Vec::new(), span: Duration::ZERO };
    let mut paused_until: Vec<Instant> = vec![begun; load.clients];
    loop {
        for client in 0..load.clients {
            let is_idle = under_way[client].is_none() && paused_until[client] <= world.fabric.now;
            if is_idle && remaining[client] > 0 {
                under_way[client] = Some(world.begin_timed(client, remaining[client])?);
                remaining[client] -= 1;
            }
        }
        if under_way.iter().all(Option::is_none) && remaining.iter().all(|remaining| *remaining == 0) {
            break;
        }
        world.step_timed(&paused_until)?;
        for client in 0..load.clients {
            let Some(it) = under_way[client] else { continue };
            let late = world.fabric.now.since(it.begun);
            ensure!(late < LATENCY_MAX, "an update of client {client} takes longer than {LATENCY_MAX:?}");
            if world.told(client, it.place) != Told::Nothing {
                let done = world.fabric.done_at(Core::Client(client));
                timed.latencies.push(done.since(it.begun));
                timed.span = timed.span.max(done.since(begun));
                (under_way[client], paused_until[client]) = (None, done + load.pause);
            }
        }
    }
    timed.latencies.sort_unstable();
    Ok(timed)
}

#[derive(Clone, Copy)]
struct UnderWay {
    place: usize,
    begun: Instant,
}

impl PmnetWorld {
    fn begin_timed(&mut self, client: usize, number: u64) -> Result<UnderWay, Violation> {
        let begun = self.fabric.done_at(Core::Client(client));
        self.fabric.enter(Core::Client(client), |_| Duration::ZERO);
        let place = self.update(client, (number % KEYS) as u8, 40)?;
        self.fabric.leave();
        let place = place.ok_or_else(|| Violation(format!("client {client} accepts no update")))?;
        Ok(UnderWay { place, begun })
    }

    /// Advances to the next event, or to the end of a client's pause.
    fn step_timed(&mut self, paused_until: &[Instant]) -> Result<(), Violation> {
        let now = self.fabric.now;
        let pauses = paused_until.iter().copied().filter(|at| *at > now);
        if let Some(at) = self.next_at().into_iter().chain(pauses).min() {
            self.fabric.now = now.max(at);
        }
        self.step()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        let micros = Duration::from_micros;
        Costs {
            wire: micros(1),
            host_send: micros(5),
            host_receive: micros(4),
            host_wake: micros(3),
            take: micros(2),
            look: micros(1),
            join: micros(1),
            fence: micros(3),
            device_send: micros(4),
            execute: micros(10),
            commit: micros(20),
        }
    }

    fn alone(devices: usize, replicas: usize) -> u128 {
        let pause = Duration::from_millis(1);
        let timed = measure(&Load { clients: 1, devices, replicas, updates: 20, pause }, &costs()).unwrap();
        assert_eq!(timed.latencies.len(), 20);
        assert_eq!(timed.latencies.first(), timed.latencies.last(), "the times are not random");
        assert_eq!(timed.mean(), timed.percentile(50));
        timed.mean().as_micros()
    }

    #[test]
    fn one_update_takes_the_sum_of_the_costs_on_its_path() {
        assert_eq!(alone(0, 0), 5 + 1 + 7 + 10 + 20 + 5 + 1 + 7);
        assert_eq!(alone(1, 0), 5 + 1 + 2 + 3 + 4 + 1 + 7);
    }

    #[test]
    fn replicas_of_the_server_delay_its_reply_and_not_a_devices() {
        let costs = costs();
        // The server's own commit is over before its replicas have answered.
        let replicated = 5 + 1 + 7 + 10 + costs.replicate().as_micros() + 5 + 1 + 7;
        assert!(alone(0, 2).abs_diff(replicated) <= 20, "{} {replicated}", alone(0, 2));
        assert_eq!(alone(1, 2), alone(1, 0));
    }

    #[test]
    fn fences_of_a_chain_overlap() {
        let one = 5 + 1 + 2 + 3 + 4 + 1 + 7;
        // Each further device adds two wires, and the handling and sending of an update and of an acknowledgement.
        let further = 1 + 1 + 4 + 1 + 1 + 4;
        let three = alone(3, 0);
        assert!(three >= one + 2 * further && three <= one + 2 * further + 3 + 4 + 2 * 4, "{three}");
    }

    #[test]
    fn clients_queue_for_a_core_that_is_busy() {
        let load = Load { clients: 8, devices: 0, replicas: 0, updates: 30, pause: Duration::ZERO };
        let timed = measure(&load, &costs()).unwrap();
        let rate = timed.latencies.len() as f64 / timed.span.as_secs_f64();
        // One core receives, executes and sends each update. Updates that arrive together share a commit.
        let most = 1e6 / (4.0 + 10.0 + 5.0 + 20.0 / 8.0);
        assert!(rate <= most * 1.05 && rate > most * 0.5, "{rate} {most}");
        assert!(timed.mean() > Duration::from_micros(100), "{:?}", timed.mean());
    }
}
