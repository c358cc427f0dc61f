//! Mapped logs.

// mmap and msync have no safe wrapper in the standard library.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// A file mapped for reading and writing, shared with the page cache.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of a file that is at least as long, and that no process truncates.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; the descriptor lives through the call.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Without this one dirty page of a file in large folios is a megabyte to `msync`: no log would be run so.
        // SAFETY: the mapping that was just made; the advice changes no contents.
        unsafe { libc::madvise(start, len, libc::MADV_RANDOM) };
        NonNull::new(start.cast()).map(|start| Self { start, len }).ok_or_else(io::Error::last_os_error)
    }

    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped for `len` bytes until dropped, borrowed from `self`; no other process has the file.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// `msync` of the pages that hold a range, waiting for it.
    #[expect(clippy::disallowed_methods, reason = "what this log does is what is compared")]
    pub(crate) fn sync(&self, from: usize, len: usize) -> io::Result<()> {
        let first = from / PAGE_BYTES * PAGE_BYTES;
        let end = (from + len).min(self.len);
        // SAFETY: the range lies in the mapping and begins at a page.
        let done = unsafe { libc::msync(self.start.as_ptr().add(first).cast(), end - first, libc::MS_SYNC) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once; every borrow has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
