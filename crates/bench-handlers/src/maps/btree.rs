//! A B-tree of order 8 (Cormen et al., *Introduction to Algorithms*, chapter 18, with minimum degree 4): nodes are split and
//! filled on the way down, so that no step ever goes back up.

use super::{Census, DEPTH_MAX, Map, Steps, Visit, compare, count};
use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use std::cmp::Ordering;

/// Most items of a node.
const ITEMS_MAX: usize = 7;
/// Fewest items of a node other than the top one.
const ITEMS_MIN: usize = 3;
const NODE_WORDS: usize = 16;
const NODE_BYTES: u64 = NODE_WORDS as u64 * 8;
const ROOT_BYTES: u64 = 16;

/// See the module. The root block: top node, number of entries.
pub(super) struct BTree {
    root: u64,
}

/// What is to be taken out of a subtree.
#[derive(Clone, Copy)]
enum Want<'a> {
    Key(&'a [u8]),
    First,
    Last,
}

impl Want<'_> {
    /// The item in the node that is wanted, or else the child in which it is.
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

    /// The top node, with room for an item that may come up.
    fn roomy_top(&self, tx: &mut Transaction<'_>) -> Result<Node> {
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

    /// Takes an item out of the subtree at `at`, all of whose nodes but the top one may need to be filled first.
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

    /// Takes an item of an inner node, whose neighbour in order replaces it. `None` where both children are at their
    /// fewest: they are one now, with the item in it.
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

    /// Gives the tree another top where the old one has run empty.
    fn lower_top(&self, tx: &mut Transaction<'_>) -> Result<()> {
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
        let mut node = self.roomy_top(tx)?;
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
                    // A split brings an item up here: look again.
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
        self.lower_top(tx)?;
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

/// Checks a subtree whose top has `depth` nodes above it, and returns its height.
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

/// A node as it was read. A leaf has no children, any other node one more than items.
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

    /// The item with this key, or else the child that it would be in.
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

    /// Splits a full child; its middle item comes up into this node, which has room.
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

    /// Joins the children on both sides of an item, which goes down between theirs. The left one stays.
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

    /// Makes sure that an item can be taken out of a child, from which it borrows or with which it joins a neighbour;
    /// returns where that child is now.
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

    /// Moves an item, and a child, over from the left neighbour, where that has enough.
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

    /// The same from the right neighbour.
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
