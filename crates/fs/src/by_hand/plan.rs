//! Whole trees.

use super::{Draft, World, attributes, bound, data, draft, header};
use crate::inode::{ATTRIBUTE_BYTES, FileType, Inode, Mode};
use crate::key::{InodeNumber, NamesKey};
use crate::name::Name;
use crate::names::{NameEntry, Names, Position};
use landfall_heap::{Kind, spaces};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Seed of the hashes of names in [`World`].
const SEED: u64 = 2;

/// What is written of a tree.
pub(crate) struct Plan {
    pub(crate) inodes: BTreeMap<u64, Inode>,
    /// Directory, name, inode, and the type that the entry says.
    pub(crate) names: Vec<(u64, &'static str, u64, FileType)>,
    pub(crate) others: Vec<Draft>,
    /// Added to the position of each name.
    pub(crate) shift: u64,
}

pub(crate) fn attributes_of(file_type: FileType, nlink: u32, size: u64, extra: u64) -> Inode {
    let inode = Inode::decode(&attributes(), ATTRIBUTE_BYTES as u64).expect("attributes");
    Inode { mode: Mode::new(file_type, 0o755), nlink, size, extra, ..inode }
}

impl Plan {
    /// `/a` and `/d/b` are one file. Another one has no name any more, and was open.
    pub(crate) fn new() -> Self {
        let inodes = BTreeMap::from([
            (1, attributes_of(FileType::Directory, 3, 2, 1)),
            (7, attributes_of(FileType::File, 2, 5000, 0)),
            (8, attributes_of(FileType::Directory, 2, 1, 1)),
            (9, attributes_of(FileType::File, 0, 0, 0)),
        ]);
        let names =
            vec![(1, "a", 7, FileType::File), (1, "d", 8, FileType::Directory), (8, "b", 7, FileType::File)];
        Self { inodes, names, others: vec![header(1), bound(1, 0), data(7, 0, &[1; 5000])], shift: 0 }
    }

    pub(crate) fn inode(&mut self, number: u64) -> &mut Inode {
        self.inodes.get_mut(&number).expect("planned")
    }

    pub(crate) fn drafts(mut self) -> Vec<Draft> {
        let mut drafts = std::mem::take(&mut self.others);
        for (number, inode) in &self.inodes {
            let key = InodeNumber(*number).key();
            let aux = u32::from(inode.nlink == 0);
            drafts.push(Draft { aux, ..draft(Kind::Put, spaces::FILES_INODE, &key, &inode.encode()) });
        }
        let mut of_directory: BTreeMap<u64, Names> = BTreeMap::new();
        for (directory, name, number, file_type) in &self.names {
            let name = Name::new(name.as_bytes()).expect("a good name");
            let first = Position::candidates(xxh3_64_with_seed(name.bytes(), SEED)).start().0;
            let entry = NameEntry::new(Position(first + self.shift), InodeNumber(*number), *file_type, name);
            of_directory.entry(*directory).or_default().insert(entry);
        }
        for (directory, names) in of_directory {
            let key = NamesKey { directory: InodeNumber(directory), first: 0 }.encode();
            drafts.push(draft(Kind::Put, spaces::FILES_NAMES, &key, &names.encode()));
        }
        drafts
    }

    /// The bytes of a region with the tree.
    pub(crate) fn image(self) -> Vec<u8> {
        let mut world = World::new();
        world.publish(&self.drafts());
        world.image()
    }
}
