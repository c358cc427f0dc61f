//! Data of files: writing, reserving, punching, shifting and cloning.
//!
//! All of it is by whole blocks. Who executes an operation on a part of a block writes the rest of the block, too, as
//! `docs/format/fs.md` says; only at the end of a file may a part of a block be left.

use super::{FILE_BYTES_MAX, Tree, TreeError};
use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX, DataMap, Interval, RECORD_BLOCKS_MAX, is_aligned};
use crate::fallocate::{COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use crate::key::{InodeNumber, WritePlace};
use crate::node::{Body, Node};
use landfall_heap::SlotId;
use std::ops::Range;

/// What `fallocate` does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocate {
    /// Holes are reserved.
    Reserve { keeps_size: bool },
    /// All of it becomes zeroes, and is reserved.
    Zero { keeps_size: bool },
    /// All of it becomes a hole.
    Punch,
    /// It is taken out, and what is behind it moves to its start.
    Collapse,
    /// What is from its start on moves to its end.
    Insert,
}

impl Allocate {
    fn of_mode(mode: u32) -> Option<Self> {
        let keeps_size = mode & KEEP_SIZE != 0;
        Some(match mode & !KEEP_SIZE {
            0 => Self::Reserve { keeps_size },
            ZERO_RANGE => Self::Zero { keeps_size },
            PUNCH_HOLE if keeps_size => Self::Punch,
            COLLAPSE_RANGE if !keeps_size => Self::Collapse,
            INSERT_RANGE if !keeps_size => Self::Insert,
            _ => return None,
        })
    }

    /// The size of a file of `size` bytes afterwards.
    fn size_after(self, size: u64, range: &Range<u64>) -> Result<u64, TreeError> {
        let len = range.end - range.start;
        let is_whole = is_aligned(range.start) && (is_aligned(range.end) || range.end >= size);
        let (fits, after) = match self {
            Self::Reserve { keeps_size: false } => (true, size.max(range.end)),
            Self::Reserve { keeps_size: true } => (true, size),
            Self::Zero { keeps_size: false } => (is_whole, size.max(range.end)),
            Self::Zero { keeps_size: true } | Self::Punch => (is_whole, size),
            Self::Collapse => (is_whole && range.end < size, size.saturating_sub(len)),
            Self::Insert => {
                (is_whole && is_aligned(range.end) && range.start < size, size.saturating_add(len))
            }
        };
        if !fits {
            return Err(TreeError::Invalid);
        }
        if after.max(range.end) > FILE_BYTES_MAX { Err(TreeError::TooLarge) } else { Ok(after) }
    }

    fn apply(self, data: &mut DataMap, range: Range<u64>) {
        match self {
            Self::Reserve { .. } => data.reserve(range),
            Self::Zero { .. } => {
                data.remove(range.clone());
                data.reserve(range);
            }
            Self::Punch => drop(data.remove(range)),
            Self::Collapse => drop(data.collapse(&range)),
            Self::Insert => data.open_hole(&range),
        }
    }
}

/// The blocks that `range` touches.
fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES)
}

fn file(node: &Node) -> Result<&DataMap, TreeError> {
    match &node.body {
        Body::File(data) => Ok(data),
        Body::Directory(_) => Err(TreeError::IsADirectory),
        _ => Err(TreeError::Invalid),
    }
}

impl Tree {
    /// The file, whose data the operation changes, and its size.
    fn change_file(
        &mut self,
        number: InodeNumber,
        time_ns: i64,
    ) -> Result<(&mut DataMap, &mut u64), TreeError> {
        let node = self.change(number)?;
        (node.mtime_ns, node.ctime_ns) = (time_ns, time_ns);
        match &mut node.body {
            Body::File(data) => Ok((data, &mut node.inode.size)),
            _ => Err(TreeError::Invalid),
        }
    }

    /// Makes the value of the record in `slot`, `len` bytes, the bytes of a file from the place on.
    ///
    /// # Errors
    /// [`TreeError::Invalid`] if the place is not the start of a block, if the bytes end within a block before the end of
    /// the file, or for more than one record may hold; [`TreeError`].
    pub fn write(
        &mut self,
        place: &WritePlace,
        len: u64,
        slot: SlotId,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let node = self.node(place.file)?;
        file(node)?;
        let end = place.offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(TreeError::TooLarge)?;
        let is_whole = is_aligned(end) || end >= node.inode.size;
        let count = len.div_ceil(BLOCK_BYTES);
        if len == 0 || !is_aligned(place.offset) || !is_whole || count > u64::from(RECORD_BLOCKS_MAX) {
            return Err(TreeError::Invalid);
        }
        let (data, size) = self.change_file(place.file, time_ns)?;
        data.insert(Interval::written((place.offset / BLOCK_BYTES) as u32, count as u16, slot, 0));
        *size = end.max(*size);
        Ok(())
    }

    /// The size of a file of which a range becomes zeroes, or a hole.
    ///
    /// # Errors
    /// [`TreeError::Invalid`] if there is no such mode; [`TreeError`].
    pub(crate) fn size_to_zero(&self, number: InodeNumber, mode: u32) -> Result<u64, TreeError> {
        let node = self.node(number)?;
        file(node)?;
        Allocate::of_mode(mode).map(|_| node.inode.size).ok_or(TreeError::Invalid)
    }

    pub(super) fn allocate(
        &mut self,
        number: InodeNumber,
        mode: u32,
        range: Range<u64>,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let node = self.node(number)?;
        file(node)?;
        let how = Allocate::of_mode(mode).filter(|_| !range.is_empty()).ok_or(TreeError::Invalid)?;
        let grown = how.size_after(node.inode.size, &range)?;
        let (data, size) = self.change_file(number, time_ns)?;
        how.apply(data, blocks(&range));
        *size = grown;
        if matches!(how, Allocate::Collapse | Allocate::Insert) {
            let moved: Vec<Interval> = data.parts(blocks(&range).start..BLOCKS_MAX).collect();
            self.note_spread(&moved, number);
        }
        Ok(())
    }

    /// Makes a range of one file refer to the bytes of a range of another one, or of another range of the same one.
    pub(super) fn clone_range(
        &mut self,
        (source, range): (InodeNumber, Range<u64>),
        (number, offset): (InodeNumber, u64),
        time_ns: i64,
    ) -> Result<(), TreeError> {
        let (from, to) = (self.node(source)?, self.node(number)?);
        let len = range.end.saturating_sub(range.start);
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(TreeError::TooLarge)?;
        let is_whole = is_aligned(len) || range.end == from.inode.size && end >= to.inode.size;
        let overlaps = source == number && offset < range.end && range.start < end;
        let is_within = range.end <= from.inode.size && len > 0;
        if !is_whole || !is_aligned(range.start) || !is_aligned(offset) || overlaps || !is_within {
            return Err(TreeError::Invalid);
        }
        file(to)?;
        let blocks_from = blocks(&range);
        // What is reserved for one file is not for the other.
        let written = |part: &Interval| part.skip().is_some();
        let parts: Vec<Interval> = file(from)?.parts(blocks_from.clone()).filter(written).collect();
        let (data, size) = self.change_file(number, time_ns)?;
        data.remove(blocks(&(offset..end)));
        for part in &parts {
            let first = u64::from(part.first) - blocks_from.start + offset / BLOCK_BYTES;
            data.insert(part.at(first as u32));
        }
        *size = end.max(*size);
        self.note_spread(&parts, number);
        Ok(())
    }
}
