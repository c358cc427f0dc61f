//! Network namespaces held by descriptors.

use super::checked;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A new namespace without a name: a thread moves into it, opens it and ends.
pub(crate) fn new_namespace() -> io::Result<OwnedFd> {
    let make = || {
        // SAFETY: unshare takes no pointers; only this thread moves.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
    };
    let made = std::thread::spawn(make).join();
    made.unwrap_or_else(|_| Err(io::Error::other("the thread that makes a namespace panicked")))
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(namespace: &OwnedFd) -> io::Result<()> {
    // SAFETY: setns takes no pointers; only this thread moves.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Has the command start inside a namespace.
pub(crate) fn run_inside(command: &mut Command, namespace: OwnedFd) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || enter(&namespace)) };
}
