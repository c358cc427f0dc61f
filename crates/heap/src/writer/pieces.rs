//! Writing values in pieces.

use super::{Pieces, Writer};
use crate::copies::CopyPath;
use crate::error::HeapError;
use crate::extents::Extents;
use crate::layout::SlotId;
use crate::pieces::Certified;
use crate::pieces::list::{self, Branch, LIST_PIECES_FIRST, LIST_PIECES_MAX};
use crate::pieces::patch::{Part, PartBytes, Patch, PatchList};
use crate::pieces::piece::{Crcs, Piece, PieceCrc, whole};
use crate::pieces::read::ListedPieces;
use crate::record::{Draft, PieceDepth, PieceList};
use crate::superblock::FEATURE_PIECES;
use landfall_media::Extent;
use smallvec::SmallVec;
use std::sync::Arc;

/// A list that is replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldList {
    at: Extent,
    /// The list lies in a run that is being emptied.
    moves: bool,
}

impl Writer {
    /// Adds references to `extents` to the draft.
    pub(crate) fn refer_certified(
        &mut self,
        extents: &[Extent],
        certified: &Certified,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        match certified {
            Certified::Whole(check) => self.refer_to(extents, *check, draft, pieces),
            Certified::Pieces(all) => self.refer_to_pieces(all, draft, pieces),
        }
    }

    /// Writes lists for a value in pieces and adds them to the draft.
    pub(crate) fn refer_to_pieces(
        &mut self,
        all: &[Piece],
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        pieces.refers.extend(all.iter().map(|piece| piece.extent));
        let mut branches: SmallVec<[Branch; 1]> = SmallVec::new();
        for some in all.chunks(LIST_PIECES_FIRST) {
            let list = self.place_list(&list::of_pieces(some), pieces)?;
            branches.push(Branch::new(list, some));
        }
        self.refer_to_branches(&branches, None, draft, pieces)
    }

    /// Adds the existing lists of a value in pieces to the draft.
    pub(crate) fn refer_to_listed(
        &mut self,
        list: PieceList,
        (len, known): (u64, Crcs<'_>),
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        self.heap.require_features(FEATURE_PIECES)?;
        let part = PieceCrc { len: len as u32, crc: known.whole() };
        let listed = self.heap.reader().listed(SlotId::NONE, list, part)?;
        pieces.refers.extend(listed.all());
        pieces.again.extend(listed.all());
        draft.value_pieces(list, part.len, part.crc);
        Ok(())
    }

    /// Adds a patched value to the draft. References that it takes over from its base are not counted again.
    pub(crate) fn refer_to_patch(
        &mut self,
        patch: &Patch,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        let mut branches: SmallVec<[Branch; 8]> = SmallVec::new();
        for list in patch.lists() {
            let parts = match list {
                PatchList::Kept(branch) => {
                    branches.push(*branch);
                    continue;
                }
                PatchList::New(parts) => parts,
            };
            let mut placed = Vec::with_capacity(parts.len());
            for part in parts {
                let extent = self.place_part(part, pieces)?;
                placed.push(Piece { extent, crc: part.part.crc });
            }
            let at = self.place_list(&list::of_pieces(&placed), pieces)?;
            branches.push(Branch::new(at, &placed));
        }
        self.refer_to_branches(&branches, None, draft, pieces)
    }

    fn place_part(&mut self, part: &Part, pieces: &mut Pieces) -> Result<Extent, HeapError> {
        let extent = match &part.bytes {
            PartBytes::Kept(extent) => return Ok(*extent),
            PartBytes::Cut(extent) => {
                pieces.again.push(*extent);
                *extent
            }
            PartBytes::Landed(extent) => {
                self.flush_data(*extent);
                *extent
            }
            PartBytes::Copied(bytes) => self.place_contiguous(bytes, CopyPath::Placed, &mut pieces.held)?,
        };
        pieces.refers.push(extent);
        Ok(extent)
    }

    /// Adds a value with existing lists of pieces to the draft. A list of lists, if needed, replaces `old`.
    pub(super) fn refer_to_branches(
        &mut self,
        branches: &[Branch],
        old: Option<OldList>,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        // The region needs the must-know feature before the first such record.
        self.heap.require_features(FEATURE_PIECES)?;
        let parts = || branches.iter().map(|branch| branch.part);
        let (len, crc) = (parts().map(|part| part.len).sum(), whole(parts()));
        let list = match branches {
            [one] => PieceList { at: one.list, depth: PieceDepth::Pieces },
            many => {
                let at = self.replace_list(old, &list::of_branches(many), pieces)?;
                PieceList { at, depth: PieceDepth::Lists }
            }
        };
        draft.value_pieces(list, len, crc);
        Ok(())
    }

    /// Adds the pieces of a moved record's value to the draft and moves some of them. Moved pieces have been verified.
    pub(crate) fn move_pieces(
        &mut self,
        listed: &ListedPieces,
        moves_data: &impl Fn(Extent) -> bool,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        let mut branches: SmallVec<[Branch; 1]> = SmallVec::new();
        for (at, all) in listed.by_list() {
            let moved = self.moved_pieces(all, moves_data, pieces)?;
            pieces.refers.extend(moved.iter().map(|piece| piece.extent));
            let old = OldList { at, moves: moves_data(at) };
            let mut old = Some(old).filter(|_| moved.len() <= LIST_PIECES_MAX);
            for some in moved.chunks(LIST_PIECES_MAX) {
                let list = self.replace_list(old.take(), &list::of_pieces(some), pieces)?;
                branches.push(Branch::new(list, some));
            }
        }
        let upper = listed.upper.map(|at| OldList { at, moves: moves_data(at) });
        self.refer_to_branches(&branches, upper, draft, pieces)
    }

    fn moved_pieces(
        &mut self,
        all: &[Piece],
        moves_data: &impl Fn(Extent) -> bool,
        pieces: &mut Pieces,
    ) -> Result<Vec<Piece>, HeapError> {
        let heap = Arc::clone(&self.heap);
        let mut moved = Vec::with_capacity(all.len());
        let mut places = Extents::new();
        for piece in all {
            places.clear();
            self.move_piece(piece.extent, moves_data, &mut places, pieces)?;
            match places.as_slice() {
                [one] if *one == piece.extent => moved.push(*piece),
                [one] => moved.push(Piece { extent: *one, crc: piece.crc }),
                many => moved.extend(heap.reader().pieces_of(many)?),
            }
        }
        Ok(moved)
    }

    /// Writes a list in place of an old one. Nothing is written if the old list has these bytes and need not move, or
    /// if it has been replaced by these bytes for another record that shares it.
    fn replace_list(
        &mut self,
        old: Option<OldList>,
        list: &[u8],
        pieces: &mut Pieces,
    ) -> Result<Extent, HeapError> {
        let heap = Arc::clone(&self.heap);
        let Some(OldList { at: old, moves }) = old else { return self.place_list(list, pieces) };
        let stays = Some(old).filter(|_| !moves);
        let replaced = self.forwards.list(old);
        for at in stays.into_iter().chain(replaced) {
            if *heap.pinned(at)? == *list {
                pieces.refers.push(at);
                pieces.again.push(at);
                return Ok(at);
            }
        }
        let is_shared = heap.runs.is_shared(old);
        let new = self.place_list(list, pieces)?;
        if is_shared {
            self.forwards.note_list(&heap, old, new);
        }
        Ok(new)
    }

    pub(super) fn place_list(&mut self, list: &[u8], pieces: &mut Pieces) -> Result<Extent, HeapError> {
        let at = self.place_contiguous(list, CopyPath::List, &mut pieces.held)?;
        pieces.refers.push(at);
        Ok(at)
    }
}
