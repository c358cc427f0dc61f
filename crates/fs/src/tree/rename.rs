//! Renaming (POSIX.1-2024 `rename`, Linux `renameat2`).

use super::{Tree, TreeError};
use crate::key::InodeNumber;
use crate::name::Name;
use crate::names::NameEntry;
use crate::operation::Operation;

/// A name in a directory.
#[derive(Clone, Copy)]
struct At<'a> {
    parent: InodeNumber,
    name: Name<'a>,
}

impl Tree {
    pub(super) fn rename(&mut self, operation: &Operation<'_>, time_ns: i64) -> Result<(), TreeError> {
        let Operation::Rename { parent, name, new_parent, new_name, no_replace, exchange } = *operation
        else {
            return Err(TreeError::Invalid);
        };
        if no_replace && exchange {
            return Err(TreeError::Invalid);
        }
        let (from, to) = (At { parent, name }, At { parent: new_parent, name: new_name });
        let source = self.find(from.parent, from.name)?.ok_or(TreeError::NotFound)?.clone();
        let target = self.find(to.parent, to.name)?.cloned();
        self.check_move(&source, from, to)?;
        match target {
            Some(_) if no_replace => Err(TreeError::Exists),
            None if exchange => Err(TreeError::NotFound),
            // Two names of one inode, or the same name: POSIX leaves both.
            Some(target) if target.number == source.number => Ok(()),
            Some(target) if exchange => self.exchange((from, &source), (to, &target), time_ns),
            Some(target) => self.move_over((from, &source), (to, &target), time_ns),
            None => self.move_to(from, &source, to, time_ns),
        }
    }

    /// Fails if the inode of `entry` may not move from one directory to the other: a directory does not move below itself.
    fn check_move(&self, entry: &NameEntry, from: At<'_>, to: At<'_>) -> Result<(), TreeError> {
        let is_directory = self.node(entry.number)?.is_directory();
        if !is_directory || from.parent == to.parent {
            return Ok(());
        }
        let mut above = to.parent;
        while above != InodeNumber::ROOT {
            if above == entry.number {
                return Err(TreeError::Invalid);
            }
            above = self.node(above)?.parent().ok_or(TreeError::NotADirectory)?;
        }
        Ok(())
    }

    /// The inode of an entry lies in another directory now.
    fn settle(&mut self, entry: &NameEntry, from: At<'_>, to: At<'_>, time_ns: i64) -> Result<(), TreeError> {
        let node = self.change(entry.number)?;
        node.ctime_ns = time_ns;
        if node.is_directory() && from.parent != to.parent {
            node.inode.extra = to.parent.0;
            self.change(from.parent)?.inode.nlink -= 1;
            self.change(to.parent)?.inode.nlink += 1;
        }
        Ok(())
    }

    fn move_to(
        &mut self,
        from: At<'_>,
        source: &NameEntry,
        to: At<'_>,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        self.add_name(to.parent, to.name, source.number, source.file_type, time_ns)?;
        self.remove_name(from.parent, source, time_ns)?;
        self.settle(source, from, to, time_ns)
    }

    fn move_over(
        &mut self,
        (from, source): (At<'_>, &NameEntry),
        (to, target): (At<'_>, &NameEntry),
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let replaced = self.node(target.number)?;
        match (self.node(source.number)?.is_directory(), replaced.is_directory()) {
            (true, false) => return Err(TreeError::NotADirectory),
            (false, true) => return Err(TreeError::IsADirectory),
            (true, true) if replaced.inode.size > 0 => return Err(TreeError::NotEmpty),
            _ => {}
        }
        let is_directory = replaced.is_directory();
        self.replace_name(to.parent, target, (source.number, source.file_type), time_ns)?;
        self.remove_name(from.parent, source, time_ns)?;
        if is_directory {
            self.change(to.parent)?.inode.nlink -= 1;
        }
        self.drop_link(target.number, time_ns)?;
        self.settle(source, from, to, time_ns)
    }

    fn exchange(
        &mut self,
        (from, source): (At<'_>, &NameEntry),
        (to, target): (At<'_>, &NameEntry),
        time_ns: i64,
    ) -> Result<(), TreeError> {
        self.check_move(target, to, from)?;
        self.replace_name(to.parent, target, (source.number, source.file_type), time_ns)?;
        self.replace_name(from.parent, source, (target.number, target.file_type), time_ns)?;
        self.settle(source, from, to, time_ns)?;
        self.settle(target, to, from, time_ns)
    }
}
