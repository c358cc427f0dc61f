//! Scrubbing: checking every current record and its data against their checksums, within a budget.

use crate::engine::Engine;
use crate::error::KvError;
use crate::range::{PageLimit, RangeQuery};
use landfall_heap::{Damage, HeapError};

/// Where a scrub stands.
#[derive(Clone, Debug)]
pub struct ScrubCursor {
    query: RangeQuery,
}

impl Default for ScrubCursor {
    fn default() -> Self {
        Self { query: RangeQuery::all(0) }
    }
}

/// A damaged key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// Database.
    pub space: u8,
    /// The key.
    pub key: Vec<u8>,
    /// What failed.
    pub what: Damage,
}

/// What a step has checked.
#[derive(Clone, Debug, Default)]
pub struct Scrubbed {
    /// Keys checked.
    pub keys: u64,
    /// Value bytes checked.
    pub bytes: u64,
    /// Keys that are damaged.
    pub findings: Vec<ScrubFinding>,
    /// The whole region has been checked; the cursor starts over.
    pub wrapped: bool,
}

impl Engine {
    /// Checks the next keys after the cursor, up to `keys_max`.
    ///
    /// # Errors
    /// The medium's.
    pub fn scrub(&self, cursor: &mut ScrubCursor, keys_max: usize, now_ms: u64) -> Result<Scrubbed, KvError> {
        let mut done = Scrubbed::default();
        let space = cursor.query.space;
        // What is found is told to nobody but the operator.
        let limit = PageLimit { keys: keys_max, bytes: usize::MAX, verify: true };
        let (page, _) = self.ungated_page(&cursor.query, limit, now_ms)?;
        for (key, item) in page.items {
            done.keys += 1;
            match item {
                Ok(item) => done.bytes += item.len as u64,
                Err(KvError::Damaged { what }) => done.findings.push(ScrubFinding { space, key, what }),
                Err(KvError::Heap(HeapError::Media(_))) => {
                    done.findings.push(ScrubFinding { space, key, what: Damage::Unreadable });
                }
                Err(error) => return Err(error),
            }
        }
        match page.last {
            Some(last) => cursor.query.resume_after(last),
            None => done.wrapped = cursor.next_space(),
        }
        Ok(done)
    }
}

impl ScrubCursor {
    /// Goes on to the next database; true after the last.
    fn next_space(&mut self) -> bool {
        let next = self.query.space + 1;
        let wrapped = usize::from(next) >= crate::shard::DATABASES;
        self.query = RangeQuery::all(if wrapped { 0 } else { next });
        wrapped
    }
}
