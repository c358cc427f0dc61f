//! The counters of a device.

use crate::log::NotLogged;
use std::collections::BTreeMap;

/// Counters of a device since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// PMNet packets that have arrived.
    pub packets: u64,
    /// Packets that could not be parsed. They are forwarded.
    pub malformed: u64,
    /// Packets that arrived on a side on which their type is not accepted. They are forwarded.
    pub wrong_side: u64,
    /// Packets with an invalid seal, where a key is configured. They are not processed.
    pub unauthentic: u64,
    /// Updates, including repeated ones.
    pub updates: u64,
    /// Updates that went into the log.
    pub logged: u64,
    /// PMNet-ACKs that the device has sent, including repeated ones.
    pub acknowledged: u64,
    /// Acknowledgements of other devices that were sent together with the device's own.
    pub joined: u64,
    /// Updates that have arrived again.
    pub repeated: u64,
    /// Updates that were forwarded without being logged, because their server refuses the session.
    pub refused: u64,
    /// First packets of foreign sessions that were not forwarded, because the log has updates of an older session of
    /// the same name.
    pub withheld: u64,
    /// Updates that were forwarded without being logged, by reason.
    pub not_logged: BTreeMap<NotLogged, u64>,
    /// Fences.
    pub fences: u64,
    /// Server-ACKs.
    pub server_acks: u64,
    /// Updates that were removed.
    pub removed: u64,
    /// Updates that were removed because the server does not know their session.
    pub removed_refused: u64,
    /// Retransmission requests.
    pub retransmissions: u64,
    /// Retransmission requests that were answered entirely from the log.
    pub retransmissions_answered: u64,
    /// Recover requests of servers.
    pub recoveries: u64,
    /// Held requests of servers.
    pub held_requests: u64,
    /// Updates that were sent to a server again, for any reason.
    pub resent: u64,
    /// How often all updates of a server were sent again.
    pub replays: u64,
    /// Bypasses.
    pub bypasses: u64,
    /// Bypasses answered from the cache.
    pub cache_hits: u64,
    /// Packets that were delayed until updates of other sessions were applied.
    pub held: u64,
    /// Packets that were dropped because they had been delayed for too long, because a copy of them was delayed
    /// already, or because there was no room.
    pub held_dropped: u64,
    /// Errors of the medium.
    pub media_errors: u64,
}
