//! The network side of a server: its socket, and the state machine behind it.

use super::clock::Clock;
use super::key::unix_ns;
use super::published::Published;
use super::socket::{self, RECEIVE_MAX, RuntimeError, Waiter};
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::server::ServerStats;
use landfall_pmnet::{Server, ServerConfig, Work};
use landfall_spin::SpinWait;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait, so that the server notices a stop and publishes its report.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(100);

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address that the server listens on. On hosts with several addresses it must be one of them, because answers must
    /// come from the address that clients have sent to.
    pub listen: SocketAddr,
    /// Settings of the protocol.
    pub server: ServerConfig,
    /// Key that clients, devices and server share, if any. With a key, foreign sessions are refused.
    pub key: Option<Key>,
    /// Longest time to busy-poll before the server blocks; [`Duration::MAX`]: never block. The time is shortened while
    /// polling finds nothing.
    pub spin: Duration,
    /// Most pieces of work in a batch.
    pub batch_max: usize,
    /// Bytes of requests after which a batch is closed.
    pub batch_bytes: usize,
}

impl ServerOptions {
    /// The default settings, with an address.
    pub fn new(listen: SocketAddr) -> Self {
        let server = ServerConfig { ipv6: listen.is_ipv6(), ..ServerConfig::default() };
        Self { listen, server, key: None, spin: Duration::ZERO, batch_max: 512, batch_bytes: 4 << 20 }
    }
}

/// Report of a server, which publishes it several times a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerReport {
    /// Address that the server listens on, as bound; `None` until then.
    pub listens: Option<SocketAddr>,
    /// Counts of the current incarnation.
    pub server: ServerStats,
    /// Incarnations so far.
    pub incarnations: u64,
    /// Batches executed.
    pub batches: u64,
    /// Pieces of work in all batches.
    pub work: u64,
    /// Datagrams that the kernel refused to send.
    pub unsent: u64,
    /// Datagrams with a wrong seal.
    pub unauthentic: u64,
}

/// The network side of a server. An application serves it while it waits for something else.
pub struct Network {
    pub(super) socket: UdpSocket,
    /// Seals packets that are sent, and opens packets that arrive.
    pub(super) guard: Guard,
    /// Port of the server.
    pub(super) port: u16,
    pub(super) server: Server,
    pub(super) clock: Clock,
    pub(super) buffer: Vec<u8>,
    /// Waits for packets while there is nothing to execute.
    pub(super) idle: SpinWait,
    /// Waits for packets and for what the application waits for.
    pub(super) busy: SpinWait,
    pub(super) waiter: Waiter,
    pub(super) options: ServerOptions,
    pub(super) report: ServerReport,
    pub(super) published: Arc<Published<ServerReport>>,
    pub(super) published_at: landfall_pmnet::Instant,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Network {
    /// The address that the server listens on, as bound.
    pub fn address(&self) -> Option<SocketAddr> {
        self.report.listens
    }

    /// Serves the network until `other` is readable (true) or `most` has passed (false).
    ///
    /// # Errors
    /// [`RuntimeError::Kernel`].
    pub fn wait_for(&mut self, other: BorrowedFd<'_>, most: Duration) -> Result<bool, RuntimeError> {
        let until = self.clock.now() + most;
        loop {
            let now = self.clock.now();
            if now >= until {
                return Ok(false);
            }
            let due = self.due(until.since(now));
            let Self { busy, waiter, socket, .. } = self;
            let (sockets, either) = ([other, socket.as_fd()], |ready: &[bool; 2]| ready[0] || ready[1]);
            let [ready, ours] = busy.until(due, |most| waiter.wait(&sockets, most), either)?;
            if ready {
                return Ok(true);
            }
            if ours {
                self.receive();
            }
            self.expire();
            self.send();
        }
    }

    /// Longest response, bytes.
    pub(crate) fn response_max(&self) -> usize {
        self.server.response_max()
    }

    pub(super) fn batch(&mut self) -> Vec<Work> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.options.batch_max && bytes < self.options.batch_bytes {
            let Some(work) = self.server.poll_work() else { break };
            bytes += match &work {
                Work::Update { request, .. } | Work::Bypass { request, .. } => request.len(),
                Work::Row { .. } => 0,
            };
            batch.push(work);
        }
        batch
    }

    /// Time until the next timeout is due, at most `most`.
    pub(super) fn due(&self, most: Duration) -> Duration {
        let due = self.server.next_timeout().map_or(most, |due| due.since(self.clock.now()));
        due.min(most).min(WAIT_MAX)
    }

    pub(super) fn receive(&mut self) {
        let now = self.clock.now();
        for _ in 0..RECEIVE_MAX {
            match self.socket.recv_from(&mut self.buffer) {
                Ok((len, from)) => {
                    let (ends, unix_ns) = (Ends::to_server(from, self.port), unix_ns(&self.guard));
                    match self.guard.open(ends, unix_ns, &self.buffer[..len]) {
                        Ok(packet) => self.server.handle_datagram(from, packet, now),
                        Err(_) => self.report.unauthentic += 1,
                    }
                }
                Err(_) => break,
            }
        }
    }

    pub(super) fn expire(&mut self) {
        let now = self.clock.now();
        if self.server.next_timeout().is_some_and(|due| due <= now) {
            self.server.handle_timeout(now);
        }
    }

    pub(super) fn send(&mut self) {
        while let Some((to, mut bytes)) = self.server.poll_transmit() {
            self.guard.seal(Ends::to_client(to, self.port), unix_ns(&self.guard), &mut bytes);
            if let Err(error) = self.socket.send_to(&bytes, to) {
                self.report.unsent += 1;
                if !socket::is_loss(&error) {
                    tracing::warn!(%error, %to, "a datagram could not be sent");
                }
            }
        }
        if self.clock.now().since(self.published_at) >= WAIT_MAX {
            self.publish();
        }
    }

    pub(super) fn publish(&mut self) {
        self.published_at = self.clock.now();
        self.report.server = self.server.stats();
        self.published.set(self.report);
    }
}
