//! A cursor over received data: it finds ranges in ascending order without starting again from the beginning.

use landfall_media::Chain;
use std::cell::Cell;
use std::ops::Range;

/// A received stream, with the current position.
///
/// A chain searches each range from its first segment. A command with many arguments in many packets would search all
/// packets for each argument; with the cursor each packet is visited once. A range before the last one is found, too,
/// by starting again.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    whole: Chain<'a>,
    /// The rest of the chain, and the number of bytes before it.
    left: Cell<(Chain<'a>, usize)>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(chain: Chain<'a>) -> Self {
        Self { whole: chain, left: Cell::new((chain, 0)) }
    }

    /// The bytes of a range in the first piece, which has most commands.
    #[inline]
    pub(crate) fn first(&self, range: &Range<usize>) -> Option<&'a [u8]> {
        self.whole.first().get(range.start..range.end)
    }

    /// A chain that begins near a range of the stream, and the position of the range in it.
    #[inline]
    pub(crate) fn at(&self, range: &Range<usize>) -> (Chain<'a>, Range<usize>) {
        if range.end <= self.whole.first().len() {
            return (self.whole, range.start..range.end);
        }
        let (left, before) = self.left.get();
        let (from, before) = if range.start < before { (self.whole, 0) } else { (left, before) };
        let (left, start) = from.skip_to(range.start - before);
        self.left.set((left, range.start - start));
        (left, start..start + range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::Segment;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_equal_in_any_order(
            lens in prop::collection::vec(1..20_usize, 1..30),
            asked in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..30),
        ) {
            let bytes: Vec<u8> = (0..=255).cycle().take(lens.iter().sum()).collect();
            let (mut segments, mut at) = (Vec::new(), 0);
            for len in lens {
                segments.push(Segment::new(at as u64 * 2, &bytes[at..at + len]));
                at += len;
            }
            let chain = Chain::new(&segments);
            let walk = Walk::new(chain);
            for (one, other) in asked {
                let (one, other) = (one.index(bytes.len() + 1), other.index(bytes.len() + 1));
                let range = one.min(other)..one.max(other);
                let (near, place) = walk.at(&range);
                prop_assert_eq!(near.gather(place.clone()), chain.gather(range.clone()));
                let (mut got, mut want) = (Vec::new(), Vec::new());
                near.extents(place, |extent| got.push(extent));
                chain.extents(range, |extent| want.push(extent));
                prop_assert_eq!(got, want);
            }
        }
    }

    #[test]
    fn ranges_in_order_lie_in_the_first_segment() {
        let bytes = [b'x'; 7000];
        let segments: Vec<Segment<'_>> = bytes.chunks(10).map(|bytes| Segment::new(0, bytes)).collect();
        let walk = Walk::new(Chain::new(&segments));
        for start in (0..bytes.len()).step_by(7) {
            let (near, place) = walk.at(&(start..start + 7));
            assert!(place.start < 10 && near.len() <= bytes.len() - start + 10, "{start}: {place:?}");
        }
    }
}
