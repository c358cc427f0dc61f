//! Half-open connections: the stack has answered a SYN, and the peer has not acknowledged the answer. Entries are
//! small, their number is bounded, and they hold no frame. When the backlog is full, SYN cookies take over.

use super::emit::{Header, OptionsOut};
use super::open::{Agreed, Numbers, our_mss, our_shift};
use super::output::syn_window;
use super::rtt::RoundTrip;
use super::segment::Flags;
use super::seq::Seq;
use crate::address::{Path, Tuple};
use crate::config::Config;
use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time until a SYN-ACK is retransmitted, doubled each time; and the number of retransmissions.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRIES_MAX: u32 = 4;

/// One half-open connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    pub(crate) path: Path,
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    pub(crate) agreed: Agreed,
    pub(crate) timestamp_offset: u32,
    pub(crate) tag: u32,
    retries: u32,
    due: Instant,
    /// When the SYN was answered, if it was answered once only (Karn's rule: RFC 6298, 3).
    answered: Option<Instant>,
}

impl Half {
    pub(crate) fn new(
        now: Instant,
        path: Path,
        numbers: Numbers,
        agreed: Agreed,
        timestamp_offset: u32,
        tag: u32,
    ) -> Self {
        let Numbers { iss, irs } = numbers;
        Self {
            path,
            iss,
            irs,
            agreed,
            timestamp_offset,
            tag,
            retries: 0,
            due: now + RETRY_AFTER,
            answered: Some(now),
        }
    }

    /// The round-trip time of the handshake, when the peer acknowledges the SYN-ACK at `now`.
    pub(crate) fn round_trip(&self, now: Instant) -> RoundTrip {
        match self.answered {
            _ if self.retries > 0 => RoundTrip::TimedOut,
            Some(at) => RoundTrip::Took(now.since(at)),
            None => RoundTrip::Unknown,
        }
    }

    /// The SYN-ACK.
    pub(crate) fn answer(&self, now: Instant, config: &Config) -> Header {
        let clock = (now.millis() as u32).wrapping_add(self.timestamp_offset);
        let numbers = Numbers { iss: self.iss, irs: self.irs };
        syn_ack(config, &self.path, numbers, &self.agreed, clock)
    }
}

/// A SYN-ACK with the options that the peer's SYN offered.
pub(crate) fn syn_ack(config: &Config, path: &Path, numbers: Numbers, agreed: &Agreed, clock: u32) -> Header {
    let options = OptionsOut {
        mss: Some(our_mss(config, path.tuple.local.is_ipv4())),
        window_scale: agreed.window_scale.map(|_| our_shift(config)),
        sack_permitted: agreed.sack,
        timestamps: agreed.timestamp.map(|recent| (clock, recent)),
        ..OptionsOut::default()
    };
    let flags = Flags { syn: true, ack: true, ece: agreed.ecn, ..Flags::default() };
    Header {
        seq: numbers.iss,
        ack: numbers.irs + 1,
        flags,
        window: syn_window(config),
        options,
        markable: false,
    }
}

/// What to do for a half-open connection whose timer has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The SYN-ACK must be retransmitted.
    Again,
    /// The half-open connection has been given up.
    Gone,
}

/// All half-open connections of a stack.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    half: BTreeMap<[u8; 36], Half>,
    next_look: Option<Instant>,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.half.len()
    }

    pub(crate) fn get(&self, tuple: &Tuple) -> Option<&Half> {
        self.half.get(&tuple.key())
    }

    pub(crate) fn insert(&mut self, half: Half) {
        self.next_look = Some(self.next_look.map_or(half.due, |at| at.min(half.due)));
        self.half.insert(half.path.tuple.key(), half);
    }

    /// The SYN was retransmitted, and so was the answer.
    pub(crate) fn answered_again(&mut self, tuple: &Tuple) {
        if let Some(half) = self.half.get_mut(&tuple.key()) {
            half.answered = None;
        }
    }

    pub(crate) fn remove(&mut self, tuple: &Tuple) -> Option<Half> {
        self.half.remove(&tuple.key())
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next_look
    }

    /// Retransmits SYN-ACKs that were not acknowledged, and gives up after [`RETRIES_MAX`] retransmissions.
    pub(crate) fn handle_time(&mut self, now: Instant, mut each: impl FnMut(&Half, Due)) {
        if self.next_look.is_none_or(|at| at > now) {
            return;
        }
        self.half.retain(|_, half| {
            if half.due <= now {
                half.retries += 1;
                half.due = now + RETRY_AFTER * (1 << half.retries.min(RETRIES_MAX));
                each(half, if half.retries <= RETRIES_MAX { Due::Again } else { Due::Gone });
            }
            half.retries <= RETRIES_MAX
        });
        self.next_look = self.half.values().map(|half| half.due).min();
    }
}

/// True if `segment` completes the handshake of `half`.
pub(crate) fn completes(half: &Half, segment: &super::segment::Segment, config: &Config) -> bool {
    let window = half.irs + 1 + config.receive_window.min(0xffff);
    segment.flags.ack
        && segment.ack == half.iss + 1
        && (half.irs + 1).le(segment.seq)
        && segment.seq.lt(window)
        && half.agreed.timestamp.is_some() == segment.options.timestamps.is_some()
}
