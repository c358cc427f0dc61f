//! What a region has, page by page, for a copy.

use landfall_chain::{Digest, Digester, Record, RecordKind};
use landfall_heap::{Heap, HeapError, Item, Pinned};
use std::fmt::Debug;

/// A record of a copy.
#[derive(Debug)]
pub struct CopiedRecord<'h> {
    /// Its space.
    pub space: u8,
    /// Its key, as other nodes know it.
    pub key: Vec<u8>,
    /// Its aux.
    pub aux: u32,
    /// What it is.
    pub part: CopiedPart<'h>,
}

/// What a record of a copy is.
#[derive(Debug)]
pub enum CopiedPart<'h> {
    /// A version of a key.
    Value(Item<'h>),
    /// A version of a key whose value is damaged: nobody gets it, and a node that has it whole keeps it.
    Damaged(Item<'h>),
    /// Something cannot be read.
    Tombstone {
        /// Its mark.
        mark: u64,
    },
    /// A bound.
    Bound {
        /// Its mark.
        mark: u64,
    },
}

/// A version of a key as a record of a message: what nodes have in common of it.
///
/// # Errors
/// The medium's.
pub fn record_of<'a>(
    heap: &Heap,
    space: u8,
    aux: u32,
    key: &'a [u8],
    item: &Item<'_>,
) -> Result<Record<'a>, HeapError> {
    let value_crc = match (item.crcs(), item.inline()) {
        (Some(crcs), _) => crcs.whole(),
        (None, Some(bytes)) => landfall_heap::crc::of(bytes),
        (None, None) => heap.crc_of(item.extents())?,
    };
    Ok(Record {
        kind: RecordKind::Put,
        more: false,
        space,
        aux,
        arrival_ns: item.arrival_ns,
        mark: item.expiry_ms,
        key,
        value_len: u32::try_from(item.len).unwrap_or(u32::MAX),
        value_crc,
    })
}

/// The digest of a record of files: its value counts as the bytes that it has.
///
/// # Errors
/// The medium's.
pub fn digest_of_files(
    heap: &Heap,
    digester: &Digester,
    (space, aux): (u8, u32),
    key: &[u8],
    item: &Item<'_>,
) -> Result<Digest, HeapError> {
    let record = record_of(heap, space, aux, key, item)?;
    let pinned: Vec<Pinned<'_>> =
        item.extents().iter().map(|extent| heap.pinned(*extent)).collect::<Result<_, _>>()?;
    let parts = item.inline().into_iter().chain(pinned.iter().map(|bytes| &bytes[..]));
    Ok(digester.digest_with_value(&record, parts))
}

/// An entry of a log as a comparison knows it: its offset (8), and its key, as other nodes know it.
pub fn entry_place(offset: u64, key: &[u8]) -> Vec<u8> {
    [&offset.to_le_bytes(), key].concat()
}

/// Offset and key of an entry.
pub fn parse_entry_place(place: &[u8]) -> Option<(u64, &[u8])> {
    let (offset, key) = place.split_first_chunk()?;
    Some((u64::from_le_bytes(*offset), key))
}

/// Takes a record of a copy.
pub type AddRecord<'a, 'h> = &'a mut dyn FnMut(CopiedRecord<'h>) -> Result<(), HeapError>;

/// Where a walk over all keys is; the default is its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The space.
    pub space: u8,
    /// The last key of the space that was visited.
    pub after: Option<Vec<u8>>,
}

/// Everything that a region has, page by page.
pub trait Pages: Debug + Send + Sync {
    /// A walk begins: the node behind has deleted what it does not keep. Files do not change from the return on.
    fn begin(&self);

    /// True for a space that the node behind keeps, and of which it gets what differs. Its pages are in the order of their
    /// keys, and have values only; those of logs have bounds, too, and entries that are lost.
    fn compares(&self, space: u8) -> bool;

    /// The walk is over, or given up.
    fn end(&self);

    /// Passes some current versions to `add`; `None` at the end. A key that is there all the time is visited once.
    ///
    /// # Errors
    /// [`HeapError::Loading`]: the page is read again after a while. The medium's.
    fn page<'h>(&'h self, from: &Position, add: AddRecord<'_, 'h>) -> Result<Option<Position>, HeapError>;
}
