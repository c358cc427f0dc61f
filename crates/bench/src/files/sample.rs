//! What one run of a load has found, and what all of its rounds together say.

use crate::common::measure::stats::Summary;
use crate::files::args::LoadChoice;
use crate::files::ran::Ran;
use crate::files::report::Row;

/// What one run of a load has found.
#[derive(Debug)]
pub(crate) struct Sample {
    rate: f64,
    mean_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    cpu_us: f64,
    pub(super) device_bytes: Option<f64>,
    final_sync: Option<f64>,
}

impl Sample {
    /// Of a run for which load and servers have taken so much CPU time.
    pub(crate) fn of(ran: &Ran, cpu_ns: u64) -> Self {
        Self {
            rate: ran.count / ran.seconds,
            mean_us: ran.mean(),
            p50_us: ran.quantile(0.5),
            p99_us: ran.quantile(0.99),
            cpu_us: cpu_ns as f64 / 1000.0 / ran.count.max(1.0),
            device_bytes: None,
            final_sync: ran.final_sync_seconds.map(|seconds| seconds / ran.seconds),
        }
    }

    /// The mean latency, microseconds, where each operation is timed.
    pub(crate) fn mean_us(&self) -> Option<f64> {
        self.mean_us
    }

    /// The latency below which 99 % of the operations are, microseconds, where each operation is timed.
    pub(crate) fn p99_us(&self) -> Option<f64> {
        self.p99_us
    }
}

impl Row {
    /// Of all rounds of a load at a place; `None` if there is none.
    pub(crate) fn of(load: LoadChoice, threads: u32, place: &str, samples: &[Sample]) -> Option<Self> {
        let of = |value: fn(&Sample) -> Option<f64>| Summary::of(samples.iter().filter_map(value));
        Some(Self {
            load,
            threads,
            place: place.into(),
            rate: of(|sample| Some(sample.rate))?,
            mean_us: of(|sample| sample.mean_us),
            p50_us: of(|sample| sample.p50_us),
            p99_us: of(|sample| sample.p99_us),
            cpu_us: of(|sample| Some(sample.cpu_us))?,
            device_bytes: of(|sample| sample.device_bytes),
            final_sync: of(|sample| sample.final_sync),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_sample_of_each_round_and_the_share_of_the_final_fsync() {
        let ran = |seconds: f64| Ran {
            final_sync_seconds: Some(0.5),
            ..Ran::of_operations(seconds, vec![1.0, 3.0])
        };
        let samples = [Sample::of(&ran(1.0), 4000), Sample::of(&ran(2.0), 8000)];
        let row = Row::of(LoadChoice::Write, 1, "here", &samples).unwrap();
        assert_eq!((row.rate.samples, row.cpu_us.samples), (vec![2.0, 1.0], vec![2.0, 4.0]));
        assert_eq!(row.final_sync.unwrap().samples, [0.5, 0.25]);
        assert_eq!(row.mean_us.unwrap().median, 2.0);
        assert!(Row::of(LoadChoice::Write, 1, "here", &[]).is_none());
    }
}
