//! Files of a machine that comes back to a chain: it keeps its tree, and gets what differs (`docs/format/chain.md`,
//! "Comparing").

use crate::build::Record;
use crate::copying::{CopiedRecord, CopyPlace};
use crate::error::FsError;
use crate::files::Files;
use crate::names::Position;
use crate::publish::{Publisher, Repair};
use crate::recover::RecordKey;
use landfall_heap::{Damage, HeapError, SlotId, spaces};

/// Records of the tree that follow each other.
#[derive(Debug)]
pub struct RecordPage<'h> {
    /// The records, in the order of their keys.
    pub records: Vec<CopiedRecord<'h>>,
    /// There are no more of them up to the end that was asked for.
    pub is_last: bool,
}

/// True if files keep their records of a space when a copy begins, and are compared with those of the sender: records of
/// the tree, without its header.
pub fn is_compared(space: u8) -> bool {
    (spaces::FILES_INODE..=spaces::FILES_EXTENDED).contains(&space)
}

/// The key of a record that is compared. Those of a space are in the order of inode and place.
fn decode(space: u8, key: &[u8]) -> Result<RecordKey, FsError> {
    let decoded = RecordKey::decode(space, key).filter(|_| is_compared(space));
    decoded.ok_or_else(|| HeapError::Damaged { slot: SlotId::NONE, what: Damage::RecordFields }.into())
}

fn tombstone(space: u8, key: &[u8]) -> Result<Record, FsError> {
    let RecordKey { number, place, .. } = decode(space, key)?;
    Ok(match space {
        spaces::FILES_INODE => Record::NoInode(number),
        spaces::FILES_NAMES => Record::NoNames(number, Position(place)),
        spaces::FILES_DATA => Record::NoData(number, place as u32),
        _ => Record::NoExtended(number),
    })
}

impl Files {
    /// Some of the published records of a space behind a place, up to the key `until`, or to the end of the space.
    ///
    /// # Errors
    /// As [`Self::copy_page`]; [`Damage::RecordFields`] if `until` is no key of the space, or if that is none of the tree.
    pub fn records_within(&self, from: &CopyPlace, until: Option<&[u8]>) -> Result<RecordPage<'_>, FsError> {
        let end = until.map(|until| decode(from.space, until)).transpose()?;
        let (mut records, next) = self.copy_page(from)?;
        let mut is_last = next.is_none_or(|next| next.space != from.space);
        if let Some(end) = end {
            let is_within =
                |record: &CopiedRecord<'_>| decode(record.space, &record.key).is_ok_and(|key| key <= end);
            let count = records.iter().take_while(|record| is_within(record)).count();
            is_last |= count < records.len();
            records.truncate(count);
        }
        Ok(RecordPage { records, is_last })
    }
}

impl Publisher {
    /// Deletes records of the tree that the sender of a copy does not have, in one transaction. It blocks in fences.
    ///
    /// # Errors
    /// [`Damage::RecordFields`] if one is no key of the space; as [`Self::step`].
    pub fn drop_compared(&mut self, space: u8, keys: &[&[u8]]) -> Result<(), FsError> {
        let dropped: Vec<Record> =
            keys.iter().map(|key| tombstone(space, key)).collect::<Result<_, FsError>>()?;
        if dropped.is_empty() { Ok(()) } else { self.drop_records(dropped, Repair::IsNotNoted) }
    }
}
