//! How to wait for packets. [`Spin`] says how long to busy-poll before waiting in the kernel, and [`Rest`] does so for
//! whole loops. [`Alarm`] limits the time of a wait without setting a timer for each wait.
//!
//! A wait costs two context switches, tens of microseconds; busy-polling costs a core. So a worker busy-polls for a
//! while after there was something, and for a shorter time whenever polling finds nothing.

#![forbid(unsafe_code)]

mod alarm;
mod rest;

pub use alarm::Alarm;
pub use rest::Rest;

use std::time::Duration;

/// Fruitless looks in a row until the time is halved.
const PATIENCE: u32 = 4;
/// Halvings at most: then a look is one glance.
const HALVINGS_MAX: u32 = 6;

/// Adaptive busy polling.
#[derive(Debug)]
pub struct Spin {
    longest: Duration,
    fruitless: u32,
    halvings: u32,
}

impl Spin {
    /// Looks for up to `longest`; `Duration::MAX` never waits.
    pub fn new(longest: Duration) -> Self {
        Self { longest, fruitless: 0, halvings: 0 }
    }

    /// True if the worker is to look for ever.
    pub fn is_endless(&self) -> bool {
        self.longest == Duration::MAX
    }

    /// How long to look this time.
    pub fn span(&self) -> Duration {
        if self.halvings == HALVINGS_MAX { Duration::ZERO } else { self.longest / (1 << self.halvings) }
    }

    /// Something came while it looked.
    pub fn found(&mut self) {
        self.fruitless = 0;
        self.halvings = 0;
    }

    /// Nothing came while it looked.
    pub fn gave_up(&mut self) {
        self.fruitless += 1;
        if self.fruitless >= PATIENCE {
            self.fruitless = 0;
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        }
    }

    /// The wait that followed ended after `waited`: had it looked a little longer, it would have found something.
    pub fn woke(&mut self, waited: Duration) {
        if waited < self.longest {
            self.halvings = self.halvings.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_for_nothing_ends_and_comes_back_with_traffic() {
        let mut spin = Spin::new(Duration::from_micros(64));
        assert_eq!(spin.span(), Duration::from_micros(64));
        (0..PATIENCE).for_each(|_| spin.gave_up());
        assert_eq!(spin.span(), Duration::from_micros(32));
        (0..100).for_each(|_| spin.gave_up());
        assert_eq!(spin.span(), Duration::ZERO);
        spin.woke(Duration::from_secs(1));
        assert_eq!(spin.span(), Duration::ZERO);
        spin.woke(Duration::from_micros(10));
        assert_eq!(spin.span(), Duration::from_micros(2));
        spin.found();
        assert_eq!(spin.span(), Duration::from_micros(64));
    }
}
