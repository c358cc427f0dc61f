//! Waits for sockets and timeouts with epoll.

use crate::runtime::RuntimeError;
use landfall_spin::Alarm;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Most events that one wait returns.
const EVENTS_MAX: usize = 256;
const LISTENER: u64 = u64::MAX;
const NETWORK: u64 = u64::MAX - 1;
const ALARM: u64 = u64::MAX - 2;

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A socket that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Listener,
    Network,
    Connection(u64),
}

impl Ready {
    fn data(self) -> u64 {
        match self {
            Self::Listener => LISTENER,
            Self::Network => NETWORK,
            Self::Connection(id) => id,
        }
    }
}

pub(super) struct Poller {
    epoll: OwnedFd,
    alarm: Alarm,
    events: Vec<epoll::Event>,
    /// Events that connections wait for. Connections that wait for input alone are not listed.
    wants: BTreeMap<u64, EventFlags>,
}

impl Poller {
    pub(super) fn new() -> Result<Self, RuntimeError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(refused)?;
        let alarm = Alarm::new().map_err(waiting)?;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), EventFlags::IN).map_err(refused)?;
        Ok(Self { epoll, alarm, events: Vec::with_capacity(EVENTS_MAX), wants: BTreeMap::new() })
    }

    pub(super) fn add(&mut self, source: impl AsFd, ready: Ready) -> Result<(), RuntimeError> {
        epoll::add(&self.epoll, source, EventData::new_u64(ready.data()), EventFlags::IN).map_err(refused)
    }

    /// Sets the events that a connection waits for.
    pub(super) fn want(
        &mut self,
        source: impl AsFd,
        id: u64,
        input: bool,
        output: bool,
    ) -> Result<(), RuntimeError> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, input);
        flags.set(EventFlags::OUT, output);
        let before = self.wants.get(&id).copied().unwrap_or(EventFlags::IN);
        if before == flags {
            return Ok(());
        }
        if flags == EventFlags::IN {
            self.wants.remove(&id);
        } else {
            self.wants.insert(id, flags);
        }
        epoll::modify(&self.epoll, source, EventData::new_u64(id), flags).map_err(refused)
    }

    pub(super) fn remove(&mut self, source: impl AsFd, id: u64) {
        self.wants.remove(&id);
        // An error does not matter, because closing the socket removes it, too.
        let _ = epoll::delete(&self.epoll, source);
    }

    /// Waits for at most `most`, and returns the sockets that are ready. It may return earlier with none.
    pub(super) fn wait(&mut self, most: Duration) -> Result<Vec<Ready>, RuntimeError> {
        let limit = most.is_zero().then_some(NO_TIME);
        if limit.is_none() {
            self.alarm.within(most).map_err(waiting)?;
        }
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(refused(errno)),
        }
        let ready = self.events.iter().filter_map(|event| match event.data.u64() {
            ALARM => None,
            LISTENER => Some(Ready::Listener),
            NETWORK => Some(Ready::Network),
            id => Some(Ready::Connection(id)),
        });
        Ok(ready.collect())
    }
}

fn refused(errno: rustix::io::Errno) -> RuntimeError {
    waiting(errno.into())
}

fn waiting(source: std::io::Error) -> RuntimeError {
    RuntimeError::Kernel { what: "wait for sockets", source }
}
