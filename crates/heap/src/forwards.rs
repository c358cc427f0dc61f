//! New places of moved bytes that several records share, so that all of the records refer to one copy.
//! `docs/format/compaction.md`.

use crate::extents::Extents;
use crate::heap::Heap;
use crate::layout::RunId;
use landfall_media::Extent;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Most pieces that are noted, which takes some megabytes of memory.
const FORWARDS_MAX: usize = 1 << 16;

/// Moved pieces of the run that is being emptied, and of the runs that are emptied with it. The old and the new place
/// of each are held.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    /// The pieces by their old offset.
    pieces: BTreeMap<u64, Forward>,
    /// Runs that contain old places.
    runs: BTreeSet<RunId>,
    /// Replaced lists of pieces and their replacements, by old offset. Both are held.
    lists: BTreeMap<u64, (Extent, Extent)>,
}

#[derive(Clone, Copy, Debug)]
struct Forward {
    len: u32,
    new: u64,
}

/// A part of a piece, and its new place if it has been moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) old: Extent,
    pub(crate) new: Option<Extent>,
}

impl Forwards {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.lists.is_empty()
    }

    /// Runs out of which pieces have been moved.
    pub(crate) fn runs(&self) -> &BTreeSet<RunId> {
        &self.runs
    }

    /// True if a part of the extent has been moved.
    pub(crate) fn touches(&self, extent: Extent) -> bool {
        let last = self.pieces.range(..extent.end()).next_back();
        last.is_some_and(|(off, forward)| off + u64::from(forward.len) > extent.off)
    }

    /// Notes that the shared piece `old` has been copied to `placed`, in order. The caller holds `placed`.
    pub(crate) fn note(&mut self, heap: &Heap, old: Extent, placed: &Extents) {
        if self.pieces.len() + placed.len() > FORWARDS_MAX || self.touches(old) {
            heap.note_unshared(u64::from(old.len()));
            return;
        }
        let mut off = old.off;
        for new in placed {
            heap.runs.hold(Extent::new(off, new.len()));
            // The note counts as a reference to the new place: it may outlive the first copy.
            heap.runs.refer_unnamed(*new);
            heap.runs.share(*new);
            self.pieces.insert(off, Forward { len: new.len(), new: new.off });
            off += u64::from(new.len());
        }
        self.runs.insert(RunId::of(old.off));
    }

    /// Notes that the shared list of pieces `old` has been replaced by `new`.
    pub(crate) fn note_list(&mut self, heap: &Heap, old: Extent, new: Extent) {
        if self.lists.len() < FORWARDS_MAX && !self.lists.contains_key(&old.off) {
            heap.runs.hold(old);
            heap.runs.refer_unnamed(new);
            heap.runs.share(new);
            self.lists.insert(old.off, (old, new));
        }
    }

    /// The replacement of a list.
    pub(crate) fn list(&self, old: Extent) -> Option<Extent> {
        self.lists.get(&old.off).filter(|(known, _)| *known == old).map(|(_, new)| *new)
    }

    /// The piece, split where moved parts begin and end.
    pub(crate) fn parts(&self, piece: Extent) -> SmallVec<[Part; 1]> {
        if !self.touches(piece) {
            return SmallVec::from_slice(&[Part { old: piece, new: None }]);
        }
        let before = self.pieces.range(..=piece.off).next_back().map_or(piece.off, |(off, _)| *off);
        let (mut parts, mut at) = (SmallVec::new(), piece.off);
        for (off, Forward { len, new }) in self.pieces.range(before..piece.end()) {
            let (start, end) = ((*off).max(at), (off + u64::from(*len)).min(piece.end()));
            if start >= end {
                continue;
            }
            if start > at {
                parts.push(Part { old: cut(at, start), new: None });
            }
            let moved = new + (start - off);
            parts.push(Part { old: cut(start, end), new: Some(cut(moved, moved + (end - start))) });
            at = end;
        }
        if at < piece.end() {
            parts.push(Part { old: cut(at, piece.end()), new: None });
        }
        parts
    }

    /// Releases all notes: the run has been processed. Records that still refer to an old place do not share it with
    /// the moved ones any more.
    pub(crate) fn end(&mut self, heap: &Heap) {
        for run in std::mem::take(&mut self.runs) {
            let live = u64::from(heap.runs.get(run).live_bytes());
            let noted = self.pieces.range(run.off()..RunId(run.0 + 1).off());
            let bytes: u64 = noted.map(|(_, forward)| u64::from(forward.len)).sum();
            heap.note_unshared(bytes.min(live));
        }
        for (old, new) in std::mem::take(&mut self.lists).into_values() {
            heap.runs.release(old);
            heap.runs.unrefer(new);
        }
        for (off, Forward { len, new }) in std::mem::take(&mut self.pieces) {
            heap.runs.release(Extent::new(off, len));
            heap.runs.unrefer(Extent::new(new, len));
        }
    }
}

fn cut(start: u64, end: u64) -> Extent {
    Extent::new(start, (end - start) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_split_where_parts_of_it_have_been_moved() {
        let mut forwards = Forwards::default();
        for (off, len, new) in [(100, 50, 9000), (200, 10, 7000), (210, 10, 8000)] {
            forwards.pieces.insert(off, Forward { len, new });
        }
        let part = |old: (u64, u32), new: Option<u64>| Part {
            old: Extent::new(old.0, old.1),
            new: new.map(|new| Extent::new(new, old.1)),
        };
        let parts = |off, len| forwards.parts(Extent::new(off, len)).to_vec();
        assert_eq!(parts(110, 20), [part((110, 20), Some(9010))]);
        assert_eq!(parts(0, 100), [part((0, 100), None)]);
        assert_eq!(parts(150, 50), [part((150, 50), None)]);
        assert_eq!(
            parts(90, 200),
            [
                part((90, 10), None),
                part((100, 50), Some(9000)),
                part((150, 50), None),
                part((200, 10), Some(7000)),
                part((210, 10), Some(8000)),
                part((220, 70), None),
            ]
        );
        assert!(!forwards.touches(Extent::new(220, 5)) && forwards.touches(Extent::new(219, 5)));
    }
}
