//! A server's configuration, the work that it hands to the application, and its statistics.

use super::row::SessionRow;
use crate::identity::SessionKey;
use std::time::Duration;

/// Configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Most update packets of a session after its last committed one that the server buffers. Packets further ahead
    /// are dropped.
    pub reorder_max: u32,
    /// Most sessions, including those that have ended.
    pub sessions_max: usize,
    /// Pause before the first request for missing updates. The pauses between repeated requests double.
    pub retransmit_after: Duration,
    /// The longest pause between such requests.
    pub retransmit_max: Duration,
    /// First pause between *recover* requests for one session. The pauses double.
    pub recover_after: Duration,
    /// The longest pause between *recover* requests.
    pub recover_max: Duration,
    /// When silent sessions end; `None`: never.
    pub silence: Option<Silence>,
    /// After work has failed, its packets are requested again after this time.
    pub retry_after: Duration,
    /// Whether sessions of the authors' clients are accepted. An update or a bypass with number 0 begins one,
    /// without a session start.
    pub foreign: bool,
    /// Largest IP packet of the path, bytes.
    pub mtu: u16,
    /// Whether packets travel over IPv6, whose headers are longer.
    pub ipv6: bool,
    /// Bytes of the longest response that [`Server::respond`](super::Server::respond) accepts. At most 4 GiB less
    /// one.
    pub response_bytes_max: u32,
    /// Bytes of responses longer than one window that are stored for all sessions until their clients have fetched
    /// them. A response for which there is no room is treated as if it were lost in the network: the client sends
    /// its bypass again.
    pub responses_long_bytes_max: usize,
    /// A stored long response may be dropped when its client has not requested a part of it for this time.
    pub response_idle: Duration,
    /// Most responses of one session that are stored for repeated bypasses.
    pub responses_kept: usize,
    /// Most bytes of these responses. The newest response is stored in any case.
    pub responses_bytes_max: usize,
    /// Most bytes of packets of all sessions that wait for other packets, or for the application. Packets beyond it
    /// are dropped. The next request of a session without waiting requests is always accepted.
    pub buffered_bytes_max: usize,
    /// Most datagrams that wait to be sent. Datagrams beyond it are dropped, as in a network.
    pub transmits_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            reorder_max: 4096,
            sessions_max: 65536,
            retransmit_after: Duration::from_millis(1),
            retransmit_max: Duration::from_secs(1),
            recover_after: Duration::from_millis(20),
            recover_max: Duration::from_secs(3600),
            silence: None,
            retry_after: Duration::from_millis(100),
            foreign: false,
            mtu: 1500,
            ipv6: false,
            response_bytes_max: 1 << 30,
            responses_long_bytes_max: 2 << 30,
            response_idle: Duration::from_secs(5),
            responses_kept: 64,
            responses_bytes_max: 4 << 20,
            buffered_bytes_max: 256 << 20,
            transmits_max: 1 << 17,
        }
    }
}

/// When silent sessions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Number of devices that must report that they hold no updates of a session.
    pub devices: u8,
    /// How long a session is silent before the devices are asked. At least four seconds.
    pub after: Duration,
}

impl Silence {
    /// The lease that clients are told, in seconds; at least one.
    pub fn lease(&self) -> u16 {
        u16::try_from(self.after.as_secs() / 4).unwrap_or(u16::MAX).max(1)
    }

    /// How long a session with a lease must have been silent. `pressed`: there is no room for another session.
    pub(super) fn span(&self, lease: u16, pressed: bool) -> Duration {
        let configured = if pressed { self.after / 2 } else { self.after };
        configured.max(Duration::from_secs(2 * u64::from(lease)))
    }
}

/// Names a piece of work that was handed to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) key: SessionKey,
    pub(super) number: u64,
}

impl Ticket {
    /// The session of the work.
    pub fn session(&self) -> SessionKey {
        self.key
    }
}

/// Work for the application. Within a session, and among all [`Work::Row`], work is committed in the order in which
/// it was handed out. Several pieces may be outstanding, and may be committed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Apply the update and commit it together with the row. Then call
    /// [`Server::committed`](super::Server::committed).
    Update {
        /// Names the work.
        ticket: Ticket,
        /// The complete request.
        request: Vec<u8>,
        /// The session's row once the update is applied.
        row: SessionRow,
    },
    /// Execute the bypass after all earlier work of the session. Then call
    /// [`Server::respond`](super::Server::respond). The server hands out no more work of the session before that
    /// call.
    Bypass {
        /// Names the work.
        ticket: Ticket,
        /// The complete request.
        request: Vec<u8>,
        /// The row to commit together with the effects of the bypass, if it has any.
        row: SessionRow,
        /// True if an earlier incarnation may have executed the bypass, and its response is lost. The application
        /// must not execute it. It answers, in its own protocol, that the reply is lost.
        lost: bool,
    },
    /// Commit only a row, because a session begins or ends. Then call
    /// [`Server::committed`](super::Server::committed).
    Row {
        /// Names the work.
        ticket: Ticket,
        /// The session's row.
        row: SessionRow,
        /// Sessions whose rows must be deleted in the same commit.
        evicted: Vec<SessionKey>,
        /// The floor to store in the same commit. If several are stored, the highest one counts.
        floor: u32,
    },
}

impl Work {
    /// The name of the work.
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Update { ticket, .. } | Self::Bypass { ticket, .. } | Self::Row { ticket, .. } => *ticket,
        }
    }
}

/// A response was rejected because it is too long; nothing was changed. Blame: the application, which must respond
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response of {len} bytes is longer than the {max} that this server accepts")]
pub struct ResponseTooLong {
    /// Bytes of the response.
    pub len: usize,
    /// [`ServerConfig::response_bytes_max`].
    pub max: usize,
}

/// Counters of a server since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Updates committed.
    pub applied: u64,
    /// Bypasses that the application has answered.
    pub bypasses: u64,
    /// Packets that had already arrived before.
    pub duplicates: u64,
    /// How often updates were found to be missing.
    pub gaps: u64,
    /// Retransmission requests sent.
    pub retransmit_requests: u64,
    /// Recover requests sent.
    pub recovers: u64,
    /// Sessions, including those that have ended.
    pub sessions: u64,
    /// Server-ACKs sent.
    pub server_acks: u64,
    /// Make-up ACKs, as the paper calls them: acknowledgements of updates that arrive again after they were
    /// committed.
    pub make_up_acks: u64,
    /// Packets answered with a refusal.
    pub refused: u64,
    /// Packets that were dropped because they were too far ahead, or because there was no room.
    pub early_dropped: u64,
    /// Datagrams that were malformed, or are not meant for a server.
    pub ignored: u64,
    /// Outgoing datagrams that were dropped because the queue was full.
    pub transmits_dropped: u64,
    /// Responses that were rejected because they were too long.
    pub responses_too_long: u64,
    /// Responses that were dropped because long responses of other clients filled the memory. The clients repeat
    /// their bypasses.
    pub responses_postponed: u64,
    /// Requests of clients for parts of responses.
    pub response_requests: u64,
    /// Pieces of work that the application reported as failed.
    pub failed: u64,
    /// Sessions that were refused because there was no room for their rows.
    pub no_room: u64,
    /// How often devices were asked how many updates of a session they hold.
    pub held_requests: u64,
    /// Answers of devices that hold updates of such a session.
    pub held_by_devices: u64,
    /// Sessions that the server has ended because they were silent for long and no device held updates of them.
    pub ended_by_silence: u64,
}
