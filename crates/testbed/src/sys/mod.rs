//! System calls of the testbed: namespaces, offload settings, packet sockets, forwarding programs, shared memory.
//!
//! Unsafe code is allowed here, because std has no functions for these.
#![allow(unsafe_code)]

mod ethtool;
mod forward;
mod memory;
mod namespace;
mod packet;

pub(crate) use ethtool::{Offload, switch};
pub(crate) use forward::Forwarder;
pub use memory::Memory;
pub(crate) use namespace::{enter, new_namespace, run_inside};
pub use packet::PacketSocket;
pub(crate) use packet::wait;

use std::ffi::CString;
use std::io;

/// Index of an interface of the calling thread's namespace.
fn index_of(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: the name is NUL-terminated and lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Converts the result of a system call that returns -1 and sets `errno` on failure.
fn checked(result: impl TryInto<usize>) -> io::Result<usize> {
    result.try_into().map_err(|_| io::Error::last_os_error())
}
