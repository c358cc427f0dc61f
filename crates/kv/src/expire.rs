//! Purging of expired keys. Reads hide a key as soon as it expires; purging frees its space.

use crate::engine::{Engine, tombstone};
use crate::error::KvError;
use crate::shard::Lookup;
use landfall_heap::Writer;
use std::sync::atomic::Ordering;

impl Engine {
    /// Purges up to `limit` keys that have expired by `now_ms` and returns their number. It writes tombstones, so that
    /// a clock that steps back restores no key.
    ///
    /// # Errors
    /// [`KvError::Wait`] if the writer's batch must be committed first; the region is closed.
    pub fn purge_expired(&self, writer: &mut Writer, now_ms: u64, limit: usize) -> Result<usize, KvError> {
        let mut purged = 0;
        for shard in &self.shards {
            while purged < limit {
                let mut shard = shard.lock();
                let Some(first) = shard.first_expiry().filter(|first| first.due_ms <= now_ms) else {
                    break;
                };
                if !self.purge_one(&mut shard, writer, first.hash, now_ms)? {
                    shard.drop_expiry(first);
                }
                purged += 1;
            }
        }
        self.expired.fetch_add(purged as u64, Ordering::Relaxed);
        Ok(purged)
    }

    /// Purges the expired keys of one hash; false if no key was purged.
    fn purge_one(
        &self,
        shard: &mut crate::shard::Shard,
        writer: &mut Writer,
        hash: u64,
        now_ms: u64,
    ) -> Result<bool, KvError> {
        let slots: Vec<_> = shard.slots_of(hash).collect();
        let mut purged = false;
        for slot in slots {
            let Ok(view) = self.heap.record(slot) else { continue };
            let expiry_ms = view.expiry_ms();
            if view.hash() != hash || expiry_ms == 0 || expiry_ms > now_ms {
                continue;
            }
            self.check_own_ticket(self.heap.pending(slot), writer)?;
            // A tombstone needs the key's bytes. A key that cannot be read stays, hidden by the expiry in its record.
            let Ok(key) = self.heap.key(&view) else { continue };
            let lookup = Lookup { space: view.space(), hash, key: &key };
            let tomb = writer.append(&tombstone(&lookup, now_ms.saturating_mul(1_000_000)))?;
            shard.delete(&lookup, tomb, slot, expiry_ms);
            shard.note_change(writer);
            writer.supersede(slot);
            purged = true;
        }
        Ok(purged)
    }

    /// The earliest expiry of any key, Unix milliseconds.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.shards.iter().filter_map(|shard| Some(shard.lock().first_expiry()?.due_ms)).min()
    }
}
