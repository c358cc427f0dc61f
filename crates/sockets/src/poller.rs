//! Waiting for several descriptors at once, for transports that look at each of them anyway.

use crate::sys::{Epoll, Interest, Ready};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// Waits until one of the watched descriptors has something.
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

    /// The same, under a name that [`Self::ready`] tells.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn watch_as(&mut self, descriptor: RawFd, name: u64) -> io::Result<()> {
        let readable = Interest { read: true, write: false };
        self.epoll.change(descriptor, name, Interest::default(), readable)
    }

    /// Names of the descriptors that the last wait found readable; 0 for those without.
    pub fn ready(&self) -> impl Iterator<Item = u64> + '_ {
        self.found.iter().map(|ready| ready.token)
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
