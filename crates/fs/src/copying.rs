//! Copies of all files, from one machine to another. The sender publishes nothing meanwhile: it sends the records of the
//! published tree as they are, and then the operations of its log. The receiver executes these once it has the tree.

use crate::apply::take_over;
use crate::build::Record;
use crate::calls::Calls;
use crate::data_map::Interval;
use crate::dead::Dead;
use crate::error::FsError;
use crate::files::Files;
use crate::header::{HEADER_KEY, Header, LogFields};
use crate::key::{DataKey, InodeNumber, NamesKey, OperationKey};
use crate::log::{CLIENT, Log};
use crate::names::Position;
use crate::open::{Again, Refused, execute_again};
use crate::publish::Publisher;
use crate::received::{Copying, Received, Sent};
use crate::recover::Recovered;
use crate::replica::{FilesRecord, ReceiveError, operation_key, source_bytes};
use crate::state::State;
use crate::tree::{Tree, TreeError};
use landfall_heap::{
    Damage, Entry, FEATURE_CALLS, HeapError, Item, Kind, SlotId, Source, Transaction, spaces,
};
use smallvec::smallvec;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// Most records of a page.
const PAGE_RECORDS: usize = 256;
/// First index of the log while a copy is received: above all that operations have.
const COPY_FIRST: u64 = 1 << 62;
/// A page ends when its values have so many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// Where a walk over all records is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlace {
    /// The space.
    pub space: u8,
    /// The key of the last record of the space that was visited.
    pub after: Option<Vec<u8>>,
}

impl CopyPlace {
    /// The begin of a walk.
    pub const START: Self = Self { space: spaces::FILES_HEADER, after: None };
}

/// A record of a page: its space, key, and aux, and the rest.
#[derive(Debug)]
pub struct CopiedRecord<'h> {
    /// The space.
    pub space: u8,
    /// The key.
    pub key: Vec<u8>,
    /// What the record says beside its value, its arrival and its mark.
    pub aux: u32,
    /// The value.
    pub item: Item<'h>,
}

impl Files {
    /// Some records of the published tree, or of the log as it was when publishing was held, and where the next page
    /// begins. The caller holds publishing, and has made the log durable.
    ///
    /// # Errors
    /// Damage; the medium's.
    pub fn copy_page(&self, from: &CopyPlace) -> Result<(Vec<CopiedRecord<'_>>, Option<CopyPlace>), FsError> {
        let state = self.lock();
        let slots =
            state.slots_after(from).map_err(|what| HeapError::Damaged { slot: SlotId::NONE, what })?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        for slot in slots {
            let view = self.heap.record(slot)?;
            let (key, aux) = (self.heap.key(&view)?.to_vec(), view.aux());
            let mut item = Item::hold(&self.heap, slot, &view)?;
            if view.kind() == Kind::Bound {
                // The floor says something of this region only.
                item.arrival_ns = 0;
            }
            bytes += item.len;
            page.push(CopiedRecord { space: view.space(), key, aux, item });
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        let next = match page.last() {
            Some(last) => Some(CopyPlace { space: from.space, after: Some(last.key.clone()) }),
            None if from.space < spaces::FILES_LOG => Some(CopyPlace { space: from.space + 1, after: None }),
            None => None,
        };
        Ok((page, next))
    }

    /// The tree is the one that was copied, and the operations that have come meanwhile are executed.
    fn end_copy(&self) -> Result<(), ReceiveError> {
        let mut state = self.lock();
        let copying = state.received.copying().ok_or(ReceiveError::NoCopy)?;
        let Some((first, fields, calls)) = copying.bound.take() else { return Err(Damage::Lost.into()) };
        // What came before the sender stopped publishing may be in its tree.
        let later = copying.waiting.split_off(&first);
        let published = std::mem::replace(&mut copying.waiting, later);
        published.into_values().for_each(|slot| self.heap.drop_record(slot));
        let missing = copying.waiting.keys().zip(first..).find(|(index, expected)| *index != expected);
        if let Some((index, expected)) = missing {
            return Err(ReceiveError::Missing { index: *index, expected });
        }
        let waiting = std::mem::take(&mut copying.waiting);
        state.received = Received::PassedOver;
        let again = |(index, slot): (&u64, &SlotId)| Again { seq: *index, client: CLIENT, slot: *slot };
        let operations: Vec<Again> = waiting.iter().map(again).collect();
        let (epoch, lease, slots) = (fields.epoch, fields.lease, waiting.into_values().collect());
        state.log = Log { first, slots, epoch, lease, ..Log::new(CLIENT) };
        state.persistent_below = 0;
        let number = state.reset_tree().max(fields.next_number.0);
        state.tree.calls = calls;
        let mut report = Recovered::default();
        let number = execute_again(&mut state, operations, number, Refused::EndsItsLog, &mut report)?;
        if report.unacknowledged > 0 {
            return Err(ReceiveError::Refused { index: first, error: TreeError::Invalid });
        }
        (state.received, state.held) = (Received::Executed, None);
        self.raise_next_number(number);
        Ok(())
    }
}

impl State {
    /// Records of a space whose keys are behind a place, in order.
    fn slots_after(&self, from: &CopyPlace) -> Result<Vec<SlotId>, Damage> {
        let after = from.after.as_deref();
        let number = after.map_or(Ok(InodeNumber(0)), InodeNumber::of_key);
        let stored = &self.stored;
        Ok(match from.space {
            spaces::FILES_HEADER => stored.header.into_iter().filter(|_| after.is_none()).collect(),
            spaces::FILES_INODE => self.tree.stored_after(number?).take(PAGE_RECORDS).collect(),
            spaces::FILES_NAMES => {
                let key = after.map(NamesKey::decode).transpose()?;
                let last = key.map_or(Unbounded, |key| Excluded((key.directory, Position(key.first))));
                stored.names.range((last, Unbounded)).map(|(_, slot)| *slot).take(PAGE_RECORDS).collect()
            }
            spaces::FILES_DATA => {
                let key = after.map(DataKey::decode).transpose()?;
                let last = key.map_or(Unbounded, |key| Excluded((key.file, key.first)));
                stored.data.range((last, Unbounded)).map(|(_, slot)| *slot).take(PAGE_RECORDS).collect()
            }
            spaces::FILES_EXTENDED => {
                let behind = stored.extended.range((Excluded(number?), Unbounded));
                behind.map(|(_, slot)| *slot).take(PAGE_RECORDS).collect()
            }
            _ => self.log_slots_after(after)?,
        })
    }

    /// The bound of the mount's log, then its operations as far as they were there when publishing was held.
    fn log_slots_after(&self, after: Option<&[u8]>) -> Result<Vec<SlotId>, Damage> {
        let Some(key) = after else {
            return Ok(self.stored.bounds.get(&CLIENT).copied().into_iter().collect());
        };
        let from = match <[u8; 4]>::try_from(key) {
            Ok(_) => self.log.first,
            Err(_) => OperationKey::decode(key)?.index + 1,
        };
        let until = self.held.unwrap_or(self.log.first);
        let at = |index: u64| usize::try_from(index - self.log.first).unwrap_or(usize::MAX);
        if from >= until {
            return Ok(Vec::new());
        }
        Ok(self.log.slots.range(at(from)..at(until)).take(PAGE_RECORDS).copied().collect())
    }

    /// Forgets what is in memory of the tree. Returns the lowest number above all inodes.
    fn reset_tree(&mut self) -> u64 {
        let stored = self.tree.take_stored();
        let number = stored.last_key_value().map_or(0, |(number, _)| number.0 + 1);
        self.tree = Tree::of_stored(self.header.seed_in(&self.heap), stored);
        self.tree.calls = Calls::lost();
        self.damaged.clear();
        self.pending.clear();
        number
    }

    /// Keeps operations until the copy has ended: those of a page, or such as the first node has just executed, and has room for
    /// here.
    pub(crate) fn receive_for_later(
        &mut self,
        keys: &[OperationKey],
        group: &[FilesRecord<'_>],
        sent: Sent,
    ) -> Result<(), ReceiveError> {
        let copying = self.received.copying().ok_or(ReceiveError::NoCopy)?;
        if keys.iter().all(|key| copying.waiting.contains_key(&key.index)) {
            return Ok(());
        }
        let entries: Vec<Entry<'_>> =
            group.iter().map(|record| entry(&self.heap, record, Kind::Put)).collect();
        self.writer.set_frees_space(false);
        match sent {
            Sent::InPage => self.writer.set_copied(true),
            Sent::AsExecuted => self.writer.set_admitted(true),
        }
        let appended = self.writer.append_group(&entries);
        self.writer.set_admitted(false);
        let slots = appended?;
        copying.waiting.extend(keys.iter().map(|key| key.index).zip(slots));
        Ok(())
    }

    /// The header of the tree that is copied, for this region. The floor names the tree: that of another one gets a floor of
    /// its own, `next_seq`, below all that comes of it.
    fn header_for(&self, copied: &[u8], next_seq: u64) -> Result<Header, Damage> {
        let copied = Header::decode(copied)?;
        // Without a seed nobody finds the names in another region.
        copied.seed.ok_or(Damage::RecordFields)?;
        let next_client = self.header.next_client.max(copied.next_client);
        let floor = if is_of(&self.header, &copied) { self.header.floor } else { next_seq };
        Ok(Header { next_client, floor, ..copied })
    }

    /// What was copied of the tree, or of the log's bound, is current.
    fn take_copied(
        &mut self,
        record: Record,
        hash: u64,
        slot: SlotId,
        value: &[u8],
        mark: u64,
    ) -> Result<(), Damage> {
        match record {
            Record::Header => {
                let header = Header::decode(value)?;
                let is_another = header.floor > self.header.floor;
                (self.header, self.header_changed) = (header, false);
                if is_another {
                    // What is below the floor is not counted.
                    let old = self.stored.header.replace(slot);
                    old.into_iter().for_each(|old| self.heap.drop_record(old));
                    return Ok(());
                }
            }
            Record::Bound(_) => {
                let (fields, calls) = LogFields::decode(value)?;
                if let Some(copying) = self.received.copying() {
                    copying.bound = Some((mark, fields, calls));
                }
            }
            _ => {}
        }
        take_over(self, record, hash, slot);
        Ok(())
    }
}

/// True if both are headers of the same tree.
fn is_of(one: &Header, other: &Header) -> bool {
    (one.identity, one.seed) == (other.identity, other.seed)
}

fn entry<'a>(heap: &landfall_heap::Heap, record: &FilesRecord<'a>, kind: Kind) -> Entry<'a> {
    Entry {
        kind,
        space: record.space,
        hash: heap.hash(record.space, record.key),
        key: record.key,
        key_at: None,
        value: record.value,
        arrival_ns: record.arrival_ns,
        expiry_ms: record.mark,
        aux: record.aux,
    }
}

/// What a record of the tree, or a bound, is a record of.
fn record_of(record: &FilesRecord<'_>) -> Result<Record, Damage> {
    let key = record.key;
    match record.space {
        spaces::FILES_HEADER if key == HEADER_KEY => Ok(Record::Header),
        spaces::FILES_INODE => InodeNumber::of_key(key).map(Record::Inode),
        spaces::FILES_NAMES => {
            NamesKey::decode(key).map(|key| Record::Names(key.directory, Position(key.first)))
        }
        spaces::FILES_DATA => DataKey::decode(key)
            .map(|key| Record::Data(key.file, smallvec![Interval::unwritten(key.first, 1)])),
        spaces::FILES_EXTENDED => InodeNumber::of_key(key).map(Record::Extended),
        spaces::FILES_LOG if key == CLIENT.to_le_bytes() => Ok(Record::Bound(CLIENT)),
        _ => Err(Damage::RecordFields),
    }
}

impl Publisher {
    /// A copy of another machine's files begins. What the log has goes. The published tree stays to be compared, if `keeps`
    /// and all of it can be read; otherwise it goes, too. Nothing is published until [`Self::end_copy`]. It blocks in fences.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn begin_copy(&mut self, keeps: bool) -> Result<(), FsError> {
        let files = Arc::clone(&self.files);
        // What comes may be about calls.
        files.heap().require_features(FEATURE_CALLS)?;
        self.has_ended_copy = false;
        let keeps = {
            let mut state = files.lock();
            state.held = None;
            self.left.extend(state.log.slots.drain(..));
            if let Received::Kept(copying) = std::mem::replace(&mut state.received, Received::PassedOver) {
                self.left.extend(copying.waiting.into_values());
            }
            state.log = Log { first: COPY_FIRST, above: u64::MAX, ..Log::new(CLIENT) };
            state.persistent_below = 0;
            let keeps = keeps && state.damaged.is_empty() && state.stored.header.is_some();
            state.reset_tree();
            keeps
        };
        // With the log's new bound no operation counts, neither one that is there nor one that comes: until the copied bound
        // is there, the tree is a mixture of two. Whatever the published tree has, every node that
        // was in step has had; an operation of the log may be known to nobody else.
        self.step()?;
        self.left.drain(..).for_each(|slot| files.heap().drop_record(slot));
        if !keeps {
            self.drop_tree()?;
        }
        let mut state = files.lock();
        (state.received, state.held) = (Received::Kept(Copying { keeps, ..Copying::default() }), Some(0));
        Ok(())
    }

    /// All records of the tree mean nothing any more, with one record of the header. Tombstones would not do: the inodes
    /// that come have the same numbers, and what is still on the medium of an old one would be theirs after a restart.
    fn drop_tree(&mut self) -> Result<(), FsError> {
        let files = Arc::clone(&self.files);
        let mut state = files.lock();
        let heap = Arc::clone(&state.heap);
        let header = Header {
            seed: Some(state.header.seed_in(&heap)),
            // Under the lock of the tree: whatever it has on the medium has a lower one.
            floor: heap.next_seq(),
            ..state.header
        };
        let mut transaction = self.writer.begin_transaction(0)?;
        let value = header.encode();
        let record = FilesRecord {
            space: spaces::FILES_HEADER,
            key: HEADER_KEY,
            aux: 0,
            mark: 0,
            arrival_ns: 0,
            value: Source::Bytes(&value),
        };
        let slot = self.writer.append_to(&mut transaction, &entry(&heap, &record, Kind::Put))?;
        let (bound_hash, bound) = self.append_bound(&state, &mut transaction, &header)?;
        self.writer.commit(transaction)?;
        take_over(&mut state, Record::Bound(CLIENT), bound_hash, bound);
        (state.header, state.header_changed) = (header, false);
        let tombstones = std::mem::take(&mut state.kept).tombstones.into_values();
        let mut gone: Vec<SlotId> = tombstones.map(|tombstone| tombstone.slot).collect();
        gone.extend(state.tree.take_stored().into_values());
        gone.extend(state.stored.take_tree());
        gone.into_iter().for_each(|slot| heap.drop_record(slot));
        (state.stored.header, state.dead) = (Some(slot), Dead::default());
        state.reset_tree();
        Ok(())
    }

    /// Appends the bound of the mount's log as it is, with the floor of a header that is written in the same transaction.
    /// Returns the hash of its key, and its slot.
    fn append_bound(
        &mut self,
        state: &State,
        transaction: &mut Transaction,
        header: &Header,
    ) -> Result<(u64, SlotId), FsError> {
        let value = state.log.fields(InodeNumber(self.files.next_number())).bound(&state.tree.calls);
        let record = FilesRecord {
            space: spaces::FILES_LOG,
            key: &CLIENT.to_le_bytes(),
            aux: CLIENT,
            mark: state.log.mark(),
            arrival_ns: header.floor_in_bound(),
            value: Source::Bytes(&value),
        };
        let bound = entry(&state.heap, &record, Kind::Bound);
        let slot = self.writer.append_to(transaction, &bound)?;
        Ok((bound.hash, slot))
    }

    /// A tree that is kept goes if another one comes. An inode does not come back under a number that had one.
    fn check_kept(&mut self, records: &[FilesRecord<'_>]) -> Result<(), ReceiveError> {
        let files = Arc::clone(&self.files);
        let mut state = files.lock();
        let keeps = state.received.copying().ok_or(ReceiveError::NoCopy)?.keeps;
        if !keeps {
            return Ok(());
        }
        let mut is_another = false;
        for record in records {
            match record_of(record) {
                Ok(Record::Header) => {
                    let copied = Header::decode(&source_bytes(&state.heap, &record.value)?)?;
                    is_another |= !is_of(&copied, &state.header);
                }
                Ok(Record::Inode(number))
                    if state.tree.slot(number).is_none() && state.dead.may_have(number) =>
                {
                    return Err(ReceiveError::Returned { number });
                }
                _ => {}
            }
        }
        if is_another {
            state.received.copying().into_iter().for_each(|copying| copying.keeps = false);
            drop(state);
            self.drop_tree()?;
        }
        Ok(())
    }

    /// Ends a copy: the tree is the one that was copied, the operations that have come meanwhile are executed and published,
    /// durably. It blocks in fences.
    ///
    /// # Errors
    /// [`FsError::Wait`], and [`HeapError::Full`]: try again. All others of [`ReceiveError`]: the copy has come to nothing.
    pub fn end_copy(&mut self) -> Result<(), ReceiveError> {
        if !self.has_ended_copy {
            self.files.end_copy()?;
            self.has_ended_copy = true;
        }
        // Operations came before the log's bound did, and those that are older than their bound do not count.
        self.step()?;
        self.has_ended_copy = false;
        Ok(())
    }

    /// Takes records of another machine's files, in one transaction. It blocks in fences. Operations are durable with
    /// [`Files::newest`].
    ///
    /// # Errors
    /// [`ReceiveError`]: no record of the tree is taken then.
    pub fn receive_copied(&mut self, records: &[FilesRecord<'_>]) -> Result<(), ReceiveError> {
        let files = Arc::clone(&self.files);
        self.check_kept(records)?;
        let mut state = files.lock();
        state.received.copying().ok_or(ReceiveError::NoCopy)?;
        let is_operation = |record: &FilesRecord<'_>| operation_key(record).is_ok();
        let (operations, tree): (Vec<&FilesRecord<'_>>, Vec<&FilesRecord<'_>>) =
            records.iter().partition(|record| is_operation(record));
        for record in operations {
            state.receive_for_later(&[operation_key(record)?], &[*record], Sent::InPage)?;
        }
        if tree.is_empty() {
            return Ok(());
        }
        let heap = files.heap();
        let mut transaction = self.writer.begin_transaction(0)?;
        let (mut taken, mut bound, mut header, next_seq) = (Vec::new(), None, state.header, heap.next_seq());
        for record in tree {
            let what = record_of(record)?;
            let kind = if what == Record::Bound(CLIENT) { Kind::Bound } else { Kind::Put };
            let value = match what {
                Record::Header => {
                    header = state.header_for(&source_bytes(heap, &record.value)?, next_seq)?;
                    if header.floor > state.header.floor {
                        bound = Some(self.append_bound(&state, &mut transaction, &header)?);
                    }
                    header.encode()
                }
                Record::Bound(_) => source_bytes(heap, &record.value)?,
                _ => Vec::new(),
            };
            let mut entry = entry(heap, record, kind);
            if what == Record::Header {
                entry.value = Source::Bytes(&value);
            }
            if kind == Kind::Bound {
                entry.arrival_ns = header.floor_in_bound();
            }
            let slot = self.writer.append_to(&mut transaction, &entry)?;
            taken.push((what, entry.hash, slot, value, record.mark));
        }
        self.writer.commit(transaction)?;
        if let Some((hash, slot)) = bound {
            take_over(&mut state, Record::Bound(CLIENT), hash, slot);
        }
        for (what, hash, slot, value, mark) in taken {
            state.take_copied(what, hash, slot, &value, mark)?;
        }
        Ok(())
    }
}
