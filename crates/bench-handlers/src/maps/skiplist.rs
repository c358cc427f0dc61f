//! A skip list (Pugh, "Skip lists: a probabilistic alternative to balanced trees", CACM 1990). A key's height is
//! derived from its hash, so that no random number is drawn.

use super::{Census, Map, Steps, Visit, compare, count};
use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use std::cmp::Ordering;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Maximum number of lists that contain a node.
const HEIGHT_MAX: usize = 12;
/// Number of words before the references of a node, and of the root block.
const HEAD_WORDS: u64 = 2;
const ROOT_BYTES: u64 = (HEAD_WORDS + HEIGHT_MAX as u64) * 8;

/// The map. Its root block: number of entries, seed, the first node of each list.
pub(super) struct SkipList {
    root: u64,
}

/// For each list, the offset of the reference to the first node that is not before a key.
type Slots = [u64; HEIGHT_MAX];

#[derive(Clone, Copy)]
struct Node {
    off: u64,
    item: u64,
    height: usize,
}

impl Node {
    fn load(pool: &Pool, off: u64) -> Result<Self> {
        let [item, height] = pool.words(off)?;
        let height = usize::try_from(height).ok().filter(|height| (1..=HEIGHT_MAX).contains(height));
        Ok(Self { off, item, height: height.ok_or(HandlerError::damaged("height of a node", off))? })
    }

    const fn bytes(height: usize) -> u64 {
        (HEAD_WORDS + height as u64) * 8
    }
}

const fn slot(off: u64, level: usize) -> u64 {
    off + (HEAD_WORDS + level as u64) * 8
}

impl SkipList {
    pub(super) fn create(tx: &mut Transaction<'_>, seed: u64) -> Result<u64> {
        let root = tx.alloc(ROOT_BYTES)?;
        let mut words = [0; HEAD_WORDS as usize + HEIGHT_MAX];
        words[1] = seed;
        tx.set_words(root, &words)?;
        Ok(root)
    }

    pub(super) fn new(root: u64) -> Self {
        Self { root }
    }

    fn height(&self, pool: &Pool, key: &[u8]) -> Result<usize> {
        let hash = xxh3_64_with_seed(key, pool.word(self.root + 8)?);
        Ok((1 + hash.trailing_zeros() as usize / 2).min(HEIGHT_MAX))
    }

    /// The slots of a key, and its node if it exists.
    fn find(&self, pool: &Pool, key: &[u8]) -> Result<(Slots, Option<Node>)> {
        let mut slots = [0; HEIGHT_MAX];
        let (mut at, mut steps, mut found) = (self.root, Steps::new(pool), None);
        // The node at which the search in the list above ended: its key need not be read again.
        let mut end = 0;
        for level in (0..HEIGHT_MAX).rev() {
            loop {
                slots[level] = slot(at, level);
                let next = pool.word(slots[level])?;
                if next == 0 || next == end {
                    break;
                }
                match compare(pool, pool.word(next)?, key)? {
                    Ordering::Less => at = next,
                    order => {
                        end = next;
                        found = order.is_eq().then_some(next);
                        break;
                    }
                }
                steps.take(next)?;
            }
        }
        Ok((slots, found.map(|off| Node::load(pool, off)).transpose()?))
    }

    /// The nodes of the list that contains all nodes, in order.
    fn nodes<'a>(&self, pool: &'a Pool) -> impl Iterator<Item = Result<Node>> + 'a {
        let (mut at, mut steps) = (slot(self.root, 0), Steps::new(pool));
        std::iter::from_fn(move || {
            let next = pool.word(at).and_then(|off| {
                steps.take(off)?;
                (off != 0).then(|| Node::load(pool, off)).transpose()
            });
            next.inspect(|node| at = node.map_or(at, |node| slot(node.off, 0))).transpose()
        })
    }
}

impl Map for SkipList {
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (_, node) = self.find(pool, key)?;
        node.map(|node| pool.item_value(node.item)).transpose()
    }

    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let (slots, found) = self.find(tx, key)?;
        if let Some(node) = found {
            let item = tx.replace_item(node.item, key, value)?;
            tx.set_word(node.off, item)?;
            return Ok(true);
        }
        let height = self.height(tx, key)?;
        let (item, off) = (tx.new_item(key, value)?, tx.alloc(Node::bytes(height))?);
        tx.set_words(off, &[item, height as u64])?;
        for (level, before) in slots.into_iter().enumerate().take(height) {
            let next = tx.word(before)?;
            tx.set_word(slot(off, level), next)?;
            tx.set_word(before, off)?;
        }
        count(tx, self.root, true)?;
        Ok(false)
    }

    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let (slots, found) = self.find(tx, key)?;
        let Some(node) = found else { return Ok(false) };
        for (level, before) in slots.into_iter().enumerate().take(node.height) {
            if tx.word(before)? != node.off {
                return Err(HandlerError::damaged("node missing from a list", node.off));
            }
            let next = tx.word(slot(node.off, level))?;
            tx.set_word(before, next)?;
        }
        tx.free_item(node.item)?;
        tx.free(node.off, Node::bytes(node.height))?;
        count(tx, self.root, false)?;
        Ok(true)
    }

    fn len(&self, pool: &Pool) -> Result<u64> {
        pool.word(self.root)
    }

    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()> {
        for node in self.nodes(pool) {
            let item = node?.item;
            visit(&pool.item_key(item)?, &pool.item_value(item)?)?;
        }
        Ok(())
    }

    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()> {
        let mut census = Census::new(pool, blocks);
        census.block(self.root, ROOT_BYTES)?;
        // The position in each list: a node must be the next one in every list that contains it.
        let mut ends: Slots = std::array::from_fn(|level| slot(self.root, level));
        for node in self.nodes(pool) {
            let node = node?;
            census.block(node.off, Node::bytes(node.height))?;
            census.next_item(node.item)?;
            if node.height != self.height(pool, &pool.item_key(node.item)?)? {
                return Err(HandlerError::damaged("height of a node", node.off));
            }
            for (level, end) in ends.iter_mut().enumerate().take(node.height) {
                if pool.word(*end)? != node.off {
                    return Err(HandlerError::damaged("node missing from a list", node.off));
                }
                *end = slot(node.off, level);
            }
        }
        for end in ends {
            if pool.word(end)? != 0 {
                return Err(HandlerError::damaged("list that goes on behind its end", end));
            }
        }
        census.end(self.root)
    }
}
