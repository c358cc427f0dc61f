//! Counters of the kernel (eventfd) by which threads wake each other, and how they wait for these and other descriptors.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A new counter, which is readable once it was raised.
pub(crate) fn counter() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?)
}

/// Raises a counter.
pub(crate) fn raise(counter: &OwnedFd) {
    // A full counter is readable, too.
    let _ = rustix::io::write(counter, &1_u64.to_le_bytes());
}

/// Takes back what was raised. Nobody else does.
pub(crate) fn lower(counter: &OwnedFd) -> io::Result<()> {
    if wait(&[counter.as_fd()], Some(Duration::ZERO))?.is_some() {
        rustix::io::read(counter, &mut [0_u8; 8])?;
    }
    Ok(())
}

/// Waits until one of these is readable or has ended, for `limit` at most. Returns its index.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn wait(files: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Option<usize>> {
    let mut polled: Vec<PollFd<'_>> =
        files.iter().map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
    let limit = limit.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    });
    loop {
        match poll(&mut polled, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            Ok(_) => return Ok(polled.iter().position(|file| !file.revents().is_empty())),
        }
    }
}
