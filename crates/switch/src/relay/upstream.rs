//! The relay's sockets towards the server, one for each client.

use super::socket::socket;
use crate::engine::Engine;
use crate::error::SwitchError;
use landfall_pmnet::Flow;
use landfall_pmnet::auth::Ends;
use landfall_sockets::Poller;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Shortest time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The socket towards the server for one client.
struct Upstream {
    client: SocketAddr,
    socket: UdpSocket,
    /// The address that the socket is bound to.
    local: SocketAddr,
}

impl Upstream {
    /// Sends a packet to the server. False if that failed.
    fn send(&self, bytes: &[u8]) -> bool {
        match self.socket.send(bytes) {
            Ok(_) => true,
            // It may be about a packet before, which could not be delivered.
            Err(_) => self.socket.send(bytes).is_ok(),
        }
    }
}

/// The sockets of all clients.
pub(super) struct Upstreams {
    server: SocketAddr,
    ports: RangeInclusive<u16>,
    next_port: u16,
    all: Vec<Option<Upstream>>,
    by_client: BTreeMap<SocketAddr, usize>,
    warned: Option<Instant>,
}

impl Upstreams {
    pub(super) fn new(server: SocketAddr, ports: RangeInclusive<u16>) -> Self {
        let next_port = *ports.start();
        Self { server, ports, next_port, all: Vec::new(), by_client: BTreeMap::new(), warned: None }
    }

    pub(super) fn has(&self, client: &SocketAddr) -> bool {
        self.by_client.contains_key(client)
    }

    /// Descriptor, client and local address of the socket at `index`.
    pub(super) fn at(&self, index: usize) -> Option<(RawFd, SocketAddr, SocketAddr)> {
        let upstream = self.all.get(index)?.as_ref()?;
        Some((upstream.socket.as_raw_fd(), upstream.client, upstream.local))
    }

    /// Opens a socket for a client of the log, on the port that it had before. False if the client belongs to another
    /// server.
    pub(super) fn reopen(&mut self, flow: Flow, port: u16, poller: &mut Poller) -> Result<bool, SwitchError> {
        if flow.server != self.server {
            tracing::warn!(client = %flow.client, server = %flow.server, "the log knows a client of another server: its updates wait until the relay is started for that server");
            return Ok(false);
        }
        let socket = self.connect(port);
        let socket = socket.map_err(|source| SwitchError::PortTaken { client: flow.client, port, source })?;
        self.add(flow.client, socket, poller).map_err(SwitchError::system("watching a socket"))?;
        Ok(true)
    }

    /// Opens a socket for a new client, on the next free port.
    pub(super) fn open(&mut self, client: SocketAddr, poller: &mut Poller) -> io::Result<(Flow, u16)> {
        for _ in self.ports.clone() {
            let port = self.next_port;
            self.next_port = if port == *self.ports.end() { *self.ports.start() } else { port + 1 };
            match self.connect(port) {
                Ok(socket) => {
                    self.add(client, socket, poller)?;
                    return Ok((Flow { client, server: self.server }, port));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "every port for clients is in use"))
    }

    fn connect(&self, port: u16) -> io::Result<UdpSocket> {
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = socket(SocketAddr::new(any, port))?;
        socket.connect(self.server)?;
        Ok(socket)
    }

    fn add(&mut self, client: SocketAddr, socket: UdpSocket, poller: &mut Poller) -> io::Result<()> {
        let free = self.all.iter().position(Option::is_none);
        let index = free.unwrap_or(self.all.len());
        poller.watch_as(socket.as_raw_fd(), index as u64 + 1)?;
        let local = socket.local_addr()?;
        let upstream = Some(Upstream { client, socket, local });
        match free {
            Some(index) => self.all[index] = upstream,
            None => self.all.push(upstream),
        }
        self.by_client.insert(client, index);
        Ok(())
    }

    pub(super) fn close(&mut self, client: &SocketAddr) {
        if let Some(index) = self.by_client.remove(client) {
            self.all[index] = None;
        }
    }

    /// Sends a packet from a client's port. A packet that cannot be sent is counted as dropped.
    pub(super) fn send<'a>(
        &self,
        engine: &mut Engine,
        client: &SocketAddr,
        packet: impl Into<Cow<'a, [u8]>>,
    ) {
        let upstream = self.by_client.get(client).and_then(|index| self.all[*index].as_ref());
        let sent = upstream.is_some_and(|upstream| {
            let ends = Ends::to_server(upstream.local, self.server.port());
            upstream.send(&engine.seal(ends, packet))
        });
        if !sent {
            engine.status.dropped(1);
        }
    }

    /// Logs that a client gets no path, once a minute at most.
    pub(super) fn warn_no_path(&mut self, error: &io::Error) {
        if self.warned.is_none_or(|since| since.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::error!(%error, "clients are not served: give the relay more --upstream-ports, or a shorter --path-idle");
        }
    }
}
