//! What one run of a load has found, and how it is timed.

use crate::common::error::BenchError;
use crate::common::measure::stats::whole;
use crate::common::progress::check_stop;
use crate::stores::StoreError;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Instant;

/// What one run has found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ran {
    /// Operations, or MiB.
    pub(super) count: f64,
    pub(super) seconds: f64,
    /// Latency of each operation, microseconds, sorted. Empty where only the whole is timed.
    pub(super) latencies_us: Vec<f64>,
    /// How much of `seconds` the `fsync` at the end took, where there is one for the whole.
    #[serde(default)]
    pub(super) final_sync_seconds: Option<f64>,
}

impl Ran {
    /// Operations, or MiB.
    pub(crate) fn count(&self) -> f64 {
        self.count
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The mean latency, microseconds.
    pub(super) fn mean(&self) -> Option<f64> {
        let sum: f64 = self.latencies_us.iter().sum();
        (!self.latencies_us.is_empty()).then(|| sum / self.latencies_us.len() as f64)
    }

    /// The latency below which a share of the operations is, microseconds.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let last = self.latencies_us.len().checked_sub(1)?;
        self.latencies_us.get(whole(last as f64 * share) as usize).copied()
    }

    /// Of operations that took so long, in any order.
    pub(super) fn of_operations(seconds: f64, mut latencies_us: Vec<f64>) -> Self {
        latencies_us.sort_unstable_by(f64::total_cmp);
        Self { count: latencies_us.len() as f64, seconds, latencies_us, final_sync_seconds: None }
    }
}

/// Why a run has failed.
#[derive(Debug)]
pub(super) enum Failed {
    Io(io::Error),
    Bench(BenchError),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BenchError> for Failed {
    fn from(error: BenchError) -> Self {
        Self::Bench(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Bench(match error {
            StoreError::NoLibrary { .. } | StoreError::NoSymbol { .. } => {
                BenchError::Missing(error.to_string())
            }
            error => BenchError::Store(error.to_string()),
        })
    }
}

/// Times a fixed amount of work.
pub(super) fn timed<E: Into<Failed>>(
    count: f64,
    work: impl FnOnce() -> Result<(), E>,
) -> Result<Ran, Failed> {
    check_stop()?;
    let began = Instant::now();
    work().map_err(Into::into)?;
    Ok(Ran { count, seconds: began.elapsed().as_secs_f64(), ..Ran::default() })
}

/// Repeats an operation for some time, on this thread.
pub(super) fn for_seconds(
    seconds: f64,
    mut operation: impl FnMut() -> Result<(), Failed>,
) -> Result<Ran, Failed> {
    check_stop()?;
    let (began, mut latencies_us) = (Instant::now(), Vec::new());
    while latencies_us.is_empty() || began.elapsed().as_secs_f64() < seconds {
        let before = Instant::now();
        operation()?;
        latencies_us.push(before.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Ran::of_operations(began.elapsed().as_secs_f64(), latencies_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_mean_are_those_of_the_latencies() {
        let ran = Ran::of_operations(1.0, vec![5.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            (ran.quantile(0.5), ran.quantile(0.99), ran.quantile(1.0)),
            (Some(3.0), Some(4.0), Some(5.0))
        );
        assert_eq!(ran.mean(), Some(3.0));
        assert_eq!((Ran::default().quantile(0.5), Ran::default().mean()), (None, None));
    }
}
