//! What happens when a timer of a connection expires.

use super::tcb::{Ack, Context, Fin, Recovery, Tcb};
use super::timer_set::Probe;
use crate::event::Ended;
use crate::time::Instant;
use std::time::Duration;

/// How long an acknowledgement may be delayed (RFC 1122, 4.2.3.2: below half a second).
pub(super) const DELAYED_ACK: Duration = Duration::from_millis(40);
/// Time between two unanswered keep-alive probes, and their number.
const PROBE_INTERVAL: Duration = Duration::from_secs(75);
const PROBES_MAX: u32 = 9;
/// Longest time between two probes of a window of zero (RFC 9293, 3.8.6.1).
const WINDOW_PROBE_MAX: Duration = Duration::from_secs(60);
/// Least time before a tail loss probe (RFC 8985, 7.2), and what a peer may add by delaying its acknowledgement.
const TAIL_PROBE_MIN: Duration = Duration::from_millis(2);

/// After so many timeouts in a row long segments are suspected.
const STALLED_MAX: u32 = 3;
/// An MTU that nearly all paths have, tunnels included: the least of IPv6, above that of IPv4.
const MTU_SAFE: u16 = 1280;

/// Least time between two checks of out-of-order data.
const ASIDE_MIN: Duration = Duration::from_millis(1);

impl Tcb {
    /// When [`Self::handle_time`] must be called next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let timers = &self.timers;
        let ack = match self.ack {
            Ack::By(at) => Some(at),
            _ => None,
        };
        let all = [
            timers.retransmit,
            timers.window_probe,
            timers.reorder,
            timers.tail_probe,
            timers.aside,
            timers.keep_alive,
            timers.orphan,
            ack,
        ];
        // This runs after every segment, so it has no branches.
        let soonest =
            all.into_iter().fold(Instant::NEVER, |soonest, at| soonest.min(at.unwrap_or(Instant::NEVER)));
        (soonest < Instant::NEVER).then_some(soonest)
    }

    /// Handles every timer that has expired. The connection may then have something to send, or have ended.
    pub(crate) fn handle_time(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.timers.orphan) {
            return self.end(Ended::TimedOut);
        }
        if due(&mut self.timers.reorder) {
            self.detect_losses(context);
        }
        if due(&mut self.timers.tail_probe) {
            self.probe_tail(now);
        }
        if due(&mut self.timers.retransmit) {
            self.retransmission_timeout(context);
        }
        if due(&mut self.timers.window_probe) {
            self.window_probe(context);
        }
        if due(&mut self.timers.keep_alive) {
            self.keep_alive(context);
        }
        if matches!(self.ack, Ack::By(at) if at <= now) {
            self.ack = Ack::Now;
        }
        if due(&mut self.timers.aside) {
            let after = context.config.set_aside_after;
            context.stats.set_aside_bytes += self.reassembly.set_aside(now, after, context.frames);
            self.arm_aside(context);
        }
    }

    /// The peer's window has been closed, or too small to use, for a while.
    fn window_probe(&mut self, context: &Context<'_>) {
        self.timers.window_probes += 1;
        if self.offered() > 0 {
            self.timers.small_window = true;
        } else {
            self.timers.probe = Some(Probe::Window);
            self.give_up_when_stuck(context);
        }
    }

    /// Arms the timer that checks out-of-order data.
    pub(super) fn arm_aside(&mut self, context: &Context<'_>) {
        if self.reassembly.is_empty() {
            self.timers.aside = None;
        } else {
            let after = context.config.set_aside_after.max(ASIDE_MIN);
            self.timers.aside.get_or_insert(context.now + after);
        }
    }

    /// Handles the retransmission timeout (RFC 6298, 5.4 to 5.7).
    fn retransmission_timeout(&mut self, context: &mut Context<'_>) {
        if self.in_flight.is_empty() {
            return;
        }
        context.stats.timeouts += 1;
        if self.give_up_when_stuck(context) {
            return;
        }
        let first = !matches!(self.recovery, Recovery::Timeout(_));
        let in_flight = self.outstanding();
        self.congestion.timeout(in_flight, first);
        self.recovery = Recovery::Timeout(self.snd_nxt);
        self.ecn.reduced = true;
        self.dup_acks = 0;
        // A peer that reports the segment after its last acknowledgement has dropped data that it had reported (RFC
        // 2018, 8).
        if !self.sack || self.in_flight.first_is_reported() {
            self.in_flight.forget_reports();
        }
        self.suspect_path();
        self.in_flight.lose_all();
        self.rtt.back_off();
        self.timers.tail_probe = None;
        self.timers.retransmit = Some(context.now + self.rtt.rto());
    }

    /// The path may lose what is too long for it, and no router's report comes: they are filtered, or go to somebody else
    /// with our address (RFC 4821, 7.7: full-stop timeout; RFC 8899, 4.3).
    fn suspect_path(&mut self) {
        self.timers.stalled += 1;
        let (before, least) = (self.mtu, self.mtu_min());
        let next = if before > MTU_SAFE { MTU_SAFE } else { least };
        if self.timers.stalled < STALLED_MAX || next >= before {
            return;
        }
        self.mtu = next;
        if self.in_flight.first_len() <= self.mss() {
            // Short segments are lost, too.
            self.mtu = before;
            return;
        }
        self.timers.stalled = 0;
        self.congestion.set_mss(self.mss());
    }

    /// Ends the connection if nothing was acknowledged for the user timeout (RFC 9293, 3.8.3).
    fn give_up_when_stuck(&mut self, context: &Context<'_>) -> bool {
        let since = *self.timers.unacknowledged_since.get_or_insert(context.now);
        let over = context.now.since(since) >= context.config.user_timeout;
        if over {
            self.end(Ended::TimedOut);
        }
        over
    }

    /// RFC 8985, 7.3: sends the last segment again before the retransmission timeout; one probe per flight. During loss
    /// recovery the probe is the first segment, which is sent whatever the window is. A retransmission may be lost,
    /// too, or a peer that compresses acknowledgements may have lost the only one (RFC 9002, 6.2.4).
    fn probe_tail(&mut self, now: Instant) {
        let probes = match self.recovery {
            Recovery::Timeout(_) => false,
            Recovery::Fast(_) => self.in_flight.lose_first(),
            _ => !self.in_flight.has_lost() && self.in_flight.lose_last(),
        };
        if probes {
            self.timers.tail_probed = true;
            // The probe gets as much time as any segment.
            self.timers.retransmit = Some(now + self.rtt.rto());
        }
    }

    /// Starts the timers for data in flight.
    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        if self.in_flight.is_empty() {
            self.timers.retransmit = None;
            self.timers.tail_probe = None;
            return;
        }
        self.timers.retransmit = Some(now + self.rtt.rto());
        self.arm_tail_probe(now);
    }

    /// Arms the tail loss probe (RFC 8985, 7.2), also during loss recovery.
    pub(super) fn arm_tail_probe(&mut self, now: Instant) {
        let due = match self.recovery {
            Recovery::Timeout(_) => false,
            Recovery::Fast(_) => true,
            _ => !self.in_flight.has_lost(),
        };
        if !due || self.timers.tail_probed || !self.sack || !self.rtt.is_known() {
            self.timers.tail_probe = None;
            return;
        }
        // A peer may delay the acknowledgement of a single segment.
        let single = self.in_flight.pipe() <= self.mss();
        let patience = (self.rtt.smoothed() * 2).max(TAIL_PROBE_MIN);
        let at = now + patience + if single { DELAYED_ACK * 2 } else { Duration::ZERO };
        self.timers.tail_probe =
            self.timers.retransmit.map(|rto| at.min(rto)).filter(|at| Some(*at) < self.timers.retransmit);
    }

    /// Starts or stops probing a window of zero.
    pub(super) fn arm_window_probe(&mut self, now: Instant) {
        let blocked = self.in_flight.is_empty() && self.has_unsent() && self.state.is_synchronized();
        if !blocked {
            self.timers.window_probe = None;
            self.timers.window_probes = 0;
        } else if self.timers.window_probe.is_none() && self.timers.probe.is_none() {
            let wait = self.rtt.rto().saturating_mul(1 << self.timers.window_probes.min(16));
            self.timers.window_probe = Some(now + wait.min(WINDOW_PROBE_MAX));
        }
    }

    /// Sends keep-alive probes (RFC 9293, 3.8.4).
    fn keep_alive(&mut self, context: &Context<'_>) {
        if !self.in_flight.is_empty() || !self.state.is_synchronized() {
            self.timers.heard(context.now, context.config);
            return;
        }
        if self.timers.keep_alive_probes >= PROBES_MAX {
            return self.end(Ended::TimedOut);
        }
        self.timers.keep_alive_probes += 1;
        self.timers.probe = Some(Probe::KeepAlive);
        self.timers.keep_alive = Some(context.now + PROBE_INTERVAL);
    }

    /// True when there are data, or a FIN, that were never sent.
    pub(super) fn has_unsent(&self) -> bool {
        let sent = self.una_offset + u64::from(self.data_outstanding());
        sent < self.queue.end() || self.fin == Fin::Queued
    }

    /// Payload bytes sent and not acknowledged.
    pub(super) fn data_outstanding(&self) -> u32 {
        let control = u32::from(self.fin == Fin::Sent) + u32::from(!self.state.is_synchronized());
        self.outstanding().saturating_sub(control)
    }
}
