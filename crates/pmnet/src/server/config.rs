//! What a server is told, what it asks of the application, and what it counts.

use super::row::SessionRow;
use super::silence::Silence;
use crate::identity::SessionKey;
use std::time::Duration;

/// How a server behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Update packets beyond the last committed one that a session may have here; what is further ahead is dropped.
    pub reorder_max: u32,
    /// Most sessions, with those that have ended.
    pub sessions_max: usize,
    /// Missing updates are asked for after this; repeated with pauses that double.
    pub retransmit_after: Duration,
    /// The longest of those pauses.
    pub retransmit_max: Duration,
    /// First pause between *recover* requests for one session; they double.
    pub recover_after: Duration,
    /// The longest of them.
    pub recover_max: Duration,
    /// When sessions that fall silent end; `None`: never.
    pub silence: Option<Silence>,
    /// After work has failed, its packets are asked for again after this.
    pub retry_after: Duration,
    /// Whether sessions of the authors' clients are taken: number 0, of an update or a bypass, begins one without a session start.
    pub foreign: bool,
    /// Largest IP packet of the path, bytes.
    pub mtu: u16,
    /// Whether packets travel over IPv6, whose headers are longer.
    pub ipv6: bool,
    /// Longest response, bytes: [`Server::respond`](super::Server::respond) takes no longer one. At most 4 GiB less one.
    pub response_bytes_max: u32,
    /// Bytes of responses beyond one window, of all sessions, that are kept until their clients have them. One for which there
    /// is no room is as if it were lost on its way: the client repeats its bypass.
    pub responses_long_bytes_max: usize,
    /// A response that its client has not asked about for so long gives way to others.
    pub response_idle: Duration,
    /// Responses of one session that are kept for repeated bypasses.
    pub responses_kept: usize,
    /// Bytes of them; the newest is kept in any case.
    pub responses_bytes_max: usize,
    /// Bytes of packets that wait for others, or for the application to ask for work, of all sessions; what comes on top is
    /// dropped, but for the next request of a session of which nothing waits.
    pub buffered_bytes_max: usize,
    /// Datagrams that wait to be fetched; what comes on top is dropped, as a network would.
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

/// Names a piece of work that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(super) key: SessionKey,
    pub(super) number: u64,
}

impl Ticket {
    /// The session whose work it is.
    pub fn session(&self) -> SessionKey {
        self.key
    }
}

/// What the application must do. Within a session, and among all [`Work::Row`], it is committed in the order in which it
/// was handed out; several pieces may be outstanding and committed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Apply, and commit together with the row; then [`Server::committed`](super::Server::committed).
    Update {
        /// Names it.
        ticket: Ticket,
        /// The whole request.
        request: Vec<u8>,
        /// The session's row, once it is applied.
        row: SessionRow,
    },
    /// Execute after all earlier work of the session; then [`Server::respond`](super::Server::respond). No more work of
    /// the session is handed out until then.
    Bypass {
        /// Names it.
        ticket: Ticket,
        /// The whole request.
        request: Vec<u8>,
        /// To be committed together with its effects, if it has any.
        row: SessionRow,
        /// True: it may have been executed before this incarnation, and its response is lost. Do not execute it: answer,
        /// in the application's own protocol, that the reply is lost.
        lost: bool,
    },
    /// Commit a row by itself: a session begins or ends; then [`Server::committed`](super::Server::committed).
    Row {
        /// Names it.
        ticket: Ticket,
        /// The row.
        row: SessionRow,
        /// Rows to be deleted with it.
        evicted: Vec<SessionKey>,
        /// The floor, to be committed with it; the highest one counts.
        floor: u32,
    },
}

impl Work {
    /// Names it.
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::Update { ticket, .. } | Self::Bypass { ticket, .. } | Self::Row { ticket, .. } => *ticket,
        }
    }
}

/// A response that is not taken: nothing is done. Blame: the application, which responds otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a response of {len} bytes is longer than the {max} that this server takes")]
pub struct ResponseTooLong {
    /// Bytes of the response.
    pub len: usize,
    /// [`ServerConfig::response_bytes_max`].
    pub max: usize,
}

/// What a server has counted since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Updates committed.
    pub applied: u64,
    /// Bypasses answered by the application.
    pub bypasses: u64,
    /// Packets that had arrived before.
    pub duplicates: u64,
    /// Times that updates were found missing.
    pub gaps: u64,
    /// Retransmission requests sent.
    pub retransmit_requests: u64,
    /// Recover requests sent.
    pub recovers: u64,
    /// Sessions, with those that have ended.
    pub sessions: u64,
    /// Server-ACKs sent.
    pub server_acks: u64,
    /// Updates that had been committed and were acknowledged once more (the paper's make-up ACK).
    pub make_up_acks: u64,
    /// Packets answered with a refusal.
    pub refused: u64,
    /// Packets that were too far ahead, or for which there was no room.
    pub early_dropped: u64,
    /// Datagrams that were malformed or not for a server.
    pub ignored: u64,
    /// Datagrams of ours for which there was no room.
    pub transmits_dropped: u64,
    /// Responses that the application was asked to replace, as they were too long.
    pub responses_too_long: u64,
    /// Responses for which there was no room beside those that other clients fetch; their bypasses come again.
    pub responses_postponed: u64,
    /// Requests of clients for windows of long responses.
    pub response_requests: u64,
    /// Pieces of work that failed.
    pub failed: u64,
    /// Sessions that were refused, as there was no room for their rows.
    pub no_room: u64,
    /// Times that devices were asked what they hold of a session.
    pub held_requests: u64,
    /// Devices that said that they hold something of it.
    pub held_by_devices: u64,
    /// Sessions that were ended, as they had been silent for long and no device held anything of them.
    pub ended_by_silence: u64,
}
