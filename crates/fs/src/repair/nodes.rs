//! Makes what inodes, names and data say of each other fit.

use super::names::{self, Named};
use super::notes::{Notes, Ways};
use super::records::inode_in;
use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX};
use crate::error::FsError;
use crate::inode::{FileType, Inode, Mode};
use crate::key::InodeNumber;
use crate::node::{Ids, Node};
use crate::state::{State, interval_of};
use landfall_heap::HeapError;
use std::collections::{BTreeMap, BTreeSet};

/// The directory for what has no name any more.
const LOST_FOUND: &str = "lost+found";
/// Most names that are tried for an inode in it.
const TRIES_MAX: u32 = 1000;

/// An inode, and what was found of it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    inode: Inode,
    /// Names that refer to it.
    names: u32,
    /// The directory of the last one.
    named_in: InodeNumber,
    /// Entries of a directory, and how many of them are directories.
    entries: u64,
    directories: u32,
}

impl Seen {
    fn new(inode: Inode) -> Self {
        Self { inode, names: 0, named_in: InodeNumber(0), entries: 0, directories: 0 }
    }

    fn file_type(&self) -> FileType {
        self.inode.mode.file_type()
    }

    fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }
}

/// The inodes of a tree under repair.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    seen: BTreeMap<InodeNumber, Seen>,
    /// A name of each inode.
    pub(super) ways: Ways,
    /// Inodes whose records say that they have no name.
    marked: BTreeSet<InodeNumber>,
    /// Inodes that were open and unlinked.
    pub(super) orphans: Vec<InodeNumber>,
    /// The directory for what has no name, once it is needed.
    lost_found: Option<InodeNumber>,
    now_ns: i64,
}

impl Nodes {
    /// Repairs a published tree, in memory. Every record of it can be read. The records of `marked` say that the inode has
    /// no name. Each call of `take_number` gives a number for a new inode.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn repair(
        state: &mut State,
        marked: Vec<InodeNumber>,
        take_number: impl Fn() -> InodeNumber,
        now_ns: i64,
        notes: &mut Notes,
    ) -> Result<Self, FsError> {
        let mut nodes = Self { now_ns, marked: marked.into_iter().collect(), ..Self::default() };
        // The root may be a new one, whose record is not published.
        let stored = state.tree.stored_inodes().filter(|(number, _)| *number != InodeNumber::ROOT);
        for (number, slot) in stored {
            nodes.seen.insert(number, Seen::new(inode_in(state, slot)?));
        }
        let root = state.node(InodeNumber::ROOT)?.inode;
        nodes.seen.insert(InodeNumber::ROOT, Seen::new(root));
        nodes.settle_names(state, notes)?;
        nodes.settle_nameless(state, &take_number, notes)?;
        let ends = settle_data(state, notes)?;
        nodes.settle_attributes(state, &ends, notes)?;
        Ok(nodes)
    }

    fn settle_names(&mut self, state: &mut State, notes: &mut Notes) -> Result<(), FsError> {
        for directory in names::without_start(state) {
            names::load(state, directory)?;
        }
        let all = names::all(state)?;
        let directories = self.seen.iter().filter(|(_, seen)| seen.is_directory());
        let parents = directories.map(|(number, seen)| (*number, InodeNumber(seen.inode.extra))).collect();
        let counting = names::of_directories(&all, &parents);
        for (at, named) in all.iter().enumerate() {
            let number = named.entry.number;
            let name = named.entry.name().escape_ascii();
            let Some(seen) = self.seen.get(&number).copied() else {
                let what = format!("its name \"{name}\" is removed: inode {} does not exist", number.0);
                notes.of(named.directory, what);
                names::remove(state, named.directory, named.entry.position)?;
                continue;
            };
            if seen.is_directory() && counting.get(&number) != Some(&at) {
                let what =
                    format!("its name \"{name}\" is removed: directory {} has another place", number.0);
                notes.of(named.directory, what);
                names::remove(state, named.directory, named.entry.position)?;
                continue;
            }
            if names::settle(state, named, seen.file_type(), notes)? {
                let Named { directory, entry } = named;
                self.add_name(*directory, entry.name(), entry.number, seen.file_type());
            }
        }
        Ok(())
    }

    /// A name counts.
    fn add_name(&mut self, directory: InodeNumber, name: &[u8], number: InodeNumber, file_type: FileType) {
        if let Some(seen) = self.seen.get_mut(&number) {
            seen.names += 1;
            seen.named_in = directory;
        }
        if let Some(seen) = self.seen.get_mut(&directory) {
            seen.entries += 1;
            seen.directories += u32::from(file_type == FileType::Directory);
        }
        self.ways.insert(number, (directory, name.into()));
    }

    /// Inodes without a name go to a directory for them, unless they were open and unlinked.
    fn settle_nameless(
        &mut self,
        state: &mut State,
        take_number: &dyn Fn() -> InodeNumber,
        notes: &mut Notes,
    ) -> Result<(), FsError> {
        let is_nameless =
            |(number, seen): &(&InodeNumber, &Seen)| seen.names == 0 && **number != InodeNumber::ROOT;
        let nameless: Vec<(InodeNumber, Seen)> =
            self.seen.iter().filter(is_nameless).map(|(number, seen)| (*number, *seen)).collect();
        for (number, seen) in nameless {
            if seen.inode.nlink == 0 && seen.entries == 0 {
                // It goes when the files are open, unless an operation gives it a name.
                self.seen.remove(&number);
                self.orphans.push(number);
                if !self.marked.contains(&number) {
                    notes.of(number, "it has no name, and is deleted");
                }
                continue;
            }
            let directory = self.lost_found(state, take_number, notes)?;
            let name = self.put(state, directory, &format!("#{}", number.0), (number, seen.file_type()))?;
            notes.of(number, format!("it has no name, and is in /{LOST_FOUND} as {name} now"));
        }
        Ok(())
    }

    /// Gives an inode a name. Returns it: what was asked for, with a suffix where that is taken.
    fn put(
        &mut self,
        state: &mut State,
        directory: InodeNumber,
        wanted: &str,
        (number, file_type): (InodeNumber, FileType),
    ) -> Result<String, FsError> {
        for suffix in 0..TRIES_MAX {
            let name = if suffix == 0 { wanted.into() } else { format!("{wanted}.{suffix}") };
            if names::insert(state, directory, name.as_bytes(), (number, file_type))? {
                self.add_name(directory, name.as_bytes(), number, file_type);
                return Ok(name);
            }
        }
        Err(HeapError::Full.into())
    }

    fn lost_found(
        &mut self,
        state: &mut State,
        take_number: &dyn Fn() -> InodeNumber,
        notes: &mut Notes,
    ) -> Result<InodeNumber, FsError> {
        if let Some(number) = self.lost_found {
            return Ok(number);
        }
        let is_it = |(_, (directory, name)): &(&InodeNumber, &(InodeNumber, Box<[u8]>))| {
            *directory == InodeNumber::ROOT && **name == *LOST_FOUND.as_bytes()
        };
        let known = self.ways.iter().find(is_it).map(|(number, _)| *number);
        let number = match known.filter(|number| self.seen[number].is_directory()) {
            Some(number) => number,
            None => self.make_lost_found(state, take_number, notes)?,
        };
        self.lost_found = Some(number);
        Ok(number)
    }

    fn make_lost_found(
        &mut self,
        state: &mut State,
        take_number: &dyn Fn() -> InodeNumber,
        notes: &mut Notes,
    ) -> Result<InodeNumber, FsError> {
        let (number, mode) = (take_number(), Mode::new(FileType::Directory, 0o700));
        let mut node = Node::new(mode, Ids { uid: 0, gid: 0 }, InodeNumber::ROOT.0, self.now_ns);
        node.inode.nlink = 2;
        self.seen.insert(number, Seen::new(node.inode));
        state.tree.put(number, node);
        self.put(state, InodeNumber::ROOT, LOST_FOUND, (number, FileType::Directory))?;
        notes.of(number, "it is made for what has no name");
        Ok(number)
    }

    /// Corrects what inodes say of their names and data. `ends` are the ends of data, bytes.
    fn settle_attributes(
        &self,
        state: &mut State,
        ends: &BTreeMap<InodeNumber, u64>,
        notes: &mut Notes,
    ) -> Result<(), FsError> {
        for (number, seen) in &self.seen {
            let is_root = *number == InodeNumber::ROOT;
            let mut inode = seen.inode;
            inode.nlink = seen.names;
            if seen.is_directory() {
                inode.nlink = 2 + seen.directories;
                inode.size = seen.entries;
                inode.extra = if is_root { number.0 } else { seen.named_in.0 };
            }
            inode.size = inode.size.max(ends.get(number).copied().unwrap_or(0));
            inode.has_extended &= state.stored.extended.contains_key(number);
            let is_marked = self.marked.contains(number);
            if is_marked && seen.inode.nlink > 0 {
                notes.of(*number, "its record does not say any more that it has no name");
            }
            if inode != seen.inode || is_marked {
                note_changes(*number, &seen.inode, &inode, notes);
                state.node(*number)?;
                self.set(state, *number, inode);
            }
        }
        Ok(())
    }

    fn set(&self, state: &mut State, number: InodeNumber, inode: Inode) {
        if let Some(node) = state.tree.in_memory_mut(number) {
            node.inode = inode;
            node.ctime_ns = self.now_ns;
        }
        state.tree.note_unpublished([number]);
    }
}

fn note_changes(number: InodeNumber, old: &Inode, new: &Inode, notes: &mut Notes) {
    let rows = [
        ("nlink", u64::from(old.nlink), u64::from(new.nlink)),
        ("size", old.size, new.size),
        ("parent", old.extra, new.extra),
    ];
    for (what, old, new) in rows.iter().filter(|(_, old, new)| old != new) {
        notes.of(number, format!("its {what} was {old}, and is {new} now"));
    }
    if old.has_extended != new.has_extended {
        notes.of(number, "it has no extended attributes any more");
    }
}

/// Blocks that are in two records stay in one. Returns where the data of each file end, bytes.
fn settle_data(state: &mut State, notes: &mut Notes) -> Result<BTreeMap<InodeNumber, u64>, FsError> {
    let (mut ends, mut overlapping) = (BTreeMap::new(), Vec::new());
    let mut last = (InodeNumber(0), 0);
    for ((number, first), slot) in &state.stored.data {
        let view = state.heap.record(*slot)?;
        let interval =
            interval_of(&view, *first, *slot).map_err(|what| HeapError::Damaged { slot: *slot, what })?;
        if last > (*number, u64::from(*first)) {
            overlapping.push((*number, *first));
        }
        let before = if last.0 == *number { last.1 } else { 0 };
        last = (*number, interval.end().max(before));
        if interval.skip().is_some() {
            let end = u64::from(*first) * BLOCK_BYTES + view.value_len() as u64;
            let known = ends.entry(*number).or_insert(end);
            *known = end.max(*known);
        }
    }
    for (number, first) in overlapping {
        state.node(number)?;
        if let Some(data) = state.tree.in_memory_mut(number).and_then(Node::data_mut) {
            let all = 0..BLOCKS_MAX;
            data.note_changes(&[all]);
        }
        state.tree.note_unpublished([number]);
        notes.of(number, format!("its data from block {first} on were in two records, and are in one now"));
    }
    Ok(ends)
}
