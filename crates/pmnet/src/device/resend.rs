//! Sends updates again: those that stay in the log for too long, and all updates of a server after a failure
//! (§IV-E1).

mod timers;

use super::config::DeviceConfig;
use crate::identity::Identity;
use landfall_net::Instant;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Number of different pauses. Each pause is twice as long as the one before.
const LEVELS: usize = 7;
/// Most updates that wait to be sent again at once. Updates that repeated requests of a server would add beyond it
/// are sent when their pause ends.
const REPLAY_MAX: usize = 1 << 21;

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
