//! Bringing near what the next commands will look at. All of these are hints: they wait for nobody, and nothing depends on
//! them.

use crate::engine::Engine;
use crate::table::tag;

impl Engine {
    /// Has what a lookup of this key hash reads first brought near.
    #[inline]
    pub fn prefetch_index(&self, hash: u64) {
        if let Some(shard) = self.shards[self.shard_index(hash)].try_lock() {
            shard.table.prefetch(tag(hash));
        }
    }

    /// Has the record of the key with this hash brought near, most probably.
    #[inline]
    pub fn prefetch_record(&self, hash: u64) {
        if let Some(shard) = self.shards[self.shard_index(hash)].try_lock()
            && let Some(entry) = shard.table.of(tag(hash)).next()
        {
            self.heap.prefetch(entry.slot);
        }
    }

    /// Has the beginning of that key's value brought near, too. Reads the record.
    pub fn prefetch_value(&self, hash: u64) {
        if let Some(shard) = self.shards[self.shard_index(hash)].try_lock()
            && let Some(entry) = shard.table.of(tag(hash)).next()
        {
            self.heap.prefetch_value(entry.slot);
        }
    }
}
