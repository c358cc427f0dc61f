//! Socket calls with memory of the region.

use super::checked::checked;
use super::message::Message;
use super::region::Region;
use landfall_media::Extent;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// Takes ownership of a descriptor that the kernel has just created by accepting a connection.
pub(crate) fn adopt(fd: RawFd) -> TcpStream {
    assert!(fd >= 0, "the kernel reported {fd} as an accepted connection");
    // SAFETY: an accept completion reports a descriptor once, and it has no other owner.
    unsafe { TcpStream::from_raw_fd(fd) }
}

/// Receives available bytes, at most `space.len`, into `space`; zero at the end of the stream. `space` must lie in a
/// run that [`crate::Frames::take_run`] lent, behind all bytes that were reported as landed.
///
/// # Errors
/// `WouldBlock` if no bytes are available, otherwise the connection's error.
pub(crate) fn receive(socket: &TcpStream, region: Region, space: Extent) -> io::Result<u32> {
    let (address, len) = (region.address(space), space.len() as usize);
    // SAFETY: `address` checked that the bytes lie in the mapped image. Their run is lent to this transport, so no
    // other code accesses them before they are reported.
    let received = unsafe { libc::recv(socket.as_raw_fd(), address.cast(), len, libc::MSG_DONTWAIT) };
    checked(received).map(|len| u32::try_from(len).expect("no more than space.len bytes were received"))
}

/// Sends the pieces that [`Message::prepare`] gathered, as far as the socket accepts them now.
///
/// # Errors
/// `WouldBlock` if it accepts nothing, otherwise the connection's error.
pub(crate) fn send(socket: &TcpStream, message: &Message) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the iovecs of the header point into the message's own buffers and into the mapped image, which the kernel
    // only reads.
    checked(unsafe { libc::sendmsg(socket.as_raw_fd(), message.header(), flags) })
}
