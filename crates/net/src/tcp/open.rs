//! Initial state of connections, and the options that both sides agree on.

use super::congestion::Congestion;
use super::queue::TransmitQueue;
use super::reassembly::Reassembly;
use super::rtt::{RoundTrip, Rtt};
use super::segment::Segment;
use super::sent::InFlight;
use super::seq::Seq;
use super::tcb::{Ack, Context, Ecn, Fin, Recovery, State, Tcb, Timestamps};
use super::timer_set::Timers;
use crate::address::Path;
use crate::config::Config;
use crate::time::Instant;
use std::collections::VecDeque;

/// MSS of a peer that sends no MSS option (RFC 9293, 3.7.1).
const MSS_DEFAULT_V4: u16 = 536;
const MSS_DEFAULT_V6: u16 = 1220;
/// Largest window shift (RFC 7323, 2.3).
const SHIFT_MAX: u8 = 14;

/// Options that two SYNs have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Payload that the peer accepts in one segment, options included.
    pub(crate) mss: u16,
    /// Window shift of the peer; `None`: neither side scales its window (RFC 7323, 1.3).
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// The peer's last timestamp.
    pub(crate) timestamp: Option<u32>,
    pub(crate) ecn: bool,
}

impl Agreed {
    /// Options of a SYN that the stack accepts.
    pub(crate) fn of(segment: &Segment, config: &Config, v4: bool) -> Self {
        let options = &segment.options;
        let default = if v4 { MSS_DEFAULT_V4 } else { MSS_DEFAULT_V6 };
        // RFC 3168, 6.1.1: a SYN requests ECN with both bits, a SYN-ACK matches_at with one.
        let ecn = segment.flags.ece && (segment.flags.cwr != segment.flags.ack);
        Self {
            mss: options.mss.unwrap_or(default).max(64),
            window_scale: options.window_scale.map(|shift| shift.min(SHIFT_MAX)),
            sack: options.sack_permitted,
            timestamp: options.timestamps.map(|(value, _)| value),
            ecn: ecn && config.ecn,
        }
    }
}

/// The window shift that this side offers: the least one with which the window fits into 16 bits.
pub(crate) fn our_shift(config: &Config) -> u8 {
    let bits = u32::BITS - config.receive_window.leading_zeros();
    u8::try_from(bits.saturating_sub(16)).unwrap_or(SHIFT_MAX).min(SHIFT_MAX)
}

/// Payload that this side accepts in one segment (RFC 9293, 3.7.1: without options).
pub(crate) fn our_mss(config: &Config, v4: bool) -> u16 {
    config.mtu.saturating_sub(if v4 { 40 } else { 60 })
}

/// Initial sequence numbers of both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
}

impl Tcb {
    /// A connection that a peer has opened; its handshake is complete.
    pub(crate) fn accepted(
        now: Instant,
        config: &Config,
        path: Path,
        numbers: Numbers,
        agreed: &Agreed,
        timestamp_offset: u32,
    ) -> Self {
        let mut tcb = Self::fresh(config, path, numbers.iss, timestamp_offset);
        tcb.state = State::Established;
        tcb.snd_una = numbers.iss + 1;
        tcb.snd_nxt = numbers.iss + 1;
        tcb.snd_wl1 = numbers.irs;
        tcb.snd_wl2 = numbers.iss;
        tcb.agree_on(now, config, numbers.irs, agreed);
        tcb
    }

    /// A connection that the application opens; its SYN has not been sent.
    pub(crate) fn opening(config: &Config, path: Path, iss: Seq, timestamp_offset: u32) -> Self {
        let mut tcb = Self::fresh(config, path, iss, timestamp_offset);
        tcb.snd_nxt = iss + 1;
        tcb
    }

    /// Takes the round-trip time of the handshake into account.
    pub(crate) fn sample_handshake(&mut self, round_trip: RoundTrip) {
        match round_trip {
            RoundTrip::Took(time) => self.rtt.sample(time),
            RoundTrip::TimedOut => self.rtt.handshake_timed_out(),
            RoundTrip::Unknown => {}
        }
    }

    fn fresh(config: &Config, path: Path, iss: Seq, timestamp_offset: u32) -> Self {
        let timestamps = Timestamps { recent: 0, recent_at: Instant::default(), offset: timestamp_offset };
        Self {
            path,
            state: State::SynSent,
            orphaned: false,
            ended: None,
            unresolved: false,
            iss,
            snd_una: iss,
            snd_nxt: iss,
            snd_wnd: 0,
            snd_wl1: Seq(0),
            snd_wl2: Seq(0),
            snd_wnd_max: 0,
            snd_shift: 0,
            una_offset: 0,
            queue: TransmitQueue::default(),
            fin: Fin::No,
            in_flight: InFlight::default(),
            rtt: Rtt::new(config.rto_min),
            congestion: Congestion::new(config.congestion, u32::from(MSS_DEFAULT_V4)),
            recovery: Recovery::No,
            dup_acks: 0,
            window_limited: false,
            mss_peer: MSS_DEFAULT_V4,
            mtu: config.mtu,
            rcv_nxt: Seq(0),
            rcv_edge: Seq(0),
            rcv_shift: 0,
            last_ack_sent: Seq(0),
            unacked: 0,
            ack: Ack::No,
            reassembly: Reassembly::default(),
            paused: false,
            advertised_closed: false,
            held_back: VecDeque::new(),
            held_back_bytes: 0,
            fin_at: None,
            mss_seen: u32::from(MSS_DEFAULT_V4),
            timestamps: Some(timestamps),
            sack: false,
            ecn: Ecn::default(),
            timers: Timers::default(),
            wants_room: false,
        }
    }

    /// Takes over the options of the peer's SYN, in SYN-SENT.
    pub(super) fn agree(&mut self, context: &Context<'_>, segment: &Segment) {
        let v4 = self.path.tuple.local.is_ipv4();
        let agreed = Agreed::of(segment, context.config, v4);
        self.agree_on(context.now, context.config, segment.seq, &agreed);
    }

    fn agree_on(&mut self, now: Instant, config: &Config, irs: Seq, agreed: &Agreed) {
        self.rcv_nxt = irs + 1;
        self.last_ack_sent = irs + 1;
        self.mss_peer = agreed.mss;
        self.sack = agreed.sack;
        self.ecn.agreed = agreed.ecn;
        if let Some(shift) = agreed.window_scale {
            self.snd_shift = shift;
            self.rcv_shift = our_shift(config);
        }
        // The window of a SYN is not scaled.
        self.rcv_edge = self.rcv_nxt + config.receive_window.min(0xffff);
        self.timestamps = agreed.timestamp.map(|recent| {
            let offset = self.timestamps.map_or(0, |t| t.offset);
            Timestamps { recent, recent_at: now, offset }
        });
        self.congestion = Congestion::new(config.congestion, self.mss());
        self.timers.heard(now, config);
    }
}
