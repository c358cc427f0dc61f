//! Values that are in the region become files by reference, and files become values. The records, and why a crash does no
//! harm: `docs/format/fs.md`, "Values and files".

use crate::bytes::{FilePart, check_file, gathered, parts};
use crate::data_map::{BLOCK_BYTES, RECORD_BLOCKS_MAX};
use crate::error::FsError;
use crate::files::Files;
use crate::inode::Mode;
use crate::key::InodeNumber;
use crate::name::Name;
use crate::operation::{Operation, Stamp};
use crate::state::Step;
use crate::tree::TreeError;
use landfall_heap::{Extents, Heap, Item, KeptCrcs, Source, Ticket, slice};
use std::borrow::Cow;

/// Bytes of a value to which one record refers.
const PART_BYTES: usize = BLOCK_BYTES as usize * RECORD_BLOCKS_MAX as usize;

/// A file that is made of a value.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// The directory.
    pub parent: InodeNumber,
    /// The name in it.
    pub name: Name<'a>,
    /// Type and permissions.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What has the name loses it to the file. Otherwise that is [`TreeError::Exists`].
    pub replaces: bool,
}

/// What [`Files::import`] has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The directory.
    pub parent: InodeNumber,
    /// The name in it.
    pub name: Box<[u8]>,
    /// The new file.
    pub number: InodeNumber,
    /// The inode that had the name. It may have no name any more.
    pub replaced: Option<InodeNumber>,
}

/// A part of a value that one record of the log takes.
enum Part<'v> {
    /// Bytes in the value's record, or copied from a frame to which too many records refer.
    Bytes(Cow<'v, [u8]>),
    Stored(Extents, KeptCrcs),
}

impl Files {
    /// Makes a file of a value: it refers to the value's frames. It is there with all of its bytes or not at all, in memory
    /// and after a crash, and durable after [`Self::sync`]. The caller has verified the value, and keeps its record current
    /// meanwhile.
    ///
    /// # Errors
    /// [`TreeError`]; [`FsError::Wait`], [`FsError::Heap`]. Nothing is made then.
    pub fn import(&self, time_ns: i64, new: &NewFile<'_>, value: &Item<'_>) -> Result<Imported, FsError> {
        let parts = parts_of(&self.heap, value)?;
        // The value may be in a batch that is not durable yet: the log's batch makes its bytes durable, too.
        let durable = self.heap.pending(value.slot).is_none();
        let number = self.take_number();
        let NewFile { parent, name, mode, uid, gid, replaces } = *new;
        let create = Operation::Create { place: None, number, mode, uid, gid, rdev: 0 };
        let link = Operation::Link { parent, name, number, replaces };
        let writes = parts.iter().zip((0..).step_by(PART_BYTES)).map(|(part, offset)| match part {
            Part::Bytes(bytes) => Step::Write(offset, Source::Bytes(bytes)),
            Part::Stored(extents, crcs) => {
                let (landed, crc) = (&[][..], Some(crcs.get()));
                let value = Source::Stored { extents, landed, durable, shared: true, crc, list: None };
                Step::Write(offset, value)
            }
        });
        let steps: Vec<Step<'_>> =
            [Step::Operation(&create)].into_iter().chain(writes).chain([Step::Operation(&link)]).collect();
        let mut state = self.lock();
        let replaced = state.ask(|tree| tree.check_new_name(parent, name, replaces))?;
        let lease = state.log.lease;
        state.apply(Stamp { lease, time_ns }, number, &steps)?;
        Ok(Imported { parent, name: name.bytes().into(), number, replaced })
    }

    /// Passes all bytes of a file, `bytes_max` at most, to `take`, where they are, with the ticket of the batch that makes them
    /// durable; `None`: they are. Their records stay current until `take` returns, so that it can append records that refer
    /// to the same frames. Nothing is waited for: who appends records makes the bytes durable with them.
    ///
    /// # Errors
    /// [`TreeError`], [`TreeError::TooLarge`] for a longer file; [`FsError::Wait`], [`FsError::Heap`].
    pub fn export<T>(
        &self,
        file: InodeNumber,
        bytes_max: u64,
        take: impl FnOnce(&[FilePart<'_>], Option<Ticket>) -> T,
    ) -> Result<T, FsError> {
        let mut state = self.lock();
        let pending = state.pending.get(&file).copied().filter(|ticket| !self.heap.is_durable(*ticket));
        let node = state.node(file)?;
        let size = check_file(node)?;
        if size > bytes_max {
            return Err(TreeError::TooLarge.into());
        }
        Ok(take(&parts(&self.heap, node, 0..size)?, pending))
    }
}

/// Divides a value into what single records hold.
fn parts_of<'v>(heap: &Heap, value: &'v Item<'_>) -> Result<Vec<Part<'v>>, FsError> {
    if let Some(bytes) = value.inline() {
        return Ok(if bytes.is_empty() { Vec::new() } else { vec![Part::Bytes(bytes.into())] });
    }
    let part = |from: usize| {
        let extents = slice(value.extents(), from..value.len.min(from + PART_BYTES));
        if extents.iter().all(|extent| heap.runs().may_share(*extent)) {
            let crcs = heap.crcs_of(&extents)?;
            return Ok(Part::Stored(extents, crcs));
        }
        Ok(Part::Bytes(gathered(heap, &extents)?.into()))
    };
    (0..value.len).step_by(PART_BYTES).map(part).collect()
}
