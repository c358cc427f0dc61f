//! The socket between a holder and a server. One packet is one message, descriptors included.

use super::message::{DESCRIPTORS_MAX, MESSAGE_BYTES_MAX, Message, MessageError};
use crate::counter::wait;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// How long the other side may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Why the other side cannot be talked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Environment: an error of the socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// Peer: it does not speak this protocol.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// Peer: it has closed the socket.
    #[error("it has ended")]
    Closed,
    /// Peer: it does not answer.
    #[error("it does not answer")]
    Silent,
}

impl From<rustix::io::Errno> for ChannelError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Socket(errno.into())
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Sends a message, with descriptors.
    ///
    /// # Errors
    /// [`ChannelError::Socket`].
    pub(super) fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.socket, &[IoSlice::new(&message.encode())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message that may be lost: the other side has too many already. Returns whether it is on its way.
    pub(super) fn try_send(&self, message: &Message) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.socket, &message.encode(), flags).is_ok()
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish(&self) {
        // If the other side is gone, it knows.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    /// Receives a message that is due soon, with its descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub(super) fn receive(&self) -> Result<(Message, Vec<OwnedFd>), ChannelError> {
        match wait(&[self.socket.as_fd()], Some(ANSWER_LIMIT))? {
            Some(_) => {}
            None => return Err(ChannelError::Silent),
        }
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let mut receive = || recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let received = match receive() {
            // The other side has closed before it has read everything: what it has sent is there still.
            Err(rustix::io::Errno::CONNRESET) => receive()?,
            received => received?,
        };
        if received.bytes == 0 {
            return Err(ChannelError::Closed);
        }
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        Ok((Message::decode(&bytes[..received.bytes])?, descriptors))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
