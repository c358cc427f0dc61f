//! A segment arrives (RFC 9293, 3.10.7), with the checks of RFC 5961 against forged ones and of RFC 7323
//! against old ones.

use super::segment::Segment;
use super::{Ack, Context, Ended, Fin, State, Tcb};
use crate::event::Event;
use crate::stats::Drop;
use std::time::Duration;

/// After so long without a segment a peer's timestamp says nothing (RFC 7323, 5.5).
const TIMESTAMP_VALID: Duration = Duration::from_secs(24 * 24 * 3600);

/// Least time between answers to empty segments that are not acceptable.
const ANSWER_INTERVAL: Duration = Duration::from_millis(100);

impl Tcb {
    /// Handles one segment of this connection.
    pub(crate) fn receive(&mut self, context: &mut Context<'_>, segment: Segment) {
        if self.state == State::SynSent {
            return self.receive_in_syn_sent(context, &segment);
        }
        if let Err(reason) = self.receive_checked(context, segment) {
            context.stats.drop(reason);
        }
    }

    fn receive_checked(&mut self, context: &mut Context<'_>, mut segment: Segment) -> Result<(), Drop> {
        if segment.flags.syn && self.state == State::SynReceived {
            return self.receive_second_syn(context, &segment);
        }
        if segment.flags.syn && !segment.flags.rst {
            // RFC 5961, 4: whatever its sequence number, and before timestamps may drop it in silence.
            self.challenge(context);
            return Err(Drop::Syn);
        }
        self.check_timestamp(context, &segment)?;
        self.check_window(context, &segment)?;
        if segment.flags.rst {
            return self.receive_reset(context, &segment);
        }
        if !segment.flags.ack {
            return Err(Drop::Malformed);
        }
        self.check_ack(context, &segment)?;
        self.timers.heard(context.now, context.config);
        self.note_timestamp(context, &segment);
        self.note_congestion(&segment);
        if self.state == State::SynReceived {
            self.establish(context, &segment)?;
        }
        self.acknowledged(context, &segment);
        if self.ended.is_some() {
            return Ok(());
        }
        let carried = segment.len() > 0;
        segment.trim_before(self.rcv_nxt, context.frames);
        segment.trim_after(self.rcv_edge, context.frames);
        if carried && segment.len() == 0 {
            // A probe of a closed window (RFC 9293, 3.8.6.1), or what has arrived before.
            self.ack = Ack::Now;
        }
        context.stats.pushed += u64::from(segment.flags.psh && !segment.payload.extent.is_empty());
        self.receive_payload(context, &segment)?;
        self.receive_fin(context, &segment);
        Ok(())
    }

    /// RFC 7323, 5.3 R1: an old segment is answered and dropped.
    fn check_timestamp(&mut self, context: &Context<'_>, segment: &Segment) -> Result<(), Drop> {
        let Some(known) = self.timestamps else { return Ok(()) };
        match segment.options.timestamps {
            // 3.2: a segment without the option, where it was agreed on, is not the peer's.
            None if segment.flags.rst => Ok(()),
            None => Err(Drop::Paws),
            Some((value, _)) => {
                let old = value.wrapping_sub(known.recent).cast_signed() < 0;
                let valid = context.now.since(known.recent_at) < TIMESTAMP_VALID;
                if old && valid && !segment.flags.rst {
                    self.answer_unacceptable(context, segment);
                    return Err(Drop::Paws);
                }
                Ok(())
            }
        }
    }

    /// First check of RFC 9293, 3.10.7.4: some of the segment lies in the window.
    fn check_window(&mut self, context: &Context<'_>, segment: &Segment) -> Result<(), Drop> {
        let window = self.rcv_edge.past(self.rcv_nxt);
        let (start, len) = (segment.seq, segment.len());
        let within = |seq: super::Seq| self.rcv_nxt.le(seq) && seq.lt(self.rcv_nxt + window);
        let acceptable = match (len, window) {
            // At the very edge stand the acknowledgements of a peer that has filled the window after a hole. By
            // the letter of the RFC they would be lost, and two such peers would answer each other for ever.
            (0, _) if !segment.flags.rst => start == self.rcv_edge || within(start),
            (0, 0) => start == self.rcv_nxt,
            (0, _) => within(start),
            // A FIN or probe at the edge of a closed window still carries an acknowledgement.
            (_, 0) => start == self.rcv_nxt,
            (_, _) => within(start) || within(start + (len - 1)),
        };
        if acceptable {
            return Ok(());
        }
        if !segment.flags.rst {
            self.answer_unacceptable(context, segment);
        }
        let old = (segment.seq + len).le(self.rcv_nxt) && len > 0;
        Err(if old { Drop::Duplicate } else { Drop::OutOfWindow })
    }

    /// RFC 9293, 3.10.7.4: what is not acceptable is answered with where we are. An answer to each empty segment
    /// could go back and forth for ever; data are sent again at growing intervals.
    fn answer_unacceptable(&mut self, context: &Context<'_>, segment: &Segment) {
        let recent = self.timers.answered.is_some_and(|at| context.now.since(at) < ANSWER_INTERVAL);
        if segment.len() > 0 {
            self.ack = Ack::Now;
        } else if !recent {
            self.ack = Ack::Now;
            self.timers.answered = Some(context.now);
        }
    }

    /// RFC 5961, 3.2: only a reset with exactly the next sequence number ends the connection.
    fn receive_reset(&mut self, context: &mut Context<'_>, segment: &Segment) -> Result<(), Drop> {
        if segment.seq == self.rcv_nxt {
            self.end(Ended::Reset);
            return Ok(());
        }
        self.challenge(context);
        Err(Drop::Reset)
    }

    /// RFC 5961, 5.2: what is acknowledged was sent, and not long ago.
    fn check_ack(&mut self, context: &mut Context<'_>, segment: &Segment) -> Result<(), Drop> {
        let oldest = self.snd_una - self.snd_wnd_max.min(1 << 30);
        if self.snd_nxt.lt(segment.ack) || segment.ack.lt(oldest) {
            self.challenge(context);
            return Err(Drop::BadAck);
        }
        Ok(())
    }

    /// An acknowledgement that tells the true peer where we are: a few a second, for all connections together
    /// (RFC 5961, 7).
    fn challenge(&mut self, context: &mut Context<'_>) {
        if *context.challenges_left > 0 {
            *context.challenges_left -= 1;
            context.stats.challenges += 1;
            self.ack = Ack::Now;
        }
    }

    /// RFC 7323, 4.3: the timestamp to echo is that of the segment that moved the window last.
    fn note_timestamp(&mut self, context: &Context<'_>, segment: &Segment) {
        if let (Some(known), Some((value, _))) = (&mut self.timestamps, segment.options.timestamps)
            && segment.seq.le(self.last_ack_sent)
        {
            known.recent = value;
            known.recent_at = context.now;
        }
    }

    /// RFC 3168, 6.1.3: a mark is echoed until the peer says that it slowed down.
    fn note_congestion(&mut self, segment: &Segment) {
        if !self.ecn.agreed {
            return;
        }
        if segment.flags.cwr {
            self.ecn.echo = false;
        }
        if segment.congested && !segment.payload.extent.is_empty() {
            self.ecn.echo = true;
            self.ack = Ack::Now;
        }
    }

    /// RFC 9293, 3.10.7.3.
    fn receive_in_syn_sent(&mut self, context: &mut Context<'_>, segment: &Segment) {
        let flags = segment.flags;
        let acknowledges = flags.ack && segment.ack == self.snd_nxt;
        if flags.ack && !acknowledges {
            // The peer has an old connection: it learns that from the reset (RFC 9293, 3.5.1, figure 9).
            context.reset(self.path, segment);
            return context.stats.drop(Drop::BadAck);
        }
        if flags.rst {
            if acknowledges {
                self.end(Ended::Refused);
            }
            return;
        }
        if !flags.syn {
            return context.stats.drop(Drop::NoConnection);
        }
        self.agree(context, segment);
        (self.snd_wl1, self.snd_wl2) = (segment.seq, self.snd_una);
        if acknowledges {
            self.state = State::Established;
            self.acknowledge_syn(context);
            self.update_window(segment, false);
            self.ack = Ack::Now;
            self.report_connected(context);
        } else {
            // Both opened at once (RFC 9293, 3.5, figure 7): our SYN goes again, with an acknowledgement. What
            // RFC 3168, 6.1.1 agrees on takes an answer that says so, which this is not.
            self.state = State::SynReceived;
            self.ecn.agreed = false;
            self.in_flight.lose_all();
        }
    }

    /// A SYN after both have opened at once: the peer's answer to ours, or its first one again.
    fn receive_second_syn(&mut self, context: &mut Context<'_>, segment: &Segment) -> Result<(), Drop> {
        if segment.seq + 1 != self.rcv_nxt || segment.flags.rst {
            return Err(Drop::Syn);
        }
        if segment.flags.ack {
            self.note_timestamp(context, segment);
            self.establish(context, segment)?;
            self.ack = Ack::Now;
        } else {
            self.in_flight.lose_all();
        }
        Ok(())
    }

    /// Our SYN is acknowledged after both opened at once.
    fn establish(&mut self, context: &mut Context<'_>, segment: &Segment) -> Result<(), Drop> {
        if segment.ack != self.snd_nxt {
            context.reset(self.path, segment);
            return Err(Drop::BadAck);
        }
        self.state = State::Established;
        self.acknowledge_syn(context);
        self.update_window(segment, !segment.flags.syn);
        self.report_connected(context);
        Ok(())
    }

    fn report_connected(&self, context: &mut Context<'_>) {
        if !self.orphaned {
            context.events.push_back(Event::Connected { conn: context.id });
        }
    }

    fn acknowledge_syn(&mut self, context: &Context<'_>) {
        let told = self.in_flight.acknowledge(context.now, self.snd_nxt);
        if let Some(rtt) = told.rtt {
            self.rtt.sample(rtt);
        } else if self.rtt.has_backed_off() {
            self.rtt.handshake_timed_out();
        }
        self.snd_una = self.snd_nxt;
        if self.fin == Fin::Queued {
            self.state = State::FinWait1;
        }
        self.timers.stuck_since = None;
        self.arm_retransmission(context.now);
    }
}
