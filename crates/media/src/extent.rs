//! Byte ranges of a region, and byte streams whose parts lie in several places of a region.

use crate::sum::Sum;
use crate::units::RUN_SIZE;
use std::borrow::Cow;
use std::ops::Range;

/// A contiguous range of region bytes: `off` from the region's start, `len` bytes, both in bytes.
///
/// It may carry the one's-complement sum of its bytes, which a transport derived from their packet's checksum.
/// Two extents are equal when they cover the same range, whether their sums are known or not.
#[derive(Clone, Copy, Default)]
pub struct Extent {
    /// Offset from the start of the region, bytes.
    pub off: u64,
    /// Length in the lower half; the sum in its stored form in the upper half. Two words are passed in registers. Three
    /// fields are passed on the stack and read back with wider loads than the stores, which stalls the processor.
    tail: u64,
}

const SUM_SHIFT: u32 = u32::BITS;

impl Extent {
    /// The extent that starts at `off` and is `len` bytes long.
    #[inline]
    pub const fn new(off: u64, len: u32) -> Self {
        Self { off, tail: len as u64 }
    }

    /// This extent with the sum of its bytes.
    #[inline]
    #[must_use]
    pub const fn with_sum(self, sum: Option<Sum>) -> Self {
        let stored = match sum {
            Some(sum) => sum.to_stored(),
            None => 0,
        };
        Self { tail: self.len() as u64 | (stored as u64) << SUM_SHIFT, ..self }
    }

    /// Length, bytes.
    #[inline]
    pub const fn len(self) -> u32 {
        self.tail as u32
    }

    /// The sum of its bytes, if it is known.
    #[inline]
    pub const fn sum(self) -> Option<Sum> {
        Sum::from_stored((self.tail >> SUM_SHIFT) as u16)
    }

    /// The extent that starts at this offset and is `len` bytes long. Its sum is unknown.
    #[inline]
    #[must_use]
    pub const fn with_len(self, len: u32) -> Self {
        Self::new(self.off, len)
    }

    /// The parts of the extent that lie in one run each, in order. An extent within one run keeps its sum.
    #[inline]
    pub fn by_run(self) -> impl Iterator<Item = Self> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let len = (RUN_SIZE - rest.off % RUN_SIZE).min(u64::from(rest.len())) as u32;
            let part = if len == rest.len() { rest } else { rest.with_len(len) };
            rest = Self::new(rest.off + u64::from(len), rest.len() - len);
            (len > 0).then_some(part)
        })
    }

    /// Extends the extent by `len` bytes. Its sum is then unknown.
    #[inline]
    pub const fn grow(&mut self, len: u32) {
        *self = self.with_len(self.len() + len);
    }

    /// First offset past the extent.
    #[inline]
    pub const fn end(self) -> u64 {
        self.off + self.len() as u64
    }

    /// True when the extent covers no byte.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (off, len, sum) = (self.off, self.len(), self.sum());
        f.debug_struct("Extent").field("off", &off).field("len", &len).field("sum", &sum).finish()
    }
}

impl PartialEq for Extent {
    fn eq(&self, other: &Self) -> bool {
        (self.off, self.len()) == (other.off, other.len())
    }
}

impl Eq for Extent {}

impl std::hash::Hash for Extent {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.off, self.len()).hash(state);
    }
}

impl PartialOrd for Extent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Extent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.off, self.len()).cmp(&(other.off, other.len()))
    }
}

/// One contiguous piece of a received stream: its bytes, and where in the region they lie.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Region offset of `bytes[0]`.
    pub addr: u64,
    /// The bytes themselves, borrowed from the region's image.
    pub bytes: &'a [u8],
    /// Their sum, if it is known.
    pub sum: Option<Sum>,
}

impl<'a> Segment<'a> {
    /// Bytes whose sum is not known.
    pub const fn new(addr: u64, bytes: &'a [u8]) -> Self {
        Self { addr, bytes, sum: None }
    }

    /// A part of the segment as an extent. It has a sum if the segment's sum is known.
    fn extent(&self, range: Range<usize>) -> Extent {
        let len = u32::try_from(range.len()).expect("a segment is shorter than 4 GiB");
        let sum = self.sum.map(|sum| sum.of_part(self.bytes, range.clone()));
        Extent::new(self.addr + range.start as u64, len).with_sum(sum)
    }
}

/// A received byte stream as it lies in frames: segments in stream order.
///
/// Codecs address it by *stream offset* (0 is the first byte of the first segment) and yield
/// `Range<usize>`s of it; [`Chain::extents`] turns such a range into region extents without a copy.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    segments: &'a [Segment<'a>],
    len: usize,
}

impl<'a> Chain<'a> {
    /// A chain over `segments`, in stream order.
    #[inline]
    pub fn new(segments: &'a [Segment<'a>]) -> Self {
        let len = segments.iter().map(|s| s.bytes.len()).sum();
        Self { segments, len }
    }

    /// The stream without the segments that lie before offset `at`, and where `at` is in it. Later lookups then do not
    /// iterate over the skipped segments.
    #[inline]
    #[must_use]
    pub fn skip_to(self, at: usize) -> (Self, usize) {
        let (mut rest, mut at) = (self, at);
        while let [first, others @ ..] = rest.segments
            && first.bytes.len() <= at
        {
            at -= first.bytes.len();
            rest = Self { segments: others, len: rest.len - first.bytes.len() };
        }
        (rest, at)
    }

    /// The first segment's bytes; none where nothing has been received.
    #[inline]
    pub fn first(&self) -> &'a [u8] {
        self.segments.first().map_or(&[], |segment| segment.bytes)
    }

    /// The bytes from offset `at` to the end of their segment; none where nothing has been received.
    #[inline]
    pub fn head_at(&self, at: usize) -> &'a [u8] {
        self.locate(at).map_or(&[], |(index, start)| &self.segments[index].bytes[start..])
    }

    /// Bytes in the stream so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing has been received.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of `range` where they lie, if they are contiguous; `None` where they are split or absent.
    #[inline]
    pub fn contiguous(&self, range: Range<usize>) -> Option<&'a [u8]> {
        if let [whole] = self.segments {
            return whole.bytes.get(range);
        }
        let (index, start) = self.locate(range.start)?;
        let bytes = self.segments[index].bytes;
        bytes.get(start..start + range.len())
    }

    /// The bytes of `range`. They are copied only where they are split over segments.
    ///
    /// # Panics
    /// If `range` reaches past the end of the chain.
    #[inline]
    pub fn gather(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        match self.contiguous(range.clone()) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => self.gather_split(range),
        }
    }

    fn gather_split(&self, range: Range<usize>) -> Cow<'a, [u8]> {
        if range.is_empty() {
            return Cow::Borrowed(&[]);
        }
        let mut out = Vec::with_capacity(range.len());
        self.pieces(range, |_, bytes| out.extend_from_slice(bytes));
        Cow::Owned(out)
    }

    /// The region extents that hold `range`, in stream order. Adjacent extents are merged.
    ///
    /// # Panics
    /// If `range` reaches past the end of the chain.
    #[inline]
    pub fn extents(&self, range: Range<usize>, mut yield_extent: impl FnMut(Extent)) {
        if let [whole] = self.segments
            && range.start < range.end
            && range.end <= whole.bytes.len()
        {
            return yield_extent(whole.extent(range));
        }
        let mut last: Option<Extent> = None;
        self.parts(range, |segment, part| {
            let next = segment.extent(part);
            match &mut last {
                Some(extent) if extent.end() == next.off => extent.grow(next.len()),
                _ => {
                    if let Some(done) = last.replace(next) {
                        yield_extent(done);
                    }
                }
            }
        });
        if let Some(done) = last {
            yield_extent(done);
        }
    }

    /// Position of the first `needle` at or after `from`, if one has been received.
    pub fn find_byte(&self, needle: u8, from: usize) -> Option<usize> {
        let (mut index, mut start) = self.locate(from)?;
        let mut base = from - start;
        loop {
            let bytes = self.segments[index].bytes;
            if let Some(at) = memchr::memchr(needle, &bytes[start..]) {
                return Some(base + start + at);
            }
            base += bytes.len();
            index += 1;
            start = 0;
            if index == self.segments.len() {
                return None;
            }
        }
    }

    /// The byte at stream offset `at`, if it has been received.
    #[inline]
    pub fn byte(&self, at: usize) -> Option<u8> {
        let (index, start) = self.locate(at)?;
        Some(self.segments[index].bytes[start])
    }

    /// Calls `visit(region offset, bytes)` for each contiguous piece of `range`, in stream order.
    ///
    /// # Panics
    /// If `range` reaches past the end of the chain.
    pub fn pieces(&self, range: Range<usize>, mut visit: impl FnMut(u64, &'a [u8])) {
        self.parts(range, |segment, part| visit(segment.addr + part.start as u64, &segment.bytes[part]));
    }

    /// Calls `visit(segment, range of its bytes)` for each contiguous piece of `range`, in stream order.
    fn parts(&self, range: Range<usize>, mut visit: impl FnMut(&Segment<'a>, Range<usize>)) {
        assert!(range.end <= self.len, "range {range:?} of a chain of {} bytes", self.len);
        let mut base = 0;
        for segment in self.segments {
            let end = base + segment.bytes.len();
            let (from, to) = (range.start.max(base), range.end.min(end));
            if from < to {
                visit(segment, from - base..to - base);
            }
            if end >= range.end {
                break;
            }
            base = end;
        }
    }

    /// Index of the segment that holds stream offset `at`, and the offset within it.
    #[inline]
    fn locate(&self, at: usize) -> Option<(usize, usize)> {
        let mut base = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            if at < base + segment.bytes.len() {
                return Some((index, at - base));
            }
            base += segment.bytes.len();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scattered() -> [Segment<'static>; 3] {
        [Segment::new(100, b"abc"), Segment::new(103, b"de"), Segment::new(500, b"fgh")]
    }

    #[test]
    fn extents_join_neighbours_and_split_at_gaps() {
        let segments = scattered();
        let chain = Chain::new(&segments);
        let mut got = Vec::new();
        chain.extents(1..7, |e| got.push(e));
        assert_eq!(got, [Extent::new(101, 4), Extent::new(500, 2)]);
    }

    #[test]
    fn gather_borrows_when_contiguous_and_copies_when_split() {
        let segments = scattered();
        let chain = Chain::new(&segments);
        assert!(matches!(chain.gather(0..3), Cow::Borrowed(b"abc")));
        assert!(matches!(chain.gather(2..6), Cow::Owned(ref v) if v == b"cdef"));
    }

    #[test]
    fn only_segments_before_the_offset_are_skipped() {
        let segments = scattered();
        let chain = Chain::new(&segments);
        for at in 0..=chain.len() {
            let (rest, here) = chain.skip_to(at);
            assert_eq!((rest.len() - here, here <= 2), (chain.len() - at, true), "{at}");
            assert_eq!(rest.head_at(here), chain.head_at(at), "{at}");
            for further in 0..chain.len() - at {
                assert_eq!(rest.byte(here + further), chain.byte(at + further), "{at}, {further}");
            }
        }
        assert_eq!((chain.head_at(4), chain.head_at(8)), (&b"e"[..], &b""[..]));
    }

    #[test]
    fn find_byte_crosses_segments_and_reports_absence() {
        let segments = scattered();
        let chain = Chain::new(&segments);
        assert_eq!(chain.find_byte(b'g', 0), Some(6));
        assert_eq!(chain.find_byte(b'a', 1), None);
        assert_eq!(chain.find_byte(b'a', 99), None);
    }
}
