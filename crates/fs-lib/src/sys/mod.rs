//! The memory of the library, and system calls without a safe form.

// Shared memory and allocators have no safe form.
#![allow(unsafe_code)]

mod allocator;
mod memory;

pub(crate) use memory::{ControlMemory, Kept};

use rustix::fd::{AsRawFd, BorrowedFd};

/// Bytes of the longest path of a socket.
const PATH_BYTES_MAX: usize = 256;

/// An extended attribute of a descriptor's file.
pub(crate) fn attribute(fd: i32, name: &str) -> Option<Vec<u8>> {
    // SAFETY: the program has just opened the descriptor. If it closes it meanwhile, the call fails or asks another file,
    // as any call on it would.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut bytes = [0_u8; PATH_BYTES_MAX];
    let len = rustix::fs::fgetxattr(fd, name, &mut bytes[..]).ok()?;
    bytes.get(..len).map(<[u8]>::to_vec)
}

/// The user of the process at the other end of a socket. That process has no number, 0, in a namespace of processes to
/// which it does not belong: so this is no call of rustix, whose type for numbers has no such value.
pub(crate) fn user_behind(socket: BorrowedFd<'_>) -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or(0);
    let (fd, into) = (socket.as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: the kernel writes what it is told that there is room for.
    let returned = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len) };
    (returned == 0).then_some(peer.uid)
}

/// Closes a descriptor that the process has from its parent. Its owner never uses it again.
pub(crate) fn close(fd: BorrowedFd<'_>) {
    // SAFETY: the owner is a static of the parent, which the child does not use.
    unsafe { rustix::io::close(fd.as_raw_fd()) };
}
