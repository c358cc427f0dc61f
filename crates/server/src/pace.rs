//! How a transfer moves: a timeout is for those who do not.

use std::time::Duration;

/// Bytes a second below which a request or a reply does not move.
pub(crate) const RATE_MIN: u64 = 16 << 10;

/// The progress of one request or reply that is under way.
///
/// Time is looked at in windows as long as the timeout. A window in which [`RATE_MIN`] was reached begins another one;
/// so a transfer may take any time while it moves, and none that stops is waited for longer than two windows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since_ms: u64,
    bytes: u64,
}

impl Pace {
    /// A transfer begins, or is not held to what it did before.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        self.window = Some(Window { since_ms: now_ms, bytes: 0 });
    }

    /// Nothing is under way.
    pub(crate) fn end(&mut self) {
        self.window = None;
    }

    /// True while something is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.window.is_some()
    }

    /// So many bytes have moved.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(window) = &mut self.window {
            window.bytes += bytes;
        }
    }

    /// True if it has been too slow for as long as `timeout`, where that is not zero.
    pub(crate) fn is_stuck(&mut self, now_ms: u64, timeout: Duration) -> bool {
        let Some(window) = self.window.filter(|_| !timeout.is_zero()) else { return false };
        let took_ms = now_ms.saturating_sub(window.since_ms);
        if u128::from(took_ms) <= timeout.as_millis() {
            return false;
        }
        if window.bytes < RATE_MIN * took_ms / 1000 {
            return true;
        }
        self.begin(now_ms);
        false
    }

    /// How long it has been under way, or since the latest window began, milliseconds.
    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        self.window.map_or(0, |window| now_ms.saturating_sub(window.since_ms))
    }

    /// Bytes a second in this window.
    pub(crate) fn rate(&self, now_ms: u64) -> u64 {
        // A tenth of a second more: what has just begun is not infinitely fast.
        self.window.map_or(0, |window| {
            window.bytes.saturating_mul(1000) / (now_ms.saturating_sub(window.since_ms) + 100)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Until when a transfer that moves `bytes` each tenth of a second is waited for, at most a minute.
    fn cut_at(bytes: u64) -> Option<u64> {
        let mut pace = Pace::default();
        pace.begin(1);
        (1..600).map(|tick| 1 + tick * 100).find(|now_ms| {
            pace.add(bytes);
            pace.is_stuck(*now_ms, SECOND)
        })
    }

    #[test]
    fn who_moves_is_waited_for_however_long_and_who_does_not_for_a_timeout() {
        assert_eq!(cut_at(100_000), None, "a megabyte a second");
        assert_eq!(cut_at(RATE_MIN / 10 + 1), None);
        assert_eq!(cut_at(RATE_MIN / 20), Some(1101));
        assert_eq!(cut_at(0), Some(1101));
    }

    #[test]
    fn who_was_fast_and_stops_is_cut_within_two_timeouts() {
        let mut pace = Pace::default();
        pace.begin(0);
        pace.add(1 << 30);
        assert!(!pace.is_stuck(1500, SECOND));
        assert!(!pace.is_stuck(2500, SECOND));
        assert!(pace.is_stuck(2600, SECOND));
    }

    #[test]
    fn what_is_not_under_way_is_not_stuck() {
        let mut pace = Pace::default();
        assert!(!pace.is_stuck(1 << 40, SECOND));
        pace.begin(1);
        assert!(!pace.is_stuck(1 << 40, Duration::ZERO), "no timeout");
        pace.end();
        assert!(!pace.is_stuck(1 << 40, SECOND));
        assert_eq!(pace.rate(5), 0);
    }
}
