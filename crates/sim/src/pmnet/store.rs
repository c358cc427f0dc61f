//! What the server keeps: a log of atomic batches on its own medium and on its replicas.
//!
//! A crash of the server leaves a prefix of its batches: all that its medium has confirmed, and any number of those that
//! were under way. A replica has a prefix, too. A batch counts once the server's medium and every replica have it.

use landfall_pmnet::{SessionKey, SessionRow};
use std::collections::BTreeMap;

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A register is set, and the journal of a session continued.
    Set { session: (SessionKey, u64), key: u8, id: u64, pad: u32 },
    /// One is added to a counter.
    Add { key: u8, id: u64 },
    /// A session's row.
    Row(SessionRow),
    /// A row goes.
    Evict(SessionKey),
    /// The floor rises.
    Floor(u32),
}

/// The state that batches make, with all that was ever written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Updates of each session, by its key and nonce, in the order in which they were applied.
    pub journals: BTreeMap<(SessionKey, u64), Vec<u64>>,
    /// Values of each register, oldest first.
    pub registers: BTreeMap<u8, Vec<u64>>,
    /// What was added to each counter.
    pub counters: BTreeMap<u8, Vec<u64>>,
    /// Bytes of padding that each value came with.
    pads: BTreeMap<u64, u32>,
    pub(super) rows: BTreeMap<SessionKey, SessionRow>,
    pub(super) floor: u32,
}

impl Held {
    /// What a register holds; 0 before it was set.
    pub fn register(&self, key: u8) -> u64 {
        self.registers.get(&key).and_then(|values| values.last().copied()).unwrap_or(0)
    }

    /// Bytes of padding of what a register holds.
    pub(super) fn pad(&self, key: u8) -> u32 {
        self.pads.get(&self.register(key)).copied().unwrap_or(0)
    }

    /// What a counter is.
    pub fn counter(&self, key: u8) -> u64 {
        self.counters.get(&key).map_or(0, |added| added.len() as u64)
    }

    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Set { session, key, id, pad } => {
                self.pads.insert(*id, *pad);
                self.journals.entry(*session).or_default().push(*id);
                self.registers.entry(*key).or_default().push(*id);
            }
            Effect::Add { key, id } => self.counters.entry(*key).or_default().push(*id),
            Effect::Row(row) => {
                self.rows.insert(row.key, *row);
            }
            Effect::Evict(key) => {
                self.rows.remove(key);
            }
            Effect::Floor(floor) => self.floor = self.floor.max(*floor),
        }
    }
}

/// Another copy.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replica {
    /// Batches that it has.
    pub(super) has: usize,
    pub(super) down: bool,
    /// Raised whenever what is under way to it no longer counts.
    pub(super) life: u64,
    /// A batch is under way.
    pub(super) busy: bool,
}

/// The log of batches, and who has how much of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    batches: Vec<Vec<Effect>>,
    /// Batches that the server's medium has confirmed.
    stored: usize,
    pub(super) replicas: Vec<Replica>,
    /// With every batch applied.
    held: Held,
}

impl Store {
    pub(super) fn new(replicas: usize) -> Self {
        Self { replicas: vec![Replica::default(); replicas], ..Self::default() }
    }

    /// The state as the application sees it.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Applies an effect of the batch that is being made.
    pub(super) fn apply(&mut self, effect: &Effect) {
        self.held.apply(effect);
    }

    /// Ends a batch, whose effects have been applied; returns how many there are with it.
    pub(super) fn append(&mut self, batch: Vec<Effect>) -> usize {
        self.batches.push(batch);
        self.batches.len()
    }

    /// The server's medium has one more.
    pub(super) fn store_one(&mut self) {
        self.stored = (self.stored + 1).min(self.batches.len());
    }

    /// Batches.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether the server's medium has all.
    pub(super) fn is_stored(&self) -> bool {
        self.stored == self.batches.len()
    }

    /// Whether a replica lacks something that could be sent to it.
    pub(super) fn is_behind(&self, replica: usize) -> bool {
        let replica = &self.replicas[replica];
        !replica.down && !replica.busy && replica.has < self.batches.len()
    }

    /// Batches that everybody has.
    pub(super) fn everywhere(&self) -> usize {
        self.replicas.iter().map(|replica| replica.has).min().unwrap_or(usize::MAX).min(self.stored)
    }

    /// The server has crashed; of the batches under way to its medium, `survivors` at most have got through.
    pub(super) fn crash(&mut self, survivors: usize) {
        self.truncate((self.stored + survivors).min(self.batches.len()));
    }

    /// The server is lost for good, and the replica that has most takes its place: false if one lacks what all had.
    pub(super) fn fail_over(&mut self, confirmed: usize) -> bool {
        let most = self.replicas.iter().filter(|replica| !replica.down).map(|replica| replica.has).max();
        let Some(most) = most.filter(|most| *most >= confirmed) else { return false };
        self.truncate(most.min(self.batches.len()));
        true
    }

    /// So many batches are lost, whoever had them and whatever was said of them.
    pub(super) fn go_back(&mut self, batches: usize) {
        self.truncate(self.batches.len().saturating_sub(batches));
    }

    fn truncate(&mut self, len: usize) {
        self.batches.truncate(len);
        self.stored = len;
        for replica in &mut self.replicas {
            replica.has = replica.has.min(len);
            replica.life += 1;
            replica.busy = false;
        }
        self.held = Held::default();
        for effect in self.batches.iter().flatten() {
            self.held.apply(effect);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(store: &mut Store, id: u64) {
        let effect = Effect::Add { key: 1, id };
        store.apply(&effect);
        store.append(vec![effect]);
    }

    #[test]
    fn a_crash_leaves_what_was_confirmed_and_a_prefix_of_the_rest() {
        let mut store = Store::new(1);
        (1..=4).for_each(|id| batch(&mut store, id));
        store.store_one();
        store.replicas[0].has = 4;
        store.crash(1);
        assert_eq!(store.held().counters[&1], [1, 2]);
        assert_eq!((store.replicas[0].has, store.everywhere()), (2, 2));
    }

    #[test]
    fn a_replica_that_lacks_what_was_confirmed_does_not_take_over() {
        let mut store = Store::new(2);
        (1..=3).for_each(|id| batch(&mut store, id));
        (store.replicas[0].has, store.replicas[1].has) = (1, 2);
        assert!(!store.fail_over(3));
        store.replicas[1].down = true;
        assert!(!store.fail_over(2));
        store.replicas[1].down = false;
        assert!(store.fail_over(2));
        assert_eq!(store.held().counters[&1], [1, 2]);
    }
}
