//! Counters of the kernel (eventfd) by which threads wake each other.

use std::io;
use std::os::fd::OwnedFd;

/// A new counter, which is readable once it was raised.
pub(crate) fn counter() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?)
}

/// Raises a counter.
pub(crate) fn raise(counter: &OwnedFd) {
    // A full counter is readable, too.
    let _ = rustix::io::write(counter, &1_u64.to_le_bytes());
}
