//! Timers whose pauses double.

use landfall_net::Instant;
use std::time::Duration;

/// No timer fires more often.
const PAUSE_MIN: Duration = Duration::from_micros(1);

/// A timer that repeats itself with growing pauses until it is stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    at: Option<Instant>,
    pause: Duration,
}

impl Pause {
    /// Fires at `at` for the first time.
    pub(super) fn start(at: Instant, pause: Duration) -> Self {
        Self { at: Some(at), pause: pause.max(PAUSE_MIN) }
    }

    pub(super) fn stop(&mut self) {
        self.at = None;
    }

    /// How long it waits now.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// True if it is due; then it is set again, after twice as long as the last time.
    pub(super) fn fires(&mut self, now: Instant, max: Duration) -> bool {
        if self.at.is_none_or(|at| at > now) {
            return false;
        }
        self.pause = self.pause.saturating_mul(2).min(max).max(PAUSE_MIN);
        self.at = Some(now + self.pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_maximum() {
        let start = Instant::default();
        let mut pause = Pause::start(start, Duration::from_millis(1));
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let now = pause.at().unwrap();
            assert!(pause.fires(now, Duration::from_millis(5)));
            assert!(!pause.fires(now, Duration::from_millis(5)));
            pauses.push(pause.at().unwrap().since(now).as_millis());
        }
        assert_eq!(pauses, [2, 4, 5, 5]);
        pause.stop();
        assert!(!pause.fires(start + Duration::from_secs(1), Duration::from_secs(1)));
    }
}
