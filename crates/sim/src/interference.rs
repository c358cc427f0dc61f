//! Interference with compaction: another worker changes keys while the compactor moves a record.

use crate::op::{KEYS, Piece, key};
use crate::oracle::{Change, Key};
use crate::rng::Rng;
use landfall_heap::{Gone, Named, Owner, SlotId};
use landfall_kv::{Engine, KvError};
use std::cell::RefCell;

/// Sets (`Some`) or deletes a key as a client of a worker does, and commits at once if the last argument is true.
type Act<'a> = dyn FnMut(&Key, Option<Piece>, bool) -> Result<(), KvError> + 'a;

/// The other worker's changes.
pub(crate) struct Interference<'a> {
    pub(crate) act: &'a mut Act<'a>,
    pub(crate) rng: Rng,
}

/// The engine as the owner of records, with another worker that changes keys between the steps of a move.
pub(crate) struct InterferingOwner<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) interference: RefCell<Interference<'a>>,
}

impl InterferingOwner<'_> {
    /// Sometimes changes the key of the record that is being moved, or another key.
    fn interfere(&self, slot: SlotId) {
        let mut interference = self.interference.borrow_mut();
        if !interference.rng.one_in(3) {
            return;
        }
        let moved = self.key_of(slot).filter(|_| !interference.rng.one_in(4));
        let target = moved.unwrap_or_else(|| key(interference.rng.below(KEYS as u64) as usize));
        let value = Piece { len: interference.rng.between(0, 3000), seed: interference.rng.draw() };
        let value = (!interference.rng.one_in(3)).then_some(value);
        let commits = interference.rng.one_in(3);
        // The change may fail because the region is full or a batch is open. That is not a fault of the compactor.
        let _ = (interference.act)(&target, value, commits);
    }

    fn key_of(&self, slot: SlotId) -> Option<Key> {
        let heap = self.engine.heap();
        let view = heap.record(slot).ok()?;
        let bytes = (*heap.key(&view).ok()?).into();
        Some(Key { space: view.space(), bytes }).filter(|key| usize::from(key.space) < 2)
    }
}

impl Owner for InterferingOwner<'_> {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let begun = self.engine.begin_move(name, slot, hold);
        if begun {
            self.interfere(slot);
        }
        begun
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        self.interfere(new);
        self.engine.end_move(name, old, new)
    }

    fn abort_move(&self, name: Named) {
        self.engine.abort_move(name);
    }

    fn forget(&self, gone: &mut [Gone]) {
        self.engine.forget(gone);
    }
}

/// The change of a write, for the oracle.
pub(crate) fn change(key: &Key, value: Option<Piece>) -> Change {
    Change::Keys(vec![(key.clone(), value.map(|piece| piece.read(0)))])
}
