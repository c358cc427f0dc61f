//! The five structures, and what they have in common.

mod btree;
mod critbit;
mod hashmap;
mod rbtree;
mod skiplist;

use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use std::cmp::Ordering;

/// Deepest path through a balanced tree: one that is deeper goes round in circles.
const DEPTH_MAX: usize = 128;

/// A map from byte strings to byte strings whose nodes lie in a pool. Keys have at most
/// [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes, values at most [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
///
/// A call that fails has left its transaction in pieces: drop it. All fail with
/// [`HandlerError::Damaged`] where the structure is damaged, and with errors of the medium.
pub trait Map: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// See the trait.
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Gives a key a value; true when it had one before.
    ///
    /// # Errors
    /// See the trait; [`HandlerError::TooLong`], [`HandlerError::Full`].
    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes a key; true when it was there.
    ///
    /// # Errors
    /// See the trait.
    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool>;

    /// Number of entries.
    ///
    /// # Errors
    /// See the trait.
    fn len(&self, pool: &Pool) -> Result<u64>;

    /// Calls `visit(key, value)` for every entry, ascending by key but for the hash map.
    ///
    /// # Errors
    /// See the trait; the visitor's own.
    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()>;

    /// Checks every invariant of the structure, and adds its blocks to `blocks`.
    ///
    /// # Errors
    /// See the trait.
    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()>;
}

/// What [`Map::visit`] calls.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// Which structure a map is.
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

    /// The structure of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|structure| structure.name() == name)
    }

    /// The tag that says so in a pool.
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

    /// Makes an empty map and returns the offset of its root block. `seed` is for hashing, where the structure hashes.
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

/// How many blocks a walk may still meet. A heap holds only so many: circles end here, and so does sharing.
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

/// Changes the count in the word at `at` by one.
fn count(tx: &mut Transaction<'_>, at: u64, up: bool) -> Result<()> {
    let len = tx.word(at)?;
    let next = if up { len.checked_add(1) } else { len.checked_sub(1) };
    tx.set_word(at, next.ok_or(HandlerError::damaged("number of entries", at))?)
}

/// What a check has seen so far: entries in order, their number, their blocks.
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

    /// Notes a block of `len` bytes.
    fn block(&mut self, off: u64, len: u64) -> Result<()> {
        self.blocks.push(Block::of(off, len)?);
        self.steps.take(off)
    }

    /// Notes an item, with its block. Both its sums must hold.
    fn item(&mut self, item: u64) -> Result<Vec<u8>> {
        let key = self.pool.item_key(item)?.into_owned();
        self.pool.item_value(item)?;
        self.blocks.push(self.pool.item_block(item)?);
        self.entries += 1;
        Ok(key)
    }

    /// The same for an item whose key must be above all before.
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
