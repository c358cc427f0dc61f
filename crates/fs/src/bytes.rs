//! Bytes of files: writing and reading.

use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX, RECORD_BLOCKS_MAX};
use crate::error::FsError;
use crate::files::Files;
use crate::inode::FileType;
use crate::key::InodeNumber;
use crate::node::Node;
use crate::operation::Stamp;
use crate::state::{State, Step};
use crate::tree::{FILE_BYTES_MAX, TreeError};
use landfall_heap::{Damage, Extents, Heap, HeapError, ItemPart, KeptCrcs, Source, slice};
use landfall_media::{Extent, MediaError};
use std::ops::Range;

/// Most bytes of one write.
const RECORD_BYTES_MAX: u64 = BLOCK_BYTES * RECORD_BLOCKS_MAX as u64;

/// Consecutive bytes of a file.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a read has few parts, and most are stored ones")]
pub enum FilePart<'h> {
    /// So many zeroes.
    Zeroes(u64),
    /// Bytes in the region. Their item must be verified before they are served ([`landfall_heap::Item::verify`]).
    Stored(ItemPart<'h>),
}

/// What [`Files::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that were written.
    Data,
    /// A hole; the end of the file is one.
    Hole,
}

/// Whole blocks that replace what a file has.
pub(crate) enum Piece {
    /// Completed from what was there.
    Completed(u64, Vec<u8>),
    /// As they landed.
    Landed(u64, Extents, Option<KeptCrcs>),
}

impl Piece {
    pub(crate) fn step(&self) -> Step<'_> {
        match self {
            Self::Completed(offset, bytes) => Step::Write(*offset, Source::Bytes(bytes)),
            Self::Landed(offset, extents, crcs) => {
                let crc = crcs.as_ref().map(KeptCrcs::get);
                Step::Write(*offset, Source::Landed { extents, crc })
            }
        }
    }
}

fn floor(offset: u64) -> u64 {
    offset / BLOCK_BYTES * BLOCK_BYTES
}

/// The file, or why it has no bytes.
pub(crate) fn check_file(node: &Node) -> Result<u64, TreeError> {
    match node.file_type() {
        FileType::File => Ok(node.inode.size),
        FileType::Directory => Err(TreeError::IsADirectory),
        _ => Err(TreeError::Invalid),
    }
}

impl Files {
    /// Writes bytes that have landed, and that the caller holds. Nothing of them is copied but parts of the first and the
    /// last block.
    ///
    /// # Errors
    /// [`TreeError`]; [`FsError::Wait`], [`FsError::Backlog`], [`FsError::Heap`]. Nothing is written then.
    pub fn write(
        &self,
        file: InodeNumber,
        offset: u64,
        data: &[Extent],
        time_ns: i64,
    ) -> Result<(), FsError> {
        let len = Source::Landed { extents: data, crc: None }.len();
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(TreeError::TooLarge)?;
        // Whole blocks are written as they are: their checksums need no lock.
        let is_whole = offset.is_multiple_of(BLOCK_BYTES) && len <= RECORD_BYTES_MAX;
        let crcs = if is_whole { Some(self.heap.crcs_of(data)?) } else { None };
        let mut state = self.lock();
        let size = check_file(state.node(file)?)?;
        if len == 0 {
            return Ok(());
        }
        state.check_backlog()?;
        let pieces = if is_whole && (end.is_multiple_of(BLOCK_BYTES) || end >= size) {
            vec![Piece::Landed(offset, data.into(), crcs)]
        } else {
            state.pieces_of_write(file, size, offset..end, data)?
        };
        let steps: Vec<Step<'_>> = pieces.iter().map(Piece::step).collect();
        let lease = state.log.lease;
        state.apply(Stamp { lease, time_ns }, file, &steps)
    }

    /// The bytes of a file in a range, up to its end.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn read(&self, file: InodeNumber, range: Range<u64>) -> Result<Vec<FilePart<'_>>, FsError> {
        let mut state = self.lock();
        let node = state.node(file)?;
        let size = check_file(node)?;
        parts(&self.heap, node, range.start.min(size)..range.end.min(size))
    }

    /// The first offset at or behind `offset` with data, or with none. `None` if there is none before the end of the file.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn seek(&self, file: InodeNumber, offset: u64, seek: Seek) -> Result<Option<u64>, FsError> {
        let mut state = self.lock();
        let node = state.node(file)?;
        let size = check_file(node)?;
        let (Some(data), true) = (node.data(), offset < size) else { return Ok(None) };
        let block = (offset / BLOCK_BYTES) as u32;
        let found = match seek {
            Seek::Data => data.next_data(block).map(u64::from),
            Seek::Hole => Some(data.next_hole(block)),
        };
        let at = found.map(|block| (block * BLOCK_BYTES).max(offset));
        Ok(match seek {
            Seek::Data => at.filter(|at| *at < size),
            Seek::Hole => at.map(|at| at.min(size)),
        })
    }
}

impl State {
    /// Cuts a write into whole blocks.
    fn pieces_of_write(
        &self,
        file: InodeNumber,
        size: u64,
        range: Range<u64>,
        data: &[Extent],
    ) -> Result<Vec<Piece>, FsError> {
        let of = |part: Range<u64>| {
            slice(data, (part.start - range.start) as usize..(part.end - range.start) as usize)
        };
        let (mut pieces, mut at) = (Vec::new(), range.start);
        if !at.is_multiple_of(BLOCK_BYTES) {
            let end = range.end.min(floor(at) + BLOCK_BYTES);
            pieces.push(self.completed(file, size, at..end, &of(at..end))?);
            at = end;
        }
        let whole_until = if range.end < size { floor(range.end) } else { range.end };
        while at < whole_until {
            let end = whole_until.min(at + RECORD_BYTES_MAX);
            pieces.push(Piece::Landed(at, of(at..end), None));
            at = end;
        }
        if at < range.end {
            pieces.push(self.completed(file, size, at..range.end, &of(at..range.end))?);
        }
        Ok(pieces)
    }

    /// A block of which a part is written.
    fn completed(
        &self,
        file: InodeNumber,
        size: u64,
        part: Range<u64>,
        data: &[Extent],
    ) -> Result<Piece, FsError> {
        let new = gathered(&self.heap, data)?;
        let size_after = size.max(part.end);
        self.block_with(file, (size, size_after), part, &new)
    }

    /// The block of a file with other bytes in a part of it. `size` is that of the file before and after the change.
    pub(crate) fn block_with(
        &self,
        file: InodeNumber,
        (size, size_after): (u64, u64),
        part: Range<u64>,
        new: &[u8],
    ) -> Result<Piece, FsError> {
        let start = floor(part.start);
        let end = start + BLOCK_BYTES;
        let mut block = self.bytes(file, start..size.clamp(start, end))?;
        block.resize((size_after.min(end) - start) as usize, 0);
        let (from, to) = ((part.start - start) as usize, (part.end - start) as usize);
        block[from..to].copy_from_slice(new);
        Ok(Piece::Completed(start, block))
    }

    /// Bytes of a file that is in memory, copied.
    pub(crate) fn bytes(&self, file: InodeNumber, range: Range<u64>) -> Result<Vec<u8>, FsError> {
        let mut bytes = Vec::new();
        for part in parts(&self.heap, self.tree.node(file)?, range)? {
            match part {
                FilePart::Zeroes(len) => bytes.resize(bytes.len() + len as usize, 0),
                FilePart::Stored(part) => {
                    let slot = part.item().slot;
                    if !part.item().verify()? {
                        return Err(HeapError::Damaged { slot, what: Damage::ValueChecksum }.into());
                    }
                    bytes.extend_from_slice(&part.to_vec(&self.heap)?);
                }
            }
        }
        Ok(bytes)
    }
}

/// The bytes of a file in a range. They are held.
pub(crate) fn parts<'h>(
    heap: &'h Heap,
    node: &Node,
    range: Range<u64>,
) -> Result<Vec<FilePart<'h>>, FsError> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES).min(BLOCKS_MAX);
    let zeroes = |parts: &mut Vec<FilePart<'h>>, at: &mut u64, until: u64| {
        let until = until.min(range.end);
        if *at < until {
            parts.push(FilePart::Zeroes(until - *at));
            *at = until;
        }
    };
    for interval in node.data().into_iter().flat_map(|data| data.parts(blocks.clone())) {
        let Some(skip) = interval.skip() else { continue };
        let start = u64::from(interval.first) * BLOCK_BYTES;
        zeroes(&mut parts, &mut at, start);
        let view = heap.record(interval.slot)?;
        let skipped = u64::from(skip) * BLOCK_BYTES;
        // The last block of a value may be short: it is followed by zeroes.
        let stored = (view.value_len() as u64 - skipped.min(view.value_len() as u64))
            .min(u64::from(interval.blocks) * BLOCK_BYTES);
        let end = range.end.min(start + stored);
        if at < end {
            let of_value = (skipped + (at - start)) as usize..(skipped + (end - start)) as usize;
            parts.push(FilePart::Stored(ItemPart::hold(heap, interval.slot, &view, of_value)?));
            at = end;
        }
    }
    zeroes(&mut parts, &mut at, range.end);
    Ok(parts)
}

/// The bytes of extents, in order.
pub(crate) fn gathered(heap: &Heap, extents: &[Extent]) -> Result<Vec<u8>, MediaError> {
    let mut bytes = Vec::with_capacity(extents.iter().map(|extent| extent.len() as usize).sum());
    for extent in extents {
        bytes.extend_from_slice(&heap.pinned(*extent)?);
    }
    Ok(bytes)
}
