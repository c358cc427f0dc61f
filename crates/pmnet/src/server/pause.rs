//! Timers whose intervals double (exponential backoff).

use landfall_net::Instant;
use std::time::Duration;

/// The shortest interval of a timer.
const PAUSE_MIN: Duration = Duration::from_micros(1);

/// A repeating timer whose interval doubles until it is stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    at: Option<Instant>,
    pause: Duration,
}

impl Pause {
    /// A timer that fires first at `at`.
    pub(super) fn start(at: Instant, pause: Duration) -> Self {
        Self { at: Some(at), pause: pause.max(PAUSE_MIN) }
    }

    pub(super) fn stop(&mut self) {
        self.at = None;
    }

    /// The current interval.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    pub(super) fn at(&self) -> Option<Instant> {
        self.at
    }

    /// True if the timer is due. It is then set again, with twice the interval.
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
    fn intervals_double_up_to_their_maximum() {
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
