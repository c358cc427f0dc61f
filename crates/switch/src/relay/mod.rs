//! A device over kernel sockets: clients send to the relay, and the relay sends to the server. It needs no privilege.
//!
//! The relay sends the packets of each client from a port of its own, the client's *path*. Paths are stored durably, so
//! that the server sees each client under one port also after a restart of the relay. The kernel copies each packet
//! once, into the region.

mod socket;
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
use landfall_pmnet::paths::{Admission, Gone, Opening, PathLimits, Paths};
use landfall_pmnet::wire::{Body, Packet, Refusal};
use landfall_pmnet::{Flow, Instant};
use landfall_sockets::{Frames, Poller, Waker};
use landfall_spin::SpinWait;
use socket::socket;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use upstream::Upstreams;

/// Most datagrams that one call receives.
const BATCH: usize = 32;
/// Length of the memory that a datagram lands in, bytes: one frame.
const CHUNK_BYTES: u64 = 2048;
/// Most paths that one round closes.
const CLOSED_MAX: usize = 64;
/// Shortest time between two scans of all paths for a silent one.
const SCAN_PATHS_EVERY: Duration = Duration::from_secs(1);
/// Longest wait, so that the relay notices a stop and publishes its counts.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Token of the clients' socket with the poller. The tokens of upstream sockets count from 1.
const FRONT: u64 = u64::MAX;
/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Address that clients send to.
    pub listen: SocketAddr,
    /// Address of the server.
    pub server: SocketAddr,
    /// Ports from which the relay sends to the server, one for each client.
    pub upstream_ports: RangeInclusive<u16>,
    /// Limits of the paths, and the times after which the relay closes them.
    pub paths: PathLimits,
    /// How long to busy-poll for packets before the relay blocks; `Duration::MAX`: never block.
    pub spin: Duration,
    /// The region of the log.
    pub region: RegionConfig,
    /// Bounds of the log.
    pub limits: Limits,
    /// Settings of the device's state machine.
    pub device: DeviceConfig,
    /// Key that the relay shares with clients and server, if any.
    pub key: Option<Key>,
    /// Address at which to serve `/metrics`, if any.
    pub metrics: Option<SocketAddr>,
}

/// A relay with its log and its sockets open. [`Relay::run`] runs it.
pub struct Relay {
    engine: Engine,
    front: Front,
    upstreams: Upstreams,
    paths: Paths,
    /// When all paths were scanned for a silent one last.
    scanned_at: Option<Instant>,
    poller: Poller,
    waker: Waker,
    pool: Pool,
    frames: HeapFrames,
    receiver: Receiver,
    chunks: Vec<u64>,
    rest: SpinWait,
    server: SocketAddr,
    metrics: Option<SocketAddr>,
}

impl Relay {
    /// Opens the log and the sockets. Each client in the log gets the port again that it had before.
    ///
    /// # Errors
    /// [`SwitchError`] says what is wrong and what the operator can do.
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
        if engine.device.log().has_forgotten(config.server) {
            paths.set_forgotten();
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
            scanned_at: None,
            poller,
            waker,
            pool: Pool::new(CHUNK_BYTES, BATCH as u32),
            frames: HeapFrames(heap),
            receiver: Receiver::new(BATCH, CHUNK_BYTES as usize, image),
            chunks: Vec::new(),
            rest: SpinWait::new(config.spin),
            server: config.server,
            metrics,
        })
    }

    /// The address that clients send to, as bound.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.front.socket.local_addr()
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
    /// [`SwitchError::System`].
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), SwitchError> {
        let outcome = self.rounds(stop);
        self.pool.clear(&mut self.frames);
        self.engine.stop();
        outcome
    }

    /// Waits for packets or for the next timeout. Returns the tokens of the sockets that are readable.
    fn wait(&mut self) -> Result<Vec<u64>, SwitchError> {
        let due = self.engine.until_due(WAIT_MAX);
        let Self { rest, poller, .. } = self;
        let wait = |most| {
            poller.wait(Some(most)).map_err(SwitchError::system("waiting for packets"))?;
            Ok(poller.ready().collect())
        };
        rest.until(due, wait, |ready: &Vec<u64>| !ready.is_empty())
    }

    /// Takes chunks to receive into. There are fewer than a batch if landing space is short: packets then wait in the
    /// socket's buffer.
    fn take_chunks(&mut self) {
        while self.chunks.len() < BATCH
            && let Some(chunk) = self.pool.take(&mut self.frames)
        {
            self.chunks.push(chunk);
        }
    }

    /// Receives a batch. Returns the index, chunk, source and length of each datagram.
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
            // The log stores addresses in one form only.
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
            self.release_chunk(chunk, held);
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
            self.release_chunk(chunk, held);
        }
        Ok(())
    }

    fn hold(&mut self, chunk: u64, len: usize) -> Extent {
        let packet = Extent::new(chunk, len.min(CHUNK_BYTES as usize) as u32);
        self.frames.hold(packet);
        packet
    }

    /// Verifies the seal of a packet. Returns the extent and the length of the bytes in front of the seal, or `None` if
    /// the seal is wrong.
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

    fn release_chunk(&mut self, chunk: u64, packet: Extent) {
        self.frames.release(packet);
        self.pool.landed(chunk, &mut self.frames);
    }

    /// Passes a packet to the device. A packet that is longer than a frame cannot be logged, so it is only counted.
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

    /// True if a client has a path by which the packet may go on, or if its packet opens one.
    fn admit(&mut self, client: SocketAddr, packet: Extent, index: usize, len: usize) -> bool {
        let bytes = whole(&self.frames, &self.receiver, packet, (index, len));
        if self.upstreams.has(&client) {
            self.paths.client_sent(&client, self.engine.clock.now());
            let forgotten = self.paths.forgotten_session(&client, &bytes);
            forgotten.into_iter().for_each(|session| self.refuse(client, session));
            return forgotten.is_none();
        }
        let admission = self.paths.admission(&bytes);
        if let Admission::Opens(opening) = admission {
            return self.open_path(client, opening);
        }
        self.engine.status.count_paths(|counts| counts.strangers += 1);
        if let Admission::Refused { session, seq } = admission {
            self.refuse(client, (session, seq));
        }
        false
    }

    /// Tells a client that the server has no session of this number.
    fn refuse(&mut self, client: SocketAddr, (session, seq): (u16, u32)) {
        let refusal = Packet::new(session, seq, Body::SessionRefused(Refusal::Unknown));
        self.front.send(&mut self.engine, client, refusal.to_bytes());
    }

    /// Opens a path for a client. False if there is no port or no room for it.
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
        if !self.paths.has_room(opening) && !self.evict_unconfirmed() {
            self.upstreams.warn_no_path(&std::io::Error::other(
                "clients whose sessions no server has confirmed use all ports that they may have",
            ));
            return false;
        }
        let mut opened = self.upstreams.open(client, &mut self.poller);
        if opened.is_err() && self.evict_for(opening) {
            opened = self.upstreams.open(client, &mut self.poller);
        }
        let (flow, port) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.upstreams.warn_no_path(&error);
                return false;
            }
        };
        // The path must be durable before a packet leaves from its port.
        let log = self.engine.device.log_mut();
        let is_stored = log.set_path(flow, port, Clock::unix_ns()).is_ok_and(|had_room| had_room);
        if !is_stored || !self.settle() {
            self.upstreams.close(&client);
            self.upstreams
                .warn_no_path(&std::io::Error::other("the log has no room for the ports of more clients"));
            return false;
        }
        self.paths.opened(client, opening, self.engine.clock.now());
        true
    }

    /// Closes paths that have expired.
    fn close_paths(&mut self) {
        let (now, server) = (self.engine.clock.now(), self.server);
        for _ in 0..CLOSED_MAX {
            let log = self.engine.device.log();
            let Some(gone) =
                self.paths.expired(now, |client| log.has_entries(&Flow { client: *client, server }))
            else {
                return;
            };
            self.forget(gone);
        }
    }

    /// Closes a path because no port is free: one that no server has confirmed, or, if the new client begins a session,
    /// one that has been silent for long. False if there is no such path.
    fn evict_for(&mut self, opening: Opening) -> bool {
        self.evict_unconfirmed() || (opening == Opening::SessionStart && self.evict_silent())
    }

    /// Closes the oldest path that no server has confirmed and whose client is silent. False if there is none.
    fn evict_unconfirmed(&mut self) -> bool {
        let (now, server) = (self.engine.clock.now(), self.server);
        let log = self.engine.device.log();
        let oldest =
            self.paths.evict_unconfirmed(now, |client| log.has_entries(&Flow { client: *client, server }));
        let is_there = oldest.map(|client| self.close_path(client)).is_some();
        self.engine.status.count_paths(|counts| counts.gave_way += u64::from(is_there));
        is_there
    }

    /// Closes the path that has been silent for longest, if it is silent for long enough. The scan visits all paths, so
    /// that it runs once a second at most.
    fn evict_silent(&mut self) -> bool {
        let (now, server) = (self.engine.clock.now(), self.server);
        if self.scanned_at.is_some_and(|last| now.since(last) < SCAN_PATHS_EVERY) {
            return false;
        }
        self.scanned_at = Some(now);
        let log = self.engine.device.log();
        let silent = self.paths.evict_idle(now, |client| log.has_entries(&Flow { client: *client, server }));
        silent.is_some_and(|gone| self.forget(gone))
    }

    /// Closes a path that has been silent for long. False if it stays: that its sessions are forgotten must be durable
    /// before, or the next one of their updates would be taken for one that counts.
    fn forget(&mut self, gone: Gone) -> bool {
        if gone.may_have_sessions && !self.note_forgotten() {
            self.paths.restored(gone.client, self.engine.clock.now());
            return false;
        }
        self.close_path(gone.client);
        true
    }

    fn note_forgotten(&mut self) -> bool {
        self.paths.set_forgotten();
        let server = self.server;
        let log = self.engine.device.log_mut();
        log.has_forgotten(server) || (log.set_forgotten(server, Clock::unix_ns()).is_ok() && self.settle())
    }

    fn close_path(&mut self, client: SocketAddr) {
        self.engine.device.remove_path(Flow { client, server: self.server });
        self.upstreams.close(&client);
        let open = self.paths.len() as u64;
        self.engine.status.count_paths(|counts| (counts.open, counts.closed) = (open, counts.closed + 1));
    }

    /// Blocks until all appended records are durable. False if the medium has failed.
    fn settle(&mut self) -> bool {
        while self.engine.device.log().is_committing() {
            std::thread::yield_now();
            self.engine.collect();
        }
        self.engine.device.commit().is_ok()
    }

    /// Sends the packets that the device has queued.
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

/// A whole datagram: the bytes in its chunk and those that did not fit into the chunk.
fn whole<'a>(
    frames: &'a HeapFrames,
    receiver: &'a Receiver,
    packet: Extent,
    (index, len): (usize, usize),
) -> Cow<'a, [u8]> {
    let bytes = frames.bytes(packet);
    match receiver.spilled(index, len) {
        [] => bytes.into(),
        spilled => [bytes, spilled].concat().into(),
    }
}

/// The socket that clients send to.
struct Front {
    socket: UdpSocket,
    port: u16,
    /// The socket is IPv6: the kernel maps the addresses of IPv4 clients to IPv6 addresses.
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

/// Converts an IPv4 address that a socket for both families has mapped to IPv6 back to IPv4.
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

    /// Waits for packets, handles a batch from each readable socket, commits and sends.
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
        self.pool.recycle_landed(&mut self.frames);
        Ok(())
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("server", &self.server).finish_non_exhaustive()
    }
}
