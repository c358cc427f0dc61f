//! A device over kernel sockets: clients send to the relay, the relay to the server. No privilege.
//!
//! The server knows each client by a port of the relay's, which is remembered durably: a client is the same to the server
//! after a restart. The kernel copies each packet once, into the region.

mod upstream;

use crate::engine::{Clock, Driver, Engine, RegionConfig};
use crate::error::SwitchError;
use crate::frames::HeapFrames;
use crate::status::Status;
use crate::sys::Receiver;
use landfall_media::Extent;
use landfall_packets::Pool;
use landfall_pmnet::auth::{Ends, Key};
use landfall_pmnet::device::{Action, Arrival, DeviceConfig, Side, Verdict};
use landfall_pmnet::log::Limits;
use landfall_pmnet::paths::{Admission, Opening, PathLimits, Paths, admission};
use landfall_pmnet::wire::{Body, Packet, Refusal};
use landfall_pmnet::{Flow, Instant};
use landfall_sockets::{Frames, Poller, Waker};
use landfall_spin::Rest;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use upstream::Upstreams;

/// Datagrams taken from a socket at a time.
const BATCH: usize = 32;
/// Bytes of the memory that a datagram lands in: a frame.
const CHUNK_BYTES: u64 = 2048;
/// Paths that are given back between two looks for packets.
const CLOSED_MAX: usize = 64;
/// Pause between two looks at all paths for one to give up.
const PRESSED_EVERY: Duration = Duration::from_secs(1);
/// Longest wait, so that a stop is noticed and counts are shown.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Name of the clients' socket with the poller; upstream sockets count from 1.
const FRONT: u64 = u64::MAX;
/// Bytes that a socket's buffer should hold.
const SOCKET_BYTES: usize = 4 << 20;

/// What a relay is told.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where clients send to.
    pub listen: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// Ports to send clients' packets on from, one each.
    pub upstream_ports: RangeInclusive<u16>,
    /// When they are given back.
    pub paths: PathLimits,
    /// How long to look for packets before waiting; `Duration::MAX`: never wait.
    pub spin: Duration,
    /// The region.
    pub region: RegionConfig,
    /// The log's bounds.
    pub limits: Limits,
    /// The device.
    pub device: DeviceConfig,
    /// What it shares with clients and server, if anything.
    pub key: Option<Key>,
    /// Where `/metrics` is served.
    pub metrics: Option<SocketAddr>,
}

/// A relay that is about to run.
pub struct Relay {
    engine: Engine,
    front: Front,
    upstreams: Upstreams,
    paths: Paths,
    /// When no port was left, last.
    pressed_at: Option<Instant>,
    poller: Poller,
    waker: Waker,
    pool: Pool,
    frames: HeapFrames,
    receiver: Receiver,
    chunks: Vec<u64>,
    rest: Rest,
    server: SocketAddr,
    metrics: Option<SocketAddr>,
}

impl Relay {
    /// Opens the log and the sockets; what is in the log can be sent on from the ports of before.
    ///
    /// # Errors
    /// [`SwitchError`] says what is wrong and what to do.
    pub fn open(config: &RelayConfig) -> Result<Self, SwitchError> {
        if config.listen.is_ipv4() != config.server.is_ipv4() {
            return Err(SwitchError::Families { listen: config.listen, server: config.server });
        }
        let front =
            socket(config.listen).map_err(|source| SwitchError::Listen { address: config.listen, source })?;
        let waker = Waker::new().map_err(SwitchError::system("making an eventfd"))?;
        let mut poller = Poller::new().map_err(SwitchError::system("epoll_create1"))?;
        poller.watch_as(front.as_raw_fd(), FRONT).map_err(SwitchError::system("watching a socket"))?;
        poller.watch_edges(waker.descriptor()).map_err(SwitchError::system("watching an eventfd"))?;
        let engine = Engine::open(&config.region, config.limits, config.device, config.key.as_ref(), &waker)?;
        let mut upstreams = Upstreams::new(config.server, config.upstream_ports.clone());
        let mut paths = Paths::new(config.paths, config.upstream_ports.len());
        for (flow, port) in engine.device.log().paths() {
            if upstreams.reopen(flow, port, &mut poller)? {
                paths.restored(flow.client, engine.clock.now());
            }
        }
        engine.status.count_paths(|counts| counts.open = paths.len() as u64);
        let heap = Arc::clone(engine.device.log().heap());
        let image = heap.media().image().ok_or_else(|| SwitchError::System {
            what: "landing packets in the region",
            source: std::io::Error::other("its memory cannot be reached by the kernel"),
        })?;
        let metrics = engine.serve_metrics(config.metrics)?;
        let address =
            front.local_addr().map_err(SwitchError::system("asking for the address that was bound"))?;
        Ok(Self {
            engine,
            front: Front { socket: front, port: address.port(), is_ipv6: config.server.is_ipv6() },
            upstreams,
            paths,
            pressed_at: None,
            poller,
            waker,
            pool: Pool::new(CHUNK_BYTES, BATCH as u32),
            frames: HeapFrames(heap),
            receiver: Receiver::new(BATCH, CHUNK_BYTES as usize, image),
            chunks: Vec::new(),
            rest: Rest::new(config.spin),
            server: config.server,
            metrics,
        })
    }

    /// Where clients send to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.front.socket.local_addr()
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
    /// [`SwitchError::System`].
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), SwitchError> {
        let outcome = self.rounds(stop);
        self.pool.clear(&mut self.frames);
        self.engine.stop();
        outcome
    }

    /// Names of the sockets that have something.
    fn wait(&mut self) -> Result<Vec<u64>, SwitchError> {
        let due = self.engine.until_due(WAIT_MAX);
        let Self { rest, poller, .. } = self;
        let wait = |most| {
            poller.wait(Some(most)).map_err(SwitchError::system("waiting for packets"))?;
            Ok(poller.ready().collect())
        };
        rest.until(due, wait, |ready: &Vec<u64>| !ready.is_empty())
    }

    /// Chunks to receive into. Fewer where there is no landing space: packets then wait in the socket.
    fn take_chunks(&mut self) {
        while self.chunks.len() < BATCH
            && let Some(chunk) = self.pool.take(&mut self.frames)
        {
            self.chunks.push(chunk);
        }
    }

    /// Receives a batch; each datagram's chunk, source and length.
    fn receive(&mut self, socket: i32) -> Result<Vec<(usize, u64, SocketAddr, usize)>, SwitchError> {
        self.take_chunks();
        let got = self.receiver.receive(socket, &self.chunks).map_err(SwitchError::system("receiving"))?;
        let chunks: Vec<u64> = self.chunks.drain(..got).collect();
        let landed = chunks.into_iter().enumerate();
        Ok(landed
            .filter_map(|(index, chunk)| {
                let datagram = self.receiver.datagram(index)?;
                Some((index, chunk, datagram.from, datagram.len))
            })
            .collect())
    }

    fn receive_from_clients(&mut self) -> Result<(), SwitchError> {
        for (index, chunk, from, len) in self.receive(self.front.socket.as_raw_fd())? {
            // As the log has it, which knows one form of an address.
            let client = canonical(from);
            let held = self.hold(chunk, len);
            let ends = Ends::to_server(client, self.front.port);
            if let Some((packet, len)) = self.unseal(ends, held, index, len)
                && self.admit(client, packet, index, len)
            {
                let verdict = self.handle(Side::Clients, (client, self.server), packet, len);
                if verdict == Verdict::Forward {
                    let bytes = whole(&self.frames, &self.receiver, packet, (index, len));
                    self.upstreams.send(&mut self.engine, &client, bytes);
                }
            } else {
                self.engine.status.dropped(1);
            }
            self.let_go(chunk, held);
        }
        Ok(())
    }

    fn receive_from_server(&mut self, upstream: usize) -> Result<(), SwitchError> {
        let Some((socket, client, local)) = self.upstreams.at(upstream) else { return Ok(()) };
        for (index, chunk, from, len) in self.receive(socket)? {
            let held = self.hold(chunk, len);
            let ends = Ends::to_client(local, self.server.port());
            match self.unseal(ends, held, index, len) {
                Some((packet, len)) => {
                    let now = self.engine.clock.now();
                    self.paths.server_sent(&client, self.frames.bytes(packet), now);
                    if self.handle(Side::Server, (from, client), packet, len) == Verdict::Forward {
                        let bytes = whole(&self.frames, &self.receiver, packet, (index, len));
                        self.front.send(&mut self.engine, client, bytes);
                    }
                }
                None => self.engine.status.dropped(1),
            }
            self.let_go(chunk, held);
        }
        Ok(())
    }

    fn hold(&mut self, chunk: u64, len: usize) -> Extent {
        let packet = Extent::new(chunk, len.min(CHUNK_BYTES as usize) as u32);
        self.frames.hold(packet);
        packet
    }

    /// What of a packet is in front of its seal, and its length. `None` if the seal does not fit.
    fn unseal(&mut self, ends: Ends, packet: Extent, index: usize, len: usize) -> Option<(Extent, usize)> {
        if !self.engine.guard.is_keyed() {
            return Some((packet, len));
        }
        let bytes = whole(&self.frames, &self.receiver, packet, (index, len));
        match self.engine.guard.open(ends, Clock::unix_ns(), &bytes) {
            Ok(opened) => {
                let within = opened.len().min(packet.len() as usize);
                Some((packet.with_len(within as u32), opened.len()))
            }
            Err(_) => {
                self.engine.device.count_unauthentic();
                None
            }
        }
    }

    fn let_go(&mut self, chunk: u64, packet: Extent) {
        self.frames.release(packet);
        self.pool.landed(chunk, &mut self.frames);
    }

    /// A packet that is longer than a frame is no update that could be logged.
    fn handle(
        &mut self,
        side: Side,
        (from, to): (SocketAddr, SocketAddr),
        packet: Extent,
        len: usize,
    ) -> Verdict {
        if len > CHUNK_BYTES as usize {
            return self.engine.device.count_too_long(side);
        }
        let frames = self.frames.clone();
        let payload = frames.bytes(packet);
        let arrival_ns = Clock::unix_ns();
        let arrival = Arrival { side, from, to, payload, packet, header_at: 0, arrival_ns };
        self.engine.device.handle(&arrival, self.engine.clock.now())
    }

    /// Whether a client has a path, or its packet gets it one.
    fn admit(&mut self, client: SocketAddr, packet: Extent, index: usize, len: usize) -> bool {
        if self.upstreams.has(&client) {
            self.paths.client_sent(&client, self.engine.clock.now());
            return true;
        }
        let bytes = whole(&self.frames, &self.receiver, packet, (index, len));
        let admission = admission(&bytes);
        if let Admission::Opens(opening) = admission {
            return self.open_path(client, opening);
        }
        self.engine.status.count_paths(|counts| counts.strangers += 1);
        if let Admission::Refused { session, seq } = admission {
            let refusal = Packet::new(session, seq, Body::SessionRefused(Refusal::Unknown));
            self.front.send(&mut self.engine, client, refusal.to_bytes());
        }
        false
    }

    /// A client's way to the server; false if there is no port left for it.
    fn open_path(&mut self, client: SocketAddr, opening: Opening) -> bool {
        let is_open = self.try_path(client, opening);
        let open = self.paths.len() as u64;
        self.engine.status.count_paths(|counts| {
            counts.open = open;
            counts.opened += u64::from(is_open);
            counts.refused += u64::from(!is_open);
        });
        is_open
    }

    fn try_path(&mut self, client: SocketAddr, opening: Opening) -> bool {
        if !self.paths.has_room(opening) && !self.give_way() {
            self.upstreams.complain(&std::io::Error::other(
                "updates of sessions that no server has taken have their share of the ports",
            ));
            return false;
        }
        let mut opened = self.upstreams.open(client, &mut self.poller);
        if opened.is_err() && self.make_room(opening) {
            opened = self.upstreams.open(client, &mut self.poller);
        }
        let (flow, port) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.upstreams.complain(&error);
                return false;
            }
        };
        // Durable before anything is sent on from there.
        let log = self.engine.device.log_mut();
        let remembered =
            log.set_path(flow, port, Clock::unix_ns()).is_ok_and(|there_was_room| there_was_room);
        if !remembered || !self.settle() {
            self.upstreams.close(&client);
            self.upstreams
                .complain(&std::io::Error::other("the log has no room for the ports of more clients"));
            return false;
        }
        self.paths.opened(client, opening, self.engine.clock.now());
        true
    }

    /// Paths that are of no use any more are given back.
    fn close_paths(&mut self) {
        let (now, server) = (self.engine.clock.now(), self.server);
        for _ in 0..CLOSED_MAX {
            let log = self.engine.device.log();
            let Some(client) =
                self.paths.expired(now, |client| log.has_entries(&Flow { client: *client, server }))
            else {
                return;
            };
            self.close_path(client);
        }
    }

    /// A path for a client ends, as no port is left: one that no server has spoken for, or, if the client begins a session, one that has
    /// been silent for long.
    fn make_room(&mut self, opening: Opening) -> bool {
        self.give_way() || (opening == Opening::SessionStart && self.give_up_path())
    }

    /// The oldest path that no server has spoken for, and whose client is silent.
    fn give_way(&mut self) -> bool {
        let (now, server) = (self.engine.clock.now(), self.server);
        let log = self.engine.device.log();
        let oldest =
            self.paths.evict_unconfirmed(now, |client| log.has_entries(&Flow { client: *client, server }));
        let is_there = oldest.map(|client| self.close_path(client)).is_some();
        self.engine.status.count_paths(|counts| counts.gave_way += u64::from(is_there));
        is_there
    }

    /// The path that has been silent for longest, if that is long. Looks at all paths: at most once a second.
    fn give_up_path(&mut self) -> bool {
        let (now, server) = (self.engine.clock.now(), self.server);
        if self.pressed_at.is_some_and(|last| now.since(last) < PRESSED_EVERY) {
            return false;
        }
        self.pressed_at = Some(now);
        let log = self.engine.device.log();
        let silent = self.paths.evict_idle(now, |client| log.has_entries(&Flow { client: *client, server }));
        silent.map(|client| self.close_path(client)).is_some()
    }

    fn close_path(&mut self, client: SocketAddr) {
        self.engine.device.remove_path(Flow { client, server: self.server });
        self.upstreams.close(&client);
        let open = self.paths.len() as u64;
        self.engine.status.count_paths(|counts| (counts.open, counts.closed) = (open, counts.closed + 1));
    }

    /// Waits until everything appended is durable.
    fn settle(&mut self) -> bool {
        while self.engine.device.log().is_committing() {
            std::thread::yield_now();
            self.engine.collect();
        }
        self.engine.device.commit().is_ok()
    }

    /// Sends what the device wants sent.
    fn act(&mut self) {
        while let Some(action) = self.engine.device.poll_action() {
            match action {
                Action::Datagram { towards: Side::Server, from, payload, .. } => {
                    self.upstreams.send(&mut self.engine, &from, payload);
                }
                Action::Datagram { to, payload, .. } => self.front.send(&mut self.engine, to, payload),
                Action::Logged { identity, stored } => {
                    if let Ok(bytes) = self.engine.device.log().bytes_of(&stored) {
                        self.upstreams.send(&mut self.engine, &identity.flow.client, bytes);
                    }
                    self.engine.device.sent(&stored);
                }
            }
        }
    }
}

/// A datagram, with what of it did not fit its chunk.
fn whole<'a>(
    frames: &'a HeapFrames,
    receiver: &'a Receiver,
    packet: Extent,
    (index, len): (usize, usize),
) -> Cow<'a, [u8]> {
    let bytes = frames.bytes(packet);
    match receiver.spilled(index, len) {
        [] => bytes.into(),
        rest => [bytes, rest].concat().into(),
    }
}

/// The socket that clients send to.
struct Front {
    socket: UdpSocket,
    port: u16,
    /// It shows IPv4 clients as IPv6 addresses, and sends to them as such.
    is_ipv6: bool,
}

impl Front {
    /// Sends to a client.
    fn send<'a>(&self, engine: &mut Engine, client: SocketAddr, packet: impl Into<Cow<'a, [u8]>>) {
        let packet = engine.seal(Ends::to_client(client, self.port), packet);
        let to = match client.ip() {
            IpAddr::V4(ip) if self.is_ipv6 => SocketAddr::new(ip.to_ipv6_mapped().into(), client.port()),
            _ => client,
        };
        if self.socket.send_to(&packet, to).is_err() {
            engine.status.dropped(1);
        }
    }
}

/// A socket for both families shows IPv4 clients as IPv6 addresses.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

impl Driver for Relay {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Waits for something, and does all there is to do.
    fn round(&mut self) -> Result<(), SwitchError> {
        let ready = self.wait()?;
        for name in ready {
            match name {
                FRONT => self.receive_from_clients()?,
                0 => {}
                name => self.receive_from_server(name as usize - 1)?,
            }
        }
        if self.waker.take() {
            self.engine.collect();
        }
        self.engine.keep_up();
        self.close_paths();
        self.act();
        self.pool.sort_landed(&mut self.frames);
        Ok(())
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A socket that does not wait.
fn socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let kind = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::DGRAM.nonblocking().cloexec(),
        None,
    )?;
    // Best effort: the kernel grants what its limits allow.
    let _ = kind.set_recv_buffer_size(SOCKET_BYTES);
    let _ = kind.set_send_buffer_size(SOCKET_BYTES);
    kind.bind(&address.into())?;
    Ok(kind.into())
}
