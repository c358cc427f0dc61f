//! The history of requests and their results. It is all that the oracle knows of clients.

use super::request::Request;
use landfall_pmnet::SessionKey;
use landfall_pmnet::client::CompletedBy;

/// A logical time: the order of all requests and results.
pub type Moment = u64;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// No result yet.
    Nothing,
    /// An update is durable.
    Complete {
        /// Time of the result.
        at: Moment,
        /// The nodes that have made it durable.
        by: CompletedBy,
    },
    /// A bypass was answered.
    Value {
        /// Time of the result.
        at: Moment,
        /// The value.
        value: u64,
        /// The answer came from a device, and not from the server.
        from_cache: bool,
    },
    /// The answer to a bypass is lost, and it is unknown whether it was executed.
    Lost {
        /// Time of the result.
        at: Moment,
    },
}

/// A request of a client, with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// When it was given to the client.
    pub begun: Moment,
    /// The result.
    pub told: Told,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The session has not ended.
    Open,
    /// The server has confirmed the end of the session.
    Ended {
        /// Time of the confirmation.
        at: Moment,
    },
    /// The client crashed, or the session failed.
    Abandoned,
    /// The client learnt that the server has lost confirmed updates.
    Behind,
}

/// The history of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Key and nonce of the session, once it has begun.
    pub name: Option<(SessionKey, u64)>,
    /// Requests in the order in which the client got them.
    pub calls: Vec<Call>,
    /// How the session ended.
    pub end: End,
}

impl Session {
    /// The updates of the session, in order.
    pub fn updates(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.calls.iter().filter_map(|call| match call.request {
            Request::Set { id, .. } => Some((id, call)),
            _ => None,
        })
    }
}

/// The history of all sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// All sessions.
    pub sessions: Vec<Session>,
    moments: Moment,
    ids: u64,
}

impl History {
    /// The history of these sessions.
    pub fn of(sessions: &[Session]) -> Self {
        Self { sessions: sessions.to_vec(), ..Self::default() }
    }

    /// Adds a session, and returns its index.
    pub fn open(&mut self) -> usize {
        self.sessions.push(Session { name: None, calls: Vec::new(), end: End::Open });
        self.sessions.len() - 1
    }

    /// The next moment.
    pub fn tick(&mut self) -> Moment {
        self.moments += 1;
        self.moments
    }

    /// A number that no other request has.
    pub fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Notes that a client was given a request, and returns the index of the call in its session.
    pub fn begin(&mut self, session: usize, request: Request) -> usize {
        let begun = self.tick();
        let calls = &mut self.sessions[session].calls;
        calls.push(Call { request, begun, told: Told::Nothing });
        calls.len() - 1
    }

    /// Length of the padding that a value was set with, bytes; 0 for a value that was never set.
    pub fn pad_of(&self, value: u64) -> u32 {
        let calls = self.sessions.iter().rev().flat_map(|session| session.calls.iter().rev());
        let mut pads = calls.filter_map(|call| match call.request {
            Request::Set { id, pad, .. } if id == value => Some(pad),
            _ => None,
        });
        pads.next().unwrap_or(0)
    }

    /// True if the client of a session has crashed, or the session has failed.
    pub fn is_abandoned(&self, key: SessionKey) -> bool {
        let of_key = |session: &&Session| session.name.is_some_and(|(known, _)| known == key);
        let last = self.sessions.iter().rev().find(of_key);
        last.is_some_and(|session| session.end == End::Abandoned)
    }
}
