//! What goes in and out of a socket.

/// Most pieces of a packet to transmit: `MAX_SKB_FRAGS` + 1.
pub const PIECES_MAX: usize = 18;

/// A packet received, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its first byte, the Ethernet header's for the first part: offset in the UMEM. The chunk is
    /// [`Umem::chunk_of`](crate::Umem::chunk_of) it, and is the caller's until it is filled again.
    pub addr: u64,
    /// Its bytes.
    pub len: u32,
    /// When the steering program saw it, nanoseconds of `CLOCK_MONOTONIC`; 0 if it left no stamp.
    pub stamp_ns: u64,
    /// It is no whole packet: the one received before, or the next one, is another part of it.
    pub is_part: bool,
}

/// A piece of a packet to transmit. It may start anywhere in a chunk and may not reach into the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte: offset in the UMEM.
    pub addr: u64,
    /// Its bytes, not zero.
    pub len: u32,
}

/// Why a packet was not taken for transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotTaken {
    /// The ring has no room for all the pieces: [`Socket::kick`](crate::Socket::kick), then try again.
    #[error("the transmit ring is full: kick it and try again")]
    Full,
    /// Misuse: no pieces, or more than [`PIECES_MAX`].
    #[error("a packet of {0} pieces: there must be 1 to {PIECES_MAX}")]
    Pieces(usize),
    /// Misuse: the piece is empty, crosses the end of its chunk, or lies outside the UMEM. The kernel
    /// would drop the packet.
    #[error("a piece of {len} bytes at {addr} is empty or not inside one chunk of the UMEM")]
    Piece {
        /// Where it starts.
        addr: u64,
        /// Its bytes.
        len: u32,
    },
}

/// What the kernel counted for a socket since it was opened, packets or descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped for other reasons than those below. The kernel counts a packet that finds no chunk here, too; that is
    /// taken off.
    pub rx_dropped: u64,
    /// Chunk addresses in the fill ring that lay outside the UMEM.
    pub rx_invalid: u64,
    /// Descriptors in the transmit ring that the kernel refused.
    pub tx_invalid: u64,
    /// Packets dropped because the receive ring was full: receive more often.
    pub rx_ring_full: u64,
    /// Packets dropped because the fill ring was empty: fill more. Where the driver lands packets itself (zero-copy), times
    /// that it found the ring empty.
    pub fill_ring_empty: u64,
    /// Times the transmit ring was found empty.
    pub tx_ring_empty: u64,
}
