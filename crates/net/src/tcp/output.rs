//! Chooses and fills the next segment: lost data first, then new data, then an acknowledgement alone.

use super::emit::{HEADER_LEN, Header, OptionsOut};
use super::open::{our_mss, our_shift};
use super::sack::{BLOCKS_MAX, Block};
use super::segment::{Flags, TIMESTAMPS_LEN};
use super::seq::Seq;
use super::tcb::{Ack, Context, Fin, State, Tcb};
use crate::config::Config;
use crate::event::Ended;
use crate::packet::{LONG_LEN_MAX, Packet};
use crate::time::Instant;

/// Window of a SYN, which is never scaled.
pub(crate) fn syn_window(config: &Config) -> u16 {
    u16::try_from(config.receive_window).unwrap_or(u16::MAX)
}

impl Tcb {
    /// Fills the next packet; false when there is nothing to send now.
    pub(crate) fn transmit(&mut self, context: &mut Context<'_>, packet: &mut Packet) -> bool {
        if self.ended.is_some() {
            return false;
        }
        if !self.state.is_synchronized() {
            return self.transmit_syn(context, packet);
        }
        let sent = self.transmit_lost(context, packet)
            || self.transmit_new(context, packet)
            || self.transmit_probe(context, packet)
            || self.transmit_ack(context, packet);
        if !sent {
            self.arm_window_probe(context.now);
        }
        sent
    }

    /// The last segment of a connection that has ended: a reset if the peer knows the connection, or the
    /// acknowledgement of its FIN.
    pub(crate) fn final_header(&mut self, context: &mut Context<'_>) -> Option<Header> {
        let how = self.ended?;
        if matches!(how, Ended::Aborted | Ended::TimedOut) && self.state != State::SynSent {
            let flags = Flags { rst: true, ack: true, ..Flags::default() };
            return Some(Header { seq: self.snd_nxt, ack: self.rcv_nxt, flags, ..Header::default() });
        }
        let owes_ack = how == Ended::Closed && self.ack != Ack::No;
        owes_ack.then(|| self.header(context, self.snd_nxt, Flags { ack: true, ..Flags::default() }))
    }

    fn transmit_syn(&mut self, context: &mut Context<'_>, packet: &mut Packet) -> bool {
        if self.in_flight.is_empty() {
            self.in_flight.push(context.now, self.iss, 1);
            self.arm_retransmission(context.now);
        } else {
            let Some((seq, len)) = self.in_flight.next_lost(1) else { return false };
            self.in_flight.resend(context.now, seq, len);
        }
        let answers = self.state == State::SynReceived;
        let config = context.config;
        let v4 = self.path.tuple.local.is_ipv4();
        // A SYN-ACK offers what the peer's SYN offered. If both shifts are zero, the option can be left out.
        let scales = !answers || self.snd_shift > 0 || self.rcv_shift > 0;
        let options = OptionsOut {
            mss: Some(our_mss(config, v4)),
            window_scale: scales.then(|| our_shift(config)),
            sack_permitted: !answers || self.sack,
            timestamps: self.timestamps.map(|t| (self.timestamp(context.now), t.recent)),
            ..OptionsOut::default()
        };
        // RFC 3168, 6.1.1.
        let asks = config.ecn && !answers;
        let flags = Flags { syn: true, ack: answers, ece: asks, cwr: asks, ..Flags::default() };
        let ack = if answers { self.rcv_nxt } else { Seq(0) };
        let window = syn_window(config);
        Header { seq: self.iss, ack, flags, window, options, markable: false }.emit_alone(&self.path, packet);
        true
    }

    /// Retransmits lost data, which go first (RFC 6675, 5: C.1).
    fn transmit_lost(&mut self, context: &mut Context<'_>, packet: &mut Packet) -> bool {
        let mss = self.mss();
        let Some((seq, len)) = self.in_flight.next_lost(mss) else { return false };
        // The first segment is retransmitted whatever the window is (RFC 5681, 3.2; RFC 6582, 3.2; RFC 6675, 5: 4.3).
        if self.in_flight.pipe() >= self.congestion.window() && seq != self.snd_una {
            self.window_limited = true;
            return false;
        }
        let with_fin = self.fin == Fin::Sent && seq + len == self.snd_nxt;
        let sent = self.transmit_data(context, packet, seq, len - u32::from(with_fin), with_fin);
        self.in_flight.resend(context.now, seq, sent);
        context.stats.retransmitted += 1;
        if self.timers.retransmit.is_none() || seq == self.snd_una {
            // The segment that the peer waits for gets a whole timeout from now on.
            self.arm_retransmission(context.now);
        } else {
            self.arm_tail_probe(context.now);
        }
        true
    }

    /// Sends new data as far as both windows allow (RFC 5681, 3.1; RFC 9293, 3.8.6).
    fn transmit_new(&mut self, context: &mut Context<'_>, packet: &mut Packet) -> bool {
        if self.fin == Fin::Sent || self.in_flight.room() == 0 {
            return false;
        }
        let start = self.una_offset + u64::from(self.data_outstanding());
        let unsent = u32::try_from(self.queue.end() - start).unwrap_or(u32::MAX);
        let wants_fin = self.fin == Fin::Queued;
        if unsent == 0 && !wants_fin {
            self.window_limited &= self.in_flight.has_lost();
            return false;
        }
        let mss = self.mss();
        let usable = unsent.min(self.usable(context.now, unsent, mss));
        let len = usable.min(self.run_max(context, mss));
        // The part of the window that does not fit a whole segment waits.
        let len = if len > mss && len < unsent { len - len % mss } else { len };
        // A FIN takes one number of the window.
        let fin = wants_fin && len == unsent && len < self.offered();
        if len == 0 && !fin {
            return false;
        }
        let seq = self.snd_nxt;
        let idle = self.in_flight.is_empty();
        let taken = self.transmit_data(context, packet, seq, len, fin);
        self.snd_nxt += taken;
        self.note_sent(context.now, seq, taken, mss);
        if idle {
            self.timers.unacknowledged_since = Some(context.now);
        }
        self.timers.window_probe = None;
        self.timers.small_window = false;
        // RFC 6298, 5.1: start the timer only if it is not running. A tail probe resends the last segment.
        if idle || self.timers.retransmit.is_none() {
            self.arm_retransmission(context.now);
        } else if self.timers.tail_probe.is_some() {
            self.arm_tail_probe(context.now);
        }
        true
    }

    /// Bytes of one packet, at most: those of as many whole segments as fit if the driver takes long packets, and of
    /// one segment otherwise. A segment that reports congestion or holes is sent alone, because it must be sent once.
    fn run_max(&self, context: &Context<'_>, mss: u32) -> u32 {
        let tells = self.ecn.reduced || self.ecn.echo || !self.reassembly.is_empty();
        if !context.config.long_packets || tells {
            return mss;
        }
        let headers = self.path.header_len() + HEADER_LEN + TIMESTAMPS_LEN;
        let fit = (LONG_LEN_MAX - headers) as u32 / mss;
        mss * fit.min(self.in_flight.room()).max(1)
    }

    /// Records that new data are in flight. Each segment has its entry, even if one packet carried several: any of them
    /// may be lost.
    fn note_sent(&mut self, now: Instant, seq: Seq, taken: u32, mss: u32) {
        let fin = u32::from(self.fin == Fin::Sent);
        let (mut at, mut left) = (seq, taken);
        while left - fin > mss {
            self.in_flight.push(now, at, mss);
            at += mss;
            left -= mss;
        }
        self.in_flight.push(now, at, left);
    }

    /// Bytes that may be sent now. If the window admits only a small part of a segment, sending waits (RFC 9293,
    /// 3.8.6.2.1).
    fn usable(&mut self, now: Instant, unsent: u32, mss: u32) -> u32 {
        if self.in_flight.is_empty() && self.idle_for(now) {
            self.congestion.idle();
        }
        let offered = self.offered();
        let congestion = self.congestion.window().saturating_sub(self.in_flight.pipe());
        let usable = offered.min(congestion);
        let whole = unsent.min(mss);
        self.window_limited = congestion < whole || self.in_flight.has_lost();
        if usable >= whole {
            return usable;
        }
        let enough = offered >= self.snd_wnd_max / 2 || self.timers.small_window;
        let worth = enough && congestion >= whole && offered > 0;
        if worth { usable } else { 0 }
    }

    /// RFC 5681, 4.1: true if nothing was sent for longer than a retransmission timeout.
    fn idle_for(&self, now: Instant) -> bool {
        self.timers.last_sent.is_some_and(|at| now.since(at) > self.rtt.rto())
    }

    /// Sends a probe: one sequence number before the window, for a closed window (RFC 9293, 3.8.6.1) or as keep-alive
    /// (3.8.4).
    fn transmit_probe(&mut self, context: &mut Context<'_>, packet: &mut Packet) -> bool {
        if self.timers.probe.take().is_none() {
            return false;
        }
        // The probe has an old sequence number and no data: the answer reports the window, and the probe leaves no
        // state to remember in case the peer drops it.
        let seq = self.snd_una - 1;
        let header = self.header(context, seq, Flags { ack: true, ..Flags::default() });
        header.emit_alone(&self.path, packet);
        true
    }

    fn transmit_ack(&mut self, context: &mut Context<'_>, packet: &mut Packet) -> bool {
        if self.ack != Ack::Now {
            return false;
        }
        let header = self.header(context, self.snd_nxt, Flags { ack: true, ..Flags::default() });
        header.emit_alone(&self.path, packet);
        true
    }

    /// Fills a packet with payload and returns how many sequence numbers it takes. New data of more than one segment
    /// become a long packet.
    fn transmit_data(
        &mut self,
        context: &mut Context<'_>,
        packet: &mut Packet,
        seq: Seq,
        len: u32,
        fin: bool,
    ) -> u32 {
        let start = self.offset_of(seq);
        // RFC 3168, 6.1.2 and 6.1.5: only new data are marked ECN-capable.
        let new = self.ecn.agreed && seq == self.snd_nxt && len > 0;
        let cwr = new && std::mem::take(&mut self.ecn.reduced);
        let mut header = self.header(context, seq, Flags { ack: true, cwr, ..Flags::default() });
        header.markable = new;
        // SACK blocks take room from the payload.
        let usual = if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        let mss = self.mss();
        let room = mss - (header.options.len() - usual) as u32;
        let mut builder = header.begin(&self.path, packet);
        let mut filled = 0;
        if len > mss && seq == self.snd_nxt {
            builder = builder.long(mss as u16);
            filled = self.queue.fill(start, len, &mut builder, context.frames);
        }
        if filled <= mss {
            // One segment, for example because a long packet would have too many pieces.
            builder = header.begin(&self.path, packet);
            filled = self.queue.fill(start, len.min(room), &mut builder, context.frames);
        }
        let last = start + u64::from(filled) == self.queue.end();
        header.flags.psh = last && filled > 0;
        header.flags.fin = fin && filled == len;
        header.finish(&self.path, builder);
        self.timers.last_sent = Some(context.now);
        if header.flags.fin && self.fin == Fin::Queued {
            self.fin = Fin::Sent;
        }
        filled + u32::from(header.flags.fin)
    }

    /// A header with the acknowledgement that is due. Building the header clears that acknowledgement.
    fn header(&mut self, context: &Context<'_>, seq: Seq, mut flags: Flags) -> Header {
        self.rcv_edge = self.window_to_offer(context);
        let window = self.window_to_advertise(context) >> self.rcv_shift;
        flags.ece = self.ecn.echo;
        let mut options = OptionsOut {
            timestamps: self.timestamps.map(|t| (self.timestamp(context.now), t.recent)),
            ..OptionsOut::default()
        };
        if self.sack && !self.reassembly.is_empty() {
            options.sack = self.blocks();
        }
        self.ack = Ack::No;
        self.unacked = 0;
        self.last_ack_sent = self.rcv_nxt;
        let window = u16::try_from(window).unwrap_or(u16::MAX);
        Header { seq, ack: self.rcv_nxt, flags, window, options, markable: false }
    }

    fn blocks(&self) -> [Option<Block>; BLOCKS_MAX] {
        self.reassembly.blocks().0
    }
}
