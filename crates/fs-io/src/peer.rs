//! The other side of a connection: bytes come and go as long as that lasts.

use landfall_fuse::{Reply, Sent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// What became of bytes that the other side was to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Whole,
    /// The connection has ended, or the worker is to end.
    Ended,
}

/// A connection, on which there is one request at a time that is to be answered.
pub(crate) struct Peer {
    stream: TcpStream,
    /// Readable when the worker is to end.
    stop: OwnedFd,
}

impl Peer {
    /// The other side of a connection that does not block, until `stop` is readable.
    pub(crate) fn new(stream: TcpStream, stop: OwnedFd) -> Self {
        Self { stream, stop }
    }

    /// Waits until the connection is ready for `what`. False if the worker is to end.
    fn wait(&self, what: PollFlags) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stream, what), PollFd::new(&self.stop, PollFlags::IN)];
        loop {
            match poll(&mut fds, None) {
                Ok(_) => return Ok(fds[1].revents().is_empty()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives until all of `parts` are full.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn fill(&self, mut parts: &mut [IoSliceMut<'_>]) -> io::Result<Filled> {
        IoSliceMut::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match rustix::io::readv(&self.stream, parts) {
                Ok(0) => return Ok(Filled::Ended),
                Ok(bytes) => IoSliceMut::advance_slices(&mut parts, bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(PollFlags::IN)? => {}
                Err(Errno::AGAIN) => return Ok(Filled::Ended),
                Err(errno) if has_ended(errno) => return Ok(Filled::Ended),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Filled::Whole)
    }

    /// Sends all of `parts`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn send(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<Sent> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match rustix::io::writev(&self.stream, parts) {
                Ok(bytes) => IoSlice::advance_slices(&mut parts, bytes),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.wait(PollFlags::OUT)? => {}
                Err(Errno::AGAIN) => return Ok(Sent::Ended),
                Err(errno) if has_ended(errno) => return Ok(Sent::Ended),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Sent::Done)
    }

    /// Sends a reply of fixed size.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn reply(&self, reply: &Reply) -> io::Result<Sent> {
        self.send(&mut [IoSlice::new(reply.as_bytes())])
    }
}

/// Whether an error is the end of a connection.
fn has_ended(errno: Errno) -> bool {
    let ends = [
        Errno::CONNRESET,
        Errno::PIPE,
        Errno::TIMEDOUT,
        Errno::NOTCONN,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
    ];
    ends.contains(&errno)
}
