//! A session for programs that block until a request is complete.

use super::client::{SessionId, Sessions};
use super::socket::{RuntimeError, Waiter};
use landfall_pmnet::auth::Key;
use landfall_pmnet::client::{ClientError, ClientStats, Event, Failure, RequestId};
use landfall_pmnet::wire::Refusal;
use landfall_pmnet::{ClientConfig, Instant};
use landfall_spin::SpinWait;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// Longest wait until timeouts are checked.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Longest wait for the answer to a session's end.
const END_MAX: Duration = Duration::from_secs(1);

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Address of the server.
    pub server: SocketAddr,
    /// Local address; `None`: the kernel chooses it.
    pub bind: Option<SocketAddr>,
    /// Settings of the protocol.
    pub client: ClientConfig,
    /// Key that clients, devices and server share, if any.
    pub key: Option<Key>,
    /// Longest time to busy-poll before the session blocks; [`Duration::MAX`]: never block. The time is shortened while
    /// polling finds nothing.
    pub spin: Duration,
}

impl SessionOptions {
    /// The default settings.
    pub fn new(server: SocketAddr) -> Self {
        Self {
            server,
            bind: None,
            client: ClientConfig { waits_for_devices: false, ..ClientConfig::default() },
            key: None,
            spin: Duration::ZERO,
        }
    }
}

/// Errors of requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The request was not accepted.
    #[error(transparent)]
    Request(#[from] ClientError),
    /// Environment: a system call failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Peer: the server refuses the session.
    #[error("the server refuses the session ({0:?}); requests under way may be applied or not")]
    Refused(Refusal),
    /// Peer: the server does not answer, or the session cannot continue.
    #[error("the session has failed ({0:?}); requests under way may be applied or not")]
    Failed(Failure),
    /// The request was executed, and its response is longer than the limit.
    #[error("the response of {len} bytes is longer than the limit of {max}; raise response_bytes_max")]
    ResponseTooLong {
        /// Length of the response, bytes.
        len: usize,
        /// Longest response, bytes.
        max: usize,
    },
    /// The session had ended before.
    #[error("the session has ended")]
    Ended,
}

/// Length and limit of [`SessionError::ResponseTooLong`].
type TooLong = (usize, usize);

/// One session. [`Self::send_update`] and [`Self::send_bypass`] queue requests, [`Self::wait`] waits for one;
/// [`Self::update`] and [`Self::bypass`] do both.
#[derive(Debug)]
pub struct Session {
    sessions: Sessions,
    id: SessionId,
    rest: SpinWait,
    waiter: Waiter,
    events: Vec<(SessionId, Event)>,
    /// Results that the caller has not waited for yet. That of an update is empty.
    done: BTreeMap<RequestId, Result<Vec<u8>, TooLong>>,
    over: Option<Event>,
}

impl Session {
    /// Starts a session, and does not wait for the server.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub fn start(options: SessionOptions) -> Result<Self, RuntimeError> {
        let mut sessions = Sessions::new(options.server, options.bind, options.client, options.key.as_ref())?;
        let id = sessions.start()?;
        let (rest, waiter) = (SpinWait::new(options.spin), Waiter::new()?);
        Ok(Self { sessions, id, rest, waiter, events: Vec::new(), done: BTreeMap::new(), over: None })
    }

    /// Sends an update, and waits until it is durable in the network or at the server.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn update(&mut self, request: &[u8]) -> Result<(), SessionError> {
        let id = self.send_update(request)?;
        self.wait(id).map(drop)
    }

    /// Sends a request that the server executes after all updates before it, and returns the response.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn bypass(&mut self, request: &[u8]) -> Result<Vec<u8>, SessionError> {
        let id = self.send_bypass(request)?;
        self.wait(id)
    }

    /// Sends an update, and returns.
    ///
    /// # Errors
    /// [`SessionError`]; [`ClientError::Full`] if the most requests wait that may.
    pub fn send_update(&mut self, request: &[u8]) -> Result<RequestId, SessionError> {
        let id = self.sessions.update(self.id, request)?;
        self.turn()?;
        Ok(id)
    }

    /// Sends a bypass, and returns.
    ///
    /// # Errors
    /// The errors of [`Self::send_update`].
    pub fn send_bypass(&mut self, request: &[u8]) -> Result<RequestId, SessionError> {
        let id = self.sessions.bypass(self.id, request)?;
        self.turn()?;
        Ok(id)
    }

    /// Waits until a request is complete, and returns its response, which is empty for an update. Each request can be
    /// waited for once.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn wait(&mut self, id: RequestId) -> Result<Vec<u8>, SessionError> {
        loop {
            if let Some(done) = self.done.remove(&id) {
                return done.map_err(|(len, max)| SessionError::ResponseTooLong { len, max });
            }
            self.check()?;
            self.wait_for_packets(WAIT_MAX)?;
            self.turn()?;
        }
    }

    /// Handles packets that have arrived, without blocking. Returns the number of results that the caller has not
    /// waited for yet.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn poll(&mut self) -> Result<usize, SessionError> {
        self.turn()?;
        if self.done.is_empty() {
            self.check()?;
        }
        Ok(self.done.len())
    }

    /// Counts of the session.
    pub fn stats(&self) -> ClientStats {
        self.sessions.stats(self.id).unwrap_or_default()
    }

    /// Ends the session, and waits for the server's answer for a second at most.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn end(mut self) -> Result<(), SessionError> {
        self.sessions.end(self.id);
        let until: Instant = self.sessions.clock().now() + END_MAX;
        self.turn()?;
        while self.over.is_none() && self.sessions.clock().now() < until {
            self.wait_for_packets(until.since(self.sessions.clock().now()))?;
            self.turn()?;
        }
        match self.check() {
            Err(SessionError::Ended) => Ok(()),
            Ok(()) => Err(SessionError::Failed(Failure::NoAnswer)),
            Err(error) => Err(error),
        }
    }

    fn check(&self) -> Result<(), SessionError> {
        match &self.over {
            None => Ok(()),
            Some(Event::Refused(refusal)) => Err(SessionError::Refused(*refusal)),
            Some(Event::Failed(failure)) => Err(SessionError::Failed(*failure)),
            Some(_) => Err(SessionError::Ended),
        }
    }

    fn wait_for_packets(&mut self, most: Duration) -> Result<(), RuntimeError> {
        let now = self.sessions.clock().now();
        let due = self.sessions.next_timeout().map_or(most, |due| due.since(now)).min(most);
        let Self { sessions, rest, waiter, .. } = self;
        let ours = sessions.as_fd();
        rest.until(due, |most| waiter.wait(&[ours], most), |ready| ready[0]).map(drop)
    }

    fn turn(&mut self) -> Result<(), RuntimeError> {
        self.sessions.turn(&mut self.events)?;
        for (_, event) in self.events.drain(..) {
            match event {
                Event::Complete { id, .. } => drop(self.done.insert(id, Ok(Vec::new()))),
                Event::Response { id, bytes, .. } => drop(self.done.insert(id, Ok(bytes))),
                Event::ResponseTooLong { id, len, max } => drop(self.done.insert(id, Err((len, max)))),
                Event::Ended | Event::Refused(_) | Event::Failed(_) => self.over = Some(event),
                _ => {}
            }
        }
        Ok(())
    }
}
