//! A set of numbers, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers. Ranges that touch are joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds all numbers of a range.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut joined = range;
        while let Some((start, end)) =
            self.0.range(..=joined.end).next_back().map(|(start, end)| (*start, *end))
            && end >= joined.start
        {
            self.0.remove(&start);
            joined = joined.start.min(start)..joined.end.max(end);
        }
        self.0.insert(joined.start, joined.end);
    }

    /// Empties the set. Returns its ranges, in order.
    pub(crate) fn take(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.0).into_iter().map(|(start, end)| start..end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_numbers(adds in prop::collection::vec((0..60_u64, 0..9_u64), 0..20)) {
            let (mut ranges, mut model) = (Ranges::default(), [false; 80]);
            for (start, len) in adds {
                ranges.add(start..start + len);
                model[start as usize..(start + len) as usize].fill(true);
            }
            let taken = ranges.take();
            prop_assert!(taken.windows(2).all(|pair| pair[0].end < pair[1].start), "{taken:?}");
            let mut listed = [false; 80];
            taken.iter().for_each(|range| listed[range.start as usize..range.end as usize].fill(true));
            prop_assert_eq!(listed, model);
            prop_assert!(ranges.take().is_empty());
        }
    }
}
