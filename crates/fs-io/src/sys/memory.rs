//! Memory that several processes map shared, at a time or one after the other.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// What keeps the size of such memory as it is.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Memory that this process and others map shared.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    file: OwnedFd,
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is mapped until this is dropped, and is accessed as atomics only.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// New memory of so many words, all zeroes. Nobody can change its size.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn new(words: usize) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string that ends in a zero.
        let fd = checked(unsafe { libc::memfd_create(c"landfall".as_ptr(), flags) })?;
        // SAFETY: the call has returned a new descriptor, which nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = libc::off_t::try_from(words * size_of::<u64>()).unwrap_or(libc::off_t::MAX);
        // SAFETY: the calls take a descriptor, which is open, and numbers.
        unsafe {
            checked(libc::ftruncate(file.as_raw_fd(), len))?;
            checked(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS))?;
        }
        Self::map(file, words, 0)
    }

    /// So many words of a file, or of a device that is memory, from an offset on that is a multiple of a page.
    ///
    /// # Errors
    /// `InvalidData`: the file ends before. An error of the kernel.
    pub(crate) fn within(file: File, words: usize, at: u64) -> io::Result<Self> {
        // The kernel does not map what is behind the end of a device.
        let found = file.metadata()?;
        if found.is_file() && found.len() < at + bytes_of(words) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file.into(), words, at)
    }

    /// Memory of so many words that another process has made by [`Self::new`].
    ///
    /// # Errors
    /// `InvalidData`: it has another size, or one that can change. An error of the kernel.
    pub(crate) fn of_another(file: OwnedFd, words: usize) -> io::Result<Self> {
        // SAFETY: the call takes a descriptor, which is open, and a number.
        let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        let file = File::from(file);
        if file.metadata()?.len() != bytes_of(words) || seals & SEALS != SEALS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Self::map(file.into(), words, 0)
    }

    fn map(file: OwnedFd, words: usize, at: u64) -> io::Result<Self> {
        let from = libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            let (at, len) = (std::ptr::null_mut(), words * size_of::<u64>());
            libc::mmap(at, len, protection, libc::MAP_SHARED, file.as_raw_fd(), from)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, base, words })
    }

    /// The memory's words.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, aligned to a page, as long as `self` lives. Other processes change them, which
        // atomics allow.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// The memory as a file, for another process.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map`, and nobody borrows it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}

fn bytes_of(words: usize) -> u64 {
    (words * size_of::<u64>()) as u64
}

fn checked(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn another_mapping_sees_what_is_stored_and_other_sizes_are_refused() {
        let memory = SharedMemory::new(600).expect("memory");
        memory.words()[599].store(7, Ordering::Release);
        let copy = || memory.file().try_clone_to_owned().expect("a descriptor");
        let other = SharedMemory::of_another(copy(), 600).expect("its size");
        assert_eq!(other.words()[599].load(Ordering::Acquire), 7);
        assert!(SharedMemory::of_another(copy(), 601).is_err());
        let file = tempfile::tempfile().expect("a file");
        assert!(SharedMemory::of_another(file.into(), 0).is_err(), "its size can change");
    }
}
