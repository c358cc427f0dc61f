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
mod flight;
mod foreign;
mod key;
mod pieces;
mod reads;
mod sessions;
mod state;
mod updates;
mod values;

pub use codec::{Effect, KeyCodec, PlainCodec, Query, RespCodec};
pub use flight::Whole;
pub use key::{Id, KEYS_MAX};
pub use pieces::Piece;
pub use state::{Cache, Limits};
pub use values::Weight;

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

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
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
}
