//! Verifies the published tree: `docs/format/fs.md`, "Damage".
//!
//! The region's check has verified each record by then. This one compares what the records say of each other.

use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX};
use crate::inode::{FileType, Inode};
use crate::key::InodeNumber;
use crate::names::{NameEntry, Names, Position};
use crate::recover::Settled;
use landfall_heap::{Damage, HeapError, Keeper, RecordView, SlotId, spaces};
use std::collections::{BTreeMap, BTreeSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most findings that are listed. Further ones are only counted.
pub const TREE_FINDINGS_MAX: usize = 10_000;

/// What a check of the tree has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeChecked {
    /// Number of inodes.
    pub inodes: u64,
    /// Number of names.
    pub names: u64,
    /// Inodes without a name that were still open. They are no damage.
    pub orphans: u64,
    /// Operations that are not published yet. They are executed when the files are opened.
    pub operations: u64,
    /// What is wrong, for people.
    pub findings: Vec<String>,
    /// Number of findings, also of those beyond [`TREE_FINDINGS_MAX`].
    pub findings_count: u64,
}

/// What is known of an inode.
#[derive(Clone, Copy, Debug)]
struct Seen {
    file_type: FileType,
    nlink: u32,
    size: u64,
    /// The parent of a directory.
    parent: InodeNumber,
    /// Names that refer to the inode.
    names: u32,
    /// The directory of the last of these names.
    named_in: InodeNumber,
    /// Entries of a directory, and how many of them are directories.
    entries: u64,
    directories: u32,
}

impl Seen {
    fn new(inode: &Inode) -> Self {
        Self {
            file_type: inode.mode.file_type(),
            nlink: inode.nlink,
            size: inode.size,
            parent: InodeNumber(inode.extra),
            names: 0,
            named_in: InodeNumber(0),
            entries: 0,
            directories: 0,
        }
    }

    fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }
}

/// Verifies the tree that recovery has found. `keeper` reads its records: a region that is open or being checked.
///
/// # Errors
/// [`HeapError::NewerRecord`] for an inode of a newer release; the medium's.
pub fn check_tree(settled: &Settled, keeper: &dyn Keeper) -> Result<TreeChecked, HeapError> {
    let hides = |space: u8| matches!(space, spaces::FILES_INODE | spaces::FILES_NAMES);
    let (heap, header) = (keeper.heap(), settled.header.and_then(|found| found.header.ok()));
    let mut check = TreeCheck {
        settled,
        keeper,
        seed: header.map_or(heap.geometry().hash_seed, |header| header.seed_in(heap)),
        hides_names: settled.damaged.values().flatten().any(|record| hides(record.space)),
        nodes: BTreeMap::new(),
        checked: TreeChecked { operations: settled.report.operations, ..TreeChecked::default() },
    };
    if header.is_some_and(|header| header.under_repair) {
        check.checked.find("a repair has begun, and has not ended".into());
    }
    if settled.has_older_header() {
        check.checked.find("the header of the tree is one of a tree that a copy has replaced".into());
    }
    check.read_inodes()?;
    check.read_names()?;
    check.read_data()?;
    check.compare();
    check.find_damaged_logs();
    Ok(check.checked)
}

struct TreeCheck<'c> {
    settled: &'c Settled,
    keeper: &'c dyn Keeper,
    /// Seed of the positions of names.
    seed: u64,
    /// Some names cannot be read, so that inodes may have names that are not found.
    hides_names: bool,
    nodes: BTreeMap<InodeNumber, Seen>,
    checked: TreeChecked,
}

impl TreeChecked {
    fn find(&mut self, what: String) {
        self.findings_count += 1;
        if self.findings.len() < TREE_FINDINGS_MAX {
            self.findings.push(what);
        }
    }
}

impl TreeCheck<'_> {
    fn find(&mut self, number: InodeNumber, what: String) {
        self.checked.find(format!("inode {}: {what}", number.0));
    }

    /// Reads from a record. `None` if it is damaged, which the check of the region reports.
    fn read<R>(
        &self,
        slot: SlotId,
        read: impl Fn(&RecordView<'_>) -> Result<R, HeapError>,
    ) -> Result<Option<R>, HeapError> {
        let mut result = None;
        let kept = self.keeper.keep(slot, &mut |view| {
            result = Some(read(view)?);
            Ok(false)
        });
        match kept {
            Err(HeapError::Damaged { .. }) => Ok(None),
            kept => kept.map(|_| result),
        }
    }

    fn value(&self, slot: SlotId) -> Result<Option<Vec<u8>>, HeapError> {
        self.read(slot, |view| Ok(self.keeper.heap().value_bytes(slot, view)?.into_owned()))
    }

    fn read_inodes(&mut self) -> Result<(), HeapError> {
        let orphans: BTreeSet<InodeNumber> = self.settled.orphans.iter().copied().collect();
        for (number, slot) in &self.settled.inodes {
            let Some(value) = self.value(*slot)? else {
                self.hides_names = true;
                continue;
            };
            match Inode::decode(&value, value.len() as u64) {
                Ok(inode) => {
                    self.checked.inodes += 1;
                    let has_record = self.settled.extended.contains_key(number);
                    if inode.has_extended && !has_record && !self.is_damaged(*number, spaces::FILES_EXTENDED)
                    {
                        self.find(*number, "its extended attributes are missing".into());
                    }
                    if (inode.nlink == 0) != orphans.contains(number) {
                        let nlink = inode.nlink;
                        self.find(
                            *number,
                            format!("its nlink is {nlink}, and its record says something else"),
                        );
                    }
                    self.nodes.insert(*number, Seen::new(&inode));
                }
                // A repair would delete it.
                Err(Damage::Newer) => return Err(HeapError::NewerRecord { what: "an inode of the files" }),
                Err(what) => {
                    self.hides_names = true;
                    self.find(*number, format!("its attributes are damaged ({what})"));
                }
            }
        }
        Ok(())
    }

    fn is_damaged(&self, number: InodeNumber, space: u8) -> bool {
        let damaged = self.settled.damaged.get(&number);
        damaged.is_some_and(|all| all.iter().any(|record| record.space == space))
    }

    fn read_names(&mut self) -> Result<(), HeapError> {
        let mut names = self.settled.names.iter().peekable();
        while let Some(((directory, first), slot)) = names.next() {
            let next = names.peek().filter(|((other, _), _)| other == directory);
            let end = next.map_or(Position(u64::MAX), |((_, first), _)| *first);
            let Some(value) = self.value(*slot)? else {
                self.hides_names = true;
                continue;
            };
            match Names::decode(&value, &(*first..end)) {
                Ok(names) => names.entries().iter().for_each(|entry| self.note_name(*directory, entry)),
                Err(what) => {
                    self.hides_names = true;
                    self.find(
                        *directory,
                        format!("its names from position {} on are damaged ({what})", first.0),
                    );
                }
            }
        }
        Ok(())
    }

    fn note_name(&mut self, directory: InodeNumber, entry: &NameEntry) {
        self.checked.names += 1;
        let name = entry.name().escape_ascii();
        let hash = xxh3_64_with_seed(entry.name(), self.seed);
        if !Position::candidates(hash).contains(&entry.position) {
            self.find(directory, format!("its name \"{name}\" lies where it is not looked for"));
        }
        if let Some(seen) = self.nodes.get_mut(&directory) {
            seen.entries += 1;
            seen.directories += u32::from(entry.file_type == FileType::Directory);
        }
        if let Some(seen) = self.nodes.get_mut(&entry.number) {
            seen.names += 1;
            seen.named_in = directory;
            let is = seen.file_type;
            if is != entry.file_type {
                let named = entry.file_type;
                self.find(directory, format!("its name \"{name}\" says {named:?}, the inode {is:?}"));
            }
        } else if !self.is_unreadable(entry.number) {
            let number = entry.number.0;
            self.find(
                directory,
                format!("its name \"{name}\" refers to inode {number}, which does not exist"),
            );
        }
    }

    /// True for an inode that exists and cannot be read.
    fn is_unreadable(&self, number: InodeNumber) -> bool {
        self.settled.inodes.contains_key(&number) || self.is_damaged(number, spaces::FILES_INODE)
    }

    fn read_data(&mut self) -> Result<(), HeapError> {
        let mut end_of_last = (InodeNumber(0), 0);
        for ((number, first), slot) in &self.settled.data {
            let Some((len, reserved)) = self.read(*slot, |view| Ok((view.value_len() as u64, view.aux())))?
            else {
                continue;
            };
            let blocks = if reserved > 0 { u64::from(reserved) } else { len.div_ceil(BLOCK_BYTES) };
            let (start, end) = (u64::from(*first), u64::from(*first) + blocks);
            if blocks == 0 || end > BLOCKS_MAX || reserved > 0 && len > 0 {
                let what = Damage::RecordFields;
                self.find(*number, format!("its data from block {first} on are damaged ({what})"));
                continue;
            }
            if end_of_last > (*number, start) {
                self.find(*number, format!("its data from block {first} on are in two records"));
            }
            end_of_last = (*number, end);
            let Some(seen) = self.nodes.get(number).copied() else { continue };
            if seen.file_type != FileType::File {
                self.find(*number, format!("it has data and is a {:?}", seen.file_type));
            } else if reserved == 0 && start * BLOCK_BYTES + len > seen.size {
                self.find(*number, format!("its data from block {first} on end behind its size"));
            }
        }
        Ok(())
    }

    /// Compares what the inodes say with the names that were found.
    fn compare(&mut self) {
        let settled = self.settled;
        if settled.header.is_none() && !settled.inodes.is_empty() {
            self.find(InodeNumber::ROOT, "the header of the tree is missing".into());
        }
        let has_tree = settled.header.is_some() || !settled.inodes.is_empty();
        let has_root = settled.inodes.contains_key(&InodeNumber::ROOT);
        if has_tree && !has_root && !self.is_damaged(InodeNumber::ROOT, spaces::FILES_INODE) {
            self.find(InodeNumber::ROOT, "the root is missing".into());
        }
        let nodes: Vec<(InodeNumber, Seen)> =
            self.nodes.iter().map(|(number, seen)| (*number, *seen)).collect();
        for (number, seen) in &nodes {
            self.compare_links(*number, seen);
            if seen.is_directory() {
                self.compare_directory(*number, seen);
            } else if seen.entries > 0 {
                self.find(*number, format!("it has names and is a {:?}", seen.file_type));
            }
        }
        self.find_unreachable(&nodes);
    }

    fn compare_links(&mut self, number: InodeNumber, seen: &Seen) {
        let is_root = number == InodeNumber::ROOT;
        let (names, nlink) = (seen.names, seen.nlink);
        let expected = match (seen.is_directory(), nlink) {
            (_, 0) => 0,
            (true, _) => u32::from(!is_root),
            (false, _) => nlink,
        };
        self.checked.orphans += u64::from(nlink == 0 && names == 0);
        if names > expected || names < expected && !self.hides_names {
            let what = match (names, seen.is_directory()) {
                (0, _) => format!("it has no name, and its nlink is {nlink}"),
                (_, true) => format!("{names} names refer to the directory"),
                (_, false) => format!("its nlink is {nlink}, and {names} names refer to it"),
            };
            self.find(number, what);
        }
    }

    fn compare_directory(&mut self, number: InodeNumber, seen: &Seen) {
        let is_partial = self.hides_names;
        let links = 2 + seen.directories;
        if seen.nlink > 0 && (seen.nlink < links || seen.nlink > links && !is_partial) {
            let count = seen.directories;
            self.find(number, format!("its nlink is {}, and it has {count} directories", seen.nlink));
        }
        if seen.size < seen.entries || seen.size > seen.entries && !is_partial {
            self.find(number, format!("it should have {} entries, and has {}", seen.size, seen.entries));
        }
        if seen.names > 0 && seen.named_in != seen.parent {
            let (parent, named_in) = (seen.parent.0, seen.named_in.0);
            self.find(number, format!("its parent is inode {parent}, and its name is in inode {named_in}"));
        }
    }

    fn find_damaged_logs(&mut self) {
        for (client, log) in &self.settled.logs {
            let Some(damage) = log.damage else { continue };
            let what = damage.index.map_or("its bound".into(), |index| format!("operation {index}"));
            let (count, damage) = (log.behind.len(), damage.what);
            self.checked.find(format!(
                "log of client {client}: {what} is damaged ({damage}); {count} operations are kept, and not executed"
            ));
        }
    }

    /// Every directory that has a name is below the root.
    fn find_unreachable(&mut self, nodes: &[(InodeNumber, Seen)]) {
        let mut reached = BTreeSet::from([InodeNumber::ROOT]);
        for (number, seen) in nodes.iter().filter(|(_, seen)| seen.is_directory() && seen.names > 0) {
            let (mut way, mut at) = (BTreeSet::new(), Some((*number, *seen)));
            let is_reached = loop {
                match at {
                    Some((number, _)) if reached.contains(&number) => break true,
                    Some((number, seen)) if way.insert(number) => {
                        at = self.nodes.get(&seen.named_in).map(|parent| (seen.named_in, *parent));
                    }
                    // Where names are hidden, nobody knows.
                    None => break self.hides_names,
                    Some(_) => break false,
                }
            };
            if is_reached {
                reached.append(&mut way);
            } else {
                self.find(*number, "it cannot be reached from the root".into());
            }
        }
    }
}

#[cfg(test)]
mod tests;
