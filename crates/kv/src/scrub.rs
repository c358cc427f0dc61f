//! The scrub: checks every current record and its data against their checksums, within a budget.

use crate::engine::Engine;
use crate::error::KvError;
use crate::key::OrderedKey;
use crate::range::PageLimit;
use landfall_heap::{Damage, HeapError, Item, Until};

/// Keys found under one lock, which takes some microseconds. Writers of other shards are not blocked.
const KEYS_AT_ONCE: usize = 16;

/// Bytes of values at which a step ends, so that other work of its thread goes on. A value is checked whole.
const STEP_BYTES: u64 = 1 << 20;

/// The position of a scrub, which goes through one shard after the other.
#[derive(Clone, Debug, Default)]
pub struct ScrubCursor {
    shard: usize,
    /// The last key of the shard that was checked; `None` before the first.
    after: Option<OrderedKey>,
}

/// A damaged key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// Database.
    pub space: u8,
    /// The key.
    pub key: Vec<u8>,
    /// Which check failed.
    pub what: Damage,
}

/// The result of one step.
#[derive(Clone, Debug, Default)]
pub struct Scrubbed {
    /// Keys checked.
    pub keys: u64,
    /// Value bytes checked.
    pub bytes: u64,
    /// Keys that are damaged.
    pub findings: Vec<ScrubFinding>,
    /// True if the step reached the end of the last shard; the cursor starts over.
    pub wrapped: bool,
}

impl Engine {
    /// Checks the next keys after the cursor, up to `keys_max`, or until they have 1 MiB of values, and those of one page
    /// more. It blocks while bytes are read that have left memory, and lets others leave it.
    ///
    /// # Errors
    /// Errors of the medium.
    pub fn scrub(&self, cursor: &mut ScrubCursor, keys_max: usize, now_ms: u64) -> Result<Scrubbed, KvError> {
        let mut done = Scrubbed::default();
        let mut left = keys_max;
        while left > 0 && done.bytes < STEP_BYTES && !done.wrapped {
            let limit = PageLimit { keys: left.min(KEYS_AT_ONCE), bytes: STEP_BYTES as usize, verify: true };
            let page = match self.page_of_shard(cursor.shard, cursor.after.as_ref(), limit, now_ms) {
                Err(KvError::Wait(Until::Load(load))) if self.heap.wait_for_load(load) => continue,
                // The next step continues here.
                Err(KvError::Wait(_)) => break,
                page => page?,
            };
            left -= limit.keys;
            let last = page.last.clone();
            for (key, item) in page.verified().items {
                done.take(key, item)?;
            }
            self.heap.relieve_memory(0);
            cursor.after = last.map(|key| OrderedKey::from(key.as_slice()));
            if cursor.after.is_none() {
                cursor.shard = (cursor.shard + 1) % self.shards.len();
                done.wrapped = cursor.shard == 0;
            }
        }
        Ok(done)
    }
}

impl Scrubbed {
    /// Counts a key, its space in front, with its value or its error.
    fn take(&mut self, mut key: Vec<u8>, item: Result<Item<'_>, KvError>) -> Result<(), KvError> {
        self.keys += 1;
        let what = match item {
            Ok(item) => {
                self.bytes += item.len as u64;
                return Ok(());
            }
            Err(KvError::Damaged { what }) => what,
            Err(KvError::Heap(HeapError::Media(_))) => Damage::Unreadable,
            Err(error) => return Err(error),
        };
        let space = key.remove(0);
        self.findings.push(ScrubFinding { space, key, what });
        Ok(())
    }
}
