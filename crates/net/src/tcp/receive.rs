//! Payload and FIN: delivered in order, kept where it landed after a hole, held back while the application
//! takes no more.

use super::segment::{Payload, Segment};
use super::seq::Seq;
use super::timers::DELAYED_ACK;
use super::{Ack, Context, Ended, State, Tcb};
use crate::event::Event;
use crate::stats::Drop;

/// Window offered while all connections together keep as many frames as they may.
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
            // Nobody will ever take it (RFC 9293, 3.6.1).
            self.end(Ended::Aborted);
            return Err(Drop::Closed);
        }
        self.mss_seen = self.mss_seen.max(payload.extent.len);
        if segment.seq != self.rcv_nxt {
            return self.receive_after_hole(context, segment);
        }
        if self.waiting_frames() >= context.config.waiting_frames_per_connection && self.paused {
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
        // RFC 5681, 4.2: at once when a hole was filled, or is still there; every second full segment.
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

    /// Takes payload that continues the stream; it is held once.
    fn accept(&mut self, context: &mut Context<'_>, payload: Payload) {
        let len = payload.extent.len;
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
        // RFC 5681, 4.2: tell at once what is missing.
        self.ack = Ack::Now;
        let mine = self.waiting_frames() >= context.config.waiting_frames_per_connection;
        if mine || context.waiting_frames >= context.config.waiting_frames_max {
            return Err(Drop::TooMuchWaiting);
        }
        if !self.reassembly.insert(context.now, segment.seq, segment.payload, context.frames) {
            return Err(Drop::Duplicate);
        }
        context.stats.out_of_order += 1;
        self.arm_aside(context);
        Ok(())
    }

    /// RFC 9293, 3.10.7.4, eighth. A FIN after a hole is remembered by its place.
    pub(super) fn receive_fin(&mut self, context: &mut Context<'_>, segment: &Segment) {
        if segment.flags.fin && self.state.receives() {
            self.fin_at = Some(segment.seq + segment.payload.extent.len);
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
            // TIME-WAIT, for the stack to remember.
            State::FinWait2 => self.end(Ended::Closed),
            _ => return,
        }
        if !self.orphaned && self.held_back.is_empty() {
            context.events.push_back(Event::Eof { conn: context.id });
        }
    }

    /// The application takes no more for now: what arrives is held back, and the window closes.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    /// The application goes on.
    pub(crate) fn resume(&mut self, context: &mut Context<'_>) {
        if !std::mem::take(&mut self.paused) {
            return;
        }
        let had_some = !self.held_back.is_empty();
        while let Some(payload) = self.held_back.pop_front() {
            deliver(context, payload);
        }
        self.held_back_bytes = 0;
        if had_some && !self.state.receives() && !self.orphaned {
            context.events.push_back(Event::Eof { conn: context.id });
        }
        // RFC 9293, 3.8.6.2.2: a window that has opened well is told.
        let opened = self.window_to_offer(context).past(self.rcv_edge);
        if opened >= (2 * self.mss()).min(context.config.receive_window / 2) {
            self.ack = Ack::Now;
        }
    }

    /// Right edge of the window to offer: it never moves back (RFC 9293, 3.8.6).
    pub(super) fn window_to_offer(&self, context: &Context<'_>) -> Seq {
        let pressed = context.waiting_frames >= context.config.waiting_frames_max / 2;
        let full = if pressed { WINDOW_UNDER_PRESSURE } else { context.config.receive_window };
        let room = full.saturating_sub(self.held_back_bytes);
        let room = room.min(0xffff << self.rcv_shift);
        let edge = self.rcv_nxt + (room >> self.rcv_shift << self.rcv_shift);
        // RFC 9293, 3.8.6.2.2: no small steps.
        let step = self.mss().min(context.config.receive_window / 2);
        if self.rcv_edge.lt(edge) && (edge.past(self.rcv_edge) >= step || self.rcv_edge.le(self.rcv_nxt)) {
            edge
        } else {
            self.rcv_edge
        }
    }
}

/// Hands payload to the application, which lets go of it.
fn deliver(context: &mut Context<'_>, payload: Payload) {
    context.events.push_back(Event::Received {
        conn: context.id,
        extent: payload.extent,
        sum: payload.sum,
        arrival_ns: payload.arrival_ns,
    });
}
