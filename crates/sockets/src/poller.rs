//! Waiting for several descriptors at once, for transports that look at each of them anyway.

use crate::sys::{Epoll, Interest, Ready};
use landfall_spin::Alarm;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The alarm's name.
const ALARM: u64 = u64::MAX - 1;

/// Waits until one of the watched descriptors has something.
pub struct Poller {
    epoll: Epoll,
    alarm: Alarm,
    found: Vec<Ready>,
}

impl Poller {
    /// A poller that watches nothing.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn new() -> io::Result<Self> {
        let (epoll, alarm) = (Epoll::new()?, Alarm::new()?);
        epoll.change(
            alarm.descriptor(),
            ALARM,
            Interest::default(),
            Interest { read: true, write: false },
        )?;
        Ok(Self { epoll, alarm, found: Vec::new() })
    }

    /// Watches a descriptor for as long as it is readable.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn watch(&mut self, descriptor: RawFd) -> io::Result<()> {
        let readable = Interest { read: true, write: false };
        self.epoll.change(descriptor, 0, Interest::default(), readable)
    }

    /// The same, under a name that [`Self::ready`] tells; `u64::MAX - 1` is taken.
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

    /// Waits for at most `timeout`; may end earlier with nothing ready.
    ///
    /// # Errors
    /// What `epoll_wait` says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.found.clear();
        let limit = timeout.filter(Duration::is_zero);
        if let (Some(timeout), None) = (timeout, limit) {
            self.alarm.within(timeout)?;
        }
        self.epoll.wait(limit, &mut self.found)?;
        self.found.retain(|ready| ready.token != ALARM);
        Ok(())
    }
}
