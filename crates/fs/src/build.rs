//! The records of a chunk: what is current of everything that it has changed.

use crate::data_map::{BLOCK_BYTES, Interval};
use crate::directory::NamesChange;
use crate::error::FsError;
use crate::header::{HEADER_KEY, LOG_BYTES, LOG_ENDED};
use crate::inode::{FileType, ORPHAN};
use crate::key::{DataKey, InodeNumber, NamesKey};
use crate::log::Log;
use crate::names::Position;
use crate::node::{Body, Node, encode_extended};
use crate::state::{State, interval_of};
use landfall_heap::{
    Crcs, Damage, Entry, Heap, HeapError, Item, ItemPart, Kind, PIECES_FROM, SlotId, Source, Transaction,
    Writer, spaces,
};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;

/// A record of the chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Header,
    Inode(InodeNumber),
    /// The tombstone of an inode.
    NoInode(InodeNumber),
    Names(InodeNumber, Position),
    NoNames(InodeNumber, Position),
    /// Blocks of a file, and where they were.
    Data(InodeNumber, Interval),
    NoData(InodeNumber, u32),
    Extended(InodeNumber),
    NoExtended(InodeNumber),
    Bound(u32),
    /// The bound of a client that has ended.
    EndedBound(u32),
}

impl Record {
    fn space(&self) -> u8 {
        match self {
            Self::Header => spaces::FILES_HEADER,
            Self::Inode(_) | Self::NoInode(_) => spaces::FILES_INODE,
            Self::Names(..) | Self::NoNames(..) => spaces::FILES_NAMES,
            Self::Data(..) | Self::NoData(..) => spaces::FILES_DATA,
            Self::Extended(_) | Self::NoExtended(_) => spaces::FILES_EXTENDED,
            Self::Bound(_) | Self::EndedBound(_) => spaces::FILES_LOG,
        }
    }

    fn key(&self) -> SmallVec<[u8; 16]> {
        match self {
            Self::Header => SmallVec::from_slice(HEADER_KEY),
            Self::Inode(number)
            | Self::NoInode(number)
            | Self::Extended(number)
            | Self::NoExtended(number) => SmallVec::from_slice(&number.key()),
            Self::Names(directory, first) | Self::NoNames(directory, first) => {
                SmallVec::from_slice(&NamesKey { directory: *directory, first: first.0 }.encode())
            }
            Self::Data(file, Interval { first, .. }) | Self::NoData(file, first) => {
                SmallVec::from_slice(&DataKey { file: *file, first: *first }.encode())
            }
            Self::Bound(client) | Self::EndedBound(client) => SmallVec::from_slice(&client.to_le_bytes()),
        }
    }
}

/// What a chunk has put together.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) records: Vec<(Record, u64, SlotId)>,
    /// What the chunk takes of each log that has changed.
    pub(crate) parts: Vec<LogPart>,
    pub(crate) next_number: u64,
    pub(crate) relinked_bytes: u64,
    pub(crate) undone: u64,
    /// What the chunk has changed, for the case that it is not published.
    pub(crate) numbers: Vec<InodeNumber>,
    pub(crate) names: Vec<(InodeNumber, Position)>,
    pub(crate) ranges: Vec<(InodeNumber, Vec<Range<u64>>)>,
    pub(crate) extended: Vec<InodeNumber>,
}

/// The part of a log that a chunk publishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPart {
    pub(crate) client: u32,
    /// Number of its operations, and the bytes of their values.
    pub(crate) operations: usize,
    pub(crate) bytes: u64,
    /// The mark of the log's bound: the index of the first operation behind the chunk.
    pub(crate) until: u64,
}

impl LogPart {
    fn of(log: &Log) -> Self {
        Self { client: log.client, operations: log.slots.len(), bytes: log.bytes, until: log.mark() }
    }
}

impl Built {
    pub(crate) fn new(state: &State, next_number: u64) -> Self {
        let is_due = |log: &&Log| !log.is_published() || !state.stored.bounds.contains_key(&log.client);
        let others = state.others.values().filter(is_due);
        Self {
            records: Vec::new(),
            parts: std::iter::once(&state.log).chain(others).map(LogPart::of).collect(),
            next_number,
            relinked_bytes: 0,
            undone: 0,
            numbers: Vec::new(),
            names: Vec::new(),
            ranges: Vec::new(),
            extended: Vec::new(),
        }
    }
}

/// The fields of a record that differ.
#[derive(Clone, Copy, Default)]
struct Fields {
    arrival_ns: u64,
    mark: u64,
    aux: u32,
}

/// Appends the records of one chunk.
struct Builder<'a> {
    heap: &'a Heap,
    writer: &'a mut Writer,
    transaction: &'a mut Transaction,
    built: &'a mut Built,
}

/// Appends what the operations since the last chunk have changed.
///
/// # Errors
/// Those of [`Writer::append_to`]; damage of data that have to be divided.
pub(crate) fn build(
    state: &mut State,
    writer: &mut Writer,
    transaction: &mut Transaction,
    built: &mut Built,
) -> Result<(), FsError> {
    let heap = std::sync::Arc::clone(&state.heap);
    let mut builder = Builder { heap: &heap, writer, transaction, built };
    builder.built.numbers = state.tree.take_changed().into_iter().collect();
    if state.stored.header.is_none() || state.header_changed {
        state.header_changed = false;
        let value = state.header.encode();
        builder.put(Record::Header, Source::Bytes(&value), Fields::default())?;
    }
    for number in builder.built.numbers.clone() {
        if state.tree.in_memory(number).is_some() {
            builder.inode(state, number)?;
        } else if state.tree.slot(number).is_some() {
            builder.tombstone(Record::NoInode(number))?;
        } else {
            builder.built.undone += 1;
        }
    }
    builder.bounds(state)
}

/// Appends tombstones of records of the tree.
///
/// # Errors
/// Those of [`Writer::append_to`].
pub(crate) fn build_dropped(
    heap: &Heap,
    writer: &mut Writer,
    transaction: &mut Transaction,
    built: &mut Built,
    dropped: impl IntoIterator<Item = Record>,
) -> Result<(), FsError> {
    let mut builder = Builder { heap, writer, transaction, built };
    dropped.into_iter().try_for_each(|record| builder.tombstone(record))
}

impl Builder<'_> {
    fn append(
        &mut self,
        record: Record,
        kind: Kind,
        value: Source<'_>,
        fields: Fields,
    ) -> Result<(), FsError> {
        let (space, key) = (record.space(), record.key());
        let key = &key[..];
        let hash = self.heap.hash(space, key);
        let slot = self.writer.append_to(
            self.transaction,
            &Entry {
                kind,
                space,
                hash,
                key,
                key_at: None,
                value,
                arrival_ns: fields.arrival_ns,
                expiry_ms: fields.mark,
                aux: fields.aux,
            },
        )?;
        self.built.records.push((record, hash, slot));
        Ok(())
    }

    fn put(&mut self, record: Record, value: Source<'_>, fields: Fields) -> Result<(), FsError> {
        self.append(record, Kind::Put, value, fields)
    }

    /// Appends the tombstone of a record of the tree.
    fn tombstone(&mut self, record: Record) -> Result<(), FsError> {
        self.append(record, Kind::Tombstone, Source::None, Fields::default())
    }

    fn inode(&mut self, state: &mut State, number: InodeNumber) -> Result<(), FsError> {
        let Some(node) = state.tree.in_memory(number) else { return Ok(()) };
        let aux = if node.inode.nlink == 0 { ORPHAN } else { 0 };
        let (arrival_ns, mark) = (node.mtime_ns.cast_unsigned(), node.ctime_ns.cast_unsigned());
        let fields = Fields { arrival_ns, mark, aux };
        let mut value = node.inode.encode().to_vec();
        if let Body::Link(target) = &node.body {
            value.extend_from_slice(target);
        }
        self.put(Record::Inode(number), Source::Bytes(&value), fields)?;
        self.extended(state, number)?;
        match state.tree.in_memory(number).map(Node::file_type) {
            Some(FileType::Directory) => self.names(state, number),
            Some(FileType::File) => self.data(state, number),
            _ => Ok(()),
        }
    }

    fn extended(&mut self, state: &mut State, number: InodeNumber) -> Result<(), FsError> {
        let is_stored = state.stored.extended.contains_key(&number);
        let Some(node) = state.tree.in_memory_mut(number).filter(|node| node.extended_changed) else {
            return Ok(());
        };
        node.extended_changed = false;
        self.built.extended.push(number);
        let value = encode_extended(&node.extended);
        match (value.is_empty(), is_stored) {
            (false, _) => self.put(Record::Extended(number), Source::Bytes(&value), Fields::default()),
            (true, true) => self.tombstone(Record::NoExtended(number)),
            (true, false) => Ok(()),
        }
    }

    fn names(&mut self, state: &mut State, number: InodeNumber) -> Result<(), FsError> {
        let Some(directory) = state.tree.directory_mut(number) else { return Ok(()) };
        let changes = directory.take_changes();
        self.built.names.extend(changes.iter().map(|(first, _)| (number, *first)));
        for (first, change) in changes {
            match change {
                NamesChange::Put { count, value } => {
                    let fields = Fields { mark: first.0, aux: count, ..Fields::default() };
                    self.put(Record::Names(number, first), Source::Bytes(&value), fields)?;
                }
                NamesChange::Tombstone => self.tombstone(Record::NoNames(number, first))?,
            }
        }
        Ok(())
    }

    fn data(&mut self, state: &mut State, number: InodeNumber) -> Result<(), FsError> {
        let data = state.tree.in_memory_mut(number).and_then(Node::data_mut);
        let ranges = data.map(|data| data.take_changes()).unwrap_or_default();
        self.built.ranges.push((number, ranges.clone()));
        for change in changes_of(state, number, &ranges)? {
            match change {
                Change::Put(part) => self.blocks(state, number, part)?,
                Change::Remove(first) => self.tombstone(Record::NoData(number, first))?,
            }
        }
        Ok(())
    }

    /// Appends the record of consecutive blocks. It refers to the bytes of the record that has them now.
    fn blocks(&mut self, state: &State, number: InodeNumber, part: Interval) -> Result<(), FsError> {
        let mut fields = Fields { mark: u64::from(part.first), ..Fields::default() };
        let record = Record::Data(number, part);
        let Some(skip) = part.skip() else {
            fields.aux = u32::from(part.blocks);
            return self.put(record, Source::None, fields);
        };
        let heap = self.heap;
        let view = heap.record(part.slot)?;
        let len = view.value_len() as u64;
        let start = u64::from(skip) * BLOCK_BYTES;
        let end = len.min(start + u64::from(part.blocks) * BLOCK_BYTES);
        self.built.relinked_bytes += end.saturating_sub(start);
        let shared = state.tree.has_spread(part.slot) || view.is_shared();
        if start == 0 && end == len {
            let item = Item::hold(heap, part.slot, &view)?;
            let value = stored(item.inline(), item.extents(), shared, item.crcs(), item.list());
            return self.put(record, value, fields);
        }
        let item = ItemPart::hold(heap, part.slot, &view, start as usize..end as usize)?;
        let (is_whole, inline, extents) = (item.item().verify()?, item.inline(), item.extents());
        if is_whole {
            let crcs = heap.crcs_of(&extents)?;
            return self.put(record, stored(inline, &extents, shared, Some(crcs.get()), None), fields);
        }
        // Damaged bytes stay damaged: reads of them fail, and everything else is published.
        if end - start >= PIECES_FROM || inline.is_some() {
            return Err(HeapError::Damaged { slot: part.slot, what: Damage::ValueChecksum }.into());
        }
        let wrong = Crcs::Whole(!heap.crc_of(&extents)?);
        self.put(record, stored(None, &extents, shared, Some(wrong), None), fields)
    }

    fn bounds(&mut self, state: &State) -> Result<(), FsError> {
        let next_number = InodeNumber(self.built.next_number);
        let logs = state.logs().map(|log| (log.client, log.fields(next_number).encode()));
        let values: BTreeMap<u32, [u8; LOG_BYTES]> = logs.collect();
        for LogPart { client, until, .. } in self.built.parts.clone() {
            let fields = Fields { mark: until, aux: client, ..Fields::default() };
            let record = if until == LOG_ENDED { Record::EndedBound(client) } else { Record::Bound(client) };
            let value = Source::Bytes(&values[&client]);
            self.append(record, Kind::Bound, value, fields)?;
        }
        Ok(())
    }
}

fn stored<'a>(
    inline: Option<&'a [u8]>,
    extents: &'a [landfall_media::Extent],
    shared: bool,
    crc: Option<Crcs<'a>>,
    list: Option<landfall_heap::PieceList>,
) -> Source<'a> {
    match inline {
        Some(bytes) => Source::Bytes(bytes),
        None => Source::Stored { extents, landed: &[], durable: true, shared, crc, list },
    }
}

/// What a file's records need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Put(Interval),
    Remove(u32),
}

/// The records that make the published blocks of a file what the file has in the changed ranges.
fn changes_of(state: &State, file: InodeNumber, ranges: &[Range<u64>]) -> Result<Vec<Change>, FsError> {
    let mut changes = Vec::new();
    let mut done = 0;
    for range in ranges {
        let range = widened(state, file, range)?;
        let range = range.start.max(done)..range.end;
        if range.is_empty() {
            continue;
        }
        done = range.end;
        let data = state.tree.in_memory(file).and_then(Node::data);
        let parts: Vec<Interval> = data.into_iter().flat_map(|data| data.parts(range.clone())).collect();
        for part in &parts {
            if stored_interval(state, file, part.first)? != Some(*part) {
                changes.push(Change::Put(*part));
            }
        }
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        for (first, _) in state.stored.data_from(file, start) {
            if u64::from(first) >= range.end {
                break;
            }
            if parts.binary_search_by_key(&first, |part| part.first).is_err() {
                changes.push(Change::Remove(first));
            }
        }
    }
    Ok(changes)
}

/// The blocks of the record that begins at a block.
fn stored_interval(state: &State, file: InodeNumber, first: u32) -> Result<Option<Interval>, FsError> {
    let Some(slot) = state.stored.data.get(&(file, first)).copied() else { return Ok(None) };
    let interval = interval_of(&state.heap.record(slot)?, first, slot);
    Ok(Some(interval.map_err(|what| HeapError::Damaged { slot, what })?))
}

/// A range that ends where records of the file end.
fn widened(state: &State, file: InodeNumber, range: &Range<u64>) -> Result<Range<u64>, FsError> {
    let mut wide = range.clone();
    let last = u32::try_from(range.end - 1).unwrap_or(u32::MAX);
    let first = u32::try_from(range.start).unwrap_or(u32::MAX);
    for block in [first, last] {
        let Some((before, _)) = state.stored.data_before(file, block) else { continue };
        if let Some(interval) = stored_interval(state, file, before)?
            && interval.end() > range.start
        {
            wide = wide.start.min(u64::from(before))..wide.end.max(interval.end());
        }
    }
    Ok(wide)
}
