//! A crit-bit tree (Bernstein, "Crit-bit trees"): an inner node for each bit at which two neighbouring keys first
//! differ.

use super::{Census, Map, Steps, Visit, count};
use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};

const ROOT_BYTES: u64 = 16;
const NODE_BYTES: u64 = 24;
/// Bits for each byte of a key: one that says that the byte exists, and its eight bits.
const BYTE_BITS: u64 = 9;
/// Set in a reference that refers to an item.
const ITEM: u64 = 1;

/// The map. Its root block: root reference, number of entries.
pub(super) struct CritBit {
    root: u64,
}

/// An inner node in memory.
#[derive(Clone, Copy)]
struct Node {
    off: u64,
    bit: u64,
    children: [u64; 2],
}

/// Where a walk ended: at an item, or at the first node whose bit is not below a limit.
struct Place {
    /// The reference found.
    at: u64,
    /// The offset at which that reference is stored.
    slot: u64,
    /// The node that contains `slot`, and the offset at which the reference to that node is stored.
    parent: Option<(Node, u64)>,
}

impl CritBit {
    pub(super) fn create(tx: &mut Transaction<'_>) -> Result<u64> {
        let root = tx.alloc(ROOT_BYTES)?;
        tx.set_words(root, &[0, 0])?;
        Ok(root)
    }

    pub(super) fn new(root: u64) -> Self {
        Self { root }
    }

    fn len_at(&self) -> u64 {
        self.root + 8
    }

    /// Follows the bits of a key below `limit`. Bits increase along the path, so that the walk ends.
    fn follow(&self, pool: &Pool, key: &[u8], limit: u64) -> Result<Place> {
        let mut place = Place { at: pool.word(self.root)?, slot: self.root, parent: None };
        while place.at & ITEM == 0 && place.at != 0 {
            let node = Node::load(pool, place.at)?;
            if place.parent.is_some_and(|(parent, _)| parent.bit >= node.bit) {
                return Err(HandlerError::damaged("bit out of order", node.off));
            }
            if node.bit >= limit {
                break;
            }
            let side = bit_of(key, node.bit);
            place =
                Place { at: node.children[side], slot: node.slot(side), parent: Some((node, place.slot)) };
        }
        Ok(place)
    }

    /// The item that has the key if any item has it; `None` in an empty tree.
    fn closest(&self, pool: &Pool, key: &[u8]) -> Result<Option<(Place, u64)>> {
        let place = self.follow(pool, key, u64::MAX)?;
        let item = place.at & !ITEM;
        Ok((place.at != 0).then_some((place, item)))
    }

    /// Inserts a new item at the first bit at which it differs from the item found.
    fn branch(&self, tx: &mut Transaction<'_>, key: &[u8], bit: u64, item: u64) -> Result<()> {
        let place = self.follow(tx, key, bit)?;
        let side = bit_of(key, bit);
        let mut children = [place.at; 2];
        children[side] = item | ITEM;
        let off = tx.alloc(NODE_BYTES)?;
        tx.set_words(off, &[bit, children[0], children[1]])?;
        tx.set_word(place.slot, off)
    }
}

impl Map for CritBit {
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.closest(pool, key)? {
            Some((_, item)) if *pool.item_key(item)? == *key => pool.item_value(item).map(Some),
            _ => Ok(None),
        }
    }

    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let Some((place, old)) = self.closest(tx, key)? else {
            let item = tx.new_item(key, value)?;
            tx.set_word(self.root, item | ITEM)?;
            count(tx, self.len_at(), true)?;
            return Ok(false);
        };
        let differ = first_difference(&tx.item_key(old)?, key);
        match differ {
            None => {
                let item = tx.replace_item(old, key, value)?;
                tx.set_word(place.slot, item | ITEM)?;
            }
            Some(bit) => {
                let item = tx.new_item(key, value)?;
                self.branch(tx, key, bit, item)?;
                count(tx, self.len_at(), true)?;
            }
        }
        Ok(differ.is_none())
    }

    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let Some((place, item)) = self.closest(tx, key)? else { return Ok(false) };
        if *tx.item_key(item)? != *key {
            return Ok(false);
        }
        match place.parent {
            None => tx.set_word(self.root, 0)?,
            Some((parent, slot)) => {
                let side = bit_of(key, parent.bit);
                tx.set_word(slot, parent.children[1 - side])?;
                tx.free(parent.off, NODE_BYTES)?;
            }
        }
        tx.free_item(item)?;
        count(tx, self.len_at(), false)?;
        Ok(true)
    }

    fn len(&self, pool: &Pool) -> Result<u64> {
        pool.word(self.len_at())
    }

    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()> {
        walk(pool, pool.word(self.root)?, |met| match met {
            Met::Item(item) => visit(&pool.item_key(item)?, &pool.item_value(item)?),
            Met::Node(_) => Ok(()),
        })
    }

    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()> {
        let mut census = Census::new(pool, blocks);
        census.block(self.root, ROOT_BYTES)?;
        let mut last: Option<u64> = None;
        // Items are visited in order. Two neighbours must first differ at the bit of the node between them.
        walk(pool, pool.word(self.root)?, |met| match met {
            Met::Item(item) => {
                let before = census.last.clone();
                census.next_item(item)?;
                check_neighbours(before, census.last.as_deref(), last, item)
            }
            Met::Node(node) => {
                last = Some(node.bit);
                census.block(node.off, NODE_BYTES)
            }
        })?;
        census.end(self.len_at())
    }
}

fn check_neighbours(before: Option<Vec<u8>>, key: Option<&[u8]>, bit: Option<u64>, item: u64) -> Result<()> {
    let differ = before.zip(key).and_then(|(before, key)| first_difference(&before, key));
    if differ == bit { Ok(()) } else { Err(HandlerError::damaged("key below the wrong bit", item)) }
}

enum Met {
    Item(u64),
    /// Between the items on its two sides.
    Node(Node),
}

/// Calls `meet` with everything below `top`, in order. Paths are as long as keys: no recursion.
fn walk(pool: &Pool, top: u64, mut meet: impl FnMut(Met) -> Result<()>) -> Result<()> {
    let (mut above, mut parent, mut steps) = (Vec::new(), None, Steps::new(pool));
    let mut at = top;
    while at != 0 {
        while at & ITEM == 0 {
            let node = Node::load(pool, at)?;
            steps.take(at)?;
            if parent.replace(node.bit).is_some_and(|parent| parent >= node.bit) {
                return Err(HandlerError::damaged("bit out of order", at));
            }
            above.push(node);
            at = node.children[0];
        }
        meet(Met::Item(at & !ITEM))?;
        let Some(node) = above.pop() else { return Ok(()) };
        meet(Met::Node(node))?;
        parent = Some(node.bit);
        at = node.children[1];
    }
    Ok(())
}

impl Node {
    fn load(pool: &Pool, off: u64) -> Result<Self> {
        let [bit, zero, one] = pool.words(off)?;
        if zero == 0 || one == 0 {
            return Err(HandlerError::damaged("node with one child", off));
        }
        Ok(Self { off, bit, children: [zero, one] })
    }

    fn slot(&self, side: usize) -> u64 {
        self.off + 8 + 8 * side as u64
    }
}

/// Bit `bit` of a key: 0 or 1.
fn bit_of(key: &[u8], bit: u64) -> usize {
    let byte = usize::try_from(bit / BYTE_BITS).ok().and_then(|index| key.get(index));
    match (byte, bit % BYTE_BITS) {
        (None, _) => 0,
        (Some(_), 0) => 1,
        (Some(byte), place) => usize::from(byte >> (BYTE_BITS - 1 - place) & 1),
    }
}

/// The first bit at which two keys differ.
fn first_difference(one: &[u8], other: &[u8]) -> Option<u64> {
    let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let start = common as u64 * BYTE_BITS;
    match (one.get(common), other.get(common)) {
        (None, None) => None,
        (Some(a), Some(b)) => Some(start + 1 + u64::from((a ^ b).leading_zeros())),
        _ => Some(start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_tell_keys_apart_and_keep_their_order() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"ab", b"b"];
        for pair in keys.windows(2) {
            let bit = first_difference(pair[0], pair[1]).expect("they differ");
            assert_eq!((bit_of(pair[0], bit), bit_of(pair[1], bit)), (0, 1), "{pair:?}");
            assert!((0..bit).all(|below| bit_of(pair[0], below) == bit_of(pair[1], below)));
        }
        assert_eq!(first_difference(b"same", b"same"), None);
    }
}
