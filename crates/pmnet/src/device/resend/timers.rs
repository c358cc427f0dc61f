//! The timers of a device, and the updates that are sent when one is due.

use super::LEVELS;
use crate::device::state::Device;
use landfall_net::Instant;
use std::time::Duration;

/// Number of repetitions after which an update no longer counts against the window. Such an update may never be
/// confirmed, for example because its client has died before it sent an earlier update.
const COUNTED_LEVELS: usize = 3;
/// Pause after which a full window is checked again.
const RECHECK_AFTER: Duration = Duration::from_millis(5);

impl Device {
    /// Runs all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.watch_servers(now);
        if let Some(reads) = &mut self.reads {
            reads.handle_timeout(now);
        }
        self.release_held(now);
        if self.resend.blocked_until.is_some_and(|until| now < until) {
            return;
        }
        self.resend.blocked_until = None;
        self.send_replay();
        (0..LEVELS).rev().for_each(|level| self.send_due(level, now));
        if !self.resend.has_room() {
            self.resend.blocked_until = Some(now + RECHECK_AFTER);
        }
    }

    fn send_replay(&mut self) {
        while self.resend.has_room()
            && let Some(identity) = self.resend.replay.pop_front()
        {
            if !self.log.contains(&identity) {
                continue;
            }
            if self.send_logged(identity) {
                self.resend.unconfirmed.insert(identity);
            }
        }
    }

    fn send_due(&mut self, level: usize, now: Instant) {
        while let Some((_, identity)) = self.resend.due[level].front().filter(|(due, _)| *due <= now).copied()
        {
            let counted = level < COUNTED_LEVELS;
            let known = self.resend.unconfirmed.contains(&identity);
            let is_logged = self.log.contains(&identity);
            if is_logged && counted && !known && !self.resend.has_room() {
                return;
            }
            self.resend.due[level].pop_front();
            if !is_logged {
                continue;
            }
            // A server that is known to be silent gets all its updates when it answers again.
            if !self.servers.is_silent(&identity.flow.server) && self.send_logged(identity) {
                match counted {
                    true => self.resend.unconfirmed.insert(identity),
                    false => self.resend.unconfirmed.remove(&identity),
                };
            }
            let next = (level + 1).min(LEVELS - 1);
            let pause = self.resend.pauses[next];
            self.resend.due[next].push_back((now + pause, identity));
        }
    }
}
