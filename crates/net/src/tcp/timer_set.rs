//! The timers of a connection.

use crate::config::Config;
use crate::time::Instant;
use std::time::Duration;

/// How long a connection that its application has closed waits for the peer's FIN (not in RFC 9293; all stacks have
/// it).
const ORPHAN_MAX: Duration = Duration::from_secs(60);

/// Timers that are armed, and state that belongs to them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Retransmission timeout (RFC 6298, 5).
    pub(super) retransmit: Option<Instant>,
    /// The window is zero and there are data to send (RFC 9293, 3.8.6.1).
    pub(super) window_probe: Option<Instant>,
    pub(super) window_probes: u32,
    /// Segments sent before others may be lost (RFC 8985, 6.3).
    pub(super) reorder: Option<Instant>,
    /// The last segment, or every acknowledgement of it, may be lost, and no later segment would reveal it (RFC 8985,
    /// 7).
    pub(super) tail_probe: Option<Instant>,
    /// The tail loss probe was sent, and nothing has been acknowledged since.
    pub(super) tail_probed: bool,
    /// Out-of-order data wait for a hole to be filled.
    pub(super) aside: Option<Instant>,
    pub(super) keep_alive: Option<Instant>,
    pub(super) keep_alive_probes: u32,
    pub(super) orphan: Option<Instant>,
    /// Since when the peer has acknowledged nothing although data are outstanding.
    pub(super) unacknowledged_since: Option<Instant>,
    /// Retransmission timeouts since the peer has acknowledged anything.
    pub(super) stalled: u32,
    /// When an unacceptable segment was answered last.
    pub(super) answered: Option<Instant>,
    /// The override timer has expired: a small part of a window may be used (RFC 9293, 3.8.6.2.1).
    pub(super) small_window: bool,
    /// When data were sent last.
    pub(super) last_sent: Option<Instant>,
    /// A probe is to be sent now.
    pub(super) probe: Option<Probe>,
}

/// Purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Window,
    KeepAlive,
}

impl Timers {
    pub(super) fn orphan(&mut self, now: Instant) {
        self.orphan.get_or_insert(now + ORPHAN_MAX);
    }

    /// The peer has acknowledged more of what the closed connection still sends.
    pub(super) fn orphan_progresses(&mut self, now: Instant) {
        if let Some(at) = &mut self.orphan {
            *at = now + ORPHAN_MAX;
        }
    }

    /// A segment has arrived: the peer is alive.
    pub(super) fn heard(&mut self, now: Instant, config: &Config) {
        self.keep_alive_probes = 0;
        self.keep_alive = config.keep_alive.map(|idle| now + idle);
    }
}
