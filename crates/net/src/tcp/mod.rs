//! TCP (RFC 9293 and its extensions): one connection's state, and what it does with segments, time and data.
//!
//! | file | what |
//! |---|---|
//! | `input.rs` | a segment arrives (RFC 9293, 3.10.7; RFC 5961; RFC 7323) |
//! | `acknowledge.rs` | what an acknowledgement means for what was sent (RFC 5681, 6582, 6675, 8985) |
//! | `receive.rs` | payload and FIN: in order, after a hole, held back (RFC 9293, 3.8.6; RFC 2018) |
//! | `output.rs` | which segment goes out next |
//! | `timers.rs` | what happens as time goes by (RFC 6298; RFC 9293, 3.8) |
//! | `open.rs` | connections in their first state; options that were agreed on |
//! | `backlog.rs`, `cookie.rs`, `isn.rs` | half-open connections, SYN cookies, initial sequence numbers |
//! | `time_wait.rs` | connections that are over, remembered for a while |

mod acknowledge;
pub(crate) mod backlog;
mod congestion;
pub(crate) mod cookie;
pub(crate) mod emit;
mod input;
pub(crate) mod isn;
mod open;
mod output;
mod queue;
mod reassembly;
mod receive;
mod rtt;
pub(crate) mod segment;
mod sent;
pub(crate) mod seq;
pub(crate) mod time_wait;
mod timers;

pub(crate) use open::{Agreed, Numbers};

use crate::address::Path;
use crate::config::Config;
use crate::event::{ConnId, Event};
use crate::frames::Frames;
use crate::stats::Stats;
use crate::time::Instant;
use congestion::Congestion;
use queue::{Offset, TransmitQueue};
pub(crate) use reassembly::Kept;
use reassembly::Reassembly;
use rtt::Rtt;
use segment::Payload;
use sent::InFlight;
use seq::Seq;
use std::collections::VecDeque;

/// Where a connection is in its life (RFC 9293, 3.3.2). LISTEN and the passive SYN-RECEIVED are in
/// [`backlog`], TIME-WAIT in [`time_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    /// Both sides opened at once.
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
}

impl State {
    /// The peer may still send data.
    pub(crate) fn receives(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Both sides have agreed on sequence numbers.
    fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived)
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both sides closed.
    Closed,
    /// The peer reset it.
    Reset,
    /// The peer refused it.
    Refused,
    /// The peer did not answer for too long.
    TimedOut,
    /// We reset it.
    Aborted,
}

/// When an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    No,
    /// With the next data, or by then (RFC 1122, 4.2.3.2).
    By(Instant),
    Now,
}

/// The congestion window's mood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovery {
    No,
    /// A mark has cost part of the window; nothing is lost. Not again until this is acknowledged (RFC 3168, 6.1.2).
    Marked(Seq),
    /// Losses are being repaired until this is acknowledged (RFC 6675, 5).
    Fast(Seq),
    /// The same after a timeout.
    Timeout(Seq),
}

impl Recovery {
    /// Something was lost.
    fn repairs(self) -> bool {
        matches!(self, Self::Fast(_) | Self::Timeout(_))
    }
}

/// The close that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    No,
    /// After everything queued.
    Queued,
    Sent,
}

/// Timestamps (RFC 7323, 3).
#[derive(Clone, Copy, Debug)]
struct Timestamps {
    /// TS.Recent.
    recent: u32,
    recent_at: Instant,
    /// What is added to the clock: a peer must not learn how long we have run.
    offset: u32,
}

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default)]
struct Ecn {
    agreed: bool,
    /// A mark has arrived: echo it until the peer says that it slowed down.
    echo: bool,
    /// We slowed down: say so with the next data.
    reduced: bool,
}

/// One connection (the *transmission control block*).
#[derive(Debug)]
pub(crate) struct Tcb {
    pub(crate) path: Path,
    pub(crate) state: State,
    /// The application has let go of it.
    pub(crate) orphaned: bool,
    pub(crate) ended: Option<Ended>,
    /// Nothing can be sent yet: the peer's hardware address is not known.
    pub(crate) unresolved: bool,
    // Sending (RFC 9293, 3.3.1).
    iss: Seq,
    snd_una: Seq,
    snd_nxt: Seq,
    snd_wnd: u32,
    snd_wl1: Seq,
    snd_wl2: Seq,
    /// The largest window that the peer ever offered.
    snd_wnd_max: u32,
    snd_shift: u8,
    /// Stream offset of `snd_una`.
    una_offset: Offset,
    queue: TransmitQueue,
    fin: Fin,
    in_flight: InFlight,
    rtt: Rtt,
    congestion: Congestion,
    recovery: Recovery,
    dup_acks: u32,
    /// Sending was limited by the congestion window.
    window_limited: bool,
    /// What the peer takes in one segment, and what the path does.
    mss_peer: u16,
    mtu: u16,
    // Receiving.
    rcv_nxt: Seq,
    /// Right edge of the window that was offered last: it never moves back.
    rcv_edge: Seq,
    rcv_shift: u8,
    last_ack_sent: Seq,
    /// Payload bytes not acknowledged yet.
    unacked: u32,
    ack: Ack,
    reassembly: Reassembly,
    paused: bool,
    /// The peer was told last of a closed window for want of frames.
    told_full: bool,
    held_back: VecDeque<Payload>,
    held_back_bytes: u32,
    /// Sequence number of a FIN that arrived after a hole.
    fin_at: Option<Seq>,
    /// Payload is as large as the peer sends it: it has more than one segment to send.
    mss_seen: u32,
    timestamps: Option<Timestamps>,
    sack: bool,
    ecn: Ecn,
    timers: timers::Timers,
    pub(crate) wants_room: bool,
}

/// What a connection works with while it handles something.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) id: ConnId,
    pub(crate) config: &'a Config,
    pub(crate) frames: &'a mut dyn Frames,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) stats: &'a mut Stats,
    /// Frames that wait for paused applications, all connections together.
    pub(crate) held_back: usize,
    /// Challenges that may still be sent in this second (RFC 5961, 7).
    pub(crate) challenges_left: &'a mut u32,
    /// Segments of no connection that wait to be sent.
    pub(crate) replies: &'a mut VecDeque<(Path, emit::Header)>,
}

impl Context<'_> {
    /// Refuses a segment that the connection does not accept.
    fn reset(&mut self, path: Path, segment: &segment::Segment) {
        if self.replies.len() < crate::stack::UNCONNECTED_MAX {
            self.replies.extend(emit::Header::reset_for(segment).map(|header| (path, header)));
        }
    }
}

impl Tcb {
    /// Bytes queued and not acknowledged.
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Frames that wait for the application, which is paused.
    pub(crate) fn held_back(&self) -> usize {
        self.held_back.len()
    }

    /// What waits for a hole to be filled.
    pub(crate) fn reordered(&self) -> Kept {
        self.reassembly.kept()
    }

    /// True when data may be queued.
    pub(crate) fn may_send(&self) -> bool {
        self.ended.is_none() && self.fin == Fin::No && !self.orphaned
    }

    /// Queues protocol bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.queue.push_bytes(bytes);
    }

    /// Queues stored bytes; their hold passes to the connection.
    pub(crate) fn send_stored(&mut self, extent: landfall_media::Extent, sum: Option<landfall_media::Sum>) {
        self.queue.push_stored(extent, sum);
    }

    /// Closes our side after what is queued (RFC 9293, 3.10.4).
    pub(crate) fn close(&mut self) {
        if self.fin != Fin::No || self.ended.is_some() {
            return;
        }
        self.fin = Fin::Queued;
        match self.state {
            State::SynSent if self.orphaned => self.end(Ended::Aborted),
            // Before the peer has acknowledged our SYN there is no other state to go to; the FIN waits.
            State::SynSent | State::SynReceived => {}
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => {}
        }
    }

    /// The application lets go: nothing is delivered any more, and the peer has a while to take the rest.
    pub(crate) fn orphan(&mut self, context: &mut Context<'_>) {
        self.orphaned = true;
        if !self.held_back.is_empty() {
            // The peer must not believe that somebody has read it (RFC 9293, 3.6.1; RFC 2525, 2.17).
            return self.end(Ended::Aborted);
        }
        self.let_received_go(context.frames);
        self.close();
        self.timers.orphan(context.now);
    }

    /// Ends it at once; a reset goes to the peer where there is one that knows of us.
    pub(crate) fn end(&mut self, how: Ended) {
        self.ended.get_or_insert(how);
    }

    /// True for one that is over here, but whose peer may not know (RFC 9293, 3.6.1: TIME-WAIT).
    pub(crate) fn waits_after_closing(&self) -> bool {
        self.ended == Some(Ended::Closed) && matches!(self.state, State::FinWait2 | State::Closing)
    }

    /// Gives every frame back.
    pub(crate) fn release(&mut self, frames: &mut dyn Frames) {
        self.queue.clear(frames);
        self.in_flight.clear();
        self.let_received_go(frames);
    }

    fn let_received_go(&mut self, frames: &mut dyn Frames) {
        self.reassembly.clear(frames);
        self.held_back.drain(..).for_each(|payload| frames.release(payload.extent));
        self.held_back_bytes = 0;
    }

    /// Payload bytes of a full segment, without options that vary.
    fn mss(&self) -> u32 {
        let headers = crate::address::ip_header_len(self.path.tuple.local.ip()) as u16 + 20;
        let options = if self.timestamps.is_some() { emit::TIMESTAMPS_LEN as u16 } else { 0 };
        // RFC 9293, 3.7.1: the peer's MSS does not count options.
        u32::from(self.mss_peer.min(self.mtu.saturating_sub(headers)).saturating_sub(options).max(64))
    }

    /// How far both streams have come: what was received in order, and what the peer has acknowledged.
    pub(crate) fn progress(&self) -> (Seq, Seq) {
        (self.rcv_nxt, self.snd_una)
    }

    /// True for what a peer sends that waits for what was lost on a way that is no more: exactly what it has sent last, with
    /// exactly the acknowledgement that it has sent last, after a timeout of ours. It does not advance the connection, but
    /// takes knowledge of both numbers.
    pub(crate) fn is_repeated_in_need(&self, segment: &segment::Segment) -> bool {
        let flags = segment.flags;
        self.rtt.has_backed_off()
            && flags.ack
            && !flags.rst
            && segment.ack == self.snd_una
            && segment.seq + segment.len() == self.rcv_nxt
    }

    /// TSval of a segment sent now: milliseconds (RFC 7323, 5.4).
    fn timestamp(&self, now: Instant) -> u32 {
        self.timestamps.map_or(0, |t| (now.millis() as u32).wrapping_add(t.offset))
    }

    /// Segments sent and not acknowledged, in sequence numbers.
    fn outstanding(&self) -> u32 {
        self.snd_nxt.past(self.snd_una)
    }

    /// What is left of the peer's window.
    fn offered(&self) -> u32 {
        (self.snd_una + self.snd_wnd).past(self.snd_nxt)
    }

    /// Stream offset of a sequence number that is not before `snd_una`.
    fn offset_of(&self, seq: Seq) -> Offset {
        self.una_offset + u64::from(seq.past(self.snd_una))
    }
}
