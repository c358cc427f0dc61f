//! The UDP sockets of a relay.

use std::net::{SocketAddr, UdpSocket};

/// Requested size of a socket's buffers, bytes.
const SOCKET_BYTES: usize = 4 << 20;

/// A non-blocking UDP socket.
pub(super) fn socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let kind = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::DGRAM.nonblocking().cloexec(),
        None,
    )?;
    // Best effort: the kernel limits the sizes.
    let _ = kind.set_recv_buffer_size(SOCKET_BYTES);
    let _ = kind.set_send_buffer_size(SOCKET_BYTES);
    kind.bind(&address.into())?;
    Ok(kind.into())
}
