//! The process behind a socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Who is at the other end of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) user: u32,
    /// The number of the process; 0 if it has none in this process's namespace. rustix's type for numbers has no such
    /// value.
    pub(super) process: i32,
}

/// The process at the other end of a socket.
///
/// # Errors
/// An error of the kernel.
pub(super) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or(0);
    let (fd, into) = (socket.as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: the kernel writes what it is told that there is room for.
    checked(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len) })?;
    Ok(Peer { user: peer.uid, process: peer.pid })
}

/// A descriptor that is readable when the process has ended.
///
/// # Errors
/// An error of the kernel; `ESRCH` if the process is gone, `EINVAL` if it has no number here.
pub(crate) fn watch_process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = checked(i32::try_from(fd).unwrap_or(-1))?;
    // SAFETY: the call has returned a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn checked(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
