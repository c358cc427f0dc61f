//! What a client is told, what it tells, and what it counts.

use crate::wire::{Refusal, Role};
use std::time::Duration;

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Devices in the chain to the server, numbered from 0. With none, only the server completes updates. See
    /// [`super::Client::set_chain`] for others.
    pub devices: u8,
    /// Most update packets under way: sent and not acknowledged.
    pub window: u16,
    /// Largest IP packet of the path, bytes.
    pub mtu: u16,
    /// Whether packets travel over IPv6, whose headers are longer.
    pub ipv6: bool,
    /// Nothing is sent again earlier than this.
    pub timeout_min: Duration,
    /// Repetitions of one packet are never further apart.
    pub timeout_max: Duration,
    /// The timeout until enough round trips have been measured.
    pub timeout_start: Duration,
    /// Longest response, bytes: of a longer one [`Event::ResponseTooLong`] tells instead.
    pub response_bytes_max: u32,
    /// Without any answer for so long, while one is waited for, the session has failed.
    pub give_up: Duration,
    /// Most requests that have been given and whose end has not been fetched; at most 65536 count.
    pub requests_max: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            devices: 0,
            window: 256,
            mtu: 1500,
            ipv6: false,
            timeout_min: Duration::from_millis(1),
            timeout_max: Duration::from_secs(1),
            timeout_start: Duration::from_millis(50),
            response_bytes_max: 1 << 30,
            give_up: Duration::from_secs(30),
            requests_max: 1024,
        }
    }
}

/// A request of one client: they count up from 0 in the order in which they were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Who made an update durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedBy {
    /// Every device of the chain has it in its log.
    Devices,
    /// The server has committed it.
    Server,
}

/// Why a session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Nobody answered for [`ClientConfig::give_up`].
    NoAnswer,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The server has taken the session.
    Started,
    /// This update is durable, and so is every one before it.
    Complete {
        /// The update.
        id: RequestId,
        /// Who has it.
        by: CompletedBy,
    },
    /// The response to a bypass.
    Response {
        /// The bypass.
        id: RequestId,
        /// The response.
        bytes: Vec<u8>,
        /// Whether it comes from a device's cache instead of the server.
        from_cache: bool,
    },
    /// A bypass was executed, and its response is longer than is taken.
    ResponseTooLong {
        /// The bypass.
        id: RequestId,
        /// Bytes of the response.
        len: usize,
        /// [`ClientConfig::response_bytes_max`].
        max: usize,
    },
    /// Everything is applied and the session has ended.
    Ended,
    /// The server does not take the session. `InUse`, `NoRoom`: [`Client::restart`](super::Client::restart).
    /// `Unknown`: the server has lost the session, which is over; what was not reported is unknown. `Behind`: it has lost
    /// updates that it had confirmed; the session is over until an operator has reconciled it.
    Refused(Refusal),
    /// The session is over; what was not reported complete may be applied or not.
    Failed(Failure),
    /// The server answers with another incarnation than before. A hint: old packets may make it appear twice.
    ServerRestarted {
        /// The new one.
        incarnation: u64,
    },
    /// An answer to [`Client::heartbeat`](super::Client::heartbeat).
    Alive {
        /// Who answers.
        role: Role,
        /// The answerer's number, for devices.
        number: u8,
        /// True if it takes no updates into its log.
        declines: bool,
        /// The answerer's.
        incarnation: u64,
    },
}

/// Why a request was not taken. Blame: the caller, but for `Full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// As many requests as may wait do: fetch events and try again.
    #[error("as many requests wait as may")]
    Full,
    /// More fragments than a request may have.
    #[error(
        "a request of {len} bytes is longer than the {max} that fit into its fragments; write less at once"
    )]
    TooLarge {
        /// Bytes of the request.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The session has been ended, or has failed.
    #[error("the session has ended")]
    Ended,
    /// The session has no numbers left: end it and start another.
    #[error("the session has used all its numbers")]
    Exhausted,
}

/// What a client has counted since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Datagrams sent for the first time.
    pub sent: u64,
    /// Datagrams sent again.
    pub sent_again: u64,
    /// Devices' acknowledgements that were news.
    pub acks: u64,
    /// Devices' acknowledgements that were not.
    pub acks_again: u64,
    /// Server-ACKs that were news.
    pub server_acks: u64,
    /// Packets whose timeout passed.
    pub timeouts: u64,
    /// Retransmission requests.
    pub retransmit_requests: u64,
    /// Recover requests.
    pub recovers: u64,
    /// Updates reported complete.
    pub complete: u64,
    /// Responses reported.
    pub responses: u64,
    /// Requests for windows of long responses, or for missing pieces, and reminders of what was confirmed.
    pub response_requests: u64,
    /// Times that the lease had run out, so that the server was asked whether the session is still there.
    pub lapses: u64,
    /// Datagrams that were malformed, of another session, or of no use.
    pub ignored: u64,
    /// Median of the last round trips of updates.
    pub rtt_p50: Duration,
    /// Their 99th percentile.
    pub rtt_p99: Duration,
    /// After this an update is sent again for the first time.
    pub timeout: Duration,
}
