//! What a log knows of sessions.

use crate::identity::Flow;

/// The log's entries of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEntries {
    /// Client and server of the session.
    pub flow: Flow,
    /// The session.
    pub session: u16,
    /// The lowest sequence number in the log.
    pub first: u32,
    /// The highest sequence number in the log.
    pub last: u32,
    /// Number of updates.
    pub count: u64,
    /// Bytes of their packets.
    pub bytes: u64,
    /// What the server is known to know of the session.
    pub standing: Standing,
}

/// What the device knows of a session, from the server's packets that have passed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The server has said nothing of the session.
    #[default]
    Unknown,
    /// The server has confirmed an update. It also confirms updates of sessions that it has deleted.
    Heard,
    /// The server has accepted the session.
    Started,
}
