//! Busy-polls for a while, then blocks in the kernel.

use crate::spin::Spin;
use std::time::{Duration, Instant};

/// How a loop waits. The time to busy-poll adapts to what the loop waits for, so each kind of wait has its own value.
#[derive(Debug)]
pub struct SpinWait {
    spin: Spin,
}

impl SpinWait {
    /// Busy-polls for up to `longest`, and for less while that finds nothing. With [`Duration::MAX`] the loop never blocks.
    pub fn new(longest: Duration) -> Self {
        Self { spin: Spin::new(longest) }
    }

    /// True if the loop never blocks.
    pub fn is_endless(&self) -> bool {
        self.spin.is_endless()
    }

    /// An event was there without a wait.
    pub fn found(&mut self) {
        self.spin.found();
    }

    /// Waits for an event, at most for `most`. `wait` waits for the duration that it gets; its result is an event if
    /// `is_something` says so, and is returned, or the last result when the time is over.
    ///
    /// # Errors
    /// The errors of `wait`.
    pub fn until<T, E>(
        &mut self,
        most: Duration,
        mut wait: impl FnMut(Duration) -> Result<T, E>,
        is_something: impl Fn(&T) -> bool,
    ) -> Result<T, E> {
        if self.is_endless() || most.is_zero() {
            return wait(Duration::ZERO);
        }
        let (begun, span) = (Instant::now(), self.spin.span().min(most));
        while begun.elapsed() < span {
            let result = wait(Duration::ZERO)?;
            if is_something(&result) {
                self.spin.found();
                return Ok(result);
            }
            // The thread that is to send the event may have only this core to run on.
            std::thread::yield_now();
        }
        self.spin.gave_up();
        let blocked = Instant::now();
        let result = wait(most.saturating_sub(begun.elapsed()))?;
        if is_something(&result) {
            self.spin.woke(blocked.elapsed());
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const LONG: Duration = Duration::from_secs(3600);

    /// The durations that `wait` got, where an event is there from poll number `there` on.
    fn waits(spin: &mut SpinWait, there: usize) -> Vec<Duration> {
        let mut spans = Vec::new();
        let wait = |most| {
            spans.push(most);
            Ok::<_, Infallible>(spans.len() > there)
        };
        spin.until(LONG, wait, |there| *there).unwrap();
        spans
    }

    #[test]
    fn an_event_that_is_there_is_found_without_blocking() {
        let mut spin = SpinWait::new(LONG);
        assert_eq!(waits(&mut spin, 0), [Duration::ZERO]);
        assert_eq!(waits(&mut spin, 3), [Duration::ZERO; 4]);
    }

    #[test]
    fn without_busy_polling_a_wait_blocks_at_once_for_the_whole_time() {
        let spans = waits(&mut SpinWait::new(Duration::ZERO), usize::MAX);
        assert!(spans.len() == 1 && spans[0] > LONG / 2, "{spans:?}");
    }

    #[test]
    fn fruitless_polling_becomes_shorter_and_then_blocks() {
        let mut spin = SpinWait::new(Duration::from_micros(64));
        for _ in 0..100 {
            let spans = waits(&mut spin, usize::MAX);
            let (blocked, polled) = spans.split_last().unwrap();
            assert!(!blocked.is_zero() && polled.iter().all(Duration::is_zero), "{spans:?}");
        }
        assert_eq!(waits(&mut spin, usize::MAX).len(), 1, "busy-polling has ended");
    }

    #[test]
    fn an_endless_spin_polls_once() {
        let mut spin = SpinWait::new(Duration::MAX);
        let mut spans = Vec::new();
        let wait = |most| {
            spans.push(most);
            Ok::<_, Infallible>(false)
        };
        assert!(!spin.until(LONG, wait, |there| *there).unwrap());
        assert_eq!(spans, [Duration::ZERO]);
    }
}
