//! The records of a chunk: what is current of everything that it has changed.

use crate::calls::Calls;
use crate::data_changes::{Change, Sources, Value, write_changes};
use crate::directory::NamesChange;
use crate::error::FsError;
use crate::header::{HEADER_KEY, Header, LOG_ENDED};
use crate::inode::{FileType, ORPHAN};
use crate::key::{DataKey, InodeNumber, NamesKey};
use crate::log::CLIENT;
use crate::log::Log;
use crate::names::Position;
use crate::node::{Body, Node, encode_extended};
use crate::publishing::Publishing;
use crate::state::State;
use landfall_heap::{Entry, Heap, Kind, SlotId, Source, Transaction, Writer, spaces};
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
    /// Consecutive blocks of a file, and where they were.
    Data(InodeNumber, Sources),
    NoData(InodeNumber, u32),
    Extended(InodeNumber),
    NoExtended(InodeNumber),
    Bound(u32),
    /// The bound of a client that has ended.
    EndedBound(u32),
}

impl Record {
    pub(crate) fn space(&self) -> u8 {
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
            Self::Data(file, sources) => {
                SmallVec::from_slice(&DataKey { file: *file, first: sources[0].first }.encode())
            }
            Self::NoData(file, first) => {
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
    /// Bytes of data in new records, copied or not.
    pub(crate) put_bytes: u64,
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
    /// Number of its operations, the bytes of their values, and of these, data of files.
    pub(crate) operations: usize,
    pub(crate) bytes: u64,
    pub(crate) written: u64,
    /// The mark of the log's bound: the index of the first operation behind the chunk.
    pub(crate) until: u64,
}

impl LogPart {
    fn of(log: &Log) -> Self {
        Self {
            client: log.client,
            operations: log.slots.len(),
            bytes: log.bytes,
            written: log.written,
            until: log.mark(),
        }
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
            put_bytes: 0,
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
pub(crate) struct Builder<'a> {
    pub(crate) heap: &'a Heap,
    pub(crate) publishing: Publishing,
    pub(crate) writer: &'a mut Writer,
    pub(crate) transaction: &'a mut Transaction,
    pub(crate) built: &'a mut Built,
}

/// Appends what the operations since the last chunk have changed.
///
/// # Errors
/// Those of [`Writer::append_to`]; damage of data that have to be divided.
pub(crate) fn build(state: &mut State, mut builder: Builder<'_>) -> Result<(), FsError> {
    builder.built.numbers = state.tree.take_changed().into_iter().collect();
    if state.stored.header.is_none() || state.header_changed {
        state.header_changed = false;
        builder.header(&state.header)?;
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

/// Appends tombstones of records of the tree, and a header if there is one.
///
/// # Errors
/// Those of [`Writer::append_to`].
pub(crate) fn build_dropped(
    mut builder: Builder<'_>,
    dropped: impl IntoIterator<Item = Record>,
    header: Option<&Header>,
) -> Result<(), FsError> {
    header.into_iter().try_for_each(|header| builder.header(header))?;
    dropped.into_iter().try_for_each(|record| builder.tombstone(record))
}

impl Builder<'_> {
    fn header(&mut self, header: &Header) -> Result<(), FsError> {
        self.put(Record::Header, Source::Bytes(&header.encode()), Fields::default())
    }

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
        write_changes(self.heap, state, number, &ranges, |change| match change {
            Change::Put(sources, value) => self.blocks(number, sources, &value),
            Change::Remove(first) => self.tombstone(Record::NoData(number, first)),
        })
    }

    /// Appends the record of consecutive blocks. It refers to the bytes of the records that have them now, or gets a copy of
    /// those whose checksum says that they are good: a new one would hide the damage of others.
    fn blocks(&mut self, number: InodeNumber, sources: Sources, value: &Value<'_>) -> Result<(), FsError> {
        let mut fields = Fields { mark: u64::from(sources[0].first), ..Fields::default() };
        if let Value::Reserved = value {
            fields.aux = u32::from(sources[0].blocks);
        }
        self.built.put_bytes += value.source().len();
        let copied = match self.publishing {
            Publishing::Relink => None,
            Publishing::Copy | Publishing::CopyEach => value.copied(self.heap)?,
        };
        let Some(bytes) = copied else {
            let source = value.source();
            self.built.relinked_bytes += source.len();
            return self.put(Record::Data(number, sources), source, fields);
        };
        self.put(Record::Data(number, sources), Source::Bytes(&bytes), fields)?;
        if self.publishing == Publishing::CopyEach {
            self.writer.persist_appended(self.transaction)?;
        }
        Ok(())
    }

    fn bounds(&mut self, state: &State) -> Result<(), FsError> {
        let next_number = InodeNumber(self.built.next_number);
        let value = |log: &Log| match log.client {
            CLIENT => log.fields(next_number).bound(&state.tree.calls),
            _ => log.fields(next_number).bound(&Calls::default()),
        };
        let values: BTreeMap<u32, Vec<u8>> = state.logs().map(|log| (log.client, value(log))).collect();
        for LogPart { client, until, .. } in self.built.parts.clone() {
            let arrival_ns = if client == CLIENT { state.header.floor_in_bound() } else { 0 };
            let fields = Fields { arrival_ns, mark: until, aux: client };
            let record = if until == LOG_ENDED { Record::EndedBound(client) } else { Record::Bound(client) };
            let value = Source::Bytes(&values[&client]);
            self.append(record, Kind::Bound, value, fields)?;
        }
        Ok(())
    }
}
