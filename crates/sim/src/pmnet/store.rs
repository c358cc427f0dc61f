//! The storage of the server: a log of atomic batches on its own medium and on its replicas.
//!
//! A crash of the server leaves a prefix of its batches: all that its medium has confirmed, and any number of the next
//! ones that were under way. A replica has a prefix, too. A batch counts once the server's medium and every replica
//! have it.

use landfall_pmnet::{SessionKey, SessionRow};
use std::collections::BTreeMap;

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Sets a register, and appends to the journal of a session.
    Set { session: (SessionKey, u64), key: u8, id: u64, pad: u32 },
    /// Adds one to a counter.
    Add { key: u8, id: u64 },
    /// Writes the row of a session.
    Row(SessionRow),
    /// Evicts a row.
    Evict(SessionKey),
    /// Raises the floor.
    Floor(u32),
}

/// The state after all batches, with the history of all values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Updates of each session, by its key and nonce, in the order in which they were applied.
    pub journals: BTreeMap<(SessionKey, u64), Vec<u64>>,
    /// Values of each register, oldest first.
    pub registers: BTreeMap<u8, Vec<u64>>,
    /// Numbers of the additions to each counter.
    pub counters: BTreeMap<u8, Vec<u64>>,
    /// Length of the padding of each value, bytes.
    pads: BTreeMap<u64, u32>,
    pub(super) rows: BTreeMap<SessionKey, SessionRow>,
    pub(super) floor: u32,
}

impl Held {
    /// The value of a register; 0 before it is set.
    pub fn register(&self, key: u8) -> u64 {
        self.registers.get(&key).and_then(|values| values.last().copied()).unwrap_or(0)
    }

    /// Length of the padding of a register's value, bytes.
    pub(super) fn pad(&self, key: u8) -> u32 {
        self.pads.get(&self.register(key)).copied().unwrap_or(0)
    }

    /// The value of a counter.
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

/// A replica of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replica {
    /// Number of batches that the replica has.
    pub(super) has: usize,
    pub(super) down: bool,
    /// Raised whenever a batch under way to the replica no longer counts.
    pub(super) life: u64,
    /// A batch is under way.
    pub(super) busy: bool,
}

/// The log of batches, and how many of them each medium has.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    batches: Vec<Vec<Effect>>,
    /// Number of batches that the server's medium has confirmed.
    stored: usize,
    pub(super) replicas: Vec<Replica>,
    /// The state with every batch applied.
    held: Held,
}

impl Store {
    pub(super) fn new(replicas: usize) -> Self {
        Self { replicas: vec![Replica::default(); replicas], ..Self::default() }
    }

    /// The state with every batch applied, as the application reads it.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// Applies an effect of the current batch.
    pub(super) fn apply(&mut self, effect: &Effect) {
        self.held.apply(effect);
    }

    /// Appends the current batch, whose effects have been applied. Returns the number of batches.
    pub(super) fn append(&mut self, batch: Vec<Effect>) -> usize {
        self.batches.push(batch);
        self.batches.len()
    }

    /// Notes that the server's medium has one more batch.
    pub(super) fn store_one(&mut self) {
        self.stored = (self.stored + 1).min(self.batches.len());
    }

    /// Number of batches.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    /// True if the server's medium has all batches.
    pub(super) fn is_stored(&self) -> bool {
        self.stored == self.batches.len()
    }

    /// True if a replica lacks a batch that could be sent to it now.
    pub(super) fn is_behind(&self, replica: usize) -> bool {
        let replica = &self.replicas[replica];
        !replica.down && !replica.busy && replica.has < self.batches.len()
    }

    /// Number of batches that the server's medium and all replicas have.
    pub(super) fn everywhere(&self) -> usize {
        self.replicas.iter().map(|replica| replica.has).min().unwrap_or(usize::MAX).min(self.stored)
    }

    /// Truncates the log after a crash of the server. At most `survivors` of the batches under way to its medium
    /// survive.
    pub(super) fn crash(&mut self, survivors: usize) {
        self.truncate((self.stored + survivors).min(self.batches.len()));
    }

    /// Replaces the lost server by the replica that has the most batches. False if it lacks a confirmed batch.
    pub(super) fn fail_over(&mut self, confirmed: usize) -> bool {
        let most = self.replicas.iter().filter(|replica| !replica.down).map(|replica| replica.has).max();
        let Some(most) = most.filter(|most| *most >= confirmed) else { return false };
        self.truncate(most.min(self.batches.len()));
        true
    }

    /// Removes the last batches from all media, even confirmed ones.
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
    fn a_crash_leaves_confirmed_batches_and_a_prefix_of_the_others() {
        let mut store = Store::new(1);
        (1..=4).for_each(|id| batch(&mut store, id));
        store.store_one();
        store.replicas[0].has = 4;
        store.crash(1);
        assert_eq!(store.held().counters[&1], [1, 2]);
        assert_eq!((store.replicas[0].has, store.everywhere()), (2, 2));
    }

    #[test]
    fn a_replica_that_lacks_a_confirmed_batch_does_not_take_over() {
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
