//! Options of sockets.

use socket2::{SockRef, TcpKeepalive};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A client of which nothing is heard for so long is asked whether it is there: the default of Redis' `tcp-keepalive`.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(300);
/// Between the questions.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(100);
/// Questions without an answer after which the client has vanished.
const KEEP_ALIVE_TIMES: u32 = 3;

/// Connections that a listener accepts have its options: clients that have vanished leave their places.
pub(crate) fn keep_alive(listener: &TcpListener) {
    let options = TcpKeepalive::new().with_time(KEEP_ALIVE_AFTER).with_interval(KEEP_ALIVE_EVERY);
    let done = SockRef::from(listener).set_tcp_keepalive(&options.with_retries(KEEP_ALIVE_TIMES));
    if let Err(error) = done {
        tracing::warn!(%error, "clients that vanish are not noticed");
    }
}

/// When the socket is closed, its peer is told by a reset that not everything was sent, and what is queued is dropped.
pub(crate) fn reset_when_closed(socket: &TcpStream) {
    // Without it the connection is closed as others are.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
