//! What answers for files in the process.

use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeInclusive;

/// An `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// A file that an engine answers for. Descriptors of one inode have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Why an engine has not answered. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The kernel is to answer.
    PassOn,
    /// The call fails.
    Failed(Errno),
}

/// A descriptor that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The descriptor.
    pub fd: i32,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// What a call does with the data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It looks at them, or at where they end.
    Read,
    /// It changes them.
    Write,
}

/// What a write has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The end of what was written.
    pub end: u64,
    /// Bytes, not 0: all of them, or a part. The next call writes the rest.
    pub len: u64,
}

/// What answers for files in the process: all threads share it.
///
/// A call is answered, or refused. An engine calls no function that the library replaces, and takes no lock
/// that it could hold when it is called again: a thread calls it with all signals blocked for which the program has
/// handlers.
pub trait Engine: Sync {
    /// Begins to answer for a descriptor of a regular file. `None`: it never answers for it.
    fn open(&self, opened: &Opened) -> Option<FileId>;

    /// A descriptor of the file is gone: [`Self::open`] had returned the file for it.
    fn close(&self, file: FileId);

    /// False if the kernel is to answer this call of a file: it need not be passed here. A call of which this was asked is
    /// passed here if it is true, and not if it is false.
    fn is_ready(&self, file: FileId, using: Use) -> bool;

    /// Fills `space` from `offset` on. Returns the bytes, less than there is space for only at the end of the file.
    ///
    /// # Errors
    /// [`Refused`].
    fn read_at(&self, file: FileId, offset: u64, space: &mut [IoSliceMut<'_>]) -> Result<usize, Refused>;

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// [`Refused`]: nothing is written.
    fn write_at(&self, file: FileId, offset: u64, data: &[IoSlice<'_>]) -> Result<Written, Refused>;

    /// Writes `data` at the end of the file.
    ///
    /// # Errors
    /// [`Refused`]: nothing is written.
    fn append(&self, file: FileId, data: &[IoSlice<'_>]) -> Result<Written, Refused>;

    /// The size of the file, bytes.
    ///
    /// # Errors
    /// [`Refused`].
    fn size(&self, file: FileId) -> Result<u64, Refused>;

    /// Waits until everything done to the file is durable.
    ///
    /// # Errors
    /// [`Refused`].
    fn sync(&self, file: FileId) -> Result<(), Refused>;

    /// What was answered here and may be lost, or may come to be: the number of the last such write. `None`: nothing. When
    /// [`Self::sync`] has passed a call on, and the kernel has made the file durable, [`Self::has_lost`] is to be asked.
    fn at_stake(&self, file: FileId) -> Option<u64>;

    /// True, once, if something that was answered here is lost. `at_stake` is what was so before the kernel was asked.
    fn has_lost(&self, file: FileId, at_stake: u64) -> bool;

    /// The kernel answers for the file from now on: a program maps it.
    fn leave(&self, file: FileId);

    /// The process is a child of `fork`: the kernel answers everything from now on. Other threads may have held locks.
    fn forked(&self);

    /// The program closes these descriptors, or makes them others. Those of the engine are not its own any more.
    fn loses(&self, descriptors: RangeInclusive<u32>);
}
