//! The state of a session, and what its parts share.

use super::bypass::Bypass;
use super::config::{ClientConfig, ClientStats, Event, RequestId};
use super::control::Control;
use super::lease::Lease;
use super::round_trips::RoundTrips;
use super::updates::{Devices, Updates};
use crate::pieces::Sizes;
use crate::wire::FIRST_BYPASS;
use landfall_net::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// A session that has used more numbers than this should be ended and followed by another one.
pub(super) const ENOUGH: u32 = 1 << 30;
/// Most replies to heartbeats that wait to be fetched, and most heartbeats that wait for replies.
pub(super) const HEARTBEATS_MAX: usize = 64;

/// Phase of the session's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A session start is in flight.
    Starting,
    /// The session was refused. [`Client::restart`] may follow.
    Refused,
    /// The session is open for requests.
    Open,
    /// A session end is in flight.
    Ending,
    /// The session has ended or failed.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Update,
    Bypass,
}

/// A request without a sequence number.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) kind: RequestKind,
    pub(super) request: Vec<u8>,
}

/// One session with a server. The [module](super) describes how to drive it.
#[derive(Debug)]
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) sizes: Sizes,
    /// The latest time that the client knows.
    pub(super) now: Instant,
    pub(super) session: u16,
    pub(super) nonce: u64,
    pub(super) phase: Phase,
    /// Whether [`Client::end`] was called.
    pub(super) ending: bool,
    pub(super) control: Control,
    pub(super) lease: Lease,
    /// The server's incarnation.
    pub(super) incarnation: Option<u64>,
    pub(super) next_id: u64,
    pub(super) next_bypass: u32,
    pub(super) queue: VecDeque<Waiting>,
    /// Number of update packets and of bypasses in the queue.
    pub(super) queued: (u64, u64),
    pub(super) updates: Updates,
    /// The devices that must acknowledge updates.
    pub(super) chain: Devices,
    pub(super) bypass: Option<Bypass>,
    /// Response requests and *confirmed* packets to be sent.
    pub(super) wanted: VecDeque<Vec<u8>>,
    /// While true, no request gets a number, because the application first processes the responses that it has.
    pub(super) held: bool,
    pub(super) events: VecDeque<Event>,
    /// Number of replies to heartbeats among the events.
    pub(super) alive_events: usize,
    /// Nonces of heartbeats to be sent, and of heartbeats that were sent.
    pub(super) heartbeats: VecDeque<u64>,
    pub(super) asked: VecDeque<u64>,
    pub(super) trips: RoundTrips,
    pub(super) bypass_trips: RoundTrips,
    /// When the newest update is sent again because the devices have every update and the server says nothing, and
    /// the pause after that.
    pub(super) probe: Option<Instant>,
    pub(super) probe_pause: Duration,
    /// When the last packet was received.
    pub(super) quiet_since: Instant,
    pub(super) stats: ClientStats,
}

impl Client {
    /// A session that begins with a session start. The caller draws its number and nonce at random.
    pub fn new(config: ClientConfig, session: u16, nonce: u64, now: Instant) -> Self {
        let chain = Devices::first(config.devices);
        Self {
            sizes: Sizes::new(config.mtu, config.ipv6),
            now,
            session,
            nonce,
            phase: Phase::Starting,
            ending: false,
            control: Control::due(),
            lease: Lease::default(),
            incarnation: None,
            next_id: 0,
            next_bypass: FIRST_BYPASS,
            queue: VecDeque::new(),
            queued: (0, 0),
            updates: Updates::new(1, chain, config.window),
            chain,
            bypass: None,
            wanted: VecDeque::new(),
            held: false,
            events: VecDeque::new(),
            alive_events: 0,
            heartbeats: VecDeque::new(),
            asked: VecDeque::new(),
            trips: RoundTrips::new(&config),
            bypass_trips: RoundTrips::new(&config),
            probe: None,
            probe_pause: Duration::ZERO,
            quiet_since: now,
            stats: ClientStats::default(),
            config,
        }
    }

    /// Advances the time, which never runs backwards.
    pub(super) fn advance_clock(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Whether the client awaits an answer that it needs to report something.
    pub(super) fn is_waiting(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Ending => true,
            Phase::Open => !self.is_idle(),
            Phase::Refused | Phase::Over => false,
        }
    }

    /// Whether every request is complete or answered.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.bypass.is_none() && self.updates.incomplete() == 0
    }

    pub(super) fn end_if_idle(&mut self) {
        if self.ending && self.phase == Phase::Open && self.is_idle() {
            (self.phase, self.control) = (Phase::Ending, Control::due());
        }
    }

    /// Ends the session. Nothing more is sent, and requests without a result get none.
    pub(super) fn finish(&mut self, event: Event) {
        self.phase = Phase::Over;
        self.events.push_back(event);
        self.queue.clear();
        self.bypass = None;
        self.wanted.clear();
        self.updates = Updates::new(1, self.chain, self.config.window);
        self.probe = None;
    }
}
