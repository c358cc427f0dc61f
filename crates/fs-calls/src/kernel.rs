//! What the library needs of the kernel for a descriptor.

use crate::engine::Errno;
use std::io::{IoSlice, IoSliceMut};

/// System calls for one descriptor, not through the functions that the library replaces.
pub trait Kernel: Sync {
    /// `lseek` with the numbers of `whence`. Returns the new offset.
    ///
    /// # Errors
    /// The kernel's.
    fn seek(&self, fd: i32, offset: i64, whence: i32) -> Result<u64, Errno>;

    /// `readv`.
    ///
    /// # Errors
    /// The kernel's.
    fn read(&self, fd: i32, space: &mut [IoSliceMut<'_>]) -> Result<usize, Errno>;

    /// `writev`.
    ///
    /// # Errors
    /// The kernel's.
    fn write(&self, fd: i32, data: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Makes the kernel ask for the size of the descriptor's file, if it may have changed: what it appends it counts from there.
    fn refresh(&self, fd: i32);

    /// True while the process has one thread.
    fn is_single_threaded(&self) -> bool;

    /// `fsync`.
    ///
    /// # Errors
    /// The kernel's.
    fn sync(&self, fd: i32) -> Result<(), Errno>;
}
