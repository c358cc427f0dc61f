//! Shared memory into which tests receive packets.

use super::checked::checked;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

/// A zeroed shared mapping of an anonymous file on tmpfs. Packets of a transport may land in it.
///
/// Reads and writes copy byte by byte with volatile accesses, because the kernel may write at the same time.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and all accesses are volatile accesses of single bytes.
unsafe impl Send for Memory {}
// SAFETY: all accesses are volatile accesses of single bytes; concurrent writers of a byte leave one of their values.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: the name is NUL-terminated and static.
        let fd = unsafe { libc::memfd_create(c"testbed".as_ptr(), libc::MFD_CLOEXEC) };
        checked(fd)?;
        // SAFETY: the descriptor is new, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64)?;
        Self::map(&file, bytes)
    }

    /// Maps the first `bytes` bytes of `file`, shared.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Address of the mapping, and its size in bytes.
    pub fn area(&self) -> (usize, u64) {
        (self.base.as_ptr().expose_provenance(), self.bytes as u64)
    }

    /// A copy of `len` bytes at `off`.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn read(&self, off: u64, len: u32) -> Vec<u8> {
        // SAFETY: `place` checked that the byte is inside the mapping.
        (off..off + u64::from(len)).map(|at| unsafe { self.place(at).read_volatile() }).collect()
    }

    /// Stores `bytes` at `off`.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub fn write(&self, off: u64, bytes: &[u8]) {
        for (at, byte) in (off..).zip(bytes) {
            // SAFETY: `place` checked that the byte is inside the mapping.
            unsafe { self.place(at).write_volatile(*byte) }
        }
    }

    fn place(&self, at: u64) -> *mut u8 {
        let inside = usize::try_from(at).ok().filter(|at| *at < self.bytes);
        let at = inside.unwrap_or_else(|| panic!("byte {at} is outside {} bytes of memory", self.bytes));
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nothing borrows from it any more.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(checked(unmapped).is_ok(), "memory that was mapped can be unmapped");
    }
}
