//! Runs a server in one thread: it receives datagrams, passes batches of work to the application, and sends datagrams.

use super::application::{Application, Outcome};
use super::key::{guard, unix_ns, without_seal};
use super::socket::{self, DATAGRAM_BYTES_MAX, RECEIVE_MAX, RuntimeError, Waiter};
use super::{Clock, Published, random};
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::server::ServerStats;
use landfall_pmnet::{Server, ServerConfig, Ticket, Work};
use landfall_spin::SpinWait;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest wait, so that the server notices a stop and publishes its report.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Pauses between attempts to load double from the first to the last of these.
const LOAD_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

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
    socket: UdpSocket,
    /// Seals packets that are sent, and opens packets that arrive.
    guard: Guard,
    /// Port of the server.
    port: u16,
    server: Server,
    clock: Clock,
    buffer: Vec<u8>,
    /// Waits for packets while there is nothing to execute.
    idle: SpinWait,
    /// Waits for packets and for what the application waits for.
    busy: SpinWait,
    waiter: Waiter,
    options: ServerOptions,
    report: ServerReport,
    published: Arc<Published<ServerReport>>,
    published_at: landfall_pmnet::Instant,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("report", &self.report).finish_non_exhaustive()
    }
}

/// Serves until `stop` is true.
///
/// # Errors
/// [`RuntimeError`].
pub fn serve<A: Application>(
    mut options: ServerOptions,
    application: &mut A,
    published: Arc<Published<ServerReport>>,
    stop: &AtomicBool,
) -> Result<(), RuntimeError> {
    let socket = socket::open(options.listen)?;
    let port = socket.local_addr().map_or(options.listen.port(), |address| address.port());
    let guard = guard(options.key.as_ref())?;
    options.server.mtu = without_seal(options.server.mtu, &guard);
    options.server.foreign &= !guard.is_keyed();
    let clock = Clock::default();
    let server = Server::new(options.server.clone(), 0, [], 0, clock.now());
    let buffer = vec![0; DATAGRAM_BYTES_MAX];
    let report = ServerReport { listens: socket.local_addr().ok(), ..ServerReport::default() };
    let published_at = clock.now();
    let (idle, busy, waiter) = (SpinWait::new(options.spin), SpinWait::new(options.spin), Waiter::new()?);
    let mut network = Network {
        socket,
        guard,
        port,
        server,
        clock,
        buffer,
        idle,
        busy,
        waiter,
        options,
        report,
        published,
        published_at,
    };
    while !stop.load(Ordering::Relaxed) {
        if !network.begin(application, stop)? {
            break;
        }
        if let Err(error) = network.incarnation(application, stop)? {
            end_if_fatal(application, &error)?;
            let next = if stop.load(Ordering::Relaxed) {
                "stopping"
            } else {
                "starting over with its committed state"
            };
            tracing::warn!(%error, next, "the application behind PMNet has failed");
        }
    }
    Ok(())
}

fn end_if_fatal<A: Application>(application: &A, error: &A::Error) -> Result<(), RuntimeError> {
    if application.is_fatal(error) {
        return Err(RuntimeError::Application(error.to_string().into()));
    }
    Ok(())
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

    /// Begins a new incarnation with the committed state. False if `stop` was set before.
    fn begin<A: Application>(
        &mut self,
        application: &mut A,
        stop: &AtomicBool,
    ) -> Result<bool, RuntimeError> {
        let mut pause = LOAD_PAUSES[0];
        loop {
            match application.load() {
                Ok(saved) => {
                    let (config, now) = (self.options.server.clone(), self.clock.now());
                    self.server = Server::new(config, random()?, saved.rows, saved.floor, now);
                    saved.behind.iter().for_each(|(key, last)| self.server.fall_behind(*key, *last));
                    self.report.incarnations += 1;
                    self.publish();
                    return Ok(true);
                }
                Err(error) => {
                    end_if_fatal(application, &error)?;
                    tracing::warn!(%error, "the application behind PMNet does not answer; trying again");
                }
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOAD_PAUSES[1]);
        }
    }

    /// Runs an incarnation until the application fails or `stop` is set.
    fn incarnation<A: Application>(
        &mut self,
        application: &mut A,
        stop: &AtomicBool,
    ) -> Result<Result<(), A::Error>, RuntimeError> {
        while !stop.load(Ordering::Relaxed) {
            self.receive();
            self.expire();
            self.send();
            while let Some(trouble) = self.server.poll_trouble() {
                application.trouble(&trouble);
            }
            let batch = self.batch();
            if batch.is_empty() {
                let due = self.due(WAIT_MAX);
                let Self { idle, waiter, socket, .. } = self;
                let ours = socket.as_fd();
                idle.until(due, |most| waiter.wait(&[ours], most), |ready| ready[0])?;
                continue;
            }
            match application.execute(&batch, self) {
                Ok(outcomes) => self.settle(application, &batch, outcomes),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Longest response, bytes.
    pub(crate) fn response_max(&self) -> usize {
        self.server.response_max()
    }

    fn batch(&mut self) -> Vec<Work> {
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

    fn settle<A: Application>(&mut self, application: &A, batch: &[Work], outcomes: Vec<Outcome>) {
        assert_eq!(batch.len(), outcomes.len(), "an outcome for each piece of work");
        self.report.batches += 1;
        self.report.work += batch.len() as u64;
        let now = self.clock.now();
        for (work, outcome) in batch.iter().zip(outcomes) {
            let ticket: Ticket = work.ticket();
            match outcome {
                Outcome::Committed => self.server.committed(ticket, now),
                Outcome::Response { bytes, changed } => self.respond(application, ticket, bytes, changed),
                Outcome::Failed => self.server.failed(ticket),
            }
        }
        self.send();
    }

    /// Sends a response. One that is too long is replaced by the application's error: a client never gets a part of a
    /// response.
    fn respond<A: Application>(&mut self, application: &A, ticket: Ticket, bytes: Vec<u8>, changed: bool) {
        let now = self.clock.now();
        if let Err(too_long) = self.server.respond(ticket, bytes, changed, now) {
            tracing::warn!(%too_long, "a response is replaced by an error");
            let mut words = application.too_long(&too_long);
            words.truncate(too_long.max);
            // The error was cut to the longest response, so that it is not refused.
            let _ = self.server.respond(ticket, words, changed, now);
        }
    }

    /// Time until the next timeout is due, at most `most`.
    fn due(&self, most: Duration) -> Duration {
        let due = self.server.next_timeout().map_or(most, |due| due.since(self.clock.now()));
        due.min(most).min(WAIT_MAX)
    }

    fn receive(&mut self) {
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

    fn expire(&mut self) {
        let now = self.clock.now();
        if self.server.next_timeout().is_some_and(|due| due <= now) {
            self.server.handle_timeout(now);
        }
    }

    fn send(&mut self) {
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

    fn publish(&mut self) {
        self.published_at = self.clock.now();
        self.report.server = self.server.stats();
        self.published.set(self.report);
    }
}
