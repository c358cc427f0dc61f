//! Records that the compactor is copying: which of original and copy is retired, and when.

use crate::layout::SlotId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The progress of copying one record.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// A newer version than the original is durable.
    original_gone: bool,
    /// The copy, which is not current and is retired together with the original.
    copy: Option<SlotId>,
}

/// Records that the compactor is copying, or whose copy was overtaken by a version that is not durable yet.
#[derive(Debug, Default)]
pub(crate) struct Copying {
    /// By the slot of the original.
    originals: Mutex<BTreeMap<SlotId, Progress>>,
    /// Length of `originals`, so that workers take no lock while the compactor is idle.
    count: AtomicUsize,
}

impl Copying {
    /// The compactor is about to copy the record in `original`, which is current.
    pub(crate) fn begin(&self, original: SlotId) {
        let mut originals = self.originals.lock();
        originals.insert(original, Progress::default());
        self.count.store(originals.len(), Ordering::Release);
    }

    /// The copy was not made.
    pub(crate) fn cancel(&self, original: SlotId) {
        let mut originals = self.originals.lock();
        originals.remove(&original);
        self.count.store(originals.len(), Ordering::Release);
    }

    /// The copy is durable, and is current instead of the original if `replaces`. Returns the slot to release. `None`:
    /// a newer version is current that may not be durable yet. Until it is, a crash would make the copy current again,
    /// so the copy keeps its references.
    pub(crate) fn end(&self, original: SlotId, copy: SlotId, replaces: bool) -> Option<SlotId> {
        let mut originals = self.originals.lock();
        let state = originals.remove(&original).unwrap_or_default();
        let gone = match (replaces, state.original_gone) {
            (true, _) => original,
            (false, true) => copy,
            (false, false) => {
                originals.insert(original, Progress { copy: Some(copy), ..state });
                return None;
            }
        };
        self.count.store(originals.len(), Ordering::Release);
        Some(gone)
    }

    /// Notes that the original is retired. Returns its copy if that is to be released with it.
    #[inline]
    pub(crate) fn retire_original(&self, original: SlotId) -> Option<SlotId> {
        // No copy is missed: the superseding write took the shard's lock after the copy began under it.
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.take_copy(original)
    }

    fn take_copy(&self, original: SlotId) -> Option<SlotId> {
        let mut originals = self.originals.lock();
        let state = originals.get_mut(&original)?;
        state.original_gone = true;
        let copy = state.copy?;
        originals.remove(&original);
        self.count.store(originals.len(), Ordering::Release);
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINAL: SlotId = SlotId(7);
    const COPY: SlotId = SlotId(9);

    #[test]
    fn a_copy_that_replaces_its_original_releases_the_original() {
        let copying = Copying::default();
        copying.begin(ORIGINAL);
        assert_eq!(copying.end(ORIGINAL, COPY, true), Some(ORIGINAL));
        assert_eq!(copying.retire_original(ORIGINAL), None);
    }

    #[test]
    fn a_copy_that_a_newer_version_overtook_is_released_when_that_version_is_durable() {
        let copying = Copying::default();
        copying.begin(ORIGINAL);
        assert_eq!(copying.end(ORIGINAL, COPY, false), None, "the newer version is not durable yet");
        assert_eq!(copying.retire_original(ORIGINAL), Some(COPY));
        copying.begin(ORIGINAL);
        assert_eq!(copying.retire_original(ORIGINAL), None, "the copy is not durable yet");
        assert_eq!(copying.end(ORIGINAL, COPY, false), Some(COPY));
    }
}
