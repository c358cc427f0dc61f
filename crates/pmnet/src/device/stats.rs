//! What a device counts.

use crate::log::NotLogged;
use std::collections::BTreeMap;

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// PMNet packets that arrived.
    pub packets: u64,
    /// Packets that could not be understood; forwarded.
    pub malformed: u64,
    /// Packets that came in at the side from which their type does not count; forwarded.
    pub wrong_side: u64,
    /// Packets whose seal did not fit, where a key is shared; nothing was done with them.
    pub unauthentic: u64,
    /// Updates, repetitions included.
    pub updates: u64,
    /// Updates that went into the log.
    pub logged: u64,
    /// PMNet-ACKs of its own making, repeated ones included.
    pub acknowledged: u64,
    /// Acknowledgements of other devices that went on with its own.
    pub joined: u64,
    /// Updates that came again.
    pub repeated: u64,
    /// Updates that were forwarded without being logged, as their server refuses the session.
    pub refused: u64,
    /// First packets of foreign sessions that were held up, as updates of others with their names are in the log.
    pub withheld: u64,
    /// Updates that were forwarded without being logged, by reason.
    pub not_logged: BTreeMap<NotLogged, u64>,
    /// Fences.
    pub fences: u64,
    /// Server-ACKs.
    pub server_acks: u64,
    /// Updates that were removed.
    pub removed: u64,
    /// Updates that were removed as the server does not know their sessions.
    pub removed_refused: u64,
    /// Retransmission requests, and those answered from the log alone.
    pub retransmissions: u64,
    /// See [`Self::retransmissions`].
    pub retransmissions_answered: u64,
    /// Recovery requests of servers.
    pub recoveries: u64,
    /// Times that a server asked what is here of a session.
    pub held_requests: u64,
    /// Updates sent to a server again, for whatever reason.
    pub resent: u64,
    /// Times all of a server's updates were sent again.
    pub replays: u64,
    /// Bypasses.
    pub bypasses: u64,
    /// Bypasses answered from the cache.
    pub cache_hits: u64,
    /// Packets that were held until updates of other sessions were applied.
    pub held: u64,
    /// Packets that were dropped instead: held for too long or already, or no room.
    pub held_dropped: u64,
    /// Errors of the medium.
    pub media_errors: u64,
}
