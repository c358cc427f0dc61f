//! What of the tree is on the medium, and where.

use super::Tree;
use crate::data_map::{BLOCKS_MAX, Interval, Replaced};
use crate::key::InodeNumber;
use crate::node::Node;
use landfall_heap::SlotId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::ops::Range;

impl Tree {
    /// The slot of an inode's record.
    pub(crate) fn slot(&self, number: InodeNumber) -> Option<SlotId> {
        self.stored.get(&number).copied()
    }

    /// An inode in memory.
    pub(crate) fn in_memory(&self, number: InodeNumber) -> Option<&Node> {
        self.nodes.get(&number)
    }

    /// As [`Self::in_memory`], for what changes no operation's result.
    pub(crate) fn in_memory_mut(&mut self, number: InodeNumber) -> Option<&mut Node> {
        self.nodes.get_mut(&number)
    }

    /// The inode's record is in `slot` now. Returns where it was.
    pub(crate) fn note_stored(&mut self, number: InodeNumber, slot: SlotId) -> Option<SlotId> {
        // It was deleted while its record was being written.
        if !self.nodes.contains_key(&number) {
            self.deleted.insert(number);
        }
        self.stored.insert(number, slot)
    }

    /// The compactor has moved an inode's record.
    pub(crate) fn note_moved(&mut self, number: InodeNumber, slot: SlotId) {
        self.stored.insert(number, slot);
    }

    /// The inode is on the medium no more. Returns where it was.
    pub(crate) fn note_gone(&mut self, number: InodeNumber) -> Option<SlotId> {
        let (was_deleted, slot) = (self.deleted.remove(&number), self.stored.remove(&number));
        // A repair drops records of inodes that no operation has deleted.
        let is_gone = !was_deleted && slot.is_some() && !self.nodes.contains_key(&number);
        self.count -= usize::from(is_gone);
        slot
    }

    /// The inodes on the medium that have not been deleted.
    pub(crate) fn stored_inodes(&self) -> impl Iterator<Item = (InodeNumber, SlotId)> + '_ {
        let stored = self.stored.iter().map(|(number, slot)| (*number, *slot));
        stored.filter(|(number, _)| !self.deleted.contains(number))
    }

    /// The slots of the inodes on the medium with higher numbers, in order.
    pub(crate) fn stored_after(&self, number: InodeNumber) -> impl Iterator<Item = SlotId> + '_ {
        self.stored.range((Excluded(number), Unbounded)).map(|(_, slot)| *slot)
    }

    /// Takes out where the inodes on the medium are.
    pub(crate) fn take_stored(&mut self) -> BTreeMap<InodeNumber, SlotId> {
        std::mem::take(&mut self.stored)
    }

    /// Inodes in memory to which no name refers.
    pub(crate) fn orphans_in_memory(&self) -> Vec<InodeNumber> {
        let orphans = self.nodes.iter().filter(|(_, node)| node.inode.nlink == 0);
        orphans.map(|(number, _)| *number).collect()
    }

    /// Deletes an inode without a name that recovery has found.
    pub(crate) fn delete_orphan(&mut self, number: InodeNumber) {
        self.remove(number);
    }

    /// An inode that an operation has not made: its record on the medium, if there is one, is replaced.
    pub(crate) fn put(&mut self, number: InodeNumber, node: Node) {
        self.insert(number, node);
    }

    /// Forgets inodes that are on the medium as they are in memory, if more than `most` are in memory: half of them stay.
    pub(crate) fn evict(&mut self, most: usize) {
        if self.nodes.len() <= most {
            return;
        }
        let (mut excess, changed, stored) = (self.nodes.len() - most / 2, &self.changed, &self.stored);
        self.nodes.retain(|number, _| {
            let goes = excess > 0 && !changed.contains(number) && stored.contains_key(number);
            excess -= usize::from(goes);
            !goes
        });
    }

    /// Files in memory with written blocks in other records than these.
    pub(crate) fn files_with_blocks_outside(&self, records: &BTreeSet<SlotId>) -> Vec<InodeNumber> {
        let is_outside = |part: Interval| part.skip().is_some() && !records.contains(&part.slot);
        let outside = |node: &Node| node.data().is_some_and(|data| data.parts(0..BLOCKS_MAX).any(is_outside));
        self.nodes.iter().filter(|(_, node)| outside(node)).map(|(number, _)| *number).collect()
    }

    /// Files in memory with written blocks in any of these records.
    pub(crate) fn files_with_blocks_in(&self, records: &BTreeSet<SlotId>) -> Vec<InodeNumber> {
        let is_in = |part: Interval| part.skip().is_some() && records.contains(&part.slot);
        let within = |node: &Node| node.data().is_some_and(|data| data.parts(0..BLOCKS_MAX).any(is_in));
        self.nodes.iter().filter(|(_, node)| within(node)).map(|(number, _)| *number).collect()
    }

    /// Notes inodes as changed whose change was not published, or was no operation's.
    pub(crate) fn note_unpublished(&mut self, numbers: impl IntoIterator<Item = InodeNumber>) {
        self.changed.extend(numbers);
    }

    /// True if there is something to publish.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Inodes that the operations since the last call have changed.
    pub(crate) fn take_touched(&mut self) -> Vec<InodeNumber> {
        std::mem::take(&mut self.touched)
    }

    /// Notes that blocks of these records are in a file at places that the records' keys do not say.
    pub(super) fn note_spread(&mut self, parts: &[Interval], file: InodeNumber) {
        for part in parts.iter().filter(|part| part.skip().is_some()) {
            self.spread.entry(part.slot).or_default().insert(file);
        }
    }

    /// Another record holds blocks of a file that are in `range`.
    pub(crate) fn replace_blocks(&mut self, file: InodeNumber, range: Range<u64>, replaced: &Replaced) {
        if let Some(data) = self.nodes.get_mut(&file).and_then(Node::data_mut) {
            data.replace(range, replaced);
        }
    }

    /// Another record holds the blocks of files to which they have spread. Those that have got records of their own with
    /// the same chunk must have them already ([`Self::replace_blocks`]).
    pub(crate) fn replace_spread(&mut self, replaced: &Replaced) {
        let Some(files) = self.spread.get(&replaced.old).cloned() else { return };
        for file in &files {
            if let Some(data) = self.nodes.get_mut(file).and_then(Node::data_mut) {
                data.replace(0..BLOCKS_MAX, replaced);
            }
        }
        self.spread.entry(replaced.new).or_default().extend(files);
    }

    /// Forgets which blocks have spread, as far as they are published: they have records of their own then.
    pub(crate) fn end_spread(&mut self) {
        let changed: &BTreeSet<InodeNumber> = &self.changed;
        self.spread.retain(|_, files| {
            files.retain(|file| changed.contains(file));
            !files.is_empty()
        });
    }

    /// True if blocks of a record have spread.
    pub(crate) fn has_spread(&self, slot: SlotId) -> bool {
        self.spread.contains_key(&slot)
    }
}
