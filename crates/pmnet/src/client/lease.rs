//! The lease of a session: how long the client may rely on devices' acknowledgements after the server has received a
//! packet of it.
//!
//! Why sessions have leases: `docs/format/pmnet.md`, "Sessions that fall silent".

use landfall_net::Instant;
use std::time::Duration;

/// A lease is renewed after 1/`RENEW_AT` of it.
const RENEW_AT: u32 = 4;
/// Shortest pause between session starts that ask whether the session still exists.
pub(super) const RESUME_MIN: Duration = Duration::from_millis(50);

/// A session's lease, if the session has one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lease {
    /// Duration of the lease. Zero: the session has no lease.
    pub(super) span: Duration,
    /// The server has received a packet that was sent at this time or later.
    pub(super) renewed: Instant,
    /// The heartbeat in flight: its nonce, and when it was first sent.
    pub(super) asked: Option<(u64, Instant)>,
    /// When a heartbeat or a session start is to be sent.
    pub(super) due: Option<Instant>,
    /// Pause after the next session start, once the lease has expired.
    pub(super) pause: Duration,
    /// When the session start in flight was first sent.
    pub(super) start_sent: Option<Instant>,
}

impl Lease {
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        !self.span.is_zero() && self.renewed + self.span <= now
    }

    /// Renews the lease. The server has received a packet that was sent at `sent`.
    pub(super) fn renew(&mut self, sent: Instant) {
        self.renewed = self.renewed.max(sent);
        (self.asked, self.start_sent, self.pause) = (None, None, RESUME_MIN);
        self.due = Some(self.renewed + self.span / RENEW_AT);
    }

    /// Notes that a session start is sent.
    pub(super) fn start_sent(&mut self, now: Instant) {
        self.start_sent.get_or_insert(now);
    }
}
