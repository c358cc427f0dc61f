//! Signals, poll and page-cache advice.

// sigaction, poll, posix_fadvise and prctl have no safe wrapper in the standard library.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop_signal(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// From now on SIGINT and SIGTERM only set a flag: loops then return, and guards clean up.
pub(crate) fn note_stop_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe, and lives for ever.
        unsafe { libc::signal(signal, on_stop_signal as *const () as libc::sighandler_t) };
    }
}

/// True once SIGINT or SIGTERM has arrived.
pub(crate) fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Makes the child a group of its own, away from the terminal's Ctrl-C, and lets the kernel end it with us.
///
/// The kernel's promise is tied to the spawning thread, so only the main thread may spawn.
pub(crate) fn end_with_parent(command: &mut Command) {
    command.process_group(0);
    // SAFETY: prctl is async-signal-safe, touches no memory of ours and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

/// Drops a file's clean pages from the page cache.
pub(crate) fn drop_cached(file: &File) -> io::Result<()> {
    // SAFETY: a descriptor that lives through the call, and numbers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// What a connection waits for, and whether it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interest {
    /// Wait for room to send, not only for bytes to read.
    pub(crate) write: bool,
    /// Set by [`poll`]: something can be done.
    pub(crate) ready: bool,
}

/// Waits up to `timeout_ms` until a connection can do what it is interested in.
pub(crate) fn poll(
    connections: &mut [(&TcpStream, Interest)],
    scratch: &mut Vec<libc::pollfd>,
    timeout_ms: i32,
) -> io::Result<()> {
    scratch.clear();
    scratch.extend(connections.iter().map(|(stream, interest)| libc::pollfd {
        fd: stream.as_raw_fd(),
        events: if interest.write { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN },
        revents: 0,
    }));
    // SAFETY: the vector lives through the call, and its length goes with it.
    let ready = unsafe { libc::poll(scratch.as_mut_ptr(), scratch.len() as libc::nfds_t, timeout_ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
    }
    for ((_, interest), poll) in connections.iter_mut().zip(scratch.iter()) {
        interest.ready = poll.revents != 0;
    }
    Ok(())
}
