//! The control memory of a client, and the process behind a socket.
#![allow(unsafe_code)]

use landfall_fs_link::{CONTROL_BYTES, CONTROL_WORDS};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Memory that this process and a client map shared.
#[derive(Debug)]
pub(super) struct ControlMemory {
    file: OwnedFd,
    base: NonNull<AtomicU64>,
}

// SAFETY: the memory is mapped until this is dropped, and is accessed as atomics only.
unsafe impl Send for ControlMemory {}
// SAFETY: as above.
unsafe impl Sync for ControlMemory {}

impl ControlMemory {
    /// New memory, all zeroes. Nobody can change its size.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn new() -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a string that ends in a zero.
        let fd = checked(unsafe { libc::memfd_create(c"landfall-link".as_ptr(), flags) })?;
        // SAFETY: the call has returned a new descriptor, which nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = libc::off_t::try_from(CONTROL_BYTES).unwrap_or(libc::off_t::MAX);
        // SAFETY: the calls take a descriptor, which is open, and numbers.
        unsafe {
            checked(libc::ftruncate(file.as_raw_fd(), len))?;
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
            checked(libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals))?;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            let at = std::ptr::null_mut();
            libc::mmap(at, CONTROL_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, base })
    }

    /// The memory's words.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, aligned to a page, as long as `self` lives. Other processes change them, which
        // atomics allow.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), CONTROL_WORDS) }
    }

    /// The memory as a file, for the client.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for ControlMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and nobody borrows it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), CONTROL_BYTES) };
    }
}

/// A descriptor that is readable when the process has ended.
///
/// # Errors
/// An error of the kernel; `ESRCH` if the process is gone.
pub(super) fn watch_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = checked(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the call has returned a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
