//! Where the data of a file are: for who wants to look.

use crate::data_map::{BLOCK_BYTES, BLOCKS_MAX};
use crate::error::FsError;
use crate::files::Files;
use crate::key::InodeNumber;
use landfall_heap::{Item, SlotId};
use std::collections::BTreeSet;

/// Where the data of an inode are. All is zero for an inode that is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Records that hold its data.
    pub records: u64,
    /// Bytes of whole blocks in published records of data.
    pub published_bytes: u64,
    /// Bytes of whole blocks in operations that are not published.
    pub log_bytes: u64,
    /// Bytes of blocks that are reserved and not written.
    pub reserved_bytes: u64,
    /// Contiguous extents on the medium in which the data of the records lie.
    pub extents: u64,
}

impl Files {
    /// Where the data of an inode are.
    ///
    /// # Errors
    /// As [`Self::stat`]; those of reading the data's records.
    pub fn placed(&self, number: InodeNumber) -> Result<Placed, FsError> {
        let mut state = self.lock();
        let parts: Vec<_> =
            state.node(number)?.data().into_iter().flat_map(|data| data.parts(0..BLOCKS_MAX)).collect();
        let published: BTreeSet<SlotId> = state.stored.data_from(number, 0).map(|(_, slot)| slot).collect();
        let (mut placed, mut records) = (Placed::default(), BTreeSet::new());
        for part in parts {
            let bytes = u64::from(part.blocks) * BLOCK_BYTES;
            match part.skip() {
                None => placed.reserved_bytes += bytes,
                Some(_) if published.contains(&part.slot) => placed.published_bytes += bytes,
                Some(_) => placed.log_bytes += bytes,
            }
            if part.skip().is_some() && records.insert(part.slot) {
                let view = self.heap.record(part.slot)?;
                placed.extents += Item::hold(&self.heap, part.slot, &view)?.extents().len() as u64;
            }
        }
        placed.records = records.len() as u64;
        Ok(placed)
    }
}
