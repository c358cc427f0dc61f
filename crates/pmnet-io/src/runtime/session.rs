//! A session for programs that wait.

use super::client::{SessionId, Sessions};
use super::socket::{RuntimeError, Waiter};
use landfall_pmnet::auth::Key;
use landfall_pmnet::client::{ClientError, ClientStats, Event, Failure, RequestId};
use landfall_pmnet::wire::Refusal;
use landfall_pmnet::{ClientConfig, Instant};
use landfall_spin::Rest;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// Longest rest without a look at the clock.
const REST_MAX: Duration = Duration::from_millis(100);
/// Longest wait for the answer to a session's end.
const END_MAX: Duration = Duration::from_secs(1);

/// How a session is run.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The server.
    pub server: SocketAddr,
    /// An address of this host; the kernel chooses without.
    pub bind: Option<SocketAddr>,
    /// The protocol's settings.
    pub client: ClientConfig,
    /// What clients, devices and server share, if anything.
    pub key: Option<Key>,
    /// How long it looks for answers before it waits in the kernel, less while that comes to nothing; [`Duration::MAX`]
    /// never waits.
    pub spin: Duration,
}

impl SessionOptions {
    /// The usual settings.
    pub fn new(server: SocketAddr) -> Self {
        Self { server, bind: None, client: ClientConfig::default(), key: None, spin: Duration::ZERO }
    }
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The request was not taken.
    #[error(transparent)]
    Request(#[from] ClientError),
    /// The machine does not do what is asked of it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The server refuses the session.
    #[error("the server refuses the session ({0:?}); what was under way may be applied or not")]
    Refused(Refusal),
    /// Nobody answers.
    #[error("the session has failed ({0:?}); what was under way may be applied or not")]
    Failed(Failure),
    /// The request was executed, but its response is not taken.
    #[error("the response of {len} bytes is longer than the {max} that are taken; raise response_bytes_max")]
    ResponseTooLong {
        /// Bytes of the response.
        len: usize,
        /// Bytes that are taken.
        max: usize,
    },
    /// It was ended before.
    #[error("the session has ended")]
    Ended,
}

/// Lengths of [`SessionError::ResponseTooLong`].
type TooLong = (usize, usize);

/// One session. Requests are queued ([`Self::send_update`], [`Self::send_bypass`]) and waited for
/// ([`Self::wait`]), or both at once.
#[derive(Debug)]
pub struct Session {
    sessions: Sessions,
    id: SessionId,
    rest: Rest,
    waiter: Waiter,
    events: Vec<(SessionId, Event)>,
    /// Results that nobody has asked for yet: nothing for an update.
    done: BTreeMap<RequestId, Result<Vec<u8>, TooLong>>,
    over: Option<Event>,
}

impl Session {
    /// Starts a session; does not wait for the server.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub fn start(options: SessionOptions) -> Result<Self, RuntimeError> {
        let mut sessions = Sessions::new(options.server, options.bind, options.client, options.key.as_ref())?;
        let id = sessions.start()?;
        let (rest, waiter) = (Rest::new(options.spin), Waiter::new()?);
        Ok(Self { sessions, id, rest, waiter, events: Vec::new(), done: BTreeMap::new(), over: None })
    }

    /// Makes an update durable, in the network or at the server, before it returns.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn update(&mut self, request: &[u8]) -> Result<(), SessionError> {
        let id = self.send_update(request)?;
        self.wait(id).map(drop)
    }

    /// Has the server execute a request, after all updates before it, and returns its response.
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
    /// [`SessionError`]; [`ClientError::Full`] if as many wait as may.
    pub fn send_update(&mut self, request: &[u8]) -> Result<RequestId, SessionError> {
        let id = self.sessions.update(self.id, request)?;
        self.turn()?;
        Ok(id)
    }

    /// Sends a bypass, and returns.
    ///
    /// # Errors
    /// As [`Self::send_update`].
    pub fn send_bypass(&mut self, request: &[u8]) -> Result<RequestId, SessionError> {
        let id = self.sessions.bypass(self.id, request)?;
        self.turn()?;
        Ok(id)
    }

    /// Waits until a request is complete: the response, which is empty for an update. Each request can be
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
            self.rest(REST_MAX)?;
            self.turn()?;
        }
    }

    /// Takes what has arrived without waiting. How many results have not been asked for.
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

    /// What was counted.
    pub fn stats(&self) -> ClientStats {
        self.sessions.stats(self.id).unwrap_or_default()
    }

    /// Ends the session and waits for that, for a second at most.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn end(mut self) -> Result<(), SessionError> {
        self.sessions.end(self.id);
        let until: Instant = self.sessions.clock().now() + END_MAX;
        while self.over.is_none() && self.sessions.clock().now() < until {
            self.turn()?;
            self.rest(END_MAX)?;
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

    fn rest(&mut self, most: Duration) -> Result<(), RuntimeError> {
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
