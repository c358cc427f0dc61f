//! Where the bytes of a file are, as far as a client knows.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the region, from this offset on.
    Region(u64),
    /// Nowhere: they are zero.
    Zeroes,
}

impl Place {
    fn skipped(self, len: u64) -> Self {
        match self {
            Self::Region(at) => Self::Region(at + len),
            Self::Zeroes => Self::Zeroes,
        }
    }
}

/// Consecutive bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first one, in the file.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// Where they are.
    pub place: Place,
}

impl Segment {
    fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part from `offset` on, which lies in the segment.
    fn from(&self, offset: u64) -> Self {
        let skipped = offset - self.offset;
        Self { offset, len: self.len - skipped, place: self.place.skipped(skipped) }
    }

    fn until(&self, end: u64) -> Self {
        Self { len: end - self.offset, ..*self }
    }

    /// True if `next` continues both the file's and the region's bytes.
    fn continues_with(&self, next: &Self) -> bool {
        let place = match (self.place, next.place) {
            (Place::Region(_), Place::Region(at)) => self.place.skipped(self.len) == Place::Region(at),
            (place, next) => place == next,
        };
        place && self.end() == next.offset
    }
}

/// The known segments of a file, without overlap.
#[derive(Debug, Default)]
pub struct Segments(BTreeMap<u64, Segment>);

impl Segments {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The segment with a byte.
    fn with(&self, offset: u64) -> Option<Segment> {
        let (_, segment) = self.0.range(..=offset).next_back()?;
        (segment.end() > offset).then_some(*segment)
    }

    /// Sets where bytes are. What was known of them before is forgotten.
    pub fn set(&mut self, segment: Segment) {
        if segment.len == 0 {
            return;
        }
        if let Some(before) = self.with(segment.offset)
            && before.offset < segment.offset
        {
            self.0.insert(before.offset, before.until(segment.offset));
            if before.end() > segment.end() {
                self.0.insert(segment.end(), before.from(segment.end()));
            }
        }
        if let Some(last) = self.with(segment.end() - 1)
            && last.end() > segment.end()
        {
            self.0.insert(segment.end(), last.from(segment.end()));
        }
        let covered: Vec<u64> =
            self.0.range(segment.offset..segment.end()).map(|(offset, _)| *offset).collect();
        for offset in covered {
            self.0.remove(&offset);
        }
        self.insert_joined(segment);
    }

    fn insert_joined(&mut self, segment: Segment) {
        let before = self.0.range(..segment.offset).next_back().map(|(_, before)| *before);
        match before.filter(|before| before.continues_with(&segment)) {
            Some(before) => {
                self.0.insert(before.offset, before.until(segment.end()));
            }
            None => {
                self.0.insert(segment.offset, segment);
            }
        }
    }

    /// Sets where bytes are, except those that are known already.
    pub fn fill(&mut self, segment: Segment) {
        let (mut at, end) = (segment.offset, segment.end());
        while at < end {
            match self.with(at) {
                Some(known) => at = known.end(),
                None => {
                    let next = self.0.range(at..end).next().map_or(end, |(offset, _)| *offset);
                    self.insert_joined(segment.from(at).until(next));
                    at = next;
                }
            }
        }
    }

    /// The first byte of a range of which nothing is known.
    pub fn unknown(&self, range: Range<u64>) -> Option<u64> {
        let mut at = range.start;
        while at < range.end {
            match self.with(at) {
                Some(known) => at = known.end(),
                None => return Some(at),
            }
        }
        None
    }

    /// The segments of a range, cut to it, up to the first byte of which nothing is known.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Segment> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let segment = if at < range.end { self.with(at)?.from(at) } else { return None };
            at = segment.end();
            Some(segment.until(at.min(range.end)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 60;

    #[test]
    fn segments_that_continue_each_other_are_one() {
        let mut segments = Segments::default();
        for block in 0..10 {
            segments.set(Segment { offset: block * 4, len: 4, place: Place::Region(100 + block * 4) });
        }
        assert_eq!(segments.count(), 1);
        segments.set(Segment { offset: 40, len: 4, place: Place::Zeroes });
        assert_eq!(segments.count(), 2);
    }

    proptest! {
        #[test]
        fn every_byte_is_where_it_was_set_last_or_filled_first(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64, 0..20_u64, 0..200_u64), 0..40),
            range in (0..60_u64, 0..60_u64),
        ) {
            // The place of each byte: of region bytes its offset, 1000 for zeroes.
            let (mut segments, mut model) = (Segments::default(), [None; BYTES]);
            for (is_set, offset, len, at) in steps {
                let place = if at < 20 { Place::Zeroes } else { Place::Region(at) };
                let segment = Segment { offset, len, place };
                if is_set { segments.set(segment) } else { segments.fill(segment) }
                for index in 0..len {
                    let byte = if at < 20 { 1000 } else { at + index };
                    let known = &mut model[(offset + index) as usize];
                    if is_set || known.is_none() {
                        *known = Some(byte);
                    }
                }
            }
            let range = range.0.min(range.1)..range.0.max(range.1);
            let first = range.clone().find(|offset| model[*offset as usize].is_none());
            prop_assert_eq!(segments.unknown(range.clone()), first);
            let mut at = range.start;
            for segment in segments.within(range.clone()) {
                prop_assert_eq!(segment.offset, at);
                for index in 0..segment.len {
                    let byte = match segment.place {
                        Place::Region(from) => from + index,
                        Place::Zeroes => 1000,
                    };
                    prop_assert_eq!(model[(at + index) as usize], Some(byte));
                }
                at += segment.len;
            }
            prop_assert_eq!(at, first.unwrap_or(range.end));
        }
    }
}
