//! Sending updates again: those that nothing has removed for a while, and all of them after a failure (§IV-E1).

use super::{Device, DeviceConfig};
use crate::{Identity, Instant};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Pauses: each twice the one before.
const LEVELS: usize = 7;
/// Repetitions of one update from which on it no longer counts against the window: it may never be confirmed, as when
/// its client has died with a gap in front of it.
const COUNTED_LEVELS: usize = 3;
/// Updates that wait to be sent again at once, at most: what a server that asks again and again adds beyond is due by its own
/// time.
const REPLAY_MAX: usize = 1 << 21;
/// How soon a full window is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What is to be sent again, and when.
#[derive(Debug)]
pub(super) struct Resend {
    pauses: [Duration; LEVELS],
    window: usize,
    /// Every update of the log is in one of these, in order of when it is due; so are some that have been removed.
    due: [VecDeque<(Instant, Identity)>; LEVELS],
    /// Everything of a server, or of a session, as fast as it is confirmed.
    replay: VecDeque<Identity>,
    /// Sent again and not removed since.
    unconfirmed: BTreeSet<Identity>,
    /// The window was full when it was last looked at.
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

    /// A new update of the log.
    pub(super) fn watch(&mut self, identity: Identity, now: Instant) {
        self.due[0].push_back((now + self.pauses[0], identity));
    }

    pub(super) fn removed(&mut self, identity: &Identity) {
        if self.unconfirmed.remove(identity) {
            self.blocked_until = None;
        }
    }

    /// All of these at once, as the window allows.
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
    /// Time has passed.
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
            self.resend.blocked_until = Some(now + LOOK_AGAIN);
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
            let is_there = self.log.contains(&identity);
            if is_there && counted && !known && !self.resend.has_room() {
                return;
            }
            self.resend.due[level].pop_front();
            if !is_there {
                continue;
            }
            // A server that is known to be silent is sent everything when it answers again.
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
