//! Measures round trips and computes the timeouts from them.

use super::config::ClientConfig;
use std::time::Duration;

/// Most round trips that are stored.
const SAMPLES_MAX: usize = 512;
/// With fewer round trips than this, the timeout is [`ClientConfig::timeout_start`].
const SAMPLES_MIN: usize = 16;
/// If many are stored, the timeout is recomputed after this number of new ones.
const EVERY: usize = 32;
/// Most doublings of a timeout. The upper bound is reached long before.
const DOUBLINGS_MAX: u32 = 20;

/// The latest round trips of packets that were sent once. By Karn's rule, repeated packets are not measured, because
/// an answer does not say which transmission it belongs to.
#[derive(Debug)]
pub(super) struct RoundTrips {
    samples: Vec<u64>,
    next: usize,
    since: usize,
    base: Duration,
    /// Doublings that a timeout has shown to be necessary, until the next sample. If the path becomes slower than
    /// the timeout, every packet is repeated, and none could be measured otherwise.
    backoff: u32,
    min: Duration,
    max: Duration,
}

impl RoundTrips {
    pub(super) fn new(config: &ClientConfig) -> Self {
        Self {
            samples: Vec::new(),
            next: 0,
            since: 0,
            base: config.timeout_start,
            backoff: 0,
            min: config.timeout_min,
            max: config.timeout_max.max(config.timeout_min),
        }
    }

    /// Adds the round trip of a packet that was sent once.
    pub(super) fn sample(&mut self, trip: Duration) {
        let nanos = u64::try_from(trip.as_nanos()).unwrap_or(u64::MAX);
        match self.samples.get_mut(self.next) {
            Some(slot) => *slot = nanos,
            None => self.samples.push(nanos),
        }
        self.next = (self.next + 1) % SAMPLES_MAX;
        self.backoff = 0;
        self.since += 1;
        let every = if self.samples.len() < SAMPLES_MIN + EVERY { 1 } else { EVERY };
        if self.samples.len() >= SAMPLES_MIN && self.since >= every {
            self.since = 0;
            self.base = 2 * self.percentile(99);
        }
    }

    /// Notes the timeout of a packet that had been repeated `repeats` times.
    pub(super) fn expired(&mut self, repeats: u32) {
        self.backoff = self.backoff.max(repeats + 1).min(DOUBLINGS_MAX);
    }

    /// The timeout of a packet that has been repeated `repeats` times: twice the 99th percentile (footnote 3 of the
    /// paper), doubled with each repetition, within the bounds.
    pub(super) fn timeout(&self, repeats: u32) -> Duration {
        let doublings = repeats.max(self.backoff).min(DOUBLINGS_MAX);
        self.base.max(self.min).saturating_mul(1 << doublings).min(self.max)
    }

    /// A percentile of the round trips; zero if there are none.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        if self.samples.is_empty() {
            return Duration::ZERO;
        }
        let mut samples = self.samples.clone();
        let rank = (samples.len() * percent).div_ceil(100).max(1) - 1;
        let (_, at, _) = samples.select_nth_unstable(rank);
        Duration::from_nanos(*at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips() -> RoundTrips {
        RoundTrips::new(&ClientConfig::default())
    }

    #[test]
    fn the_timeout_is_twice_the_99th_percentile_of_the_last_512() {
        let mut trips = round_trips();
        (0..512).for_each(|_| trips.sample(Duration::from_millis(90)));
        (1..=512).for_each(|n| trips.sample(Duration::from_micros(n * 100)));
        // The 507th of 512 in order: 99 % are not longer.
        assert_eq!(trips.percentile(99), Duration::from_micros(50_700));
        assert_eq!(trips.percentile(50), Duration::from_micros(25_600));
        (0..600).for_each(|_| trips.sample(Duration::from_millis(3)));
        assert_eq!(trips.timeout(0), Duration::from_millis(6));
    }

    #[test]
    fn few_samples_leave_the_timeout_at_its_start() {
        let mut trips = round_trips();
        (1..SAMPLES_MIN).for_each(|_| trips.sample(Duration::from_millis(3)));
        assert_eq!(trips.timeout(0), Duration::from_millis(50));
        trips.sample(Duration::from_millis(3));
        assert_eq!(trips.timeout(0), Duration::from_millis(6));
    }

    #[test]
    fn the_timeout_doubles_within_its_bounds() {
        let mut trips = round_trips();
        (0..SAMPLES_MIN).for_each(|_| trips.sample(Duration::from_micros(10)));
        assert_eq!(trips.timeout(0), Duration::from_millis(1));
        assert_eq!(trips.timeout(3), Duration::from_millis(8));
        assert_eq!(trips.timeout(1000), Duration::from_secs(1));
    }

    #[test]
    fn a_timeout_applies_to_other_packets_until_a_round_trip_is_measured() {
        let mut trips = round_trips();
        trips.expired(1);
        assert_eq!(trips.timeout(0), Duration::from_millis(200));
        trips.sample(Duration::from_millis(60));
        assert_eq!(trips.timeout(0), Duration::from_millis(50));
    }
}
