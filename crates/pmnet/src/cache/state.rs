//! The state of a cache.

use std::collections::BTreeMap;

use super::busy::BusyKeys;
use super::flight::Flight;
use super::key::Id;
use super::reads::{Reads, Touching};
use super::sessions::Sessions;
use super::values::{Values, Weight};

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
    pub(super) limits: Limits,
    pub(super) open: bool,
    /// Number of sessions whose updates, and of bypasses, that may change any key at this time.
    pub(super) blind: usize,
    pub(super) sessions: Sessions<S>,
    pub(super) flights: BTreeMap<Id<S>, Flight<V>>,
    pub(super) busy: BusyKeys<S>,
    pub(super) values: Values<V>,
    pub(super) reads: Reads<S>,
    pub(super) touching: BTreeMap<Id<S>, Touching>,
    pub(super) marks: u64,
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

    /// Deletes all values and shuts the cache. The requests in flight stay stored.
    pub fn clear(&mut self) {
        self.open = false;
        self.drop_all();
    }

    pub(super) fn serves(&self) -> bool {
        self.open && self.blind == 0
    }

    /// Deletes everything that an unknown request may have changed: the values, and the expected results of reads
    /// and updates in flight.
    pub(super) fn drop_all(&mut self) {
        self.values.clear();
        self.reads.clear();
        self.busy.invalidate_writers();
    }
}
