//! One connection: its state, and what the application asks of it.

use super::congestion::Congestion;
use super::emit;
use super::payload::Payload;
use super::queue::{Offset, TransmitQueue};
use super::reassembly::{Kept, Reassembly};
use super::rtt::Rtt;
use super::segment::{self, TIMESTAMPS_LEN};
use super::sent::InFlight;
use super::seq::Seq;
use super::timer_set::Timers;
use crate::address::Path;
use crate::config::{Config, UNCONNECTED_MAX};
use crate::event::{ConnId, Ended, Event};
use crate::frames::Frames;
use crate::stats::Stats;
use crate::time::Instant;
use std::collections::VecDeque;

/// State of a connection (RFC 9293, 3.3.2). LISTEN and the passive SYN-RECEIVED are in [`super::backlog`], TIME-WAIT in
/// [`super::time_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    /// Simultaneous open.
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
}

impl State {
    /// True while the peer may still send data.
    pub(crate) fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// True once both sides have agreed on sequence numbers.
    pub(super) fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived)
    }
}

/// When an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ack {
    No,
    /// With the next data, or alone at this time (RFC 1122, 4.2.3.2).
    By(Instant),
    Now,
}

/// State of congestion recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    No,
    /// A mark has reduced the window, and nothing is lost. Further marks count only once this number is acknowledged
    /// (RFC 3168, 6.1.2).
    Marked(Seq),
    /// Fast recovery: losses are repaired until this number is acknowledged (RFC 6675, 5).
    Fast(Seq),
    /// Recovery after a timeout: losses are repaired until this number is acknowledged.
    Timeout(Seq),
}

impl Recovery {
    /// True while losses are repaired.
    pub(super) fn repairs(self) -> bool {
        matches!(self, Self::Fast(_) | Self::Timeout(_))
    }
}

/// Progress of the close that the application requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fin {
    No,
    /// The FIN follows everything queued.
    Queued,
    Sent,
}

/// Timestamps (RFC 7323, 3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamps {
    /// TS.Recent: the timestamp to echo.
    pub(super) recent: u32,
    pub(super) recent_at: Instant,
    /// Offset added to the clock, so that a peer does not learn the uptime.
    pub(super) offset: u32,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ecn {
    pub(super) agreed: bool,
    /// A mark has arrived: ECE is set until the peer reports that it reduced its window.
    pub(super) echo: bool,
    /// The window was reduced: the next data carry CWR.
    pub(super) reduced: bool,
}

/// One connection (the *transmission control block*).
#[derive(Debug)]
pub(crate) struct Tcb {
    pub(crate) path: Path,
    pub(crate) state: State,
    /// The application has closed the connection and takes no more events of it.
    pub(crate) orphaned: bool,
    pub(crate) ended: Option<Ended>,
    /// Nothing can be sent yet, because the peer's hardware address is not known.
    pub(crate) unresolved: bool,
    // Sending (RFC 9293, 3.3.1).
    pub(super) iss: Seq,
    pub(super) snd_una: Seq,
    pub(super) snd_nxt: Seq,
    pub(super) snd_wnd: u32,
    pub(super) snd_wl1: Seq,
    pub(super) snd_wl2: Seq,
    /// The largest window that the peer has offered.
    pub(super) snd_wnd_max: u32,
    pub(super) snd_shift: u8,
    /// Stream offset of `snd_una`.
    pub(super) una_offset: Offset,
    pub(super) queue: TransmitQueue,
    pub(super) fin: Fin,
    pub(super) in_flight: InFlight,
    pub(super) rtt: Rtt,
    pub(super) congestion: Congestion,
    pub(super) recovery: Recovery,
    pub(super) dup_acks: u32,
    /// The congestion window limited sending.
    pub(super) window_limited: bool,
    /// Largest segment that the peer accepts, and that the path carries.
    pub(super) mss_peer: u16,
    pub(super) mtu: u16,
    // Receiving.
    pub(super) rcv_nxt: Seq,
    /// Right edge of the window that was offered last. The edge never moves back.
    pub(super) rcv_edge: Seq,
    pub(super) rcv_shift: u8,
    pub(super) last_ack_sent: Seq,
    /// Received payload bytes that were not acknowledged yet.
    pub(super) unacked: u32,
    pub(super) ack: Ack,
    pub(super) reassembly: Reassembly,
    pub(super) paused: bool,
    /// The last advertised window was closed for lack of frames.
    pub(super) advertised_closed: bool,
    pub(super) held_back: VecDeque<Payload>,
    pub(super) held_back_bytes: u32,
    /// Sequence number of a FIN that arrived out of order.
    pub(super) fin_at: Option<Seq>,
    /// Largest payload received in a segment: a sender with more than one segment to send fills each of them.
    pub(super) mss_seen: u32,
    pub(super) timestamps: Option<Timestamps>,
    pub(super) sack: bool,
    pub(super) ecn: Ecn,
    pub(super) timers: Timers,
    pub(crate) wants_room: bool,
}

/// What a connection needs while it handles a call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) id: ConnId,
    pub(crate) config: &'a Config,
    pub(crate) frames: &'a mut dyn Frames,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut Stats,
    /// Frames held for paused applications, all connections together.
    pub(crate) held_back: usize,
    /// Challenges that may still be sent in this second (RFC 5961, 7).
    pub(crate) challenges_left: &'a mut u32,
    /// Segments of no connection that wait to be sent.
    pub(crate) replies: &'a mut VecDeque<(Path, emit::Header)>,
}

impl Context<'_> {
    /// Sends a reset for a segment that the connection does not accept.
    pub(super) fn reset(&mut self, path: Path, segment: &segment::Segment) {
        if self.replies.len() < UNCONNECTED_MAX {
            self.replies.extend(emit::Header::reset_for(segment).map(|header| (path, header)));
        }
    }
}

impl Tcb {
    /// Bytes queued and not acknowledged.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Frames held for the paused application.
    pub(crate) fn held_back(&self) -> usize {
        self.held_back.len()
    }

    /// Out-of-order data that are kept.
    pub(crate) fn reordered(&self) -> Kept {
        self.reassembly.kept()
    }

    /// True when the application may queue data.
    pub(crate) fn may_send(&self) -> bool {
        self.ended.is_none() && self.fin == Fin::No && !self.orphaned
    }

    /// Queues protocol bytes; they are copied.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.queue.push_bytes(bytes);
    }

    /// Queues stored bytes by reference. Their hold passes to the connection.
    pub(crate) fn send_stored(&mut self, extent: landfall_media::Extent, sum: Option<landfall_media::Sum>) {
        self.queue.push_stored(extent, sum);
    }

    /// Closes the sending side after everything queued (RFC 9293, 3.10.4).
    pub(crate) fn close(&mut self) {
        if self.fin != Fin::No || self.ended.is_some() {
            return;
        }
        self.fin = Fin::Queued;
        match self.state {
            State::SynSent if self.orphaned => self.end(Ended::Aborted),
            // The FIN waits until the peer has acknowledged the SYN: the state does not change before.
            State::SynSent | State::SynReceived => {}
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
    }

    /// The application closes the connection and takes no more events. The peer has a limited time to receive what is
    /// queued.
    pub(crate) fn orphan(&mut self, context: &mut Context<'_>) {
        self.orphaned = true;
        if !self.held_back.is_empty() {
            // The peer must not conclude that an application has read the data (RFC 9293, 3.6.1; RFC 2525, 2.17).
            return self.end(Ended::Aborted);
        }
        self.release_received(context.frames);
        self.close();
        self.timers.orphan(context.now);
    }

    /// Ends the connection at once. The peer gets a reset if it knows the connection.
    pub(crate) fn end(&mut self, how: Ended) {
        self.ended.get_or_insert(how);
    }

    /// True for a connection that has ended here and enters TIME-WAIT, because its peer may not know (RFC 9293, 3.6.1).
    pub(crate) fn waits_after_closing(&self) -> bool {
        self.ended == Some(Ended::Closed) && matches!(self.state, State::FinWait2 | State::Closing)
    }

    /// Releases every frame.
    pub(crate) fn release(&mut self, frames: &mut dyn Frames) {
        self.queue.clear(frames);
        self.in_flight.clear();
        self.release_received(frames);
    }

    pub(super) fn release_received(&mut self, frames: &mut dyn Frames) {
        self.reassembly.clear(frames);
        self.held_back.drain(..).for_each(|payload| frames.release(payload.extent));
        self.held_back_bytes = 0;
    }

    /// Payload bytes of a full segment, without options whose length varies.
    pub(super) fn mss(&self) -> u32 {
        let headers = crate::address::ip_header_len(self.path.tuple.local.ip()) as u16 + 20;
        let options = if self.timestamps.is_some() { TIMESTAMPS_LEN as u16 } else { 0 };
        // RFC 9293, 3.7.1: the peer's MSS does not include options.
        u32::from(self.mss_peer.min(self.mtu.saturating_sub(headers)).saturating_sub(options).max(64))
    }

    /// Progress of both streams: the next number expected, and the lowest number not acknowledged.
    pub(crate) fn progress(&self) -> (Seq, Seq) {
        (self.rcv_nxt, self.snd_una)
    }

    /// True for a segment that a peer repeats because the path of the reply no longer works: it equals the segment that
    /// the peer sent last, with the acknowledgement that it sent last, after a timeout of this connection. Such a
    /// segment does not advance the connection, but its sender knows both numbers.
    pub(crate) fn is_repeated_after_timeout(&self, segment: &segment::Segment) -> bool {
        let flags = segment.flags;
        self.rtt.has_backed_off()
            && flags.ack
            && !flags.rst
            && segment.ack == self.snd_una
            && segment.seq + segment.len() == self.rcv_nxt
    }

    /// True for a keep-alive of the peer (RFC 9293, 3.8.4), unless it may be an old copy of its last segment. It does not
    /// advance the connection either, and its sender knows both numbers.
    pub(crate) fn is_keep_alive(&self, segment: &segment::Segment) -> bool {
        let flags = segment.flags;
        let is_plain = flags.ack && !flags.rst && !flags.syn && !flags.fin;
        let waits = self.outstanding() == 0 || self.rtt.has_backed_off();
        waits
            && is_plain
            && segment.len() <= 1
            && segment.ack == self.snd_una
            && segment.seq + 1 == self.rcv_nxt
    }

    /// TSval of a segment sent at `now`: milliseconds (RFC 7323, 5.4).
    pub(super) fn timestamp(&self, now: Instant) -> u32 {
        self.timestamps.map_or(0, |t| (now.millis() as u32).wrapping_add(t.offset))
    }

    /// Sequence numbers sent and not acknowledged.
    pub(super) fn outstanding(&self) -> u32 {
        self.snd_nxt.past(self.snd_una)
    }

    /// Remaining part of the peer's window.
    pub(super) fn offered(&self) -> u32 {
        (self.snd_una + self.snd_wnd).past(self.snd_nxt)
    }

    /// Stream offset of a sequence number that is not before `snd_una`.
    pub(super) fn offset_of(&self, seq: Seq) -> Offset {
        self.una_offset + u64::from(seq.past(self.snd_una))
    }
}
