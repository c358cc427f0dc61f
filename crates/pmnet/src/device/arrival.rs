//! A packet that arrives, and what becomes of it.

use super::table::Side;
use core::net::SocketAddr;
use landfall_media::Extent;

/// A PMNet packet that has arrived and has been verified. The caller holds its bytes until the call returns.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The side on which the packet arrived.
    pub side: Side,
    /// Source address.
    pub from: SocketAddr,
    /// Destination address.
    pub to: SocketAddr,
    /// The PMNet header and everything after it.
    pub payload: &'a [u8],
    /// The packet in the region. The log refers to it. Empty if the packet is not there, which only one of a server may
    /// be.
    pub packet: Extent,
    /// Number of bytes in `packet` before `payload`.
    pub header_at: usize,
    /// Time of arrival in Unix nanoseconds.
    pub arrival_ns: u64,
}

/// What the caller must do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the packet unchanged.
    Forward,
    /// Do not forward it.
    Taken,
}
