//! The tree of inodes in memory: which operations it takes, and what they change.
//!
//! An operation is checked whole before it changes anything. If it needs an inode or names that are not in memory, it
//! fails with [`TreeError::Unread`]: the caller reads them, and executes it again.

mod data;
pub(crate) mod extended;
mod medium;
mod names;
mod rename;

use crate::calls::Calls;
use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX};
use crate::directory::Directory;
use crate::inode::{FileType, Mode};
use crate::key::InodeNumber;
use crate::name::Name;
use crate::names::{NameEntry, Position};
use crate::node::{Body, Ids, Node};
use crate::operation::{Attributes, Operation, Stamp};
use landfall_heap::SlotId;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of the longest file: 2³² blocks.
pub const FILE_BYTES_MAX: u64 = BLOCK_BYTES * BLOCKS_MAX;

/// What has to be read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// An inode ([`Tree::load`]).
    Inode(InodeNumber),
    /// The names of a directory from a position on ([`Tree::load_names`]).
    Names(InodeNumber, Position),
}

/// Why the tree does not take an operation. Each has the meaning of the error of POSIX that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TreeError {
    /// Something is not in memory.
    #[error("not in memory")]
    Unread(Unread),
    /// `ENOENT`
    #[error("no such file or directory")]
    NotFound,
    /// `EEXIST`
    #[error("file exists")]
    Exists,
    /// `ENOTDIR`
    #[error("not a directory")]
    NotADirectory,
    /// `EISDIR`
    #[error("is a directory")]
    IsADirectory,
    /// `ENOTEMPTY`
    #[error("directory not empty")]
    NotEmpty,
    /// `EINVAL`
    #[error("invalid argument")]
    Invalid,
    /// `EPERM`
    #[error("operation not permitted")]
    NotPermitted,
    /// `EMLINK`
    #[error("too many links")]
    TooManyLinks,
    /// `ENOSPC`
    #[error("no space left in the directory for this name, or in the inode for this attribute")]
    NoSpace,
    /// `EFBIG`
    #[error("file too large")]
    TooLarge,
    /// `ENODATA`
    #[error("no such attribute")]
    NoAttribute,
}

/// The inodes of a file system.
#[derive(Debug)]
pub struct Tree {
    nodes: BTreeMap<InodeNumber, Node>,
    /// Inodes on the medium, with the slots of their records.
    stored: BTreeMap<InodeNumber, SlotId>,
    /// Inodes on the medium that have been deleted.
    deleted: BTreeSet<InodeNumber>,
    /// Number of all inodes that have not been deleted.
    count: usize,
    /// Seed of the hashes of names.
    seed: u64,
    /// Inodes that have changed, or are deleted, since [`Self::take_changed`].
    changed: BTreeSet<InodeNumber>,
    /// Inodes that the newest operation has changed.
    touched: Vec<InodeNumber>,
    /// Records whose blocks are, in these files too, at other places than their keys say.
    spread: BTreeMap<SlotId, BTreeSet<InodeNumber>>,
    /// Calls of mounts on other machines that were done.
    pub(crate) calls: Calls,
}

impl Tree {
    /// A tree with a root directory and nothing in it.
    pub fn new(seed: u64, mode: u32, uid: u32, gid: u32, time_ns: i64) -> Self {
        let root = Node::root(mode, Ids { uid, gid }, time_ns);
        let nodes = BTreeMap::from([(InodeNumber::ROOT, root)]);
        let changed = BTreeSet::from([InodeNumber::ROOT]);
        Self { nodes, changed, count: 1, ..Self::of_stored(seed, BTreeMap::new()) }
    }

    /// A tree whose inodes are on the medium, in these slots.
    pub fn of_stored(seed: u64, stored: BTreeMap<InodeNumber, SlotId>) -> Self {
        Self {
            nodes: BTreeMap::new(),
            count: stored.len(),
            stored,
            deleted: BTreeSet::new(),
            seed,
            changed: BTreeSet::new(),
            touched: Vec::new(),
            spread: BTreeMap::new(),
            calls: Calls::default(),
        }
    }

    /// Keeps an inode that was read. It has no effect unless it is one that is on the medium and not in memory.
    pub fn load(&mut self, number: InodeNumber, node: Node) {
        if self.is_unread(number) {
            self.nodes.insert(number, node);
        }
    }

    /// Number of inodes, those without a name included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// False: the root is always there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_unread(&self, number: InodeNumber) -> bool {
        !self.nodes.contains_key(&number)
            && !self.deleted.contains(&number)
            && self.stored.contains_key(&number)
    }

    /// Keeps the entries that a record of names holds.
    pub fn load_names(&mut self, number: InodeNumber, first: Position, names: crate::names::Names) {
        if let Some(directory) = self.nodes.get_mut(&number).and_then(Node::directory_mut) {
            directory.load(first, names);
        }
    }

    /// An inode.
    ///
    /// # Errors
    /// [`TreeError::Unread`], [`TreeError::NotFound`].
    pub fn node(&self, number: InodeNumber) -> Result<&Node, TreeError> {
        match self.nodes.get(&number) {
            Some(node) => Ok(node),
            None if self.is_unread(number) => Err(TreeError::Unread(Unread::Inode(number))),
            None => Err(TreeError::NotFound),
        }
    }

    /// The inode, which the operation changes.
    fn change(&mut self, number: InodeNumber) -> Result<&mut Node, TreeError> {
        self.note_changed(number);
        self.nodes.get_mut(&number).ok_or(TreeError::NotFound)
    }

    fn note_changed(&mut self, number: InodeNumber) {
        self.changed.insert(number);
        self.touched.push(number);
    }

    /// The inodes that were changed, made or deleted since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<InodeNumber> {
        std::mem::take(&mut self.changed)
    }

    /// Changes of a directory's names since the last call, and where the directory keeps what was published.
    pub fn directory_mut(&mut self, number: InodeNumber) -> Option<&mut Directory> {
        self.nodes.get_mut(&number).and_then(Node::directory_mut)
    }

    fn hash(&self, name: Name<'_>) -> u64 {
        xxh3_64_with_seed(name.bytes(), self.seed)
    }

    /// Executes an operation that is not a write: all of it, or nothing.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn execute(&mut self, stamp: Stamp, operation: &Operation<'_>) -> Result<(), TreeError> {
        let time_ns = stamp.time_ns;
        match *operation {
            Operation::Create { place, number, mode, uid, gid, rdev } => {
                self.create(place, number, Node::new(mode, Ids { uid, gid }, rdev, time_ns), time_ns)
            }
            Operation::Symlink { parent, name, number, uid, gid, target } => {
                let node = Node::link(target, Ids { uid, gid }, time_ns);
                self.create(Some((parent, name)), number, node, time_ns)
            }
            Operation::Link { parent, name, number, replaces } => {
                self.link((parent, name), number, replaces, time_ns)
            }
            Operation::Unlink { parent, name, is_directory } => {
                self.unlink(parent, name, is_directory, time_ns)
            }
            Operation::Rename { .. } => self.rename(operation, time_ns),
            Operation::SetAttributes { number, attributes } => {
                self.set_attributes(number, &attributes, time_ns)
            }
            Operation::SetExtended { number, name, value } => self.set_extended(number, name, value, time_ns),
            Operation::RemoveExtended { number, name } => self.remove_extended(number, name, time_ns),
            Operation::Release { number } => self.release(number),
            Operation::Call(call) => {
                self.calls.note(&call);
                Ok(())
            }
            Operation::EndCalls { mount } => {
                self.calls.end(mount);
                Ok(())
            }
            Operation::Allocate { number, mode, offset, len } => {
                self.allocate(number, mode, offset..offset.saturating_add(len), time_ns)
            }
            Operation::Clone { number, offset, source, source_offset, len } => {
                let range = source_offset..source_offset.saturating_add(len);
                self.clone_range((source, range), (number, offset), time_ns)
            }
        }
    }

    fn create(
        &mut self,
        place: Option<(InodeNumber, Name<'_>)>,
        number: InodeNumber,
        mut node: Node,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        if self.nodes.contains_key(&number) || self.stored.contains_key(&number) {
            return Err(TreeError::Exists);
        }
        let Some((parent, name)) = place else {
            if node.is_directory() {
                return Err(TreeError::Invalid);
            }
            self.insert(number, node);
            return Ok(());
        };
        let file_type = node.file_type();
        self.add_name(parent, name, number, file_type, time_ns)?;
        node.inode.nlink = 1;
        if file_type == FileType::Directory {
            node.inode.nlink = 2;
            node.inode.extra = parent.0;
            self.change(parent)?.inode.nlink += 1;
        }
        self.insert(number, node);
        Ok(())
    }

    fn link(
        &mut self,
        (parent, name): (InodeNumber, Name<'_>),
        number: InodeNumber,
        replaces: bool,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let node = self.node(number)?;
        if node.is_directory() {
            return Err(TreeError::NotPermitted);
        }
        let (nlink, file_type) = (node.inode.nlink.checked_add(1), node.file_type());
        let nlink = nlink.ok_or(TreeError::TooManyLinks)?;
        match self.find(parent, name)?.filter(|entry| replaces && entry.number != number).cloned() {
            Some(entry) => self.take_name(parent, &entry, (number, file_type), time_ns)?,
            None => self.add_name(parent, name, number, file_type, time_ns)?,
        }
        let node = self.change(number)?;
        node.inode.nlink = nlink;
        node.ctime_ns = time_ns;
        Ok(())
    }

    /// Makes an entry that [`Self::find`] has found refer to another inode. The one that had it loses a name.
    fn take_name(
        &mut self,
        parent: InodeNumber,
        entry: &NameEntry,
        to: (InodeNumber, FileType),
        time_ns: i64,
    ) -> Result<(), TreeError> {
        if self.node(entry.number)?.is_directory() {
            return Err(TreeError::IsADirectory);
        }
        self.replace_name(parent, entry, to, time_ns)?;
        self.drop_link(entry.number, time_ns)
    }

    fn unlink(
        &mut self,
        parent: InodeNumber,
        name: Name<'_>,
        is_directory: bool,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let entry = self.find(parent, name)?.ok_or(TreeError::NotFound)?.clone();
        let node = self.node(entry.number)?;
        match (node.is_directory(), is_directory) {
            (true, false) => return Err(TreeError::IsADirectory),
            (false, true) => return Err(TreeError::NotADirectory),
            (true, true) if node.inode.size > 0 => return Err(TreeError::NotEmpty),
            _ => {}
        }
        self.remove_name(parent, &entry, time_ns)?;
        if is_directory {
            self.change(parent)?.inode.nlink -= 1;
        }
        self.drop_link(entry.number, time_ns)
    }

    /// An inode has lost a name. A directory has just one.
    fn drop_link(&mut self, number: InodeNumber, time_ns: i64) -> Result<(), TreeError> {
        let node = self.change(number)?;
        node.inode.nlink = if node.is_directory() { 0 } else { node.inode.nlink - 1 };
        node.ctime_ns = time_ns;
        Ok(())
    }

    /// Deletes an inode without a name.
    fn release(&mut self, number: InodeNumber) -> Result<(), TreeError> {
        if self.node(number)?.inode.nlink > 0 {
            return Err(TreeError::Invalid);
        }
        self.remove(number);
        Ok(())
    }

    fn insert(&mut self, number: InodeNumber, node: Node) {
        self.count += usize::from(!self.exists(number));
        self.nodes.insert(number, node);
        self.note_changed(number);
    }

    fn exists(&self, number: InodeNumber) -> bool {
        self.nodes.contains_key(&number) || self.is_unread(number)
    }

    fn remove(&mut self, number: InodeNumber) {
        self.count -= usize::from(self.exists(number));
        self.nodes.remove(&number);
        if self.stored.contains_key(&number) {
            self.deleted.insert(number);
        }
        self.note_changed(number);
    }

    fn set_attributes(
        &mut self,
        number: InodeNumber,
        attributes: &Attributes,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let node = self.node(number)?;
        match (attributes.size, &node.body) {
            (None, _) => {}
            (Some(_), Body::Directory(_)) => return Err(TreeError::IsADirectory),
            (Some(size), Body::File(_)) if size > FILE_BYTES_MAX => return Err(TreeError::TooLarge),
            (Some(_), Body::File(_)) => {}
            (Some(_), _) => return Err(TreeError::Invalid),
        }
        let node = self.change(number)?;
        let inode = &mut node.inode;
        if let Some(permissions) = attributes.permissions {
            inode.mode = Mode::new(inode.mode.file_type(), permissions);
        }
        inode.uid = attributes.uid.unwrap_or(inode.uid);
        inode.gid = attributes.gid.unwrap_or(inode.gid);
        inode.atime_ns = attributes.atime_ns.unwrap_or(inode.atime_ns);
        if let (Some(size), Body::File(data)) = (attributes.size, &mut node.body) {
            data.remove(size.div_ceil(BLOCK_BYTES)..BLOCKS_MAX);
            inode.size = size;
            node.mtime_ns = time_ns;
        }
        node.mtime_ns = attributes.mtime_ns.unwrap_or(node.mtime_ns);
        node.ctime_ns = time_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
