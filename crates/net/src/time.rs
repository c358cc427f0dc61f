//! Points in time, which the driver passes to the stack.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time on a monotonic clock that the driver reads: nanoseconds since a start that the driver chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Later than any time that a clock shows.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the clock's start.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time from `earlier` until this point; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

/// Nanoseconds of a duration; the maximum for a duration above 584 years, which does not fit.
const fn nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos() as u64)
}
