//! A device as the server's network card, on one interface of the server's own host (§VI-A4, PMNet-NIC).
//!
//! PMNet's packets from clients come here over AF_XDP; what is to go on is handed to this host's kernel through a TUN interface,
//! as if it had just arrived. What the server sends leaves by itself, and is seen as a copy.

use super::frame::{self, ETHERNET_BYTES, Frame};
use super::neighbours::Neighbours;
use super::station::{again, show, take};
use super::steering::wanted;
use super::{BATCH, CLIENTS, WAIT_MAX, WireConfig, new_poller, wait};
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
use landfall_spin::Rest;
use landfall_xdp::{AttachMode, Bridge, Interface, Received, Socket};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes of the longest frame that is seen on its way out.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// What a device as a network card is told.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// The server's interface.
    pub interface: String,
    /// Everything else; its interfaces do not count.
    pub wire: WireConfig,
}

/// A packet from a client that goes on to the server. Its chunk is not lent again before that.
struct GoingOn {
    lane: usize,
    at: Extent,
}

/// A device as the server's network card that is about to run.
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
    rest: Rest,
    received: Vec<Received>,
    /// Goes on to the server at the end of the round.
    going_on: Vec<GoingOn>,
    outgoing: Vec<u8>,
    reason: String,
    metrics: Option<SocketAddr>,
}

impl Nic {
    /// Opens the log, lays its region under the interface, and attaches the program.
    ///
    /// # Errors
    /// [`SwitchError`] says what is wrong and what to do.
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
            .map_err(SwitchError::system("making a TUN interface to hand packets to the kernel"))?;
        let sniffer = Sniffer::open(interface.index)
            .map_err(SwitchError::system("opening a packet socket to see what the server sends"))?;
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
            rest: Rest::new(wire.spin),
            received: Vec::new(),
            going_on: Vec::new(),
            outgoing: vec![0; FRAME_BYTES_MAX],
            reason: format!("the network card {} ({place}) of this host", interface.name),
            metrics,
        })
    }

    /// One line for people: how it runs here.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Where counts are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The counts.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.engine.status)
    }

    /// Runs until told to stop.
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

    /// A packet from a client: it is looked at, and goes on at the end of the round or is kept.
    fn pass(&mut self, lane: usize, packet: &Received) {
        let frames = &mut self.frames;
        let landing = &mut self.lanes[lane].2;
        if packet.is_part {
            landing.discard(packet, frames);
            return self.engine.status.dropped(1);
        }
        let Some(at) = landing.land(packet, frames) else { return self.engine.status.dropped(1) };
        let shown = show(&mut self.engine, &mut self.neighbours, &self.frames, at, Side::Clients);
        if shown == Some(Verdict::Forward) {
            self.going_on.push(GoingOn { lane, at });
        } else {
            self.lanes[lane].2.done(at.off, &mut self.frames);
        }
    }

    /// What the server has sent is on its way already: it tells what it confirms and what it misses.
    fn take_from_server(&mut self) -> Result<bool, SwitchError> {
        let mut bytes = std::mem::take(&mut self.outgoing);
        let mut any = false;
        for _ in 0..BATCH {
            let got = self
                .sniffer
                .receive(&mut bytes)
                .map_err(SwitchError::system("seeing what the server sends"))?;
            if got == 0 {
                break;
            }
            any = true;
            let Ok(frame) = Frame::parse_own(&bytes[..got]) else { continue };
            // Nothing of the server's side is logged: the packet need not lie in the region.
            take(&mut self.engine, &frame, Extent::default(), Side::Server);
        }
        self.outgoing = bytes;
        Ok(any)
    }

    /// Has everything queued sent, acknowledgements above all, and then hands to the kernel what goes on: the host's whole receive
    /// path runs in that call, and wakes a server that may take this core. What is made here for the server goes behind that.
    fn settle(&mut self) -> Result<(), SwitchError> {
        for (socket, departures, _) in &mut self.lanes {
            departures.kick(socket, &mut self.frames)?;
        }
        let (frames, mut going_on) = (self.frames.clone(), std::mem::take(&mut self.going_on));
        for GoingOn { lane, at } in going_on.drain(..) {
            self.deliver(frames.bytes(at));
            self.lanes[lane].2.done(at.off, &mut self.frames);
        }
        self.going_on = going_on;
        Ok(())
    }

    /// Hands a frame's packet to this host's kernel.
    fn deliver(&mut self, frame: &[u8]) {
        let packet = frame.get(ETHERNET_BYTES..).unwrap_or_default();
        if packet.is_empty() || self.tun.deliver(packet).is_err() {
            self.engine.status.dropped(1);
        }
    }

    /// Sends what the device wants sent: to clients by the interface, to the server through the kernel.
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
                    match again(&mut self.engine, &identity, &stored) {
                        Some(again) => self.deliver(&again.bytes),
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
            landing.sort_landed(&mut self.frames);
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
