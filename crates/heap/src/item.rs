//! A value that was read, held in its frames until it is dropped or handed to a transport.

use crate::crc;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::pieces::piece::{Crcs, KeptCrcs, Piece, PieceCrc};
use crate::record::{Check, PieceList, RecordView, ValuePlace};
use landfall_media::{Extent, MediaError};
use smallvec::SmallVec;
use std::borrow::Cow;

/// Bytes of an inline value, at most a record's body.
type InlineBytes = SmallVec<[u8; 64]>;

/// Where the bytes of a value are.
#[derive(Debug)]
enum Body {
    /// Copied out of the record.
    Inline(InlineBytes),
    /// In one extent, which is held.
    Whole(Extent),
    /// In several extents or none. Each is held.
    Pieces(Box<[Extent]>),
}

impl Body {
    fn of(extents: &[Extent]) -> Self {
        match extents {
            [whole] => Self::Whole(*whole),
            pieces => Self::Pieces(pieces.into()),
        }
    }

    fn extents(&self) -> &[Extent] {
        match self {
            Self::Inline(_) => &[],
            Self::Whole(extent) => std::slice::from_ref(extent),
            Self::Pieces(pieces) => pieces,
        }
    }
}

/// The current value of a key, or a log's entry. Its frames are held, so they are not reused until the item is dropped,
/// or until the receiver of [`Item::hand_over`] releases them.
#[derive(Debug)]
pub struct Item<'h> {
    heap: &'h Heap,
    /// The record.
    pub slot: SlotId,
    /// Version, which is the ETag.
    pub seq: u64,
    /// Arrival of the value, Unix nanoseconds.
    pub arrival_ns: u64,
    /// Expiry of the key, Unix milliseconds; 0 never.
    pub expiry_ms: u64,
    /// Length, bytes.
    pub len: usize,
    /// The checksum of the value.
    pub check: Check,
    /// Records of other keys may refer to the same bytes.
    pub shared: bool,
    /// Extents of the value to which no record refers yet.
    pub unrecorded: Box<[Extent]>,
    body: Body,
    /// Checksums of the pieces; empty for a value that is not in pieces.
    parts: Box<[PieceCrc]>,
    /// The list of its pieces.
    list: Option<PieceList>,
}

impl<'h> Item<'h> {
    /// Holds the value of a record. The caller has the lock that keeps the record current.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if the list of a long value fails its check.
    pub fn hold(heap: &'h Heap, slot: SlotId, view: &RecordView<'_>) -> Result<Self, HeapError> {
        let (mut parts, mut listed) = (Box::default(), None);
        let body = match view.value() {
            ValuePlace::Inline(bytes) => Body::Inline(InlineBytes::from_slice(bytes)),
            ValuePlace::Pieces(list) => {
                let pieces = heap.reader().listed_pieces_in_memory(slot, view, list)?.pieces;
                listed = Some(list);
                parts = pieces.iter().map(|piece| piece.part()).collect();
                Body::of(&joined(&pieces))
            }
            ValuePlace::Extents(list) if list.len() <= 1 => Body::of(list.iter().next().as_slice()),
            _ => {
                if let ValuePlace::Indirect(list) = view.value() {
                    heap.fetch(&[list])?;
                }
                Body::of(&heap.value_extents(slot, view)?)
            }
        };
        let mut item = Self::with_body(heap, slot, view, body);
        (item.parts, item.list) = (parts, listed);
        Ok(item)
    }

    /// Holds consecutive pieces of a value in pieces, or no bytes of any value.
    pub(crate) fn hold_pieces(heap: &'h Heap, slot: SlotId, view: &RecordView<'_>, pieces: &[Piece]) -> Self {
        let mut item = Self::with_body(heap, slot, view, Body::of(&joined(pieces)));
        item.parts = pieces.iter().map(|piece| piece.part()).collect();
        item.len = pieces.iter().map(|piece| piece.extent.len() as usize).sum();
        item.check = Check::Crc(Crcs::Parts(&item.parts).whole());
        item
    }

    /// Holds some extents of a value that is certified by the sums of its extents.
    pub(crate) fn hold_extents(
        heap: &'h Heap,
        slot: SlotId,
        view: &RecordView<'_>,
        extents: &[Extent],
    ) -> Self {
        let mut item = Self::with_body(heap, slot, view, Body::of(extents));
        item.len = extents.iter().map(|extent| extent.len() as usize).sum();
        item
    }

    fn with_body(heap: &'h Heap, slot: SlotId, view: &RecordView<'_>, body: Body) -> Self {
        if let Some(first) = body.extents().first() {
            // The counts and the bytes are fetched at once. Otherwise each change of a count would wait for the one before.
            heap.prefetch_value(*first);
        }
        body.extents().iter().for_each(|extent| heap.runs().hold(*extent));
        Self {
            heap,
            slot,
            seq: view.seq(),
            arrival_ns: view.arrival_ns(),
            expiry_ms: view.expiry_ms(),
            len: view.value_len(),
            check: view.check(),
            shared: view.is_shared(),
            unrecorded: Box::default(),
            body,
            parts: Box::default(),
            list: None,
        }
    }

    /// True if the bytes match their checksums. What the heap's loader could not read a moment ago is not read again.
    ///
    /// # Errors
    /// The medium's.
    pub fn verify(&self) -> Result<bool, MediaError> {
        self.heap.reader().check_loaded(self.extents())?;
        match &self.body {
            Body::Inline(bytes) => Ok(self.check == Check::Crc(crc::of(bytes))),
            body if !self.parts.is_empty() => self.heap.reader().parts_hold(body.extents(), &self.parts),
            body => self.heap.reader().held_match(body.extents(), self.check),
        }
    }

    /// Requests evicted bytes of the value: [`Heap::fetch`].
    ///
    /// # Errors
    /// As [`Heap::fetch`].
    pub fn fetch(&self) -> Result<(), HeapError> {
        self.heap.fetch(self.extents())
    }

    /// Requests the bytes of all items. What cannot be read is no error here, since it is one item's: [`Self::verify`] says so.
    ///
    /// # Errors
    /// [`HeapError::Loading`] with the last request, if there was one. Most earlier requests are done when the last one is.
    pub fn fetch_all<'i>(items: impl Iterator<Item = &'i Item<'h>>) -> Result<(), HeapError>
    where
        'h: 'i,
    {
        let mut asked = Ok(());
        for item in items {
            // Every item is requested, also after an earlier one has to be read.
            if let Err(loading @ HeapError::Loading(_)) = item.fetch() {
                asked = Err(loading);
            }
        }
        asked
    }

    /// The bytes of an inline value.
    pub fn inline(&self) -> Option<&[u8]> {
        match &self.body {
            Body::Inline(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The extents of a value that is not inline.
    pub fn extents(&self) -> &[Extent] {
        self.body.extents()
    }

    /// Passes each of the value's extents to `give`. The extents stay held until the receiver releases them.
    pub fn hand_over(mut self, give: impl FnMut(Extent)) {
        let body = std::mem::replace(&mut self.body, Body::Inline(InlineBytes::new()));
        body.extents().iter().copied().for_each(give);
    }

    /// The list of pieces of a value in pieces.
    pub fn list(&self) -> Option<PieceList> {
        self.list
    }

    /// The checksums of the pieces of a value in pieces.
    pub(crate) fn parts(&self) -> Option<&[PieceCrc]> {
        (!self.parts.is_empty()).then_some(&self.parts)
    }

    /// The known CRC-32C of the value or of its pieces.
    pub fn crcs(&self) -> Option<Crcs<'_>> {
        match &*self.parts {
            [] => self.check.crc().map(Crcs::Whole),
            parts => Some(Crcs::Parts(parts)),
        }
    }

    /// The checksums of the value followed by the bytes of `more`. If the value has a CRC-32C, only the bytes of `more`
    /// are read.
    ///
    /// # Errors
    /// The medium's.
    pub fn crcs_with(&self, more: &[Extent]) -> Result<KeptCrcs, MediaError> {
        if !self.parts.is_empty() {
            let more = self.heap.reader().pieces_of(more)?;
            return Ok(KeptCrcs::Parts(
                self.parts.iter().copied().chain(more.iter().map(|p| p.part())).collect(),
            ));
        }
        let append = |sum, extent: &Extent| Ok(crc::append(sum, self.heap.media().bytes(*extent)?));
        let crc = match self.check {
            Check::Crc(crc) => crc,
            Check::Sums => self.heap.crc_of(self.extents())?,
        };
        more.iter().try_fold(crc, append).map(KeptCrcs::Whole)
    }

    /// The value as owned bytes.
    ///
    /// # Errors
    /// The medium's.
    pub fn to_vec(&self) -> Result<Vec<u8>, MediaError> {
        self.bytes().map(Cow::into_owned)
    }

    /// The value in one slice, copied only if it lies in several extents.
    ///
    /// # Errors
    /// The medium's.
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, MediaError> {
        if let Some(bytes) = self.inline() {
            return Ok(Cow::Borrowed(bytes));
        }
        match self.extents() {
            [] => Ok(Cow::Borrowed(&[])),
            [one] => Ok(Cow::Borrowed(self.heap.media().bytes(*one)?)),
            many => {
                let mut out = Vec::with_capacity(self.len);
                for extent in many {
                    out.extend_from_slice(self.heap.media().bytes(*extent)?);
                }
                Ok(Cow::Owned(out))
            }
        }
    }
}

impl Drop for Item<'_> {
    fn drop(&mut self) {
        self.extents().iter().for_each(|extent| self.heap.runs().release(*extent));
    }
}

impl<'h> Item<'h> {
    /// A value that is not in a record. Its slot is [`SlotId::NONE`], which counts as durable. The item takes over the
    /// caller's hold on `extents`.
    pub fn from_parts(
        heap: &'h Heap,
        expiry_ms: u64,
        len: usize,
        crcs: Crcs<'_>,
        inline: Option<&[u8]>,
        extents: &[Extent],
    ) -> Self {
        let parts = if let Crcs::Parts(parts) = crcs { parts.into() } else { Box::default() };
        let body =
            inline.map_or_else(|| Body::of(extents), |bytes| Body::Inline(InlineBytes::from_slice(bytes)));
        Self {
            heap,
            slot: SlotId::NONE,
            seq: 0,
            arrival_ns: 0,
            expiry_ms,
            len,
            check: Check::Crc(crcs.whole()),
            shared: false,
            unrecorded: Box::default(),
            body,
            parts,
            list: None,
        }
    }
}

/// The extents of pieces; adjacent pieces are joined.
pub(crate) fn joined(pieces: &[Piece]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    for piece in pieces {
        match extents.last_mut() {
            Some(last) if last.end() == piece.extent.off && piece.extent.sum().is_none() => {
                last.grow(piece.extent.len());
            }
            _ => extents.push(piece.extent),
        }
    }
    extents
}
