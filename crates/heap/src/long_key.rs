//! Long keys, which lie beside their records and may leave memory. Who needs one under a lock that others wait for brings
//! it into memory before.

use crate::error::{Damage, HeapError};
use crate::heap::Heap;
use crate::layout::SlotId;
use crate::record::{KeyPlace, RecordView};
use landfall_media::Extent;

/// Where a long key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Medium,
    /// The medium cannot read it.
    Lost,
}

/// A long key of a paged region, held: once it is in memory, it stays there.
#[derive(Debug)]
pub struct LongKey<'h> {
    heap: &'h Heap,
    at: Extent,
    place: Place,
}

impl LongKey<'_> {
    /// True if the key must be brought into memory first: [`Self::load`].
    pub fn is_absent(&self) -> bool {
        self.place == Place::Medium
    }

    /// True if this is the record's key, and it is in memory.
    pub fn is_there(&self, view: &RecordView<'_>) -> bool {
        self.place == Place::Memory && self.is_of(view)
    }

    /// True if this is the record's key.
    pub fn is_of(&self, view: &RecordView<'_>) -> bool {
        view.key() == KeyPlace::Stored(self.at)
    }

    /// Brings the key into memory. Blocks while the medium reads: the caller has no lock that others wait for.
    pub fn load(&mut self) {
        if self.is_absent() {
            self.place = if self.heap.load(self.at).is_ok() { Place::Memory } else { Place::Lost };
        }
    }
}

impl Drop for LongKey<'_> {
    fn drop(&mut self) {
        self.heap.runs().release(self.at);
    }
}

impl Heap {
    /// Holds the key of a record, which stays current meanwhile, if it may leave memory: `None` for any other.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if nobody counts what the record refers to: its key may be others' bytes.
    pub fn hold_long_key(
        &self,
        slot: SlotId,
        view: &RecordView<'_>,
    ) -> Result<Option<LongKey<'_>>, HeapError> {
        let KeyPlace::Stored(at) = view.key() else { return Ok(None) };
        if !self.is_paged() {
            return Ok(None);
        }
        if !self.is_counted(slot) {
            return Err(HeapError::Damaged { slot, what: Damage::KeyHash });
        }
        self.runs().hold(at);
        let place = if self.is_resident(at) { Place::Memory } else { Place::Medium };
        Ok(Some(LongKey { heap: self, at, place }))
    }
}
