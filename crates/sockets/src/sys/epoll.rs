//! A safe interface to epoll.

use super::checked::checked;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Ready descriptors reported by one wait.
const READY_MAX: usize = 256;

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    /// Readable, level-triggered.
    pub(crate) read: bool,
    /// Writable, level-triggered.
    pub(crate) write: bool,
}

/// A ready descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token that the descriptor was registered with.
    pub(crate) token: u64,
    /// Should be read: readable, at its end, or in error.
    pub(crate) read: bool,
    /// Should be written: writable, or in error.
    pub(crate) write: bool,
}

/// An epoll instance.
pub(crate) struct Epoll {
    fd: OwnedFd,
    found: Vec<libc::epoll_event>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        checked(fd)?;
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, found: vec![libc::epoll_event { events: 0, u64: 0 }; READY_MAX] })
    }

    /// Watches a descriptor for what can be read, edge-triggered.
    pub(crate) fn watch_edges(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, (libc::EPOLLIN | libc::EPOLLET).cast_unsigned(), token)
    }

    /// Changes the events that a descriptor is watched for. A descriptor with no events is removed from the set,
    /// because errors and hang-ups cannot be masked and would end every wait.
    pub(crate) fn change(&self, fd: RawFd, token: u64, from: Interest, to: Interest) -> io::Result<()> {
        let nothing = Interest::default();
        let operation = match (from == nothing, to == nothing) {
            _ if from == to => return Ok(()),
            (true, _) => libc::EPOLL_CTL_ADD,
            (false, true) => libc::EPOLL_CTL_DEL,
            (false, false) => libc::EPOLL_CTL_MOD,
        };
        self.control(operation, fd, to.bits(), token)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: the kernel reads one event, which lives until the call returns.
        checked(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
    }

    /// Waits for the first ready descriptor, or for `timeout` (`None`: for ever). Returns with none after a signal.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let count = match self.wait_precisely(timeout) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => self.wait_coarsely(timeout),
            result => result,
        };
        let count = match count {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            result => result?,
        };
        ready.extend(self.found.iter().take(count).map(Ready::from_event));
        Ok(())
    }

    /// `epoll_pwait2`: timeouts in nanoseconds, Linux 5.11.
    fn wait_precisely(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (fd, found, max) = (self.fd.as_raw_fd(), self.found.as_mut_ptr(), READY_MAX);
        let no_mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: `found` has room for `max` events; the timespec, if any, lives until the call returns;
        // a null mask leaves signals as they are.
        checked(unsafe { libc::syscall(libc::SYS_epoll_pwait2, fd, found, max, limit, no_mask, 0usize) })
    }

    /// `epoll_wait`: timeouts in milliseconds, rounded up.
    fn wait_coarsely(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let millis = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let (found, max) = (self.found.as_mut_ptr(), i32::try_from(READY_MAX).unwrap_or(i32::MAX));
        // SAFETY: `found` has room for `max` events.
        checked(unsafe { libc::epoll_wait(self.fd.as_raw_fd(), found, max, millis) })
    }
}

impl Interest {
    const fn bits(self) -> u32 {
        let read = if self.read { libc::EPOLLIN } else { 0 };
        let write = if self.write { libc::EPOLLOUT } else { 0 };
        (read | write).cast_unsigned()
    }
}

impl Ready {
    fn from_event(event: &libc::epoll_event) -> Self {
        let (bits, token) = ({ event.events }.cast_signed(), event.u64);
        let broken = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        Self { token, read: broken || bits & libc::EPOLLIN != 0, write: broken || bits & libc::EPOLLOUT != 0 }
    }
}
