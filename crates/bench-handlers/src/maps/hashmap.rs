//! A hash map with chains that grows one bucket at a time (Litwin, "Linear hashing", VLDB 1980): an insert moves
//! entries of one chain at most.

use super::{Census, Map, Steps, Visit, count};
use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of directories in the root block.
const DIRECTORIES: u64 = 125;
/// Number of segments in a directory, and of buckets in a segment.
const FAN: u64 = 128;
const FAN_BYTES: u64 = FAN * 8;
const BUCKETS_MAX: u64 = DIRECTORIES * FAN * FAN;
const BUCKETS_FIRST: u64 = 8;
const ROOT_WORDS: usize = DIRECTORIES as usize + 3;
const ROOT_BYTES: u64 = ROOT_WORDS as u64 * 8;
const NODE_BYTES: u64 = 24;

/// The map. Its root block: number of entries, number of buckets, seed, directories.
pub(super) struct HashMap {
    root: u64,
}

#[derive(Clone, Copy)]
struct Node {
    off: u64,
    hash: u64,
    item: u64,
    next: u64,
    /// The offset at which the reference to this node is stored.
    slot: u64,
}

impl HashMap {
    pub(super) fn create(tx: &mut Transaction<'_>, seed: u64) -> Result<u64> {
        let root = tx.alloc(ROOT_BYTES)?;
        let mut words = [0; ROOT_WORDS];
        words[1..3].copy_from_slice(&[BUCKETS_FIRST, seed]);
        tx.set_words(root, &words)?;
        Self::new(root).make_bucket(tx, 0)?;
        Ok(root)
    }

    pub(super) fn new(root: u64) -> Self {
        Self { root }
    }

    fn hash(&self, pool: &Pool, key: &[u8]) -> Result<u64> {
        Ok(xxh3_64_with_seed(key, pool.word(self.root + 16)?))
    }

    // ---- buckets ----

    fn buckets(&self, pool: &Pool) -> Result<u64> {
        let buckets = pool.word(self.root + 8)?;
        let good = (BUCKETS_FIRST..=BUCKETS_MAX).contains(&buckets);
        if good { Ok(buckets) } else { Err(HandlerError::damaged("number of buckets", self.root + 8)) }
    }

    /// The offset of the reference to the directory of a bucket.
    fn directory_slot(&self, bucket: u64) -> u64 {
        self.root + 24 + 8 * (bucket / (FAN * FAN))
    }

    /// The offset of the reference to the segment of a bucket.
    fn segment_slot(&self, pool: &Pool, bucket: u64) -> Result<u64> {
        step(pool, self.directory_slot(bucket), bucket / FAN)
    }

    /// The offset of the first reference of a bucket.
    fn bucket_slot(&self, pool: &Pool, bucket: u64) -> Result<u64> {
        step(pool, self.segment_slot(pool, bucket)?, bucket)
    }

    /// The bucket slot of a hash.
    fn slot_of(&self, pool: &Pool, hash: u64) -> Result<u64> {
        self.bucket_slot(pool, bucket_of(hash, self.buckets(pool)?))
    }

    /// Creates the directory and the segment for a new bucket, if it is their first one.
    fn make_bucket(&self, tx: &mut Transaction<'_>, bucket: u64) -> Result<()> {
        if bucket.is_multiple_of(FAN * FAN) {
            let directory = zeroed(tx)?;
            tx.set_word(self.directory_slot(bucket), directory)?;
        }
        if bucket.is_multiple_of(FAN) {
            let segment = zeroed(tx)?;
            let slot = self.segment_slot(tx, bucket)?;
            tx.set_word(slot, segment)?;
        }
        Ok(())
    }

    /// Adds a bucket where there are more entries than buckets, and moves the entries that belong to it.
    fn grow(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let (len, buckets) = (tx.word(self.root)?, self.buckets(tx)?);
        if len <= buckets || buckets == BUCKETS_MAX {
            return Ok(());
        }
        self.make_bucket(tx, buckets)?;
        tx.set_word(self.root + 8, buckets + 1)?;
        let old = self.bucket_slot(tx, buckets - power_of_two_up_to(buckets))?;
        let new = self.bucket_slot(tx, buckets)?;
        let chain = self.chain(tx, old)?;
        let (mut old_end, mut new_end) = (old, new);
        for node in chain {
            let end = if bucket_of(node.hash, buckets + 1) == buckets { &mut new_end } else { &mut old_end };
            tx.set_word(*end, node.off)?;
            *end = node.off + 16;
        }
        tx.set_word(old_end, 0)?;
        tx.set_word(new_end, 0)
    }

    // ---- chains ----

    /// The nodes of the chain whose first reference is stored at `slot`.
    fn chain(&self, pool: &Pool, mut slot: u64) -> Result<Vec<Node>> {
        let (mut nodes, mut steps) = (Vec::new(), Steps::new(pool));
        loop {
            let off = pool.word(slot)?;
            if off == 0 {
                return Ok(nodes);
            }
            steps.take(off)?;
            let [hash, item, next] = pool.words(off)?;
            nodes.push(Node { off, hash, item, next, slot });
            slot = off + 16;
        }
    }

    fn find(&self, pool: &Pool, key: &[u8]) -> Result<Option<Node>> {
        let hash = self.hash(pool, key)?;
        for node in self.chain(pool, self.slot_of(pool, hash)?)? {
            if node.hash == hash && *pool.item_key(node.item)? == *key {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }
}

/// The offset of a word in the directory or segment that the reference at `slot` refers to.
fn step(pool: &Pool, slot: u64, index: u64) -> Result<u64> {
    let off = pool.word(slot)?;
    off.checked_add(8 * (index % FAN)).ok_or(HandlerError::damaged("reference to buckets", slot))
}

fn zeroed(tx: &mut Transaction<'_>) -> Result<u64> {
    let off = tx.alloc(FAN_BYTES)?;
    tx.set_words(off, &[0; FAN as usize])?;
    Ok(off)
}

/// The largest power of two that is at most the number of buckets.
const fn power_of_two_up_to(buckets: u64) -> u64 {
    1 << buckets.ilog2()
}

const fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let low = power_of_two_up_to(buckets);
    let bucket = hash % (2 * low);
    if bucket < buckets { bucket } else { hash % low }
}

impl Map for HashMap {
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.find(pool, key)?;
        found.map(|node| pool.item_value(node.item)).transpose()
    }

    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        if let Some(node) = self.find(tx, key)? {
            let item = tx.replace_item(node.item, key, value)?;
            tx.set_word(node.off + 8, item)?;
            return Ok(true);
        }
        let hash = self.hash(tx, key)?;
        let slot = self.slot_of(tx, hash)?;
        let (item, off, next) = (tx.new_item(key, value)?, tx.alloc(NODE_BYTES)?, tx.word(slot)?);
        tx.set_words(off, &[hash, item, next])?;
        tx.set_word(slot, off)?;
        count(tx, self.root, true)?;
        self.grow(tx)?;
        Ok(false)
    }

    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let Some(node) = self.find(tx, key)? else { return Ok(false) };
        tx.set_word(node.slot, node.next)?;
        tx.free_item(node.item)?;
        tx.free(node.off, NODE_BYTES)?;
        count(tx, self.root, false)?;
        Ok(true)
    }

    fn len(&self, pool: &Pool) -> Result<u64> {
        pool.word(self.root)
    }

    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()> {
        for bucket in 0..self.buckets(pool)? {
            for node in self.chain(pool, self.bucket_slot(pool, bucket)?)? {
                visit(&pool.item_key(node.item)?, &pool.item_value(node.item)?)?;
            }
        }
        Ok(())
    }

    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()> {
        let mut census = Census::new(pool, blocks);
        census.block(self.root, ROOT_BYTES)?;
        let buckets = self.buckets(pool)?;
        for bucket in 0..buckets {
            if bucket.is_multiple_of(FAN * FAN) {
                census.block(pool.word(self.directory_slot(bucket))?, FAN_BYTES)?;
            }
            if bucket.is_multiple_of(FAN) {
                census.block(pool.word(self.segment_slot(pool, bucket)?)?, FAN_BYTES)?;
            }
            for node in self.chain(pool, self.bucket_slot(pool, bucket)?)? {
                census.block(node.off, NODE_BYTES)?;
                let hash = self.hash(pool, &census.item(node.item)?)?;
                if hash != node.hash || bucket_of(hash, buckets) != bucket {
                    return Err(HandlerError::damaged("key in the wrong bucket", node.off));
                }
            }
        }
        census.end(self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_bucket_takes_entries_from_one_chain_only() {
        for buckets in BUCKETS_FIRST..100 {
            for hash in (0..5000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                let (before, after) = (bucket_of(hash, buckets), bucket_of(hash, buckets + 1));
                assert!(before < buckets);
                assert!(
                    after == before || after == buckets && before == buckets - power_of_two_up_to(buckets)
                );
            }
        }
    }
}
