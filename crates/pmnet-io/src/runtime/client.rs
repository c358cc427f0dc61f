//! Many sessions of one client over one socket, for programs with an event loop of their own.

use super::clock::Clock;
use super::entropy::random;
use super::key::{guard, unix_ns, without_seal};
use super::socket::{self, DATAGRAM_BYTES_MAX, RECEIVE_MAX, RuntimeError};
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::client::{ClientError, ClientStats, Devices, Event, RequestId};
use landfall_pmnet::wire::{Header, Refusal};
use landfall_pmnet::{Client, ClientConfig, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Most sessions of a socket. With more, free numbers would be rare.
const SESSIONS_MAX: usize = 32768;
/// How often a session takes another number after the server has refused it.
const RESTARTS_MAX: u32 = 16;

/// Time without a packet after which a heartbeat is sent, so that a relay keeps its port for this client.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Identifies a session of a [`Sessions`]. No value is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

struct Open {
    client: Client,
    number: u16,
    due: Option<Instant>,
    restarts: u32,
}

/// Sessions of one client with one server. They share a socket, and therefore an address.
pub struct Sessions {
    socket: UdpSocket,
    /// Seals packets that are sent, and opens packets that arrive.
    guard: Guard,
    /// Local address of the socket, and the server's port.
    ends: (SocketAddr, u16),
    config: ClientConfig,
    /// Devices that must acknowledge, if they were changed since the start.
    chain: Option<Devices>,
    clock: Clock,
    open: BTreeMap<SessionId, Open>,
    numbers: BTreeMap<u16, SessionId>,
    timers: BTreeSet<(Instant, SessionId)>,
    /// Sessions that may have packets to send or events.
    touched: BTreeSet<SessionId>,
    next: u64,
    /// Number of the next session. Numbers are reused as late as possible, because the server keeps the rows of ended
    /// sessions for a while.
    next_number: u16,
    buffer: Vec<u8>,
    sent_at: Instant,
    unsent: u64,
    unauthentic: u64,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Opens a socket for sessions with `server`. Without `bind`, the kernel chooses address and port. With a `key`,
    /// packets that are not sealed with it are ignored.
    ///
    /// # Errors
    /// [`RuntimeError::Bind`].
    pub fn new(
        server: SocketAddr,
        bind: Option<SocketAddr>,
        config: ClientConfig,
        key: Option<&Key>,
    ) -> Result<Self, RuntimeError> {
        let any: SocketAddr = if server.is_ipv6() { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
        let socket = socket::open(bind.unwrap_or(any))?;
        socket.connect(server).map_err(|source| RuntimeError::Bind { address: server, source })?;
        let local = socket.local_addr().map_err(|source| RuntimeError::Bind { address: server, source })?;
        let guard = guard(key)?;
        let mtu = without_seal(config.mtu, &guard);
        Ok(Self {
            socket,
            guard,
            ends: (local, server.port()),
            config: ClientConfig { ipv6: server.is_ipv6(), mtu, ..config },
            chain: None,
            clock: Clock::default(),
            open: BTreeMap::new(),
            numbers: BTreeMap::new(),
            timers: BTreeSet::new(),
            touched: BTreeSet::new(),
            next: 0,
            next_number: (random()? >> 48) as u16,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            sent_at: Instant::default(),
            unsent: 0,
            unauthentic: 0,
        })
    }

    /// Starts a session. Requests may be queued at once.
    ///
    /// # Errors
    /// [`RuntimeError::Sessions`] if there are too many.
    pub fn start(&mut self) -> Result<SessionId, RuntimeError> {
        let id = SessionId(self.next);
        let (number, nonce) = self.draw()?;
        self.next += 1;
        self.numbers.insert(number, id);
        let now = self.clock.now();
        let mut client = Client::new(self.config.clone(), number, nonce, now);
        if let Some(devices) = self.chain {
            client.set_chain(devices, now);
        }
        self.open.insert(id, Open { client, number, due: None, restarts: 0 });
        self.touched.insert(id);
        Ok(id)
    }

    /// A number that no session of this socket has, and a nonce.
    fn draw(&mut self) -> Result<(u16, u64), RuntimeError> {
        if self.open.len() >= SESSIONS_MAX {
            return Err(RuntimeError::Sessions { max: SESSIONS_MAX });
        }
        while self.numbers.contains_key(&self.next_number) {
            self.next_number = self.next_number.wrapping_add(1);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        Ok((number, random()?))
    }

    /// Queues an update.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Ended`] for a session that is not there.
    pub fn update(&mut self, id: SessionId, request: &[u8]) -> Result<RequestId, ClientError> {
        let now = self.clock.now();
        self.touch(id)?.update(request, now)
    }

    /// Queues a bypass.
    ///
    /// # Errors
    /// The errors of [`Self::update`].
    pub fn bypass(&mut self, id: SessionId, request: &[u8]) -> Result<RequestId, ClientError> {
        let now = self.clock.now();
        self.touch(id)?.bypass(request, now)
    }

    fn touch(&mut self, id: SessionId) -> Result<&mut Client, ClientError> {
        let open = self.open.get_mut(&id).ok_or(ClientError::Ended)?;
        self.touched.insert(id);
        Ok(&mut open.client)
    }

    /// Holds a session, or ends the hold. Waiting requests of a session on hold are not sent.
    pub fn hold(&mut self, id: SessionId, held: bool) {
        if let Ok(client) = self.touch(id) {
            client.hold(held);
        }
    }

    /// Ends a session once all its queued requests are complete. [`Event::Ended`] follows.
    pub fn end(&mut self, id: SessionId) {
        let now = self.clock.now();
        if let Ok(client) = self.touch(id) {
            client.end(now);
        }
    }

    /// True if a session should be replaced by another, because its numbers run out.
    pub fn needs_successor(&self, id: SessionId) -> bool {
        self.open.get(&id).is_some_and(|open| open.client.needs_successor())
    }

    /// Sets the devices that must acknowledge, after the chain has changed.
    pub fn set_chain(&mut self, devices: Devices) {
        self.chain = Some(devices);
        let now = self.clock.now();
        for (id, open) in &mut self.open {
            open.client.set_chain(devices, now);
            self.touched.insert(*id);
        }
    }

    /// Handles packets that have arrived and timeouts that are due, and sends packets. Appends events to `into`, in
    /// order within each session. The last event of a session is `Ended`, `Refused` or `Failed`; the session is removed
    /// then.
    ///
    /// # Errors
    /// [`RuntimeError::Kernel`].
    pub fn turn(&mut self, into: &mut Vec<(SessionId, Event)>) -> Result<(), RuntimeError> {
        self.receive();
        self.send(into)
    }

    /// Handles timeouts that are due and sends packets, like [`Self::turn`], and receives nothing.
    ///
    /// # Errors
    /// The errors of [`Self::turn`].
    pub fn send(&mut self, into: &mut Vec<(SessionId, Event)>) -> Result<(), RuntimeError> {
        self.expire();
        self.keep_alive();
        while let Some(id) = self.touched.pop_first() {
            self.serve(id, into)?;
        }
        Ok(())
    }

    fn receive(&mut self) {
        let now = self.clock.now();
        for _ in 0..RECEIVE_MAX {
            let len = match self.socket.recv(&mut self.buffer) {
                Ok(len) => len,
                // The error is about a datagram that was sent earlier. More datagrams may have arrived.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(_) => break,
            };
            let (bytes, unix_ns) = (&self.buffer[..len], unix_ns(&self.guard));
            let (client, port) = self.ends;
            let Ok(bytes) = self.guard.open(Ends::to_client(client, port), unix_ns, bytes) else {
                self.unauthentic += 1;
                continue;
            };
            let id = Header::parse(bytes).ok().and_then(|header| self.numbers.get(&header.session));
            if let Some((id, open)) = id.and_then(|id| Some((*id, self.open.get_mut(id)?))) {
                open.client.handle_datagram(bytes, now);
                self.touched.insert(id);
            }
        }
    }

    fn expire(&mut self) {
        let now = self.clock.now();
        while let Some((_, id)) = self.timers.first().filter(|(due, _)| *due <= now).copied() {
            self.timers.pop_first();
            if let Some(open) = self.open.get_mut(&id) {
                open.due = None;
                open.client.handle_timeout(now);
                self.touched.insert(id);
            }
        }
    }

    fn keep_alive(&mut self) {
        let now = self.clock.now();
        if now.since(self.sent_at) >= KEEP_ALIVE
            && let Some((id, open)) = self.open.first_key_value()
        {
            let id = *id;
            let nonce = u64::from(open.number);
            self.sent_at = now;
            if let Ok(client) = self.touch(id) {
                client.heartbeat(nonce);
            }
        }
    }

    fn serve(&mut self, id: SessionId, into: &mut Vec<(SessionId, Event)>) -> Result<(), RuntimeError> {
        let Some(open) = self.open.get_mut(&id) else { return Ok(()) };
        while let Some(event) = open.client.poll_event() {
            match event {
                Event::Refused(Refusal::InUse) if open.restarts < RESTARTS_MAX => return self.restart(id),
                Event::Ended | Event::Refused(_) | Event::Failed(_) => {
                    into.push((id, event));
                    self.flush(id);
                    self.remove(id);
                    return Ok(());
                }
                event => into.push((id, event)),
            }
        }
        self.flush(id);
        Ok(())
    }

    fn flush(&mut self, id: SessionId) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let (client, port) = self.ends;
        let now = self.clock.now();
        while let Some(mut bytes) = open.client.poll_transmit() {
            self.guard.seal(Ends::to_server(client, port), unix_ns(&self.guard), &mut bytes);
            self.sent_at = now;
            if let Err(error) = self.socket.send(&bytes) {
                self.unsent += 1;
                if !socket::is_loss(&error) {
                    tracing::warn!(%error, "a datagram could not be sent");
                }
            }
        }
        let due = open.client.next_timeout();
        if due != open.due {
            open.due.map(|old| self.timers.remove(&(old, id)));
            due.map(|new| self.timers.insert((new, id)));
            open.due = due;
        }
    }

    /// Restarts a session with another number after a refusal.
    fn restart(&mut self, id: SessionId) -> Result<(), RuntimeError> {
        let (number, nonce) = self.draw()?;
        let now = self.clock.now();
        if let Some(open) = self.open.get_mut(&id) {
            self.numbers.remove(&open.number);
            self.numbers.insert(number, id);
            open.number = number;
            open.restarts += 1;
            open.client.restart(number, nonce, now);
            self.touched.insert(id);
        }
        Ok(())
    }

    fn remove(&mut self, id: SessionId) {
        if let Some(open) = self.open.remove(&id) {
            self.numbers.remove(&open.number);
            open.due.map(|due| self.timers.remove(&(due, id)));
        }
    }

    /// Removes a session without ending it at the server.
    pub fn abandon(&mut self, id: SessionId) {
        self.remove(id);
    }

    /// When [`Self::turn`] must be called even if no packet arrives.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.touched.is_empty() {
            self.timers.first().map(|(due, _)| *due)
        } else {
            Some(self.clock.now())
        }
    }

    /// The clock of [`Self::next_timeout`].
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// True if there is no session.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Counts of a session.
    pub fn stats(&self, id: SessionId) -> Option<ClientStats> {
        self.open.get(&id).map(|open| open.client.stats())
    }

    /// Number of datagrams that the kernel refused to send.
    pub fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Number of datagrams with a wrong seal.
    pub fn unauthentic(&self) -> u64 {
        self.unauthentic
    }

    /// The local address, under which the server knows the client.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }
}

impl AsFd for Sessions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
