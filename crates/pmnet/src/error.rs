//! Errors of packet parsing ([`WireError`]) and of the device's log ([`LogError`]).

/// Why bytes cannot be parsed as a PMNet packet. Blame: the peer, or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The packet is shorter than the header and the extension of its type.
    #[error("a packet of {len} bytes is shorter than the {needed} of its type")]
    Short {
        /// Bytes received.
        len: usize,
        /// Bytes that the packet's type needs.
        needed: usize,
    },
    /// A field is out of range, or contradicts another field.
    #[error("{what} is out of its range")]
    Field {
        /// The field's name.
        what: &'static str,
    },
}

/// Why a log operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The heap reported an error.
    #[error(transparent)]
    Heap(#[from] landfall_heap::HeapError),
    /// The medium reported an error.
    #[error(transparent)]
    Media(#[from] landfall_media::MediaError),
}
