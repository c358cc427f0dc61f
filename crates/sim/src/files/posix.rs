//! The oracle: what POSIX says that calls make of a tree of files. It shares no code with the file system under test.
//!
//! Each inode knows after how many calls it was changed last. So the model also says what a call of `fsync` promises.

use super::call::{Bytes, Call, Errno, Persist, falloc};
use super::view::{Body, Seen, View, join, name_inodes};
use std::collections::BTreeMap;
use std::sync::Arc;

const ROOT: u64 = 0;
/// Blocks of the file system: shifts of a file's bytes are by whole ones.
const BLOCK: u64 = 4096;

#[derive(Clone, Debug)]
enum Content {
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<String, u64>),
    Link(String),
}

#[derive(Clone, Debug)]
struct Inode {
    content: Content,
    extended: BTreeMap<String, Bytes>,
    /// Number of calls after which it was changed last.
    changed: usize,
}

/// A tree of files. Cheap to clone: contents are shared.
#[derive(Clone, Debug)]
pub struct Posix {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Number of calls so far, refused ones included.
    calls: usize,
}

impl Default for Posix {
    fn default() -> Self {
        let mut posix = Self { inodes: BTreeMap::new(), next: ROOT, calls: 0 };
        posix.insert(Content::Directory(BTreeMap::new()));
        posix
    }
}

impl Posix {
    /// Executes a call: all of it or, where it is refused, nothing.
    ///
    /// # Errors
    /// Why the call is refused.
    pub fn call(&mut self, call: &Call) -> Result<(), Errno> {
        self.calls += 1;
        match call {
            Call::Create { path } => self.add(path, Content::File(Arc::default())),
            Call::Mkdir { path } => self.add(path, Content::Directory(BTreeMap::new())),
            Call::Symlink { target, path } => self.add(path, Content::Link(target.clone())),
            Call::Link { from, to } => self.link(from, to),
            Call::Unlink { path } => self.unlink(path),
            Call::Rmdir { path } => self.rmdir(path),
            Call::Rename { from, to } => self.rename(from, to),
            Call::Write { path, offset, bytes } => {
                let at = *offset as usize;
                self.change_file(path, |file| {
                    if !bytes.0.is_empty() {
                        file.resize(file.len().max(at + bytes.0.len()), 0);
                        file[at..at + bytes.0.len()].copy_from_slice(&bytes.0);
                    }
                    Ok(())
                })
            }
            Call::Truncate { path, size } => self.change_file(path, |file| {
                file.resize(*size as usize, 0);
                Ok(())
            }),
            Call::Allocate { path, mode, offset, len } => {
                self.change_file(path, |file| allocate(file, *mode, *offset, *len))
            }
            Call::SetExtended { path, name, value } => {
                let number = self.find(path)?;
                self.touch(number).extended.insert(name.clone(), value.clone());
                Ok(())
            }
            Call::RemoveExtended { path, name } => {
                let number = self.find(path)?;
                if !self.inodes[&number].extended.contains_key(name) {
                    return Err(Errno::NoAttribute);
                }
                self.touch(number).extended.remove(name);
                Ok(())
            }
        }
    }

    /// Number of calls whose effect is durable once `persist` has returned: none that is known of, if nothing is named so.
    pub fn promised(&self, persist: &Persist) -> usize {
        match persist {
            Persist::Sync => self.calls,
            Persist::Fsync(path) | Persist::Fdatasync(path) => {
                self.find(path).map_or(0, |number| self.inodes[&number].changed)
            }
        }
    }

    /// What a program gets that asks for durability.
    ///
    /// # Errors
    /// Nothing is named so.
    pub fn persist(&self, persist: &Persist) -> Result<(), Errno> {
        match persist {
            Persist::Sync => Ok(()),
            Persist::Fsync(path) | Persist::Fdatasync(path) => self.find(path).map(drop),
        }
    }

    /// Number of calls so far, refused ones included.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// True if a path names something.
    pub fn exists(&self, path: &str) -> bool {
        self.find(path).is_ok()
    }

    /// The size of a file.
    pub fn size(&self, path: &str) -> Option<u64> {
        match &self.inodes[&self.find(path).ok()?].content {
            Content::File(bytes) => Some(bytes.len() as u64),
            _ => None,
        }
    }

    /// Paths of the entries of a directory.
    pub fn entries(&self, path: &str) -> Vec<String> {
        let names = self.find(path).ok().and_then(|number| self.names(number).ok());
        names.into_iter().flat_map(BTreeMap::keys).map(|name| join(path, name)).collect()
    }

    /// True if an inode has an extended attribute.
    pub fn has_extended(&self, path: &str, name: &str) -> bool {
        self.find(path).is_ok_and(|number| self.inodes[&number].extended.contains_key(name))
    }

    /// Number of inodes.
    pub fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    /// The tree as programs see it.
    pub fn view(&self) -> View {
        let (mut view, mut inodes) = (View::new(), BTreeMap::new());
        self.look(ROOT, "", &mut view, &mut inodes);
        name_inodes(&mut view, &inodes);
        view
    }

    fn look(&self, number: u64, path: &str, view: &mut View, inodes: &mut BTreeMap<String, u64>) {
        let inode = &self.inodes[&number];
        let body = match &inode.content {
            Content::File(bytes) => Body::File(Bytes(Arc::clone(bytes))),
            Content::Directory(_) => Body::Directory,
            Content::Link(target) => Body::Link(target.clone()),
        };
        let seen =
            Seen { first: String::new(), nlink: self.nlink(number), body, extended: inode.extended.clone() };
        view.insert(path.to_owned(), seen);
        inodes.insert(path.to_owned(), number);
        if let Content::Directory(names) = &inode.content {
            names.iter().for_each(|(name, child)| self.look(*child, &join(path, name), view, inodes));
        }
    }

    fn nlink(&self, number: u64) -> u32 {
        if let Content::Directory(names) = &self.inodes[&number].content {
            return 2 + names.values().filter(|child| self.is_directory(**child)).count() as u32;
        }
        let names = self.inodes.values().filter_map(|inode| match &inode.content {
            Content::Directory(names) => Some(names.values()),
            _ => None,
        });
        names.flatten().filter(|child| **child == number).count() as u32
    }

    fn is_directory(&self, number: u64) -> bool {
        matches!(self.inodes[&number].content, Content::Directory(_))
    }

    fn names(&self, number: u64) -> Result<&BTreeMap<String, u64>, Errno> {
        match &self.inodes[&number].content {
            Content::Directory(names) => Ok(names),
            _ => Err(Errno::NotADirectory),
        }
    }

    /// The names of a directory, which the call changes.
    fn names_mut(&mut self, number: u64) -> &mut BTreeMap<String, u64> {
        match &mut self.touch(number).content {
            Content::Directory(names) => names,
            other => unreachable!("{other:?} was found to be a directory"),
        }
    }

    fn find(&self, path: &str) -> Result<u64, Errno> {
        let components = path.split('/').filter(|name| !name.is_empty());
        components
            .into_iter()
            .try_fold(ROOT, |number, name| self.names(number)?.get(name).copied().ok_or(Errno::NotFound))
    }

    /// The directory of a path, and the name in it.
    fn place<'p>(&self, path: &'p str) -> Result<(u64, &'p str), Errno> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(parent)?;
        self.names(parent)?;
        Ok((parent, name))
    }

    fn touch(&mut self, number: u64) -> &mut Inode {
        let inode = self.inodes.get_mut(&number).expect("a name refers to an inode");
        inode.changed = self.calls;
        inode
    }

    fn insert(&mut self, content: Content) -> u64 {
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Inode { content, extended: BTreeMap::new(), changed: self.calls });
        number
    }

    fn add(&mut self, path: &str, content: Content) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        if self.names(parent)?.contains_key(name) {
            return Err(Errno::Exists);
        }
        let number = self.insert(content);
        self.names_mut(parent).insert(name.to_owned(), number);
        Ok(())
    }

    fn link(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let number = self.find(from)?;
        let (parent, name) = self.place(to)?;
        if self.is_directory(number) {
            return Err(Errno::NotPermitted);
        }
        if self.names(parent)?.contains_key(name) {
            return Err(Errno::Exists);
        }
        self.names_mut(parent).insert(name.to_owned(), number);
        self.touch(number);
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        let number = self.find(path)?;
        if self.is_directory(number) {
            return Err(Errno::IsADirectory);
        }
        self.names_mut(parent).remove(name);
        self.drop_unnamed(number);
        Ok(())
    }

    fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        let number = self.find(path)?;
        if !self.names(number)?.is_empty() {
            return Err(Errno::NotEmpty);
        }
        self.names_mut(parent).remove(name);
        self.inodes.remove(&number);
        Ok(())
    }

    /// An inode has lost a name. Without another one it is gone.
    fn drop_unnamed(&mut self, number: u64) {
        if self.nlink(number) > 0 {
            self.touch(number);
        } else {
            self.inodes.remove(&number);
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let (parent, name) = self.place(from)?;
        let (new_parent, new_name) = self.place(to)?;
        let number = self.find(from)?;
        if self.is_directory(number) && parent != new_parent && self.is_below(new_parent, number) {
            return Err(Errno::Invalid);
        }
        let old = self.names(new_parent)?.get(new_name).copied();
        if old == Some(number) {
            return Ok(());
        }
        match old.map(|old| (self.is_directory(number), self.is_directory(old), old)) {
            Some((true, false, _)) => return Err(Errno::NotADirectory),
            Some((false, true, _)) => return Err(Errno::IsADirectory),
            Some((true, true, old)) if !self.names(old)?.is_empty() => return Err(Errno::NotEmpty),
            _ => {}
        }
        self.names_mut(parent).remove(name);
        self.names_mut(new_parent).insert(new_name.to_owned(), number);
        self.touch(number);
        match old {
            Some(old) if self.is_directory(old) => drop(self.inodes.remove(&old)),
            Some(old) => self.drop_unnamed(old),
            None => {}
        }
        Ok(())
    }

    fn is_below(&self, number: u64, ancestor: u64) -> bool {
        let children = || self.names(ancestor).into_iter().flat_map(BTreeMap::values);
        number == ancestor || children().any(|child| self.is_below(number, *child))
    }

    fn change_file(
        &mut self,
        path: &str,
        change: impl FnOnce(&mut Vec<u8>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let number = self.find(path)?;
        let calls = self.calls;
        let inode = self.inodes.get_mut(&number).expect("it was found");
        match &mut inode.content {
            Content::File(bytes) => change(Arc::make_mut(bytes))?,
            Content::Directory(_) => return Err(Errno::IsADirectory),
            Content::Link(_) => return Err(Errno::Invalid),
        }
        inode.changed = calls;
        Ok(())
    }
}

/// `fallocate`, as far as bytes and the size are concerned. Nothing has changed where it fails.
fn allocate(file: &mut Vec<u8>, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
    let (size, end) = (file.len() as u64, offset + len);
    let is_aligned = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
    let (from, to) = (offset as usize, end as usize);
    let is_valid = match mode {
        falloc::COLLAPSE_RANGE => is_aligned && end < size,
        falloc::INSERT_RANGE => is_aligned && offset < size,
        _ => true,
    };
    if len == 0 || !is_valid {
        return Err(Errno::Invalid);
    }
    match mode {
        falloc::COLLAPSE_RANGE => drop(file.drain(from..to)),
        falloc::INSERT_RANGE => drop(file.splice(from..from, std::iter::repeat_n(0, to - from))),
        _ => {
            if mode & falloc::KEEP_SIZE == 0 {
                file.resize(file.len().max(to), 0);
            }
            if mode & (falloc::PUNCH_HOLE | falloc::ZERO_RANGE) != 0 {
                let end = to.min(file.len());
                file[from.min(end)..end].fill(0);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> String {
        path.to_owned()
    }

    #[test]
    fn fsync_promises_the_last_change_of_the_inode_and_all_before() {
        let mut posix = Posix::default();
        posix.call(&Call::Mkdir { path: path("A") }).unwrap();
        posix.call(&Call::Create { path: path("A/foo") }).unwrap();
        posix.call(&Call::Link { from: path("A/foo"), to: path("bar") }).unwrap();
        posix.call(&Call::Create { path: path("foo") }).unwrap();
        let fsync = |path: &str| Persist::Fsync(path.to_owned());
        assert_eq!(posix.promised(&fsync("A")), 2);
        assert_eq!(posix.promised(&fsync("A/foo")), 3);
        assert_eq!(posix.promised(&fsync("bar")), 3);
        assert_eq!(posix.promised(&fsync("foo")), 4);
        assert_eq!(posix.promised(&fsync("")), 4, "the name of foo is in it");
        assert_eq!(posix.promised(&fsync("nothing")), 0);
        posix.call(&Call::Unlink { path: path("bar") }).unwrap();
        assert_eq!(posix.promised(&Persist::Fdatasync(path("A/foo"))), 5, "it has lost a link");
    }

    #[test]
    fn paths_of_one_inode_are_seen_as_such() {
        let mut posix = Posix::default();
        posix.call(&Call::Create { path: path("foo") }).unwrap();
        posix.call(&Call::Link { from: path("foo"), to: path("bar") }).unwrap();
        let view = posix.view();
        assert_eq!((view["foo"].first.as_str(), view["foo"].nlink), ("bar", 2));
        posix.call(&Call::Unlink { path: path("bar") }).unwrap();
        posix.call(&Call::Create { path: path("bar") }).unwrap();
        assert_eq!(difference_of(&view, &posix), Some("bar"));
    }

    fn difference_of<'v>(view: &'v View, posix: &Posix) -> Option<&'v str> {
        let now = posix.view();
        view.iter().find(|(path, seen)| now.get(*path) != Some(*seen)).map(|(path, _)| path.as_str())
    }
}
