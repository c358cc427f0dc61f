//! Prefetching for the next commands. Each call is a hint: it never blocks, and no result depends on it.

use crate::engine::Engine;
use crate::table::tag;

impl Engine {
    /// Prefetches the cache line that a lookup of this key hash reads first.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        if let Some(shard) = self.shards[self.shard_index(hash)].try_lock() {
            shard.table.prefetch(tag(hash));
        }
    }

    /// Prefetches the record of the first entry with this hash's tag, which most probably is the key's.
    #[inline]
    pub fn prefetch_record(&self, hash: u64) {
        if let Some(shard) = self.shards[self.shard_index(hash)].try_lock()
            && let Some(entry) = shard.table.of(tag(hash)).next()
        {
            self.heap.prefetch(entry.slot);
        }
    }

    /// Prefetches the beginning of the value of the first entry with this hash's tag. Reads its record.
    pub fn prefetch_value(&self, hash: u64) {
        if let Some(shard) = self.shards[self.shard_index(hash)].try_lock()
            && let Some(entry) = shard.table.of(tag(hash)).next()
        {
            self.heap.prefetch_value(entry.slot);
        }
    }
}
