//! The lease of a session: for how long devices are believed after the server has heard this client.
//!
//! Why there is one: `docs/format/pmnet.md`, "Sessions that fall silent".

use super::{Client, Phase};
use crate::wire::{Body, Packet, Role, Start};
use landfall_net::Instant;
use std::time::Duration;

/// A lease is renewed once this part of it has passed, and asked for again after that part.
const RENEW_AT: u32 = 4;
const RENEW_AGAIN: u32 = 16;
/// Shortest and longest pause between questions whether the session is still there.
const RESUME_MIN: Duration = Duration::from_millis(50);
const RESUME_MAX: Duration = Duration::from_secs(5);

/// A session's lease, if it was given one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lease {
    /// Zero: none, which lasts for ever.
    span: Duration,
    /// The server has heard something that was sent then, or later.
    renewed: Instant,
    /// A question under way: the heartbeat's nonce, and when it was sent for the first time.
    asked: Option<(u64, Instant)>,
    /// When a heartbeat, or a session start, is to be sent.
    due: Option<Instant>,
    /// Pause after the next session start, once the lease has run out.
    pause: Duration,
    /// When the session start under way was sent for the first time.
    start_sent: Option<Instant>,
}

impl Lease {
    fn has_run_out(&self, now: Instant) -> bool {
        !self.span.is_zero() && self.renewed + self.span <= now
    }

    /// The server has heard what was sent at `sent`.
    fn renew(&mut self, sent: Instant) {
        self.renewed = self.renewed.max(sent);
        (self.asked, self.start_sent, self.pause) = (None, None, RESUME_MIN);
        self.due = Some(self.renewed + self.span / RENEW_AT);
    }

    /// A session start leaves.
    pub(super) fn start_leaves(&mut self, now: Instant) {
        self.start_sent.get_or_insert(now);
    }
}

impl Client {
    /// Whether the session may have been ended by its server: neither devices nor server are believed.
    pub(super) fn is_lapsed(&self) -> bool {
        self.phase == Phase::Open && self.lease.has_run_out(self.now)
    }

    /// Whether a session start has asked if the session is still there.
    pub(super) fn has_asked_to_resume(&self) -> bool {
        self.is_lapsed() && self.lease.start_sent.is_some()
    }

    /// The session has started, with a lease of so many seconds, or goes on.
    pub(super) fn leased(&mut self, seconds: u16) {
        let sent = self.lease.start_sent.take().unwrap_or(self.now);
        self.lease = Lease { renewed: sent, span: Duration::from_secs(seconds.into()), ..self.lease };
        match seconds {
            0 => self.lease = Lease::default(),
            _ => self.lease.renew(sent),
        }
    }

    /// Another session start: what was sent before does not count for it.
    pub(super) fn lease_anew(&mut self) {
        self.lease = Lease::default();
    }

    /// A reply to a heartbeat for the lease: `None` if it is another's.
    pub(super) fn lease_reply(&mut self, nonce: u64, role: Role) -> Option<()> {
        let (_, sent) = self.lease.asked.filter(|(asked, _)| *asked == nonce)?;
        if role == Role::Server {
            self.lease.renew(sent);
        }
        Some(())
    }

    /// The next packet for the lease, if one is due.
    pub(super) fn transmit_lease(&mut self, into: &mut Vec<u8>) -> bool {
        if self.phase != Phase::Open || self.lease.due.is_none_or(|due| due > self.now) {
            return false;
        }
        let (now, lease) = (self.now, &mut self.lease);
        let body = if lease.has_run_out(now) {
            if lease.start_sent.is_none() {
                self.stats.lapses += 1;
            }
            lease.start_leaves(now);
            lease.due = Some(now + lease.pause.max(RESUME_MIN));
            lease.pause = (2 * lease.pause).clamp(RESUME_MIN, RESUME_MAX);
            Body::SessionStart { nonce: self.nonce, asks: Start::Resumes }
        } else {
            // The nonces of an application's own heartbeats are its own.
            let (nonce, _) = *lease.asked.get_or_insert((self.nonce ^ now.nanos().rotate_left(32), now));
            let end = lease.renewed + lease.span;
            lease.due = Some((now + lease.span / RENEW_AGAIN).min(end).max(now + RESUME_MIN));
            Body::Heartbeat { nonce, role: Role::Client, number: 0 }
        };
        Packet::new(self.session, 0, body).write(into);
        self.stats.count(false);
        true
    }

    /// When [`Self::transmit_lease`] has something.
    pub(super) fn lease_due(&self) -> Option<Instant> {
        self.lease.due.filter(|_| self.phase == Phase::Open)
    }
}
