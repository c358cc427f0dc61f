//! A client's configuration, its events, errors and statistics.

use crate::wire::{Refusal, Role};
use std::time::Duration;

/// Configuration of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Number of devices in the chain to the server. They are numbered from 0. Without devices, only the server
    /// completes updates. [`super::Client::set_chain`] sets other numbers.
    pub devices: u8,
    /// Most update packets in flight: sent and not acknowledged.
    pub window: u16,
    /// Largest IP packet of the path, bytes.
    pub mtu: u16,
    /// Whether packets travel over IPv6, whose headers are longer.
    pub ipv6: bool,
    /// Shortest timeout before a packet is sent again.
    pub timeout_min: Duration,
    /// Longest timeout before a packet is sent again.
    pub timeout_max: Duration,
    /// The timeout until enough round trips have been measured.
    pub timeout_start: Duration,
    /// Bytes of the longest response that is accepted. A longer one is reported by [`Event::ResponseTooLong`].
    pub response_bytes_max: u32,
    /// If an answer is awaited and nothing arrives for this time, the session fails.
    pub give_up: Duration,
    /// Whether what a device repeats counts as something that arrives. Then a session waits for as long as one device is
    /// there, until the chain is changed or the server is back; otherwise it fails although a device answers.
    pub waits_for_devices: bool,
    /// Most requests whose result has not been fetched, at most 65536.
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
            waits_for_devices: true,
            requests_max: 1024,
        }
    }
}

/// Identifies a request of one client. The numbers count up from 0 in the order of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// How an update became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedBy {
    /// Every device of the chain has the update in its log.
    Devices,
    /// The server has committed the update.
    Server,
}

/// Why a session has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Nothing was received for [`ClientConfig::give_up`], or nothing new ([`ClientConfig::waits_for_devices`]).
    NoAnswer,
}

/// What has happened in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The server has accepted the session.
    Started,
    /// An update and every update before it are durable.
    Complete {
        /// The update.
        id: RequestId,
        /// How the update became durable.
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
    /// A bypass was executed, but its response is too long.
    ResponseTooLong {
        /// The bypass.
        id: RequestId,
        /// Bytes of the response.
        len: usize,
        /// [`ClientConfig::response_bytes_max`].
        max: usize,
    },
    /// Every update is applied, and the session has ended.
    Ended,
    /// The server refuses the session. `InUse`, `NoRoom`: call [`Client::restart`](super::Client::restart).
    /// `Unknown`: the server has lost the session, which is over; the outcome of requests without a result is
    /// unknown. `Behind`: the server has lost confirmed updates; the session is over until an operator has
    /// reconciled it.
    Refused(Refusal),
    /// The session has failed and is over. Updates that were not reported as complete may be applied or not.
    Failed(Failure),
    /// The server answers with a new incarnation. This is a hint: late packets may make a restart appear twice.
    ServerRestarted {
        /// The new incarnation.
        incarnation: u64,
    },
    /// An answer to [`Client::heartbeat`](super::Client::heartbeat).
    Alive {
        /// Role of the answering party.
        role: Role,
        /// Device number of the answering party, if it is a device.
        number: u8,
        /// True if the device takes no updates into its log.
        declines: bool,
        /// Incarnation of the answering party.
        incarnation: u64,
    },
}

/// Why a request was not accepted. Blame: the caller, except for `Full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The limit of waiting requests is reached. Fetch events and try again.
    #[error("too many requests wait for their results")]
    Full,
    /// The request needs more fragments than a request may have.
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
    /// The session has no numbers left. End it and begin another one.
    #[error("the session has used all its numbers")]
    Exhausted,
}

/// Counters of a client since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// Datagrams sent for the first time.
    pub sent: u64,
    /// Datagrams sent again.
    pub sent_again: u64,
    /// Acknowledgements of devices that were new.
    pub acks: u64,
    /// Acknowledgements of devices that had arrived before.
    pub acks_again: u64,
    /// Server-ACKs that confirmed new updates.
    pub server_acks: u64,
    /// Packets whose timeout has expired.
    pub timeouts: u64,
    /// Retransmission requests that were received.
    pub retransmit_requests: u64,
    /// Recover requests that were received.
    pub recovers: u64,
    /// Updates that were reported as complete.
    pub complete: u64,
    /// Responses that were reported.
    pub responses: u64,
    /// Requests for pieces of responses, and *confirmed* packets, that were sent.
    pub response_requests: u64,
    /// How often the lease had expired, so that the server was asked whether the session still exists.
    pub lapses: u64,
    /// Datagrams that were malformed, of another session, or not needed.
    pub ignored: u64,
    /// Median of the latest round trips of updates.
    pub rtt_p50: Duration,
    /// 99th percentile of the latest round trips of updates.
    pub rtt_p99: Duration,
    /// Current timeout before an update is sent again for the first time.
    pub timeout: Duration,
}
