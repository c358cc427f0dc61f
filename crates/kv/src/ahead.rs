//! Prefetching for the next commands. It is a hint: it never blocks, and no result depends on it.

use crate::engine::Engine;
use crate::shard::Shard;
use crate::table::tag;
use landfall_media::prefetch_at;

/// Keys that are prefetched together. What is fetched for them fits the first-level cache: four lines per key, and about
/// a dozen for a value.
const TOGETHER: usize = 16;

/// What a command will need of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// The key's hash.
    pub hash: u64,
    /// The command reads the value.
    pub is_read: bool,
}

impl Engine {
    /// Prefetches what commands need of their keys: the cache line of the index, the record, and the beginning of the
    /// value. Each step prefetches for several keys what the next step reads.
    pub fn prefetch(&self, needs: &[Need]) {
        for needs in needs.chunks(TOGETHER) {
            self.step(
                needs,
                |shard, need| shard.table.home_addr(tag(need.hash)),
                |addr| prefetch_at(addr, 1),
            );
            let slot = |shard: &Shard, need: &Need| Some(shard.table.of(tag(need.hash)).next()?.slot);
            self.step(needs, slot, |slot| self.heap.prefetch(slot));
            let value = |shard: &Shard, need: &Need| {
                self.heap.value_start(slot(shard, need).filter(|_| need.is_read)?)
            };
            self.step(needs, value, |extent| self.heap.prefetch_value(extent));
        }
    }

    /// Finds something for each key, then prefetches it. A lock waits until the prefetches before it have an address of
    /// memory. So no lock is taken between them, and these waits overlap.
    #[inline]
    fn step<T: Copy>(&self, needs: &[Need], find: impl Fn(&Shard, &Need) -> Option<T>, prefetch: impl Fn(T)) {
        let mut found = [None; TOGETHER];
        for (need, found) in needs.iter().zip(&mut found) {
            *found = self.shards[self.shard_index(need.hash)].try_lock().and_then(|shard| find(&shard, need));
        }
        found.into_iter().flatten().for_each(prefetch);
    }
}
