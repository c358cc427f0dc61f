//! Changes other than writes: what a client asks for, and the partial blocks that go with it.

use crate::bytes::Piece;
use crate::data_map::{BLOCK_BYTES, is_aligned};
use crate::error::FsError;
use crate::fallocate::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use crate::files::Files;
use crate::key::InodeNumber;
use crate::operation::{Operation, Stamp};
use crate::state::{State, Step};
use crate::tree::extended::check_new_extended;
use crate::tree::{FILE_BYTES_MAX, TreeError};
use std::ops::Range;

impl Files {
    /// Executes an operation that is not a write. It is visible at once, and durable after [`Self::sync`].
    ///
    /// Where a file is cut off, punched or zeroed within a block, the rest of the block is written again.
    ///
    /// # Errors
    /// [`crate::TreeError`]; [`FsError::Wait`], [`FsError::Backlog`], [`FsError::Heap`]. Nothing has changed then.
    pub fn execute(&self, time_ns: i64, operation: &Operation<'_>) -> Result<(), FsError> {
        let mut state = self.lock();
        state.check_backlog()?;
        let stamp = Stamp { lease: state.log.lease, time_ns };
        match *operation {
            Operation::SetAttributes { number, attributes } if attributes.size.is_some() => {
                let pieces = state.cut_block(number, attributes.size.unwrap_or_default())?;
                state.with_pieces(stamp, number, Some(operation), &pieces)
            }
            Operation::Allocate { number, mode, offset, len }
                if mode & (PUNCH_HOLE | ZERO_RANGE) != 0
                    && mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) == 0 =>
            {
                state.zero(stamp, number, mode, offset..offset.saturating_add(len))
            }
            _ => state.with_pieces(stamp, InodeNumber::ROOT, Some(operation), &[]),
        }
    }

    /// Makes an inode with extended attributes: by [`Operation::Create`], and [`Operation::SetExtended`] of the same number. All
    /// of them are executed, or none, also after a crash.
    ///
    /// # Errors
    /// As [`Self::execute`]; [`crate::TreeError::Invalid`] for other operations.
    pub fn create(
        &self,
        time_ns: i64,
        create: &Operation<'_>,
        attributes: &[Operation<'_>],
    ) -> Result<(), FsError> {
        let Operation::Create { number: made, .. } = *create else { return Err(TreeError::Invalid.into()) };
        let mut given = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            let Operation::SetExtended { number, name, value } = *attribute else {
                return Err(TreeError::Invalid.into());
            };
            if number != made {
                return Err(TreeError::Invalid.into());
            }
            given.push((name, value));
        }
        // What follows the first operation must not be refused.
        check_new_extended(&given)?;
        let mut state = self.lock();
        state.check_backlog()?;
        let stamp = Stamp { lease: state.log.lease, time_ns };
        let steps: Vec<Step<'_>> = std::iter::once(create).chain(attributes).map(Step::Operation).collect();
        state.apply(stamp, made, &steps)
    }
}

impl State {
    fn with_pieces(
        &mut self,
        stamp: Stamp,
        file: InodeNumber,
        operation: Option<&Operation<'_>>,
        pieces: &[Piece],
    ) -> Result<(), FsError> {
        let steps: Vec<Step<'_>> =
            operation.map(Step::Operation).into_iter().chain(pieces.iter().map(Piece::step)).collect();
        if steps.is_empty() { Ok(()) } else { self.apply(stamp, file, &steps) }
    }

    /// The last block of a file that is cut off within it, as far as it stays.
    fn cut_block(&mut self, number: InodeNumber, size: u64) -> Result<Vec<Piece>, FsError> {
        let node = self.node(number)?;
        let is_cut = !is_aligned(size) && size < node.inode.size;
        let is_written = node.data().is_some_and(|data| data.is_written((size / BLOCK_BYTES) as u32));
        if size > FILE_BYTES_MAX || !is_cut || !is_written {
            return Ok(Vec::new());
        }
        let start = size / BLOCK_BYTES * BLOCK_BYTES;
        Ok(vec![Piece::Completed(start, self.bytes(number, start..size)?)])
    }

    /// Punches or zeroes a range: whole blocks by the operation, the others by writing them.
    fn zero(
        &mut self,
        stamp: Stamp,
        number: InodeNumber,
        mode: u32,
        range: Range<u64>,
    ) -> Result<(), FsError> {
        self.node(number)?;
        // Within a block there is no operation for the tree to refuse.
        let size = self.tree.size_to_zero(number, mode)?;
        let size_after = if mode & KEEP_SIZE != 0 { size } else { size.max(range.end) };
        let start = range.start.next_multiple_of(BLOCK_BYTES);
        let end = if range.end >= size { range.end } else { range.end / BLOCK_BYTES * BLOCK_BYTES };
        let whole = start..end.max(start);
        let mut pieces = Vec::new();
        let edges = match range.start / BLOCK_BYTES == range.end / BLOCK_BYTES && start >= range.end {
            true => [range.start..range.end, 0..0],
            false => [range.start..start.min(range.end), end.max(start).min(range.end)..range.end],
        };
        for edge in edges {
            let edge = edge.start..edge.end.min(size.max(edge.start));
            let block = (edge.start / BLOCK_BYTES) as u32;
            if !edge.is_empty() && self.tree.node(number)?.data().is_some_and(|data| data.is_written(block)) {
                let zeroes = vec![0; (edge.end - edge.start) as usize];
                pieces.push(self.block_with(number, (size, size_after), edge, &zeroes)?);
            }
        }
        let allocate = |mode, range: Range<u64>| {
            let (offset, len) = (range.start, range.end - range.start);
            Some(Operation::Allocate { number, mode, offset, len })
        };
        // Without a whole block, a longer file is all that is left to do.
        let operation = match whole.is_empty() {
            true if size_after > size => allocate(0, range),
            true if !range.is_empty() => None,
            _ => allocate(mode, whole),
        };
        self.with_pieces(stamp, number, operation.as_ref(), &pieces)
    }
}
