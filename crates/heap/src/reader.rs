//! Reading records, keys and values, and verifying them.

use crate::crc;
use crate::error::{Damage, HeapError};
use crate::extents::Extents;
use crate::layout::{RECORD_SIZE, RunId, SlotId};
use crate::load::LoaderPlace;
use crate::pin::Pinned;
use crate::record::{Check, EXTENT_SIZE, ExtentList, KeyPlace, RecordView, Seal, Slot, ValuePlace};
use crate::runs::Runs;
use crate::superblock::Geometry;
use landfall_media::{Extent, Media, MediaError, Sum, prefetch_at};
use std::borrow::Cow;

/// Most bytes of a value that are prefetched. The core prefetches the bytes that follow, because they are read in
/// order.
const PREFETCH_BYTES_MAX: usize = 256;
/// The smallest page that may be behind the image, bytes.
const PAGE_SIZE: u64 = 4096;

/// Reads the region: records, keys and values, and checks what it reads. It sees the medium, the runs' seals and pins,
/// and nothing else of the heap. Lists of pieces are read in `pieces`.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'h> {
    pub(crate) media: &'h dyn Media,
    /// Address of the image, for prefetching only; 0 if the medium has no image in memory.
    pub(crate) image_addr: usize,
    pub(crate) geometry: &'h Geometry,
    pub(crate) runs: &'h Runs,
    pub(crate) loader: &'h LoaderPlace,
}

impl<'h> Reader<'h> {
    /// Reads a slot and checks its record.
    #[inline]
    pub(crate) fn slot(self, slot: SlotId) -> Result<Slot<'h>, MediaError> {
        let bytes = self.media.bytes(Extent::new(slot.off(), RECORD_SIZE as u32))?;
        let bytes = bytes.try_into().expect("a record's size was asked for");
        Ok(RecordView::parse(bytes, slot, self.seal(slot.run()), self.geometry.bytes()))
    }

    /// The seal of a slab's records.
    #[inline]
    pub(crate) fn seal(self, run: RunId) -> Seal {
        self.runs.get(run).seal()
    }

    /// Prefetches the record in a slot.
    #[inline]
    pub(crate) fn prefetch(self, slot: SlotId) {
        if self.image_addr != 0 {
            prefetch_at(self.image_addr + slot.off() as usize, RECORD_SIZE as usize);
        }
    }

    /// The first extent of the value to which the record in a slot refers, for [`Self::prefetch_value`].
    pub(crate) fn value_start(self, slot: SlotId) -> Option<Extent> {
        match self.record(slot).ok()?.value() {
            ValuePlace::Extents(list) => list.iter().next(),
            _ => None,
        }
    }

    /// Prefetches the beginning of an extent's bytes, and the counts of its references and pins.
    #[inline]
    pub(crate) fn prefetch_value(self, extent: Extent) {
        self.runs.prefetch_refs(extent);
        if self.image_addr != 0 {
            prefetch_at(self.image_addr + extent.off as usize, PREFETCH_BYTES_MAX.min(extent.len() as usize));
            let next_page = (extent.off + 1).next_multiple_of(PAGE_SIZE);
            if next_page < extent.end() {
                // On its own the core prefetches nothing beyond a page, because it does not know the next one's address.
                prefetch_at(self.image_addr + next_page as usize, 1);
            }
        }
    }

    /// Reads the record in a slot that is known to hold one.
    #[inline]
    pub(crate) fn record(self, slot: SlotId) -> Result<RecordView<'h>, HeapError> {
        match self.slot(slot)? {
            Slot::Record(view) => Ok(view),
            Slot::Empty => Err(HeapError::Damaged { slot, what: Damage::RecordChecksum }),
            Slot::Damaged(what) => Err(HeapError::Damaged { slot, what }),
        }
    }

    /// The key's bytes, inline or in frames.
    #[inline]
    pub(crate) fn key(self, view: &RecordView<'h>) -> Result<Pinned<'h>, MediaError> {
        match view.key() {
            KeyPlace::Inline(bytes) => Ok(Pinned::always(bytes)),
            KeyPlace::Stored(extent) => self.pinned(extent),
        }
    }

    /// True if the key matches the hash in the record.
    pub(crate) fn key_holds(self, view: &RecordView<'_>) -> Result<bool, MediaError> {
        Ok(self.geometry.hash(view.space(), &self.key(view)?) == view.hash())
    }

    /// The extents of the value; none for an inline value.
    pub(crate) fn value_extents(self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        match view.value() {
            ValuePlace::Inline(_) => Ok(Extents::new()),
            ValuePlace::Extents(list) => Ok(list.iter().collect()),
            ValuePlace::Indirect(list) => self.read_list(slot, view, list),
            ValuePlace::Pieces(list) => Ok(self.listed_pieces(slot, view, list)?.extents().collect()),
        }
    }

    fn read_list(self, slot: SlotId, view: &RecordView<'_>, list: Extent) -> Result<Extents, HeapError> {
        let damaged = HeapError::Damaged { slot, what: Damage::ExtentList };
        let bytes = self.pinned(list)?;
        let Some((entries, crc)) = bytes.split_last_chunk::<4>() else { return Err(damaged) };
        if !entries.len().is_multiple_of(EXTENT_SIZE) || crc::of(entries) != u32::from_le_bytes(*crc) {
            return Err(damaged);
        }
        let extents: Extents = ExtentList(entries).iter().collect();
        let total: u64 = extents.iter().map(|e| u64::from(e.len())).sum();
        let inside = extents.iter().all(|e| e.end() <= self.geometry.bytes());
        if inside && total == view.value_len() as u64 { Ok(extents) } else { Err(damaged) }
    }

    /// All extents that the record refers to: key, list and value.
    pub(crate) fn all_extents(self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        let mut extents = match view.value() {
            ValuePlace::Pieces(list) => self.listed_pieces(slot, view, list)?.all().collect(),
            _ => self.value_extents(slot, view)?,
        };
        if let ValuePlace::Indirect(list) = view.value() {
            extents.push(list);
        }
        if let KeyPlace::Stored(key) = view.key() {
            extents.push(key);
        }
        Ok(extents)
    }

    /// Checks the value's bytes against the CRC-32C in the record, or against the checksums of its pieces.
    pub(crate) fn verify_value(self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        if let ValuePlace::Pieces(list) = view.value() {
            return self.verify_pieces(slot, view, list);
        }
        let extents = self.value_extents(slot, view)?;
        let holds = match view.value() {
            ValuePlace::Inline(bytes) => view.check() == Check::Crc(crc::of(bytes)),
            _ => self.holds(&extents, view.check())?,
        };
        if holds { Ok(extents) } else { Err(HeapError::Damaged { slot, what: Damage::ValueChecksum }) }
    }

    /// True if the bytes of `extents` match `check`.
    pub(crate) fn holds(self, extents: &[Extent], check: Check) -> Result<bool, MediaError> {
        match check {
            Check::Crc(crc) => Ok(self.crc_of(extents)? == crc),
            Check::Sums => extents.iter().try_fold(true, |holds, extent| {
                Ok(holds && extent.sum() == Some(Sum::of(&self.pinned(*extent)?)))
            }),
        }
    }

    /// As [`Self::holds`], of extents that are held. A hold pins, so that no further pin is needed.
    pub(crate) fn held_match(self, extents: &[Extent], check: Check) -> Result<bool, MediaError> {
        match check {
            Check::Crc(crc) => {
                let append = |sum, extent: &Extent| Ok(crc::append(sum, self.media.bytes(*extent)?));
                Ok(extents.iter().try_fold(0, append)? == crc)
            }
            Check::Sums => extents.iter().try_fold(true, |holds, extent| {
                Ok(holds && extent.sum() == Some(Sum::of(self.media.bytes(*extent)?)))
            }),
        }
    }

    /// CRC-32C of the bytes of `extents`, in order.
    pub(crate) fn crc_of(self, extents: &[Extent]) -> Result<u32, MediaError> {
        match extents {
            [one] => Ok(crc::of(&self.pinned(*one)?)),
            all => all.iter().try_fold(0, |crc, extent| Ok(crc::append(crc, &self.pinned(*extent)?))),
        }
    }

    /// The value's bytes in one slice, after [`Self::verify_value`]. They are copied only if they lie in several
    /// extents, or may be evicted.
    pub(crate) fn value_bytes(self, slot: SlotId, view: &RecordView<'h>) -> Result<Cow<'h, [u8]>, HeapError> {
        let extents = self.verify_value(slot, view)?;
        if let ValuePlace::Inline(bytes) = view.value() {
            return Ok(Cow::Borrowed(bytes));
        }
        match extents.as_slice() {
            [] => Ok(Cow::Borrowed(&[])),
            [one] if !self.is_paged() => Ok(Cow::Borrowed(self.media.bytes(*one)?)),
            many => {
                let mut out = Vec::with_capacity(view.value_len());
                for extent in many {
                    out.extend_from_slice(&self.pinned(*extent)?);
                }
                Ok(Cow::Owned(out))
            }
        }
    }

    /// The bytes of an extent. Either a record that stays current meanwhile refers to the extent, or it is held. Bytes
    /// that are not in memory are read first, which blocks.
    #[inline]
    pub(crate) fn pinned(self, extent: Extent) -> Result<Pinned<'h>, MediaError> {
        Pinned::new(self.media, self.runs, extent)
    }

    /// True if parts of the region may be evicted from memory.
    #[inline]
    pub(crate) fn is_paged(self) -> bool {
        self.runs.pages().is_some()
    }

    /// True if all bytes of a held extent are in memory.
    pub(crate) fn is_resident(self, extent: Extent) -> bool {
        self.runs.pages().is_none_or(|pages| pages.is_resident(extent))
    }

    /// Requests those of the extents that are not in memory: [`HeapError::Loading`] while a loader reads them, and the medium's
    /// error if it could not.
    pub(crate) fn fetch(self, extents: &[Extent]) -> Result<(), HeapError> {
        if !self.is_paged() || extents.iter().all(|extent| self.is_resident(*extent)) {
            return Ok(());
        }
        let Some(loader) = self.loader.get() else { return Ok(()) };
        extents.iter().for_each(|extent| self.runs.hold(*extent));
        match loader.submit(extents) {
            Ok(Some(load)) => Err(HeapError::Loading(load)),
            refused => {
                extents.iter().for_each(|extent| self.runs.release(*extent));
                Ok(refused.map(drop)?)
            }
        }
    }

    /// Refuses what the loader could not read a moment ago.
    pub(crate) fn check_loaded(self, extents: &[Extent]) -> Result<(), MediaError> {
        if !self.is_paged() || extents.iter().all(|extent| self.is_resident(*extent)) {
            return Ok(());
        }
        self.loader.get().and_then(|loader| loader.failed(extents)).map_or(Ok(()), Err)
    }
}
