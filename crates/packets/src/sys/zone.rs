//! Anonymous memory beside the region, for media that cannot be pinned.

use std::io;
use std::ptr::NonNull;

/// An anonymous mapping, of huge pages if available. Offsets count from its start.
///
/// The kernel writes packets into it, only between taking a chunk from the fill ring and reporting it. Bytes are copied
/// in and out; no reference into the mapping exists.
#[derive(Debug)]
pub(crate) struct Zone {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is accessed by copies only, at offsets that belong to one worker at a time.
unsafe impl Send for Zone {}
// SAFETY: as above: no two threads use the same offsets.
unsafe impl Sync for Zone {}

impl Zone {
    /// Maps `bytes`, a multiple of 2 MiB.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        map(bytes, libc::MAP_HUGETLB).or_else(|_| map(bytes, 0)).map(|start| Self { start, bytes })
    }

    /// Address and length, for the registration with the kernel.
    pub(crate) fn area(&self) -> (usize, u64) {
        (self.start.as_ptr().expose_provenance(), self.bytes as u64)
    }

    /// Copies `len` bytes at `off` to the end of `into`.
    pub(crate) fn read(&self, off: u64, len: usize, into: &mut Vec<u8>) {
        let from = self.at(off, len);
        into.reserve(len);
        // SAFETY: `at` has checked that the source lies in the mapping. Room was reserved behind the vector's bytes,
        // and all of it is initialised before the length includes it. The chunk was reported as received, so the kernel
        // does not write to it.
        unsafe {
            from.copy_to_nonoverlapping(into.as_mut_ptr().add(into.len()), len);
            into.set_len(into.len() + len);
        }
    }

    /// Copies `bytes` to `off`.
    pub(crate) fn write(&self, off: u64, bytes: &[u8]) {
        let to = self.at(off, bytes.len());
        // SAFETY: `at` has checked that the target lies in the mapping, which has no other owner; the chunk is not in
        // flight.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn at(&self, off: u64, len: usize) -> *mut u8 {
        let off = usize::try_from(off).unwrap_or(usize::MAX);
        assert!(off.saturating_add(len) <= self.bytes, "{len} bytes at {off} of {}", self.bytes);
        // SAFETY: the offset was just checked to lie in the mapping.
        unsafe { self.start.as_ptr().add(off) }
    }
}

fn map(bytes: usize, flags: i32) -> io::Result<NonNull<u8>> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags);
    // SAFETY: a new anonymous mapping touches no existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

impl Drop for Zone {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no reference into it exists. Sockets over it were dropped before,
        // because they hold the zone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_read_back_and_other_offsets_are_rejected() {
        let zone = Zone::new(2 << 20).expect("memory");
        zone.write((2 << 20) - 3, b"end");
        let mut read = vec![b'<'];
        zone.read((2 << 20) - 3, 3, &mut read);
        assert_eq!(read, b"<end");
        let beyond = std::panic::AssertUnwindSafe(|| zone.write((2 << 20) - 2, b"end"));
        assert!(std::panic::catch_unwind(beyond).is_err());
    }
}
