//! Updates that are longer than a packet: their first piece mostly tells which keys the whole changes.

use super::codec::KeyRanges;
use super::updates::{Change, keys_at};
use super::values::Weight;
use super::{Cache, Id};

/// What all pieces of an update agree on, or the server applies none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// How many there are. Their numbers follow each other.
    pub count: u32,
    /// Bytes of the request.
    pub total: u32,
}

/// A piece of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The first one.
    First {
        /// Its bytes.
        start: &'a [u8],
        /// Where in them the keys are that the whole may change, and no others; `None`: any key may change.
        keys: Option<KeyRanges>,
    },
    /// Another one.
    Later {
        /// Its place, counted from 0.
        index: u32,
    },
}

impl<S: Copy + Ord, V: Weight> Cache<S, V> {
    /// A piece of an update passes towards the server, as [`Self::update_seen`] has it.
    ///
    /// What the whole sets lies in no packet, so its keys miss from the first piece on until the last one is applied. A piece that
    /// passes while the first one is not known to be in flight may change any key until it is applied.
    pub fn piece_seen(&mut self, id: Id<S>, whole: Whole, piece: &Piece<'_>) {
        let change = self.change_of(id, whole, piece);
        self.see(id, change);
    }

    /// A piece passes whose identity is that of one in flight, but whose bytes are others, as [`Self::update_conflicts`] has it.
    pub fn piece_conflicts(&mut self, id: Id<S>, whole: Whole, piece: &Piece<'_>) {
        let change = self.change_of(id, whole, piece);
        self.see_conflict(id, change);
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
