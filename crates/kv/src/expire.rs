//! Purging of expired keys. Reads hide a key as soon as it expires; purging frees its space.

use crate::engine::{Engine, tombstone};
use crate::error::KvError;
use crate::shard::{Lookup, Shard};
use landfall_heap::Writer;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;

impl Engine {
    /// Purges up to `limit` keys that have expired by `now_ms` and returns their number. It writes tombstones, so that
    /// a clock that steps back restores no key. It goes on behind the shard in which the call before has ended, so that those
    /// that always have something do not keep it from the others.
    ///
    /// # Errors
    /// [`KvError::Wait`] if nothing was purged, as the writer's batch must be committed first, or an expired key is not
    /// durable yet; the region is closed.
    pub fn purge_expired(&self, writer: &mut Writer, now_ms: u64, limit: usize) -> Result<usize, KvError> {
        let (first, count) = (self.purge_from.load(Ordering::Relaxed), self.shards.len());
        let (mut purged, mut waits) = (0, None);
        for at in (first..first + count).map(|at| at % count) {
            match self.purge_shard(&self.shards[at], writer, now_ms, limit - purged) {
                Ok(some) => purged += some,
                Err((some, KvError::Wait(until))) => (purged, waits) = (purged + some, Some(until)),
                Err((_, error)) => return Err(error),
            }
            if purged == limit {
                self.purge_from.store((at + 1) % count, Ordering::Relaxed);
                break;
            }
        }
        waits.filter(|_| purged == 0).map_or(Ok(purged), |until| Err(KvError::Wait(until)))
    }

    /// Purges up to `limit` expired keys of a shard. With an error, says how many were purged before.
    fn purge_shard(
        &self,
        shard: &Mutex<Shard>,
        writer: &mut Writer,
        now_ms: u64,
        limit: usize,
    ) -> Result<usize, (usize, KvError)> {
        for purged in 0..limit {
            let mut shard = shard.lock();
            let Some(first) = shard.first_expiry().filter(|first| first.due_ms <= now_ms) else {
                return Ok(purged);
            };
            match self.purge_one(&mut shard, writer, first.hash, now_ms).map_err(|error| (purged, error))? {
                0 => shard.drop_expiry(first),
                keys => {
                    self.expired.fetch_add(keys, Ordering::Relaxed);
                }
            }
        }
        Ok(limit)
    }

    /// Purges the expired keys of one hash. Returns how many.
    fn purge_one(
        &self,
        shard: &mut Shard,
        writer: &mut Writer,
        hash: u64,
        now_ms: u64,
    ) -> Result<u64, KvError> {
        let slots: Vec<_> = shard.slots_of(hash).collect();
        let mut purged = 0;
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
            purged += 1;
        }
        Ok(purged)
    }

    /// The earliest expiry of any key, Unix milliseconds.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.shards.iter().filter_map(|shard| Some(shard.lock().first_expiry()?.due_ms)).min()
    }
}
