//! Handles an arriving segment (RFC 9293, 3.10.7), with the checks of RFC 5961 against forged segments and of RFC 7323
//! against old ones.

use super::segment::Segment;
use super::seq::Seq;
use super::tcb::{Ack, Context, Fin, State, Tcb};
use crate::event::{Ended, Event};
use crate::stats::Drop;
use std::time::Duration;

/// A peer's timestamp expires when no segment arrives for this long (RFC 7323, 5.5).
const TIMESTAMP_VALID: Duration = Duration::from_secs(24 * 24 * 3600);

/// Least time between answers to unacceptable segments without data.
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
            // RFC 5961, 4: a SYN is challenged whatever its sequence number is, and before the timestamp check could
            // drop it.
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
            // The segment is a probe of a closed window (RFC 9293, 3.8.6.1), or all of its data have arrived before.
            self.ack = Ack::Now;
        }
        context.stats.pushed += u64::from(segment.flags.psh && !segment.payload.extent.is_empty());
        self.receive_payload(context, &segment)?;
        self.receive_fin(context, &segment);
        Ok(())
    }

    /// RFC 7323, 5.3 R1: an old segment is acknowledged and dropped.
    fn check_timestamp(&mut self, context: &Context<'_>, segment: &Segment) -> Result<(), Drop> {
        let Some(known) = self.timestamps else { return Ok(()) };
        match segment.options.timestamps {
            // 3.2: if timestamps were agreed on, a segment without the option is not from the peer.
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

    /// First check of RFC 9293, 3.10.7.4: a part of the segment lies in the window.
    fn check_window(&mut self, context: &Context<'_>, segment: &Segment) -> Result<(), Drop> {
        let window = self.rcv_edge.past(self.rcv_nxt);
        let (start, len) = (segment.seq, segment.len());
        let within = |seq: Seq| self.rcv_nxt.le(seq) && seq.lt(self.rcv_nxt + window);
        let acceptable = match (len, window) {
            // A peer that has filled the window after a hole sends its acknowledgements with the sequence number of the
            // window's right edge. By the letter of the RFC they would be dropped, and two such peers would answer each
            // other for ever.
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

    /// RFC 9293, 3.10.7.4: an unacceptable segment is answered with an acknowledgement. Answers to segments without
    /// data could go back and forth for ever, so their rate is limited; data are retransmitted at growing intervals.
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

    /// RFC 5961, 5.2: the acknowledged data were sent, and not long ago.
    fn check_ack(&mut self, context: &mut Context<'_>, segment: &Segment) -> Result<(), Drop> {
        let oldest = self.snd_una - self.snd_wnd_max.min(1 << 30);
        if self.snd_nxt.lt(segment.ack) || segment.ack.lt(oldest) {
            self.challenge(context);
            return Err(Drop::BadAck);
        }
        Ok(())
    }

    /// Sends a challenge acknowledgement, which tells the true peer the current numbers. All connections together send
    /// a limited number a second (RFC 5961, 7).
    fn challenge(&mut self, context: &mut Context<'_>) {
        if *context.challenges_left > 0 {
            *context.challenges_left -= 1;
            context.stats.challenges += 1;
            self.ack = Ack::Now;
        }
    }

    /// RFC 7323, 4.3: the timestamp to echo is that of the last segment that advanced the window.
    fn note_timestamp(&mut self, context: &Context<'_>, segment: &Segment) {
        if let (Some(known), Some((value, _))) = (&mut self.timestamps, segment.options.timestamps)
            && segment.seq.le(self.last_ack_sent)
        {
            known.recent = value;
            known.recent_at = context.now;
        }
    }

    /// RFC 3168, 6.1.3: a mark is echoed until the peer reports that it reduced its window.
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
            // The peer has an old connection: the reset tells it so (RFC 9293, 3.5.1, figure 9).
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
            // Simultaneous open (RFC 9293, 3.5, figure 7): the SYN is sent again, with an acknowledgement. RFC 3168,
            // 6.1.1 matches_at on ECN only by a SYN-ACK, which this segment is not.
            self.state = State::SynReceived;
            self.ecn.agreed = false;
            self.in_flight.lose_all();
        }
    }

    /// Handles a SYN during simultaneous open: the peer's SYN-ACK, or its first SYN again.
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

    /// The peer has acknowledged the SYN of a simultaneous open.
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
        let report = self.in_flight.acknowledge(context.now, self.snd_nxt);
        if let Some(rtt) = report.rtt {
            self.rtt.sample(rtt);
        } else if self.rtt.has_backed_off() {
            self.rtt.handshake_timed_out();
        }
        self.snd_una = self.snd_nxt;
        if self.fin == Fin::Queued {
            self.state = State::FinWait1;
        }
        self.timers.unacknowledged_since = None;
        self.arm_retransmission(context.now);
    }
}
