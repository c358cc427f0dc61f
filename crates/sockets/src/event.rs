//! What a transport reports.

use crate::conn_id::ConnId;
use crate::outgoing::Outgoing;
use landfall_media::Extent;
use std::io;
use std::net::SocketAddr;

/// Events that a transport reports.
#[derive(Debug)]
pub enum Event {
    /// A client connected to the listener that was registered with the tag `listener`.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The tag given to [`crate::Transport::listen`].
        listener: u32,
        /// The client's address.
        peer: Option<SocketAddr>,
    },
    /// Received bytes of the stream. They carry one hold, which passes to the receiver.
    Received {
        /// The connection.
        conn: ConnId,
        /// Where the bytes landed; with their sum, if the transport itself has verified the packet's checksum.
        extent: Extent,
        /// When the packet arrived, Unix nanoseconds; 0 if the transport does not know.
        arrival_ns: u64,
    },
    /// An [`Outgoing`] was sent completely, and its extents were released. Its buffers can be reused.
    Sent {
        /// The connection.
        conn: ConnId,
        /// The emptied buffers.
        buffers: Outgoing,
    },
    /// The client closed its sending side. Queued replies can still be sent.
    Eof {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended, and no call accepts its id any more. This event also follows every `close`.
    Closed {
        /// The connection.
        conn: ConnId,
        /// The error that ended the connection, if any.
        error: Option<io::Error>,
    },
    /// The writes of one [`crate::Transport::write_back`] are durable, or have failed.
    WrittenBack {
        /// The id passed to [`crate::Transport::write_back`].
        id: u64,
        /// `Ok` only if every write and the sync succeeded.
        outcome: io::Result<()>,
    },
    /// [`crate::Waker::wake`] was called.
    Woken,
    /// No run could be taken: the transport receives nothing until runs are free again.
    Starved,
}
