//! Where the records of the published tree are. The slots of inodes are in [`crate::Tree`].

use crate::key::InodeNumber;
use crate::names::Position;
use landfall_heap::SlotId;
use std::collections::BTreeMap;

/// Slots of the current records besides those of inodes.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) header: Option<SlotId>,
    /// By directory and first position.
    pub(crate) names: BTreeMap<(InodeNumber, Position), SlotId>,
    /// By file and first block.
    pub(crate) data: BTreeMap<(InodeNumber, u32), SlotId>,
    pub(crate) extended: BTreeMap<InodeNumber, SlotId>,
    /// By client.
    pub(crate) bounds: BTreeMap<u32, SlotId>,
}

impl Stored {
    /// The data records of a file whose first block is at or behind `from`, in order.
    pub(crate) fn data_from(&self, file: InodeNumber, from: u32) -> impl Iterator<Item = (u32, SlotId)> + '_ {
        let all = self.data.range((file, from)..=(file, u32::MAX));
        all.map(|((_, first), slot)| (*first, *slot))
    }

    /// The last data record of a file that begins at or before a block.
    pub(crate) fn data_before(&self, file: InodeNumber, block: u32) -> Option<(u32, SlotId)> {
        let before = self.data.range((file, 0)..=(file, block)).next_back();
        before.map(|((_, first), slot)| (*first, *slot))
    }

    /// Takes out all records of the tree.
    pub(crate) fn take_tree(&mut self) -> Vec<SlotId> {
        let bounds = std::mem::take(&mut self.bounds);
        let Self { header, names, data, extended, .. } =
            std::mem::replace(self, Self { bounds, ..Self::default() });
        let parts = names.into_values().chain(data.into_values()).chain(extended.into_values());
        header.into_iter().chain(parts).collect()
    }

    /// Takes out all records of an inode that is deleted.
    pub(crate) fn take_all_of(&mut self, number: InodeNumber) -> Vec<SlotId> {
        let names: Vec<_> = self.names.range((number, Position(0))..=(number, Position(u64::MAX))).collect();
        let names: Vec<_> = names.into_iter().map(|(key, _)| *key).collect();
        let data: Vec<_> = self.data_from(number, 0).map(|(first, _)| (number, first)).collect();
        let mut slots: Vec<SlotId> = names.iter().filter_map(|key| self.names.remove(key)).collect();
        slots.extend(data.iter().filter_map(|key| self.data.remove(key)));
        slots.extend(self.extended.remove(&number));
        slots
    }
}
