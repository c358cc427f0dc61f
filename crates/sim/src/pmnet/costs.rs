//! What things cost: with that the simulator tells how long requests take on hosts with cores of their own.
//!
//! Each client, each device and the server has one core. A core does one thing after the other; what it sends leaves when
//! the work in front of it is done. Nothing else takes time, but for the wire.

use super::fabric::{Datagram, Fabric, Way};
use landfall_pmnet::Instant;
use landfall_pmnet::wire::{Header, kind};
use std::collections::BTreeMap;
use std::time::Duration;

/// What things cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// From one node to the next, on the wire.
    pub wire: Duration,
    /// A client or the server sends a packet.
    pub host_send: Duration,
    /// A client or the server that is awake takes a packet, from its arrival.
    pub host_receive: Duration,
    /// One that had nothing to do is woken in front of that.
    pub host_wake: Duration,
    /// A device takes an update into its log, up to the fence.
    pub take: Duration,
    /// A device looks at any other packet.
    pub look: Duration,
    /// A device takes another's acknowledgement, to go on with its own.
    pub join: Duration,
    /// A device's fence.
    pub fence: Duration,
    /// A device sends a packet.
    pub device_send: Duration,
    /// The server executes a request.
    pub execute: Duration,
    /// The server commits what it has executed together.
    pub commit: Duration,
}

impl Costs {
    /// Until two replicas, each on a host of its own, have committed what the server sent them: both are sent to, execute
    /// at the same time, and answer.
    pub fn replicate(&self) -> Duration {
        let there = self.host_send * 2 + self.wire + self.host_wake + self.host_receive;
        let back = self.host_send + self.wire + self.host_wake + self.host_receive * 2;
        there + self.execute + self.commit + back
    }
}

/// Whose core.
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
    /// Until when each is busy.
    busy: BTreeMap<Core, Instant>,
    /// Who works now.
    working: Option<Core>,
}

impl Cores {
    pub(super) fn new(costs: Costs) -> Self {
        Self { costs, busy: BTreeMap::new(), working: None }
    }

    /// Until when a core is busy.
    fn until(&self, core: Core, now: Instant) -> Instant {
        self.busy.get(&core).copied().map_or(now, |until| until.max(now))
    }

    fn work(&mut self, core: Core, cost: Duration, now: Instant) {
        let done = self.until(core, now) + cost;
        self.busy.insert(core, done);
    }

    /// How late a packet arrives that is sent now.
    pub(super) fn delay(&mut self, now: Instant) -> Duration {
        let Some(core) = self.working else { return self.costs.wire };
        let cost =
            if matches!(core, Core::Device(_)) { self.costs.device_send } else { self.costs.host_send };
        self.work(core, cost, now);
        self.until(core, now).since(now) + self.costs.wire
    }
}

impl Fabric {
    /// From now on this core works; first it does something that costs so much. Nothing where work costs nothing.
    pub(super) fn enter(&mut self, core: Core, cost: impl Fn(&Costs) -> Duration) {
        let now = self.now;
        if let Some(cores) = &mut self.cores {
            cores.working = Some(core);
            let cost = cost(&cores.costs);
            cores.work(core, cost, now);
        }
    }

    /// Nobody works any more.
    pub(super) fn leave(&mut self) {
        if let Some(cores) = &mut self.cores {
            cores.working = None;
        }
    }

    /// A packet arrives at a client or at the server.
    pub(super) fn enter_host(&mut self, core: Core) {
        let idle = self.done_at(core) <= self.now;
        let woken = |costs: &Costs| if idle { costs.host_wake } else { Duration::ZERO };
        self.enter(core, |costs| woken(costs) + costs.host_receive);
    }

    /// A packet arrives at a device; `first`: it is sent on before it is logged, so that it is only looked at now.
    pub(super) fn enter_device(&mut self, device: usize, (way, first): (Way, bool), datagram: &Datagram) {
        let kind = Header::parse(&datagram.payload).map(|header| header.kind).ok();
        self.enter(Core::Device(device), |costs| match (way, kind) {
            (Way::Up, Some(kind::UPDATE)) if !first => costs.take,
            (Way::Down, Some(kind::PMNET_ACK | kind::JOINT_ACK)) => costs.join,
            _ => costs.look,
        });
    }

    /// How long until whoever works now is done; `None` where work costs nothing.
    pub(super) fn done_in(&self) -> Option<Duration> {
        let cores = self.cores.as_ref()?;
        let core = cores.working?;
        Some(cores.until(core, self.now).since(self.now))
    }

    /// When a core is done.
    pub(super) fn done_at(&self, core: Core) -> Instant {
        self.cores.as_ref().map_or(self.now, |cores| cores.until(core, self.now))
    }
}
