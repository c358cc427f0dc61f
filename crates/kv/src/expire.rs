//! Purging of expired keys. Reads hide a key as soon as it expires; purging frees its space.

use crate::engine::{Engine, tombstone};
use crate::error::KvError;
use crate::shard::{Lookup, Shard};
use landfall_heap::{KeyPlace, LongKey, RecordView, Writer};
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
            let mut long = Vec::new();
            let (mut shard, first) = loop {
                let shard = shard.lock();
                let Some(first) = shard.first_expiry().filter(|first| first.due_ms <= now_ms) else {
                    return Ok(purged);
                };
                self.hold_long_keys(&shard, first.hash, now_ms, &mut long);
                if !long.iter().any(LongKey::is_absent) {
                    break (shard, first);
                }
                // Nobody waits for the shard while the medium reads.
                drop(shard);
                long.iter_mut().for_each(LongKey::load);
            };
            let done = self.purge_one(&mut shard, writer, first.hash, now_ms, &long);
            match done.map_err(|error| (purged, error))? {
                0 => shard.drop_expiry(first),
                keys => {
                    self.expired.fetch_add(keys, Ordering::Relaxed);
                }
            }
        }
        Ok(limit)
    }

    /// Adds the long keys among the expired ones of a hash that `long` does not have.
    fn hold_long_keys<'h>(&'h self, shard: &Shard, hash: u64, now_ms: u64, long: &mut Vec<LongKey<'h>>) {
        for slot in shard.slots_of(hash) {
            let Ok(view) = self.heap.record(slot) else { continue };
            if is_expired(&view, hash, now_ms)
                && !long.iter().any(|key| key.is_of(&view))
                && let Ok(Some(key)) = self.heap.hold_long_key(slot, &view)
            {
                long.push(key);
            }
        }
    }

    /// Purges the expired keys of one hash. Returns how many. `long` has those of the long ones that may have left memory.
    fn purge_one(
        &self,
        shard: &mut Shard,
        writer: &mut Writer,
        hash: u64,
        now_ms: u64,
        long: &[LongKey<'_>],
    ) -> Result<u64, KvError> {
        let slots: Vec<_> = shard.slots_of(hash).collect();
        let mut purged = 0;
        for slot in slots {
            let Ok(view) = self.heap.record(slot) else { continue };
            if !is_expired(&view, hash, now_ms) {
                continue;
            }
            self.check_own_ticket(self.heap.pending(slot), writer)?;
            // A tombstone needs the key's bytes. A key that cannot be read stays, hidden by the expiry in its record.
            let is_inline = matches!(view.key(), KeyPlace::Inline(_));
            if self.heap.is_paged() && !is_inline && !long.iter().any(|key| key.is_there(&view)) {
                continue;
            }
            let Ok(key) = self.heap.key(&view) else { continue };
            let lookup = Lookup { space: view.space(), hash, key: &key };
            let tomb = writer.append(&tombstone(&lookup, now_ms.saturating_mul(1_000_000)))?;
            shard.delete(&lookup, tomb, slot, view.expiry_ms());
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

fn is_expired(view: &RecordView<'_>, hash: u64, now_ms: u64) -> bool {
    let expiry_ms = view.expiry_ms();
    view.hash() == hash && expiry_ms != 0 && expiry_ms <= now_ms
}
