//! What is kept of inodes, as many bytes as there is room for.

use super::layout::ATTR_BYTES;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of `fuse_attr` before the length of the file.
const SIZE_AT: usize = 8;
/// What an inode takes by itself, about.
const NODE_BYTES: usize = 256;
/// What a name or a reply takes besides its bytes, about.
const ITEM_BYTES: usize = 64;

/// Bytes that are kept, and which of them.
pub(super) type Slice = (Arc<[u8]>, Range<usize>);

/// A request whose reply says nothing but what an inode is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    Statx,
    Link,
    Extended { name: Vec<u8>, size: u32 },
    AllExtended { size: u32, is_root: bool },
    Entries { offset: u64, size: u32 },
}

/// The answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Bytes(Arc<[u8]>),
    /// An error number.
    Error(i32),
}

/// What is kept of an inode.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) attr: Option<[u8; ATTR_BYTES]>,
    /// What the names in a directory lead to; 0: there is no such name.
    names: HashMap<Vec<u8>, u64>,
    said: HashMap<Question, Said>,
    /// Data of a file, by where they begin.
    parts: BTreeMap<u64, Arc<[u8]>>,
    bytes: usize,
}

impl Kept {
    /// Length of the file, if that is known.
    pub(super) fn size(&self) -> Option<u64> {
        self.attr.and_then(|attr| attr[SIZE_AT..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
    }

    pub(super) fn name(&self, name: &[u8]) -> Option<u64> {
        self.names.get(name).copied()
    }

    pub(super) fn said(&self, question: &Question) -> Option<&Said> {
        self.said.get(question)
    }

    /// What a READ of these bytes returns.
    pub(super) fn read(&self, offset: u64, bytes: u32) -> Option<Slice> {
        let end = offset.saturating_add(u64::from(bytes)).min(self.size()?);
        if offset >= end {
            return Some((Arc::new([]), 0..0));
        }
        let (begin, part) = self.parts.range(..=offset).next_back()?;
        let range = usize::try_from(offset - begin).ok()?..usize::try_from(end - begin).ok()?;
        (range.end <= part.len()).then(|| (Arc::clone(part), range))
    }

    /// Keeps data, but for what is within other data that are kept: no part is within another one. Returns how many bytes more
    /// that takes.
    fn keep_part(&mut self, offset: u64, bytes: &[u8]) -> usize {
        let end = offset + bytes.len() as u64;
        let end_of = |(begin, part): (&u64, &Arc<[u8]>)| begin + part.len() as u64;
        if self.parts.range(..=offset).next_back().map(end_of).is_some_and(|before| end <= before) {
            return 0;
        }
        let is_within = |(begin, part): (&u64, &Arc<[u8]>)| (end_of((begin, part)) <= end).then_some(*begin);
        let within: Vec<u64> = self.parts.range(offset..end).filter_map(is_within).collect();
        let freed =
            within.iter().filter_map(|begin| self.parts.remove(begin)).map(|part| part.len() + ITEM_BYTES);
        let freed: usize = freed.sum();
        self.parts.insert(offset, bytes.into());
        self.bytes -= freed;
        bytes.len() + ITEM_BYTES
    }

    /// Whether a READ from here on goes on behind the last one, or is the first one.
    pub(super) fn is_sequential(&self, offset: u64) -> bool {
        let last = self.parts.range(..offset).next_back();
        offset == 0 || last.is_some_and(|(begin, part)| begin + part.len() as u64 == offset)
    }
}

/// What is kept of all inodes. If there is no room, what was not used for longest makes way: the younger half is what was used
/// since the other half was full.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    young: HashMap<u64, Kept>,
    old: HashMap<u64, Kept>,
    young_bytes: usize,
    /// Bytes of half the room.
    half: usize,
    /// Bytes of one inode.
    share: usize,
}

impl Nodes {
    /// So many bytes, and of one inode so many of them.
    pub(super) fn of_bytes(bytes: usize, share: usize) -> Self {
        Self { half: bytes / 2, share, ..Self::default() }
    }

    /// What is kept of an inode, which counts as used.
    pub(super) fn get(&mut self, node: u64) -> Option<&Kept> {
        if let Some(kept) = self.old.remove(&node) {
            self.young_bytes += kept.bytes;
            self.young.insert(node, kept);
        }
        self.young.get(&node)
    }

    /// Keeps something of an inode. `keep` returns how many bytes more it takes.
    fn keep(&mut self, node: u64, keep: impl FnOnce(&mut Kept) -> usize) {
        let is_new = self.get(node).is_none();
        let kept = self.young.entry(node).or_default();
        let before = if is_new { 0 } else { kept.bytes };
        kept.bytes += if is_new { NODE_BYTES } else { 0 };
        let more = keep(kept);
        kept.bytes += more;
        if kept.bytes > self.share {
            *kept = Kept { attr: kept.attr, bytes: NODE_BYTES, ..Kept::default() };
        }
        self.young_bytes = self.young_bytes + kept.bytes - before;
        if self.young_bytes > self.half {
            (self.old, self.young_bytes) = (std::mem::take(&mut self.young), 0);
        }
    }

    pub(super) fn keep_attr(&mut self, node: u64, attr: [u8; ATTR_BYTES]) {
        self.keep(node, |kept| {
            kept.attr = Some(attr);
            0
        });
    }

    pub(super) fn keep_name(&mut self, directory: u64, name: &[u8], node: u64) {
        self.keep(directory, |kept| match kept.names.insert(name.to_vec(), node) {
            None => name.len() + ITEM_BYTES,
            Some(_) => 0,
        });
    }

    pub(super) fn keep_said(&mut self, node: u64, question: Question, said: Said) {
        let name_bytes = if let Question::Extended { name, .. } = &question { name.len() } else { 0 };
        let bytes = if let Said::Bytes(bytes) = &said { bytes.len() } else { 0 };
        self.keep(node, |kept| match kept.said.insert(question, said) {
            None => bytes + name_bytes + ITEM_BYTES,
            // The inode has not changed, nor has the answer.
            Some(_) => 0,
        });
    }

    /// Keeps data of a file that there is room for.
    pub(super) fn keep_part(&mut self, node: u64, offset: u64, bytes: &[u8]) {
        if self.has_room_for(node) && !bytes.is_empty() {
            self.keep(node, |kept| kept.keep_part(offset, bytes));
        }
    }

    /// Whether an inode is a file, of which all data may be kept.
    pub(super) fn has_room_for(&mut self, node: u64) -> bool {
        let share = self.share as u64;
        self.get(node).and_then(Kept::size).is_some_and(|size| size <= share)
    }

    /// Nothing of an inode is kept any more.
    pub(super) fn forget(&mut self, node: u64) {
        self.old.remove(&node);
        if let Some(kept) = self.young.remove(&node) {
            self.young_bytes -= kept.bytes;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self { half: self.half, share: self.share, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: u64) -> [u8; ATTR_BYTES] {
        let mut attr = [0; ATTR_BYTES];
        attr[SIZE_AT..SIZE_AT + 8].copy_from_slice(&bytes.to_le_bytes());
        attr
    }

    fn read(nodes: &mut Nodes, offset: u64, bytes: u32) -> Option<Vec<u8>> {
        nodes.get(7)?.read(offset, bytes).map(|(part, range)| part[range].to_vec())
    }

    #[test]
    fn reads_are_answered_from_one_part_up_to_the_end_of_the_file() {
        let mut nodes = Nodes::of_bytes(1 << 20, 1 << 17);
        nodes.keep_part(7, 0, b"length unknown");
        assert_eq!(read(&mut nodes, 0, 4), None);
        nodes.keep_attr(7, file_of(10));
        nodes.keep_part(7, 0, b"0123");
        nodes.keep_part(7, 4, b"456789");
        assert_eq!(read(&mut nodes, 1, 3), Some(b"123".to_vec()));
        assert_eq!(read(&mut nodes, 1, 4), None, "it is in two parts");
        assert_eq!(read(&mut nodes, 6, 400), Some(b"6789".to_vec()));
        assert_eq!(read(&mut nodes, 10, 4), Some(Vec::new()));
        let kept = nodes.get(7).expect("it is kept");
        assert!(kept.is_sequential(0) && kept.is_sequential(4) && !kept.is_sequential(5));
        nodes.keep_part(7, 0, b"0123456789");
        assert_eq!(read(&mut nodes, 1, 3), Some(b"123".to_vec()));
        nodes.keep_attr(8, file_of((1 << 17) + 1));
        nodes.keep_part(8, 0, b"too long");
        assert!(nodes.get(8).is_some_and(|kept| kept.read(0, 1).is_none()));
    }

    #[test]
    fn data_within_other_data_are_not_kept_twice() {
        let mut nodes = Nodes::of_bytes(1 << 20, 1 << 17);
        nodes.keep_attr(7, file_of(100));
        for (offset, bytes) in
            [(10, &[1; 10][..]), (10, &[1; 5]), (12, &[1; 8]), (8, &[1; 12]), (30, &[1; 5])]
        {
            nodes.keep_part(7, offset, bytes);
        }
        let kept = nodes.get(7).expect("it is kept");
        assert_eq!(
            kept.parts.iter().map(|(begin, part)| (*begin, part.len())).collect::<Vec<_>>(),
            [(8, 12), (30, 5)]
        );
        let bytes = kept.bytes;
        assert_eq!((bytes, nodes.young_bytes), (NODE_BYTES + 17 + 2 * ITEM_BYTES, bytes));
        assert!(nodes.get(7).is_some_and(|kept| kept.read(15, 5).is_some() && kept.read(15, 6).is_none()));
    }

    #[test]
    fn one_inode_takes_no_more_than_its_share_however_it_is_used() {
        let mut nodes = Nodes::of_bytes(1 << 20, 1 << 17);
        nodes.keep_attr(1, file_of(0));
        nodes.keep_attr(7, file_of(1 << 17));
        for number in 0..100_000_u64 {
            nodes.keep_name(1, format!("{number}").as_bytes(), 0);
            nodes.keep_part(7, number, &[1; 4096]);
            let bytes = [1, 7].map(|node| nodes.get(node).map_or(0, |kept| kept.bytes));
            assert!(bytes.iter().all(|bytes| *bytes <= 1 << 17) && nodes.young_bytes <= 1 << 19, "{bytes:?}");
        }
        assert!(nodes.get(7).is_some_and(|kept| kept.attr.is_some()));
    }

    #[test]
    fn what_was_not_used_for_longest_makes_way() {
        let mut nodes = Nodes::of_bytes(8 * NODE_BYTES, 4 * NODE_BYTES);
        for node in 1..100 {
            nodes.keep_attr(node, file_of(0));
            assert!(nodes.get(1).is_some_and(|kept| kept.attr.is_some()), "it is used all the time");
            assert!(nodes.young.len() + nodes.old.len() <= 10);
        }
        assert!(nodes.get(99).is_some() && nodes.get(2).is_none());
        nodes.forget(1);
        assert!(nodes.get(1).is_none());
        nodes.clear();
        assert!(nodes.get(99).is_none() && nodes.half == 4 * NODE_BYTES);
    }
}
