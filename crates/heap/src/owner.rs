//! The owner of records, as the compactor sees it.

use crate::layout::SlotId;
use crate::record::RecordView;

/// The system that owns records, as the compactor sees it.
pub trait Owner {
    /// If the record in `slot` is current, counts one more copy of it on the medium, calls `hold` while it is still
    /// current, and returns true.
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool;

    /// The copy in `new` is durable. If `old` is still current, makes `new` current instead and returns true.
    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool;

    /// The copy announced by [`Self::begin_move`] was not made.
    fn abort_move(&self, name: Named);

    /// Stale records have been removed from the medium, durably. The method may reorder the slice.
    fn forget(&self, gone: &mut [Gone]);
}

/// The key of a record, by its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Namespace of the key, which also identifies the system.
    pub space: u8,
    /// Hash of space and key.
    pub hash: u64,
}

impl Named {
    pub(crate) fn of(view: &RecordView<'_>) -> Self {
        Self { space: view.space(), hash: view.hash() }
    }
}

/// A record that was removed from the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its key.
    pub name: Named,
    /// Its version.
    pub seq: u64,
}
