//! Waits for several descriptors at once, for transports that poll each of them afterwards anyway.

use crate::sys::{Epoll, Interest, Ready};
use landfall_spin::Alarm;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The token of the alarm.
const ALARM: u64 = u64::MAX - 1;

/// Waits until one of the watched descriptors is ready.
pub struct Poller {
    epoll: Epoll,
    alarm: Alarm,
    found: Vec<Ready>,
}

impl Poller {
    /// A poller without descriptors.
    ///
    /// # Errors
    /// The process has no free file descriptor.
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

    /// Watches a descriptor, level-triggered.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn watch(&mut self, descriptor: RawFd) -> io::Result<()> {
        let readable = Interest { read: true, write: false };
        self.epoll.change(descriptor, 0, Interest::default(), readable)
    }

    /// Watches a descriptor, level-triggered, under a name that [`Self::ready`] returns; `u64::MAX - 1` is reserved.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn watch_as(&mut self, descriptor: RawFd, name: u64) -> io::Result<()> {
        let readable = Interest { read: true, write: false };
        self.epoll.change(descriptor, name, Interest::default(), readable)
    }

    /// Names of the descriptors that the last wait found readable; 0 for those without a name.
    pub fn ready(&self) -> impl Iterator<Item = u64> + '_ {
        self.found.iter().map(|ready| ready.token)
    }

    /// Watches a descriptor, edge-triggered, such as that of a [`crate::Waker`].
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn watch_edges(&mut self, descriptor: RawFd) -> io::Result<()> {
        self.watch_edges_as(descriptor, 0)
    }

    /// Watches a descriptor, edge-triggered, under a name that [`Self::ready`] returns once for each edge;
    /// `u64::MAX - 1` is reserved.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub fn watch_edges_as(&mut self, descriptor: RawFd, name: u64) -> io::Result<()> {
        self.epoll.watch_edges(descriptor, name)
    }

    /// Waits for at most `timeout`. The wait may end earlier with nothing ready.
    ///
    /// # Errors
    /// An error of `epoll_wait`.
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
