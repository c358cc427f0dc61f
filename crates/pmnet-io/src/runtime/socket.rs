//! Opens UDP sockets and waits for them.

use landfall_spin::Alarm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Longest payload of a datagram, bytes.
pub(super) const DATAGRAM_BYTES_MAX: usize = 65535;
/// Most datagrams that are received before answers are sent.
pub(super) const RECEIVE_MAX: usize = 64;
/// Requested size of a socket's buffer in each direction, bytes. The kernel may grant less.
const BUFFER_BYTES: usize = 8 << 20;

/// Errors that stop a runtime. Blame: the machine, or the settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// Environment: an address cannot be used.
    #[error("cannot use {address} for PMNet: {source}; choose another address or port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// Environment: another system call failed.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What the call was for.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Misuse: the socket has as many sessions as it may have.
    #[error("all {max} sessions of the socket are in use; start another side-car")]
    Sessions {
        /// Most sessions of a socket.
        max: usize,
    },
    /// The application has failed with an error after which it cannot be started again.
    #[error("the application behind PMNet has ended: {0}")]
    Application(Box<dyn std::error::Error + Send + Sync>),
}

pub(super) fn open(address: SocketAddr) -> Result<UdpSocket, RuntimeError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // Best effort: the kernel limits the sizes, and lost datagrams are sent again.
        let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(BUFFER_BYTES);
        socket.bind(&address.into())?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    open().map_err(|source| RuntimeError::Bind { address, source })
}

/// Waits for sockets.
#[derive(Debug)]
pub(super) struct Waiter {
    alarm: Alarm,
}

impl Waiter {
    pub(super) fn new() -> Result<Self, RuntimeError> {
        Ok(Self { alarm: Alarm::new().map_err(waiting)? })
    }

    /// Waits until one of `sockets`, two at most, is readable, for `most` at most. Returns which of them are. It may
    /// return earlier with none.
    pub(super) fn wait(
        &mut self,
        sockets: &[BorrowedFd<'_>],
        most: Duration,
    ) -> Result<[bool; 2], RuntimeError> {
        let limit = most.is_zero().then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds: smallvec::SmallVec<[PollFd<'_>; 3]> =
            sockets.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        if limit.is_none() {
            self.alarm.within(most).map_err(waiting)?;
            fds.push(PollFd::new(&self.alarm, PollFlags::IN));
        }
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(waiting(errno.into())),
        }
        let ready = |at: usize| at < sockets.len() && !fds[at].revents().is_empty();
        Ok([ready(0), ready(1)])
    }
}

fn waiting(source: io::Error) -> RuntimeError {
    RuntimeError::Kernel { what: "wait for sockets", source }
}

/// True if an error means only that a datagram is lost: the protocol sends it again.
pub(super) fn is_loss(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable, WouldBlock,
    };
    let kinds =
        [WouldBlock, ConnectionRefused, Interrupted, HostUnreachable, NetworkUnreachable, NetworkDown];
    let errnos = [Errno::NOBUFS, Errno::PERM].map(|errno| Some(errno.raw_os_error()));
    kinds.contains(&error.kind()) || errnos.contains(&error.raw_os_error())
}
