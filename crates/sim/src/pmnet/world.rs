//! The simulated system: clients, a chain of devices, a server and its replicas, and the events that happen to them.

mod faults;
mod settle;
pub(super) mod timed;

use super::client::ClientNode;
use super::costs::{Core, Cores};
use super::datagram::{Datagram, Way};
use super::device::DeviceNode;
use super::fabric::{Fabric, Happening};
use super::fault::Fault;
use super::history::{Call, History, Told};
use super::oracle::{Promise, TotalLoss};
use super::request::Request;
use super::server::ServerNode;
use super::setup::{PmnetSummary, Setup};
use super::store::Held;
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_pmnet::auth::Guard;
use landfall_pmnet::client::Client;
use landfall_pmnet::device::DeviceStats;
use landfall_pmnet::server::ServerStats;
use landfall_pmnet::{Identity, Instant};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A running system.
pub struct PmnetWorld {
    fabric: Fabric,
    clients: Vec<ClientNode>,
    devices: Vec<DeviceNode>,
    server: ServerNode,
    history: History,
    /// Clients, devices and server share a key.
    is_keyed: bool,
    promise: Promise,
    faults: Vec<(Duration, Fault)>,
    /// Faults have ended.
    calm: bool,
    /// Devices that were lost at least once.
    lost: Vec<bool>,
    loss: Option<TotalLoss>,
    summary: PmnetSummary,
    /// Faults and repairs, one line of text each.
    diary: Vec<String>,
}

fn server_address() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 100).into(), 51000)
}

fn client_address(number: usize) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1 + number as u8 / 2).into(), 40000 + number as u16 % 2)
}

impl PmnetWorld {
    /// Creates a system and starts all its nodes.
    ///
    /// # Errors
    /// A region cannot be created.
    pub fn new(setup: Setup) -> Result<Self, Violation> {
        let hops = setup.devices.len() + 1;
        let mut fabric = Fabric::new(hops, Rng::new(setup.seed));
        for (hop, [up, down]) in setup.links.iter().enumerate() {
            fabric.set_faults(hop, *up, *down);
        }
        fabric.cores = setup.costs.map(Cores::new);
        let last = setup.devices.len().saturating_sub(1);
        let devices: Vec<DeviceNode> = (0..)
            .zip(setup.devices)
            .map(|(number, device)| {
                let place = (number, number == last);
                DeviceNode::new(place, device, setup.key.clone(), setup.broken, &mut fabric)
            })
            .collect::<Result<_, _>>()?;
        let client = |(number, workload)| {
            let addresses = (client_address(number), server_address());
            ClientNode::new(
                number,
                addresses,
                (Guard::of(setup.key.as_ref(), || number as u64), setup.broken),
                setup.client.clone(),
                workload,
            )
        };
        for (at, (delay, _)) in setup.faults.iter().enumerate() {
            fabric.after(*delay, Happening::Fault(at));
        }
        let mut world = Self {
            clients: (0..).zip(setup.clients).map(client).collect(),
            lost: vec![false; devices.len()],
            devices,
            server: ServerNode::new(
                setup.server,
                (server_address(), hops - 1),
                setup.key.clone(),
                setup.broken,
            ),
            history: History::default(),
            is_keyed: setup.key.is_some(),
            promise: setup.promise,
            faults: setup.faults,
            calm: false,
            loss: None,
            summary: PmnetSummary::default(),
            diary: Vec::new(),
            fabric,
        };
        world.server.start(&mut world.fabric)?;
        for client in &mut world.clients {
            client.start(&mut world.fabric, &mut world.history)?;
        }
        Ok(world)
    }

    // ---- time ----

    /// Runs the system for so long.
    ///
    /// # Errors
    /// A violation of the rules.
    pub fn run_for(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.fabric.now + span;
        while let Some(at) = self.next_at().filter(|at| *at <= end) {
            self.fabric.now = self.fabric.now.max(at);
            self.step()?;
        }
        self.fabric.now = end;
        Ok(())
    }

    /// Runs the system until a condition holds, which is checked every 100 microseconds.
    ///
    /// # Errors
    /// The condition does not hold within `span`; a violation of the rules.
    pub fn run_until(
        &mut self,
        what: &str,
        span: Duration,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<(), Violation> {
        let end = self.fabric.now + span;
        while !holds(self) {
            ensure!(self.fabric.now < end, "not within {span:?}: {what}");
            self.run_for(Duration::from_micros(100))?;
        }
        Ok(())
    }

    fn next_at(&self) -> Option<Instant> {
        let clients = self.clients.iter().filter_map(ClientNode::next_timeout);
        let devices = self.devices.iter().filter_map(DeviceNode::next_timeout);
        clients.chain(devices).chain(self.server.next_timeout()).chain(self.fabric.next_at()).min()
    }

    /// Handles all events and timeouts that are due.
    fn step(&mut self) -> Result<(), Violation> {
        let now = self.fabric.now;
        while let Some(happening) = self.fabric.pop() {
            self.happen(happening)?;
            self.fabric.leave();
        }
        for client in &mut self.clients {
            if client.next_timeout().is_some_and(|at| at <= now) {
                client.handle_timeout(&mut self.fabric, &mut self.history)?;
            }
        }
        for at in 0..self.devices.len() {
            if self.devices[at].next_timeout().is_some_and(|due| due <= now) {
                self.devices[at].handle_timeout(&mut self.fabric);
                self.crash_if_frozen(at);
            }
        }
        if self.server.next_timeout().is_some_and(|at| at <= now) {
            self.server.handle_timeout(&mut self.fabric)?;
        }
        Ok(())
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        let (fabric, history) = (&mut self.fabric, &mut self.history);
        match happening {
            Happening::Arrive { hop, way, datagram } => self.arrive(hop, way, datagram)?,
            Happening::Commit { device, life } => {
                self.devices[device].begin(life, fabric)?;
                self.crash_if_frozen(device);
            }
            Happening::Fence { device, life } => {
                self.devices[device].finish(life, fabric)?;
                self.crash_if_frozen(device);
            }
            Happening::Keep { device, life } => {
                self.devices[device].keep(life, fabric)?;
                self.crash_if_frozen(device);
            }
            Happening::Stored { life } => self.server.stored(life, fabric)?,
            Happening::Replicated { replica, life } => self.server.replicated((replica, life), fabric)?,
            Happening::Act { client, life } => self.clients[client].act(life, fabric, history)?,
            Happening::Fault(at) if !self.calm => self.inject(self.faults[at].1)?,
            Happening::Fault(_) => {}
            Happening::Repair(repair) => self.repair(repair)?,
        }
        Ok(())
    }

    fn arrive(&mut self, hop: usize, way: Way, datagram: Datagram) -> Result<(), Violation> {
        let device = match way {
            Way::Up => Some(hop).filter(|at| *at < self.devices.len()),
            Way::Down => hop.checked_sub(1),
        };
        if let Some(at) = device {
            let first = self.devices[at].forwards_first(way, &datagram);
            self.fabric.enter_device(at, (way, first), &datagram);
            self.devices[at].handle(way, datagram, &mut self.fabric);
            self.crash_if_frozen(at);
            return Ok(());
        }
        if way == Way::Up {
            self.fabric.enter_host(Core::Server);
            return self.server.handle(&datagram, &mut self.fabric);
        }
        let client = self.clients.iter().position(|client| client.address == datagram.to);
        let Some(at) = client else { return Ok(()) };
        self.fabric.enter_host(Core::Client(at));
        self.clients[at].handle(&datagram, &mut self.fabric, &mut self.history)
    }

    // ---- clients driven by tests ----

    /// Gives a client an update. Returns the index of the request in the session, or `None` if the client accepts no
    /// more.
    ///
    /// # Errors
    /// A violation of the rules.
    pub fn update(&mut self, client: usize, key: u8, pad: u32) -> Result<Option<usize>, Violation> {
        let id = self.history.id();
        self.give(client, Request::Set { key, id, pad })
    }

    /// Gives a client any request.
    ///
    /// # Errors
    /// A violation of the rules.
    pub fn give(&mut self, client: usize, request: Request) -> Result<Option<usize>, Violation> {
        self.clients[client].give(request, &mut self.fabric, &mut self.history)
    }

    /// The result of a request of a client's present session.
    pub fn told(&self, client: usize, place: usize) -> Told {
        self.call(client, place).told
    }

    /// A request of a client's present session.
    pub fn call(&self, client: usize, place: usize) -> Call {
        self.history.sessions[self.clients[client].session].calls[place]
    }

    /// A client's state machine.
    pub fn client(&self, client: usize) -> Option<&Client> {
        self.clients[client].client()
    }

    /// Sets the number of devices of the chain that a client knows.
    pub fn set_devices(&mut self, client: usize, devices: u8) {
        self.clients[client].set_devices(devices, &mut self.fabric);
    }

    /// The updates in a device's log.
    pub fn log_of(&self, device: usize) -> Vec<Identity> {
        self.devices[device].identities()
    }

    /// The state of the server's application.
    pub fn held(&self) -> &Held {
        self.server.store.held()
    }

    /// Number of batches that the server has.
    pub fn batches(&self) -> usize {
        self.server.store.len()
    }

    /// The history of all sessions.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Number of rows of sessions that have not ended.
    pub fn open_rows(&self) -> usize {
        self.held().rows.values().filter(|row| !row.ended).count()
    }

    /// The server's counters, while it runs.
    pub fn server_stats(&self) -> Option<ServerStats> {
        self.server.running.as_ref().map(landfall_pmnet::Server::stats)
    }

    /// A device's counters since its last start, while it runs.
    pub fn device_stats(&self, device: usize) -> Option<&DeviceStats> {
        self.devices[device].stats()
    }
}
