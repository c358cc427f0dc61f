//! Nodes in memory.

use landfall_fuse::{Attr, Errno, Node};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Bytes of a stored piece: a read leaves from several.
pub const PIECE: usize = 4096;

pub enum Content {
    Dir(BTreeMap<OsString, u64>),
    File { size: usize, pieces: Vec<Vec<u8>> },
}

pub struct Store {
    nodes: BTreeMap<u64, Content>,
    next: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self { nodes: BTreeMap::from([(Node::ROOT.0, Content::Dir(BTreeMap::new()))]), next: 2 }
    }
}

impl Store {
    pub fn attr(&self, node: Node) -> Result<Attr, Errno> {
        let (mode, size) = match self.nodes.get(&node.0).ok_or(Errno::NOENT)? {
            Content::Dir(_) => (0o040_777, 0),
            Content::File { size, .. } => (0o100_666, *size as u64),
        };
        Ok(Attr { ino: node.0, size, blocks: size.div_ceil(512), mode, nlink: 1, ..Attr::default() })
    }

    pub fn dir(&mut self, node: Node) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match self.nodes.get_mut(&node.0) {
            Some(Content::Dir(names)) => Ok(names),
            _ => Err(Errno::from_raw(libc::ENOTDIR)),
        }
    }

    pub fn lookup(&mut self, parent: Node, name: &OsStr) -> Result<Node, Errno> {
        self.dir(parent)?.get(name).map(|node| Node(*node)).ok_or(Errno::NOENT)
    }

    pub fn make(&mut self, parent: Node, name: &OsStr, content: Content) -> Result<Node, Errno> {
        let node = self.next;
        self.dir(parent)?.insert(name.to_owned(), node);
        self.nodes.insert(node, content);
        self.next += 1;
        Ok(Node(node))
    }

    pub fn remove(&mut self, parent: Node, name: &OsStr) -> Result<(), Errno> {
        self.dir(parent)?.remove(name).map(|_| ()).ok_or(Errno::NOENT)
    }

    pub fn rename(&mut self, from: (Node, &OsStr), to: (Node, &OsStr)) -> Result<(), Errno> {
        let node = self.dir(from.0)?.remove(from.1).ok_or(Errno::NOENT)?;
        self.dir(to.0)?.insert(to.1.to_owned(), node);
        Ok(())
    }

    fn file(&mut self, node: Node) -> Result<(&mut usize, &mut Vec<Vec<u8>>), Errno> {
        match self.nodes.get_mut(&node.0) {
            Some(Content::File { size, pieces }) => Ok((size, pieces)),
            _ => Err(Errno::IO),
        }
    }

    pub fn resize(&mut self, node: Node, len: usize) -> Result<(), Errno> {
        let (size, pieces) = self.file(node)?;
        *size = len;
        pieces.resize(len.div_ceil(PIECE), vec![0; PIECE]);
        Ok(())
    }

    /// Stores a byte at a time: this is no example of speed.
    pub fn write(
        &mut self,
        node: Node,
        offset: usize,
        data: &mut dyn Iterator<Item = u8>,
    ) -> Result<(), Errno> {
        for (at, byte) in (offset..).zip(data) {
            if at >= *self.file(node)?.0 {
                self.resize(node, at + 1)?;
            }
            self.file(node)?.1[at / PIECE][at % PIECE] = byte;
        }
        Ok(())
    }

    /// The stored slices of a range, as far as the file goes.
    pub fn slices(&self, node: Node, offset: usize, len: usize) -> Vec<&[u8]> {
        let Some(Content::File { size, pieces }) = self.nodes.get(&node.0) else { return Vec::new() };
        let end = (offset + len).min(*size);
        let mut slices = Vec::new();
        let mut at = offset;
        while at < end {
            let next = end.min((at / PIECE + 1) * PIECE);
            slices.push(&pieces[at / PIECE][at % PIECE..at % PIECE + next - at]);
            at = next;
        }
        slices
    }
}
