//! The cost model: with costs of work, the simulator predicts how long requests take.
//!
//! Each client, each device and the server has one core. A core executes one piece of work after the other, and a
//! packet leaves when the work in front of it is done. Only work and the wire take time.

use landfall_pmnet::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Costs of the kinds of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Time of a packet on the wire, from one node to the next.
    pub wire: Duration,
    /// Cost of sending a packet at a client or the server.
    pub host_send: Duration,
    /// Cost of receiving a packet at a client or the server that is awake.
    pub host_receive: Duration,
    /// Cost of waking a client or the server that was idle, in addition to receiving.
    pub host_wake: Duration,
    /// Cost of appending an update to a device's log, without the fence.
    pub take: Duration,
    /// Cost of handling any other packet at a device.
    pub look: Duration,
    /// Cost of merging another device's acknowledgement with a device's own.
    pub join: Duration,
    /// Cost of a device's fence.
    pub fence: Duration,
    /// Cost of sending a packet at a device.
    pub device_send: Duration,
    /// Cost of executing a request at the server.
    pub execute: Duration,
    /// Cost of a commit at the server.
    pub commit: Duration,
}

impl Costs {
    /// Time until two replicas, each on a host of its own, have committed a batch: the server sends to both, both
    /// execute at the same time, and both answer.
    pub fn replicate(&self) -> Duration {
        let there = self.host_send * 2 + self.wire + self.host_wake + self.host_receive;
        let back = self.host_send + self.wire + self.host_wake + self.host_receive * 2;
        there + self.execute + self.commit + back
    }
}

/// The node that a core belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Core {
    Client(usize),
    Device(usize),
    Server,
}

/// The cores.
#[derive(Debug)]
pub(super) struct Cores {
    pub(super) costs: Costs,
    /// When each core is done with its work.
    busy: BTreeMap<Core, Instant>,
    /// The core that works now.
    pub(super) working: Option<Core>,
}

impl Cores {
    pub(super) fn new(costs: Costs) -> Self {
        Self { costs, busy: BTreeMap::new(), working: None }
    }

    /// When a core is done with its work.
    pub(super) fn until(&self, core: Core, now: Instant) -> Instant {
        self.busy.get(&core).copied().map_or(now, |until| until.max(now))
    }

    pub(super) fn work(&mut self, core: Core, cost: Duration, now: Instant) {
        let done = self.until(core, now) + cost;
        self.busy.insert(core, done);
    }

    /// Time until a packet that is sent now arrives.
    pub(super) fn delay(&mut self, now: Instant) -> Duration {
        let Some(core) = self.working else { return self.costs.wire };
        let cost =
            if matches!(core, Core::Device(_)) { self.costs.device_send } else { self.costs.host_send };
        self.work(core, cost, now);
        self.until(core, now).since(now) + self.costs.wire
    }
}
