//! Sends updates again: those that stay in the log for too long, and all updates of a server after a failure
//! (§IV-E1).

use super::{Device, DeviceConfig};
use crate::identity::Identity;
use landfall_net::Instant;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Number of different pauses. Each pause is twice as long as the one before.
const LEVELS: usize = 7;
/// Number of repetitions after which an update no longer counts against the window. Such an update may never be
/// confirmed, for example because its client has died before it sent an earlier update.
const COUNTED_LEVELS: usize = 3;
/// Most updates that wait to be sent again at once. Updates that repeated requests of a server would add beyond it
/// are sent when their pause ends.
const REPLAY_MAX: usize = 1 << 21;
/// Pause after which a full window is checked again.
const RECHECK_AFTER: Duration = Duration::from_millis(5);

/// The updates to send again, and when.
#[derive(Debug)]
pub(super) struct Resend {
    pauses: [Duration; LEVELS],
    window: usize,
    /// Each update of the log is in one of these queues, in the order of the due times. Removed updates may still be
    /// in them.
    due: [VecDeque<(Instant, Identity)>; LEVELS],
    /// Updates of a server or of a session that are to be sent as fast as they are confirmed.
    replay: VecDeque<Identity>,
    /// Updates that were sent again and have not been removed since.
    unconfirmed: BTreeSet<Identity>,
    /// The time until which nothing is sent, because the window was full.
    blocked_until: Option<Instant>,
}

impl Resend {
    pub(super) fn new(config: &DeviceConfig) -> Self {
        let pause = |level: usize| (config.resend_after * (1 << level)).min(config.resend_pause_max);
        Self {
            pauses: std::array::from_fn(pause),
            window: config.resend_window.max(1),
            due: std::array::from_fn(|_| VecDeque::new()),
            replay: VecDeque::new(),
            unconfirmed: BTreeSet::new(),
            blocked_until: None,
        }
    }

    /// Adds a new update of the log.
    pub(super) fn watch(&mut self, identity: Identity, now: Instant) {
        self.due[0].push_back((now + self.pauses[0], identity));
    }

    pub(super) fn removed(&mut self, identity: &Identity) {
        if self.unconfirmed.remove(identity) {
            self.blocked_until = None;
        }
    }

    /// Adds updates to be sent again as soon as the window allows.
    pub(super) fn replay(&mut self, identities: Vec<Identity>) {
        let room = REPLAY_MAX.saturating_sub(self.replay.len());
        self.replay.extend(identities.into_iter().take(room));
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let replay = (!self.replay.is_empty()).then_some(Instant::default());
        let due = self.due.iter().filter_map(|queue| Some(queue.front()?.0));
        let next = due.chain(replay).min()?;
        Some(self.blocked_until.map_or(next, |until| next.max(until)))
    }

    fn has_room(&self) -> bool {
        self.unconfirmed.len() < self.window
    }
}

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
