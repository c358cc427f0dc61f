//! Connections of one worker that wait for a log to grow.

use landfall_sockets::ConnId;
use std::time::Duration;

/// The waiting connections, each with the time limit of its wait, on the clock that never jumps.
#[derive(Debug)]
pub(crate) struct Tails {
    waiting: Vec<(ConnId, u64)>,
    /// The first of these times.
    due_ms: u64,
}

impl Default for Tails {
    fn default() -> Self {
        Self { waiting: Vec::new(), due_ms: u64::MAX }
    }
}

impl Tails {
    pub(crate) fn add(&mut self, conn: ConnId, until_ms: u64) {
        self.waiting.push((conn, until_ms));
        self.due_ms = self.due_ms.min(until_ms);
    }

    /// True if the time limit of a connection has passed.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.due_ms <= now_ms
    }

    /// `most`, or the time until the first time limit, if that is shorter.
    pub(crate) fn timeout(&self, most: Duration, now_ms: u64) -> Duration {
        match self.due_ms {
            u64::MAX => most,
            due_ms => most.min(Duration::from_millis(due_ms.saturating_sub(now_ms))),
        }
    }

    /// Removes and returns the connections whose time limit has passed, or all.
    pub(crate) fn take(&mut self, all: bool, now_ms: u64) -> Vec<(ConnId, u64)> {
        if !all && !self.is_due(now_ms) {
            return Vec::new();
        }
        let taken = self.waiting.extract_if(.., |(_, until_ms)| all || *until_ms <= now_ms).collect();
        self.due_ms = self.waiting.iter().map(|(_, until_ms)| *until_ms).min().unwrap_or(u64::MAX);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_taken_when_their_time_is_up_or_a_log_has_grown() {
        let mut tails = Tails::default();
        assert!(!tails.is_due(u64::MAX - 1));
        [(1, 50), (2, 20), (3, u64::MAX)].iter().for_each(|(id, until)| tails.add(ConnId(*id), *until));
        assert!(tails.take(false, 19).is_empty());
        assert_eq!(tails.take(false, 20), [(ConnId(2), 20)]);
        assert!(!tails.is_due(49) && tails.is_due(50));
        assert_eq!(tails.take(true, 0).len(), 2);
        assert_eq!(tails.timeout(Duration::from_secs(1), 0), Duration::from_secs(1));
    }
}
