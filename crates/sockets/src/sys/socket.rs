//! Socket calls on region memory.

use super::{Message, Region, checked};
use landfall_media::Extent;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Takes over a descriptor that the kernel has just made by accepting a connection.
pub(crate) fn adopt(fd: RawFd) -> TcpStream {
    assert!(fd >= 0, "the kernel reported {fd} as an accepted connection");
    // SAFETY: an accept completion reports a descriptor once, and nobody else knows it.
    unsafe { TcpStream::from_raw_fd(fd) }
}

/// Receives what is there, at most `space.len` bytes, into `space`; zero at the end of the stream.
/// `space` must lie in a run that [`crate::Frames::take_run`] lent, past all bytes reported as landed.
///
/// # Errors
/// `WouldBlock` when nothing is there, otherwise the connection's error.
pub(crate) fn receive(socket: &TcpStream, region: Region, space: Extent) -> io::Result<u32> {
    let (address, len) = (region.address(space), space.len() as usize);
    // SAFETY: `address` checked that the bytes lie in the mapped image; the run they lie in is lent to
    // this transport, so nobody reads or writes them before they are reported.
    let received = unsafe { libc::recv(socket.as_raw_fd(), address.cast(), len, libc::MSG_DONTWAIT) };
    checked(received).map(|len| u32::try_from(len).expect("no more than space.len bytes were received"))
}

/// Sends the pieces that [`Message::prepare`] gathered, as far as the socket takes them now.
///
/// # Errors
/// `WouldBlock` when it takes nothing, otherwise the connection's error.
pub(crate) fn send(socket: &TcpStream, message: &Message) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header's iovecs are into the message's own buffers and into the mapped image, and are
    // only read.
    checked(unsafe { libc::sendmsg(socket.as_raw_fd(), message.header(), flags) })
}
