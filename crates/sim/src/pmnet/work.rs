//! The work of nodes on their cores, with the cost model.

use super::costs::{Core, Costs};
use super::datagram::{Datagram, Way};
use super::fabric::Fabric;
use landfall_pmnet::Instant;
use landfall_pmnet::wire::{Header, kind};
use std::time::Duration;

impl Fabric {
    /// Makes `core` the one that works now, with a first piece of work of this cost. Without a cost model, does
    /// nothing.
    pub(super) fn enter(&mut self, core: Core, cost: impl Fn(&Costs) -> Duration) {
        let now = self.now;
        if let Some(cores) = &mut self.cores {
            cores.working = Some(core);
            let cost = cost(&cores.costs);
            cores.work(core, cost, now);
        }
    }

    /// Ends the work: no core works now.
    pub(super) fn leave(&mut self) {
        if let Some(cores) = &mut self.cores {
            cores.working = None;
        }
    }

    /// Begins the work for a packet that arrives at a client or the server.
    pub(super) fn enter_host(&mut self, core: Core) {
        let idle = self.done_at(core) <= self.now;
        let woken = |costs: &Costs| if idle { costs.host_wake } else { Duration::ZERO };
        self.enter(core, |costs| woken(costs) + costs.host_receive);
    }

    /// Begins the work for a packet that arrives at a device. With `first`, the device forwards the packet before it
    /// logs it, so that this work is only that of forwarding.
    pub(super) fn enter_device(&mut self, device: usize, (way, first): (Way, bool), datagram: &Datagram) {
        let kind = Header::parse(&datagram.payload).map(|header| header.kind).ok();
        self.enter(Core::Device(device), |costs| match (way, kind) {
            (Way::Up, Some(kind::UPDATE)) if !first => costs.take,
            (Way::Down, Some(kind::PMNET_ACK | kind::JOINT_ACK)) => costs.join,
            _ => costs.look,
        });
    }

    /// Time until the core that works now is done; `None` without a cost model.
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
