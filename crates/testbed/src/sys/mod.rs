//! Namespaces, offload settings, packet sockets, programs that forward, and shared memory.
//!
//! Unsafe code is allowed here because std has none of these.
#![allow(unsafe_code)]

mod ethtool;
mod forward;
mod memory;
mod namespace;
mod packet;

pub(crate) use ethtool::{Offload, disable};
pub(crate) use forward::Forwarder;
pub use memory::Memory;
pub(crate) use namespace::{enter, new_namespace, run_inside};
pub use packet::PacketSocket;
pub(crate) use packet::wait;

use std::io;

/// The result of a system call that returns -1 and sets `errno` on failure.
fn checked(result: impl TryInto<usize>) -> io::Result<usize> {
    result.try_into().map_err(|_| io::Error::last_os_error())
}
