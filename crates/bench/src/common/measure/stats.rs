//! Medians, spreads and paired ratios of samples.

use serde::{Deserialize, Serialize};

/// Samples of one quantity, in the order of their rounds, with their median and spread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The middle sample; the mean of the two middle ones of an even number.
    pub(crate) median: f64,
    /// The smallest sample.
    pub(crate) min: f64,
    /// The largest sample.
    pub(crate) max: f64,
    /// All samples, by round.
    pub(crate) samples: Vec<f64>,
}

impl Summary {
    /// Summarises the finite samples. `None` if there is none.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let samples: Vec<f64> = samples.into_iter().filter(|sample| sample.is_finite()).collect();
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            (sorted[upper - 1] + sorted[upper]) / 2.0
        } else {
            sorted[upper]
        };
        Some(Self { median, min, max, samples })
    }

    /// Returns the ratio to `other`, round by round. A disturbance of a whole round affects both and cancels out.
    ///
    /// If the numbers of rounds differ, or a sample is 0, the result is the ratio of the medians.
    pub(crate) fn over(&self, other: &Self) -> Option<Self> {
        let paired =
            self.samples.len() == other.samples.len() && other.samples.iter().all(|sample| *sample != 0.0);
        if paired {
            return Self::of(self.samples.iter().zip(&other.samples).map(|(a, b)| a / b));
        }
        Self::of([self.median / other.median])
    }

    /// Returns the difference to `other`, round by round. If the numbers of rounds differ, the result is the difference
    /// of the medians.
    pub(crate) fn less(&self, other: &Self) -> Option<Self> {
        if self.samples.len() == other.samples.len() {
            return Self::of(self.samples.iter().zip(&other.samples).map(|(a, b)| a - b));
        }
        Self::of([self.median - other.median])
    }
}

/// Rounds a value down to a count. A negative value or NaN becomes 0.
#[expect(clippy::cast_sign_loss, reason = "this conversion saturates")]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn median_of_odd_and_even_numbers_of_samples() {
        assert_eq!(Summary::of([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn spread_is_smallest_to_largest_and_samples_keep_their_order() {
        let summary = Summary::of([5.0, 9.0, 1.0]).unwrap();
        assert_eq!((summary.min, summary.max), (1.0, 9.0));
        assert_eq!(summary.samples, [5.0, 9.0, 1.0]);
    }

    #[test]
    fn no_finite_sample_gives_no_summary() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(Summary::of([f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn ratios_are_paired_by_round() {
        // The second round ran on a machine half as fast: each alone spreads, their ratio does not.
        let ours = Summary::of([200.0, 100.0]).unwrap();
        let theirs = Summary::of([100.0, 50.0]).unwrap();
        let ratio = ours.over(&theirs).unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.0, 2.0, 2.0));
    }

    #[test]
    fn differences_are_paired_by_round() {
        let (with, without) = (Summary::of([30.0, 60.0]).unwrap(), Summary::of([28.0, 58.0]).unwrap());
        let difference = with.less(&without).unwrap();
        assert_eq!((difference.median, difference.min, difference.max), (2.0, 2.0, 2.0));
        assert_eq!(with.less(&Summary::of([1.0]).unwrap()).unwrap().median, 44.0);
    }

    #[test]
    fn unequal_numbers_of_rounds_compare_by_median() {
        let ours = Summary::of([1.0, 2.0, 3.0]).unwrap();
        let theirs = Summary::of([4.0]).unwrap();
        assert_eq!(ours.over(&theirs).unwrap().median, 0.5);
    }

    #[test]
    fn division_by_zero_gives_no_ratio() {
        let ours = Summary::of([1.0]).unwrap();
        assert_eq!(ours.over(&Summary::of([0.0]).unwrap()), None);
    }
}
