//! The read cache of a device. It answers reads while updates are in flight. It never serves a value that is not
//! durable, or that is older than a durable one.
//!
//! Source: §IV-D, figures 10 and 11. States, transitions, differences from the paper, and why the cache is coherent:
//! `docs/format/pmnet.md`, "The read cache". Read [`Cache`] first. A [`KeyCodec`] tells the cache what requests do.
//!
//! The cache relies on the following, for the one server that it belongs to:
//!
//! - Every packet between clients and this server passes the device, and nothing else changes the server's keys.
//! - The server applies the updates of a session in order, and confirms them with cumulative server-ACKs. A server
//!   that answers updates one by one applies them in no order, and gets no read cache.
//! - An update that is applied has the effect that the codec reports. It does not fail.
//!
//! Coherence never depends on the arrival of a packet. A lost packet only costs hits.

mod busy;
mod bypasses;
mod clock;
pub mod codec;
mod foreign;
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

/// Most keys of one request that are stored separately. A request with more keys counts as touching all keys.
pub const KEYS_MAX: usize = 64;

/// A key that several tables share.
type Key = Arc<[u8]>;

/// Identifies an update or a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<S> {
    /// The session, such as a [`crate::SessionKey`].
    pub session: S,
    /// The sequence number in the session.
    pub seq: u32,
}

/// Limits of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most values.
    pub entries_max: usize,
    /// Most bytes of values, by their [`Weight`], and of their keys. Values that wait for a fence count.
    pub bytes_max: usize,
    /// Most updates in flight that are stored separately. While there are more, nothing is served.
    pub updates_max: usize,
    /// Most reads in flight whose responses may fill the cache.
    pub reads_max: usize,
    /// Most bypasses in flight that may change keys. If there is one more, the cache shuts.
    pub touching_max: usize,
    /// Most sessions. The session that was used least recently is evicted.
    pub sessions_max: usize,
    /// How far a client's updates or bypasses may be ahead of the last one that was answered.
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
    /// No value is cached, and no request that may change the key is in flight.
    Invalid,
    /// A request that may change the key is in flight, and its result is not known or not durable.
    Stale,
    /// The cache has the server's value, and no request that may change the key is in flight.
    Persisted,
    /// The cache has the value of an update that is logged, but not known to be applied.
    Pending,
}

/// The read cache of one server.
///
/// Call the following for everything that passes, in the order in which it passes and *before* it is forwarded:
///
/// - the server has accepted a client's session: [`Self::session_started`];
/// - an update: [`Self::update_seen`], or [`Self::piece_seen`] if it is longer than a packet. When it is in the log:
///   [`Self::update_logged`]. When its log entry is fenced: [`Self::update_durable`];
/// - a server-ACK: [`Self::server_ack`];
/// - a bypass: [`Self::lookup`] if it is a read, and [`Self::bypass_seen`] if it is forwarded to the server;
/// - a response: [`Self::response_seen`].
///
/// A cache is *shut* at first: it follows the packets that pass, but serves and stores no values until
/// [`Self::open`].
#[derive(Clone, Debug)]
pub struct Cache<S, V> {
    limits: Limits,
    open: bool,
    /// Number of sessions whose updates, and of bypasses, that may change any key at this time.
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
    /// An empty cache, which is shut.
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
    /// The caller guarantees that every packet that passed the device unreported, in either direction, has arrived
    /// or is lost, and that no update of such a packet waits at the server. A new device opens its cache at once. A
    /// device that has restarted reports the updates in its log, waits for the life of a packet, and then opens the
    /// cache.
    pub fn open(&mut self) {
        self.open = true;
    }

    /// Whether the cache is open. A cache that lacks memory for something shuts itself.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Deletes all values and shuts the cache. The requests in flight stay stored.
    pub fn clear(&mut self) {
        self.open = false;
        self.drop_all();
    }

    /// The value of a key, if it may be served now.
    ///
    /// `after` belongs to an ordered bypass: the newest update that its session has sent. If that update or an
    /// earlier one has not passed here, the session might not read its own writes, so there is no hit.
    pub fn lookup(&mut self, key: &[u8], after: Option<Id<S>>) -> Option<&V> {
        let reads_own =
            after.is_none_or(|id| self.sessions.get(id.session).is_some_and(|row| row.holds(id.seq)));
        if reads_own && self.serves() { self.values.get(key) } else { None }
    }

    /// The state of a key. [`Self::lookup`] serves keys in the states [`State::Persisted`] and [`State::Pending`].
    pub fn state(&self, key: &[u8]) -> State {
        match (self.values.contains(key), self.busy.contains(key)) {
            _ if self.blind > 0 => State::Stale,
            (false, false) => State::Invalid,
            (false, true) => State::Stale,
            (true, false) => State::Persisted,
            (true, true) => State::Pending,
        }
    }

    /// Number of values that can be served, and the bytes of all values with their keys, including values that wait
    /// for a fence.
    pub fn held(&self) -> (usize, usize) {
        (self.values.len(), self.values.bytes())
    }

    /// Number of updates in flight that are stored.
    pub fn updates_in_flight(&self) -> usize {
        self.flights.len()
    }

    fn serves(&self) -> bool {
        self.open && self.blind == 0
    }

    /// Deletes everything that an unknown request may have changed: the values, and the expected results of reads
    /// and updates in flight.
    fn drop_all(&mut self) {
        self.values.clear();
        self.reads.clear();
        self.busy.invalidate_writers();
    }
}
