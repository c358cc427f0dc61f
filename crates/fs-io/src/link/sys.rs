//! The process behind a socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

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
