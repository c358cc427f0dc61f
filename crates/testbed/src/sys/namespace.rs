//! Network namespaces without names, which live as long as a descriptor refers to them.

use super::checked::checked;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Creates a namespace without a name: a thread moves into a new one, opens it and ends.
pub(crate) fn new_namespace() -> io::Result<OwnedFd> {
    let create = || {
        // SAFETY: unshare takes no pointers; only this thread moves.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
    };
    let created = std::thread::spawn(create).join();
    created.unwrap_or_else(|_| Err(io::Error::other("the thread that creates a namespace panicked")))
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(namespace: &OwnedFd) -> io::Result<()> {
    // SAFETY: setns takes no pointers; only this thread moves.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Makes the command start inside a namespace.
pub(crate) fn run_inside(command: &mut Command, namespace: OwnedFd) {
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || enter(&namespace)) };
}
