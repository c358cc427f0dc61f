//! Cursors of `SCAN`: a client returns a number, which stands for the key where its scan continues.
//!
//! The table is bounded, and the oldest cursor is removed first. A removed or invalid cursor starts the scan again,
//! which `SCAN` permits: every key that stays is returned at least once.

use std::collections::BTreeMap;

/// Cursors kept at once.
const CURSORS_MAX: usize = 10_000;

/// The table.
#[derive(Debug, Default)]
pub struct Cursors {
    by_id: BTreeMap<u64, Vec<u8>>,
    last: u64,
}

impl Cursors {
    /// Stores the key after which a scan continues; returns the cursor for the client, never 0.
    pub fn keep(&mut self, after: Vec<u8>) -> u64 {
        self.last += 1;
        self.by_id.insert(self.last, after);
        if self.by_id.len() > CURSORS_MAX {
            self.by_id.pop_first();
        }
        self.last
    }

    /// The key of a cursor. The entry stays, because a client may use a cursor twice.
    pub fn find(&self, cursor: u64) -> Option<&[u8]> {
        self.by_id.get(&cursor).map(Vec::as_slice)
    }
}
