//! What a write makes of whole blocks.

use landfall_fs_link::{BLOCK_BYTES, ENTRY_BYTES_MAX};
use std::ops::{Deref, Range};

/// The range of a write, and that of the blocks that it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// The bytes that are written.
    pub(crate) written: Range<u64>,
    /// From the start of the first block to the end of the last one, or to the end of the file, which may be before.
    pub(crate) whole: Range<u64>,
}

fn floor(offset: u64) -> u64 {
    offset / BLOCK_BYTES * BLOCK_BYTES
}

impl Blocks {
    /// The blocks of a write, in a file of `size` bytes.
    pub(crate) fn of(written: Range<u64>, size: u64) -> Self {
        let end = written.end.max(size.min(written.end.next_multiple_of(BLOCK_BYTES)));
        let whole = floor(written.start)..end;
        Self { written, whole }
    }

    /// The bytes before the written ones that must be known, in a file of `size` bytes. What lies behind its end is zero.
    pub(crate) fn head(&self, size: u64) -> Range<u64> {
        self.whole.start..self.written.start.min(size.max(self.whole.start))
    }

    /// The bytes behind the written ones.
    pub(crate) fn tail(&self) -> Range<u64> {
        self.written.end..self.whole.end
    }

    /// The operations into which it is divided: each has as many bytes as fit.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let Range { start, end } = self.whole.clone();
        (start..end)
            .step_by(usize::try_from(ENTRY_BYTES_MAX).unwrap_or(usize::MAX))
            .map(move |at| at..end.min(at + ENTRY_BYTES_MAX))
    }
}

/// The parts of `data` in a range of its bytes.
pub(crate) fn parts<D: Deref<Target = [u8]>>(data: &[D], range: Range<u64>) -> impl Iterator<Item = &[u8]> {
    let mut at = 0;
    data.iter().filter_map(move |slice| {
        let begin = at;
        at += slice.len() as u64;
        let (from, to) = (range.start.clamp(begin, at) - begin, range.end.clamp(begin, at) - begin);
        (from < to).then(|| &slice[from as usize..to as usize])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_unless_the_file_ends_in_them() {
        let whole = |written, size| Blocks::of(written, size).whole;
        assert_eq!(whole(0..10, 0), 0..10);
        assert_eq!(whole(5000..5001, 0), 4096..5001);
        assert_eq!(whole(5000..5001, 100_000), 4096..8192);
        assert_eq!(whole(5000..5001, 6000), 4096..6000);
        assert_eq!(whole(4096..8192, 6000), 4096..8192);
        let blocks = Blocks::of(5000..5001, 4500);
        assert_eq!((blocks.head(4500), blocks.tail()), (4096..4500, 5001..5001));
        assert_eq!(Blocks::of(5000..5001, 100).head(100), 4096..4096);
        let entries: Vec<_> = Blocks::of(4000..140_000, 0).entries().collect();
        assert_eq!(entries, [0..65_536, 65_536..131_072, 131_072..140_000]);
    }

    #[test]
    fn parts_of_data_are_those_of_the_range() {
        let data: [&[u8]; 3] = [b"abc", b"", b"defg"];
        let of = |range| parts(&data, range).collect::<Vec<_>>().concat();
        assert_eq!(of(0..7), b"abcdefg");
        assert_eq!(of(2..5), b"cde");
        assert_eq!(of(3..3), b"");
    }
}
