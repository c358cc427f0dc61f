//! What can be wrong with a packet.

/// Why bytes are not a PMNet packet that is understood. Blame: the peer, or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Shorter than header and extension of its type.
    #[error("a packet of {len} bytes is shorter than the {needed} of its type")]
    Short {
        /// Bytes there.
        len: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Fields that contradict each other or are out of their range.
    #[error("{what} is out of its range")]
    Field {
        /// Which field.
        what: &'static str,
    },
}

/// Why the log cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// From the heap.
    #[error(transparent)]
    Heap(#[from] landfall_heap::HeapError),
    /// From the medium.
    #[error(transparent)]
    Media(#[from] landfall_media::MediaError),
}
