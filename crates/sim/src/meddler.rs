//! Another worker that acts while the compactor moves a record.

use crate::op::{KEYS, Piece, key};
use crate::oracle::{Change, Key};
use crate::rng::Rng;
use landfall_heap::{Gone, Named, Owner, SlotId};
use landfall_kv::{Engine, KvError};
use std::cell::RefCell;

/// Sets (`Some`) or deletes a key as a client of a worker would, and commits at once if the last is true.
type Act<'a> = dyn FnMut(&Key, Option<Piece>, bool) -> Result<(), KvError> + 'a;

/// What a meddler does.
pub(crate) struct Meddling<'a> {
    pub(crate) act: &'a mut Act<'a>,
    pub(crate) rng: Rng,
}

/// The engine, as the compactor sees it, with another worker in between.
pub(crate) struct Meddler<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) meddling: RefCell<Meddling<'a>>,
}

impl Meddler<'_> {
    /// Changes the key of a record that is being moved, or some other key.
    fn meddle(&self, slot: SlotId) {
        let mut meddling = self.meddling.borrow_mut();
        if !meddling.rng.one_in(3) {
            return;
        }
        let moved = self.key_of(slot).filter(|_| !meddling.rng.one_in(4));
        let target = moved.unwrap_or_else(|| key(meddling.rng.below(KEYS as u64) as usize));
        let value = Piece { len: meddling.rng.between(0, 3000), seed: meddling.rng.draw() };
        let value = (!meddling.rng.one_in(3)).then_some(value);
        let commits = meddling.rng.one_in(3);
        // A full region or an open batch is no failure of the compactor: the meddler just does not act.
        let _ = (meddling.act)(&target, value, commits);
    }

    fn key_of(&self, slot: SlotId) -> Option<Key> {
        let heap = self.engine.heap();
        let view = heap.record(slot).ok()?;
        let bytes = heap.key(&view).ok()?.into();
        Some(Key { space: view.space(), bytes }).filter(|key| usize::from(key.space) < 2)
    }
}

impl Owner for Meddler<'_> {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let begun = self.engine.begin_move(name, slot, hold);
        if begun {
            self.meddle(slot);
        }
        begun
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        self.meddle(new);
        self.engine.end_move(name, old, new)
    }

    fn abort_move(&self, name: Named) {
        self.engine.abort_move(name);
    }

    fn forget(&self, gone: &mut [Gone]) {
        self.engine.forget(gone);
    }
}

/// The change that a meddler's act amounts to.
pub(crate) fn change(key: &Key, value: Option<Piece>) -> Change {
    Change::Keys(vec![(key.clone(), value.map(|piece| piece.read(0)))])
}
