//! Counts how many records refer to each byte of a run.

use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes that do not overlap, each with the number of records that refer to it. Adjacent ranges differ in
/// their counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// By start offset.
    segments: BTreeMap<u32, Segment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    end: u32,
    refs: u32,
}

/// Some of the ranges, mostly few.
type Near = SmallVec<[(u32, Segment); 4]>;

impl Coverage {
    /// True if there is no range.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Adds one reference to each byte of `range`. Bytes in no range get the count `first`. Returns the number of these
    /// bytes.
    pub(crate) fn raise(&mut self, range: Range<u32>, first: u32) -> u32 {
        self.split_at(range.start);
        self.split_at(range.end);
        let known: Near =
            self.segments.range(range.clone()).map(|(start, segment)| (*start, *segment)).collect();
        let (mut at, mut fresh) = (range.start, 0);
        for (start, Segment { end, refs }) in known {
            if at < start {
                fresh += start - at;
                self.segments.insert(at, Segment { end: start, refs: first });
            }
            self.segments.insert(start, Segment { end, refs: refs.saturating_add(1) });
            at = end;
        }
        if at < range.end {
            fresh += range.end - at;
            self.segments.insert(at, Segment { end: range.end, refs: first });
        }
        self.join(range);
        fresh
    }

    /// Removes one reference from each byte of `range`. Bytes whose count falls below `least` are removed from the
    /// ranges. Returns the number of bytes that were in no range.
    pub(crate) fn lower(&mut self, range: Range<u32>, least: u32) -> u32 {
        if self.segments.is_empty() {
            return range.end - range.start;
        }
        self.split_at(range.start);
        self.split_at(range.end);
        let known: Near =
            self.segments.range(range.clone()).map(|(start, segment)| (*start, *segment)).collect();
        let mut missing = range.end - range.start;
        for (start, Segment { end, refs }) in known {
            missing -= end - start;
            if refs <= least {
                self.segments.remove(&start);
            } else {
                self.segments.insert(start, Segment { end, refs: refs - 1 });
            }
        }
        self.join(range);
        missing
    }

    /// True if a byte of `range` is in a range with a count.
    pub(crate) fn touches(&self, range: Range<u32>) -> bool {
        !range.is_empty()
            && self
                .segments
                .range(..range.end)
                .next_back()
                .is_some_and(|(_, segment)| segment.end > range.start)
    }

    /// Keeps the bytes with two references or more.
    pub(crate) fn keep_shared(&mut self) {
        self.segments.retain(|_, segment| segment.refs > 1);
    }

    /// Splits the segment that crosses `at`.
    fn split_at(&mut self, at: u32) {
        let Some((start, segment)) = self.segments.range(..at).next_back().map(|(s, g)| (*s, *g)) else {
            return;
        };
        if segment.end > at {
            self.segments.insert(start, Segment { end: at, ..segment });
            self.segments.insert(at, segment);
        }
    }

    /// Joins adjacent segments with equal counts in `range` and at its borders.
    fn join(&mut self, range: Range<u32>) {
        let before = self.segments.range(..range.start).next_back().map_or(range.start, |(start, _)| *start);
        let mut last: Option<(u32, Segment)> = None;
        let near: Near =
            self.segments.range(before..=range.end).map(|(start, segment)| (*start, *segment)).collect();
        for (start, segment) in near {
            match &mut last {
                Some((into, joined)) if joined.end == start && joined.refs == segment.refs => {
                    joined.end = segment.end;
                    self.segments.remove(&start);
                    self.segments.insert(*into, *joined);
                }
                _ => last = Some((start, segment)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u32 = 40;

    /// One count for each byte.
    fn counts(coverage: &Coverage) -> Vec<u32> {
        let mut counts = vec![0; BYTES as usize];
        let mut last: Option<Segment> = None;
        let mut last_end = 0;
        for (start, segment) in &coverage.segments {
            assert!(*start < segment.end && segment.refs > 0, "{coverage:?}");
            assert!(last_end <= *start, "overlap in {coverage:?}");
            let is_joined = last.is_none_or(|last| last.end < *start || last.refs != segment.refs);
            assert!(is_joined, "two alike in {coverage:?}");
            counts[*start as usize..segment.end as usize].fill(segment.refs);
            (last, last_end) = (Some(*segment), segment.end);
        }
        counts
    }

    fn range() -> impl Strategy<Value = Range<u32>> {
        (0..BYTES, 0..BYTES).prop_map(|(a, b)| a.min(b)..a.max(b))
    }

    proptest! {
        #[test]
        fn counts_are_those_of_single_bytes(steps in prop::collection::vec((range(), any::<bool>()), 0..60), shared: bool) {
            // Of shared bytes only those with two references are kept.
            let (first, least) = if shared { (2, 2) } else { (1, 1) };
            let mut coverage = Coverage::default();
            let mut model = vec![0u32; BYTES as usize];
            for (range, raises) in steps {
                let bytes = &mut model[range.start as usize..range.end as usize];
                let none = bytes.iter().filter(|count| **count == 0).count() as u32;
                let missing = if raises {
                    bytes.iter_mut().for_each(|count| *count = if *count == 0 { first } else { *count + 1 });
                    coverage.raise(range.clone(), first)
                } else {
                    bytes.iter_mut().for_each(|count| *count = if *count <= least { 0 } else { *count - 1 });
                    coverage.lower(range.clone(), least)
                };
                prop_assert_eq!(missing, none);
                prop_assert_eq!(&counts(&coverage), &model);
                let wanted = model[range.start as usize..range.end as usize].iter().any(|count| *count > 0);
                prop_assert_eq!(coverage.touches(range.clone()), wanted && !range.is_empty());
            }
            coverage.keep_shared();
            model.iter_mut().for_each(|count| *count = if *count < 2 { 0 } else { *count });
            prop_assert_eq!(&counts(&coverage), &model);
        }
    }
}
