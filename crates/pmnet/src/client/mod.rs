//! A client's session: its updates complete in order, its bypasses see them.
//!
//! What a client does: `docs/format/pmnet.md`, "The client". A [`Client`] is one session with one server. It is told the
//! time and what arrives, and asked for what is to be sent and what has happened:
//!
//! 1. [`Client::handle_datagram`], [`Client::handle_timeout`], [`Client::update`], [`Client::bypass`];
//! 2. then [`Client::poll_transmit`] and [`Client::poll_event`], each until it returns `None`;
//! 3. then wait, no longer than until [`Client::next_timeout`].

mod bypass;
mod config;
mod incoming;
mod lease;
mod long;
mod receive;
mod round_trips;
mod send;
mod updates;

pub use config::{ClientConfig, ClientError, ClientStats, CompletedBy, Event, Failure, RequestId};

use crate::pieces::Sizes;
use crate::wire::FIRST_BYPASS;
use bypass::Bypass;
use landfall_net::Instant;
use lease::Lease;
use round_trips::RoundTrips;
use send::Control;
use std::collections::VecDeque;
use std::time::Duration;
pub use updates::Devices;
use updates::Updates;

/// Beyond this number a session should be ended and followed by another.
const ENOUGH: u32 = 1 << 30;
/// Most requests that wait, whatever the configuration says: their packets fit into the numbers of any session.
const REQUESTS_MAX: usize = 1 << 16;
/// Most answers to heartbeats that wait to be fetched, and heartbeats that wait for answers.
const HEARTBEATS_MAX: usize = 64;

/// Where the session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A session start is under way.
    Starting,
    /// It was refused; another draw may follow.
    Refused,
    /// Requests are under way.
    Open,
    /// A session end is under way.
    Ending,
    /// Ended, or failed.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Update,
    Bypass,
}

/// A request that has no number yet.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    kind: RequestKind,
    request: Vec<u8>,
}

/// One session with a server. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    sizes: Sizes,
    /// The latest time that was told.
    now: Instant,
    session: u16,
    nonce: u64,
    phase: Phase,
    /// The end was asked for.
    ending: bool,
    control: Control,
    lease: Lease,
    /// The server's.
    incarnation: Option<u64>,
    next_id: u64,
    next_bypass: u32,
    queue: VecDeque<Waiting>,
    /// Packets of the updates in the queue, and bypasses in it.
    queued: (u64, u64),
    updates: Updates,
    /// Devices that must acknowledge.
    chain: Devices,
    bypass: Option<Bypass>,
    /// Requests for pieces of responses, to be sent.
    wanted: VecDeque<Vec<u8>>,
    /// Nothing more is numbered: what has been answered is to be taken first.
    held: bool,
    events: VecDeque<Event>,
    /// Answers to heartbeats among the events.
    alive_events: usize,
    /// Nonces of heartbeats to be sent, and of those that were.
    heartbeats: VecDeque<u64>,
    asked: VecDeque<u64>,
    trips: RoundTrips,
    bypass_trips: RoundTrips,
    /// The newest update is sent again then, and after how long the next time, if devices have everything and the
    /// server says nothing.
    probe: Option<Instant>,
    probe_pause: Duration,
    /// Since then nobody has answered.
    quiet_since: Instant,
    stats: ClientStats,
}

impl Client {
    /// A session that begins with a session start. Its number and nonce are the caller's random draw.
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

    /// Another draw of number and nonce, after [`Event::Refused`] to the start. Requests that wait go with it. Changes
    /// nothing otherwise.
    pub fn restart(&mut self, session: u16, nonce: u64, now: Instant) {
        self.tell(now);
        if self.phase == Phase::Refused {
            (self.session, self.nonce) = (session, nonce);
            self.lease_anew();
            (self.phase, self.control, self.quiet_since) = (Phase::Starting, Control::due(), now);
        }
    }

    /// Queues an update. [`Event::Complete`] follows.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is queued then.
    pub fn update(&mut self, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        self.check(request.len(), self.sizes.update_max(), now)?;
        let packets = u64::from(self.sizes.update_packets(request.len()));
        if u64::from(self.updates.next()) + self.queued.0 + packets > u64::from(FIRST_BYPASS) {
            return Err(ClientError::Exhausted);
        }
        self.queued.0 += packets;
        Ok(self.queue(RequestKind::Update, request))
    }

    /// Queues a bypass: it sees every update that was queued before it. [`Event::Response`] follows. Requests behind it
    /// wait for that.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is queued then.
    pub fn bypass(&mut self, request: &[u8], now: Instant) -> Result<RequestId, ClientError> {
        self.check(request.len(), self.sizes.bypass_max(), now)?;
        if u64::from(self.next_bypass) + self.queued.1 >= u64::from(u32::MAX) {
            return Err(ClientError::Exhausted);
        }
        self.queued.1 += 1;
        Ok(self.queue(RequestKind::Bypass, request))
    }

    fn check(&mut self, len: usize, max: usize, now: Instant) -> Result<(), ClientError> {
        self.tell(now);
        if self.ending || self.phase == Phase::Over {
            return Err(ClientError::Ended);
        }
        if len > max {
            return Err(ClientError::TooLarge { len, max });
        }
        let waiting = self.queue.len() + self.updates.incomplete() + usize::from(self.bypass.is_some());
        if waiting + self.events.len() >= self.config.requests_max.min(REQUESTS_MAX) {
            return Err(ClientError::Full);
        }
        Ok(())
    }

    fn queue(&mut self, kind: RequestKind, request: &[u8]) -> RequestId {
        if !self.is_waiting() {
            self.quiet_since = self.now;
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.queue.push_back(Waiting { id, kind, request: request.to_vec() });
        id
    }

    /// Ends the session once all that was queued is complete and answered. [`Event::Ended`] follows.
    pub fn end(&mut self, now: Instant) {
        self.tell(now);
        if !self.is_waiting() {
            self.quiet_since = now;
        }
        self.ending = true;
        self.end_if_idle();
    }

    /// The chain has changed: what is not complete needs the acknowledgements of these devices, and is sent
    /// again for that. An acknowledgement by a device of the old chain that is still under way counts for the one that has
    /// its number now: a number is best not given to another device while the old one may be heard.
    pub fn set_chain(&mut self, devices: Devices, now: Instant) {
        self.tell(now);
        self.chain = devices;
        self.updates.set_chain(devices);
    }

    /// [`Self::set_chain`] to devices 0 to `devices - 1`.
    pub fn set_devices(&mut self, devices: u8, now: Instant) {
        self.set_chain(Devices::first(devices), now);
    }

    /// Queues a heartbeat. Answers are told as [`Event::Alive`], as long as not too many wait.
    pub fn heartbeat(&mut self, nonce: u64) {
        if self.heartbeats.len() < HEARTBEATS_MAX {
            self.heartbeats.push_back(nonce);
        }
    }

    /// Whether numbers run out: end the session and start another.
    pub fn needs_successor(&self) -> bool {
        self.updates.next() > ENOUGH || self.next_bypass - FIRST_BYPASS > ENOUGH
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.alive_events -= usize::from(matches!(event, Event::Alive { .. }));
        Some(event)
    }

    /// What has been counted. Works out percentiles: not for every packet.
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            rtt_p50: self.trips.percentile(50),
            rtt_p99: self.trips.percentile(99),
            timeout: self.trips.timeout(0),
            ..self.stats
        }
    }

    /// Time never runs backwards.
    fn tell(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Whether an answer is waited for without which something is not reported.
    fn is_waiting(&self) -> bool {
        match self.phase {
            Phase::Starting | Phase::Ending => true,
            Phase::Open => !self.is_idle(),
            Phase::Refused | Phase::Over => false,
        }
    }

    /// Whether every request is complete or answered.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.bypass.is_none() && self.updates.incomplete() == 0
    }

    fn end_if_idle(&mut self) {
        if self.ending && self.phase == Phase::Open && self.is_idle() {
            (self.phase, self.control) = (Phase::Ending, Control::due());
        }
    }

    /// Nothing more is sent; what was not reported stays so.
    fn is_over(&mut self, event: Event) {
        self.phase = Phase::Over;
        self.events.push_back(event);
        self.queue.clear();
        self.bypass = None;
        self.wanted.clear();
        self.updates = Updates::new(1, self.chain, self.config.window);
        self.probe = None;
    }
}
