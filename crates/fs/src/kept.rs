//! Records of the tree on the medium that are not current, and the tombstones that they need.
//!
//! The tombstone of a key stays until no older record is left that recovery could take for current. Names, data and
//! extended attributes of a deleted inode need none: they mean nothing without their inode.

use crate::key::InodeNumber;
use landfall_heap::{Heap, NoInlineCounts, SlotId, StaleCounts, spaces};
use std::collections::{BTreeMap, BTreeSet};

/// The record that says that a key is deleted, or that a client has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Its slot.
    pub slot: SlotId,
    /// The space of the key.
    pub space: u8,
    /// The inode to which the key belongs; 0 for the header and for bounds.
    pub number: InodeNumber,
}

impl Tombstone {
    /// True if the tombstone is not needed once its inode is deleted.
    fn ends_with_its_inode(&self) -> bool {
        matches!(self.space, spaces::FILES_NAMES | spaces::FILES_DATA | spaces::FILES_EXTENDED)
    }
}

/// Stale counts and tombstones, by hash of the key.
#[derive(Debug, Default)]
pub struct Kept {
    /// Number of records that are not current. Records of inodes that do not exist need not be counted.
    pub stale: StaleCounts,
    /// The tombstones. [`Self::add_tombstone`] adds one.
    pub tombstones: BTreeMap<u64, Tombstone>,
    /// Hashes of the tombstones that end with their inode, by its number.
    of_numbers: BTreeSet<(InodeNumber, u64)>,
}

impl Kept {
    /// A durable record of this key replaces `old`, and the tombstone of the key. If the record is a tombstone itself,
    /// [`Self::add_tombstone`] follows.
    pub fn replaced(&mut self, heap: &Heap, hash: u64, old: Option<SlotId>) {
        let tombstone = self.remove_tombstone(hash).map(|tombstone| tombstone.slot);
        for slot in old.into_iter().chain(tombstone) {
            self.stale.add(hash, &mut NoInlineCounts);
            heap.drop_record(slot);
        }
    }

    /// Makes a tombstone the current record of its key.
    pub fn add_tombstone(&mut self, hash: u64, tombstone: Tombstone) {
        self.tombstones.insert(hash, tombstone);
        if tombstone.ends_with_its_inode() {
            self.of_numbers.insert((tombstone.number, hash));
        }
    }

    /// The slot of a key's tombstone.
    pub(crate) fn tombstone(&self, hash: u64) -> Option<SlotId> {
        self.tombstones.get(&hash).map(|tombstone| tombstone.slot)
    }

    /// The compactor has moved a key's tombstone.
    pub(crate) fn move_tombstone(&mut self, hash: u64, slot: SlotId) {
        if let Some(tombstone) = self.tombstones.get_mut(&hash) {
            tombstone.slot = slot;
        }
    }

    fn remove_tombstone(&mut self, hash: u64) -> Option<Tombstone> {
        let tombstone = self.tombstones.remove(&hash)?;
        self.of_numbers.remove(&(tombstone.number, hash));
        Some(tombstone)
    }

    /// Notes that a copy of a record is about to be made.
    pub fn announce_copy(&mut self, hash: u64) {
        self.stale.announce(hash, &mut NoInlineCounts);
    }

    /// Notes that an announced copy was made.
    pub fn settle_copy(&mut self, hash: u64) {
        self.stale.settle(hash);
    }

    /// Notes that an announced copy was not made.
    pub fn withdraw_copy(&mut self, heap: &Heap, hash: u64) {
        if self.stale.withdraw(hash, &mut NoInlineCounts) {
            self.retire_tombstone(heap, hash);
        }
    }

    /// Notes that a stale record has left the medium. With the last one of a key its tombstone is retired.
    pub fn drop_stale(&mut self, heap: &Heap, hash: u64) {
        if self.stale.remove(hash, &mut NoInlineCounts) {
            self.retire_tombstone(heap, hash);
        }
    }

    fn retire_tombstone(&mut self, heap: &Heap, hash: u64) {
        let slot = self.tombstone(hash);
        if slot.is_some_and(|slot| heap.retire_tombstone(slot)) {
            self.remove_tombstone(hash);
            // The tombstone's own record is still on the medium.
            self.stale.add(hash, &mut NoInlineCounts);
        }
    }

    /// Retires the tombstones of names, data and extended attributes of an inode whose own tombstone is durable.
    pub fn forget_number(&mut self, heap: &Heap, number: InodeNumber) {
        let of_number = (number, 0)..=(number, u64::MAX);
        let hashes: Vec<u64> = self.of_numbers.range(of_number).map(|(_, hash)| *hash).collect();
        for hash in hashes {
            if let Some(tombstone) = self.remove_tombstone(hash) {
                heap.drop_record(tombstone.slot);
            }
        }
    }
}
