//! Looking for a while, then waiting for the kernel.

use crate::Spin;
use std::time::{Duration, Instant};

/// How a loop rests. What it waits for decides how long it looks: each kind of wait has its own.
#[derive(Debug)]
pub struct Rest {
    spin: Spin,
}

impl Rest {
    /// Looks for up to `longest`, less while that comes to nothing; [`Duration::MAX`] never waits.
    pub fn new(longest: Duration) -> Self {
        Self { spin: Spin::new(longest) }
    }

    /// True if it never waits.
    pub fn is_endless(&self) -> bool {
        self.spin.is_endless()
    }

    /// Something was there without a look for it.
    pub fn found(&mut self) {
        self.spin.found();
    }

    /// What `wait` says once there is something, or after `most`. `wait` itself waits for as long as it is told.
    ///
    /// # Errors
    /// Those of `wait`.
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
            let there = wait(Duration::ZERO)?;
            if is_something(&there) {
                self.spin.found();
                return Ok(there);
            }
            // Whoever is to send it may have no core but this one.
            std::thread::yield_now();
        }
        self.spin.gave_up();
        let slept = Instant::now();
        let there = wait(most.saturating_sub(begun.elapsed()))?;
        if is_something(&there) {
            self.spin.woke(slept.elapsed());
        }
        Ok(there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const LONG: Duration = Duration::from_secs(3600);

    /// How long each wait was told to wait, where something is there from look number `there` on.
    fn waits(rest: &mut Rest, there: usize) -> Vec<Duration> {
        let mut told = Vec::new();
        let wait = |most| {
            told.push(most);
            Ok::<_, Infallible>(told.len() > there)
        };
        rest.until(LONG, wait, |there| *there).unwrap();
        told
    }

    #[test]
    fn what_is_there_is_found_without_waiting() {
        let mut rest = Rest::new(LONG);
        assert_eq!(waits(&mut rest, 0), [Duration::ZERO]);
        assert_eq!(waits(&mut rest, 3), [Duration::ZERO; 4]);
    }

    #[test]
    fn who_never_looks_waits_at_once_and_for_all_of_the_time() {
        let told = waits(&mut Rest::new(Duration::ZERO), usize::MAX);
        assert!(told.len() == 1 && told[0] > LONG / 2, "{told:?}");
    }

    #[test]
    fn looks_that_come_to_nothing_grow_short_and_the_kernel_is_waited_for() {
        let mut rest = Rest::new(Duration::from_micros(64));
        for _ in 0..100 {
            let told = waits(&mut rest, usize::MAX);
            let (waited, looked) = told.split_last().unwrap();
            assert!(!waited.is_zero() && looked.iter().all(Duration::is_zero), "{told:?}");
        }
        assert_eq!(waits(&mut rest, usize::MAX).len(), 1, "it has stopped looking");
    }

    #[test]
    fn who_never_waits_looks_once() {
        let mut rest = Rest::new(Duration::MAX);
        let mut told = Vec::new();
        let wait = |most| {
            told.push(most);
            Ok::<_, Infallible>(false)
        };
        assert!(!rest.until(LONG, wait, |there| *there).unwrap());
        assert_eq!(told, [Duration::ZERO]);
    }
}
