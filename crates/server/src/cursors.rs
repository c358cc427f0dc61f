//! Cursors of `SCAN`: a number that a client gives back, for the key where its scan stands.
//!
//! A bounded table; the oldest cursor is forgotten first. A forgotten or invented cursor starts over,
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
    /// Keeps the key after which a scan goes on; the cursor to give to the client, never 0.
    pub fn keep(&mut self, after: Vec<u8>) -> u64 {
        self.last += 1;
        self.by_id.insert(self.last, after);
        if self.by_id.len() > CURSORS_MAX {
            self.by_id.pop_first();
        }
        self.last
    }

    /// The key of a cursor. It stays: a client may ask twice.
    pub fn find(&self, cursor: u64) -> Option<&[u8]> {
        self.by_id.get(&cursor).map(Vec::as_slice)
    }
}
