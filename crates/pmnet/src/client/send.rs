//! What a client sends, and when it sends it again.

use super::bypass::Bypass;
use super::config::{ClientStats, Event, Failure};
use super::control::Control;
use super::state::{Client, HEARTBEATS_MAX, Phase, RequestKind};
use crate::wire::{Body, Packet, Role, Start};
use landfall_net::Instant;
use std::time::Duration;

/// Most doublings of the timeout of session starts and ends.
const DOUBLINGS_MAX: u32 = 16;
/// Shortest and longest pause between probes that make the server acknowledge.
const PROBE_MIN: Duration = Duration::from_millis(200);
const PROBE_MAX: Duration = Duration::from_secs(5);

impl Client {
    /// The next datagram, for the server's address.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.transmit_into(&mut bytes).then_some(bytes)
    }

    /// Appends the next datagram to a buffer. False if there is none.
    pub fn transmit_into(&mut self, into: &mut Vec<u8>) -> bool {
        if self.is_lapsed() {
            return self.transmit_lease(into) || self.transmit_heartbeat(into);
        }
        self.transmit_control(into)
            || self.transmit_lease(into)
            || self.transmit_heartbeat(into)
            || self.transmit_wanted(into)
            || self.transmit_again(into)
            || self.transmit_new(into)
            || self.transmit_bypass(into)
    }

    fn transmit_control(&mut self, into: &mut Vec<u8>) -> bool {
        let packet = match self.phase {
            Phase::Starting => {
                let body = Body::SessionStart { nonce: self.nonce, asks: Start::Leased };
                Packet::new(self.session, 0, body)
            }
            Phase::Ending => Packet::new(self.session, self.updates.next() - 1, Body::SessionEnd),
            _ => return false,
        };
        if !self.control.due {
            return false;
        }
        packet.write(into);
        if self.phase == Phase::Starting {
            self.lease.start_sent(self.now);
        }
        let sent = self.control.sent;
        let pause = self.config.timeout_start.saturating_mul(1 << sent.min(DOUBLINGS_MAX));
        let deadline = Some(self.now + pause.min(self.config.timeout_max));
        self.control = Control { due: false, sent: sent.saturating_add(1), deadline };
        self.stats.count(sent > 0);
        true
    }

    fn transmit_heartbeat(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(nonce) = self.heartbeats.pop_front() else { return false };
        if self.asked.len() == HEARTBEATS_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(nonce);
        Packet::new(self.session, 0, Body::Heartbeat { nonce, role: Role::Client, number: 0 }).write(into);
        self.stats.count(false);
        true
    }

    fn transmit_wanted(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(bytes) = self.wanted.pop_front() else { return false };
        into.extend_from_slice(&bytes);
        self.stats.response_requests += 1;
        self.stats.count(false);
        true
    }

    fn transmit_again(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(bytes) = self.updates.send_again(self.now, |repeats| self.trips.timeout(repeats)) else {
            return false;
        };
        into.extend_from_slice(bytes);
        self.stats.count(true);
        true
    }

    fn transmit_new(&mut self, into: &mut Vec<u8>) -> bool {
        self.number_requests();
        let Some(bytes) = self.updates.send_new(self.now, |repeats| self.trips.timeout(repeats)) else {
            return false;
        };
        into.extend_from_slice(bytes);
        self.stats.count(false);
        self.probe = None;
        true
    }

    /// Numbers the next requests while they can be sent now. Updates behind a bypass wait for its response. A bypass
    /// waits until everything before it is sent, so that its *after* covers it.
    fn number_requests(&mut self) {
        while self.phase == Phase::Open && !self.held && self.bypass.is_none() && self.updates.all_sent() {
            let next = self.queue.front().map(|waiting| waiting.kind);
            match next {
                Some(RequestKind::Update) if self.updates.has_room() => self.number_update(),
                Some(RequestKind::Bypass) => self.number_bypass(),
                _ => return,
            }
        }
    }

    fn number_update(&mut self) {
        let Some(waiting) = self.queue.pop_front() else { return };
        let packets = self.sizes.update(self.session, self.updates.next(), &waiting.request);
        self.queued.0 -= packets.len() as u64;
        self.updates.push(waiting.id, packets, self.now);
    }

    fn number_bypass(&mut self) {
        let Some(waiting) = self.queue.pop_front() else { return };
        let seq = self.next_bypass;
        self.next_bypass += 1;
        self.queued.1 -= 1;
        let packets = self.sizes.bypass(self.session, seq, self.updates.newest(), &waiting.request);
        self.bypass = Some(Bypass::new(waiting.id, seq, packets, self.now));
    }

    fn transmit_bypass(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(bypass) = &mut self.bypass else { return false };
        let repeats = bypass.repeats();
        let Some(bytes) = bypass.send(self.now, |repeats| self.bypass_trips.timeout(repeats)) else {
            return false;
        };
        into.extend_from_slice(bytes);
        self.stats.count(repeats);
        true
    }

    /// Advances the time, and sends again what has timed out.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance_clock(now);
        let now = self.now;
        if self.is_waiting() && self.give_up_at() <= now {
            return self.finish(Event::Failed(Failure::NoAnswer));
        }
        self.control.expire(now);
        let (trips, timeouts) = (&mut self.trips, &mut self.stats.timeouts);
        self.updates.expire(now, |repeats| {
            *timeouts += 1;
            trips.expired(repeats);
        });
        self.expire_bypass();
        self.ask_for_server_ack();
    }

    fn expire_bypass(&mut self) {
        let (now, trips) = (self.now, &mut self.bypass_trips);
        let Some(bypass) = &mut self.bypass else { return };
        let Some(expired) = bypass.expire(now, |repeats| trips.timeout(repeats)) else { return };
        self.stats.timeouts += 1;
        if let Some(repeats) = expired.repeats {
            trips.expired(repeats);
        }
        if let (seq, Some(whole)) = (bypass.seq, bypass.response()) {
            self.request_ranges(seq, whole, expired.missing);
        }
    }

    /// Probes the server if the devices have every update and the server says nothing. Its server-ACK may be lost,
    /// or the updates may be. The client sends the newest update again. The server then knows that there are updates
    /// up to it, and acknowledges or requests them.
    fn ask_for_server_ack(&mut self) {
        if self.probe.is_some_and(|probe| probe <= self.now) {
            if let Some(seq) = self.updates.newest_unconfirmed() {
                self.updates.send_range_again(seq, 1);
            }
            self.probe_pause = (2 * self.probe_pause).min(PROBE_MAX);
            self.probe = None;
        }
        self.set_probe();
    }

    /// Runs the probe's timer while there is something to probe for.
    pub(super) fn set_probe(&mut self) {
        if self.phase != Phase::Open || self.updates.newest_unconfirmed().is_none() {
            (self.probe, self.probe_pause) = (None, PROBE_MIN);
        } else if self.probe.is_none() {
            self.probe = Some(self.now + self.probe_pause);
        }
    }

    fn give_up_at(&self) -> Instant {
        self.quiet_since + self.config.give_up
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let control = if self.is_waiting() { self.control.deadline } else { None };
        let give_up = self.is_waiting().then(|| self.give_up_at());
        let bypass = self.bypass.as_ref().and_then(Bypass::deadline);
        let lease = self.lease_due();
        [control, give_up, bypass, self.updates.deadline(), self.probe, lease].into_iter().flatten().min()
    }
}

impl ClientStats {
    pub(super) fn count(&mut self, again: bool) {
        if again { self.sent_again += 1 } else { self.sent += 1 }
    }
}
