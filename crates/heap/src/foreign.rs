//! Runs that are granted to a foreign writer: another process that maps the region. It stores records into a slab, and
//! data into data runs. The owner of the slab *adopts* the records: then they count like any others.
//!
//! Nothing depends on what the foreign writer says: slots and data are flushed and fenced here before they count. While
//! runs are granted, neither the compactor nor the marks of the run table go beyond what was adopted.
//!
//! Where other machines get what is written here ([`crate::Successor`]), records are *passed over* instead: they never count,
//! and the owner appends records of its own that refer to the same data.

use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{RECORD_SIZE, RunId, SLOTS_PER_RUN, SlotId};
use crate::record::Seal;
use crate::writer::FOREIGN_WRITER;
use landfall_media::{Dirty, Extent, MediaError, Site};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A slab that a foreign writer fills, from its first slot on. When this is dropped, the slab is no longer granted: the
/// foreign writer must have ended.
#[derive(Debug)]
pub struct ForeignSlab {
    heap: Arc<Heap>,
    run: RunId,
    adopted: u32,
}

impl ForeignSlab {
    /// Grants an empty slab.
    ///
    /// # Errors
    /// [`HeapError::Full`] if there is no free run that writers may take; the medium's.
    pub fn grant(heap: &Arc<Heap>) -> Result<Self, HeapError> {
        let spare =
            heap.slabs.take_empty(&heap.runs, &heap.required, heap.writer_reserve(), FOREIGN_WRITER)?;
        Ok(Self { heap: Arc::clone(heap), run: spare.run, adopted: 0 })
    }

    /// The slab.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// What seals its records.
    pub fn seal(&self) -> Seal {
        self.heap.runs.get(self.run).seal()
    }

    /// Number of slots that are adopted, or passed over.
    pub fn adopted(&self) -> u32 {
        self.adopted
    }

    /// The slot with this index.
    pub fn slot(&self, index: u32) -> SlotId {
        SlotId::new(self.run, index)
    }

    /// The bytes in a slot now. The foreign writer may change them at any time.
    ///
    /// # Errors
    /// The medium's.
    ///
    /// # Panics
    /// If a slab has no such slot.
    pub fn copy(&self, index: u32) -> Result<[u8; RECORD_SIZE as usize], MediaError> {
        assert!(index < SLOTS_PER_RUN, "a slab has {SLOTS_PER_RUN} slots");
        let bytes = self.heap.media.bytes(Extent::new(self.slot(index).off(), RECORD_SIZE as u32))?;
        Ok(bytes.try_into().expect("a record's size"))
    }

    /// Adopts the records in the next slots: makes them and their data durable, then counts them and their references.
    /// Each member of `records` lists the extents of one record. The caller has checked the records, and that their
    /// extents lie in data runs that were granted to the writer of this slab.
    ///
    /// # Errors
    /// The medium's: nothing is adopted then.
    ///
    /// # Panics
    /// If the slab has fewer slots.
    pub fn adopt(&mut self, records: &[&[Extent]]) -> Result<Vec<SlotId>, HeapError> {
        let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
        assert!(count <= SLOTS_PER_RUN - self.adopted, "a slab has {SLOTS_PER_RUN} slots");
        if count == 0 {
            return Ok(Vec::new());
        }
        let (first, until) = (self.adopted, self.adopted + count);
        self.make_durable(records, first, count)?;
        let run = self.heap.runs.get(self.run);
        run.filled.store(until, Ordering::Relaxed);
        self.heap.runs.mark_durable(self.run, until);
        self.adopted = until;
        let slots = (first..until).zip(records).map(|(index, extents)| {
            let slot = self.slot(index);
            extents.iter().for_each(|extent| self.heap.runs.refer(*extent, slot));
            self.heap.runs.slot_live(slot);
            slot
        });
        Ok(slots.collect())
    }

    /// Passes over the records in the next slots: they do not count, now or after a crash. The caller sees to that.
    ///
    /// # Panics
    /// If the slab has fewer slots.
    pub fn pass_over(&mut self, count: u32) {
        assert!(count <= SLOTS_PER_RUN - self.adopted, "a slab has {SLOTS_PER_RUN} slots");
        self.adopted += count;
    }

    fn make_durable(&self, records: &[&[Extent]], first: u32, count: u32) -> Result<(), MediaError> {
        let media = &self.heap.media;
        let mut dirty = Dirty::new();
        for extent in records.iter().copied().flatten() {
            media.flush(&mut dirty, Site::Data, *extent);
        }
        let slots = Extent::new(self.slot(first).off(), count * RECORD_SIZE as u32);
        media.flush(&mut dirty, Site::Record, slots);
        media.fence(&mut dirty, Site::Commit)
    }
}

impl Drop for ForeignSlab {
    fn drop(&mut self) {
        self.heap.runs.abandon_slab(self.run);
    }
}

/// A data run that a foreign writer fills. When this is dropped, the run is no longer granted: the foreign writer stores
/// nothing into it any more, and its frames are freed as far as no record refers to them.
#[derive(Debug)]
pub struct ForeignData {
    heap: Arc<Heap>,
    run: RunId,
}

impl ForeignData {
    /// Grants a free run.
    ///
    /// # Errors
    /// [`HeapError::Full`], [`HeapError::Cleaning`] if there is none that writers may take.
    pub fn grant(heap: &Arc<Heap>) -> Result<Self, HeapError> {
        heap.check_room()?;
        let run = heap.take_data_run(heap.writer_reserve()).ok_or(HeapError::Full)?;
        Ok(Self { heap: Arc::clone(heap), run })
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }
}

impl Drop for ForeignData {
    fn drop(&mut self) {
        self.heap.runs.end_data(self.run);
    }
}
