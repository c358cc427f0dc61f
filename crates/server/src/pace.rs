//! Progress of transfers: a timeout applies only to transfers without progress.

use std::time::Duration;

/// Rate below which a request or a reply counts as stuck, bytes a second.
pub(crate) const RATE_MIN: u64 = 16 << 10;

/// Progress of one request or reply.
///
/// Time is divided into windows as long as the timeout. A window that reaches [`RATE_MIN`] is followed by another one.
/// So a transfer may take any time while it progresses, and one that stops is cut after at most two windows.
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
    /// Begins a transfer, or resets its progress.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        self.window = Some(Window { since_ms: now_ms, bytes: 0 });
    }

    /// Ends the transfer.
    pub(crate) fn end(&mut self) {
        self.window = None;
    }

    /// True while a transfer is in progress.
    pub(crate) fn is_under_way(&self) -> bool {
        self.window.is_some()
    }

    /// Adds transferred bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(window) = &mut self.window {
            window.bytes += bytes;
        }
    }

    /// True if the transfer was too slow for `timeout`; never for a timeout of zero.
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

    /// Time since the transfer or its latest window began, milliseconds.
    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        self.window.map_or(0, |window| now_ms.saturating_sub(window.since_ms))
    }

    /// Rate in this window, bytes a second.
    pub(crate) fn rate(&self, now_ms: u64) -> u64 {
        // A tenth of a second is added, so that a transfer that has just begun has a finite rate.
        self.window.map_or(0, |window| {
            window.bytes.saturating_mul(1000) / (now_ms.saturating_sub(window.since_ms) + 100)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// When a transfer of `bytes` per tenth of a second is cut, within a minute.
    fn cut_at(bytes: u64) -> Option<u64> {
        let mut pace = Pace::default();
        pace.begin(1);
        (1..600).map(|tick| 1 + tick * 100).find(|now_ms| {
            pace.add(bytes);
            pace.is_stuck(*now_ms, SECOND)
        })
    }

    #[test]
    fn a_transfer_with_progress_may_take_any_time_and_a_stuck_one_a_timeout() {
        assert_eq!(cut_at(100_000), None, "a megabyte a second");
        assert_eq!(cut_at(RATE_MIN / 10 + 1), None);
        assert_eq!(cut_at(RATE_MIN / 20), Some(1101));
        assert_eq!(cut_at(0), Some(1101));
    }

    #[test]
    fn a_transfer_that_stops_is_cut_within_two_timeouts() {
        let mut pace = Pace::default();
        pace.begin(0);
        pace.add(1 << 30);
        assert!(!pace.is_stuck(1500, SECOND));
        assert!(!pace.is_stuck(2500, SECOND));
        assert!(pace.is_stuck(2600, SECOND));
    }

    #[test]
    fn without_a_transfer_nothing_is_stuck() {
        let mut pace = Pace::default();
        assert!(!pace.is_stuck(1 << 40, SECOND));
        pace.begin(1);
        assert!(!pace.is_stuck(1 << 40, Duration::ZERO), "no timeout");
        pace.end();
        assert!(!pace.is_stuck(1 << 40, SECOND));
        assert_eq!(pace.rate(5), 0);
    }
}
