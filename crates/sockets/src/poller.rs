//! Waiting for several descriptors at once, for transports that look at each of them anyway.

use crate::sys::{Epoll, Interest, Ready};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Waits until one of the watched descriptors has something. Which one is for the caller to find out.
pub struct Poller {
    epoll: Epoll,
    found: Vec<Ready>,
}

impl Poller {
    /// A poller that watches nothing.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()?, found: Vec::new() })
    }

    /// Watches a descriptor for as long as it is readable.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn watch(&mut self, descriptor: RawFd) -> io::Result<()> {
        let readable = Interest { read: true, write: false };
        self.epoll.change(descriptor, 0, Interest::default(), readable)
    }

    /// Watches a descriptor for each time it becomes readable, as a [`crate::Waker`]'s.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn watch_edges(&mut self, descriptor: RawFd) -> io::Result<()> {
        self.epoll.watch_edges(descriptor, 0)
    }

    /// Waits for at most `timeout`.
    ///
    /// # Errors
    /// What `epoll_wait` says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.found.clear();
        self.epoll.wait(timeout, &mut self.found)
    }
}
