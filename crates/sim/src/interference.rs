//! Interference with compaction: another worker changes keys while the compactor moves a record.

use crate::op::{KEYS, Piece, key};
use crate::oracle::{Change, Key};
use crate::rng::Rng;
use landfall_heap::{Gone, HeapError, Named, Owner, SlotId};
use landfall_kv::{Engine, KvError};
use std::cell::RefCell;

/// Sets (`Some`) or deletes a key as a client of a worker does, and commits at once if the last argument is true.
type Act<'a> = dyn FnMut(&Key, Option<Piece>, bool) -> Result<(), KvError> + 'a;

/// The other worker's changes.
pub(crate) struct Interference<'a> {
    act: &'a mut Act<'a>,
    rng: Rng,
    /// The first failure that is a fault, unless the medium has failed.
    failed: Option<KvError>,
}

impl<'a> Interference<'a> {
    pub(crate) fn new(act: &'a mut Act<'a>, seed: u64) -> Self {
        Self { act, rng: Rng::new(seed), failed: None }
    }
}

/// A change may find the region full, or a batch that it must wait for.
fn is_fault(error: &KvError) -> bool {
    !matches!(error, KvError::Wait(_) | KvError::Heap(HeapError::Full))
}

/// The engine as the owner of records, with another worker that changes keys between the steps of a move.
pub(crate) struct InterferingOwner<'a> {
    engine: &'a Engine,
    interference: RefCell<Interference<'a>>,
}

impl<'a> InterferingOwner<'a> {
    pub(crate) fn new(engine: &'a Engine, interference: Interference<'a>) -> Self {
        Self { engine, interference: RefCell::new(interference) }
    }

    /// The first failure of a change that is a fault, unless the medium has failed.
    pub(crate) fn into_failed(self) -> Option<KvError> {
        self.interference.into_inner().failed
    }

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
        let changed = (interference.act)(&target, value, commits);
        if let Some(error) = changed.err().filter(is_fault) {
            interference.failed.get_or_insert(error);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_heap::Until;
    use landfall_media::MediaError;

    #[test]
    fn only_a_full_region_and_a_batch_to_wait_for_are_no_faults() {
        assert!(!is_fault(&HeapError::Full.into()) && !is_fault(&HeapError::Busy.into()));
        assert!(!is_fault(&KvError::Wait(Until::Space)));
        assert!(is_fault(&KvError::NotDurable) && is_fault(&MediaError::Unsupported("this").into()));
    }
}
