//! What was simulated: the rows of the report.

use super::course::{ChainCosts, Operation};
use crate::common::measure::stats::Summary;
use crate::files::LoadChoice;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clients of Figures 4 and 6.
pub(super) const CLIENTS: [u32; 4] = [1, 2, 4, 8];
pub(super) const CLIENTS_OF_EQUALS: u32 = 2;
/// MiB that a simulated client writes.
pub(super) const MIB_EACH: u64 = 256;

/// A load that was measured on this machine, and simulated on one like it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(super) load: String,
    pub(super) place: String,
    /// Of operations, or MiB, a second.
    pub(super) measured: Summary,
    pub(super) simulated: Summary,
}

/// Clients that write at once, each a file of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scaled {
    /// Processors of each machine.
    pub(super) processors: u32,
    pub(super) place: String,
    pub(super) clients: u32,
    /// Beside each replica runs a program of the lowest priority.
    pub(super) busy: bool,
    /// MiB a second, of all clients.
    pub(super) rate: Summary,
}

/// Two clients that write, and a program of the same priority on each machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(super) processors: u32,
    pub(super) place: String,
    /// MiB a second.
    pub(super) rate: Summary,
    /// How often as long as alone a round of the program takes, beside the first server and beside a replica.
    pub(super) slowdowns: [Summary; 2],
}

/// An application, with replicas that are busy.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Application {
    pub(super) processors: u32,
    pub(super) load: LoadChoice,
    pub(super) place: String,
    /// Operations a second, and the mean time of one, microseconds.
    pub(super) rate: Summary,
    pub(super) mean_us: Summary,
}

/// The costs of a round at a place.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Costs {
    pub(super) chain: ChainCosts,
    /// The factor by which work takes longer beside a program that needs memory and caches.
    pub(super) contention: f64,
}

/// What was simulated, and what from.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Model {
    /// By place, round by round.
    pub(super) costs: BTreeMap<String, Vec<Costs>>,
    pub(super) writes: Vec<Operation>,
    pub(super) checks: Vec<Check>,
    pub(super) scaled: Vec<Scaled>,
    pub(super) beside: Vec<Beside>,
    pub(super) applications: Vec<Application>,
}

impl Model {
    pub(super) fn scaled(&self, processors: u32, place: &str, clients: u32, busy: bool) -> Option<&Summary> {
        let is = |row: &&Scaled| {
            (row.processors, &*row.place, row.clients, row.busy) == (processors, place, clients, busy)
        };
        self.scaled.iter().find(is).map(|row| &row.rate)
    }

    /// The processors of the machines.
    pub(super) fn machines(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.scaled.iter().map(|row| row.processors).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
