//! Names in directories: which of them count.

use super::notes::Notes;
use super::records::names_in;
use crate::directory::DirectoryError;
use crate::error::FsError;
use crate::inode::FileType;
use crate::key::InodeNumber;
use crate::name::Name;
use crate::names::{NameEntry, Position};
use crate::state::State;
use crate::tree::Unread;
use landfall_heap::{Damage, HeapError, SlotId};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// An entry, and the directory that has it.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) directory: InodeNumber,
    pub(super) entry: NameEntry,
}

/// All entries of published directories, in order.
pub(super) fn all(state: &State) -> Result<Vec<Named>, FsError> {
    let mut all = Vec::new();
    let mut names = state.stored.names.iter().peekable();
    while let Some(((directory, first), slot)) = names.next() {
        let next = names.peek().filter(|((other, _), _)| other == directory);
        let end = next.map_or(Position(u64::MAX), |((_, first), _)| *first);
        let names = names_in(state, *slot, *first, end)?;
        all.extend(names.entries().iter().map(|entry| Named { directory: *directory, entry: entry.clone() }));
    }
    Ok(all)
}

/// Directories whose first record of names does not have position 0.
pub(super) fn without_start(state: &State) -> BTreeSet<InodeNumber> {
    let all: BTreeSet<InodeNumber> = state.stored.names.keys().map(|(number, _)| *number).collect();
    let has_start = |number: &InodeNumber| state.stored.names.contains_key(&(*number, Position(0)));
    all.into_iter().filter(|number| !has_start(number)).collect()
}

/// Reads all names of a directory, so that they can be changed.
pub(super) fn load(state: &mut State, directory: InodeNumber) -> Result<(), FsError> {
    state.node(directory)?;
    // What is in memory may have been divided since: the record on the medium does not fit any more.
    let unread = state.tree.directory_mut(directory).map(|names| names.unread()).unwrap_or_default();
    for first in unread {
        state.load(Unread::Names(directory, first))?;
    }
    if let Some(names) = state.tree.directory_mut(directory) {
        names.begin_at_start();
    }
    state.tree.note_unpublished([directory]);
    Ok(())
}

pub(super) fn hash(state: &State, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, state.header.seed_in(&state.heap))
}

fn good(name: &[u8]) -> Result<Name<'_>, FsError> {
    let damaged = HeapError::Damaged { slot: SlotId::NONE, what: Damage::RecordFields };
    Name::new(name).map_err(|_| FsError::Heap(damaged))
}

fn in_directory<T>(done: Result<T, DirectoryError>) -> Result<T, FsError> {
    done.map_err(|error| match error {
        DirectoryError::Full => HeapError::Full.into(),
        DirectoryError::Unread(_) => {
            HeapError::Damaged { slot: SlotId::NONE, what: Damage::RecordFields }.into()
        }
    })
}

/// Removes an entry.
pub(super) fn remove(state: &mut State, directory: InodeNumber, position: Position) -> Result<(), FsError> {
    load(state, directory)?;
    let Some(names) = state.tree.directory_mut(directory) else { return Ok(()) };
    in_directory(names.remove(position)).map(drop)
}

/// Adds an entry. Returns false if there is one of the name, or no position for it.
pub(super) fn insert(
    state: &mut State,
    directory: InodeNumber,
    name: &[u8],
    (number, file_type): (InodeNumber, FileType),
) -> Result<bool, FsError> {
    load(state, directory)?;
    let (name, hash) = (good(name)?, hash(state, name));
    let Some(names) = state.tree.directory_mut(directory) else { return Ok(false) };
    if in_directory(names.find(name, hash))?.is_some() {
        return Ok(false);
    }
    match names.insert(name, hash, number, file_type) {
        Err(DirectoryError::Full) => Ok(false),
        inserted => in_directory(inserted).map(|_| true),
    }
}

/// Makes an entry say another type.
fn retype(state: &mut State, directory: InodeNumber, entry: &NameEntry, is: FileType) -> Result<(), FsError> {
    load(state, directory)?;
    let Some(names) = state.tree.directory_mut(directory) else { return Ok(()) };
    in_directory(names.replace(entry.position, entry.number, is)).map(drop)
}

/// Makes an entry what it should be: of the inode's type, and where it is looked for. Returns false if it had to go.
pub(super) fn settle(
    state: &mut State,
    Named { directory, entry }: &Named,
    is: FileType,
    notes: &mut Notes,
) -> Result<bool, FsError> {
    let name = entry.name().escape_ascii();
    if entry.file_type != is {
        notes.of(*directory, format!("its name \"{name}\" says {is:?} now, as its inode does"));
        retype(state, *directory, entry, is)?;
    }
    if Position::candidates(hash(state, entry.name())).contains(&entry.position) {
        return Ok(true);
    }
    remove(state, *directory, entry.position)?;
    let is_kept = insert(state, *directory, entry.name(), (entry.number, is))?;
    notes.of(
        *directory,
        match is_kept {
            true => format!("its name \"{name}\" is put where it is looked for"),
            false => format!("its name \"{name}\", which no lookup found, is removed: there is another one"),
        },
    );
    Ok(is_kept)
}

/// The entry of each directory that counts: that in its parent, or else the first one. Those that do not lead to the root
/// are left out, one for each cycle.
pub(super) fn of_directories(
    all: &[Named],
    parents: &BTreeMap<InodeNumber, InodeNumber>,
) -> BTreeMap<InodeNumber, usize> {
    let mut counting: BTreeMap<InodeNumber, usize> = BTreeMap::new();
    for (at, named) in all.iter().enumerate() {
        let number = named.entry.number;
        let Some(parent) = parents.get(&number) else { continue };
        if number == InodeNumber::ROOT || !parents.contains_key(&named.directory) {
            continue;
        }
        let known = counting.entry(number).or_insert(at);
        if all[*known].directory != *parent && named.directory == *parent {
            *known = at;
        }
    }
    cut_cycles(all, &mut counting);
    counting
}

fn cut_cycles(all: &[Named], counting: &mut BTreeMap<InodeNumber, usize>) {
    let mut done = BTreeSet::from([InodeNumber::ROOT]);
    let directories: Vec<InodeNumber> = counting.keys().copied().collect();
    for start in directories {
        let (mut way, mut at) = (BTreeSet::new(), start);
        while !done.contains(&at) && way.insert(at) {
            match counting.get(&at) {
                Some(entry) => at = all[*entry].directory,
                None => break,
            }
        }
        // It ends where it has been already: in a cycle, unless at a directory without a name.
        if way.contains(&at) {
            counting.remove(&at);
        }
        done.append(&mut way);
    }
}
