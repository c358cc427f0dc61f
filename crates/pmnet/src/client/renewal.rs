//! Renews the lease of a session, and asks whether the session still exists once the lease has expired.

use super::lease::{Lease, RESUME_MIN};
use super::state::{Client, Phase};
use crate::wire::{Body, Packet, Role, Start};
use landfall_net::Instant;
use std::time::Duration;

/// A renewal is repeated after 1/`RENEW_AGAIN` of the lease.
const RENEW_AGAIN: u32 = 16;
/// Longest pause between session starts that ask whether the session still exists.
const RESUME_MAX: Duration = Duration::from_secs(5);

impl Client {
    /// Whether the server may have ended the session, because the lease has expired. Packets of devices and of the
    /// server are then ignored.
    pub(super) fn is_lapsed(&self) -> bool {
        self.phase == Phase::Open && self.lease.has_expired(self.now)
    }

    /// Whether a session start has been sent that asks whether the session still exists.
    pub(super) fn has_asked_to_resume(&self) -> bool {
        self.is_lapsed() && self.lease.start_sent.is_some()
    }

    /// Sets the lease, in seconds, of a session that has started or continues.
    pub(super) fn set_lease(&mut self, seconds: u16) {
        let sent = self.lease.start_sent.take().unwrap_or(self.now);
        self.lease = Lease { renewed: sent, span: Duration::from_secs(seconds.into()), ..self.lease };
        match seconds {
            0 => self.lease = Lease::default(),
            _ => self.lease.renew(sent),
        }
    }

    /// Resets the lease for another session start. Packets that were sent before do not renew it.
    pub(super) fn reset_lease(&mut self) {
        self.lease = Lease::default();
    }

    /// Handles a reply to a heartbeat. `None` if the heartbeat was not sent for the lease.
    pub(super) fn lease_reply(&mut self, nonce: u64, role: Role) -> Option<()> {
        let (_, sent) = self.lease.asked.filter(|(asked, _)| *asked == nonce)?;
        if role == Role::Server {
            self.lease.renew(sent);
        }
        Some(())
    }

    /// Writes the next packet that renews the lease, if one is due.
    pub(super) fn transmit_lease(&mut self, into: &mut Vec<u8>) -> bool {
        if self.phase != Phase::Open || self.lease.due.is_none_or(|due| due > self.now) {
            return false;
        }
        let (now, lease) = (self.now, &mut self.lease);
        let body = if lease.has_expired(now) {
            if lease.start_sent.is_none() {
                self.stats.lapses += 1;
            }
            lease.start_sent(now);
            lease.due = Some(now + lease.pause.max(RESUME_MIN));
            lease.pause = (2 * lease.pause).clamp(RESUME_MIN, RESUME_MAX);
            Body::SessionStart { nonce: self.nonce, asks: Start::Resumes }
        } else {
            // The application chooses the nonces of its own heartbeats.
            let (nonce, _) = *lease.asked.get_or_insert((self.nonce ^ now.nanos().rotate_left(32), now));
            let end = lease.renewed + lease.span;
            lease.due = Some((now + lease.span / RENEW_AGAIN).min(end).max(now + RESUME_MIN));
            Body::Heartbeat { nonce, role: Role::Client, number: 0 }
        };
        Packet::new(self.session, 0, body).write(into);
        self.stats.count(false);
        true
    }

    /// When [`Self::transmit_lease`] is due.
    pub(super) fn lease_due(&self) -> Option<Instant> {
        self.lease.due.filter(|_| self.phase == Phase::Open)
    }
}
