//! The records that say that a log or a position has been deleted.

use landfall_heap::{SlotId, spaces};
use std::collections::{BTreeMap, BTreeSet};

/// The record that says that a log or a position has been deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) slot: SlotId,
    /// The log's number.
    pub(crate) number: u32,
    pub(crate) space: u8,
    /// The life of the log.
    pub(crate) life: u64,
}

/// Tombstones by the hash of their key. There may be one for each log that was ever deleted: nothing walks over all of them
/// while clients wait.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    by_hash: BTreeMap<u64, Tombstone>,
    /// Those of positions: the number of their log, and the hash.
    positions: BTreeSet<(u32, u64)>,
}

impl Tombstones {
    pub(crate) fn get(&self, hash: u64) -> Option<&Tombstone> {
        self.by_hash.get(&hash)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Tombstone> {
        self.by_hash.values()
    }

    pub(crate) fn insert(&mut self, hash: u64, tombstone: Tombstone) {
        self.remove(hash);
        if tombstone.space == spaces::LOG_POSITION {
            self.positions.insert((tombstone.number, hash));
        }
        self.by_hash.insert(hash, tombstone);
    }

    pub(crate) fn remove(&mut self, hash: u64) -> Option<Tombstone> {
        let tombstone = self.by_hash.remove(&hash)?;
        self.positions.remove(&(tombstone.number, hash));
        Some(tombstone)
    }

    /// Notes that a tombstone has moved; false if it is not at `old`.
    pub(crate) fn relocate(&mut self, hash: u64, old: SlotId, new: SlotId) -> bool {
        let known = self.by_hash.get_mut(&hash).filter(|tombstone| tombstone.slot == old);
        known.map(|tombstone| tombstone.slot = new).is_some()
    }

    /// Removes those of a log's positions.
    pub(crate) fn take_positions(&mut self, number: u32) -> Vec<Tombstone> {
        let hashes: Vec<u64> =
            self.positions.range((number, 0)..=(number, u64::MAX)).map(|(_, hash)| *hash).collect();
        hashes.into_iter().filter_map(|hash| self.remove(hash)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(space: u8, number: u32, slot: u32) -> Tombstone {
        Tombstone { slot: SlotId(slot), number, space, life: 1 }
    }

    #[test]
    fn positions_of_a_log_are_found_by_its_number() {
        let mut all = Tombstones::default();
        all.insert(1, tombstone(spaces::LOG, 7, 10));
        all.insert(2, tombstone(spaces::LOG_POSITION, 7, 20));
        all.insert(3, tombstone(spaces::LOG_POSITION, 8, 30));
        all.insert(u64::MAX, tombstone(spaces::LOG_POSITION, 7, 40));
        // A position of another log under the same hash: the old one is not left among those of its log.
        all.insert(3, tombstone(spaces::LOG_POSITION, 9, 31));
        assert_eq!(all.remove(2).map(|gone| gone.slot), Some(SlotId(20)));
        assert!(all.relocate(u64::MAX, SlotId(40), SlotId(41)) && !all.relocate(1, SlotId(11), SlotId(12)));
        let slots = |taken: Vec<Tombstone>| taken.iter().map(|gone| gone.slot.0).collect::<Vec<_>>();
        assert_eq!(slots(all.take_positions(7)), [41]);
        assert_eq!(slots(all.take_positions(8)), []);
        assert_eq!(slots(all.take_positions(9)), [31]);
        assert_eq!(all.values().map(|left| left.slot.0).collect::<Vec<_>>(), [10]);
        assert!(all.positions.is_empty());
    }
}
