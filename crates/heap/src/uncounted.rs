//! Live slots with damage: the slot is kept, the references of its record are not counted.

use crate::layout::SlotId;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Live slots whose references are not counted, because the record or its list of extents is damaged.
#[derive(Debug, Default)]
pub(crate) struct UncountedSlots {
    slots: Mutex<BTreeSet<SlotId>>,
    /// A slot was added, so that a region without damage takes no lock.
    has_any: AtomicBool,
}

impl UncountedSlots {
    pub(crate) fn add(&self, slot: SlotId) {
        self.slots.lock().insert(slot);
        self.has_any.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn remove(&self, slot: SlotId) {
        if self.has_any.load(Ordering::Acquire) {
            self.slots.lock().remove(&slot);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, slot: SlotId) -> bool {
        self.has_any.load(Ordering::Acquire) && self.slots.lock().contains(&slot)
    }
}
