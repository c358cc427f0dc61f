//! The mounts on other machines that have locks, in a file among the server's notes: the next server waits for them before it
//! grants any.

use crate::lives::MountId;
use crate::notes::{forget, with_ending};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Ending of the file's name.
const ENDING: &str = ".locks";

/// The file among these notes.
pub(crate) fn book_of(notes: &Path) -> PathBuf {
    with_ending(notes, ENDING)
}

/// The mounts that are named.
#[derive(Debug)]
pub(crate) struct Book {
    file: PathBuf,
    mounts: Vec<MountId>,
}

impl Book {
    /// What an earlier server has left.
    pub(crate) fn open(file: PathBuf) -> Self {
        let mounts = std::fs::read(&file).map(|bytes| bytes.as_chunks().0.to_vec()).unwrap_or_default();
        Self { file, mounts }
    }

    pub(crate) fn mounts(&self) -> &[MountId] {
        &self.mounts
    }

    /// A mount has a lock.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn add(&mut self, mount: MountId) -> io::Result<()> {
        if self.mounts.contains(&mount) {
            return Ok(());
        }
        self.mounts.push(mount);
        self.write().inspect_err(|_| _ = self.mounts.pop())
    }

    /// A mount has none, or none that the next server is to believe in.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn remove(&mut self, mount: MountId) -> io::Result<()> {
        self.remove_all(&[mount])
    }

    /// As [`Self::remove`]: all of them, or none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn remove_all(&mut self, gone: &[MountId]) -> io::Result<()> {
        let before = self.mounts.clone();
        self.mounts.retain(|mount| !gone.contains(mount));
        if self.mounts.len() == before.len() {
            return Ok(());
        }
        // The file names them still.
        self.write().inspect_err(|_| self.mounts = before)
    }

    /// The file is durable when this returns: who has a lock after a power loss must be known.
    fn write(&self) -> io::Result<()> {
        if self.mounts.is_empty() {
            forget(&self.file)?;
            return self.sync_directory();
        }
        let new = self.file.with_extension("new-locks");
        let mut file = File::create(&new)?;
        file.write_all(&self.mounts.concat())?;
        file.sync_all()?;
        std::fs::rename(new, &self.file)?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> io::Result<()> {
        let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_with_locks_are_known_to_the_next_server() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = book_of(&dir.path().join("offload.sock"));
        assert_eq!(file, dir.path().join("offload.sock.locks"));
        let mut book = Book::open(file.clone());
        assert!(book.mounts().is_empty());
        for mount in [[1; 16], [2; 16], [1; 16]] {
            book.add(mount).expect("a file");
        }
        assert_eq!(Book::open(file.clone()).mounts(), [[1; 16], [2; 16]]);
        book.remove([1; 16]).expect("a file");
        book.remove([3; 16]).expect("nothing to do");
        assert_eq!(Book::open(file).mounts(), [[2; 16]]);
        book.remove([2; 16]).expect("no file");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn a_mount_that_cannot_be_struck_is_named_until_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = book_of(&dir.path().join("offload.sock"));
        let mut book = Book::open(file.clone());
        [[1; 16], [2; 16]].into_iter().for_each(|mount| book.add(mount).expect("a file"));
        let (path, away) = (dir.path().to_owned(), dir.path().with_extension("away"));
        std::fs::rename(&path, &away).expect("the directory is gone");
        book.remove([1; 16]).expect_err("no directory");
        book.remove_all(&[[1; 16], [2; 16]]).expect_err("no directory");
        assert_eq!(book.mounts(), [[1; 16], [2; 16]]);
        std::fs::rename(&away, &path).expect("it is back");
        book.remove([1; 16]).expect("a file");
        assert_eq!(Book::open(file.clone()).mounts(), [[2; 16]]);
        book.add([3; 16]).expect("a file");
        book.remove_all(&[[2; 16], [4; 16], [3; 16]]).expect("no file");
        assert!(Book::open(file).mounts().is_empty());
    }
}
