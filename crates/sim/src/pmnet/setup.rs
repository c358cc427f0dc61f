//! What a system is made of, and what a run of it has come to.

use super::client::Workload;
use super::costs::Costs;
use super::device::DeviceSetup;
use super::fabric::{Faults, Traffic};
use super::oracle::{Judged, Promise};
use super::server::ServerSetup;
use super::{Broken, Fault};
use landfall_pmnet::auth::Key;
use landfall_pmnet::client::ClientConfig;
use landfall_pmnet::device::DeviceConfig;
use landfall_pmnet::log::Limits;
use landfall_pmnet::server::ServerConfig;
use std::ops::Add;
use std::time::Duration;

/// What the system is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Draws everything that is left to chance.
    pub seed: u64,
    /// Clients, and what each does.
    pub clients: Vec<Workload>,
    /// How all of them behave.
    pub client: ClientConfig,
    /// The chain, from the clients to the server.
    pub devices: Vec<DeviceSetup>,
    /// The server.
    pub server: ServerSetup,
    /// What each hop does to packets: up, down.
    pub links: Vec<[Faults; 2]>,
    /// What clients, devices and server share, if anything.
    pub key: Option<Key>,
    /// What sessions are promised of each other's updates.
    pub promise: Promise,
    /// Faults, and when they come.
    pub faults: Vec<(Duration, Fault)>,
    /// What is wrong with the system: the oracle must notice.
    pub broken: Option<Broken>,
    /// What work costs; `None`: nothing, but for pauses that are drawn.
    pub costs: Option<Costs>,
}

impl Setup {
    /// A system to which nothing happens by itself, with so many clients that do nothing by themselves.
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

/// What has been done, and what has been found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PmnetSummary {
    /// Crashes of devices, those in the middle of recovery included.
    pub device_crashes: u64,
    /// Media of devices of which a fence was to fail.
    pub media_failures: u64,
    /// Devices lost for good and replaced.
    pub device_losses: u64,
    /// Crashes of the server, with loss of what was not committed.
    pub server_crashes: u64,
    /// Servers lost for good, whose place a replica took.
    pub fail_overs: u64,
    /// Replicas that stopped for a while.
    pub replica_crashes: u64,
    /// Clients forgotten.
    pub client_crashes: u64,
    /// Times that a stranger spoke in the server's name.
    pub forgeries: u64,
    /// Clients that gave up.
    pub gave_up: u64,
    /// Sessions that the server ended, as they had been silent.
    pub ended_by_silence: u64,
    /// Sessions that were gone when their clients came back.
    pub told_gone: u64,
    /// Links cut for a while.
    pub partitions: u64,
    /// Packets.
    pub traffic: Traffic,
    /// Updates that devices sent again.
    pub resent: u64,
    /// Updates that devices did not log.
    pub not_logged: u64,
    /// Packets that devices held.
    pub held: u64,
    /// Packets that they dropped instead.
    pub held_dropped: u64,
    /// Acknowledgements that went on joined with those of the devices behind.
    pub joined: u64,
    /// Entries of dead sessions that stay behind a gap.
    pub stranded: u64,
    /// Milliseconds of the simulated clock.
    pub millis: u64,
    /// What the oracle has looked at.
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
