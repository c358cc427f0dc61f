//! Reading a part of a value. Only the pieces that contain the part are held and checked.

use super::piece::Piece;
use crate::error::HeapError;
use crate::extents::Extents;
use crate::heap::Heap;
use crate::item::Item;
use crate::layout::SlotId;
use crate::reader::Reader;
use crate::record::{Check, PieceDepth, PieceList, RecordView, ValuePlace};
use landfall_media::{Extent, MediaError};
use std::ops::Range;

/// A part of a value, in an item with the bytes that must be verified before the part is served.
#[derive(Debug)]
pub struct ItemPart<'h> {
    item: Item<'h>,
    /// The range of the part in the item.
    range: Range<usize>,
    /// Bytes of the value before the item.
    skip: usize,
    /// Length of the whole value, bytes.
    pub value_len: usize,
}

impl<'h> ItemPart<'h> {
    /// Holds the bytes `range` of a record's value. The caller has the lock that keeps the record current.
    ///
    /// # Errors
    /// As [`Item::hold`].
    ///
    /// # Panics
    /// If the range exceeds the value.
    pub fn hold(
        heap: &'h Heap,
        slot: SlotId,
        view: &RecordView<'_>,
        range: Range<usize>,
    ) -> Result<Self, HeapError> {
        let value_len = view.value_len();
        assert!(range.start <= range.end && range.end <= value_len, "a part of the value");
        let (item, skip) = match view.value() {
            _ if range.is_empty() => (Item::hold_pieces(heap, slot, view, &[]), range.start),
            ValuePlace::Pieces(list) => {
                let (pieces, skip) = heap.reader().pieces_with(slot, view, list, &range)?;
                (Item::hold_pieces(heap, slot, view, &pieces), skip)
            }
            ValuePlace::Extents(_) | ValuePlace::Indirect(_) if view.check() == Check::Sums => {
                let extents = heap.value_extents(slot, view)?;
                let (some, skip) = overlapping(&extents, &range, |extent| extent.len());
                (Item::hold_extents(heap, slot, view, some), skip)
            }
            _ => (Item::hold(heap, slot, view)?, 0),
        };
        Ok(Self { item, range: range.start - skip..range.end - skip, skip, value_len })
    }

    /// A part of a whole item.
    ///
    /// # Panics
    /// If the range exceeds the item.
    pub fn of(item: Item<'h>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= item.len, "a part of the value");
        Self { value_len: item.len, item, range, skip: 0 }
    }

    /// The item that must be verified before the part is served.
    pub fn item(&self) -> &Item<'h> {
        &self.item
    }

    /// The item, and the range of the part in it.
    pub(crate) fn into_parts(self) -> (Item<'h>, Range<usize>) {
        (self.item, self.range)
    }

    /// Offset of the part in the value.
    pub fn start(&self) -> usize {
        self.skip + self.range.start
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True if the part is empty.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The part's bytes of an inline value.
    pub fn inline(&self) -> Option<&[u8]> {
        self.item.inline().map(|bytes| &bytes[self.range.clone()])
    }

    /// The part's extents of a value that is not inline.
    pub fn extents(&self) -> Extents {
        slice(self.item.extents(), self.range.clone())
    }

    /// The part as owned bytes.
    ///
    /// # Errors
    /// The medium's.
    pub fn to_vec(&self, heap: &Heap) -> Result<Vec<u8>, MediaError> {
        if let Some(bytes) = self.inline() {
            return Ok(bytes.to_vec());
        }
        let mut all = Vec::with_capacity(self.len());
        for extent in self.extents() {
            all.extend_from_slice(&heap.pinned(extent)?);
        }
        Ok(all)
    }
}

/// The extents of a part of a value.
pub fn slice(extents: &[Extent], range: Range<usize>) -> Extents {
    let mut base = 0;
    let mut part = Extents::new();
    for extent in extents {
        let end = base + extent.len() as usize;
        let (from, to) = (range.start.max(base), range.end.min(end));
        if from < to {
            part.push(Extent::new(extent.off + (from - base) as u64, (to - from) as u32));
        }
        base = end;
    }
    part
}

/// The elements that contain a byte of `range`, and the number of bytes before them.
fn overlapping<'a, T>(all: &'a [T], range: &Range<usize>, len: impl Fn(&T) -> u32) -> (&'a [T], usize) {
    if range.is_empty() {
        return (&[], range.start);
    }
    let (mut first, mut skip, mut end) = (0, 0, 0);
    for (index, one) in all.iter().enumerate() {
        let begin = end;
        end += len(one) as usize;
        if end <= range.start {
            (first, skip) = (index + 1, end);
        }
        if range.end <= begin {
            return (&all[first..index], skip);
        }
    }
    (&all[first..], skip)
}

impl Reader<'_> {
    /// The pieces that contain a byte of `range`, and the number of bytes before them. Reads only the lists of these
    /// pieces.
    fn pieces_with(
        self,
        slot: SlotId,
        view: &RecordView<'_>,
        list: PieceList,
        range: &Range<usize>,
    ) -> Result<(Vec<Piece>, usize), HeapError> {
        let whole = super::read::part_of(view);
        self.fetch(&[list.at])?;
        let (pieces, before) = match list.depth {
            PieceDepth::Pieces => (self.read_pieces(slot, list.at, whole)?, 0),
            PieceDepth::Lists => {
                let branches = self.read_branches(slot, list.at, whole)?;
                let (some, before) = overlapping(&branches, range, |branch| branch.part.len);
                self.fetch(&some.iter().map(|branch| branch.list).collect::<Vec<_>>())?;
                let mut pieces = Vec::new();
                for branch in some {
                    pieces.extend(self.read_pieces(slot, branch.list, branch.part)?);
                }
                (pieces, before)
            }
        };
        let (some, skip) =
            overlapping(&pieces, &(range.start - before..range.end - before), |piece| piece.extent.len());
        Ok((some.to_vec(), before + skip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_extents_cover_exactly_the_bytes() {
        let extents = [Extent::new(100, 10), Extent::new(500, 5), Extent::new(900, 10)];
        assert_eq!(slice(&extents, 0..25).as_slice(), extents);
        assert_eq!(
            slice(&extents, 8..17).as_slice(),
            [Extent::new(108, 2), Extent::new(500, 5), Extent::new(900, 2)]
        );
        assert_eq!(slice(&extents, 10..15).as_slice(), [Extent::new(500, 5)]);
        assert!(slice(&extents, 7..7).is_empty());
        assert!(slice(&extents, Range { start: 30, end: 25 }).is_empty());
    }

    #[test]
    fn only_the_pieces_that_contain_the_part_are_checked() {
        let lens = [10, 5, 10];
        for start in 0..25 {
            for end in start..=25 {
                let (some, skip) = overlapping(&lens, &(start..end), |len| *len);
                let (mut begin, mut wanted) = (0, Vec::new());
                for len in lens {
                    if start < end && begin < end && start < begin + len as usize {
                        wanted.push(len);
                    }
                    begin += len as usize;
                }
                assert_eq!(some, wanted, "{start}..{end}");
                assert!(skip <= start && skip + some.iter().sum::<u32>() as usize >= end.min(start.max(end)));
            }
        }
    }
}
