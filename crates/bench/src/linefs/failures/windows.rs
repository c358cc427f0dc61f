//! What operations did within a part of a run.

use crate::common::measure::stats::whole;
use crate::files::Operation;

/// Operations of a part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub(super) seconds: f64,
    /// Operations a second.
    pub(super) rate: f64,
    /// Latencies of the operations that have ended in it, microseconds. Without one, that of the gap.
    pub(super) p99_us: f64,
    pub(super) longest_us: f64,
    /// The longest time in which no operation of any program has ended, microseconds. It may have begun before the part;
    /// what of it is behind the part counts in the next one.
    pub(super) gap_us: f64,
}

/// Puts operations in the order of their ends.
pub(super) fn sort(operations: &mut [Operation]) {
    operations.sort_unstable_by(|a, b| a.ended.total_cmp(&b.ended));
}

impl Window {
    /// Of the time from `from` to `to`, in seconds after the load's begin; operations are in order.
    pub(super) fn of(operations: &[Operation], from: f64, to: f64) -> Self {
        let index_at = |time: f64| operations.partition_point(|operation| operation.ended < time);
        let (first, end) = (index_at(from), index_at(to));
        // The one before and the one behind belong to the gaps at both ends.
        let ends = &operations[first.saturating_sub(1)..operations.len().min(end + 1)];
        let gap = ends.windows(2).map(|pair| pair[1].ended.min(to) - pair[0].ended).fold(0.0, f64::max);
        let mut latencies: Vec<f64> = operations[first..end].iter().map(|operation| operation.us).collect();
        latencies.sort_unstable_by(f64::total_cmp);
        let quantile = |share: f64| {
            let last = latencies.len().checked_sub(1)? as f64;
            latencies.get(whole(last * share) as usize).copied()
        };
        let gap_us = gap * 1e6;
        Self {
            seconds: to - from,
            rate: latencies.len() as f64 / (to - from),
            p99_us: quantile(0.99).unwrap_or(gap_us),
            longest_us: quantile(1.0).unwrap_or(gap_us),
            gap_us,
        }
    }
}

/// How many operations have ended in each step of a run.
pub(super) fn counts(operations: &[Operation], step_seconds: f64) -> Vec<u32> {
    let step_of = |operation: &Operation| whole(operation.ended / step_seconds) as usize;
    let mut counts = vec![0; operations.iter().map(step_of).max().map_or(0, |last| last + 1)];
    operations.iter().for_each(|operation| counts[step_of(operation)] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(ends: &[f64]) -> Vec<Operation> {
        ends.iter().map(|ended| Operation { ended: *ended, us: *ended * 1000.0 }).collect()
    }

    #[test]
    fn a_gap_counts_whole_where_it_ends_and_before_that_as_far_as_it_has_come() {
        let all = operations(&[0.5, 1.0, 1.5, 4.5, 5.0, 5.5]);
        let of = |from, to| Window::of(&all, from, to);
        assert_eq!((of(0.4, 1.2).gap_us, of(4.6, 5.2).gap_us), (0.5e6, 0.5e6));
        // Servers fail at 1.75, and are back at 4.5.
        assert_eq!((of(0.0, 1.75).gap_us, of(1.75, 6.0).gap_us), (0.5e6, 3e6));
        let silent = of(1.75, 4.0);
        assert_eq!(
            (silent.rate, silent.p99_us, silent.longest_us, silent.gap_us),
            (0.0, 2.5e6, 2.5e6, 2.5e6)
        );
        let last = of(4.0, 6.0);
        assert_eq!((last.rate, last.longest_us, last.p99_us, last.gap_us), (1.5, 5500.0, 5000.0, 3e6));
    }

    #[test]
    fn operations_are_counted_where_they_end_in_whatever_order_they_come() {
        let mut all = operations(&[0.25, 0.05, 0.21, 0.55]);
        assert_eq!(counts(&all, 0.1), [1, 0, 2, 0, 0, 1]);
        sort(&mut all);
        assert_eq!(all, operations(&[0.05, 0.21, 0.25, 0.55]));
        assert_eq!(counts(&[], 0.1), [0; 0]);
    }
}
