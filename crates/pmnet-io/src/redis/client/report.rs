//! The report of the client's side-car.

use std::net::SocketAddr;

/// Report of the client's side-car, which publishes it several times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SidecarReport {
    /// Address that the side-car listens on, as bound; `None` until then.
    pub listens: Option<SocketAddr>,
    /// Connections that are open now.
    pub connections: u64,
    /// Bytes of replies that clients have not read.
    pub unread_bytes: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections refused, because there were too many.
    pub turned_away: u64,
    /// Commands handled so far.
    pub commands: u64,
    /// Commands sent as updates.
    pub early: u64,
    /// Commands sent as bypasses.
    pub bypass: u64,
    /// Commands that the side-car answered itself.
    pub local: u64,
    /// Commands that PMNet cannot carry.
    pub refused: u64,
    /// Updates that devices completed.
    pub complete_by_devices: u64,
    /// Updates that the server completed.
    pub complete_by_server: u64,
    /// Responses that came from a device's cache.
    pub from_cache: u64,
    /// Sessions that are open now.
    pub sessions: u64,
    /// Sessions that failed or were refused.
    pub sessions_lost: u64,
    /// Datagrams that the kernel refused to send.
    pub unsent: u64,
    /// Datagrams with a wrong seal.
    pub unauthentic: u64,
}
