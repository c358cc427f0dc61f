//! The read cache of a device: answers reads while updates are on their way, and never with a value that is not
//! durable or that is older than one that is.
//!
//! Source: §IV-D, figures 10 and 11. States, transitions, where we refine them and why that is coherent:
//! `docs/format/pmnet.md`, "The read cache". Read [`Cache`] first; a [`KeyCodec`] tells it what requests do.
//!
//! What the cache relies upon, for one server and one cache in front of it:
//!
//! - every packet between clients and this server passes the device, and nothing else changes the server's keys;
//! - the server applies the updates of a session in order and confirms them with cumulative server-ACKs. A server that
//!   answers updates one by one has no order, and gets no read cache;
//! - an update that is applied does what the codec says: it does not fail.
//!
//! That a packet arrives is never needed for coherence. What does not arrive costs hits.

mod anew;
mod busy;
mod bypasses;
mod clock;
pub mod codec;
mod pieces;
mod sessions;
mod updates;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use busy::BusyKeys;
use bypasses::{Reads, Touching};
pub use codec::{Effect, KeyCodec, PlainCodec, Query, RespCodec};
pub use pieces::{Piece, Whole};
use sessions::Sessions;
use updates::Flight;
use values::Values;
pub use values::Weight;

/// Most keys of one request that are remembered one by one; a request with more of them touches all.
pub const KEYS_MAX: usize = 64;

/// A key that two tables share.
type Key = Arc<[u8]>;

/// An update by its number, or a bypass by its.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<S> {
    /// Whose it is, such as a [`crate::SessionKey`].
    pub session: S,
    /// Its number in the session.
    pub seq: u32,
}

/// What a cache may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most values.
    pub entries_max: usize,
    /// Most bytes of values, as their [`Weight`] tells, and of their keys; those that wait for a fence included.
    pub bytes_max: usize,
    /// Most updates in flight that are remembered one by one. While there are more, nothing is served.
    pub updates_max: usize,
    /// Most reads on their way to the server whose responses may be kept.
    pub reads_max: usize,
    /// Most bypasses in flight that may change keys. One more of them shuts the cache.
    pub touching_max: usize,
    /// Most sessions; the one that has been silent for longest goes.
    pub sessions_max: usize,
    /// How far a client's updates, or bypasses, may be ahead of the last one that is answered.
    pub window: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries_max: 65_536,
            bytes_max: 64 << 20,
            updates_max: 65_536,
            reads_max: 4096,
            touching_max: 4096,
            sessions_max: 65_536,
            window: 4096,
        }
    }
}

/// The paper's four states of a key (§IV-D).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is cached, nothing in flight.
    Invalid,
    /// Something is in flight that may change the key, and its outcome is not known or not durable.
    Stale,
    /// The server's value; nothing in flight.
    Persisted,
    /// The value of an update that is logged, but not known to be applied.
    Pending,
}

/// The read cache for one server.
///
/// Report everything that passes, in the order in which it passes, and *before* it is sent on:
///
/// - a client's session is taken by the server: [`Self::session_started`];
/// - an update: [`Self::update_seen`], or of one that is longer than a packet [`Self::piece_seen`]; it is in the log: [`Self::update_logged`]; its entry is fenced:
///   [`Self::update_durable`];
/// - a server-ACK: [`Self::server_ack`];
/// - a bypass: [`Self::lookup`] if it reads, and [`Self::bypass_seen`] if it goes on to the server;
/// - a response: [`Self::response_seen`].
///
/// A cache begins *shut*: it follows what passes but neither serves nor keeps anything until [`Self::open`].
#[derive(Clone, Debug)]
pub struct Cache<S, V> {
    limits: Limits,
    open: bool,
    /// How many updates of sessions, and bypasses, may be changing any key at this time.
    blind: usize,
    sessions: Sessions<S>,
    flights: BTreeMap<Id<S>, Flight<V>>,
    busy: BusyKeys<S>,
    values: Values<V>,
    reads: Reads<S>,
    touching: BTreeMap<Id<S>, Touching>,
    marks: u64,
}

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// An empty cache, shut.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            open: false,
            blind: 0,
            sessions: Sessions::new(limits.sessions_max, limits.window),
            flights: BTreeMap::new(),
            busy: BusyKeys::new(),
            values: Values::new(limits.entries_max, limits.bytes_max),
            reads: Reads::new(limits.reads_max),
            touching: BTreeMap::new(),
            marks: 0,
        }
    }

    /// Lets the cache serve.
    ///
    /// The caller vouches that whatever passed the device unreported, in either direction, has arrived or has gone, and
    /// that no update of it waits at the server. A device that is new opens at once. One that has restarted reports the
    /// updates that it finds in its log, waits for as long as a packet can live, and then opens.
    pub fn open(&mut self) {
        self.open = true;
    }

    /// Whether [`Self::open`] holds. A cache that could not remember something shuts itself.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Forgets all values and shuts the cache. What is in flight is remembered.
    pub fn clear(&mut self) {
        self.open = false;
        self.drop_all();
    }

    /// The value of a key, if it may be served now.
    ///
    /// `after` is that of an ordered bypass, the newest update that its session has sent: if that one or one before it
    /// has not passed here, the session would not read its own writes, and there is no hit.
    pub fn lookup(&mut self, key: &[u8], after: Option<Id<S>>) -> Option<&V> {
        let reads_own =
            after.is_none_or(|id| self.sessions.get(id.session).is_some_and(|row| row.holds(id.seq)));
        if reads_own && self.serves() { self.values.get(key) } else { None }
    }

    /// The state of a key. [`State::Persisted`] and [`State::Pending`] are those that [`Self::lookup`] serves.
    pub fn state(&self, key: &[u8]) -> State {
        match (self.values.contains(key), self.busy.contains(key)) {
            _ if self.blind > 0 => State::Stale,
            (false, false) => State::Invalid,
            (false, true) => State::Stale,
            (true, false) => State::Persisted,
            (true, true) => State::Pending,
        }
    }

    /// How many values are served, and the bytes of all with their keys, those included that wait for a fence.
    pub fn held(&self) -> (usize, usize) {
        (self.values.len(), self.values.bytes())
    }

    /// How many updates in flight are remembered.
    pub fn updates_in_flight(&self) -> usize {
        self.flights.len()
    }

    fn serves(&self) -> bool {
        self.open && self.blind == 0
    }

    /// Forgets what anything unknown may have changed: values, and what reads and updates in flight would leave.
    fn drop_all(&mut self) {
        self.values.clear();
        self.reads.clear();
        self.busy.distrust();
    }
}
