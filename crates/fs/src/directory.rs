//! A directory in memory: its records of names, of which those that nobody has needed are not read.

use crate::inode::FileType;
use crate::key::InodeNumber;
use crate::name::Name;
use crate::names::{NameEntry, Names, Position};
use landfall_heap::SlotId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use thiserror::Error;

/// The first position of a directory's first record.
const START: Position = Position(0);
/// Behind all positions.
const END: Position = Position(u64::MAX);

/// Why a directory could not be asked or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DirectoryError {
    /// A record has to be read first ([`Directory::load`]). Nothing was changed: the caller tries again then.
    #[error("the record of names from position {} on is not in memory", .0.0)]
    Unread(Position),
    /// All positions of the name are taken (`ENOSPC`).
    #[error("all positions of the name are taken")]
    Full,
}

/// A record of names.
#[derive(Clone, Debug)]
struct Record {
    /// Its record on the medium, [`SlotId::NONE`] if there is none yet.
    slot: SlotId,
    /// Its entries; `None` until they are read.
    names: Option<Names>,
}

impl Record {
    /// A record that is not on the medium.
    fn new(names: Names) -> Self {
        Self { slot: SlotId::NONE, names: Some(names) }
    }
}

/// What publishing has to write for one record of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamesChange {
    /// A new version with this value.
    Put {
        /// Number of entries.
        count: u32,
        /// The value.
        value: Vec<u8>,
    },
    /// A tombstone.
    Tombstone,
}

/// The entries of a directory.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// By first position. A record covers the positions up to the next one.
    records: BTreeMap<Position, Record>,
    /// Records on the medium whose entries others have taken over, by first position. A new record may have the same one.
    gone: BTreeMap<Position, SlotId>,
    /// First positions of records that were changed since [`Self::take_changes`].
    changed: BTreeSet<Position>,
}

impl Directory {
    /// A directory of which these records are on the medium: their first positions, and where they are.
    pub fn of_records(records: impl IntoIterator<Item = (Position, SlotId)>) -> Self {
        let unread = |(first, slot)| (first, Record { slot, names: None });
        Self { records: records.into_iter().map(unread).collect(), ..Self::default() }
    }

    /// The positions that the record from `first` on covers.
    pub fn covers(&self, first: Position) -> Range<Position> {
        let next = Position(first.0 + 1);
        let end = self.records.range(next..).next().map_or(END, |(next, _)| *next);
        first..end
    }

    /// The record on the medium from `first` on; `None` if it has never been published.
    pub fn slot(&self, first: Position) -> Option<SlotId> {
        let record = self.records.get(&first).map(|record| record.slot);
        record.filter(|slot| *slot != SlotId::NONE).or_else(|| self.gone.get(&first).copied())
    }

    /// Keeps what a record on the medium holds. It has no effect where the entries are in memory already.
    pub fn load(&mut self, first: Position, names: Names) {
        if let Some(record) = self.records.get_mut(&first) {
            record.names.get_or_insert(names);
        }
    }

    /// First positions of the records whose entries are not in memory.
    pub(crate) fn unread(&self) -> Vec<Position> {
        let unread = self.records.iter().filter(|(_, record)| record.names.is_none());
        unread.map(|(first, _)| *first).collect()
    }

    /// The records that cover positions of `positions`, with the part of it that each covers.
    fn covering(
        &self,
        positions: RangeInclusive<Position>,
    ) -> impl Iterator<Item = (Position, RangeInclusive<Position>)> + '_ {
        let (start, end) = positions.into_inner();
        let from = self.records.range(..=start).next_back().map_or(start, |(first, _)| *first);
        self.records.range(from..=end.max(from)).map(move |(first, _)| {
            let last = Position(self.covers(*first).end.0 - 1);
            (*first, start.max(*first)..=end.min(last))
        })
    }

    fn names(&self, first: Position) -> Result<&Names, DirectoryError> {
        let names = self.records.get(&first).and_then(|record| record.names.as_ref());
        names.ok_or(DirectoryError::Unread(first))
    }

    /// The entry of a name. `hash` is the name's, as [`Position::candidates`] takes it.
    ///
    /// # Errors
    /// [`DirectoryError::Unread`].
    pub fn find(&self, name: Name<'_>, hash: u64) -> Result<Option<&NameEntry>, DirectoryError> {
        for (first, part) in self.covering(Position::candidates(hash)) {
            if let Some(entry) = self.names(first)?.find(name, &part) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Adds an entry. The caller has made sure that there is none of this name.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub fn insert(
        &mut self,
        name: Name<'_>,
        hash: u64,
        number: InodeNumber,
        file_type: FileType,
    ) -> Result<Position, DirectoryError> {
        let (first, position) = self.free_position(hash)?;
        let record = self.records.entry(first).or_insert_with(|| Record::new(Names::default()));
        let names = record.names.as_mut().ok_or(DirectoryError::Unread(first))?;
        names.insert(NameEntry::new(position, number, file_type, name));
        let divided = names.divide();
        self.changed.insert(first);
        if let Some(divided) = divided {
            self.put(divided.first, divided.names);
        }
        Ok(position)
    }

    /// Checks that a name which does not exist can be added.
    ///
    /// # Errors
    /// [`DirectoryError`].
    pub(crate) fn check_room(&self, hash: u64) -> Result<(), DirectoryError> {
        self.free_position(hash).map(drop)
    }

    /// A free position of a name, and the record that covers it.
    fn free_position(&self, hash: u64) -> Result<(Position, Position), DirectoryError> {
        let candidates = Position::candidates(hash);
        if self.records.is_empty() {
            return Ok((START, *candidates.start()));
        }
        for (first, part) in self.covering(candidates) {
            if let Some(position) = self.names(first)?.free_position(&part) {
                return Ok((first, position));
            }
        }
        Err(DirectoryError::Full)
    }

    /// Adds a record whose entries are in memory.
    fn put(&mut self, first: Position, names: Names) {
        self.records.insert(first, Record::new(names));
        self.changed.insert(first);
    }

    /// The record that covers a position, if its entries are in memory.
    fn covering_mut(&mut self, position: Position) -> Result<(Position, &mut Names), DirectoryError> {
        let Some((first, record)) = self.records.range_mut(..=position).next_back() else {
            return Err(DirectoryError::Unread(START));
        };
        record.names.as_mut().map(|names| (*first, names)).ok_or(DirectoryError::Unread(*first))
    }

    /// Makes the entry at a position refer to another inode. Returns the entry as it was, `None` if there is none.
    ///
    /// # Errors
    /// [`DirectoryError::Unread`].
    pub fn replace(
        &mut self,
        position: Position,
        number: InodeNumber,
        file_type: FileType,
    ) -> Result<Option<NameEntry>, DirectoryError> {
        let (first, names) = self.covering_mut(position)?;
        let Some(old) = names.remove(position) else { return Ok(None) };
        let mut new = old.clone();
        (new.number, new.file_type) = (number, file_type);
        names.insert(new);
        self.changed.insert(first);
        Ok(Some(old))
    }

    /// Removes the entry at a position. Returns it, `None` if there is none.
    ///
    /// # Errors
    /// [`DirectoryError::Unread`].
    pub fn remove(&mut self, position: Position) -> Result<Option<NameEntry>, DirectoryError> {
        let (first, names) = self.covering_mut(position)?;
        let Some(old) = names.remove(position) else { return Ok(None) };
        self.changed.insert(first);
        self.join(first);
        Ok(Some(old))
    }

    /// Joins a record with the next one if both are short, and removes it when it is empty. A next record that is not in
    /// memory stays as it is: nothing is read for this.
    fn join(&mut self, first: Position) {
        let next = self.covers(first).end;
        let is_read = self.records.get(&next).is_some_and(|record| record.names.is_some());
        if is_read
            && let Some(behind) = self.take(next)
            && let Some(names) = self.records.get_mut(&first).and_then(|record| record.names.as_mut())
            && let Err(behind) = names.join(behind)
        {
            self.put(next, behind);
        }
        let is_empty = self.names(first).is_ok_and(Names::is_empty);
        if !is_empty {
            return;
        }
        // The first record has position 0 as long as there is one: it takes the entries of the next one over.
        let next = self.covers(first).end;
        match self.records.contains_key(&next) {
            true if first == START => {
                if let Some(behind) = self.take(next) {
                    self.put(first, behind);
                }
            }
            _ => drop(self.take(first)),
        }
    }

    /// Takes a record out whose entries are in memory.
    fn take(&mut self, first: Position) -> Option<Names> {
        let names = self.records.get_mut(&first)?.names.take()?;
        let slot = self.records.remove(&first)?.slot;
        if slot != SlotId::NONE {
            self.gone.insert(first, slot);
        }
        self.changed.insert(first);
        Some(names)
    }

    /// The first entry at or behind a position.
    ///
    /// # Errors
    /// [`DirectoryError::Unread`].
    pub fn next(&self, from: Position) -> Result<Option<&NameEntry>, DirectoryError> {
        for (first, part) in self.covering(from..=Position(END.0 - 1)) {
            let entries = self.names(first)?.entries();
            if let Some(entry) = entries.iter().find(|entry| part.contains(&entry.position)) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// What was changed since the last call, by first position. A record that came and went is not there.
    pub fn take_changes(&mut self) -> Vec<(Position, NamesChange)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|first| Some((first, self.change(first)?))).collect()
    }

    fn change(&self, first: Position) -> Option<NamesChange> {
        match self.records.get(&first) {
            Some(record) => {
                let names = record.names.as_ref().expect("what was changed is in memory");
                let count = u32::try_from(names.entries().len()).expect("a record has 4096 bytes");
                Some(NamesChange::Put { count, value: names.encode() })
            }
            None => self.gone.contains_key(&first).then_some(NamesChange::Tombstone),
        }
    }

    /// Gives the first record position 0, if it was lost: a new name may lie before all others. All names are in memory.
    pub(crate) fn begin_at_start(&mut self) {
        let first = self.records.keys().next().copied().filter(|first| *first != START);
        if let Some(names) = first.and_then(|first| self.take(first)) {
            self.put(START, names);
        }
    }

    /// Notes records as changed whose change was not published.
    pub(crate) fn note_unpublished(&mut self, firsts: impl IntoIterator<Item = Position>) {
        self.changed.extend(firsts);
    }

    /// The compactor has moved a record.
    pub(crate) fn moved(&mut self, first: Position, old: SlotId, new: SlotId) {
        let record = self.records.get_mut(&first).map(|record| &mut record.slot);
        let known = record.into_iter().chain(self.gone.get_mut(&first));
        known.filter(|slot| **slot == old).for_each(|slot| *slot = new);
    }

    /// A change has been written: the record from `first` on is in `slot` now, or on the medium no more.
    pub fn published(&mut self, first: Position, slot: Option<SlotId>) {
        match (slot, self.records.get_mut(&first)) {
            (Some(slot), Some(record)) => {
                record.slot = slot;
                self.gone.remove(&first);
            }
            // It was removed while it was being written.
            (Some(slot), None) => drop(self.gone.insert(first, slot)),
            (None, _) => drop(self.gone.remove(&first)),
        }
    }
}

#[cfg(test)]
mod tests;
