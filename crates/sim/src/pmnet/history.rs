//! What clients have asked for and what they were told: all that the oracle knows of them.

use super::request::Request;
use landfall_pmnet::SessionKey;
use landfall_pmnet::client::CompletedBy;

/// A place in the order of everything that clients did and were told.
pub type Moment = u64;

/// What a client was told about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing yet.
    Nothing,
    /// An update is durable.
    Complete {
        /// When.
        at: Moment,
        /// Who has it.
        by: CompletedBy,
    },
    /// A bypass was answered.
    Value {
        /// When.
        at: Moment,
        /// The value.
        value: u64,
        /// By a device instead of the server.
        from_cache: bool,
    },
    /// A bypass was executed or not; nobody knows.
    Lost {
        /// When.
        at: Moment,
    },
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it asks for.
    pub request: Request,
    /// When it was given to the client.
    pub begun: Moment,
    /// What came of it.
    pub told: Told,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It goes on.
    Open,
    /// The server has confirmed its end.
    Ended {
        /// When.
        at: Moment,
    },
    /// Its client was forgotten, or gave up.
    Abandoned,
    /// Its client was told that the server has lost what it had confirmed.
    Behind,
}

/// One session, as its client has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Whose, and its nonce, once it has begun.
    pub name: Option<(SessionKey, u64)>,
    /// Requests in the order in which they were given.
    pub calls: Vec<Call>,
    /// How it ended.
    pub end: End,
}

impl Session {
    /// Its updates, in order.
    pub fn updates(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.calls.iter().filter_map(|call| match call.request {
            Request::Set { id, .. } => Some((id, call)),
            _ => None,
        })
    }
}

/// Everything that clients did and were told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// All sessions.
    pub sessions: Vec<Session>,
    moments: Moment,
    ids: u64,
}

impl History {
    /// These sessions.
    pub fn of(sessions: &[Session]) -> Self {
        Self { sessions: sessions.to_vec(), ..Self::default() }
    }

    /// Another session; returns its place.
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

    /// A client was given a request; returns the call's place in its session.
    pub fn begin(&mut self, session: usize, request: Request) -> usize {
        let begun = self.tick();
        let calls = &mut self.sessions[session].calls;
        calls.push(Call { request, begun, told: Told::Nothing });
        calls.len() - 1
    }

    /// Bytes of padding that a value was given with; 0 for what nobody has set.
    pub fn pad_of(&self, value: u64) -> u32 {
        let calls = self.sessions.iter().rev().flat_map(|session| session.calls.iter().rev());
        let mut pads = calls.filter_map(|call| match call.request {
            Request::Set { id, pad, .. } if id == value => Some(pad),
            _ => None,
        });
        pads.next().unwrap_or(0)
    }

    /// Whether a session was left by its client.
    pub fn is_abandoned(&self, key: SessionKey) -> bool {
        let of_key = |session: &&Session| session.name.is_some_and(|(known, _)| known == key);
        let last = self.sessions.iter().rev().find(of_key);
        last.is_some_and(|session| session.end == End::Abandoned)
    }
}
