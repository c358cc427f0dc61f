//! A client's session. Its updates complete in order, and its bypasses see all earlier updates.
//!
//! What a client does: `docs/format/pmnet.md`, "The client". A [`Client`] is one session with one server. The caller
//! passes the time, requests and datagrams to it, and asks it for datagrams to send and for events:
//!
//! 1. [`Client::handle_datagram`], [`Client::handle_timeout`], [`Client::update`], [`Client::bypass`].
//! 2. [`Client::poll_transmit`] and [`Client::poll_event`], each until it returns `None`.
//! 3. Wait, at most until [`Client::next_timeout`].

mod bypass;
mod config;
mod control;
mod incoming;
mod lease;
mod long;
mod receive;
mod renewal;
mod round_trips;
mod send;
mod state;
mod updates;

pub use config::{ClientConfig, ClientError, ClientStats, CompletedBy, Event, Failure, RequestId};
pub use state::Client;
pub use updates::Devices;

use crate::wire::FIRST_BYPASS;
use control::Control;
use landfall_net::Instant;
use state::{ENOUGH, HEARTBEATS_MAX, Phase, RequestKind, Waiting};

/// Upper limit of [`ClientConfig::requests_max`]. The packets of this many requests fit into the numbers of any
/// session.
const REQUESTS_MAX: usize = 1 << 16;

impl Client {
    /// Starts again with another number and nonce after [`Event::Refused`]. Waiting requests are kept. Otherwise,
    /// nothing is changed.
    pub fn restart(&mut self, session: u16, nonce: u64, now: Instant) {
        self.advance_clock(now);
        if self.phase == Phase::Refused {
            (self.session, self.nonce) = (session, nonce);
            self.reset_lease();
            (self.phase, self.control, self.quiet_since) = (Phase::Starting, Control::due(), now);
        }
    }

    /// Queues an update. [`Event::Complete`] reports its completion.
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

    /// Queues a bypass. It sees every update that was queued before it. [`Event::Response`] reports its response.
    /// Later requests wait for that.
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
        self.advance_clock(now);
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

    /// Ends the session when all queued requests are complete or answered. [`Event::Ended`] reports the end.
    pub fn end(&mut self, now: Instant) {
        self.advance_clock(now);
        if !self.is_waiting() {
            self.quiet_since = now;
        }
        self.ending = true;
        self.end_if_idle();
    }

    /// Changes the chain. Incomplete updates need the acknowledgements of these devices, and are sent again. A late
    /// acknowledgement by a device of the old chain counts for the device that now has its number. So a number
    /// should not be given to another device while packets of the old one may arrive.
    pub fn set_chain(&mut self, devices: Devices, now: Instant) {
        self.advance_clock(now);
        self.chain = devices;
        self.updates.set_chain(devices);
    }

    /// Calls [`Self::set_chain`] with the devices 0 to `devices - 1`.
    pub fn set_devices(&mut self, devices: u8, now: Instant) {
        self.set_chain(Devices::first(devices), now);
    }

    /// Queues a heartbeat. Replies are reported as [`Event::Alive`], unless too many wait to be fetched.
    pub fn heartbeat(&mut self, nonce: u64) {
        if self.heartbeats.len() < HEARTBEATS_MAX {
            self.heartbeats.push_back(nonce);
        }
    }

    /// Whether the session's numbers run out: end it and begin another one.
    pub fn needs_successor(&self) -> bool {
        self.updates.next() > ENOUGH || self.next_bypass - FIRST_BYPASS > ENOUGH
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.alive_events -= usize::from(matches!(event, Event::Alive { .. }));
        Some(event)
    }

    /// The client's counters. Computes percentiles, so do not call it for each packet.
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            rtt_p50: self.trips.percentile(50),
            rtt_p99: self.trips.percentile(99),
            timeout: self.trips.timeout(0),
            ..self.stats
        }
    }
}
