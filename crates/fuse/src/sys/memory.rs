//! The memory of a ring's entries, which the kernel and this process use in turns.

use crate::abi::RingHeader;
use std::io;
use std::ptr::NonNull;

/// Bytes of a page: where each entry's header and payload begin.
const PAGE_BYTES: usize = 4096;

/// Headers and payloads of entries. Pages take memory once they are used.
#[derive(Debug)]
pub(super) struct Memory {
    base: NonNull<u8>,
    entries: usize,
    payload_bytes: usize,
}

impl Memory {
    /// Memory for so many entries, each with a payload of so many bytes, rounded up to pages.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn new(entries: usize, payload_bytes: usize) -> io::Result<Self> {
        let payload_bytes = payload_bytes.next_multiple_of(PAGE_BYTES);
        let len = (payload_bytes + PAGE_BYTES).checked_mul(entries).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, entries, payload_bytes })
    }

    /// Where the entry's header and payload are, as the kernel wants to know it.
    pub(super) fn vectors(&self, entry: usize) -> [libc::iovec; 2] {
        let header = self.header_at(entry).cast().as_ptr();
        let payload = self.payload_at(entry).cast().as_ptr();
        [
            libc::iovec { iov_base: header, iov_len: size_of::<RingHeader>() },
            libc::iovec { iov_base: payload, iov_len: self.payload_bytes },
        ]
    }

    /// The entry's header and payload.
    ///
    /// # Safety
    /// The kernel does not use the entry.
    pub(super) unsafe fn parts(&self, entry: usize) -> (&RingHeader, &[u8]) {
        // SAFETY: both are mapped, aligned to a page, and all their bytes are initialised (mappings begin as zeroes). Only
        // `parts_mut` lends them mutably, which borrows this value mutably.
        unsafe {
            let payload = std::slice::from_raw_parts(self.payload_at(entry).as_ptr(), self.payload_bytes);
            (self.header_at(entry).as_ref(), payload)
        }
    }

    /// As [`Self::parts`], to store to.
    ///
    /// # Safety
    /// The kernel does not use the entry.
    pub(super) unsafe fn parts_mut(&mut self, entry: usize) -> (&mut RingHeader, &mut [u8]) {
        // SAFETY: as in `parts`; this value is borrowed mutably, and the two do not overlap.
        unsafe {
            let payload = std::slice::from_raw_parts_mut(self.payload_at(entry).as_ptr(), self.payload_bytes);
            (self.header_at(entry).as_mut(), payload)
        }
    }

    fn header_at(&self, entry: usize) -> NonNull<RingHeader> {
        self.at(entry, 0).cast()
    }

    fn payload_at(&self, entry: usize) -> NonNull<u8> {
        self.at(entry, PAGE_BYTES)
    }

    fn at(&self, entry: usize, offset: usize) -> NonNull<u8> {
        assert!(entry < self.entries, "entry {entry} of {}", self.entries);
        // SAFETY: each entry has a page and its payload; the offset is at most a page.
        unsafe { self.base.add(entry * (PAGE_BYTES + self.payload_bytes) + offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len = self.entries * (PAGE_BYTES + self.payload_bytes);
        // SAFETY: the mapping was made in `new`, and nobody borrows it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_memory_of_their_own() {
        let mut memory = Memory::new(3, 5000).expect("memory");
        for entry in 0..3 {
            // SAFETY: no kernel knows of this memory.
            let (header, payload) = unsafe { memory.parts_mut(entry) };
            header.in_out.fill(entry as u8 + 1);
            payload.fill(entry as u8 + 11);
        }
        for entry in 0..3 {
            // SAFETY: as above.
            let (header, payload) = unsafe { memory.parts(entry) };
            assert!(payload.len() == 8192 && payload.iter().all(|byte| *byte == entry as u8 + 11));
            assert!(header.in_out.iter().all(|byte| *byte == entry as u8 + 1));
            assert_eq!(header.op_in, [0; 128]);
            let vectors = memory.vectors(entry);
            assert_eq!((vectors[0].iov_len, vectors[1].iov_len), (288, 8192));
            assert_eq!(vectors[1].iov_base.cast_const().cast(), payload.as_ptr());
        }
    }
}
