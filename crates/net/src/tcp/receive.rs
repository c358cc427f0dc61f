//! Received payload and FIN. Payload in order is delivered, out-of-order payload stays in the frames it landed in, and
//! payload for a paused application is held back.

use super::payload::Payload;
use super::segment::Segment;
use super::seq::Seq;
use super::tcb::{Ack, Context, State, Tcb};
use super::timers::DELAYED_ACK;
use crate::event::{Ended, Event};
use crate::frames::Frames;
use crate::stats::Drop;

/// Window offered while all paused connections together hold half of the frames that they may.
const WINDOW_UNDER_PRESSURE: u32 = 16 << 10;

impl Tcb {
    /// RFC 9293, 3.10.7.4, seventh.
    pub(super) fn receive_payload(
        &mut self,
        context: &mut Context<'_>,
        segment: &Segment,
    ) -> Result<(), Drop> {
        let payload = segment.payload;
        if payload.extent.is_empty() {
            return Ok(());
        }
        if !self.state.receives() {
            self.ack = Ack::Now;
            return Err(Drop::Closed);
        }
        if self.orphaned {
            // No application will take the data (RFC 9293, 3.6.1).
            self.end(Ended::Aborted);
            return Err(Drop::Closed);
        }
        self.mss_seen = self.mss_seen.max(payload.extent.len());
        if segment.seq != self.rcv_nxt {
            return self.receive_after_hole(context, segment);
        }
        if self.paused && self.holds_back_too_much(context) {
            self.ack = Ack::Now;
            return Err(Drop::TooMuchWaiting);
        }
        context.frames.hold(payload.extent);
        self.accept(context, payload);
        let mut filled = false;
        while let Some(next) = self.reassembly.take(self.rcv_nxt, context.frames) {
            self.accept(context, next);
            filled = true;
        }
        self.arm_aside(context);
        // RFC 5681, 4.2: acknowledge at once when a hole was filled or still exists; otherwise every second full
        // segment.
        let at_once = filled || !self.reassembly.is_empty() || self.unacked >= 2 * self.mss_seen;
        self.acknowledge_soon(context, at_once);
        Ok(())
    }

    fn acknowledge_soon(&mut self, context: &Context<'_>, at_once: bool) {
        if at_once {
            self.ack = Ack::Now;
        } else if self.ack == Ack::No {
            self.ack = Ack::By(context.now + DELAYED_ACK);
        }
    }

    /// Takes payload that continues the stream. The payload carries one hold.
    fn accept(&mut self, context: &mut Context<'_>, payload: Payload) {
        let len = payload.extent.len();
        self.rcv_nxt += len;
        self.unacked += len;
        if self.paused {
            self.held_back.push_back(payload);
            self.held_back_bytes += len;
        } else {
            deliver(context, payload);
        }
    }

    fn receive_after_hole(&mut self, context: &mut Context<'_>, segment: &Segment) -> Result<(), Drop> {
        // RFC 5681, 4.2: report the hole at once.
        self.ack = Ack::Now;
        if self.pieces() >= context.config.waiting_frames_per_connection {
            return Err(Drop::TooMuchWaiting);
        }
        let kept = self.reassembly.insert(context.now, segment.seq, segment.payload, context.frames);
        if let Some(copied) = kept {
            context.stats.out_of_order += 1;
            context.stats.set_aside_bytes += copied;
            self.arm_aside(context);
        } else {
            // The FIN of the segment may still be new.
            context.stats.drop(Drop::Duplicate);
        }
        Ok(())
    }

    /// Pieces that the application has not taken yet.
    fn pieces(&self) -> usize {
        self.held_back() + self.reassembly.kept().pieces
    }

    /// True if this connection, or all connections together, hold as many frames for paused applications as allowed.
    fn holds_back_too_much(&self, context: &Context<'_>) -> bool {
        self.pieces() >= context.config.waiting_frames_per_connection
            || context.held_back >= context.config.waiting_frames_max
    }

    /// Drops the out-of-order data that are furthest from the first hole.
    pub(crate) fn drop_furthest(&mut self, frames: &mut dyn Frames) {
        self.reassembly.drop_furthest(frames);
    }

    /// The window that a segment advertises. The window is closed while a paused application leaves no frame for the
    /// data that it admits. Closing shrinks the window, which RFC 9293, 3.8.6 discourages; but a peer that fills frames
    /// with single bytes would otherwise retransmit in vain until it gives up. Data within the earlier window are still
    /// accepted once there is room.
    pub(super) fn window_to_advertise(&mut self, context: &Context<'_>) -> u32 {
        self.advertised_closed = self.paused && self.holds_back_too_much(context);
        if self.advertised_closed { 0 } else { self.rcv_edge.past(self.rcv_nxt) }
    }

    /// The connection has ended: delivers what was held back, because the application cannot ask for it later.
    pub(crate) fn deliver_rest(&mut self, context: &mut Context<'_>) {
        if self.ended == Some(Ended::Closed) && !self.orphaned && !self.held_back.is_empty() {
            self.deliver_held_back(context);
            context.events.push_back(Event::Eof { conn: context.id });
        }
    }

    fn deliver_held_back(&mut self, context: &mut Context<'_>) {
        self.held_back.drain(..).for_each(|payload| deliver(context, payload));
        self.held_back_bytes = 0;
    }

    /// RFC 9293, 3.10.7.4, eighth. For a FIN after a hole, its sequence number is kept.
    pub(super) fn receive_fin(&mut self, context: &mut Context<'_>, segment: &Segment) {
        if segment.flags.fin && self.state.receives() {
            self.fin_at = Some(segment.seq + segment.payload.extent.len());
        }
        if self.fin_at == Some(self.rcv_nxt) {
            self.fin_at = None;
            self.rcv_nxt += 1;
            self.rcv_edge = self.rcv_edge.max(self.rcv_nxt);
            self.ack = Ack::Now;
            self.fin_received(context);
        }
    }

    fn fin_received(&mut self, context: &mut Context<'_>) {
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            // The stack keeps the connection in TIME-WAIT.
            State::FinWait2 => self.end(Ended::Closed),
            _ => return,
        }
        if !self.orphaned && self.held_back.is_empty() {
            context.events.push_back(Event::Eof { conn: context.id });
        }
    }

    /// The application takes no more data for now: arriving data are held back, and the window closes.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// The application takes data again.
    pub(crate) fn resume(&mut self, context: &mut Context<'_>) {
        if !std::mem::take(&mut self.paused) {
            return;
        }
        let had_some = !self.held_back.is_empty();
        self.deliver_held_back(context);
        if had_some && !self.state.receives() && !self.orphaned {
            context.events.push_back(Event::Eof { conn: context.id });
        }
        // RFC 9293, 3.8.6.2.2: a window that has opened by a useful amount is advertised.
        let opened = self.window_to_offer(context).past(self.rcv_edge);
        if self.advertised_closed || opened >= (2 * self.mss()).min(context.config.receive_window / 2) {
            self.ack = Ack::Now;
        }
    }

    /// Right edge of the window to offer. The edge never moves back (RFC 9293, 3.8.6).
    pub(super) fn window_to_offer(&self, context: &Context<'_>) -> Seq {
        let pressed = context.held_back >= context.config.waiting_frames_max / 2;
        let most = context.config.receive_window;
        let full = if pressed { WINDOW_UNDER_PRESSURE.min(most) } else { most };
        let room = full.saturating_sub(self.held_back_bytes);
        let room = room.min(0xffff << self.rcv_shift);
        let edge = self.rcv_nxt + (room >> self.rcv_shift << self.rcv_shift);
        // RFC 9293, 3.8.6.2.2: the edge moves in large steps.
        let step = self.mss().min(context.config.receive_window / 2);
        if self.rcv_edge.lt(edge) && edge.past(self.rcv_edge) >= step { edge } else { self.rcv_edge }
    }
}

/// Reports payload to the application. The hold passes with the event.
fn deliver(context: &mut Context<'_>, payload: Payload) {
    context.events.push_back(Event::Received {
        conn: context.id,
        extent: payload.extent,
        sum: payload.sum,
        arrival_ns: payload.arrival_ns,
    });
}
