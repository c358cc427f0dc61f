//! Appending the records and values that the compactor moves.

use crate::copies::CopyPath;
use crate::error::HeapError;
use crate::extents::Extents;
use crate::forwards::Part;
use crate::layout::SlotId;
use crate::record::{Check, Draft, Fields, KeyPlace, RecordView, ValuePlace};
use crate::writer::{Pieces, Urgency, Writer};
use landfall_media::{Extent, Sum};
use std::sync::Arc;

impl Writer {
    /// Appends a copy of a current record with the same version and the next revision. The copy has no group: a moved
    /// record is durable, and so is its whole group.
    pub(crate) fn append_moved(
        &mut self,
        slot: SlotId,
        view: &RecordView<'_>,
        moves_data: impl Fn(Extent) -> bool,
    ) -> Result<SlotId, HeapError> {
        self.ensure_slots(1, Urgency::Compact)?;
        let mut pieces = Pieces::default();
        let appended = self.move_record(slot, view, moves_data, &mut pieces);
        self.release_held(&pieces);
        appended
    }

    fn move_record(
        &mut self,
        slot: SlotId,
        view: &RecordView<'_>,
        moves_data: impl Fn(Extent) -> bool,
        pieces: &mut Pieces,
    ) -> Result<SlotId, HeapError> {
        let heap = Arc::clone(&self.heap);
        let mut draft = Draft::new(&Fields {
            kind: view.kind(),
            space: view.space(),
            seq: view.seq(),
            rev: view.rev().saturating_add(1),
            hash: view.hash(),
            arrival_ns: view.arrival_ns(),
            expiry_ms: view.expiry_ms(),
            aux: view.aux(),
        });
        match view.key() {
            KeyPlace::Inline(key) => draft.key_inline(key),
            KeyPlace::Stored(at) => {
                let bytes = heap.media.bytes(at)?;
                let at = if moves_data(at) {
                    self.place_contiguous(bytes, CopyPath::Moved, &mut pieces.held)?
                } else {
                    pieces.again.push(at);
                    at
                };
                pieces.refers.push(at);
                draft.key_stored(at);
            }
        }
        match view.value() {
            ValuePlace::Inline(bytes) => draft.value_inline(bytes, view.check().crc().unwrap_or_default()),
            _ => self.move_value(slot, view, moves_data, &mut draft, pieces)?,
        }
        if view.is_shared() {
            draft.shared();
        }
        self.write_record(draft, pieces)
    }

    fn move_value(
        &mut self,
        slot: SlotId,
        view: &RecordView<'_>,
        moves_data: impl Fn(Extent) -> bool,
        draft: &mut Draft,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        let heap = Arc::clone(&self.heap);
        if let ValuePlace::Pieces(list) = view.value() {
            let listed = heap.reader().listed_pieces(slot, view, list)?;
            return self.move_pieces(&listed, &moves_data, draft, pieces);
        }
        let mut extents = Extents::new();
        // Only the part of an extent that lies in the run being emptied is moved.
        for piece in heap.value_extents(slot, view)?.into_iter().flat_map(Extent::by_run) {
            self.move_piece(piece, &moves_data, &mut extents, pieces)?;
        }
        if view.check() != Check::Sums {
            return self.refer_to(&joined(&extents), view.check(), draft, pieces);
        }
        // The compactor has verified the value, so the sums of the new extents certify the same bytes.
        for extent in extents.iter_mut().filter(|extent| extent.sum().is_none()) {
            *extent = extent.with_sum(Some(Sum::of(&heap.pinned(*extent)?)));
        }
        self.refer_to(&extents, Check::Sums, draft, pieces)
    }

    /// Finds the place to which the copy refers for a piece: the place to which it was moved for another record that
    /// shares it, a new place, or the old one.
    pub(crate) fn move_piece(
        &mut self,
        piece: Extent,
        moves_data: &impl Fn(Extent) -> bool,
        extents: &mut Extents,
        pieces: &mut Pieces,
    ) -> Result<(), HeapError> {
        for Part { old, new } in self.forwards.parts(piece) {
            if let Some(new) = new.filter(|new| self.are_alike(old, *new)) {
                pieces.again.push(new);
                extents.push(new);
            } else if moves_data(old) {
                let placed = self.place_moved(old, pieces)?;
                extents.extend(placed);
            } else {
                pieces.again.push(old);
                extents.push(old);
            }
        }
        Ok(())
    }

    /// Compares the bytes of both places: a note alone does not suffice.
    fn are_alike(&self, old: Extent, new: Extent) -> bool {
        let bytes = |extent| self.heap.pinned(extent);
        matches!((bytes(old), bytes(new)), (Ok(old), Ok(new)) if *old == *new)
    }

    fn place_moved(&mut self, old: Extent, pieces: &mut Pieces) -> Result<Extents, HeapError> {
        let heap = Arc::clone(&self.heap);
        let is_shared = heap.runs.is_shared(old);
        let placed = self.place(heap.media.bytes(old)?, CopyPath::Moved, &mut pieces.held)?;
        if is_shared {
            self.forwards.note(&heap, old, &placed);
        }
        Ok(placed)
    }
}

/// The extents, adjacent ones joined.
fn joined(extents: &[Extent]) -> Extents {
    let mut out = Extents::new();
    for extent in extents {
        match out.last_mut() {
            Some(last) if last.end() == extent.off => last.grow(extent.len()),
            _ => out.push(*extent),
        }
    }
    out
}
