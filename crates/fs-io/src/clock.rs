//! The time, and how the kernel and the files express it.

use landfall_fuse::Time;
use std::time::{Duration, SystemTime};

const SECOND_NS: i64 = 1_000_000_000;

/// The present time, Unix nanoseconds.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// The time since the machine has started, that in which it has slept included.
pub(crate) fn since_start() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// A point in time as the kernel has it.
pub(crate) fn time_of(ns: i64) -> Time {
    Time { seconds: ns.div_euclid(SECOND_NS), nanos: u32::try_from(ns.rem_euclid(SECOND_NS)).unwrap_or(0) }
}

/// A time of the kernel in Unix nanoseconds. What is outside of 1677 to 2262 becomes the first or last point within.
pub(crate) fn ns_of(time: Time) -> i64 {
    time.seconds.saturating_mul(SECOND_NS).saturating_add(i64::from(time.nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds_positive() {
        assert_eq!(time_of(-1), Time { seconds: -1, nanos: 999_999_999 });
        for ns in [-1, 0, 1, -SECOND_NS, 1_700_000_000_123_456_789, i64::MIN + SECOND_NS, i64::MAX] {
            assert_eq!(ns_of(time_of(ns)), ns);
        }
    }

    #[test]
    fn times_out_of_range_become_the_nearest_one() {
        assert_eq!(ns_of(Time { seconds: i64::MAX, nanos: 5 }), i64::MAX);
        assert_eq!(ns_of(Time { seconds: i64::MIN, nanos: 0 }), i64::MIN);
    }
}
