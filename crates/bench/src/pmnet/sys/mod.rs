//! Scheduling classes, waiting for sockets, and packets with the times at which the kernel saw them.

// sched_setscheduler and poll have no safe wrapper in the standard library.
#![allow(unsafe_code)]

mod tap;

pub(crate) use tap::Tap;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How the scheduler treats a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `SCHED_BATCH`: an ordinary share of the core, but a wake-up preempts no other thread.
    Batch,
    /// `SCHED_IDLE`: runs where no other thread is runnable.
    Idle,
}

/// Puts the calling thread into a class; needs no privilege. If the kernel refuses, the class stays as it is.
pub(crate) fn enter_class(class: Class) {
    let policy = match class {
        Class::Batch => libc::SCHED_BATCH,
        Class::Idle => libc::SCHED_IDLE,
    };
    // SAFETY: an all-zero `sched_param` is valid for these classes, and the kernel only reads it.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, policy, &raw const parameters);
    }
}

/// Makes the calling thread sleep no longer than requested: by default the kernel may add 50 µs.
pub(crate) fn sleep_exactly() {
    const SLACK_NS: libc::c_ulong = 1000;
    // SAFETY: takes a number, and changes only when this thread's timers end.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}

/// Busy-polls for `length`, then blocks for at most `timeout_ms` until something arrives. `wait` waits for as many
/// milliseconds as it is told and returns whether something arrived.
pub(crate) fn busy_poll_then_wait(
    length: Duration,
    timeout_ms: i32,
    mut wait: impl FnMut(i32) -> io::Result<bool>,
) -> io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < length {
        if wait(0)? {
            return Ok(());
        }
        // Other processes on the core may run meanwhile.
        std::thread::yield_now();
    }
    wait(timeout_ms).map(drop)
}

/// Waits until one of `sockets` can be read, for `timeout_ms` at most. Returns whether one can.
pub(crate) fn wait_readable(sockets: &[BorrowedFd<'_>], timeout_ms: i32) -> io::Result<bool> {
    let entry =
        |socket: &BorrowedFd<'_>| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = sockets.iter().map(entry).collect();
    // SAFETY: the vector lives through the call, and its length goes with it.
    let ready = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
    match ready {
        0.. => Ok(ready > 0),
        _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}
