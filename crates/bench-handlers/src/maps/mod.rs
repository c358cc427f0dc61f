//! The five structures, and their common parts.

mod btree;
mod critbit;
mod hashmap;
mod rbtree;
mod skiplist;

use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use std::cmp::Ordering;

/// Maximum depth of a balanced tree: a deeper path contains a cycle.
const DEPTH_MAX: usize = 128;

/// A map from byte strings to byte strings whose nodes lie in a pool. Keys have at most
/// [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes, values at most [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
///
/// A call that fails leaves its transaction incomplete: drop the transaction. All calls fail with
/// [`HandlerError::Damaged`] where the structure is damaged, and with errors of the medium.
pub trait Map: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// See the trait.
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets the value of a key. True when it had one before.
    ///
    /// # Errors
    /// See the trait; [`HandlerError::TooLong`], [`HandlerError::Full`].
    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes a key. True when it existed.
    ///
    /// # Errors
    /// See the trait.
    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool>;

    /// Number of entries.
    ///
    /// # Errors
    /// See the trait.
    fn len(&self, pool: &Pool) -> Result<u64>;

    /// Calls `visit(key, value)` for every entry, in ascending key order except in the hash map.
    ///
    /// # Errors
    /// See the trait; errors of the visitor.
    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()>;

    /// Checks every invariant of the structure, and adds its blocks to `blocks`.
    ///
    /// # Errors
    /// See the trait.
    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()>;
}

/// The callback of [`Map::visit`].
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// The structure of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// B-tree of order 8, after `btree_map`.
    BTree,
    /// Crit-bit tree, after `ctree_map`.
    CritBit,
    /// Red-black tree, after `rbtree_map`.
    RedBlack,
    /// Chained hash map that grows a bucket at a time, after `hashmap_tx`.
    HashMap,
    /// Skip list, after `skiplist_map`.
    SkipList,
}

impl Structure {
    /// Every structure, in the paper's order.
    pub const ALL: [Self; 5] = [Self::BTree, Self::CritBit, Self::RedBlack, Self::HashMap, Self::SkipList];

    /// The name used in flags and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BTree => "btree",
            Self::CritBit => "ctree",
            Self::RedBlack => "rbtree",
            Self::HashMap => "hashmap",
            Self::SkipList => "skiplist",
        }
    }

    /// The structure with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|structure| structure.name() == name)
    }

    /// The structure's tag in a pool.
    pub const fn tag(self) -> u64 {
        match self {
            Self::BTree => 1,
            Self::CritBit => 2,
            Self::RedBlack => 3,
            Self::HashMap => 4,
            Self::SkipList => 5,
        }
    }

    /// The structure with that tag.
    pub fn tagged(tag: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|structure| structure.tag() == tag)
    }

    /// Creates an empty map and returns the offset of its root block. `seed` is for the structures that hash.
    ///
    /// # Errors
    /// [`HandlerError::Full`]; those of the medium.
    pub fn create(self, tx: &mut Transaction<'_>, seed: u64) -> Result<u64> {
        match self {
            Self::BTree => btree::BTree::create(tx),
            Self::CritBit => critbit::CritBit::create(tx),
            Self::RedBlack => rbtree::RedBlack::create(tx),
            Self::HashMap => hashmap::HashMap::create(tx, seed),
            Self::SkipList => skiplist::SkipList::create(tx, seed),
        }
    }

    /// The map whose root block is at `root`.
    pub fn open(self, root: u64) -> Box<dyn Map> {
        match self {
            Self::BTree => Box::new(btree::BTree::new(root)),
            Self::CritBit => Box::new(critbit::CritBit::new(root)),
            Self::RedBlack => Box::new(rbtree::RedBlack::new(root)),
            Self::HashMap => Box::new(hashmap::HashMap::new(root)),
            Self::SkipList => Box::new(skiplist::SkipList::new(root)),
        }
    }
}

/// How the key of an item compares with `key`.
fn compare(pool: &Pool, item: u64, key: &[u8]) -> Result<Ordering> {
    Ok(pool.item_key(item)?.as_ref().cmp(key))
}

/// How many more blocks a walk may visit. A heap holds no more blocks than that, so that a walk over a cycle, or over
/// shared blocks, ends.
struct Steps(u64);

impl Steps {
    fn new(pool: &Pool) -> Self {
        Self(pool.blocks_max())
    }

    fn take(&mut self, at: u64) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(HandlerError::damaged("walk without an end", at))?;
        Ok(())
    }
}

/// Increments or decrements the count in the word at `at`.
fn count(tx: &mut Transaction<'_>, at: u64, up: bool) -> Result<()> {
    let len = tx.word(at)?;
    let next = if up { len.checked_add(1) } else { len.checked_sub(1) };
    tx.set_word(at, next.ok_or(HandlerError::damaged("number of entries", at))?)
}

/// What a check has visited so far: the last key, the number of entries, their blocks.
struct Census<'a> {
    pool: &'a Pool,
    blocks: &'a mut Vec<Block>,
    steps: Steps,
    last: Option<Vec<u8>>,
    entries: u64,
}

impl<'a> Census<'a> {
    fn new(pool: &'a Pool, blocks: &'a mut Vec<Block>) -> Self {
        Self { pool, blocks, steps: Steps::new(pool), last: None, entries: 0 }
    }

    /// Records a block of `len` bytes.
    fn block(&mut self, off: u64, len: u64) -> Result<()> {
        self.blocks.push(Block::of(off, len)?);
        self.steps.take(off)
    }

    /// Records an item and its block. Both its checksums must be right.
    fn item(&mut self, item: u64) -> Result<Vec<u8>> {
        let key = self.pool.item_key(item)?.into_owned();
        self.pool.item_value(item)?;
        self.blocks.push(self.pool.item_block(item)?);
        self.entries += 1;
        Ok(key)
    }

    /// Records an item whose key must be greater than all keys before it.
    fn next_item(&mut self, item: u64) -> Result<()> {
        let key = self.item(item)?;
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(HandlerError::damaged("key out of order", item));
        }
        self.last = Some(key);
        Ok(())
    }

    /// Compares the number of entries with the count in the word at `at`.
    fn end(&self, at: u64) -> Result<()> {
        let counted = self.pool.word(at)? == self.entries;
        if counted { Ok(()) } else { Err(HandlerError::damaged("number of entries", at)) }
    }
}
