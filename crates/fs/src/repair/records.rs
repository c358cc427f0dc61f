//! Records that cannot be read, or that mean nothing.

use super::notes::Notes;
use crate::build::Record;
use crate::directory::Directory;
use crate::error::FsError;
use crate::inode::{FileType, Inode};
use crate::key::InodeNumber;
use crate::names::{Names, Position};
use crate::node::{Body, Extended, Ids, Node, decode_extended};
use crate::open::OpenFiles;
use crate::recover::DamagedRecord;
use crate::state::{State, interval_of};
use landfall_heap::{Damage, HeapError, SlotId, spaces};
use std::collections::{BTreeMap, BTreeSet};

/// What cannot be read, by inode.
pub(super) type Damaged = BTreeMap<InodeNumber, Vec<DamagedRecord>>;

/// What damage hides is `None`. What a newer release has written is no damage.
pub(super) fn readable<T>(read: Result<T, FsError>) -> Result<Option<T>, FsError> {
    match read {
        Err(FsError::Heap(HeapError::Damaged { what, .. })) if what != Damage::Newer => Ok(None),
        read => read.map(Some),
    }
}

/// True for the record of the root's inode. It is written again, and not deleted.
pub(super) fn is_root(number: InodeNumber, space: u8) -> bool {
    (number, space) == (InodeNumber::ROOT, spaces::FILES_INODE)
}

/// The records that need tombstones. Records of numbers without an inode are forgotten: they mean nothing. Those of an
/// inode that an operation makes again, one of `made`, get tombstones: they would be the new one's.
pub(super) fn unreadable(
    state: &mut State,
    (damaged, made): (&Damaged, &BTreeSet<InodeNumber>),
    notes: &mut Notes,
) -> Result<Vec<Record>, FsError> {
    let mut survey = Survey::new(state, damaged)?;
    let without_inode = survey.without_inode(state);
    let made_again =
        made.iter().filter(|number| survey.lost.contains(number) || without_inode.contains(number));
    let parts: Vec<Record> = made_again.flat_map(|number| no_parts_of(state, *number)).collect();
    for number in without_inode {
        let all = state.stored.take_all_of(number);
        all.into_iter().for_each(|slot| state.heap.drop_record(slot));
    }
    survey.names(state)?;
    survey.data(state)?;
    survey.extended(state)?;
    survey.note(notes);
    let Survey { lost, names, data, extended, .. } = survey;
    let mut dropped: Vec<Record> = lost.into_iter().map(Record::NoInode).collect();
    dropped.extend(parts);
    dropped.extend(names.into_iter().map(|(number, first)| Record::NoNames(number, first)));
    dropped.extend(data.into_iter().map(|(number, first)| Record::NoData(number, first)));
    dropped.extend(extended.into_iter().map(Record::NoExtended));
    Ok(dropped)
}

/// The tombstones of all names, data and extended attributes of a number.
fn no_parts_of(state: &State, number: InodeNumber) -> Vec<Record> {
    let stored = &state.stored;
    let names = stored.names.range((number, Position(0))..=(number, Position(u64::MAX)));
    let names = names.map(|((number, first), _)| Record::NoNames(*number, *first));
    let data = stored.data_from(number, 0).map(|(first, _)| Record::NoData(number, first));
    let extended = stored.extended.contains_key(&number).then_some(Record::NoExtended(number));
    names.chain(data).chain(extended).collect()
}

/// What has to be dropped.
#[derive(Default)]
struct Survey {
    types: BTreeMap<InodeNumber, FileType>,
    lost: BTreeSet<InodeNumber>,
    names: BTreeSet<(InodeNumber, Position)>,
    data: BTreeSet<(InodeNumber, u32)>,
    extended: BTreeSet<InodeNumber>,
}

impl Survey {
    fn new(state: &State, damaged: &Damaged) -> Result<Self, FsError> {
        let mut survey = Self::default();
        for (number, records) in damaged.iter().filter(|(number, _)| number.0 > 0) {
            for record in records {
                let place = record.place;
                match record.space {
                    spaces::FILES_INODE => drop(survey.lost.insert(*number)),
                    spaces::FILES_NAMES => drop(survey.names.insert((*number, Position(place)))),
                    spaces::FILES_DATA => drop(survey.data.insert((*number, place as u32))),
                    _ => drop(survey.extended.insert(*number)),
                }
            }
        }
        for (number, slot) in state.tree.stored_inodes() {
            match readable(inode_in(state, slot))? {
                Some(inode) if !survey.lost.contains(&number) => {
                    survey.types.insert(number, inode.mode.file_type());
                }
                _ => drop(survey.lost.insert(number)),
            }
        }
        // The root is made anew, and keeps its names.
        survey.lost.remove(&InodeNumber::ROOT);
        survey.types.insert(InodeNumber::ROOT, FileType::Directory);
        let parts_of_lost = |number: &InodeNumber| survey.lost.contains(number);
        survey.names.retain(|(number, _)| !parts_of_lost(number));
        survey.data.retain(|(number, _)| !parts_of_lost(number));
        survey.extended.retain(|number| !parts_of_lost(number));
        Ok(survey)
    }

    /// Numbers of records that have no inode, and of which no tombstone says so.
    fn without_inode(&self, state: &State) -> BTreeSet<InodeNumber> {
        let stored = &state.stored;
        let names = stored.names.keys().map(|(number, _)| *number);
        let data = stored.data.keys().map(|(number, _)| *number);
        let all = names.chain(data).chain(stored.extended.keys().copied());
        all.filter(|number| !self.types.contains_key(number) && !self.lost.contains(number)).collect()
    }

    fn names(&mut self, state: &State) -> Result<(), FsError> {
        // What an older version covers that stands in for a damaged one says nothing of the others.
        let kept: Vec<((InodeNumber, Position), SlotId)> = state
            .stored
            .names
            .iter()
            .map(|(key, slot)| (*key, *slot))
            .filter(|(key, _)| self.types.contains_key(&key.0) && !self.names.contains(key))
            .collect();
        for (at, ((number, first), slot)) in kept.iter().enumerate() {
            let next = kept.get(at + 1).filter(|((other, _), _)| other == number);
            let end = next.map_or(Position(u64::MAX), |((_, first), _)| *first);
            let is_directory = self.types[number] == FileType::Directory;
            if !is_directory || readable(names_in(state, *slot, *first, end))?.is_none() {
                self.names.insert((*number, *first));
            }
        }
        Ok(())
    }

    fn data(&mut self, state: &State) -> Result<(), FsError> {
        for ((number, first), slot) in &state.stored.data {
            let Some(file_type) = self.types.get(number) else { continue };
            let is_good = interval_of(&state.heap.record(*slot)?, *first, *slot).is_ok();
            if *file_type != FileType::File || !is_good {
                self.data.insert((*number, *first));
            }
        }
        Ok(())
    }

    fn extended(&mut self, state: &State) -> Result<(), FsError> {
        for (number, slot) in &state.stored.extended {
            if self.types.contains_key(number) && readable(extended_in(state, *slot))?.is_none() {
                self.extended.insert(*number);
            }
        }
        Ok(())
    }

    fn note(&self, notes: &mut Notes) {
        self.lost.iter().for_each(|number| notes.of(*number, "it cannot be read, and is deleted"));
        for (number, first) in &self.names {
            notes.of(*number, format!("its names from position {} on are lost", first.0));
        }
        for (number, first) in &self.data {
            notes.of(*number, format!("its data from block {first} on are lost"));
        }
        self.extended.iter().for_each(|number| notes.of(*number, "its extended attributes are lost"));
    }
}

/// The attributes in an inode's record.
pub(super) fn inode_in(state: &State, slot: SlotId) -> Result<Inode, FsError> {
    let view = state.heap.record(slot)?;
    let value = state.heap.value_bytes(slot, &view)?;
    let inode = Inode::decode(&value, value.len() as u64);
    Ok(inode.map_err(|what| HeapError::Damaged { slot, what })?)
}

/// The entries in a record of names.
pub(super) fn names_in(
    state: &State,
    slot: SlotId,
    first: Position,
    end: Position,
) -> Result<Names, FsError> {
    let view = state.heap.record(slot)?;
    let value = state.heap.value_bytes(slot, &view)?;
    let names = Names::decode(&value, &(first..end));
    Ok(names.map_err(|what| HeapError::Damaged { slot, what })?)
}

/// The attributes in a record of extended attributes.
fn extended_in(state: &State, slot: SlotId) -> Result<Extended, FsError> {
    let view = state.heap.record(slot)?;
    let extended = decode_extended(&state.heap.value_bytes(slot, &view)?);
    Ok(extended.map_err(|what| HeapError::Damaged { slot, what })?)
}

/// Makes a root directory if there is none that can be read. It has the names that are left.
pub(super) fn put_root(
    state: &mut State,
    damaged: &Damaged,
    options: &OpenFiles,
    notes: &mut Notes,
) -> Result<(), FsError> {
    let number = InodeNumber::ROOT;
    let is_damaged = damaged
        .get(&number)
        .is_some_and(|records| records.iter().any(|record| is_root(number, record.space)));
    let read = state.tree.slot(number).map(|slot| inode_in(state, slot)).transpose();
    let is_directory = readable(read)?
        .flatten()
        .is_some_and(|inode| inode.mode.file_type() == FileType::Directory && inode.nlink > 0);
    if is_directory && !is_damaged {
        return Ok(());
    }
    let ids = Ids { uid: options.uid, gid: options.gid };
    let mut root = Node::root(options.mode, ids, options.now_ns);
    let records = state.stored.names.range((number, Position(0))..=(number, Position(u64::MAX)));
    root.body = Body::Directory(Directory::of_records(records.map(|((_, first), slot)| (*first, *slot))));
    if let Some(slot) = state.stored.extended.get(&number) {
        root.extended = extended_in(state, *slot)?;
        root.inode.has_extended = true;
    }
    state.tree.put(number, root);
    notes.of(number, "the root directory is made anew, and keeps the names that can be read");
    Ok(())
}
