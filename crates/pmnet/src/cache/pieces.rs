//! Updates that are longer than a packet. Their first piece usually names the keys that the whole update changes.

use super::codec::KeyRanges;
use super::flight::{Change, Whole, keys_at};
use super::key::Id;
use super::state::Cache;
use super::values::Weight;

/// A piece of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The first piece.
    First {
        /// The bytes of the piece.
        start: &'a [u8],
        /// Ranges of `start` with the only keys that the whole update may change. `None`: any key may change.
        keys: Option<KeyRanges>,
    },
    /// A later piece.
    Later {
        /// Index of the piece, from 0 on.
        index: u32,
    },
}

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// Handles a piece of an update that passes towards the server, as [`Self::update_seen`] does.
    ///
    /// No packet contains the whole value, so the update's keys miss from the first piece on until the last piece is
    /// applied. A piece that passes while the first piece is not known to be in flight may change any key until it
    /// is applied.
    pub fn piece_seen(&mut self, id: Id<S>, whole: Whole, piece: &Piece<'_>) {
        let change = self.change_of(id, whole, piece);
        self.observe(id, change);
    }

    /// Handles a piece that has the identity of one in flight but other bytes, as [`Self::update_conflicts`] does.
    pub fn piece_conflicts(&mut self, id: Id<S>, whole: Whole, piece: &Piece<'_>) {
        let change = self.change_of(id, whole, piece);
        self.observe_conflict(id, change);
    }

    fn change_of(&self, id: Id<S>, whole: Whole, piece: &Piece<'_>) -> Change {
        match piece {
            Piece::First { start, keys } => {
                let keys = keys.as_ref().and_then(|keys| keys_at(start, keys));
                Change { begins: keys.is_some().then_some(whole), keys, sets: false }
            }
            Piece::Later { index } => {
                let first = id.seq.checked_sub(*index).map(|seq| Id { seq, ..id });
                let flight = first.and_then(|first| self.flights.get(&first));
                let known = flight.filter(|first| first.begins == Some(whole));
                Change { keys: known.map(|first| first.keys.clone()), sets: false, begins: None }
            }
        }
    }
}
