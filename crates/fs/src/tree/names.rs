//! Names in directories.

use super::{Tree, TreeError, Unread};
use crate::directory::{Directory, DirectoryError};
use crate::inode::FileType;
use crate::key::InodeNumber;
use crate::name::Name;
use crate::names::{NameEntry, Position};
use crate::node::Node;

fn in_directory(number: InodeNumber) -> impl Fn(DirectoryError) -> TreeError {
    move |error| match error {
        DirectoryError::Unread(first) => TreeError::Unread(Unread::Names(number, first)),
        DirectoryError::Full => TreeError::NoSpace,
    }
}

impl Tree {
    /// The entries of a directory that can be reached.
    fn entries(&self, number: InodeNumber) -> Result<&Directory, TreeError> {
        let node = self.node(number)?;
        let directory = node.directory().ok_or(TreeError::NotADirectory)?;
        if node.inode.nlink == 0 { Err(TreeError::NotFound) } else { Ok(directory) }
    }

    /// The entry of a name in a directory.
    ///
    /// # Errors
    /// [`TreeError::Unread`], [`TreeError::NotFound`] without such a directory, [`TreeError::NotADirectory`].
    pub fn find(&self, parent: InodeNumber, name: Name<'_>) -> Result<Option<&NameEntry>, TreeError> {
        self.entries(parent)?.find(name, self.hash(name)).map_err(in_directory(parent))
    }

    /// The first entry of a directory at or behind a position.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub fn next_entry(&self, number: InodeNumber, from: Position) -> Result<Option<&NameEntry>, TreeError> {
        self.entries(number)?.next(from).map_err(in_directory(number))
    }

    fn change_directory(&mut self, number: InodeNumber, time_ns: i64) -> Result<&mut Node, TreeError> {
        let node = self.change(number)?;
        (node.mtime_ns, node.ctime_ns) = (time_ns, time_ns);
        Ok(node)
    }

    /// Adds a name that does not exist. Nothing is changed when it fails.
    pub(super) fn add_name(
        &mut self,
        parent: InodeNumber,
        name: Name<'_>,
        number: InodeNumber,
        file_type: FileType,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        if self.find(parent, name)?.is_some() {
            return Err(TreeError::Exists);
        }
        let hash = self.hash(name);
        let directory = self.directory_mut(parent).ok_or(TreeError::NotADirectory)?;
        directory.insert(name, hash, number, file_type).map_err(in_directory(parent))?;
        self.change_directory(parent, time_ns)?.inode.size += 1;
        Ok(())
    }

    /// Removes an entry that [`Self::find`] has found.
    pub(super) fn remove_name(
        &mut self,
        parent: InodeNumber,
        entry: &NameEntry,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let directory = self.directory_mut(parent).ok_or(TreeError::NotADirectory)?;
        directory.remove(entry.position).map_err(in_directory(parent))?;
        self.change_directory(parent, time_ns)?.inode.size -= 1;
        Ok(())
    }

    /// Checks that a new file can get a name: an operation that gives it does not fail then. Returns the inode that has the
    /// name, which `replaces` allows unless it is a directory.
    pub(crate) fn check_new_name(
        &self,
        parent: InodeNumber,
        name: Name<'_>,
        replaces: bool,
    ) -> Result<Option<InodeNumber>, TreeError> {
        match self.find(parent, name)? {
            Some(_) if !replaces => Err(TreeError::Exists),
            Some(entry) if self.node(entry.number)?.is_directory() => Err(TreeError::IsADirectory),
            Some(entry) => Ok(Some(entry.number)),
            None => {
                self.entries(parent)?.check_room(self.hash(name)).map_err(in_directory(parent))?;
                Ok(None)
            }
        }
    }

    /// Makes an entry that [`Self::find`] has found refer to another inode.
    pub(super) fn replace_name(
        &mut self,
        parent: InodeNumber,
        entry: &NameEntry,
        (number, file_type): (InodeNumber, FileType),
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let directory = self.directory_mut(parent).ok_or(TreeError::NotADirectory)?;
        directory.replace(entry.position, number, file_type).map_err(in_directory(parent))?;
        self.change_directory(parent, time_ns).map(drop)
    }
}
