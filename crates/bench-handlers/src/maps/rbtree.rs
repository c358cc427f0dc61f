//! A red-black tree (Cormen et al., *Introduction to Algorithms*, chapter 13). Nodes store no parent: the path from the
//! root is kept while the tree is repaired, so that a rotation changes one node less.

use super::{Census, DEPTH_MAX, Map, Steps, Visit, compare, count};
use crate::error::{HandlerError, Result};
use crate::pool::{Block, Pool, Transaction};
use std::cmp::Ordering;

const ROOT_BYTES: u64 = 16;
const NODE_BYTES: u64 = 32;

/// The map. Its root block: root node, number of entries.
pub(super) struct RedBlack {
    root: u64,
}

/// Nodes from the root down, each with the side on which the path continues.
type Path = Vec<(u64, usize)>;

#[derive(Clone, Copy)]
struct Node {
    off: u64,
    item: u64,
    children: [u64; 2],
    red: bool,
}

impl Node {
    fn load(pool: &Pool, off: u64) -> Result<Self> {
        let [item, left, right, red] = pool.words(off)?;
        if red > 1 {
            return Err(HandlerError::damaged("colour of a node", off));
        }
        Ok(Self { off, item, children: [left, right], red: red == 1 })
    }

    fn store(&self, tx: &mut Transaction<'_>) -> Result<()> {
        tx.set_words(self.off, &[self.item, self.children[0], self.children[1], u64::from(self.red)])
    }
}

/// True for a red node. Empty leaves are black.
fn is_red(pool: &Pool, off: u64) -> Result<bool> {
    Ok(off != 0 && Node::load(pool, off)?.red)
}

fn paint(tx: &mut Transaction<'_>, off: u64, red: bool) -> Result<()> {
    let node = Node { red, ..Node::load(tx, off)? };
    node.store(tx)
}

/// Rotates a subtree so that the child on `side` becomes its root. Returns that child.
fn rotate(tx: &mut Transaction<'_>, off: u64, side: usize) -> Result<u64> {
    let mut node = Node::load(tx, off)?;
    let mut child = Node::load(tx, node.children[side])?;
    node.children[side] = child.children[1 - side];
    child.children[1 - side] = off;
    node.store(tx)?;
    child.store(tx)?;
    Ok(child.off)
}

impl RedBlack {
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

    /// The path to a key, and the node that has it, if there is one.
    fn find(&self, pool: &Pool, key: &[u8]) -> Result<(Path, Option<Node>)> {
        let mut path = Path::new();
        let mut at = pool.word(self.root)?;
        while at != 0 {
            let node = Node::load(pool, at)?;
            let side = match compare(pool, node.item, key)? {
                Ordering::Equal => return Ok((path, Some(node))),
                Ordering::Greater => 0,
                Ordering::Less => 1,
            };
            descend(&mut path, at, side)?;
            at = node.children[side];
        }
        Ok((path, None))
    }

    /// Attaches a subtree at the end of a path.
    fn hang(&self, tx: &mut Transaction<'_>, path: &[(u64, usize)], off: u64) -> Result<()> {
        let Some((parent, side)) = path.last() else { return tx.set_word(self.root, off) };
        let mut parent = Node::load(tx, *parent)?;
        parent.children[*side] = off;
        parent.store(tx)
    }

    /// Repairs the tree after a red node was attached at the end of `path`.
    fn repair_insertion(&self, tx: &mut Transaction<'_>, mut path: Path, mut off: u64) -> Result<()> {
        loop {
            let Some((parent, side)) = path.pop() else { return paint(tx, off, false) };
            if !is_red(tx, parent)? {
                return Ok(());
            }
            let (above, above_side) = path.pop().ok_or(HandlerError::damaged("red top", parent))?;
            let uncle = Node::load(tx, above)?.children[1 - above_side];
            if !is_red(tx, uncle)? {
                return self.restructure_insertion(tx, &path, above, above_side, side);
            }
            paint(tx, parent, false)?;
            paint(tx, uncle, false)?;
            paint(tx, above, true)?;
            off = above;
        }
    }

    /// Two red nodes, on `above_side` of the black node `above` and then on `side`: one of them becomes the subtree's
    /// root.
    fn restructure_insertion(
        &self,
        tx: &mut Transaction<'_>,
        path: &[(u64, usize)],
        above: u64,
        above_side: usize,
        side: usize,
    ) -> Result<()> {
        let mut node = Node::load(tx, above)?;
        if side != above_side {
            node.children[above_side] = rotate(tx, node.children[above_side], side)?;
        }
        node.red = true;
        node.store(tx)?;
        let top = rotate(tx, above, above_side)?;
        paint(tx, top, false)?;
        self.hang(tx, path, top)
    }

    /// Removes a node with at most one child from the end of `path`.
    fn unlink(&self, tx: &mut Transaction<'_>, path: Path, node: Node) -> Result<()> {
        let [left, right] = node.children;
        let child = if left == 0 { right } else { left };
        self.hang(tx, &path, child)?;
        tx.free(node.off, NODE_BYTES)?;
        if is_red(tx, child)? {
            return paint(tx, child, false);
        }
        if node.red { Ok(()) } else { self.repair_removal(tx, path) }
    }

    /// Repairs the tree after the subtree at the end of `path` has lost a black node.
    fn repair_removal(&self, tx: &mut Transaction<'_>, mut path: Path) -> Result<()> {
        while let Some((parent, side)) = path.pop() {
            let mut sibling = Node::load(tx, Node::load(tx, parent)?.children[1 - side])?;
            if sibling.red {
                self.rotate_red_sibling(tx, &mut path, parent, side)?;
                sibling = Node::load(tx, Node::load(tx, parent)?.children[1 - side])?;
            }
            if is_red(tx, sibling.children[0])? || is_red(tx, sibling.children[1])? {
                return self.restructure_removal(tx, &path, parent, side, sibling);
            }
            paint(tx, sibling.off, true)?;
            if is_red(tx, parent)? {
                return paint(tx, parent, false);
            }
        }
        Ok(())
    }

    /// A red sibling takes the parent's place, so that the parent's new sibling is black. The path then includes it.
    fn rotate_red_sibling(
        &self,
        tx: &mut Transaction<'_>,
        path: &mut Path,
        parent: u64,
        side: usize,
    ) -> Result<()> {
        let top = rotate(tx, parent, 1 - side)?;
        paint(tx, top, false)?;
        paint(tx, parent, true)?;
        self.hang(tx, path, top)?;
        descend(path, top, side)
    }

    /// The sibling is black and has a red child: that side gives a black node to the other.
    fn restructure_removal(
        &self,
        tx: &mut Transaction<'_>,
        path: &[(u64, usize)],
        parent: u64,
        side: usize,
        sibling: Node,
    ) -> Result<()> {
        let mut node = Node::load(tx, parent)?;
        if !is_red(tx, sibling.children[1 - side])? {
            node.children[1 - side] = rotate(tx, sibling.off, side)?;
        }
        let was_red = std::mem::replace(&mut node.red, false);
        node.store(tx)?;
        let top = rotate(tx, parent, 1 - side)?;
        let outer = Node::load(tx, top)?.children[1 - side];
        paint(tx, outer, false)?;
        paint(tx, top, was_red)?;
        self.hang(tx, path, top)
    }
}

/// Adds a step to a path.
fn descend(path: &mut Path, off: u64, side: usize) -> Result<()> {
    if path.len() == DEPTH_MAX {
        return Err(HandlerError::damaged("path that is too deep", off));
    }
    path.push((off, side));
    Ok(())
}

impl Map for RedBlack {
    fn get(&self, pool: &Pool, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (_, node) = self.find(pool, key)?;
        node.map(|node| pool.item_value(node.item)).transpose()
    }

    fn insert(&self, tx: &mut Transaction<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        let (path, found) = self.find(tx, key)?;
        if let Some(mut node) = found {
            node.item = tx.replace_item(node.item, key, value)?;
            node.store(tx)?;
            return Ok(true);
        }
        let (item, off) = (tx.new_item(key, value)?, tx.alloc(NODE_BYTES)?);
        Node { off, item, children: [0; 2], red: true }.store(tx)?;
        self.hang(tx, &path, off)?;
        self.repair_insertion(tx, path, off)?;
        count(tx, self.len_at(), true)?;
        Ok(false)
    }

    fn remove(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Result<bool> {
        let (mut path, found) = self.find(tx, key)?;
        let Some(mut node) = found else { return Ok(false) };
        tx.free_item(node.item)?;
        if node.children[0] != 0 && node.children[1] != 0 {
            // The next node in order moves its item here, and is removed instead.
            descend(&mut path, node.off, 1)?;
            let mut next = Node::load(tx, node.children[1])?;
            while next.children[0] != 0 {
                descend(&mut path, next.off, 0)?;
                next = Node::load(tx, next.children[0])?;
            }
            node.item = next.item;
            node.store(tx)?;
            node = next;
        }
        self.unlink(tx, path, node)?;
        count(tx, self.len_at(), false)?;
        Ok(true)
    }

    fn len(&self, pool: &Pool) -> Result<u64> {
        pool.word(self.len_at())
    }

    fn visit(&self, pool: &Pool, visit: &mut Visit<'_>) -> Result<()> {
        let (mut path, mut steps) = (Vec::new(), Steps::new(pool));
        let mut at = pool.word(self.root)?;
        loop {
            while at != 0 {
                let node = Node::load(pool, at)?;
                steps.take(at)?;
                at = node.children[0];
                path.push(node);
            }
            let Some(node) = path.pop() else { return Ok(()) };
            visit(&pool.item_key(node.item)?, &pool.item_value(node.item)?)?;
            at = node.children[1];
        }
    }

    fn check(&self, pool: &Pool, blocks: &mut Vec<Block>) -> Result<()> {
        let mut census = Census::new(pool, blocks);
        census.block(self.root, ROOT_BYTES)?;
        let top = pool.word(self.root)?;
        check_node(&mut census, top, true, 0)?;
        census.end(self.len_at())
    }
}

/// Checks a subtree below a node, which is red if `below_red`. Returns the number of black nodes on each path.
fn check_node(census: &mut Census<'_>, at: u64, below_red: bool, depth: usize) -> Result<usize> {
    if at == 0 {
        return Ok(0);
    }
    let node = Node::load(census.pool, at)?;
    census.block(at, NODE_BYTES)?;
    if node.red && below_red || depth == DEPTH_MAX {
        return Err(HandlerError::damaged("red node below a red one, or at the top, or too deep", at));
    }
    let left = check_node(census, node.children[0], node.red, depth + 1)?;
    census.next_item(node.item)?;
    let right = check_node(census, node.children[1], node.red, depth + 1)?;
    if left != right {
        return Err(HandlerError::damaged("paths with unequal black nodes", at));
    }
    Ok(left + usize::from(!node.red))
}
