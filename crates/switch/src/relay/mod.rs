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
use landfall_pmnet::device::{Action, Arrival, DeviceConfig, Verdict};
use landfall_pmnet::log::Limits;
use landfall_sockets::{Frames, Poller, Waker};
use landfall_spin::Spin;
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
    /// How long to look for packets before waiting; `Duration::MAX`: never wait.
    pub spin: Duration,
    /// The region.
    pub region: RegionConfig,
    /// The log's bounds.
    pub limits: Limits,
    /// The device.
    pub device: DeviceConfig,
    /// Where `/metrics` is served.
    pub metrics: Option<SocketAddr>,
}

/// A relay that is about to run.
pub struct Relay {
    engine: Engine,
    front: UdpSocket,
    upstreams: Upstreams,
    poller: Poller,
    waker: Waker,
    pool: Pool,
    frames: HeapFrames,
    receiver: Receiver,
    chunks: Vec<u64>,
    spin: Spin,
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
        let engine = Engine::open(&config.region, config.limits, config.device, &waker)?;
        let mut upstreams = Upstreams::new(config.server, config.upstream_ports.clone());
        for (flow, port) in engine.device.log().paths() {
            upstreams.reopen(flow, port, &mut poller)?;
        }
        let heap = Arc::clone(engine.device.log().heap());
        let image = heap.media().image().ok_or_else(|| SwitchError::System {
            what: "landing packets in the region",
            source: std::io::Error::other("its memory cannot be reached by the kernel"),
        })?;
        let metrics = engine.serve_metrics(config.metrics)?;
        Ok(Self {
            engine,
            front,
            upstreams,
            poller,
            waker,
            pool: Pool::new(CHUNK_BYTES, BATCH as u32),
            frames: HeapFrames(heap),
            receiver: Receiver::new(BATCH, CHUNK_BYTES as usize, image),
            chunks: Vec::new(),
            spin: Spin::new(config.spin),
            server: config.server,
            metrics,
        })
    }

    /// Where clients send to.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.front.local_addr()
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
        let begun = std::time::Instant::now();
        let span = self.spin.span();
        let failed = SwitchError::system("waiting for packets");
        loop {
            self.poller.wait(Some(Duration::ZERO)).map_err(SwitchError::system("waiting for packets"))?;
            let ready: Vec<u64> = self.poller.ready().collect();
            if !ready.is_empty() {
                self.spin.found();
                return Ok(ready);
            }
            let due = self.engine.until_due(WAIT_MAX);
            if due.is_zero() {
                return Ok(Vec::new());
            }
            if self.spin.is_endless() || begun.elapsed() < span {
                std::hint::spin_loop();
                if begun.elapsed() > WAIT_MAX {
                    return Ok(Vec::new());
                }
                continue;
            }
            self.spin.gave_up();
            let slept = std::time::Instant::now();
            self.poller.wait(Some(due.min(WAIT_MAX))).map_err(failed)?;
            self.spin.woke(slept.elapsed());
            return Ok(self.poller.ready().collect());
        }
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
        for (index, chunk, from, len) in self.receive(self.front.as_raw_fd())? {
            // As the log has it, which knows one form of an address.
            let from = canonical(from);
            let packet = self.hold(chunk, len);
            if self.open_path(from) {
                let verdict = self.handle(from, self.server, packet, len);
                if verdict == Verdict::Forward {
                    self.forward_to_server(from, packet, index, len);
                }
            } else {
                self.engine.status.dropped(1);
            }
            self.let_go(chunk, packet);
        }
        Ok(())
    }

    fn receive_from_server(&mut self, upstream: usize) -> Result<(), SwitchError> {
        let Some((socket, client)) = self.upstreams.at(upstream) else { return Ok(()) };
        for (index, chunk, from, len) in self.receive(socket)? {
            let packet = self.hold(chunk, len);
            if self.handle(from, client, packet, len) == Verdict::Forward {
                let bytes = self.bytes(packet, index, len);
                if !self.send_to_client(&bytes, client) {
                    self.engine.status.dropped(1);
                }
            }
            self.let_go(chunk, packet);
        }
        Ok(())
    }

    fn hold(&mut self, chunk: u64, len: usize) -> Extent {
        let packet = Extent::new(chunk, len.min(CHUNK_BYTES as usize) as u32);
        self.frames.hold(packet);
        packet
    }

    fn let_go(&mut self, chunk: u64, packet: Extent) {
        self.frames.release(packet);
        self.pool.landed(chunk, &mut self.frames);
    }

    /// A packet that is longer than a frame is no update that could be logged.
    fn handle(&mut self, from: SocketAddr, to: SocketAddr, packet: Extent, len: usize) -> Verdict {
        if len > CHUNK_BYTES as usize {
            self.engine.device.count_too_long();
            return Verdict::Forward;
        }
        let frames = self.frames.clone();
        let payload = frames.bytes(packet);
        let arrival = Arrival { from, to, payload, packet, header_at: 0, arrival_ns: Clock::unix_ns() };
        self.engine.device.handle(&arrival, self.engine.clock.now())
    }

    /// A client's way to the server; false if there is no port left for it.
    fn open_path(&mut self, client: SocketAddr) -> bool {
        if self.upstreams.has(&client) {
            return true;
        }
        let opened = self.upstreams.open(client, &mut self.poller);
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
            return false;
        }
        true
    }

    /// Waits until everything appended is durable.
    fn settle(&mut self) -> bool {
        while self.engine.device.log().is_committing() {
            std::thread::yield_now();
            self.engine.collect();
        }
        self.engine.device.commit().is_ok()
    }

    fn forward_to_server(&mut self, client: SocketAddr, packet: Extent, index: usize, len: usize) {
        let bytes = self.bytes(packet, index, len);
        if !self.upstreams.send(&client, &bytes) {
            self.engine.status.dropped(1);
        }
    }

    fn bytes(&self, packet: Extent, index: usize, len: usize) -> std::borrow::Cow<'_, [u8]> {
        let bytes = self.frames.bytes(packet);
        match self.receiver.spilled(index, len) {
            [] => bytes.into(),
            rest => [bytes, rest].concat().into(),
        }
    }

    /// False if it could not be sent.
    fn send_to_client(&self, bytes: &[u8], client: SocketAddr) -> bool {
        let to = match client.ip() {
            IpAddr::V4(ip) if self.server.is_ipv6() => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), client.port())
            }
            _ => client,
        };
        self.front.send_to(bytes, to).is_ok()
    }

    /// Sends what the device wants sent.
    fn act(&mut self) {
        while let Some(action) = self.engine.device.poll_action() {
            match action {
                Action::Datagram { from, to, payload } if to == self.server => {
                    self.upstreams.send(&from, &payload);
                }
                Action::Datagram { to, payload, .. } => {
                    self.send_to_client(&payload, to);
                }
                Action::Logged { identity, stored } => {
                    if let Ok(bytes) = self.engine.device.log().bytes_of(&stored) {
                        self.upstreams.send(&identity.flow.client, &bytes);
                    }
                    self.engine.device.sent(&stored);
                }
            }
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
