//! Round-trip time and the retransmission timeout (RFC 6298).

use std::time::Duration;

/// What a handshake reports of the round-trip time (RFC 6298, 2 and 5.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundTrip {
    Took(Duration),
    Unknown,
    /// The retransmission timer expired before the answer arrived.
    TimedOut,
}

/// The timeout before the first measurement (RFC 6298, 2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);
/// The timeout before the first measurement, if a SYN was lost (RFC 6298, 5.7).
const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);
/// The longest timeout (RFC 6298, 2.5: at least 60 seconds).
const RTO_MAX: Duration = Duration::from_secs(60);
/// Clock granularity, G. Clocks of drivers are finer.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Round-trip estimate of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    rto_min: Duration,
    /// The timeout until the first measurement.
    initial: Duration,
    /// How often the timer has backed off since the last measurement (RFC 6298, 5.5).
    backoff: u32,
}

impl Rtt {
    pub(crate) fn new(rto_min: Duration) -> Self {
        Self { smoothed: None, variation: Duration::ZERO, rto_min, initial: RTO_INITIAL, backoff: 0 }
    }

    /// Takes a measurement into account (RFC 6298, 2.2 and 2.3).
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.backoff = 0;
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    /// The SYN or SYN-ACK was not acknowledged in time: the first data get a longer timeout (RFC 6298, 5.7).
    pub(crate) fn handshake_timed_out(&mut self) {
        if self.smoothed.is_none() {
            (self.initial, self.backoff) = (RTO_AFTER_LOST_SYN, 0);
        }
    }

    /// True if the timer has expired since the last measurement.
    pub(crate) fn has_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// The smoothed round-trip time, or an estimate from the initial timeout.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(RTO_INITIAL / 3)
    }

    /// True once there is a measurement.
    pub(crate) fn is_known(&self) -> bool {
        self.smoothed.is_some()
    }

    /// The retransmission timeout.
    pub(crate) fn rto(&self) -> Duration {
        let base = self.smoothed.map_or(self.initial, |smoothed| {
            (smoothed + GRANULARITY.max(self.variation * 4)).max(self.rto_min)
        });
        base.saturating_mul(1 << self.backoff.min(16)).min(RTO_MAX)
    }

    /// The timer has expired.
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_timeout_follows_rfc_6298() {
        let mut rtt = Rtt::new(200 * MS);
        assert_eq!(rtt.rto(), 1000 * MS, "(2.1)");
        rtt.sample(100 * MS);
        assert_eq!(rtt.rto(), 300 * MS, "(2.2): R + 4 * R/2");
        rtt.sample(100 * MS);
        assert_eq!(rtt.rto(), 250 * MS, "(2.3): the variation decays by a quarter");
        (0..100).for_each(|_| rtt.sample(100 * MS));
        assert_eq!(rtt.rto(), 200 * MS, "(2.4): not below the minimum");
    }

    #[test]
    fn it_doubles_with_each_expiry_up_to_a_minute_until_something_is_measured() {
        let mut rtt = Rtt::new(200 * MS);
        rtt.sample(MS);
        let rtos: Vec<_> = (0..12)
            .map(|_| {
                rtt.back_off();
                rtt.rto().as_millis()
            })
            .collect();
        assert_eq!(rtos[..4], [400, 800, 1600, 3200], "(5.5)");
        assert_eq!(rtos[11], 60_000, "(2.5)");
        rtt.sample(MS);
        assert_eq!(rtt.rto(), 200 * MS, "(5): a measurement ends the back-off");
    }
}
