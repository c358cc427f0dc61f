//! How long requests take where work costs time: closed-loop clients, no faults.

use super::super::costs::{Core, Costs};
use super::super::history::Told;
use super::super::setup::Setup;
use super::PmnetWorld;
use crate::violation::{Violation, ensure};
use landfall_pmnet::Instant;
use std::time::Duration;

/// Longest that one request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Until sessions have begun.
const START: Duration = Duration::from_millis(100);
/// Registers that clients write, one after the other.
const KEYS: u64 = 4;

/// What is asked of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Clients, each with one update under way.
    pub clients: usize,
    /// Devices of the chain; without any, the server acknowledges.
    pub devices: usize,
    /// Replicas of the server.
    pub replicas: usize,
    /// Updates of each client.
    pub updates: u64,
    /// How long a client rests after each.
    pub rest: Duration,
}

/// How long updates took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Each update, from being given to its client until the client has been told that it is durable; in order of length.
    pub latencies: Vec<Duration>,
    /// From the first to the end of the last.
    pub span: Duration,
}

impl Timed {
    /// The latency that so many of 100 do not exceed; zero without updates.
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

/// Runs a load on a system whose work costs so much.
///
/// # Errors
/// A request that does not come to its end; what the rules do not allow.
pub fn measure(load: &Load, costs: &Costs) -> Result<Timed, Violation> {
    let mut setup = Setup::calm(load.clients, load.devices, load.replicas);
    setup.costs = Some(*costs);
    setup.server.batches_max = 1;
    // Devices that never wait see every packet.
    setup.devices.iter_mut().for_each(|device| device.passes = false);
    let mut world = PmnetWorld::new(setup)?;
    world.run_for(START)?;
    let mut under_way: Vec<Option<UnderWay>> = vec![None; load.clients];
    let mut left = vec![load.updates; load.clients];
    let begun = world.fabric.now;
    let mut timed = Timed { latencies: Vec::new(), span: Duration::ZERO };
    let mut resting: Vec<Instant> = vec![begun; load.clients];
    loop {
        for client in 0..load.clients {
            if under_way[client].is_none() && left[client] > 0 && resting[client] <= world.fabric.now {
                under_way[client] = Some(world.begin_timed(client, left[client])?);
                left[client] -= 1;
            }
        }
        if under_way.iter().all(Option::is_none) && left.iter().all(|left| *left == 0) {
            break;
        }
        world.step_timed(&resting)?;
        for client in 0..load.clients {
            let Some(it) = under_way[client] else { continue };
            let late = world.fabric.now.since(it.begun);
            ensure!(late < PATIENCE, "an update of client {client} takes longer than {PATIENCE:?}");
            if world.told(client, it.place) != Told::Nothing {
                let done = world.fabric.done_at(Core::Client(client));
                timed.latencies.push(done.since(it.begun));
                timed.span = timed.span.max(done.since(begun));
                (under_way[client], resting[client]) = (None, done + load.rest);
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
        let place = place.ok_or_else(|| Violation(format!("client {client} takes no update")))?;
        Ok(UnderWay { place, begun })
    }

    /// What comes next, or a client that has rested.
    fn step_timed(&mut self, resting: &[Instant]) -> Result<(), Violation> {
        let now = self.fabric.now;
        let rested = resting.iter().copied().filter(|at| *at > now);
        if let Some(at) = self.next_at().into_iter().chain(rested).min() {
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
        let rest = Duration::from_millis(1);
        let timed = measure(&Load { clients: 1, devices, replicas, updates: 20, rest }, &costs()).unwrap();
        assert_eq!(timed.latencies.len(), 20);
        assert_eq!(timed.latencies.first(), timed.latencies.last(), "nothing is left to chance");
        assert_eq!(timed.mean(), timed.percentile(50));
        timed.mean().as_micros()
    }

    #[test]
    fn one_update_takes_the_sum_of_what_is_on_its_way() {
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
        // Each further device is two more wires, an update looked at and sent on, and an acknowledgement looked at and sent back.
        let further = 1 + 1 + 4 + 1 + 1 + 4;
        let three = alone(3, 0);
        assert!(three >= one + 2 * further && three <= one + 2 * further + 3 + 4 + 2 * 4, "{three}");
    }

    #[test]
    fn clients_queue_for_a_core_that_is_busy() {
        let load = Load { clients: 8, devices: 0, replicas: 0, updates: 30, rest: Duration::ZERO };
        let timed = measure(&load, &costs()).unwrap();
        let rate = timed.latencies.len() as f64 / timed.span.as_secs_f64();
        // One core receives, executes and sends each; commits are shared by those that come together.
        let most = 1e6 / (4.0 + 10.0 + 5.0 + 20.0 / 8.0);
        assert!(rate <= most * 1.05 && rate > most * 0.5, "{rate} {most}");
        assert!(timed.mean() > Duration::from_micros(100), "{:?}", timed.mean());
    }
}
