//! What an acknowledgement means for what was sent (RFC 9293, 3.10.7.4, fifth; RFC 5681; RFC 6582; RFC 6675;
//! RFC 8985).

use super::segment::Segment;
use super::sent::Delivered;
use super::{Context, Ended, Fin, Recovery, State, Tcb};
use crate::event::Event;
use std::time::Duration;

/// Duplicate acknowledgements that mean a loss (RFC 5681, 3.2).
const DUP_THRESH: u32 = 3;

/// A timestamp that seems older, milliseconds, is not one of ours.
const ECHO_MAX: u32 = 10 * 60 * 1000;

impl Tcb {
    pub(super) fn acknowledged(&mut self, context: &mut Context<'_>, segment: &Segment) {
        if segment.ack.lt(self.snd_una) {
            return;
        }
        let before = self.snd_wnd;
        self.update_window(segment, true);
        let mut told =
            self.in_flight.acknowledge_blocks(context.now, &segment.options.sack[..self.blocks_taken()]);
        if self.snd_una.lt(segment.ack) {
            self.advance(context, segment, &mut told);
        } else if self.is_duplicate(segment, before) && !self.sack {
            self.count_duplicate(context, &mut told);
        }
        if self.in_flight.is_empty() || self.snd_wnd == 0 {
            // A peer that answers probes, or has closed its window on what is on its way, may take its time
            // (RFC 9293, 3.8.6.1 and 3.8.6).
            self.timers.stuck_since = None;
        }
        if segment.flags.ece && self.ecn.agreed {
            self.slow_down(context);
        }
        if told.bytes > 0 || self.dup_acks > 0 {
            self.detect_losses(context);
        }
        self.grow(context, told);
        self.arm_window_probe(context.now);
        if self.wants_room && !self.orphaned && self.queued() * 2 <= context.config.send_queue {
            self.wants_room = false;
            context.events.push_back(Event::Writable { conn: context.id });
        }
    }

    fn blocks_taken(&self) -> usize {
        if self.sack { super::reassembly::BLOCKS_MAX } else { 0 }
    }

    /// The cumulative acknowledgement moves on.
    fn advance(&mut self, context: &mut Context<'_>, segment: &Segment, told: &mut Delivered) {
        let ack = segment.ack;
        let partial = matches!(self.recovery, Recovery::Fast(until) if ack.lt(until));
        if !self.sack && !partial {
            // What the duplicates stood for is not known any more.
            self.in_flight.forget_reports();
        }
        let newly = self.in_flight.acknowledge(context.now, ack);
        told.bytes += newly.bytes;
        told.acked = newly.acked;
        told.rtt = newly.rtt.or(told.rtt);
        if let Some(rtt) = told.rtt.or_else(|| self.echoed_rtt(context, segment)) {
            self.rtt.sample(rtt);
        }
        let until = self.offset_of(ack).min(self.queue.end());
        self.queue.acknowledge(until, context.frames);
        self.una_offset = until;
        self.snd_una = ack;
        self.dup_acks = 0;
        self.timers.stuck_since = None;
        self.timers.tail_probed = false;
        self.timers.orphan_progresses(context.now);
        self.leave_recovery(ack);
        // RFC 6298, 5.2 and 5.3.
        self.arm_retransmission(context.now);
        if self.fin == Fin::Sent && ack == self.snd_nxt {
            self.fin_acknowledged();
        }
    }

    fn leave_recovery(&mut self, ack: super::Seq) {
        match self.recovery {
            Recovery::Fast(until) | Recovery::Timeout(until) if until.le(ack) => self.recovery = Recovery::No,
            // The peer echoes the mark until data sent after it say that we slowed down (RFC 3168, 6.1.2).
            Recovery::Marked(until) if until.lt(ack) => self.recovery = Recovery::No,
            // RFC 6582, 3.2: a partial acknowledgement tells of the next hole.
            Recovery::Fast(_) if !self.sack => self.in_flight.lose_next_hole(),
            _ => {}
        }
    }

    /// RFC 9293, 3.10.7.4: our FIN has arrived.
    fn fin_acknowledged(&mut self) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            // TIME-WAIT, for the stack to remember.
            State::Closing | State::LastAck => self.end(Ended::Closed),
            _ => {}
        }
    }

    /// The round trip by the timestamp that comes back, of a segment that may have been sent more than once
    /// (RFC 7323, 4): in milliseconds, and so only where there is nothing better, but it ends the back-off.
    fn echoed_rtt(&self, context: &Context<'_>, segment: &Segment) -> Option<Duration> {
        let (_, echoed) = segment.options.timestamps.filter(|_| self.timestamps.is_some())?;
        let millis = self.timestamp(context.now).wrapping_sub(echoed);
        (millis < ECHO_MAX).then(|| Duration::from_millis(millis.max(1).into()))
    }

    /// RFC 5681, 2: nothing new in it, and something is on its way.
    fn is_duplicate(&self, segment: &Segment, window_before: u32) -> bool {
        !self.in_flight.is_empty()
            && segment.len() == 0
            && segment.ack == self.snd_una
            && self.snd_wnd == window_before
    }

    fn count_duplicate(&mut self, context: &mut Context<'_>, told: &mut Delivered) {
        self.dup_acks += 1;
        told.bytes += self.in_flight.acknowledge_duplicate().bytes;
        if self.dup_acks == DUP_THRESH && !self.recovery.repairs() {
            self.in_flight.lose_first();
            self.enter_recovery(context);
        }
    }

    /// RFC 9293, 3.10.7.4: the window of the newest segment counts.
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

    /// Looks for losses, and slows down for a new one.
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
        // A mark that came first has told of the same congestion: once a window is enough (RFC 3168, 6.1.2).
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

    /// RFC 3168, 6.1.2: a mark counts as a loss, once a window.
    fn slow_down(&mut self, context: &mut Context<'_>) {
        if self.recovery == Recovery::No {
            self.reduce(context);
            self.recovery = Recovery::Marked(self.snd_nxt);
        }
    }

    /// RFC 5681, 3.1: the window grows with what is acknowledged, if it was what limited us, and not while
    /// losses are repaired.
    fn grow(&mut self, context: &Context<'_>, told: Delivered) {
        let repairing = matches!(self.recovery, Recovery::Fast(_) | Recovery::Marked(_));
        if told.acked > 0 && self.window_limited && !repairing {
            self.congestion.acknowledged(context.now, told.acked, self.rtt.smoothed());
        }
    }

    /// A router takes smaller packets only (RFC 1191, RFC 8201); `seq` is that of the packet it dropped.
    pub(crate) fn path_mtu(&mut self, context: &Context<'_>, seq: super::Seq, mtu: u16) {
        const MTU_MIN_V4: u16 = 552;
        const MTU_MIN_V6: u16 = 1280;
        let least = if self.path.tuple.local.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 };
        let ours = self.snd_una.le(seq) && seq.lt(self.snd_nxt);
        let mtu = mtu.max(least);
        if !ours || mtu >= self.mtu {
            return;
        }
        self.mtu = mtu;
        self.congestion.set_mss(self.mss());
        self.in_flight.lose_all();
        self.timers.retransmit = Some(context.now + self.rtt.rto());
    }
}
