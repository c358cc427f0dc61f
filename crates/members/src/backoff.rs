//! Exponential backoff: pauses between attempts double up to a limit, and start again after a success.

use std::time::Duration;

/// The first pause.
pub(crate) const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The state of the backoff.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: PAUSE_MIN }
    }

    /// The pause after a failure; the next one is longer.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(PAUSE_MAX);
        pause
    }

    /// Notes a success: the next pause is the shortest again.
    pub(crate) fn reset(&mut self) {
        self.next = PAUSE_MIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.pause(), PAUSE_MIN);
    }
}
