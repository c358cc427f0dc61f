//! Who waits until what was written is at the log's successor, and who writes meanwhile.

use crate::files::Files;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Somebody waits until something is durable, as long as this lives: writes keep pace with that.
#[derive(Debug)]
pub struct Waiter(Option<Arc<Files>>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.iter().for_each(|files| files.pace.remove_waiter());
    }
}

impl Files {
    /// From now on somebody waits for an acknowledgement. If that waits for this region only, writes need not keep pace.
    #[must_use]
    pub fn waiter(self: &Arc<Self>) -> Waiter {
        if self.acknowledges_alone.load(Ordering::Acquire) || !self.has_successor() {
            return Waiter(None);
        }
        self.pace.add_waiter();
        Waiter(Some(Arc::clone(self)))
    }

    /// Waits until a chunk has gathered for the next batch, at most for so long; false if none has.
    pub fn wait_for_chunk(&self, most: Duration) -> bool {
        self.pace.wait_for_chunk(most)
    }

    /// Called before a write of so many bytes: where there is a successor, waits while there is a [`Waiter`] and enough has gathered
    /// behind what that waits for, but not for ever. True if it has waited. The caller holds nothing that others need.
    pub fn keep_pace(&self, bytes: u64) -> bool {
        self.has_successor() && self.pace.keep(bytes)
    }
}
