//! The connection between a holder and a server: a socket of this machine, where one packet is one message, descriptors
//! included, or a TCP connection, where each message follows its length.

use super::message::{DESCRIPTORS_MAX, MESSAGE_BYTES_MAX, Message, MessageError};
use crate::counter::wait;
use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the other side may take to answer.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

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
    wire: Wire,
}

#[derive(Debug)]
enum Wire {
    Packets(OwnedFd),
    Stream(Stream),
}

#[derive(Debug)]
struct Stream {
    connection: TcpStream,
    /// Held by who sends: messages do not mix.
    sends: Mutex<()>,
    /// Nothing more is sent: the other side has the last word, and nothing on this side ends the connection before that.
    is_finished: AtomicBool,
}

impl Channel {
    /// Messages over a socket of this machine. None waits longer for room than an answer may take.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        set_socket_timeout(&socket, Timeout::Send, Some(ANSWER_LIMIT))?;
        Ok(Self { wire: Wire::Packets(socket) })
    }

    /// Messages over a connection. No message takes longer than an answer may.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let (sends, is_finished) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { wire: Wire::Stream(Stream { connection: stream, sends, is_finished }) })
    }

    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Self::new(socket)
    }

    /// Sends a message, with descriptors, which do not go over the network.
    ///
    /// # Errors
    /// [`ChannelError::Socket`].
    pub(super) fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        let bytes = message.encode();
        let socket = match &self.wire {
            Wire::Packets(socket) => socket,
            Wire::Stream(stream) => return Ok(stream.send(&bytes)?),
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a message that may be lost: the other side has too many already. Returns whether it is on its way.
    pub(super) fn try_send(&self, message: &Message) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match &self.wire {
            Wire::Packets(socket) => rustix::net::send(socket, &message.encode(), flags).is_ok(),
            Wire::Stream(_) => self.send(message, &[]).is_ok(),
        }
    }

    /// Says that nothing more will be sent. The other side has the last word.
    pub(super) fn finish(&self) {
        if let Wire::Stream(Stream { is_finished, .. }) = &self.wire {
            is_finished.store(true, Ordering::Release);
        }
        // If the other side is gone, it knows.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Write);
    }

    /// Ends the connection, unless the other side has the last word: whoever waits for something finds that it is closed.
    pub(super) fn close(&self) {
        match &self.wire {
            Wire::Packets(socket) => _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both),
            Wire::Stream(stream) => stream.close(),
        }
    }

    /// Receives a message that is due soon, with its descriptors.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub(super) fn receive(&self) -> Result<(Message, Vec<OwnedFd>), ChannelError> {
        if wait(&[self.as_fd()], Some(ANSWER_LIMIT))?.is_none() {
            return Err(ChannelError::Silent);
        }
        match &self.wire {
            Wire::Packets(socket) => receive_packet(socket),
            Wire::Stream(stream) => receive_from(&stream.connection).map(|message| (message, Vec::new())),
        }
    }
}

impl Stream {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        if self.is_finished.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let framed = [&len.to_le_bytes()[..], bytes].concat();
        let _sends = self.sends.lock();
        // What follows half a message means nothing.
        (&self.connection).write_all(&framed).inspect_err(|_| self.close())
    }

    fn close(&self) {
        if !self.is_finished.load(Ordering::Acquire) {
            let _ = self.connection.shutdown(Shutdown::Both);
        }
    }
}

fn receive_packet(socket: &OwnedFd) -> Result<(Message, Vec<OwnedFd>), ChannelError> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut receive = || recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
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

fn receive_from(mut stream: &TcpStream) -> Result<Message, ChannelError> {
    let mut len = [0; 4];
    fill(&mut stream, &mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(MessageError::Malformed.into());
    }
    let mut bytes = vec![0; len];
    fill(&mut stream, &mut bytes)?;
    Ok(Message::decode(&bytes)?)
}

fn fill(stream: &mut &TcpStream, bytes: &mut [u8]) -> Result<(), ChannelError> {
    stream.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ChannelError::Closed,
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ChannelError::Silent,
        _ => ChannelError::Socket(error),
    })
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.wire {
            Wire::Packets(socket) => socket.as_fd(),
            Wire::Stream(stream) => stream.connection.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The two ends of a connection.
    fn ends() -> [Channel; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [here, listener.accept().unwrap().0].map(|stream| Channel::over(stream).unwrap())
    }

    fn hears(channel: &Channel, expected: &Message) {
        assert_eq!(channel.receive().unwrap().0, *expected);
    }

    #[test]
    fn who_has_finished_hears_the_last_word_whatever_it_is_asked_before() {
        let [holder, server] = ends();
        holder.finish();
        assert!(server.try_send(&Message::Point(7)));
        hears(&holder, &Message::Point(7));
        assert!(!holder.try_send(&Message::Point(8)), "it has said that nothing more comes");
        // A queue has failed, as the server has closed all of them.
        holder.close();
        assert!(matches!(server.receive(), Err(ChannelError::Closed)));
        let last = Message::Ended(String::new());
        let said = std::thread::spawn(move || {
            // Who has lost the connection finds that at once.
            std::thread::sleep(Duration::from_millis(100));
            server.send(&Message::Ended(String::new()), &[]).unwrap();
        });
        hears(&holder, &last);
        said.join().unwrap();
        assert!(matches!(holder.receive(), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_connection_that_cannot_send_any_more_is_closed_on_both_sides() {
        let [holder, server] = ends();
        server.close();
        let is_lost = (0..100).any(|_| !holder.try_send(&Message::Point(9)));
        assert!(is_lost && matches!(holder.receive(), Err(ChannelError::Closed)));
    }
}
