//! Pieces of a value and their checksums.

use crate::crc;
use crate::extents::total_len;
use crate::heap::Heap;
use crate::reader::Reader;
use landfall_media::{Extent, MediaError, RUN_SIZE};

/// Most bytes of a piece.
pub const PIECE_BYTES_MAX: u32 = 64 << 10;
/// A value of at least this many bytes is stored in pieces.
pub const PIECES_FROM: u64 = 128 << 10;

/// A piece of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Extent of the piece, in one run.
    pub(crate) extent: Extent,
    /// CRC-32C of the piece.
    pub(crate) crc: u32,
}

/// Length and CRC-32C of a part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceCrc {
    /// Length, bytes.
    pub len: u32,
    /// CRC-32C of these bytes.
    pub crc: u32,
}

/// The known checksums of a value.
#[derive(Clone, Copy, Debug)]
pub enum Crcs<'a> {
    /// The CRC-32C of the whole value.
    Whole(u32),
    /// The checksums of its parts, in order. Each part has at most [`PIECE_BYTES_MAX`] bytes and lies in one run.
    Parts(&'a [PieceCrc]),
}

impl Crcs<'_> {
    /// The CRC-32C of the whole value.
    pub fn whole(self) -> u32 {
        match self {
            Self::Whole(crc) => crc,
            Self::Parts(parts) => whole(parts.iter().copied()),
        }
    }

    /// An owned copy.
    pub fn to_kept(self) -> KeptCrcs {
        match self {
            Self::Whole(crc) => KeptCrcs::Whole(crc),
            Self::Parts(parts) => KeptCrcs::Parts(parts.into()),
        }
    }
}

/// Owned [`Crcs`].
#[derive(Clone, Debug)]
pub enum KeptCrcs {
    /// As [`Crcs::Whole`].
    Whole(u32),
    /// As [`Crcs::Parts`].
    Parts(Box<[PieceCrc]>),
}

impl KeptCrcs {
    /// The checksums, borrowed.
    pub fn get(&self) -> Crcs<'_> {
        match self {
            Self::Whole(crc) => Crcs::Whole(*crc),
            Self::Parts(parts) => Crcs::Parts(parts),
        }
    }
}

/// The CRC-32C of concatenated parts.
pub(crate) fn whole(parts: impl Iterator<Item = PieceCrc>) -> u32 {
    parts.fold(0, |crc, part| crc::combined(crc, part.crc, u64::from(part.len)))
}

impl Piece {
    pub(crate) fn part(self) -> PieceCrc {
        PieceCrc { len: self.extent.len(), crc: self.crc }
    }
}

/// Computes the checksums of a value's pieces while the value arrives.
#[derive(Clone, Debug, Default)]
pub struct ArrivingCrcs {
    parts: Vec<PieceCrc>,
    /// The offset at which a further byte would continue the last piece.
    next: u64,
}

impl ArrivingCrcs {
    /// Adds the next bytes of the value.
    ///
    /// # Errors
    /// The medium's.
    pub fn add(&mut self, heap: &Heap, extent: Extent) -> Result<(), MediaError> {
        let mut rest = extent;
        while !rest.is_empty() {
            let continued = self.parts.last_mut().filter(|last| {
                self.next == rest.off && !rest.off.is_multiple_of(RUN_SIZE) && last.len < PIECE_BYTES_MAX
            });
            let len = piece_len(rest).min(PIECE_BYTES_MAX - continued.as_ref().map_or(0, |last| last.len));
            let bytes = &heap.pinned(rest.with_len(len))?;
            match continued {
                Some(last) => *last = PieceCrc { len: last.len + len, crc: crc::append(last.crc, bytes) },
                None => self.parts.push(PieceCrc { len, crc: crc::of(bytes) }),
            }
            rest = Extent::new(rest.off + u64::from(len), rest.len() - len);
            self.next = rest.off;
        }
        Ok(())
    }

    /// The checksums of the pieces that have arrived.
    pub fn parts(&self) -> &[PieceCrc] {
        &self.parts
    }
}

/// Length of the first piece of an extent.
fn piece_len(extent: Extent) -> u32 {
    let in_run = RUN_SIZE - extent.off % RUN_SIZE;
    in_run.min(u64::from(extent.len().min(PIECE_BYTES_MAX))) as u32
}

/// The extents, split into pieces.
pub(super) fn cut(extents: &[Extent]) -> impl Iterator<Item = Extent> + '_ {
    extents.iter().flat_map(|extent| {
        let mut rest = *extent;
        std::iter::from_fn(move || {
            let len = piece_len(rest);
            let piece = if len == rest.len() { rest } else { rest.with_len(len) };
            rest = Extent::new(rest.off + u64::from(len), rest.len() - len);
            (len > 0).then_some(piece)
        })
    })
}

/// The pieces of extents with known checksums; `None` if the parts do not match pieces.
pub(crate) fn pieces_of_parts(extents: &[Extent], parts: &[PieceCrc]) -> Option<Vec<Piece>> {
    let mut pieces = Vec::with_capacity(parts.len());
    let mut extents = extents.iter().filter(|extent| !extent.is_empty());
    let mut rest = Extent::default();
    for part in parts.iter().filter(|part| part.len > 0) {
        if rest.is_empty() {
            rest = *extents.next()?;
        }
        let extent = if part.len == rest.len() { rest } else { rest.with_len(part.len) };
        if part.len > piece_len(rest) {
            return None;
        }
        pieces.push(Piece { extent, crc: part.crc });
        rest = Extent::new(rest.off + u64::from(part.len), rest.len() - part.len);
    }
    (rest.is_empty() && extents.next().is_none()).then_some(pieces)
}

impl Reader<'_> {
    /// The pieces of extents. Reads the bytes to compute the checksums.
    pub(crate) fn pieces_of(self, extents: &[Extent]) -> Result<Vec<Piece>, MediaError> {
        cut(extents).map(|extent| Ok(Piece { extent, crc: crc::of(&self.pinned(extent)?) })).collect()
    }
}

impl Heap {
    /// Computes the checksums of a value that is not in a record yet: of its pieces, if it will be stored in pieces.
    ///
    /// # Errors
    /// The medium's.
    pub fn crcs_of(&self, extents: &[Extent]) -> Result<KeptCrcs, MediaError> {
        if total_len(extents) < PIECES_FROM {
            return Ok(KeptCrcs::Whole(self.crc_of(extents)?));
        }
        Ok(KeptCrcs::Parts(self.reader().pieces_of(extents)?.into_iter().map(Piece::part).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_with_their_extents_their_runs_and_their_size() {
        let extents = [Extent::new(RUN_SIZE - 10, 20), Extent::new(2 * RUN_SIZE, 150_000)];
        let lens: Vec<u32> = cut(&extents).map(Extent::len).collect();
        assert_eq!(lens, [10, 10, 65_536, 65_536, 18_928]);
        let parts: Vec<PieceCrc> = lens.iter().map(|len| PieceCrc { len: *len, crc: *len }).collect();
        let pieces = pieces_of_parts(&extents, &parts).expect("these are its pieces");
        assert!(pieces.iter().map(|piece| piece.extent).eq(cut(&extents)));
        assert!(pieces.iter().all(|piece| piece.crc == piece.extent.len()));
        let part = |len| PieceCrc { len, crc: 0 };
        for wrong in [&[20, 150_000][..], &[10, 10, 65_536, 65_536], &[10, 10, 65_536, 65_536, 18_929]] {
            let parts: Vec<PieceCrc> = wrong.iter().copied().map(part).collect();
            assert!(pieces_of_parts(&extents, &parts).is_none(), "{wrong:?}");
        }
    }
}
