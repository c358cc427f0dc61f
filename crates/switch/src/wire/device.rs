//! A device between two interfaces.

use super::config::WireConfig;
use super::lane::{CLIENTS, Lane, SERVER, at};
use super::station::{Landed, Station};
use super::wait::{BATCH, WAIT_MAX, new_poller, wait};
use crate::engine::{Driver, Engine};
use crate::error::SwitchError;
use crate::frames::HeapFrames;
use crate::status::Status;
use landfall_packets::{LandingMemory, Mode};
use landfall_pmnet::device::{Action, Side};
use landfall_sockets::{Poller, Waker};
use landfall_spin::SpinWait;
use landfall_xdp::{AttachMode, Bridge, Interface, Received, Socket, Wanted};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long packets from servers may wait after a client has sent a packet. Without a read cache, most packets from
/// servers confirm updates. No client waits for them, and often one round can handle them together with the next
/// update.
const SERVER_MAY_WAIT: Duration = Duration::from_millis(1);
/// A device on the wire with its log and its sockets open. [`Wire::run`] runs it.
pub struct Wire {
    lanes: Vec<Lane>,
    /// Dropped after the sockets.
    bridges: [Bridge; 2],
    _memory: LandingMemory,
    station: Station,
    poller: Poller,
    /// Polls the clients' side only. `None` if packets from servers must not wait.
    clients_poller: Option<Poller>,
    /// Packets from clients have arrived since the last poll of both sides.
    clients_sent: bool,
    waker: Waker,
    rest: SpinWait,
    received: Vec<Received>,
    landed: Vec<Landed>,
    forwards_first: bool,
    reason: String,
    metrics: Option<SocketAddr>,
}

impl Wire {
    /// Opens the log, registers its region as packet memory of both interfaces, and attaches the bridge programs.
    ///
    /// # Errors
    /// [`SwitchError`] says what is wrong and what the operator can do.
    pub fn open(config: &WireConfig) -> Result<Self, SwitchError> {
        let sides = [Interface::find(&config.clients)?, Interface::find(&config.server)?];
        let waker = Waker::new().map_err(SwitchError::system("making an eventfd"))?;
        let mut poller = new_poller(&waker)?;
        let engine = Engine::open(&config.region, config.limits, config.device, config.key.as_ref(), &waker)?;
        let heap = Arc::clone(engine.device.log().heap());
        let queues = sides[0].queues().min(sides[1].queues()).max(1);
        heap.reserve_landing(queues);
        let image = heap.media().pin_image().unwrap_or_default();
        let memory = LandingMemory::register(image, &[&sides[0], &sides[1]], queues as usize, false)?;
        let bridges = attach(&sides, config.pin.as_deref(), &config.wanted())?;
        let mut lanes = Vec::new();
        for queue in 0..queues {
            lanes.push(open_lane(&memory, &sides, &bridges, queue, config.mode)?);
        }
        for socket in lanes.iter().flat_map(|lane| &lane.sockets) {
            watch(&mut poller, socket)?;
        }
        let clients_poller = config.servers_may_wait().then(|| {
            let mut poller = new_poller(&waker)?;
            lanes.iter().try_for_each(|lane| watch(&mut poller, &lane.sockets[CLIENTS]))?;
            Ok::<_, SwitchError>(poller)
        });
        let clients_poller = clients_poller.transpose()?;
        let metrics = engine.serve_metrics(config.metrics)?;
        let reason = describe(&sides, &bridges, &memory);
        Ok(Self {
            lanes,
            bridges,
            _memory: memory,
            station: Station::new(engine, HeapFrames(heap)),
            poller,
            clients_poller,
            clients_sent: false,
            waker,
            rest: SpinWait::new(config.spin),
            received: Vec::new(),
            landed: Vec::new(),
            forwards_first: config.forwards_first,
            reason,
            metrics,
        })
    }

    /// One line for the operator: the interfaces, where the programs run, and where packets land.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The address at which `/metrics` is served, as bound.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The counts.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.station.engine.status)
    }

    /// Runs until `stop` is set.
    ///
    /// # Errors
    /// [`SwitchError::Xdp`], [`SwitchError::System`].
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), SwitchError> {
        let outcome = self.rounds(stop);
        let Self { lanes, bridges, mut station, .. } = self;
        for Lane { sockets, mut departures, mut landing } in lanes {
            drop(sockets);
            landing.clear(&mut station.frames);
            departures.iter_mut().for_each(|departures| departures.clear(&mut station.frames));
        }
        drop(bridges);
        station.engine.stop();
        outcome
    }

    fn take(&mut self) -> Result<bool, SwitchError> {
        let mut any = false;
        for lane in &mut self.lanes {
            for side in [Side::Clients, Side::Server] {
                self.received.clear();
                let came = lane.sockets[at(side)].receive(BATCH, &mut self.received) > 0;
                any |= came;
                self.clients_sent |= came && side == Side::Clients;
                self.landed.clear();
                self.landed.extend(self.received.iter().filter_map(|packet| self.station.land(lane, packet)));
                if self.forwards_first && side == Side::Clients {
                    self.station.forward_updates(lane, &mut self.landed)?;
                }
                for landed in &self.landed {
                    self.station.pass(lane, *landed, side)?;
                }
            }
        }
        Ok(any)
    }

    /// Sends the packets that the device has queued. True if there were any.
    fn act(&mut self) -> Result<bool, SwitchError> {
        let lane = &mut self.lanes[0];
        let mut any = false;
        while let Some(action) = self.station.engine.device.poll_action() {
            any = true;
            match action {
                Action::Datagram { towards, from, to, payload } => {
                    self.station.send(lane, towards, (from, to), payload)?;
                }
                Action::Logged { identity, stored } => {
                    self.station.send_again(lane, &identity, &stored)?;
                    self.station.engine.device.sent(&stored);
                }
            }
        }
        Ok(any)
    }

    /// Makes the kernel send the packets that are queued for a side.
    fn kick(&mut self, side: usize) -> Result<(), SwitchError> {
        for lane in &mut self.lanes {
            lane.departures[side].kick(&mut lane.sockets[side], &mut self.station.frames)?;
        }
        Ok(())
    }

    /// Makes the kernel send all queued packets, acknowledgements first, and refills the fill rings.
    fn settle(&mut self) -> Result<(), SwitchError> {
        self.kick(CLIENTS)?;
        self.kick(SERVER)?;
        for lane in &mut self.lanes {
            let frames = &mut self.station.frames;
            lane.landing.recycle_landed(frames);
            for socket in &mut lane.sockets {
                lane.landing.fill(socket, frames);
            }
            if lane.landing.became_starved() {
                tracing::warn!("the region has no space for packets to land in: give it a larger --capacity");
            }
        }
        Ok(())
    }
}

fn watch(poller: &mut Poller, socket: &Socket) -> Result<(), SwitchError> {
    poller.watch(socket.descriptor()).map_err(SwitchError::system("watching an AF_XDP socket"))
}

fn attach(sides: &[Interface; 2], pin: Option<&Path>, wanted: &Wanted) -> Result<[Bridge; 2], SwitchError> {
    let bridge = |side: usize, name: &str| {
        let pin = pin.map(|folder| folder.join(name));
        let peer = Some(&sides[1 - side]);
        Bridge::attach(&sides[side], peer, wanted.clone(), AttachMode::Auto, pin.as_deref())
    };
    Ok([bridge(CLIENTS, "pmnet-clients")?, bridge(SERVER, "pmnet-server")?])
}

fn open_lane(
    memory: &LandingMemory,
    sides: &[Interface; 2],
    bridges: &[Bridge; 2],
    queue: u32,
    mode: Mode,
) -> Result<Lane, SwitchError> {
    let open = |side: usize| -> Result<Socket, SwitchError> {
        let socket = memory.open(&sides[side], queue, mode)?;
        bridges[side].set_socket(queue, &socket)?;
        Ok(socket)
    };
    let sockets = [open(CLIENTS)?, open(SERVER)?];
    let worker = queue as usize;
    let departures = [memory.departures(worker, CLIENTS), memory.departures(worker, SERVER)];
    Ok(Lane { sockets, departures, landing: memory.landing(worker) })
}

fn describe(sides: &[Interface; 2], bridges: &[Bridge; 2], memory: &LandingMemory) -> String {
    let place = |bridge: &Bridge| if bridge.is_native() { "driver" } else { "kernel's receive path" };
    let lands =
        if memory.is_in_region() { "in the region" } else { "beside the region, copied into it once" };
    format!(
        "clients at {} ({}), server at {} ({}); packets land {lands}",
        sides[0].name,
        place(&bridges[0]),
        sides[1].name,
        place(&bridges[1]),
    )
}

impl Driver for Wire {
    fn engine(&self) -> &Engine {
        &self.station.engine
    }

    fn passed(&self) -> u64 {
        self.bridges.iter().map(Bridge::others).sum()
    }

    /// Handles a batch of packets from every queue, commits and sends. Waits if there was nothing to do.
    fn round(&mut self) -> Result<(), SwitchError> {
        let mut any = self.take()?;
        if self.waker.take() {
            self.station.engine.collect();
            any = true;
        }
        self.station.engine.keep_up();
        any |= self.act()?;
        self.settle()?;
        if any {
            self.rest.found();
            return Ok(());
        }
        let servers_wait =
            std::mem::take(&mut self.clients_sent) && !self.station.engine.device.log().is_empty();
        let Self { rest, poller, clients_poller, lanes, station, .. } = self;
        let has_received = || lanes.iter_mut().any(|lane| lane.sockets.iter_mut().any(Socket::has_received));
        match clients_poller {
            Some(poller) if servers_wait => {
                wait(rest, poller, SERVER_MAY_WAIT, &station.engine, has_received)
            }
            _ => wait(rest, poller, WAIT_MAX, &station.engine, has_received),
        }
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("reason", &self.reason).finish_non_exhaustive()
    }
}
