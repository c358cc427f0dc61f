//! The client's side-car: it speaks RESP to Redis clients and PMNet to the network.
//!
//! One thread serves all connections. Each connection has a session of its own while it needs one. When a connection is
//! closed, its session is kept for a later connection, so that a client that connects for each command need not start a
//! session each time.

mod blocking;
mod budget;
mod config;
mod connection;
mod local;
mod poller;
mod reply;
mod report;

pub use config::SidecarConfig;
pub use report::SidecarReport;

use crate::runtime::{Published, RuntimeError, SessionId, Sessions};
use budget::Budget;
use connection::Connection;
use landfall_pmnet::client::{CompletedBy, Devices, Event};
use landfall_spin::SpinWait;
use poller::{Poller, Ready};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait, so that the side-car notices a stop and publishes its report.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Longest wait for sessions to end when the side-car stops.
const END_MAX: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// Most bytes that one call reads from a connection.
const READ_BYTES: usize = 64 << 10;
/// Requested number of connections that may wait to be accepted. The kernel may allow fewer.
const BACKLOG: i32 = 4096;
/// Most connections that one turn accepts.
const ACCEPT_MAX: usize = 64;

/// Errors that end the client's side-car.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarError {
    /// Environment: a system call failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Misuse: the address can be reached from other hosts, and there is no password.
    #[error("{0} can be reached from other hosts: set a password, or allow that expressly")]
    Open(SocketAddr),
}

/// Runs the client's side-car until `stop` is true.
///
/// # Errors
/// [`SidecarError`].
pub fn run(
    config: SidecarConfig,
    report: Arc<Published<SidecarReport>>,
    stop: Arc<AtomicBool>,
) -> Result<(), SidecarError> {
    if !config.open && config.password.is_none() && !config.listen.ip().is_loopback() {
        return Err(SidecarError::Open(config.listen));
    }
    let mut sidecar = Sidecar::new(config, report)?;
    while !stop.load(Ordering::Relaxed) {
        sidecar.turn()?;
    }
    Ok(sidecar.end()?)
}

struct Sidecar {
    config: SidecarConfig,
    listener: TcpListener,
    sessions: Sessions,
    poller: Poller,
    rest: SpinWait,
    connections: BTreeMap<u64, Connection>,
    budget: Budget,
    owners: BTreeMap<SessionId, u64>,
    /// Sessions whose connection is closed, with the number of their requests under way.
    orphans: BTreeMap<SessionId, usize>,
    /// Idle sessions for later connections.
    spare: Vec<SessionId>,
    /// When to poll blocking commands again, by connection.
    alarms: BTreeSet<(Instant, u64)>,
    /// Connections that have work to do.
    touched: BTreeSet<u64>,
    events: Vec<(SessionId, Event)>,
    scratch: Vec<u8>,
    next: u64,
    report: SidecarReport,
    published: Arc<Published<SidecarReport>>,
    published_at: Instant,
    /// The devices that the sessions use now, if they were changed.
    devices: Option<Devices>,
}

impl Sidecar {
    fn new(
        mut config: SidecarConfig,
        published: Arc<Published<SidecarReport>>,
    ) -> Result<Self, RuntimeError> {
        let address = config.listen;
        let listener = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            // The standard library's backlog is 128. Connections of a burst beyond it would wait a second until TCP
            // retransmits.
            socket2::SockRef::from(&listener).listen(BACKLOG)?;
            Ok(listener)
        });
        let listener = listener.map_err(|source| RuntimeError::Bind { address, source })?;
        config.client.requests_max = config.client.requests_max.max(config.pipeline_max);
        let sessions = Sessions::new(config.server, config.bind, config.client.clone(), config.key.as_ref())?;
        let rest = SpinWait::new(config.spin);
        let mut poller = Poller::new()?;
        poller.add(&listener, Ready::Listener)?;
        poller.add(sessions.as_fd(), Ready::Network)?;
        let report = SidecarReport { listens: listener.local_addr().ok(), ..SidecarReport::default() };
        published.set(report);
        Ok(Self {
            budget: Budget::new(config.replies_bytes_max, config.connections_max),
            config,
            listener,
            sessions,
            poller,
            rest,
            connections: BTreeMap::new(),
            owners: BTreeMap::new(),
            orphans: BTreeMap::new(),
            spare: Vec::new(),
            alarms: BTreeSet::new(),
            touched: BTreeSet::new(),
            events: Vec::new(),
            scratch: vec![0; READ_BYTES],
            next: 1,
            report,
            published,
            published_at: Instant::now(),
            devices: None,
        })
    }

    fn turn(&mut self) -> Result<(), RuntimeError> {
        let due = self.due();
        let ready = self.rest.until(due, |most| self.poller.wait(most), |ready| !ready.is_empty())?;
        let mut network = false;
        for event in ready {
            match event {
                Ready::Listener => self.accept()?,
                Ready::Network => network = true,
                Ready::Connection(id) => self.read(id),
            }
        }
        self.poll_blocked();
        self.update_chain();
        self.serve(network)
    }

    /// Passes a changed list of devices to the sessions.
    fn update_chain(&mut self) {
        let Some(devices) = self.config.chain.as_ref().and_then(|chain| chain.get()) else { return };
        if self.devices != Some(devices) {
            self.devices = Some(devices);
            self.sessions.set_chain(devices);
        }
    }

    /// Handles requests and events until nothing remains that can be done without waiting.
    fn serve(&mut self, mut network: bool) -> Result<(), RuntimeError> {
        loop {
            self.advance()?;
            if network {
                self.sessions.turn(&mut self.events)?;
            } else {
                self.sessions.send(&mut self.events)?;
            }
            network = false;
            if self.events.is_empty() {
                break;
            }
            let events = std::mem::take(&mut self.events);
            for (session, event) in events {
                self.handle_event(session, event);
            }
        }
        self.publish();
        Ok(())
    }

    /// Time until something is due though nothing arrives.
    fn due(&self) -> Duration {
        let now = self.sessions.clock().now();
        let due = self.sessions.next_timeout().map_or(WAIT_MAX, |due| due.since(now));
        let alarm = self.alarms.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        due.min(alarm.unwrap_or(WAIT_MAX)).min(WAIT_MAX)
    }

    fn accept(&mut self) -> Result<(), RuntimeError> {
        for _ in 0..ACCEPT_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    // Without descriptors it stays in the queue.
                    std::thread::sleep(REFUSED_PAUSE);
                    break;
                }
            };
            if self.connections.len() >= self.config.connections_max {
                self.report.turned_away += 1;
                let text = b"-ERR max number of clients reached; raise the side-car's connection limit\r\n";
                let _ = io::Write::write(&mut &stream, text);
                continue;
            }
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                continue;
            }
            let id = self.next;
            self.next += 1;
            self.poller.add(&stream, Ready::Connection(id))?;
            self.connections.insert(id, Connection::new(stream, id, &self.config));
            self.report.accepted += 1;
            self.touched.insert(id);
        }
        Ok(())
    }

    fn read(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.wants_input(&self.config) && connection.read(&mut self.scratch).is_err() {
            self.close(id);
            return;
        }
        self.touched.insert(id);
    }

    /// Polls the blocking commands that are due.
    fn poll_blocked(&mut self) {
        let now = Instant::now();
        while let Some((at, id)) = self.alarms.first().filter(|(at, _)| *at <= now).copied() {
            self.alarms.pop_first();
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if !connection.poll_blocked(&mut self.sessions) {
                self.alarms.insert((at + WAIT_MAX, id));
            }
        }
    }

    fn advance(&mut self) -> Result<(), RuntimeError> {
        while let Some(id) = self.touched.pop_first() {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if connection.wants_session() {
                connection.session = self.spare.pop();
                connection.session.map(|session| self.owners.insert(session, id));
            }
            let before = connection.session;
            connection.allowed = self.budget.allowed(connection.noted);
            connection.advance(&mut self.sessions, &self.config, &mut self.report);
            let after = connection.session;
            if before != after {
                before.map(|session| self.owners.remove(&session));
                after.map(|session| self.owners.insert(session, id));
            }
            let written = connection.write();
            let bytes = connection.held_bytes();
            self.budget.note(std::mem::replace(&mut connection.noted, bytes), bytes);
            connection.allowed = self.budget.allowed(bytes);
            let held = connection.has_enough();
            if let Some(session) = connection.session {
                self.sessions.hold(session, held);
            }
            if written.is_err() || connection.is_finished() {
                self.close(id);
            } else {
                let (input, output) = (connection.wants_input(&self.config), connection.wants_output());
                self.poller.want(&connection.stream, id, input, output)?;
                if connection.can_resume() {
                    self.touched.insert(id);
                }
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, session: SessionId, event: Event) {
        match event {
            Event::Complete { by: CompletedBy::Devices, .. } => self.report.complete_by_devices += 1,
            Event::Complete { .. } => self.report.complete_by_server += 1,
            Event::Response { from_cache: true, .. } => self.report.from_cache += 1,
            _ => {}
        }
        let over = matches!(event, Event::Ended | Event::Refused(_) | Event::Failed(_));
        if over && !matches!(event, Event::Ended) {
            self.report.sessions_lost += 1;
            tracing::warn!(?event, "a session with the server is lost");
        }
        if let Some(id) = self.owners.get(&session).copied() {
            self.pass_to_owner(id, event);
        } else if over {
            self.orphans.remove(&session);
            self.spare.retain(|spare| *spare != session);
        } else if matches!(
            event,
            Event::Complete { .. } | Event::Response { .. } | Event::ResponseTooLong { .. }
        ) {
            self.finish_orphan_request(session);
        }
        if over {
            self.owners.remove(&session);
        }
    }

    fn pass_to_owner(&mut self, id: u64, event: Event) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match event {
            Event::Complete { id, .. } => connection.complete(id),
            Event::Response { id: request, bytes, .. } => {
                if let Some(again) = connection.answered(request, bytes) {
                    self.alarms.insert((again, id));
                }
            }
            Event::ResponseTooLong { id, len, max } => connection.too_long(id, len, max),
            Event::Refused(why) => {
                connection.session_lost(&format!("the server refuses the session ({why:?})"))
            }
            Event::Failed(why) => connection.session_lost(&format!("the session has failed ({why:?})")),
            Event::Ended => connection.session_lost("the session has ended"),
            _ => return,
        }
        self.touched.insert(id);
    }

    /// Notes that a request of a session without a connection is complete. After the last one, the session is kept or
    /// ended.
    fn finish_orphan_request(&mut self, session: SessionId) {
        let Some(left) = self.orphans.get_mut(&session) else { return };
        *left -= 1;
        if *left == 0 {
            self.orphans.remove(&session);
            self.keep_or_end(session);
        }
    }

    fn keep_or_end(&mut self, session: SessionId) {
        if self.spare.len() < self.config.sessions_kept && !self.sessions.needs_successor(session) {
            self.spare.push(session);
        } else {
            self.sessions.end(session);
        }
    }

    fn close(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.poller.remove(&connection.stream, id);
        self.budget.note(connection.noted, 0);
        let Some(session) = connection.session else { return };
        self.owners.remove(&session);
        self.sessions.hold(session, false);
        match connection.under_way() {
            0 => self.keep_or_end(session),
            left => drop(self.orphans.insert(session, left)),
        }
    }

    fn publish(&mut self) {
        if self.published_at.elapsed() < WAIT_MAX {
            return;
        }
        self.published_at = Instant::now();
        self.report.connections = self.connections.len() as u64;
        self.report.unread_bytes = self.budget.held() as u64;
        self.report.sessions = self.sessions.len() as u64;
        self.report.unsent = self.sessions.unsent();
        self.report.unauthentic = self.sessions.unauthentic();
        self.published.set(self.report);
    }

    /// Ends all sessions, so that the server marks their rows as ended.
    fn end(&mut self) -> Result<(), RuntimeError> {
        let sessions = self.owners.keys().chain(self.orphans.keys()).chain(&self.spare);
        for session in sessions.copied().collect::<Vec<_>>() {
            self.sessions.end(session);
        }
        self.connections.clear();
        let until = Instant::now() + END_MAX;
        while !self.sessions.is_empty() && Instant::now() < until {
            self.poller.wait(self.due())?;
            self.sessions.turn(&mut self.events)?;
            self.events.clear();
        }
        Ok(())
    }
}
