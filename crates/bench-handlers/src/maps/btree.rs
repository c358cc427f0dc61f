//! A B-tree of order 8 (Cormen et al., *Introduction to Algorithms*, chapter 18, with minimum degree 4). Nodes are
//! split and filled on the way down, so that no operation goes back up.

use super::{Census, DEPTH_MAX, Map, Steps, Visit, compare, count};
use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use std::cmp::Ordering;

/// Maximum number of items in a node.
const ITEMS_MAX: usize = 7;
/// Minimum number of items in a node other than the root.
const ITEMS_MIN: usize = 3;
const NODE_WORDS: usize = 16;
const NODE_BYTES: u64 = NODE_WORDS as u64 * 8;
const ROOT_BYTES: u64 = 16;

/// The map. Its root block: root node, number of entries.
pub(super) struct BTree {
    root: u64,
}

/// Which item of a subtree to remove.
#[derive(Clone, Copy)]
enum Want<'a> {
    Key(&'a [u8]),
    First,
    Last,
}

impl Want<'_> {
    /// The index of the requested item in the node (`Ok`), or of the child that contains it (`Err`).
    fn place(self, pool: &Pool, node: &Node) -> Result<std::result::Result<usize, usize>> {
        Ok(match self {
            Self::Key(key) => node.find(pool, key)?,
            Self::First if node.is_leaf() && !node.items.is_empty() => Ok(0),
            Self::First => Err(0),
            Self::Last if node.is_leaf() && !node.items.is_empty() => Ok(node.items.len() - 1),
            Self::Last => Err(node.items.len()),
        })
    }
}

impl BTree {
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

    // ---- insertion ----

    /// The root node, with room for an item from a split child.
    fn root_with_room(&self, tx: &mut Transaction<'_>) -> Result<Node> {
        let top = tx.word(self.root)?;
        if top == 0 {
            let node = Node::add(tx, Vec::new(), Vec::new())?;
            tx.set_word(self.root, node.off)?;
            return Ok(node);
        }
        let node = Node::load(tx, top)?;
        if node.items.len() < ITEMS_MAX {
            return Ok(node);
        }
        let mut above = Node::add(tx, Vec::new(), vec![top])?;
        tx.set_word(self.root, above.off)?;
        above.split_child(tx, 0)?;
        Ok(above)
    }

    // ---- removal ----

    /// Removes an item from the subtree at `at`. Any node of the subtree except its root may have to be filled first.
    fn take(tx: &mut Transaction<'_>, mut at: u64, want: Want<'_>) -> Result<Option<u64>> {
        for _ in 0..DEPTH_MAX {
            let mut node = Node::load(tx, at)?;
            at = match (want.place(tx, &node)?, node.is_leaf()) {
                (Ok(index), true) => {
                    let item = node.items.remove(index);
                    node.store(tx)?;
                    return Ok(Some(item));
                }
                (Err(_), true) => return Ok(None),
                (Ok(index), false) => match Self::take_inner(tx, &mut node, index)? {
                    Some(item) => return Ok(Some(item)),
                    None => node.children[index],
                },
                (Err(index), false) => node.filled_child(tx, index)?,
            };
        }
        Err(HandlerError::damaged("path that is too deep", at))
    }

    /// Removes an item of an inner node, which is replaced by its neighbour in order. `None` where both children have
    /// the minimum number of items: they are then merged into one child that contains the item.
    fn take_inner(tx: &mut Transaction<'_>, node: &mut Node, index: usize) -> Result<Option<u64>> {
        for (child, want) in [(index, Want::Last), (index + 1, Want::First)] {
            let child = node.children[child];
            if Node::load(tx, child)?.items.len() > ITEMS_MIN {
                let other = Self::take(tx, child, want)?;
                let other = other.ok_or(HandlerError::damaged("empty node", child))?;
                let item = std::mem::replace(&mut node.items[index], other);
                node.store(tx)?;
                return Ok(Some(item));
            }
        }
        node.merge_children(tx, index)?;
        Ok(None)
    }

    /// Replaces the root node where it is empty.
    fn shrink_root(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let top = Node::load(tx, tx.word(self.root)?)?;
        if top.items.is_empty() {
            tx.set_word(self.root, top.children.first().copied().unwrap_or(0))?;
            tx.free(top.off, NODE_BYTES)?;
        }
        Ok(())
    }
}

impl Map for BTree {
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut at = pool.word(self.root)?;
        for _ in 0..DEPTH_MAX {
            if at == 0 {
                return Ok(None);
            }
            let node = Node::load(pool, at)?;
            at = match node.find(pool, key)? {
                Ok(index) => return pool.item_value(node.items[index]).map(Some),
                Err(index) => node.children.get(index).copied().unwrap_or(0),
            };
        }
        Err(HandlerError::damaged("path that is too deep", at))
    }

    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let mut node = self.root_with_room(tx)?;
        for _ in 0..DEPTH_MAX {
            match node.find(tx, key)? {
                Ok(index) => {
                    node.items[index] = tx.replace_item(node.items[index], key, value)?;
                    node.store(tx)?;
                    return Ok(true);
                }
                Err(index) if node.is_leaf() => {
                    node.items.insert(index, tx.new_item(key, value)?);
                    node.store(tx)?;
                    count(tx, self.len_at(), true)?;
                    return Ok(false);
                }
                Err(index) => {
                    let child = Node::load(tx, node.children[index])?;
                    // A split moves an item up into this node: search it again.
                    if child.items.len() == ITEMS_MAX { node.split_child(tx, index)? } else { node = child }
                }
            }
        }
        Err(HandlerError::damaged("path that is too deep", node.off))
    }

    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let top = tx.word(self.root)?;
        if top == 0 {
            return Ok(false);
        }
        let item = Self::take(tx, top, Want::Key(key))?;
        self.shrink_root(tx)?;
        if let Some(item) = item {
            tx.free_item(item)?;
            count(tx, self.len_at(), false)?;
        }
        Ok(item.is_some())
    }

    fn len(&self, pool: &Pool) -> Result<u64> {
        pool.word(self.len_at())
    }

    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()> {
        let (top, mut steps) = (pool.word(self.root)?, Steps::new(pool));
        walk(pool, top, &mut steps, DEPTH_MAX, &mut |item| {
            visit(&pool.item_key(item)?, &pool.item_value(item)?)
        })
    }

    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()> {
        let mut census = Census::new(pool, blocks);
        census.block(self.root, ROOT_BYTES)?;
        let top = pool.word(self.root)?;
        check_node(&mut census, top, 0)?;
        census.end(self.len_at())
    }
}

/// Calls `visit` with every item of a subtree, in order.
fn walk(
    pool: &Pool,
    at: u64,
    steps: &mut Steps,
    depth: usize,
    visit: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    if at == 0 {
        return Ok(());
    }
    let depth = depth.checked_sub(1).ok_or(HandlerError::damaged("path that is too deep", at))?;
    steps.take(at)?;
    let node = Node::load(pool, at)?;
    for index in 0..=node.items.len() {
        walk(pool, node.children.get(index).copied().unwrap_or(0), steps, depth, visit)?;
        node.items.get(index).map_or(Ok(()), |item| visit(*item))?;
    }
    Ok(())
}

/// Checks a subtree whose root has `depth` nodes above it, and returns its height.
fn check_node(census: &mut Census<'_>, at: u64, depth: usize) -> Result<usize> {
    if at == 0 && depth == 0 {
        return Ok(0);
    }
    let node = Node::load(census.pool, at)?;
    census.block(at, NODE_BYTES)?;
    let fewest = if depth == 0 { 1 } else { ITEMS_MIN };
    if node.items.len() < fewest || depth == DEPTH_MAX {
        return Err(HandlerError::damaged("node with too few items, or too deep", at));
    }
    let mut heights = Vec::new();
    for index in 0..=node.items.len() {
        if let Some(child) = node.children.get(index) {
            heights.push(check_node(census, *child, depth + 1)?);
        }
        node.items.get(index).map_or(Ok(()), |item| census.next_item(*item))?;
    }
    let height = heights.first().copied().unwrap_or(0);
    let even = heights.iter().all(|other| *other == height);
    if even { Ok(height + 1) } else { Err(HandlerError::damaged("leaves at different depths", at)) }
}

/// A node in memory. A leaf has no children; any other node has one child more than items.
struct Node {
    off: u64,
    items: Vec<u64>,
    children: Vec<u64>,
}

impl Node {
    fn load(pool: &Pool, off: u64) -> Result<Self> {
        let words = pool.words::<NODE_WORDS>(off)?;
        let len = usize::try_from(words[0]).ok().filter(|len| *len <= ITEMS_MAX);
        let len = len.ok_or(HandlerError::damaged("number of items in a node", off))?;
        let children = &words[1 + ITEMS_MAX..][..len + 1];
        let children = if children[0] == 0 { Vec::new() } else { children.to_vec() };
        if children.contains(&0) {
            return Err(HandlerError::damaged("node without a child", off));
        }
        Ok(Self { off, items: words[1..1 + len].to_vec(), children })
    }

    fn add(tx: &mut Transaction<'_>, items: Vec<u64>, children: Vec<u64>) -> Result<Self> {
        let node = Self { off: tx.alloc(NODE_BYTES)?, items, children };
        node.store(tx)?;
        Ok(node)
    }

    fn store(&self, tx: &mut Transaction<'_>) -> Result<()> {
        let mut words = [0; NODE_WORDS];
        words[0] = self.items.len() as u64;
        words[1..][..self.items.len()].copy_from_slice(&self.items);
        words[1 + ITEMS_MAX..][..self.children.len()].copy_from_slice(&self.children);
        tx.set_words(self.off, &words)
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// The index of the item with this key (`Ok`), or of the child that would contain it (`Err`).
    fn find(&self, pool: &Pool, key: &[u8]) -> Result<std::result::Result<usize, usize>> {
        for (index, item) in self.items.iter().enumerate() {
            match compare(pool, *item, key)? {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Ok(index)),
                Ordering::Greater => return Ok(Err(index)),
            }
        }
        Ok(Err(self.items.len()))
    }

    /// Splits a full child. Its middle item moves up into this node, which has room.
    fn split_child(&mut self, tx: &mut Transaction<'_>, index: usize) -> Result<()> {
        let mut left = Self::load(tx, self.children[index])?;
        if left.items.len() != ITEMS_MAX || self.items.len() == ITEMS_MAX {
            return Err(HandlerError::damaged("node that cannot be split", left.off));
        }
        let right_children = if left.is_leaf() { Vec::new() } else { left.children.split_off(ITEMS_MIN + 1) };
        let right_items = left.items.split_off(ITEMS_MIN + 1);
        let middle = left.items.pop().expect("half of a full node");
        let right = Self::add(tx, right_items, right_children)?;
        self.items.insert(index, middle);
        self.children.insert(index + 1, right.off);
        left.store(tx)?;
        self.store(tx)
    }

    /// Merges the children on both sides of an item, which moves down between their items. The left child is kept.
    fn merge_children(&mut self, tx: &mut Transaction<'_>, index: usize) -> Result<()> {
        let mut left = Self::load(tx, self.children[index])?;
        let right = Self::load(tx, self.children[index + 1])?;
        if left.items.len() + right.items.len() >= ITEMS_MAX || left.is_leaf() != right.is_leaf() {
            return Err(HandlerError::damaged("nodes that cannot be joined", left.off));
        }
        left.items.push(self.items.remove(index));
        left.items.extend(right.items);
        left.children.extend(right.children);
        self.children.remove(index + 1);
        tx.free(right.off, NODE_BYTES)?;
        left.store(tx)?;
        self.store(tx)
    }

    /// Ensures that an item can be removed from a child: the child borrows from a neighbour or is merged with one.
    /// Returns where the child is now.
    fn filled_child(&mut self, tx: &mut Transaction<'_>, index: usize) -> Result<u64> {
        let child = Self::load(tx, self.children[index])?;
        if child.items.len() > ITEMS_MIN {
            return Ok(child.off);
        }
        if self.items.is_empty() {
            return Err(HandlerError::damaged("empty node", self.off));
        }
        if index > 0 && self.borrow_left(tx, index)?
            || index < self.items.len() && self.borrow_right(tx, index)?
        {
            return Ok(child.off);
        }
        let left = index.saturating_sub(1);
        self.merge_children(tx, left)?;
        Ok(self.children[left])
    }

    /// Moves an item, and a child, from the left neighbour, if it has more than the minimum.
    fn borrow_left(&mut self, tx: &mut Transaction<'_>, index: usize) -> Result<bool> {
        let mut left = Self::load(tx, self.children[index - 1])?;
        if left.items.len() <= ITEMS_MIN {
            return Ok(false);
        }
        let mut child = Self::load(tx, self.children[index])?;
        let moved = left.items.pop().expect("more than the fewest");
        child.items.insert(0, std::mem::replace(&mut self.items[index - 1], moved));
        left.children.pop().into_iter().for_each(|moved| child.children.insert(0, moved));
        left.store(tx)?;
        child.store(tx)?;
        self.store(tx)?;
        Ok(true)
    }

    /// Moves an item, and a child, from the right neighbour, if it has more than the minimum.
    fn borrow_right(&mut self, tx: &mut Transaction<'_>, index: usize) -> Result<bool> {
        let mut right = Self::load(tx, self.children[index + 1])?;
        if right.items.len() <= ITEMS_MIN {
            return Ok(false);
        }
        let mut child = Self::load(tx, self.children[index])?;
        child.items.push(std::mem::replace(&mut self.items[index], right.items.remove(0)));
        if !right.is_leaf() {
            child.children.push(right.children.remove(0));
        }
        right.store(tx)?;
        child.store(tx)?;
        self.store(tx)?;
        Ok(true)
    }
}
