//! Messages of libraries over a connection: each behind its length (4). `docs/format/fs-network.md`, "Virtual machines".

use crate::counter::wait;
use landfall_fs_link::MESSAGE_BYTES_MAX;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Sends a message over a connection.
///
/// # Errors
/// The connection's.
pub(super) fn send_over(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    let len = u32::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&len.to_le_bytes()[..], message].concat())
}

/// The next message of a connection; `None`: it has ended.
///
/// # Errors
/// `InvalidData`: it is too long. The connection's.
pub(super) fn receive_over(mut stream: &TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    match stream.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; len];
    stream.read_exact(&mut message)?;
    Ok(Some(message))
}

/// The next message of a library, or of the server that answers it; `None`: the socket is closed.
///
/// # Errors
/// An error of the kernel.
pub(super) fn receive_packet(socket: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let (len, _) = recv(socket, &mut bytes[..], RecvFlags::empty())?;
    Ok((len > 0).then(|| bytes[..len].to_vec()))
}

/// Passes messages on between a connection and the server whose libraries connect to `libraries`, until one of them ends or
/// `stop` is readable.
///
/// # Errors
/// The connection's, or an error of the kernel.
pub(super) fn pass(stream: &TcpStream, libraries: &Path, stop: BorrowedFd<'_>) -> io::Result<()> {
    let socket: OwnedFd =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(libraries)?)?;
    loop {
        match wait(&[stop, socket.as_fd(), stream.as_fd()], None)? {
            Some(1) => match receive_packet(socket.as_fd())? {
                Some(message) => send_over(stream, &message)?,
                None => return Ok(()),
            },
            Some(2) => match receive_over(stream)? {
                Some(message) => drop(send(&socket, &message, SendFlags::NOSIGNAL)?),
                None => return Ok(()),
            },
            _ => return Ok(()),
        }
    }
}
