//! A device as the server's network card, on one interface of the server's own host (§VI-A4, PMNet-NIC).
//!
//! PMNet's packets from clients come to this process over AF_XDP. The device delivers those that it forwards to this
//! host's kernel through a TUN interface, as if they had just arrived. The kernel sends the server's packets itself,
//! and the device receives copies of them.

use super::config::WireConfig;
use super::frame::{self, ETHERNET_BYTES, Frame};
use super::lane::CLIENTS;
use super::neighbours::Neighbours;
use super::station::{handle_datagram, handle_frame, stored_frame};
use super::steering::wanted;
use super::wait::{BATCH, WAIT_MAX, new_poller, wait};
use crate::engine::{Driver, Engine};
use crate::error::SwitchError;
use crate::frames::HeapFrames;
use crate::status::Status;
use crate::sys::{Sniffer, Tun};
use landfall_media::Extent;
use landfall_packets::{Departures, Landing, LandingMemory};
use landfall_pmnet::auth::Ends;
use landfall_pmnet::device::{Action, Side, Verdict};
use landfall_sockets::{Frames, Poller, Waker};
use landfall_spin::SpinWait;
use landfall_xdp::{AttachMode, Bridge, Interface, Received, Socket};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Length of the longest outgoing frame that is copied, bytes.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// Settings of a device that is a network card.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// The server's interface.
    pub interface: String,
    /// All other settings. The interfaces in them are not used.
    pub wire: WireConfig,
}

/// A packet from a client that will be delivered to the server. Its chunk is not lent again before that.
struct ToDeliver {
    lane: usize,
    at: Extent,
}

/// A device as the server's network card, with its log and its sockets open. [`Nic::run`] runs it.
pub struct Nic {
    engine: Engine,
    lanes: Vec<(Socket, Departures, Landing)>,
    bridge: Bridge,
    _memory: LandingMemory,
    frames: HeapFrames,
    tun: Tun,
    sniffer: Sniffer,
    neighbours: Neighbours,
    poller: Poller,
    waker: Waker,
    rest: SpinWait,
    received: Vec<Received>,
    /// Packets that are delivered to the server at the end of the round.
    to_deliver: Vec<ToDeliver>,
    outgoing: Vec<u8>,
    reason: String,
    metrics: Option<SocketAddr>,
}

impl Nic {
    /// Opens the log, registers its region as packet memory of the interface, and attaches the program.
    ///
    /// # Errors
    /// [`SwitchError`] says what is wrong and what the operator can do.
    pub fn open(config: &NicConfig) -> Result<Self, SwitchError> {
        let NicConfig { interface, wire } = config;
        let interface = Interface::find(interface)?;
        let waker = Waker::new().map_err(SwitchError::system("making an eventfd"))?;
        let mut poller = new_poller(&waker)?;
        let engine = Engine::open(&wire.region, wire.limits, wire.device, wire.key.as_ref(), &waker)?;
        let heap = Arc::clone(engine.device.log().heap());
        let queues = interface.queues();
        heap.reserve_landing(queues);
        let image = heap.media().pin_image().unwrap_or_default();
        let memory = LandingMemory::register(image, &[&interface], queues as usize, false)?;
        let pin = wire.pin.as_ref().map(|folder| folder.join("pmnet-nic"));
        let wanted = wanted(wire.device.sees_bypasses());
        let bridge = Bridge::attach(&interface, None, wanted, AttachMode::Auto, pin.as_deref())?;
        let tun = Tun::open(interface.mtu)
            .map_err(SwitchError::system("creating a TUN interface to deliver packets to the kernel"))?;
        let sniffer = Sniffer::open(interface.index)
            .map_err(SwitchError::system("opening a packet socket for copies of the server's packets"))?;
        let mut lanes = Vec::new();
        for queue in 0..queues {
            let socket = memory.open(&interface, queue, wire.mode)?;
            bridge.set_socket(queue, &socket)?;
            poller.watch(socket.descriptor()).map_err(SwitchError::system("watching an AF_XDP socket"))?;
            let worker = queue as usize;
            lanes.push((socket, memory.departures(worker, CLIENTS), memory.landing(worker)));
        }
        poller.watch(sniffer.descriptor()).map_err(SwitchError::system("watching a packet socket"))?;
        let metrics = engine.serve_metrics(wire.metrics)?;
        let place = if bridge.is_native() { "driver" } else { "kernel's receive path" };
        Ok(Self {
            engine,
            lanes,
            bridge,
            _memory: memory,
            frames: HeapFrames(heap),
            tun,
            sniffer,
            neighbours: Neighbours::default(),
            poller,
            waker,
            rest: SpinWait::new(wire.spin),
            received: Vec::new(),
            to_deliver: Vec::new(),
            outgoing: vec![0; FRAME_BYTES_MAX],
            reason: format!("the network card {} ({place}) of this host", interface.name),
            metrics,
        })
    }

    /// One line for the operator: the interface, and where the program runs.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The address at which `/metrics` is served, as bound.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The counts.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.engine.status)
    }

    /// Runs until `stop` is set.
    ///
    /// # Errors
    /// [`SwitchError::Xdp`], [`SwitchError::System`].
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), SwitchError> {
        let outcome = self.rounds(stop);
        let Self { lanes, bridge, mut frames, engine, .. } = self;
        for (socket, mut departures, mut landing) in lanes {
            drop(socket);
            landing.clear(&mut frames);
            departures.clear(&mut frames);
        }
        drop(bridge);
        engine.stop();
        outcome
    }

    fn take_from_clients(&mut self) -> Result<bool, SwitchError> {
        let mut any = false;
        for lane in 0..self.lanes.len() {
            let mut received = std::mem::take(&mut self.received);
            received.clear();
            any |= self.lanes[lane].0.receive(BATCH, &mut received) > 0;
            for packet in &received {
                self.pass(lane, packet);
            }
            self.received = received;
        }
        Ok(any)
    }

    /// Handles a packet from a client. It is delivered at the end of the round unless the device keeps it.
    fn pass(&mut self, lane: usize, packet: &Received) {
        let frames = &mut self.frames;
        let landing = &mut self.lanes[lane].2;
        if packet.is_part {
            landing.discard(packet, frames);
            return self.engine.status.dropped(1);
        }
        let Some(at) = landing.land(packet, frames) else { return self.engine.status.dropped(1) };
        let verdict = handle_frame(&mut self.engine, &mut self.neighbours, &self.frames, at, Side::Clients);
        if verdict == Some(Verdict::Forward) {
            self.to_deliver.push(ToDeliver { lane, at });
        } else {
            self.lanes[lane].2.done(at.off, &mut self.frames);
        }
    }

    /// Handles copies of the packets that the server has sent. They name the updates that the server confirms and those
    /// that it misses.
    fn take_from_server(&mut self) -> Result<bool, SwitchError> {
        let mut bytes = std::mem::take(&mut self.outgoing);
        let mut any = false;
        for _ in 0..BATCH {
            let got = self
                .sniffer
                .receive(&mut bytes)
                .map_err(SwitchError::system("receiving copies of the server's packets"))?;
            if got == 0 {
                break;
            }
            any = true;
            let Ok(frame) = Frame::parse_own(&bytes[..got]) else { continue };
            // Packets from the server are not logged, so that the packet need not lie in the region.
            handle_datagram(&mut self.engine, &frame, None, Side::Server);
        }
        self.outgoing = bytes;
        Ok(any)
    }

    /// Makes the kernel send all queued packets, acknowledgements above all, and then delivers packets to the server.
    /// The delivery comes last, because the host's whole receive path runs in that call and wakes a server that may
    /// take this core. Packets that the device itself sends to the server must follow those of the clients.
    fn settle(&mut self) -> Result<(), SwitchError> {
        for (socket, departures, _) in &mut self.lanes {
            departures.kick(socket, &mut self.frames)?;
        }
        let (frames, mut to_deliver) = (self.frames.clone(), std::mem::take(&mut self.to_deliver));
        for ToDeliver { lane, at } in to_deliver.drain(..) {
            self.deliver(frames.bytes(at));
            self.lanes[lane].2.done(at.off, &mut self.frames);
        }
        self.to_deliver = to_deliver;
        Ok(())
    }

    /// Delivers the IP packet of a frame to this host's kernel.
    fn deliver(&mut self, frame: &[u8]) {
        let packet = frame.get(ETHERNET_BYTES..).unwrap_or_default();
        if packet.is_empty() || self.tun.deliver(packet).is_err() {
            self.engine.status.dropped(1);
        }
    }

    /// Sends the packets that the device has queued: to clients through the interface, to the server through the
    /// kernel. True if there were any.
    fn act(&mut self) -> Result<bool, SwitchError> {
        let mut any = false;
        while let Some(action) = self.engine.device.poll_action() {
            any = true;
            match action {
                Action::Datagram { towards: Side::Server, from, to, payload } => {
                    self.settle()?;
                    let payload = self.engine.seal(Ends::of(Side::Server, from, to), payload);
                    match frame::make(([0; 6], [0; 6]), from, to, &payload) {
                        Some(bytes) => self.deliver(&bytes),
                        None => self.engine.status.dropped(1),
                    }
                }
                Action::Datagram { from, to, payload, .. } => {
                    let payload = self.engine.seal(Ends::of(Side::Clients, from, to), payload);
                    self.send(from, to, &payload)?;
                }
                Action::Logged { identity, stored } => {
                    self.settle()?;
                    match stored_frame(&mut self.engine, &identity, &stored) {
                        Some(frame) => self.deliver(&frame.bytes),
                        None => self.engine.status.dropped(1),
                    }
                    self.engine.device.sent(&stored);
                }
            }
        }
        Ok(any)
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Result<(), SwitchError> {
        let source = self.neighbours.find(Side::Server, &from.ip());
        let ends = source.zip(self.neighbours.find(Side::Clients, &to.ip()));
        let made = ends.and_then(|ends| frame::make(ends, from, to, payload));
        let (socket, departures, _) = &mut self.lanes[0];
        let sent = match made {
            Some(bytes) => {
                departures.has_room(socket, &mut self.frames)?
                    && departures.send_bytes(&bytes, socket, &mut self.frames)
            }
            None => false,
        };
        if !sent {
            self.engine.status.dropped(1);
        }
        Ok(())
    }
}

impl Driver for Nic {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn passed(&self) -> u64 {
        self.bridge.others()
    }

    fn round(&mut self) -> Result<(), SwitchError> {
        let mut any = self.take_from_clients()?;
        any |= self.take_from_server()?;
        if self.waker.take() {
            self.engine.collect();
            any = true;
        }
        self.engine.keep_up();
        any |= self.act()?;
        self.settle()?;
        for (socket, _, landing) in &mut self.lanes {
            landing.recycle_landed(&mut self.frames);
            landing.fill(socket, &mut self.frames);
        }
        if any {
            self.rest.found();
            return Ok(());
        }
        let Self { rest, poller, lanes, engine, .. } = self;
        let has_received = || lanes.iter_mut().any(|(socket, ..)| socket.has_received());
        wait(rest, poller, WAIT_MAX, engine, has_received)
    }
}

impl std::fmt::Debug for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nic").field("reason", &self.reason).finish_non_exhaustive()
    }
}
