//! How much is made durable at a time: whether zeroes written ahead are worth their bytes.
//!
//! A sync after writes to blocks that were never written waits for the file system's metadata, once, however many blocks
//! there are. Zeroes written ahead save that wait, and cost as many bytes as the data. Where programs sync each few
//! kilobytes they are cheap beside the wait; where megabytes are written at a time they halve what the device has for data.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one batch from which on zeroes do not pay: what a device writes in about the time of a commit of metadata.
const LARGE_BYTES: u64 = 512 << 10;

/// Bytes and batches since the last question.
#[derive(Debug, Default)]
pub(super) struct Pace {
    bytes: AtomicU64,
    batches: AtomicU64,
}

impl Pace {
    /// A batch is made durable.
    pub(super) fn note(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// True if the batches since the last call were small, or there were none.
    pub(super) fn take_is_small(&self) -> bool {
        let (bytes, batches) =
            (self.bytes.swap(0, Ordering::Relaxed), self.batches.swap(0, Ordering::Relaxed));
        batches == 0 || bytes / batches < LARGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_judged_by_their_mean_since_the_last_question() {
        let pace = Pace::default();
        assert!(pace.take_is_small(), "nothing is known");
        [4 << 20, 16 << 10].into_iter().for_each(|bytes| pace.note(bytes));
        assert!(!pace.take_is_small());
        pace.note(16 << 10);
        assert!(pace.take_is_small());
    }
}
