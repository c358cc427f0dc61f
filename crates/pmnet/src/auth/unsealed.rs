//! Why packets are rejected.

/// Why a packet is rejected. Blame: the peer, or somebody in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsealed {
    /// The tag is missing, or was made with another key, for other addresses or for the other direction.
    #[error("the tag does not fit")]
    Tag,
    /// The packet is too old, or the clocks of the two hosts differ too much.
    #[error("it was made too long ago, or the clocks differ")]
    Stale,
    /// The packet has arrived before, or too many later packets of its sender have arrived.
    #[error("it has arrived before")]
    Repeated,
    /// More senders are active than can be stored.
    #[error("there are too many senders")]
    Crowded,
}
