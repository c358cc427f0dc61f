//! Types for packets that a socket receives and transmits, and for its counters.

/// Pieces of a packet to transmit, at most: `MAX_SKB_FRAGS` + 1.
pub const PIECES_MAX: usize = 18;

/// A received packet, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// First byte, as an offset in the UMEM; in the first part it is the first byte of the Ethernet header. The chunk
    /// is [`Umem::chunk_of`](crate::Umem::chunk_of) this address, and belongs to the caller until it is filled again.
    pub addr: u64,
    /// Length, bytes.
    pub len: u32,
    /// When the steering program handled the packet, nanoseconds of `CLOCK_MONOTONIC`; 0 if it left no stamp.
    pub stamp_ns: u64,
    /// This is not a whole packet: the previous or the next descriptor is another part of it.
    pub is_part: bool,
}

/// A piece of a packet to transmit. It may start anywhere in a chunk but may not cross the chunk's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte, as an offset in the UMEM.
    pub addr: u64,
    /// Length, bytes; not zero.
    pub len: u32,
}

/// Why a packet was not queued for transmission.
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
        /// Offset of the piece.
        addr: u64,
        /// Length, bytes.
        len: u32,
    },
}

/// Counters of the kernel for a socket since it was opened, in packets or descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped for other reasons than those below. The kernel counts a packet that finds no chunk here, too;
    /// this value does not include it.
    pub rx_dropped: u64,
    /// Chunk addresses in the fill ring that lay outside the UMEM.
    pub rx_invalid: u64,
    /// Descriptors in the transmit ring that the kernel rejected.
    pub tx_invalid: u64,
    /// Packets dropped because the receive ring was full: the caller must receive more often.
    pub rx_ring_full: u64,
    /// Packets dropped because the fill ring was empty: the caller must fill more. In zero-copy mode, how often the
    /// driver found the ring empty.
    pub fill_ring_empty: u64,
    /// How often the transmit ring was empty.
    pub tx_ring_empty: u64,
}
