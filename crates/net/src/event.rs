//! Events that a stack reports to its application.

use core::net::SocketAddr;
use landfall_media::{Extent, Sum};

/// Number of a connection in a stack. A number is never used again for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides closed.
    Closed,
    /// The peer reset the connection.
    Reset,
    /// The peer refused the connection.
    Refused,
    /// The peer did not answer for too long.
    TimedOut,
    /// The application or the stack reset the connection.
    Aborted,
}

/// An event that a stack reports. Events of one connection are in the order of its stream; [`Self::Ended`] is the last
/// one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A peer has opened a connection to a port that the application listens on.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The tag given to [`crate::Stack::listen`].
        tag: u32,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection that the application opened is established.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// Received bytes of the stream, in the frames they landed in. They carry one hold, which passes to the
    /// application.
    Received {
        /// The connection.
        conn: ConnId,
        /// Where the bytes lie.
        extent: Extent,
        /// Sum of the bytes, derived from the segment's checksum.
        sum: Sum,
        /// When the packet arrived, Unix nanoseconds.
        arrival_ns: u64,
    },
    /// The send queue has room again, after [`crate::Stack::is_writable`] was false.
    Writable {
        /// The connection.
        conn: ConnId,
    },
    /// The peer has closed its sending side.
    Eof {
        /// The connection.
        conn: ConnId,
    },
    /// The connection has ended; no call accepts its number any more.
    Ended {
        /// The connection.
        conn: ConnId,
        /// The reason.
        how: Ended,
    },
    /// A UDP datagram to a bound port. The payload carries one hold, which passes to the application.
    Datagram {
        /// Local port.
        port: u16,
        /// Address and port of the sender.
        remote: SocketAddr,
        /// Where the payload lies.
        extent: Extent,
        /// Sum of the payload.
        sum: Sum,
        /// When the datagram arrived, Unix nanoseconds.
        arrival_ns: u64,
    },
}

impl Event {
    /// The connection that the event belongs to; `None` for a datagram.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Accepted { conn, .. }
            | Self::Connected { conn }
            | Self::Received { conn, .. }
            | Self::Writable { conn }
            | Self::Eof { conn }
            | Self::Ended { conn, .. } => Some(*conn),
            Self::Datagram { .. } => None,
        }
    }
}
