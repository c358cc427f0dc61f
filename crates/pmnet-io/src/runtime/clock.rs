//! The clock of the runtime.

use landfall_pmnet::Instant;

/// A monotonic clock that returns the state machines' type of time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock {
    /// Nanoseconds since the clock was created.
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        // 64 bits of nanoseconds last for half a millennium.
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
