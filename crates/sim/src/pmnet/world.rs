//! The whole system: clients, a chain of devices, a server and its replicas, and everything that happens to them.

use super::client::{ClientNode, Workload};
use super::device::{DeviceNode, DeviceSetup, ahead};
use super::fabric::{Fabric, Faults, Happening, Mend, Rule, Traffic, Way};
use super::history::{Call, End, History, Told};
use super::oracle::{Judged, TotalLoss, judge};
use super::request::Request;
use super::server::{ServerNode, ServerSetup};
use super::store::Held;
use super::{Broken, Fault};
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_pmnet::client::{Client, ClientConfig};
use landfall_pmnet::device::{DeviceConfig, DeviceStats};
use landfall_pmnet::log::Limits;
use landfall_pmnet::server::{ServerConfig, ServerStats};
use landfall_pmnet::{Identity, Instant, SessionKey};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Within this devices send everything that is left in their logs again.
const STRANDED: Duration = Duration::from_secs(30);

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
    /// Faults, and when they come.
    pub faults: Vec<(Duration, Fault)>,
    /// What is wrong with the system: the oracle must notice.
    pub broken: Option<Broken>,
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
            faults: Vec::new(),
            broken: None,
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
    /// Clients that gave up.
    pub gave_up: u64,
    /// Links cut for a while.
    pub partitions: u64,
    /// Packets.
    pub traffic: Traffic,
    /// Updates that devices sent again.
    pub resent: u64,
    /// Updates that devices did not log.
    pub not_logged: u64,
    /// Entries of dead sessions that stay behind a gap.
    pub stranded: u64,
    /// Milliseconds of the simulated clock.
    pub millis: u64,
    /// What the oracle has looked at.
    pub judged: Judged,
}

/// A running system.
pub struct PmnetWorld {
    fabric: Fabric,
    clients: Vec<ClientNode>,
    devices: Vec<DeviceNode>,
    server: ServerNode,
    history: History,
    faults: Vec<(Duration, Fault)>,
    /// Faults do not come any more.
    calm: bool,
    /// Devices that were lost at least once.
    lost: Vec<bool>,
    loss: Option<TotalLoss>,
    summary: PmnetSummary,
    /// What has been done to the system, for people.
    diary: Vec<String>,
}

fn server_address() -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 100).into(), 51000)
}

fn client_address(number: usize) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1 + number as u8 / 2).into(), 40000 + number as u16 % 2)
}

impl PmnetWorld {
    /// Everything is started.
    ///
    /// # Errors
    /// A region that cannot be made.
    pub fn new(setup: Setup) -> Result<Self, Violation> {
        let hops = setup.devices.len() + 1;
        let mut fabric = Fabric::new(hops, Rng::new(setup.seed));
        for (hop, [up, down]) in setup.links.iter().enumerate() {
            fabric.set_faults(hop, *up, *down);
        }
        let devices: Vec<DeviceNode> = (0..)
            .zip(setup.devices)
            .map(|(number, device)| {
                DeviceNode::new(number, server_address(), device, setup.broken, &mut fabric)
            })
            .collect::<Result<_, _>>()?;
        let client = |(number, workload)| {
            let addresses = (client_address(number), server_address());
            ClientNode::new(number, addresses, setup.client.clone(), workload)
        };
        for (at, (delay, _)) in setup.faults.iter().enumerate() {
            fabric.after(*delay, Happening::Fault(at));
        }
        let mut world = Self {
            clients: (0..).zip(setup.clients).map(client).collect(),
            lost: vec![false; devices.len()],
            devices,
            server: ServerNode::new(setup.server, server_address(), hops - 1, setup.broken),
            history: History::default(),
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

    /// Lets so much time pass.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn run_for(&mut self, span: Duration) -> Result<(), Violation> {
        let end = self.fabric.now + span;
        while let Some(at) = self.next_at().filter(|at| *at <= end) {
            self.fabric.now = self.fabric.now.max(at);
            self.step()?;
        }
        self.fabric.now = end;
        Ok(())
    }

    /// Lets time pass until something holds; looks every 100 microseconds.
    ///
    /// # Errors
    /// It does not come to hold within `span`; what the rules do not allow.
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

    /// Everything whose time has come, once.
    fn step(&mut self) -> Result<(), Violation> {
        let now = self.fabric.now;
        while let Some(happening) = self.fabric.pop() {
            self.happen(happening)?;
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
            Happening::Fault(at) if !self.calm => self.suffer(self.faults[at].1)?,
            Happening::Fault(_) => {}
            Happening::Mend(mend) => self.mend(mend)?,
        }
        Ok(())
    }

    fn arrive(&mut self, hop: usize, way: Way, datagram: super::fabric::Datagram) -> Result<(), Violation> {
        let device = match way {
            Way::Up => Some(hop).filter(|at| *at < self.devices.len()),
            Way::Down => hop.checked_sub(1),
        };
        if let Some(at) = device {
            self.devices[at].handle(way, datagram, &mut self.fabric);
            self.crash_if_frozen(at);
            return Ok(());
        }
        if way == Way::Up {
            return self.server.handle(&datagram, &mut self.fabric);
        }
        let client = self.clients.iter_mut().find(|client| client.address == datagram.to);
        client.map_or(Ok(()), |client| client.handle(&datagram, &mut self.fabric, &mut self.history))
    }

    // ---- faults ----

    /// Notes what is done, for people.
    fn note(&mut self, what: impl std::fmt::Display) {
        self.diary.push(format!("{:>10} us  {what}", self.fabric.now.nanos() / 1000));
    }

    /// What has been done to the system so far, a line each.
    pub fn diary(&self) -> &[String] {
        &self.diary
    }

    /// A fault comes.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn suffer(&mut self, fault: Fault) -> Result<(), Violation> {
        self.note(format_args!("{fault:?}"));
        let fabric = &mut self.fabric;
        match fault {
            Fault::DeviceCrash { device, down, inside } => {
                if inside {
                    let ahead = ahead(&mut fabric.rng);
                    self.devices[device].arm(ahead, down);
                } else {
                    self.crash_device(device);
                    mend_after(&mut self.fabric, down, Mend::Device(device));
                }
            }
            Fault::MediumFails { device, down } => {
                self.summary.media_failures += 1;
                self.devices[device].fail_next_fence();
                mend_after(fabric, down, Mend::Device(device));
            }
            Fault::DeviceLoss { device, down } => {
                self.lose_device(device);
                mend_after(&mut self.fabric, down, Mend::Device(device));
            }
            Fault::ServerCrash { down } => {
                self.crash_server();
                mend_after(&mut self.fabric, down, Mend::Server);
            }
            Fault::ServerLoss { down } => {
                if self.server.fail_over() {
                    self.summary.fail_overs += 1;
                    mend_after(&mut self.fabric, down, Mend::Server);
                }
            }
            Fault::ReplicaCrash { replica, down, wiped } => {
                self.summary.replica_crashes += 1;
                self.server.stop_replica(replica, wiped);
                mend_after(fabric, down, Mend::Replica(replica));
            }
            Fault::ClientCrash { client } => {
                self.summary.client_crashes += 1;
                self.clients[client].crash(fabric, &mut self.history)?;
            }
            Fault::Partition { hop, up, down, lasts } => {
                self.summary.partitions += 1;
                fabric.cut(hop, up, down);
                mend_after(fabric, lasts, Mend::Link { hop, up, down });
            }
        }
        Ok(())
    }

    fn mend(&mut self, mend: Mend) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.note(format_args!("{mend:?}"));
        match mend {
            Mend::Device(device) => self.start_device(device)?,
            Mend::Server => self.start_server()?,
            Mend::Replica(replica) => self.server.start_replica(replica, &mut self.fabric),
            Mend::Link { hop, up, down } => self.fabric.mend(hop, up, down),
        }
        Ok(())
    }

    fn crash_if_frozen(&mut self, device: usize) {
        if self.devices[device].is_frozen() {
            self.note(format_args!("device {device} crashes inside"));
            let down = self.devices[device].armed();
            self.crash_device(device);
            mend_after(&mut self.fabric, down.unwrap_or_default(), Mend::Device(device));
        }
    }

    /// A device stops at this moment; what a crash leaves is drawn.
    pub fn crash_device(&mut self, device: usize) {
        if self.devices[device].is_running() {
            self.summary.device_crashes += 1;
            self.devices[device].crash(&mut self.fabric);
        }
    }

    /// A device is lost with its log; another one with an empty log may be started in its place.
    pub fn lose_device(&mut self, device: usize) {
        self.summary.device_losses += 1;
        self.devices[device].lose();
        self.lost[device] = true;
        if self.lost.iter().all(|lost| *lost) {
            self.loss = Some(TotalLoss { at: self.history.tick() });
        }
    }

    /// A device starts, from what it has left or with an empty log.
    ///
    /// # Errors
    /// What it has left cannot be opened.
    pub fn start_device(&mut self, device: usize) -> Result<(), Violation> {
        if self.devices[device].is_closed() {
            self.crash_device(device);
        }
        self.devices[device].start(&mut self.fabric)
    }

    /// The server stops; what of its batches under way survives is drawn.
    pub fn crash_server(&mut self) {
        if self.server.is_up() {
            self.summary.server_crashes += 1;
            self.server.crash(&mut self.fabric);
        }
    }

    /// The server starts, if it does not run.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn start_server(&mut self) -> Result<(), Violation> {
        match self.server.is_up() {
            false => self.server.start(&mut self.fabric),
            true => Ok(()),
        }
    }

    /// A replica stops.
    pub fn stop_replica(&mut self, replica: usize) {
        self.server.stop_replica(replica, false);
    }

    /// A replica is back.
    pub fn start_replica(&mut self, replica: usize) {
        self.server.start_replica(replica, &mut self.fabric);
    }

    /// A client is forgotten for good.
    pub fn forget_client(&mut self, client: usize) {
        self.clients[client].leave(&mut self.history);
    }

    /// Has links take packets away.
    pub fn add_rule(&mut self, rule: Rule) {
        self.fabric.rules.push(rule);
    }

    /// Links take nothing away any more.
    pub fn clear_rules(&mut self) {
        self.fabric.rules.clear();
    }

    // ---- clients by hand ----

    /// Gives a client an update; its place in the session. `None` if as many requests wait as may.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn update(&mut self, client: usize, key: u8, pad: u32) -> Result<Option<usize>, Violation> {
        let id = self.history.id();
        self.give(client, Request::Set { key, id, pad })
    }

    /// Gives a client any request.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn give(&mut self, client: usize, request: Request) -> Result<Option<usize>, Violation> {
        self.clients[client].give(request, &mut self.fabric, &mut self.history)
    }

    /// What a client was told about a request of its present session.
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

    /// Tells a client of a chain of another length.
    pub fn set_devices(&mut self, client: usize, devices: u8) {
        self.clients[client].set_devices(devices, &mut self.fabric);
    }

    /// Updates in a device's log.
    pub fn log_of(&self, device: usize) -> Vec<Identity> {
        self.devices[device].identities()
    }

    /// What the server holds.
    pub fn held(&self) -> &Held {
        self.server.store.held()
    }

    /// The server's counters, while it runs.
    pub fn server_stats(&self) -> Option<ServerStats> {
        self.server.running.as_ref().map(landfall_pmnet::Server::stats)
    }

    /// A device's counters since its last start, while it runs.
    pub fn device_stats(&self, device: usize) -> Option<&DeviceStats> {
        self.devices[device].stats()
    }

    // ---- the end ----

    /// Ends all faults, has everything started, lets every client finish, waits until nothing is under way, and judges.
    ///
    /// # Errors
    /// What the rules do not allow; that it does not come to rest within `span`.
    pub fn finish(mut self, span: Duration) -> Result<PmnetSummary, Violation> {
        let settled = self.settle(span);
        let outcome = settled.and_then(|()| judge(&self.history, self.held(), self.loss));
        let judged = outcome.map_err(|violation| self.explain(violation))?;
        let counts: Vec<(u64, u64)> = self.devices.iter().map(DeviceNode::counts).collect();
        let recoveries: u64 = self.devices.iter().map(|device| device.recovery_crashes).sum();
        Ok(PmnetSummary {
            device_crashes: self.summary.device_crashes + recoveries,
            gave_up: self.clients.iter().map(|client| client.gave_up).sum(),
            traffic: self.fabric.traffic,
            resent: counts.iter().map(|(resent, _)| resent).sum(),
            not_logged: counts.iter().map(|(_, not_logged)| not_logged).sum(),
            stranded: self.devices.iter().map(|device| device.identities().len() as u64).sum(),
            millis: self.fabric.now.millis(),
            judged,
            ..self.summary
        })
    }

    fn settle(&mut self, span: Duration) -> Result<(), Violation> {
        self.calm = true;
        self.note("calm");
        self.fabric.calm();
        for device in 0..self.devices.len() {
            // One that was to crash inside something does it now.
            if self.devices[device].armed().is_some() {
                self.crash_device(device);
            }
            self.start_device(device)?;
        }
        self.start_server()?;
        for replica in 0..self.server.store.replicas.len() {
            self.start_replica(replica);
        }
        for client in &mut self.clients {
            client.drain(&mut self.fabric, &mut self.history)?;
        }
        let end = self.fabric.now + span;
        let mut stranded = None;
        loop {
            while let Some(why) = self.unsettled() {
                ensure!(self.fabric.now < end, "no rest after {span:?}: {why}");
                self.run_for(Duration::from_millis(10))?;
            }
            // What is left lies behind a gap only if sending it again changes nothing.
            let left: Vec<Vec<Identity>> = self.devices.iter().map(DeviceNode::identities).collect();
            if left.iter().all(Vec::is_empty) || stranded.as_ref() == Some(&left) {
                return Ok(());
            }
            stranded = Some(left);
            self.run_for(STRANDED)?;
        }
    }

    /// What is still under way.
    fn unsettled(&self) -> Option<String> {
        if let Some(at) = self.clients.iter().position(|client| !client.is_done()) {
            return Some(format!("client {at} has not finished: {:?}", self.clients[at]));
        }
        if !self.server.is_idle() {
            return Some("the server has work".into());
        }
        for (at, device) in self.devices.iter().enumerate() {
            if let Some(identity) = device.identities().into_iter().find(|identity| !self.may_stay(identity))
            {
                return Some(format!("{identity:?} is in the log of device {at}"));
            }
        }
        None
    }

    /// Only what lies behind a gap that a dead client has left may stay in a log.
    fn may_stay(&self, identity: &Identity) -> bool {
        let key = SessionKey { client: identity.flow.client, session: identity.session };
        let row = self.held().rows.get(&key);
        self.history.is_abandoned(key) && row.is_some_and(|row| !row.ended && identity.seq > row.update)
    }

    /// Adds what was done to the system.
    pub fn explain(&self, violation: Violation) -> Violation {
        let open = self.history.sessions.iter().filter(|session| session.end == End::Open).count();
        let diary = self.diary.join("\n");
        Violation(format!("{violation}\n{open} sessions are open; what was done:\n{diary}"))
    }
}

fn mend_after(fabric: &mut Fabric, delay: Duration, mend: Mend) {
    fabric.after(delay, Happening::Mend(mend));
}
