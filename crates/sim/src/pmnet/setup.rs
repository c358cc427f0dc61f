//! The settings of a simulated system, and the counts of a run.

use super::client::Workload;
use super::costs::Costs;
use super::device::DeviceSetup;
use super::fabric::{Faults, Traffic};
use super::fault::{Broken, Fault};
use super::oracle::{Judged, Promise};
use super::server::ServerSetup;
use landfall_pmnet::auth::Key;
use landfall_pmnet::client::ClientConfig;
use landfall_pmnet::device::DeviceConfig;
use landfall_pmnet::log::Limits;
use landfall_pmnet::server::ServerConfig;
use std::ops::Add;
use std::time::Duration;

/// Settings of a system.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of all random choices.
    pub seed: u64,
    /// The workload of each client.
    pub clients: Vec<Workload>,
    /// Settings of all clients.
    pub client: ClientConfig,
    /// The devices of the chain, from the clients to the server.
    pub devices: Vec<DeviceSetup>,
    /// Settings of the server.
    pub server: ServerSetup,
    /// Faults of each hop: up, down.
    pub links: Vec<[Faults; 2]>,
    /// Key that clients, devices and server share, if any.
    pub key: Option<Key>,
    /// The promise about reads of other sessions' updates, which the oracle checks.
    pub promise: Promise,
    /// Faults, and when they begin.
    pub faults: Vec<(Duration, Fault)>,
    /// The built-in fault, if any, which the oracle must catch.
    pub broken: Option<Broken>,
    /// Costs of work; `None`: work takes no time, except for random pauses.
    pub costs: Option<Costs>,
}

impl Setup {
    /// A system without faults, with so many clients that have no workload.
    pub fn calm(clients: usize, devices: usize, replicas: usize) -> Self {
        let device = DeviceSetup {
            config: DeviceConfig::default(),
            limits: Limits::default(),
            deferred: true,
            framed: true,
            frame_bytes: 2048,
            fence_us: 20,
            forwards_first: true,
            passes: true,
            keep_us: 10_000,
        };
        Self {
            seed: 1,
            clients: vec![Workload::NONE; clients],
            client: ClientConfig { devices: devices as u8, ..ClientConfig::default() },
            devices: vec![device; devices],
            server: ServerSetup {
                config: ServerConfig::default(),
                replicas,
                batches_max: 2,
                batch_max: 16,
                store_us: 50,
                refuses: 0,
            },
            links: vec![[Faults::default(); 2]; devices + 1],
            key: None,
            promise: Promise::Applied,
            faults: Vec::new(),
            broken: None,
            costs: None,
        }
    }
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmnetSummary {
    /// Crashes of devices, including those in the middle of recovery.
    pub device_crashes: u64,
    /// Faults of devices' media.
    pub media_failures: u64,
    /// Devices that were lost and replaced.
    pub device_losses: u64,
    /// Crashes of the server.
    pub server_crashes: u64,
    /// Servers that were lost and replaced by a replica.
    pub fail_overs: u64,
    /// Replicas that stopped for a while.
    pub replica_crashes: u64,
    /// Crashes of clients.
    pub client_crashes: u64,
    /// Forgeries by strangers.
    pub forgeries: u64,
    /// Sessions that failed.
    pub gave_up: u64,
    /// Sessions that the server ended because of their silence.
    pub ended_by_silence: u64,
    /// Sessions whose clients learnt that the server had ended them.
    pub told_gone: u64,
    /// Partitions of links.
    pub partitions: u64,
    /// Counts of packets.
    pub traffic: Traffic,
    /// Updates that devices sent again.
    pub resent: u64,
    /// Updates that devices did not log.
    pub not_logged: u64,
    /// Packets that devices held.
    pub held: u64,
    /// Packets that devices dropped because they held too many.
    pub held_dropped: u64,
    /// Acknowledgements that devices merged with those of the devices behind them.
    pub joined: u64,
    /// Entries of crashed clients' sessions that remain in logs behind a gap.
    pub stranded: u64,
    /// Duration of the run on the simulated clock, milliseconds.
    pub millis: u64,
    /// Counts of what the oracle has judged.
    pub judged: Judged,
}

impl Add for PmnetSummary {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            device_crashes: self.device_crashes + other.device_crashes,
            media_failures: self.media_failures + other.media_failures,
            device_losses: self.device_losses + other.device_losses,
            server_crashes: self.server_crashes + other.server_crashes,
            fail_overs: self.fail_overs + other.fail_overs,
            replica_crashes: self.replica_crashes + other.replica_crashes,
            client_crashes: self.client_crashes + other.client_crashes,
            forgeries: self.forgeries + other.forgeries,
            gave_up: self.gave_up + other.gave_up,
            ended_by_silence: self.ended_by_silence + other.ended_by_silence,
            told_gone: self.told_gone + other.told_gone,
            partitions: self.partitions + other.partitions,
            traffic: self.traffic + other.traffic,
            resent: self.resent + other.resent,
            not_logged: self.not_logged + other.not_logged,
            held: self.held + other.held,
            held_dropped: self.held_dropped + other.held_dropped,
            joined: self.joined + other.joined,
            stranded: self.stranded + other.stranded,
            millis: self.millis + other.millis,
            judged: self.judged + other.judged,
        }
    }
}
