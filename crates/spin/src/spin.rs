//! How long a loop busy-polls before it blocks.

use std::time::Duration;

/// Fruitless busy-polls in a row after which the time is halved.
const PATIENCE: u32 = 4;
/// Halvings, at most; after that a loop polls once and blocks.
const HALVINGS_MAX: u32 = 6;

/// How long to busy-poll: adapts to how often busy-polling has found something.
#[derive(Debug)]
pub struct Spin {
    longest: Duration,
    fruitless: u32,
    halvings: u32,
}

impl Spin {
    /// Busy-polls for up to `longest`; with `Duration::MAX` the loop never blocks.
    pub fn new(longest: Duration) -> Self {
        Self { longest, fruitless: 0, halvings: 0 }
    }

    /// True if the loop busy-polls for ever.
    pub fn is_endless(&self) -> bool {
        self.longest == Duration::MAX
    }

    /// How long to busy-poll this time.
    pub fn span(&self) -> Duration {
        if self.halvings == HALVINGS_MAX { Duration::ZERO } else { self.longest / (1 << self.halvings) }
    }

    /// Busy-polling has found something.
    pub fn found(&mut self) {
        self.fruitless = 0;
        self.halvings = 0;
    }

    /// Busy-polling has found nothing.
    pub fn gave_up(&mut self) {
        self.fruitless += 1;
        if self.fruitless >= PATIENCE {
            self.fruitless = 0;
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        }
    }

    /// Blocking ended after `waited`: if that is short, a longer busy-poll would have found the event.
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
    fn polling_in_vain_ends_and_resumes_with_traffic() {
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
