//! A value made of parts of stored values: their bytes stay where they are, and their checksums are combined.

use super::part::{ItemPart, slice};
use super::piece::{KeptCrcs, PIECE_BYTES_MAX, PIECES_FROM, Piece, cut, pieces_of_parts, whole};
use crate::crc;
use crate::extents::total_len;
use crate::heap::Heap;
use crate::item::{Item, joined};
use crate::record::Check;
use landfall_media::{Extent, MediaError, RUN_SIZE};
use smallvec::SmallVec;
use std::ops::Range;

/// Most bytes of a piece that is made of several: a read of any byte checks all of them, and damage of one byte takes
/// all of them.
const JOINED_PIECE_BYTES: u32 = 16 << 10;

/// Bytes of stored values that are to be one value. They are read only where a piece of an old value is divided, unless
/// all are to be verified.
#[derive(Debug)]
pub struct Joined<'h> {
    heap: &'h Heap,
    /// They hold the bytes.
    items: SmallVec<[Item<'h>; 1]>,
    pieces: SmallVec<[Piece; 2]>,
    verifies_all: bool,
    is_damaged: bool,
}

/// Bytes with one checksum.
struct Checked {
    extents: SmallVec<[Extent; 2]>,
    check: Check,
}

impl<'h> Joined<'h> {
    /// No bytes yet. A piece of which not all bytes are taken is verified: if it fails, so will the checksum that its bytes
    /// get, whatever happens to them later. `verifies_all`: all others are verified, too.
    pub fn new(heap: &'h Heap, verifies_all: bool) -> Self {
        Self { heap, items: SmallVec::new(), pieces: SmallVec::new(), verifies_all, is_damaged: false }
    }

    /// Takes the bytes of a part, behind those that are there.
    ///
    /// # Errors
    /// The medium's.
    pub fn take(&mut self, part: ItemPart<'h>) -> Result<(), MediaError> {
        let (item, range) = part.into_parts();
        let mut begin = 0;
        for checked in checked(&item) {
            let len = total_len(&checked.extents) as usize;
            let within = range.start.max(begin) - begin..range.end.min(begin + len).saturating_sub(begin);
            if within.start < within.end {
                self.add(&checked, within)?;
            }
            begin += len;
        }
        self.items.push(item);
        Ok(())
    }

    fn add(&mut self, checked: &Checked, range: Range<usize>) -> Result<(), MediaError> {
        let known = checked.piece().filter(|piece| piece.extent.len() as usize == range.len());
        let is_read = self.verifies_all || known.is_none();
        let holds = !is_read || self.heap.reader().holds(&checked.extents, checked.check)?;
        self.is_damaged |= !holds;
        if let Some(piece) = known {
            push(&mut self.pieces, piece);
            return Ok(());
        }
        for extent in cut(&slice(&checked.extents, range)) {
            let crc = crc::of(&self.heap.pinned(extent)?);
            push(&mut self.pieces, Piece { extent, crc: if holds { crc } else { !crc } });
        }
        Ok(())
    }

    /// True if bytes were read that do not match their checksum.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// The extents, in order.
    pub fn extents(&self) -> Vec<Extent> {
        joined(&self.pieces)
    }

    /// The checksums: of the pieces, if the value is stored in pieces.
    pub fn crcs(&self) -> KeptCrcs {
        crcs(&self.pieces)
    }
}

/// Adds a piece behind the others. The sum of an extent is of no use beside a CRC-32C, and would keep it apart.
fn push(pieces: &mut SmallVec<[Piece; 2]>, next: Piece) {
    let next = Piece { extent: next.extent.with_len(next.extent.len()), ..next };
    match pieces.last_mut() {
        Some(last) if continues(last.extent, next.extent) => {
            last.crc = crc::combined(last.crc, next.crc, u64::from(next.extent.len()));
            last.extent.grow(next.extent.len());
        }
        _ => pieces.push(next),
    }
}

/// The checksums of a value of these pieces.
fn crcs(pieces: &[Piece]) -> KeptCrcs {
    let parts = || pieces.iter().map(|piece| piece.part());
    let len: u64 = parts().map(|part| u64::from(part.len)).sum();
    if len < PIECES_FROM { KeptCrcs::Whole(whole(parts())) } else { KeptCrcs::Parts(parts().collect()) }
}

impl Checked {
    /// The piece that these bytes may be as they are.
    fn piece(&self) -> Option<Piece> {
        match (self.extents.as_slice(), self.check) {
            ([one], Check::Crc(crc)) if is_piece(*one) => Some(Piece { extent: *one, crc }),
            _ => None,
        }
    }
}

/// The bytes of an item, by checksum.
fn checked(item: &Item<'_>) -> SmallVec<[Checked; 1]> {
    let pieces = item.parts().and_then(|parts| pieces_of_parts(item.extents(), parts));
    match pieces {
        Some(pieces) => pieces
            .iter()
            .map(|piece| Checked {
                extents: SmallVec::from_slice(&[piece.extent]),
                check: Check::Crc(piece.crc),
            })
            .collect(),
        None => SmallVec::from_iter([Checked {
            extents: SmallVec::from_slice(item.extents()),
            check: item.check,
        }]),
    }
}

/// True if all of an extent may be one piece.
fn is_piece(extent: Extent) -> bool {
    extent.len() <= PIECE_BYTES_MAX && extent.off % RUN_SIZE + u64::from(extent.len()) <= RUN_SIZE
}

/// True if two pieces, one behind the other, may be one.
fn continues(last: Extent, next: Extent) -> bool {
    last.end() == next.off
        && !next.off.is_multiple_of(RUN_SIZE)
        && u64::from(last.len()) + u64::from(next.len()) <= u64::from(JOINED_PIECE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_neighbours_in_one_run_are_one_piece() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at % 251) as u8).collect();
        let piece = |off: u64, range: Range<usize>| Piece {
            extent: Extent::new(off, range.len() as u32),
            crc: crc::of(&bytes[range]),
        };
        let mut pieces = SmallVec::new();
        let end_of_run = RUN_SIZE - 8192;
        for next in [
            piece(end_of_run, 0..4096),
            piece(end_of_run + 4096, 4096..8192),
            piece(RUN_SIZE, 8192..20_000),
            piece(RUN_SIZE + 11_808, 20_000..24_576),
            piece(RUN_SIZE + 16_384, 24_576..24_577),
            piece(9 * RUN_SIZE, 24_577..40_000),
        ] {
            push(&mut pieces, next);
        }
        let lens: Vec<u32> = pieces.iter().map(|piece| piece.extent.len()).collect();
        assert_eq!(lens, [8192, 16_384, 1, 15_423]);
        assert_eq!(crcs(&pieces).get().whole(), crc::of(&bytes));
        assert!(matches!(crcs(&pieces), KeptCrcs::Whole(_)), "it is too short for pieces");
        let extents = [Extent::new(end_of_run, 24_577), Extent::new(9 * RUN_SIZE, 15_423)];
        assert_eq!(joined(&pieces), extents);
    }
}
