//! Slots that cannot be read, by what is known of them.

use super::found::{RecordKey, TreeFound, Version};
use crate::key::OperationKey;
use landfall_heap::{Damage, DamagedSlot, Found, Heap, HeapError, Kind, SlotId, spaces};
use std::collections::BTreeMap;

/// A slot, and the check that failed.
pub(super) type Failed = (SlotId, Damage);

#[derive(Debug, Default)]
pub(super) struct Unreadable {
    /// Records of the tree.
    pub(super) tree: BTreeMap<RecordKey, Vec<Failed>>,
    /// Operations, by client and index.
    pub(super) operations: BTreeMap<(u32, u64), Failed>,
    /// Bounds, by client.
    pub(super) bounds: BTreeMap<u32, Failed>,
    /// Slots of which nothing is known. Each may have been a record of files.
    pub(super) unnamed: u64,
}

impl Unreadable {
    pub(super) fn new(damaged: &[DamagedSlot]) -> Self {
        let mut unreadable = Self::default();
        for slot in damaged {
            match &slot.named {
                Some((space, key, _)) => unreadable.add(*space, key, (slot.slot, slot.what)),
                None => unreadable.unnamed += 1,
            }
        }
        unreadable
    }

    fn add(&mut self, space: u8, key: &[u8], failed: Failed) {
        if let Some(key) = RecordKey::decode(space, key) {
            self.tree.entry(key).or_default().push(failed);
        } else if space != spaces::FILES_LOG {
            self.unnamed += 1;
        } else if let Ok(client) = key.try_into() {
            self.bounds.insert(u32::from_le_bytes(client), failed);
        } else if let Ok(key) = OperationKey::decode(key) {
            self.operations.insert((key.client, key.index), failed);
        } else {
            self.unnamed += 1;
        }
    }

    /// Adds the records of transactions of which nobody knows whether they count. Returns whether something
    /// newer is known of each.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn add_doubtful(
        &mut self,
        heap: &Heap,
        doubtful: &[Found],
        tree: &TreeFound,
        bounds: &BTreeMap<u32, Version>,
    ) -> Result<BTreeMap<SlotId, bool>, HeapError> {
        let mut judged = BTreeMap::new();
        for found in doubtful {
            let version = Version { seq: found.seq, rev: found.rev };
            let Ok(view) = heap.record(found.slot) else {
                self.unnamed += 1;
                continue;
            };
            let key = heap.key(&view)?.to_vec();
            let is_superseded = match (found.kind, RecordKey::decode(found.space, &key)) {
                (Kind::Bound, _) => bounds.get(&found.aux).is_some_and(|newest| *newest > version),
                (_, Some(key)) => tree.has_newer(key, version),
                (_, None) => false,
            };
            judged.insert(found.slot, is_superseded);
            if !is_superseded {
                self.add(found.space, &key, (found.slot, Damage::Undecided));
            }
        }
        Ok(judged)
    }
}
