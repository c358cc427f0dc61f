//! Handles acknowledgements of sent data (RFC 9293, 3.10.7.4, fifth; RFC 5681; RFC 6582; RFC 6675; RFC 8985).

use super::segment::Segment;
use super::sent::{DUP_THRESH, Delivered};
use super::seq::Seq;
use super::tcb::{Context, Fin, Recovery, State, Tcb};
use crate::event::{Ended, Event};
use std::time::Duration;

/// An echoed timestamp that is older than this, in milliseconds, is not one that this connection sent.
const ECHO_MAX: u32 = 10 * 60 * 1000;

impl Tcb {
    pub(super) fn acknowledged(&mut self, context: &mut Context<'_>, segment: &Segment) {
        if segment.ack.lt(self.snd_una) {
            return;
        }
        let before = self.snd_wnd;
        self.update_window(segment, true);
        let mut report =
            self.in_flight.acknowledge_blocks(context.now, &segment.options.sack[..self.blocks_taken()]);
        if self.snd_una.lt(segment.ack) {
            self.advance(context, segment, &mut report);
        } else if self.is_duplicate(segment, before) && !self.sack {
            self.count_duplicate(context, &mut report);
        }
        if self.in_flight.is_empty() || self.snd_wnd == 0 {
            // A peer that answers probes, or has closed its window although data are in flight, may take its time (RFC
            // 9293, 3.8.6.1 and 3.8.6).
            self.timers.unacknowledged_since = None;
        }
        if segment.flags.ece && self.ecn.agreed {
            self.slow_down(context);
        }
        if report.bytes > 0 || self.dup_acks > 0 {
            self.detect_losses(context);
        }
        self.grow(context, report);
        self.arm_window_probe(context.now);
        if self.wants_room && !self.orphaned && self.queued() * 2 <= context.config.send_queue {
            self.wants_room = false;
            context.events.push_back(Event::Writable { conn: context.id });
        }
    }

    fn blocks_taken(&self) -> usize {
        if self.sack { super::sack::BLOCKS_MAX } else { 0 }
    }

    /// Moves the cumulative acknowledgement forward.
    fn advance(&mut self, context: &mut Context<'_>, segment: &Segment, report: &mut Delivered) {
        let ack = segment.ack;
        let partial = matches!(self.recovery, Recovery::Fast(until) if ack.lt(until));
        if !self.sack && !partial {
            // It is no longer known which segments the duplicate acknowledgements were for.
            self.in_flight.forget_reports();
        }
        let newly = self.in_flight.acknowledge(context.now, ack);
        report.bytes += newly.bytes;
        report.acked = newly.acked;
        report.rtt = newly.rtt.or(report.rtt);
        if let Some(rtt) = report.rtt.or_else(|| self.echoed_rtt(context, segment)) {
            self.rtt.sample(rtt);
        }
        let until = self.offset_of(ack).min(self.queue.end());
        self.queue.acknowledge(until, context.frames);
        self.una_offset = until;
        self.snd_una = ack;
        self.dup_acks = 0;
        self.timers.unacknowledged_since = None;
        self.timers.stalled = 0;
        self.timers.tail_probed = false;
        self.timers.orphan_progresses(context.now);
        self.leave_recovery(ack);
        // RFC 6298, 5.2 and 5.3.
        self.arm_retransmission(context.now);
        if self.fin == Fin::Sent && ack == self.snd_nxt {
            self.fin_acknowledged();
        }
    }

    fn leave_recovery(&mut self, ack: Seq) {
        match self.recovery {
            Recovery::Fast(until) | Recovery::Timeout(until) if until.le(ack) => self.recovery = Recovery::No,
            // The peer echoes the congestion mark until it receives data with CWR (RFC 3168, 6.1.2).
            Recovery::Marked(until) if until.lt(ack) => self.recovery = Recovery::No,
            // RFC 6582, 3.2: a partial acknowledgement reports the next hole.
            Recovery::Fast(_) if !self.sack => self.in_flight.lose_next_hole(),
            _ => {}
        }
    }

    /// RFC 9293, 3.10.7.4: the peer has acknowledged the FIN.
    fn fin_acknowledged(&mut self) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            // The stack keeps the connection in TIME-WAIT.
            State::Closing | State::LastAck => self.end(Ended::Closed),
            _ => {}
        }
    }

    /// The round-trip time by the echoed timestamp of a segment that may have been sent more than once (RFC 7323, 4).
    /// The precision is a millisecond, so this is used only where no better sample exists; but it ends the back-off.
    fn echoed_rtt(&self, context: &Context<'_>, segment: &Segment) -> Option<Duration> {
        let (_, echoed) = segment.options.timestamps.filter(|_| self.timestamps.is_some())?;
        let millis = self.timestamp(context.now).wrapping_sub(echoed);
        (millis < ECHO_MAX).then(|| Duration::from_millis(millis.max(1).into()))
    }

    /// RFC 5681, 2: the acknowledgement has nothing new, and data are in flight.
    fn is_duplicate(&self, segment: &Segment, window_before: u32) -> bool {
        !self.in_flight.is_empty()
            && segment.len() == 0
            && segment.ack == self.snd_una
            && self.snd_wnd == window_before
    }

    fn count_duplicate(&mut self, context: &mut Context<'_>, report: &mut Delivered) {
        self.dup_acks += 1;
        report.bytes += self.in_flight.acknowledge_duplicate().bytes;
        if self.dup_acks == DUP_THRESH && !self.recovery.repairs() {
            self.in_flight.lose_first();
            self.enter_recovery(context);
        }
    }

    /// RFC 9293, 3.10.7.4: updates the send window from the newest segment.
    pub(super) fn update_window(&mut self, segment: &Segment, scaled: bool) {
        let newer =
            self.snd_wl1.lt(segment.seq) || (self.snd_wl1 == segment.seq && self.snd_wl2.le(segment.ack));
        if newer {
            // RFC 7323, 2.2: the window of a SYN is not scaled.
            self.snd_wnd = u32::from(segment.window) << if scaled { self.snd_shift } else { 0 };
            self.snd_wnd_max = self.snd_wnd_max.max(self.snd_wnd);
            self.snd_wl1 = segment.seq;
            self.snd_wl2 = segment.ack;
        }
    }

    /// Detects losses, and reduces the congestion window for a new one.
    pub(super) fn detect_losses(&mut self, context: &mut Context<'_>) {
        if !self.sack {
            return;
        }
        let recovering = self.recovery.repairs();
        let found = self.in_flight.detect_losses(context.now, self.rtt.smoothed(), recovering);
        self.timers.reorder = found.again;
        if found.any && !recovering {
            self.enter_recovery(context);
        }
    }

    fn enter_recovery(&mut self, context: &mut Context<'_>) {
        // A mark that arrived before reported the same congestion: one reduction per window is enough (RFC 3168,
        // 6.1.2).
        if self.recovery == Recovery::No {
            self.reduce(context);
        }
        self.recovery = Recovery::Fast(self.snd_nxt);
    }

    fn reduce(&mut self, context: &mut Context<'_>) {
        context.stats.recoveries += 1;
        self.congestion.reduce(self.outstanding());
        self.ecn.reduced = true;
    }

    /// RFC 3168, 6.1.2: a mark counts as a loss, once per window.
    fn slow_down(&mut self, context: &mut Context<'_>) {
        if self.recovery == Recovery::No {
            self.reduce(context);
            self.recovery = Recovery::Marked(self.snd_nxt);
        }
    }

    /// RFC 5681, 3.1: the window grows with acknowledged bytes if the window was the limit, and not during loss
    /// recovery.
    fn grow(&mut self, context: &Context<'_>, report: Delivered) {
        let repairing = matches!(self.recovery, Recovery::Fast(_) | Recovery::Marked(_));
        if report.acked > 0 && self.window_limited && !repairing {
            self.congestion.acknowledged(context.now, report.acked, self.rtt.smoothed());
        }
    }

    /// A router accepts only smaller packets (RFC 1191, RFC 8201); `seq` is the sequence number of the packet that it
    /// dropped.
    pub(crate) fn path_mtu(&mut self, context: &Context<'_>, seq: Seq, mtu: u16) {
        let ours = self.snd_una.le(seq) && seq.lt(self.snd_nxt);
        let mtu = mtu.max(self.mtu_min());
        if !ours || mtu >= self.mtu {
            return;
        }
        self.mtu = mtu;
        self.congestion.set_mss(self.mss());
        self.in_flight.lose_all();
        self.timers.retransmit = Some(context.now + self.rtt.rto());
    }

    /// The smallest MTU that is believed.
    pub(super) fn mtu_min(&self) -> u16 {
        const MTU_MIN_V4: u16 = 552;
        const MTU_MIN_V6: u16 = 1280;
        if self.path.tuple.local.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 }
    }
}
