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

/// Closes a descriptor that the process has from its parent. Its owner never uses it again.
pub(crate) fn close(fd: BorrowedFd<'_>) {
    // SAFETY: the owner is a static of the parent, which the child does not use.
    unsafe { rustix::io::close(fd.as_raw_fd()) };
}
