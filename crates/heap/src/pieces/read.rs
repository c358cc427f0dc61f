//! Reading the lists of a value in pieces.

use super::list::{self, Branch};
use super::piece::{PIECE_BYTES_MAX, Piece, PieceCrc, pieces_of_parts};
use crate::crc;
use crate::error::{Damage, HeapError};
use crate::extents::Extents;
use crate::layout::SlotId;
use crate::reader::Reader;
use crate::record::{PieceDepth, PieceList, RecordView, ValuePlace};
use landfall_media::{Extent, MediaError, RUN_SIZE};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// All pieces of a value, with their lists.
#[derive(Debug)]
pub(crate) struct ListedPieces {
    pub(crate) pieces: Vec<Piece>,
    /// Lists of pieces, each with the number of its pieces.
    lists: SmallVec<[(Extent, usize); 1]>,
    /// The list of lists, if there is one.
    pub(crate) upper: Option<Extent>,
}

impl ListedPieces {
    /// The extents of the value, in order.
    pub(crate) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.pieces.iter().map(|piece| piece.extent)
    }

    /// The extents of the value, then those of the lists.
    pub(crate) fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        self.extents().chain(self.lists.iter().map(|(list, _)| *list)).chain(self.upper)
    }

    /// Each list of pieces with its pieces.
    pub(crate) fn by_list(&self) -> impl Iterator<Item = (Extent, &[Piece])> {
        let mut rest = self.pieces.as_slice();
        self.lists.iter().map(move |(list, count)| {
            let (some, others) = rest.split_at(*count);
            rest = others;
            (*list, some)
        })
    }
}

/// Pieces that have been verified, while nothing is written.
#[derive(Debug, Default)]
pub(crate) struct HeldPieces(BTreeSet<(Extent, u32)>);

impl HeldPieces {
    fn has(&self, piece: &Piece) -> bool {
        self.0.contains(&(piece.extent, piece.crc))
    }

    fn add(&mut self, piece: &Piece) {
        self.0.insert((piece.extent, piece.crc));
    }
}

/// Length and CRC-32C of the whole value, from the record.
pub(crate) fn part_of(view: &RecordView<'_>) -> PieceCrc {
    PieceCrc { len: view.value_len() as u32, crc: view.check().crc().unwrap_or_default() }
}

impl Reader<'_> {
    /// All pieces of a value.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if a list fails its checks.
    pub(crate) fn listed_pieces(
        self,
        slot: SlotId,
        view: &RecordView<'_>,
        list: PieceList,
    ) -> Result<ListedPieces, HeapError> {
        self.listed(slot, list, part_of(view))
    }

    /// Reads the pieces of a list, or of its lists, and checks that they are those of `value`.
    pub(crate) fn listed(
        self,
        slot: SlotId,
        list: PieceList,
        value: PieceCrc,
    ) -> Result<ListedPieces, HeapError> {
        let (mut pieces, mut lists) = (Vec::new(), SmallVec::new());
        if list.depth == PieceDepth::Pieces {
            pieces = self.read_pieces(slot, list.at, value)?;
            lists.push((list.at, pieces.len()));
            return Ok(ListedPieces { pieces, lists, upper: None });
        }
        for branch in self.read_branches(slot, list.at, value)? {
            let some = self.read_pieces(slot, branch.list, branch.part)?;
            lists.push((branch.list, some.len()));
            pieces.extend(some);
        }
        Ok(ListedPieces { pieces, lists, upper: Some(list.at) })
    }

    /// As [`Self::listed_pieces`], for a current record. Evicted lists are requested.
    ///
    /// # Errors
    /// As [`Self::listed_pieces`]; [`HeapError::Loading`].
    pub(crate) fn listed_pieces_in_memory(
        self,
        slot: SlotId,
        view: &RecordView<'_>,
        list: PieceList,
    ) -> Result<ListedPieces, HeapError> {
        self.fetch(&[list.at])?;
        if self.is_paged() && list.depth == PieceDepth::Lists {
            let branches = self.read_branches(slot, list.at, part_of(view))?;
            self.fetch(&branches.iter().map(|branch| branch.list).collect::<Vec<_>>())?;
        }
        self.listed_pieces(slot, view, list)
    }

    /// Reads a list of pieces, and checks that it lists `part` of the value.
    pub(crate) fn read_pieces(
        self,
        slot: SlotId,
        at: Extent,
        part: PieceCrc,
    ) -> Result<Vec<Piece>, HeapError> {
        let is_piece = |piece: &Piece| {
            let (extent, last) = (piece.extent, piece.extent.end().saturating_sub(1));
            extent.len() <= PIECE_BYTES_MAX
                && extent.end() <= self.geometry.bytes()
                && last / RUN_SIZE == extent.off / RUN_SIZE
        };
        let pieces = list::pieces(&self.pinned(at)?, part);
        pieces.filter(|pieces| pieces.iter().all(is_piece)).ok_or(damaged_list(slot))
    }

    pub(crate) fn read_branches(
        self,
        slot: SlotId,
        at: Extent,
        part: PieceCrc,
    ) -> Result<Vec<Branch>, HeapError> {
        let branches = list::branches(&self.pinned(at)?, part);
        let is_inside = |branch: &Branch| branch.list.end() <= self.geometry.bytes();
        branches.filter(|branches| branches.iter().all(is_inside)).ok_or(damaged_list(slot))
    }

    /// As [`Self::verify_value`], but pieces in `held` are not read again.
    pub(crate) fn verify_value_once(
        self,
        slot: SlotId,
        view: &RecordView<'_>,
        held: &mut HeldPieces,
    ) -> Result<(), HeapError> {
        let ValuePlace::Pieces(list) = view.value() else { return self.verify_value(slot, view).map(drop) };
        for piece in &self.listed_pieces(slot, view, list)?.pieces {
            if !held.has(piece) {
                if !self.piece_holds(piece)? {
                    return Err(HeapError::Damaged { slot, what: Damage::ValueChecksum });
                }
                held.add(piece);
            }
        }
        Ok(())
    }

    /// Verifies the parts of a value that move: of a value in pieces the moving pieces, of any other value all of it.
    /// Returns the number of bytes verified.
    pub(crate) fn verify_moving(
        self,
        slot: SlotId,
        view: &RecordView<'_>,
        moves: impl Fn(Extent) -> bool,
    ) -> Result<u64, HeapError> {
        let ValuePlace::Pieces(list) = view.value() else {
            return self.verify_value(slot, view).map(|_| view.value_len() as u64);
        };
        let listed = self.listed_pieces(slot, view, list)?;
        let mut bytes = 0;
        for piece in listed.pieces.iter().filter(|piece| moves(piece.extent)) {
            if !self.piece_holds(piece)? {
                return Err(HeapError::Damaged { slot, what: Damage::ValueChecksum });
            }
            bytes += u64::from(piece.extent.len());
        }
        Ok(bytes)
    }

    /// Verifies all pieces of a value.
    pub(crate) fn verify_pieces(
        self,
        slot: SlotId,
        view: &RecordView<'_>,
        list: PieceList,
    ) -> Result<Extents, HeapError> {
        let listed = self.listed_pieces(slot, view, list)?;
        for piece in &listed.pieces {
            if !self.piece_holds(piece)? {
                return Err(HeapError::Damaged { slot, what: Damage::ValueChecksum });
            }
        }
        Ok(listed.extents().collect())
    }

    /// True if the bytes of extents match the checksums of the parts.
    pub(crate) fn parts_hold(self, extents: &[Extent], parts: &[PieceCrc]) -> Result<bool, MediaError> {
        let Some(pieces) = pieces_of_parts(extents, parts) else { return Ok(false) };
        for piece in &pieces {
            if !self.piece_holds(piece)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if the bytes of a piece match its checksum.
    pub(crate) fn piece_holds(self, piece: &Piece) -> Result<bool, MediaError> {
        Ok(crc::of(&self.pinned(piece.extent)?) == piece.crc)
    }
}

fn damaged_list(slot: SlotId) -> HeapError {
    HeapError::Damaged { slot, what: Damage::ExtentList }
}
