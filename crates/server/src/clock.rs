//! The two times of a round.

use crate::shared::{Shared, now_ns};

/// When a round is executed, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Unix nanoseconds: the times of records, of keys that expire, and of dates. It jumps when somebody sets the clock.
    pub(crate) unix_ns: u64,
    /// Milliseconds since the server started: what waits, limits and rates are measured in. It never jumps.
    pub(crate) steady_ms: u64,
}

impl Now {
    pub(crate) fn of(shared: &Shared) -> Self {
        let steady_ms = u64::try_from(shared.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Self { unix_ns: now_ns(), steady_ms }
    }

    /// Unix milliseconds.
    pub(crate) fn unix_ms(self) -> u64 {
        self.unix_ns / 1_000_000
    }
}
