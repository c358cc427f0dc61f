//! The other side of a connection: bytes come and go as long as that lasts.

use landfall_fuse::{Errno as FuseErrno, REPLY_HEADER_BYTES, Reply, Sent, Unique};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

/// Not an error of any call.
const SHUTDOWN: FuseErrno = FuseErrno::from_raw(libc::ESHUTDOWN);

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
    /// Held by who sends.
    sending: Mutex<Sending>,
}

#[derive(Default)]
struct Sending {
    /// A request has been received whose reply comes later.
    owes: bool,
    /// No request is received any more.
    leaves: bool,
    /// Nothing more is sent: something was sent in part, or the farewell.
    is_over: bool,
}

/// Says that what was not answered before was not executed: a reply to no request.
fn farewell() -> Reply {
    Reply::error(Unique(0), SHUTDOWN)
}

/// Whether the header of a reply says that what was not answered before was not executed.
pub(crate) fn is_farewell(header: &[u8; REPLY_HEADER_BYTES]) -> bool {
    header[..] == *farewell().as_bytes()
}

impl Peer {
    /// The other side of a connection that does not block, until `stop` is readable.
    pub(crate) fn new(stream: TcpStream, stop: OwnedFd) -> Self {
        Self { stream, stop, sending: Mutex::default() }
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
    pub(crate) fn send(&self, parts: &mut [IoSlice<'_>]) -> io::Result<Sent> {
        let mut sending = self.sending.lock();
        sending.is_over = true;
        let sent = self.write(parts)?;
        (sending.is_over, sending.owes) = (sent == Sent::Ended, false);
        if sending.leaves {
            self.say_farewell(&mut sending);
        }
        Ok(sent)
    }

    /// The request that was received last is answered later.
    pub(crate) fn owe(&self) {
        self.sending.lock().owes = true;
    }

    /// No request is received any more: the other side hears that when it has its last reply.
    pub(crate) fn leave(&self) {
        let mut sending = self.sending.lock();
        sending.leaves = true;
        if !sending.owes {
            self.say_farewell(&mut sending);
        }
    }

    fn say_farewell(&self, sending: &mut Sending) {
        // If it cannot be said, the other side does not know what was executed.
        if !std::mem::replace(&mut sending.is_over, true) {
            let _ = self.write(&mut [IoSlice::new(farewell().as_bytes())]);
        }
    }

    fn write(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<Sent> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::{counter, raise};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server's end of a connection, which does not block, and the holder's.
    fn ends() -> (Peer, OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let stop = counter().unwrap();
        (Peer::new(stream, stop.try_clone().unwrap()), stop, holder)
    }

    fn all(mut holder: TcpStream) -> Vec<u8> {
        let mut heard = Vec::new();
        holder.read_to_end(&mut heard).unwrap();
        heard
    }

    #[test]
    fn a_farewell_follows_the_last_reply() {
        let reply = Reply::ok(Unique(7));
        let both = [reply.as_bytes(), farewell().as_bytes()].concat();
        for is_owed in [false, true] {
            let (peer, _stop, holder) = ends();
            if is_owed {
                peer.owe();
                peer.leave();
            }
            peer.reply(&reply).unwrap();
            peer.leave();
            drop(peer);
            assert_eq!(all(holder), both);
        }
        assert!(is_farewell(both[REPLY_HEADER_BYTES..].first_chunk().unwrap()));
        assert!(!is_farewell(both.first_chunk().unwrap()));
    }

    #[test]
    fn nothing_follows_a_reply_that_was_sent_in_part_or_is_owed() {
        let (peer, stop, holder) = ends();
        raise(&stop);
        let long = vec![0; 32 << 20];
        assert_eq!(peer.send(&mut [IoSlice::new(&long)]).unwrap(), Sent::Ended);
        peer.leave();
        drop(peer);
        assert!(all(holder).iter().all(|byte| *byte == 0));
        let (peer, _stop, holder) = ends();
        peer.owe();
        peer.leave();
        drop(peer);
        assert_eq!(all(holder), []);
    }

    #[test]
    fn a_farewell_is_read_by_who_could_not_send_any_more() {
        let (peer, _stop, mut holder) = ends();
        // It is never read, so that the connection is reset.
        holder.write_all(b"request").unwrap();
        peer.leave();
        drop(peer);
        while holder.write_all(b"request").is_ok() {}
        let mut header = [0; REPLY_HEADER_BYTES];
        holder.read_exact(&mut header).unwrap();
        assert!(is_farewell(&header));
    }
}
