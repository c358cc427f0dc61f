//! What a stack reports.

use crate::tcp::Ended;
use core::net::SocketAddr;
use landfall_media::{Extent, Sum};

/// A connection of a stack. Never used again for another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// What a stack reports. Events of one connection come in the order of its stream, and none after its
/// [`Self::Ended`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A peer has opened a connection to a port listened on.
    Accepted {
        /// The new connection.
        conn: ConnId,
        /// The tag given to [`crate::Stack::listen`].
        tag: u32,
        /// The peer.
        remote: SocketAddr,
    },
    /// A connection that we opened is there.
    Connected {
        /// The connection.
        conn: ConnId,
    },
    /// Bytes of the stream where they landed, held once for the receiver.
    Received {
        /// The connection.
        conn: ConnId,
        /// Where.
        extent: Extent,
        /// Their sum, from the segment's checksum.
        sum: Sum,
        /// When their packet arrived, Unix nanoseconds.
        arrival_ns: u64,
    },
    /// There is room to send again, after [`crate::Stack::is_writable`] was false.
    Writable {
        /// The connection.
        conn: ConnId,
    },
    /// The peer sends no more.
    Eof {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is over, and its number means nothing any more.
    Ended {
        /// The connection.
        conn: ConnId,
        /// How.
        how: Ended,
    },
    /// A UDP datagram to a port bound, held once for the receiver.
    Datagram {
        /// Port that it came to.
        port: u16,
        /// Who sent it.
        remote: SocketAddr,
        /// Its payload.
        extent: Extent,
        /// The payload's sum.
        sum: Sum,
        /// When it arrived, Unix nanoseconds.
        arrival_ns: u64,
    },
}

impl Event {
    /// The connection that it is about.
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
