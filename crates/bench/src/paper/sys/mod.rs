//! Mapped logs, readiness of sockets, and the core that a thread runs on.

// mmap, msync, epoll and sched_setaffinity have no safe wrapper in the standard library.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;
/// Connections reported by one wait at most.
const READY_MAX: i32 = 128;

/// A file mapped for reading and writing, shared with the page cache.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of a file that is at least as long, and that nobody truncates.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; the descriptor lives through the call.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Without this one dirty page of a file in large folios is a megabyte to `msync`: no log would be run so.
        // SAFETY: the mapping that was just made; the advice changes no contents.
        unsafe { libc::madvise(start, len, libc::MADV_RANDOM) };
        NonNull::new(start.cast()).map(|start| Self { start, len }).ok_or_else(io::Error::last_os_error)
    }

    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped for `len` bytes until dropped, borrowed from `self`; no other process has the file.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// `msync` of the pages that hold a range, waiting for it.
    #[expect(clippy::disallowed_methods, reason = "what this log does is what is compared")]
    pub(crate) fn sync(&self, from: usize, len: usize) -> io::Result<()> {
        let first = from / PAGE_BYTES * PAGE_BYTES;
        let end = (from + len).min(self.len);
        // SAFETY: the range lies in the mapping and begins at a page.
        let done = unsafe { libc::msync(self.start.as_ptr().add(first).cast(), end - first, libc::MS_SYNC) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, unmapped once; every borrow has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Tells which of many sockets can be read.
#[derive(Debug)]
pub(crate) struct Readiness {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Readiness {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes flags only.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nobody else has.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; READY_MAX as usize] })
    }

    /// Reports a socket by its descriptor whenever it can be read, until it is closed.
    pub(crate) fn add(&self, socket: &impl AsRawFd) -> io::Result<()> {
        let descriptor = socket.as_raw_fd();
        let mut event =
            libc::epoll_event { events: libc::EPOLLIN as u32, u64: u64::from(descriptor.unsigned_abs()) };
        // SAFETY: both descriptors are open, and the event lives through the call.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &raw mut event)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The sockets that can be read; waits for one for at most `timeout_ms`.
    pub(crate) fn wait(&mut self, timeout_ms: i32) -> io::Result<impl Iterator<Item = RawFd> + '_> {
        // SAFETY: the vector lives through the call and holds as many events as is said.
        let ready = unsafe {
            let events = self.events.as_mut_ptr();
            libc::epoll_wait(self.epoll.as_raw_fd(), events, READY_MAX, timeout_ms)
        };
        let interrupted = ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if ready < 0 && !interrupted {
            return Err(io::Error::last_os_error());
        }
        let ready = usize::try_from(ready).unwrap_or(0);
        Ok(self.events[..ready].iter().map(|event| event.u64 as RawFd))
    }
}

/// Has the calling thread run on one core only. Without that core it runs where it did.
pub(crate) fn pin(core: usize) {
    // SAFETY: an all-zero set is a valid empty one; CPU_SET checks its bounds; the kernel reads the set only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
