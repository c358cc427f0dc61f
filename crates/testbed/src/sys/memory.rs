//! Memory to receive packets into.

use super::checked;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;

/// A shared mapping of a nameless file on tmpfs, zeroed: what a transport may have packets land in.
///
/// Reads and writes are copies, each byte on its own: the kernel may be writing at the same time.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and all access goes through single volatile bytes.
unsafe impl Send for Memory {}
// SAFETY: as above; concurrent writers of one byte leave one of their values.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `bytes` bytes, a multiple of the page size.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: the name is NUL-terminated and static.
        let fd = unsafe { libc::memfd_create(c"testbed".as_ptr(), libc::MFD_CLOEXEC) };
        checked(fd)?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64)?;
        Self::map(&file, bytes)
    }

    /// Maps the first `bytes` bytes of `file`, shared.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Address and size, bytes.
    pub fn area(&self) -> (usize, u64) {
        (self.base.as_ptr().expose_provenance(), self.bytes as u64)
    }

    /// A copy of `len` bytes at `off`.
    ///
    /// # Panics
    /// If they are not all inside.
    pub fn read(&self, off: u64, len: u32) -> Vec<u8> {
        // SAFETY: `place` checked that the byte is inside the mapping.
        (off..off + u64::from(len)).map(|at| unsafe { self.place(at).read_volatile() }).collect()
    }

    /// Stores `bytes` at `off`.
    ///
    /// # Panics
    /// If they do not fit there.
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
