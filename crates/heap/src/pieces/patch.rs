//! Changing a stored value in pieces. Unchanged pieces are kept by reference, with their lists.
//!
//! The next version of the key takes over the references of the version that it replaces. So the cost depends on the
//! size of the change, not of the value: `docs/format/frames.md`.

use super::list::{self, Branch, LIST_PIECES_MAX};
use super::piece::{Crcs, PIECE_BYTES_MAX, Piece, PieceCrc, pieces_of_parts};
use super::read::part_of;
use crate::crc;
use crate::error::{Damage, HeapError};
use crate::extents::{Extents, total_len};
use crate::heap::Heap;
use crate::layout::{RunId, SlotId};
use crate::pin::Pinned;
use crate::record::{KeyPlace, PieceDepth, RecordView, ValuePlace};
use landfall_media::{Extent, MediaError};
use std::ops::Range;
use std::sync::Arc;

/// Shorter changes are copied, together with neighbouring bytes up to this length. A list entry for a few bytes, or the
/// frame in which they landed, would cost more.
const SHORT: usize = 4096;
/// A list with fewer pieces is joined with its neighbour.
const LIST_PIECES_MIN: usize = 64;

/// A new version of a stored value in pieces.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The version that the patch changes.
    of: SlotId,
    lists: Vec<List>,
    /// Extents to which the old version refers and the new one does not.
    gone: Vec<Extent>,
    /// Landed extents of the changes. The caller that stages the patch holds them.
    landed: Extents,
    /// Records of other keys may refer to the kept extents.
    shared: bool,
}

#[derive(Clone, Debug)]
enum List {
    /// A list of the old version.
    Kept(Branch),
    /// A list that is being changed.
    Open(Vec<Part>),
}

/// A piece of the new version.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: PartBytes,
    pub(crate) part: PieceCrc,
}

#[derive(Clone, Debug)]
pub(crate) enum PartBytes {
    /// A piece of the old version.
    Kept(Extent),
    /// A part of a piece of the old version.
    Cut(Extent),
    /// Landed bytes of a change.
    Landed(Extent),
    /// Bytes that will be placed.
    Copied(Arc<[u8]>),
}

/// A list of the new version, for writing.
pub(crate) enum PatchList<'a> {
    /// An unchanged list.
    Kept(&'a Branch),
    /// A new list.
    New(&'a [Part]),
}

/// The bytes of a change.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Bytes outside the region.
    Bytes(&'a [u8]),
    /// Landed extents with their known checksums. The caller holds the extents until the change is staged.
    Landed(&'a [Extent], Option<Crcs<'a>>),
}

impl Change<'_> {
    /// Length, bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Landed(extents, _) => total_len(extents),
        }
    }

    /// True if the change has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl List {
    fn len(&self) -> u64 {
        match self {
            Self::Kept(branch) => u64::from(branch.part.len),
            Self::Open(parts) => parts.iter().map(|part| u64::from(part.part.len)).sum(),
        }
    }
}

impl Part {
    fn copied(bytes: Arc<[u8]>) -> Self {
        let part = PieceCrc { len: bytes.len() as u32, crc: crc::of(&bytes) };
        Self { bytes: PartBytes::Copied(bytes), part }
    }

    fn of_piece(piece: &Piece) -> Self {
        Self { bytes: PartBytes::Kept(piece.extent), part: piece.part() }
    }

    /// Its extent, if it lies in frames.
    pub(crate) fn extent(&self) -> Option<Extent> {
        match &self.bytes {
            PartBytes::Kept(extent) | PartBytes::Cut(extent) | PartBytes::Landed(extent) => Some(*extent),
            PartBytes::Copied(_) => None,
        }
    }
}

impl Patch {
    /// A patch without changes of a current record's value in pieces. The caller has the lock that keeps the record
    /// current. `None` if the value is not in pieces.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if its list fails its checks.
    pub fn of(heap: &Heap, slot: SlotId, view: &RecordView<'_>) -> Result<Option<Self>, HeapError> {
        let ValuePlace::Pieces(list) = view.value() else { return Ok(None) };
        if !heap.is_counted(slot) {
            return Err(HeapError::Damaged { slot, what: Damage::RecordFields });
        }
        heap.fetch(&[list.at])?;
        let lists = match list.depth {
            PieceDepth::Pieces => {
                let pieces = heap.reader().read_pieces(slot, list.at, part_of(view))?;
                vec![List::Open(pieces.iter().map(Part::of_piece).collect())]
            }
            PieceDepth::Lists => {
                let branches = heap.reader().read_branches(slot, list.at, part_of(view))?;
                // All lists are needed later, to note the new referrer of the kept pieces.
                heap.fetch(&branches.iter().map(|branch| branch.list).collect::<Vec<_>>())?;
                branches.into_iter().map(List::Kept).collect()
            }
        };
        let mut gone = vec![list.at];
        // The new version stores its own key.
        if let KeyPlace::Stored(key) = view.key() {
            gone.push(key);
        }
        let landed = Extents::new();
        Ok(Some(Self { of: slot, lists, gone, landed, shared: view.is_shared() }))
    }

    /// The version that the patch changes.
    pub fn base(&self) -> SlotId {
        self.of
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        self.lists.iter().map(List::len).sum()
    }

    /// True if the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimate of the bytes that will be placed: copied bytes and lists.
    pub fn placed_bytes(&self) -> u64 {
        let copied = |part: &Part| if let PartBytes::Copied(_) = part.bytes { part.part.len } else { 0 };
        let of_list = |list: &List| match list {
            List::Kept(_) => list::ENTRY_SIZE as u64,
            List::Open(parts) => {
                parts.iter().map(|part| u64::from(copied(part)) + list::ENTRY_SIZE as u64).sum()
            }
        };
        self.lists.iter().map(of_list).sum()
    }

    /// Landed extents of the changes, to be held until the record refers to them.
    pub fn landed(&self) -> &[Extent] {
        &self.landed
    }

    /// True if records of other keys may refer to the kept extents.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Extents to which the old version refers and the new one does not.
    pub fn gone(&self) -> &[Extent] {
        &self.gone
    }

    /// The lists, in order.
    pub(crate) fn lists(&self) -> impl Iterator<Item = PatchList<'_>> {
        self.lists.iter().map(|list| match list {
            List::Kept(branch) => PatchList::Kept(branch),
            List::Open(parts) => PatchList::New(parts),
        })
    }

    /// The bytes of the new version.
    ///
    /// # Errors
    /// [`HeapError::Damaged`]; the medium's.
    pub fn to_vec(&self, heap: &Heap) -> Result<Vec<u8>, HeapError> {
        let mut all = Vec::with_capacity(self.len() as usize);
        for list in &self.lists {
            let kept;
            let parts = match list {
                List::Open(parts) => parts,
                List::Kept(branch) => {
                    let pieces = heap.reader().read_pieces(self.of, branch.list, branch.part)?;
                    kept = pieces.iter().map(Part::of_piece).collect();
                    &kept
                }
            };
            for part in parts {
                all.extend_from_slice(&verified(heap, self.of, part)?);
            }
        }
        Ok(all)
    }

    /// Appends zeroes.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_zeroes(&mut self, heap: &Heap, len: u64) -> Result<(), HeapError> {
        if len == 0 {
            return Ok(());
        }
        let whole = Part::copied(vec![0; PIECE_BYTES_MAX as usize].into());
        let (count, rest) = (len / u64::from(PIECE_BYTES_MAX), len % u64::from(PIECE_BYTES_MAX));
        let last = self.lists.len() - 1;
        self.open(heap, last)?;
        if let List::Open(parts) = &mut self.lists[last] {
            parts.extend((0..count).map(|_| whole.clone()));
        }
        self.balance(heap, last)?;
        if rest > 0 { self.append(heap, Change::Bytes(&vec![0; rest as usize])) } else { Ok(()) }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if a short piece that is joined with the bytes fails its check; the medium's.
    pub fn append(&mut self, heap: &Heap, change: Change<'_>) -> Result<(), HeapError> {
        self.note_landed(heap, change);
        let mut new = parts_of(heap, change)?;
        let last = self.lists.len() - 1;
        self.open(heap, last)?;
        if let [Part { bytes: PartBytes::Copied(bytes), .. }] = new.as_slice() {
            let joined = self.join_short(heap, bytes)?;
            new = vec![Part::copied(joined.into())];
        }
        let List::Open(parts) = &mut self.lists[last] else { return Ok(()) };
        parts.append(&mut new);
        self.balance(heap, last)
    }

    /// Joins short pieces at the end with the appended bytes, as long as a piece is at most twice as long as the bytes
    /// behind it. So each byte is copied only a few times, and few short pieces are left.
    fn join_short(&mut self, heap: &Heap, bytes: &[u8]) -> Result<Vec<u8>, HeapError> {
        let mut joined = bytes.to_vec();
        let Some(List::Open(parts)) = self.lists.last_mut() else { return Ok(joined) };
        while let Some(last) = parts.pop_if(|last| {
            let len = last.part.len as usize;
            len + joined.len() <= SHORT && len <= 2 * joined.len()
        }) {
            let mut longer = verified(heap, self.of, &last)?.to_vec();
            longer.append(&mut joined);
            joined = longer;
            if let PartBytes::Kept(extent) = last.bytes {
                self.gone.push(extent);
            }
        }
        Ok(joined)
    }

    /// Overwrites bytes from `at` on, and appends the bytes beyond the end. `at` may be the end of the value.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if a piece of which a part is kept fails its check; the medium's.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn overwrite(&mut self, heap: &Heap, at: u64, change: Change<'_>) -> Result<(), HeapError> {
        let len = self.len();
        assert!(at <= len, "a change begins within the value");
        if change.is_empty() {
            return Ok(());
        }
        if at == len {
            return self.append(heap, change);
        }
        self.note_landed(heap, change);
        let range = at..(at + change.len()).min(len);
        let (first, skip) = self.list_at(range.start);
        let (last, _) = self.list_at(range.end - 1);
        let taken = self.take_lists(heap, first..last + 1)?;
        let range = (range.start - skip) as usize..(range.end - skip) as usize;
        let parts = self.replaced(heap, taken, range, change)?;
        self.lists.insert(first, List::Open(parts));
        self.balance(heap, first)
    }

    fn note_landed(&mut self, heap: &Heap, change: Change<'_>) {
        if let Change::Landed(extents, _) = change
            && change.len() >= SHORT as u64
        {
            extents.iter().for_each(|extent| heap.runs.hold(*extent));
            self.landed.extend_from_slice(extents);
        }
    }

    /// The list with the byte at `at`, and its offset in the value.
    fn list_at(&self, at: u64) -> (usize, u64) {
        let mut begin = 0;
        for (index, list) in self.lists.iter().enumerate() {
            let end = begin + list.len();
            if at < end {
                return (index, begin);
            }
            begin = end;
        }
        (self.lists.len() - 1, begin)
    }

    fn open(&mut self, heap: &Heap, index: usize) -> Result<(), HeapError> {
        if let List::Kept(branch) = &self.lists[index] {
            let pieces = heap.reader().read_pieces(self.of, branch.list, branch.part)?;
            self.gone.push(branch.list);
            self.lists[index] = List::Open(pieces.iter().map(Part::of_piece).collect());
        }
        Ok(())
    }

    /// Removes lists and returns their pieces.
    fn take_lists(&mut self, heap: &Heap, lists: Range<usize>) -> Result<Vec<Part>, HeapError> {
        for index in lists.clone() {
            self.open(heap, index)?;
        }
        let taken = self.lists.drain(lists).map(|list| match list {
            List::Open(parts) => parts,
            List::Kept(_) => Vec::new(),
        });
        Ok(taken.flatten().collect())
    }

    /// The parts, with the bytes of `range` replaced.
    fn replaced(
        &mut self,
        heap: &Heap,
        parts: Vec<Part>,
        range: Range<usize>,
        change: Change<'_>,
    ) -> Result<Vec<Part>, HeapError> {
        let (first, begin) = part_at(&parts, range.start);
        let (last, last_begin) = part_at(&parts, range.end - 1);
        let end = last_begin + parts[last].part.len as usize;
        let (mut before, mut behind) = (range.start - begin, end - range.end);
        let mut new = parts_of(heap, change)?;
        if let [Part { bytes: PartBytes::Copied(bytes), .. }] = new.as_slice()
            && bytes.len() < SHORT
        {
            // Short remainders beside a short change are copied with it.
            let head = if before > 0 { verified(heap, self.of, &parts[first])?.to_vec() } else { Vec::new() };
            let tail = if behind > 0 { verified(heap, self.of, &parts[last])?.to_vec() } else { Vec::new() };
            let taken_before = taken(before, SHORT.saturating_sub(bytes.len()));
            let taken_behind = taken(behind, SHORT.saturating_sub(bytes.len() + taken_before));
            let tail_from = tail.len() - behind;
            let joined =
                [&head[before - taken_before..before], bytes, &tail[tail_from..tail_from + taken_behind]]
                    .concat();
            new = vec![Part::copied(joined.into())];
            (before, behind) = (before - taken_before, behind - taken_behind);
        }
        let mut all = parts[..first].to_vec();
        all.extend(self.remainder(heap, &parts[first], 0..before)?);
        all.append(&mut new);
        let last_len = parts[last].part.len as usize;
        all.extend(self.remainder(heap, &parts[last], last_len - behind..last_len)?);
        all.extend_from_slice(&parts[last + 1..]);
        for part in &parts[first..=last] {
            if let PartBytes::Kept(extent) = part.bytes {
                self.gone.push(extent);
            }
        }
        Ok(all)
    }

    /// The part `range` of a piece, which is kept.
    fn remainder(&self, heap: &Heap, part: &Part, range: Range<usize>) -> Result<Option<Part>, HeapError> {
        if range.is_empty() {
            return Ok(None);
        }
        let whole = verified(heap, self.of, part)?;
        let bytes = &whole[range.clone()];
        let (len, crc) = (range.len() as u32, crc::of(bytes));
        let within = |extent: Extent| Extent::new(extent.off + range.start as u64, len);
        let bytes = match &part.bytes {
            PartBytes::Kept(extent) | PartBytes::Cut(extent) => PartBytes::Cut(within(*extent)),
            PartBytes::Landed(extent) => PartBytes::Landed(within(*extent)),
            PartBytes::Copied(_) => PartBytes::Copied(bytes.into()),
        };
        Ok(Some(Part { bytes, part: PieceCrc { len, crc } }))
    }

    /// Joins a short list with its neighbour, and splits a long list.
    fn balance(&mut self, heap: &Heap, index: usize) -> Result<(), HeapError> {
        let count = |list: &List| if let List::Open(parts) = list { parts.len() } else { usize::MAX };
        let mut index = index;
        if count(&self.lists[index]) < LIST_PIECES_MIN && self.lists.len() > 1 {
            index = index.saturating_sub(1);
            let joined = self.take_lists(heap, index..index + 2)?;
            self.lists.insert(index, List::Open(joined));
        }
        let List::Open(parts) = &mut self.lists[index] else { return Ok(()) };
        if parts.len() > LIST_PIECES_MAX {
            let parts = std::mem::take(parts);
            let size = parts.len().div_ceil(parts.len().div_ceil(LIST_PIECES_MAX));
            let split: Vec<List> = parts.chunks(size).map(|some| List::Open(some.to_vec())).collect();
            drop(self.lists.splice(index..=index, split));
        }
        Ok(())
    }
}

/// Number of the `len` bytes beside a short change that are copied with it: those that it lacks, and all if the
/// remainder would be short.
fn taken(len: usize, lacks: usize) -> usize {
    if len < SHORT + lacks { len } else { lacks }
}

/// The part with the byte at `at`, and its offset.
fn part_at(parts: &[Part], at: usize) -> (usize, usize) {
    let mut begin = 0;
    for (index, part) in parts.iter().enumerate() {
        let end = begin + part.part.len as usize;
        if at < end {
            return (index, begin);
        }
        begin = end;
    }
    (parts.len().saturating_sub(1), begin)
}

/// The verified bytes of a part.
fn verified<'a>(heap: &'a Heap, slot: SlotId, part: &'a Part) -> Result<Pinned<'a>, HeapError> {
    let bytes = match (&part.bytes, part.extent()) {
        (PartBytes::Copied(bytes), _) => Pinned::always(bytes),
        (_, extent) => {
            let extent = extent.unwrap_or_default();
            heap.fetch(&[extent])?;
            heap.pinned(extent)?
        }
    };
    if crc::of(&bytes) == part.part.crc {
        Ok(bytes)
    } else {
        Err(HeapError::Damaged { slot, what: Damage::ValueChecksum })
    }
}

/// The pieces of a change. A short change is copied, a landed one stays in its frames.
fn parts_of(heap: &Heap, change: Change<'_>) -> Result<Vec<Part>, MediaError> {
    match change {
        Change::Landed(extents, _) if change.len() < SHORT as u64 => {
            let mut bytes = Vec::with_capacity(SHORT);
            for extent in extents {
                bytes.extend_from_slice(&heap.pinned(*extent)?);
            }
            Ok(copied(&bytes))
        }
        Change::Landed(extents, known) => {
            let known = match known {
                Some(Crcs::Parts(parts)) => pieces_of_parts(extents, parts),
                _ => None,
            };
            let pieces = known.map_or_else(|| heap.reader().pieces_of(extents), Ok)?;
            let part = |piece: &Piece| Part { bytes: PartBytes::Landed(piece.extent), part: piece.part() };
            Ok(pieces.iter().map(part).collect())
        }
        Change::Bytes(bytes) => Ok(copied(bytes)),
    }
}

fn copied(bytes: &[u8]) -> Vec<Part> {
    bytes.chunks(PIECE_BYTES_MAX as usize).map(|some| Part::copied(some.into())).collect()
}

impl Heap {
    /// The record in `new` replaces the one in `old` and keeps most of its references. Makes `new` a referrer of their
    /// runs instead of `old`, for the compactor.
    pub(crate) fn take_over(&self, old: SlotId, new: SlotId, patch: &Patch) {
        let mut runs = Vec::new();
        for list in &patch.lists {
            match list {
                List::Kept(branch) => {
                    runs.push(RunId::of(branch.list.off));
                    let Ok(bytes) = self.pinned(branch.list) else { continue };
                    let is_inside = |off: &u64| *off < self.geometry.bytes();
                    runs.extend(list::offsets(&bytes).filter(is_inside).map(RunId::of));
                }
                List::Open(parts) => {
                    let kept = |part: &Part| match part.bytes {
                        PartBytes::Kept(extent) => Some(RunId::of(extent.off)),
                        _ => None,
                    };
                    runs.extend(parts.iter().filter_map(kept));
                }
            }
        }
        runs.dedup();
        runs.sort_unstable();
        runs.dedup();
        runs.into_iter().for_each(|run| self.runs.get(run).referrers.lock().take_over(old, new));
    }
}
