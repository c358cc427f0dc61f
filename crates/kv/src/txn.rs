//! Transactions: reads and writes of several keys that are atomic, in memory and across a crash.
//!
//! A transaction locks the shards of its keys from [`Engine::transaction`] to its end and stages its writes.
//! [`Txn::commit`] appends them as a group of records, or as a transaction of the heap if they do not fit into a group.
//! Every command that reads before it writes is a transaction of one key.

pub(crate) mod patch;

use crate::engine::{Engine, Found, tombstone};
use crate::error::KvError;
use crate::key::OrderedKey;
use crate::read::{Seen, verify};
use crate::shard::{ByHash, Lookup, Shard};
use landfall_heap::{
    Crcs, Entry, Extents, Gated, Heap, Item, ItemPart, KeptCrcs, Kind, Patch, PieceList, RECORD_SIZE, SlotId,
    Source, Ticket, Tickets, Writer, slice,
};
use landfall_media::Extent;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Most keys that one transaction may write. They are staged in DRAM.
pub const TXN_KEYS_MAX: usize = 2 << 20;
/// Number of staged keys up to which a linear search is the fastest.
const LINEAR_MAX: usize = 16;

/// A key that a transaction may touch.
#[derive(Clone, Copy, Debug)]
pub struct TxnKey<'a> {
    /// Database.
    pub space: u8,
    /// The key.
    pub key: &'a [u8],
}

/// A value that consists of extents of a stored value and of extents that have landed.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// The extents of the new value, in order.
    pub all: &'a [Extent],
    /// Those of `all`, in any order, that are not the stored value's and have landed for this write.
    pub landed: &'a [Extent],
    /// The stored value, as this transaction read it.
    pub of: &'a Item<'a>,
}

/// A staged value.
#[derive(Debug)]
enum Staged {
    Bytes(Vec<u8>),
    /// A value in frames, which the transaction holds.
    Landed {
        extents: Extents,
        crc: Option<KeptCrcs>,
        stored: Option<Stored>,
    },
    /// A stored value with changed parts. The transaction holds the frames that have landed for it.
    Patched(Box<Patch>),
    Deleted,
}

impl Staged {
    /// Releases the frames of the value.
    fn release(&self, heap: &Heap) {
        let held = match self {
            Self::Landed { extents, .. } => extents,
            Self::Patched(patch) => patch.landed(),
            Self::Bytes(_) | Self::Deleted => return,
        };
        held.iter().for_each(|extent| heap.runs().release(*extent));
    }
}

/// How a staged value depends on the stored value that it is made of.
#[derive(Debug)]
struct Stored {
    /// The extents of the new value that no record refers to yet.
    landed: Extents,
    rest: Rest,
    /// The stored value's list of pieces, if the value is taken unchanged.
    list: Option<PieceList>,
    /// True if other keys may keep their references to the rest.
    shared: bool,
}

/// Whether the stored rest of a staged value is durable.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Durable,
    Pending(Ticket),
    /// The transaction itself has staged the rest.
    Unknown,
}

impl Rest {
    /// True if the rest is durable once the next batch of `writer` is. Another writer's batch may become durable later.
    fn is_durable_with(self, writer: u8) -> bool {
        match self {
            Self::Durable => true,
            Self::Pending(ticket) => ticket.writer() == writer,
            Self::Unknown => false,
        }
    }
}

#[derive(Debug)]
struct StagedKey {
    space: u8,
    hash: u64,
    key: Vec<u8>,
    key_at: Option<Extent>,
    value: Staged,
    expiry_ms: u64,
}

/// A transaction over a fixed set of shards.
#[derive(Debug)]
pub struct Txn<'e> {
    pub(crate) engine: &'e Engine,
    guards: SmallVec<[(usize, MutexGuard<'e, Shard>); 4]>,
    staged: Vec<StagedKey>,
    by_hash: ByHash<u32>,
    now_ms: u64,
}

impl Engine {
    /// Begins a transaction that may touch `keys`. Blocks while other commands lock the shards of these keys.
    pub fn transaction<'k>(&self, keys: impl IntoIterator<Item = TxnKey<'k>>, now_ms: u64) -> Txn<'_> {
        let mut indices: SmallVec<[usize; 8]> =
            keys.into_iter().map(|key| self.shard_index(self.heap.hash(key.space, key.key))).collect();
        indices.sort_unstable();
        indices.dedup();
        self.lock_indices(&indices, now_ms)
    }

    /// Begins a transaction that may touch any key.
    pub fn transaction_all(&self, now_ms: u64) -> Txn<'_> {
        let indices: SmallVec<[usize; 64]> = (0..self.shards.len()).collect();
        self.lock_indices(&indices, now_ms)
    }

    fn lock_indices(&self, indices: &[usize], now_ms: u64) -> Txn<'_> {
        let guards = indices.iter().map(|index| (*index, self.shards[*index].lock())).collect();
        Txn { engine: self, guards, staged: Vec::new(), by_hash: ByHash::default(), now_ms }
    }
}

impl<'e> Txn<'e> {
    /// The heap that stores the records.
    pub fn heap(&self) -> &'e Heap {
        &self.engine.heap
    }

    /// The transaction's time, Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A key's value, checked against its checksum. The transaction's own writes come first.
    ///
    /// # Errors
    /// [`KvError::Damaged`]; [`KvError::NotDurable`].
    pub fn read(&self, space: u8, key: &[u8]) -> Result<Gated<Option<Item<'e>>>, KvError> {
        let seen = self.seen(space, key)?;
        seen.item.as_ref().map_or(Ok(()), verify)?;
        Ok(seen.gated())
    }

    /// As [`Self::read`], but the value is not checked against its checksum. For its length, version and expiry.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn peek(&self, space: u8, key: &[u8]) -> Result<Gated<Option<Item<'e>>>, KvError> {
        Ok(self.seen(space, key)?.gated())
    }

    /// As [`Engine::get_part`]. The transaction's own writes come first.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_part(
        &self,
        space: u8,
        key: &[u8],
        part: impl FnOnce(usize) -> Range<usize>,
    ) -> Result<Gated<Option<ItemPart<'e>>>, KvError> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        let seen = match self.find_staged(&lookup) {
            Some(staged) => {
                let item = self.staged_item(staged)?;
                let item =
                    item.map(|item| (part(item.len), item)).map(|(range, item)| ItemPart::of(item, range));
                Seen { item, pending: None }
            }
            None => {
                let shard = self.shard(lookup.hash);
                self.engine.read_with(shard, &lookup, self.now_ms, |hit| self.engine.part_of(hit, part))?
            }
        };
        seen.item.as_ref().map_or(Ok(()), |part| verify(part.item()))?;
        Ok(seen.gated())
    }

    /// A key's value, unchecked. A staged value has no ticket: it becomes durable with the transaction.
    pub(crate) fn seen(&self, space: u8, key: &[u8]) -> Result<Seen<Item<'e>>, KvError> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        match self.find_staged(&lookup) {
            Some(staged) => Ok(Seen { item: self.staged_item(staged)?, pending: None }),
            None => self.engine.read_in(self.shard(lookup.hash), &lookup, self.now_ms),
        }
    }

    /// Tickets of keys added or removed in the transaction's shards that are not durable yet.
    pub(crate) fn pending_changes(&self) -> Tickets {
        let mut changes = Tickets::default();
        self.guards.iter().for_each(|(_, shard)| changes.add_all(&shard.pending_changes(&self.engine.heap)));
        changes
    }

    /// Number of keys in a database, the transaction's own writes included. The transaction must have begun with
    /// [`Engine::transaction_all`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn count(&self, space: u8) -> Result<Gated<u64>, KvError> {
        let mut count: u64 = self.guards.iter().map(|(_, shard)| shard.count_of(space)).sum();
        for staged in self.staged.iter().filter(|staged| staged.space == space) {
            let lookup = Lookup { space, hash: staged.hash, key: &staged.key };
            let was = self.shard(staged.hash).find(&self.engine.heap, &lookup)?.is_some();
            let is = !matches!(staged.value, Staged::Deleted);
            count = count.saturating_add_signed(i64::from(is) - i64::from(was));
        }
        Ok(Gated::new(count, self.pending_changes()))
    }

    /// Number of keys staged so far.
    pub fn staged_len(&self) -> usize {
        self.staged.len()
    }

    /// The staged keys of a database, deleted ones included.
    pub(crate) fn staged_keys(&self, space: u8) -> impl Iterator<Item = OrderedKey> + '_ {
        let here = self.staged.iter().filter(move |staged| staged.space == space);
        here.map(move |staged| OrderedKey::new(space, &staged.key))
    }

    pub(crate) fn parts(&self) -> (&'e Engine, Vec<&Shard>, u64) {
        (self.engine, self.guards.iter().map(|(_, shard)| &**shard).collect(), self.now_ms)
    }

    fn staged_item(&self, staged: &StagedKey) -> Result<Option<Item<'e>>, KvError> {
        let heap = &*self.engine.heap;
        match &staged.value {
            Staged::Deleted => Ok(None),
            Staged::Bytes(bytes) => Ok(Some(staged_bytes(heap, bytes, staged.expiry_ms))),
            Staged::Patched(patch) => Ok(Some(staged_bytes(heap, &patch.to_vec(heap)?, staged.expiry_ms))),
            Staged::Landed { extents, crc, stored } => {
                let mut item = staged_extents(heap, extents, crc.as_ref(), staged.expiry_ms)?;
                item.shared = stored.as_ref().is_some_and(|stored| stored.shared);
                item.unrecorded = stored.as_ref().map_or(extents, |stored| &stored.landed)[..].into();
                Ok(Some(item))
            }
        }
    }

    /// The version of a key, for `WATCH` and conditions. It changes with every write and delete of the key. The version
    /// of an absent key may change without one.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn version(&self, space: u8, key: &[u8]) -> Result<Gated<u64>, KvError> {
        let heap = &*self.engine.heap;
        let lookup = Lookup::new(heap, space, key);
        let shard = self.shard(lookup.hash);
        let seen = self.engine.read_in(shard, &lookup, self.now_ms)?;
        if let Some(item) = &seen.item {
            return Ok(Gated::new(item.seq, seen.pending));
        }
        let flushed = self.engine.flush_seq.load(Ordering::Acquire);
        let absent = flushed.max(shard.dropped_seq);
        let version = shard.find_tomb(heap, &lookup)?.map_or(absent, |tomb| tomb.view.seq());
        Ok(Gated::new(version, seen.pending))
    }

    /// Checks that every other writer's change of a key is durable, so that a write may depend on it.
    ///
    /// # Errors
    /// [`KvError::Wait`] if a change is not durable yet.
    pub fn check_writable(&self, writer: &Writer, space: u8, key: &[u8]) -> Result<(), KvError> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        self.engine.find_for_write(self.shard(lookup.hash), writer, &lookup).map(drop)
    }

    /// Stages a value that is in no frame.
    pub fn put_bytes(&mut self, space: u8, key: &[u8], bytes: Vec<u8>, expiry_ms: u64) {
        self.stage(space, key, None, Staged::Bytes(bytes), expiry_ms);
    }

    /// Stages a value in frames. The transaction takes a reference to them.
    pub fn put_landed(
        &mut self,
        space: u8,
        key: &[u8],
        key_at: Option<Extent>,
        extents: &[Extent],
        crc: Option<Crcs<'_>>,
        expiry_ms: u64,
    ) {
        self.hold_all(extents);
        let crc = crc.map(Crcs::to_kept);
        let value = Staged::Landed { extents: extents.into(), crc, stored: None };
        self.stage(space, key, key_at, value, expiry_ms);
    }

    /// Stages a value that consists of extents of a stored value and of extents that have landed. The stored extents
    /// are not made durable again.
    pub fn put_pieces(
        &mut self,
        space: u8,
        key: &[u8],
        pieces: Pieces<'_>,
        crc: Option<Crcs<'_>>,
        expiry_ms: u64,
    ) {
        let stored = self.stored(&pieces, pieces.of.shared);
        self.put_stored(space, key, pieces.all, stored, crc, expiry_ms);
    }

    fn put_stored(
        &mut self,
        space: u8,
        key: &[u8],
        extents: &[Extent],
        stored: Stored,
        crc: Option<Crcs<'_>>,
        expiry_ms: u64,
    ) {
        self.hold_all(extents);
        let crc = crc.map(Crcs::to_kept);
        let value = Staged::Landed { extents: extents.into(), crc, stored: Some(stored) };
        self.stage(space, key, None, value, expiry_ms);
    }

    /// How the new value depends on the stored one. A value that this transaction has staged is not known to be
    /// durable.
    fn stored(&self, pieces: &Pieces<'_>, shared: bool) -> Stored {
        let rest = match pieces.of.slot {
            SlotId::NONE => Rest::Unknown,
            slot => self.engine.heap.pending(slot).map_or(Rest::Durable, Rest::Pending),
        };
        let mut landed = Extents::from_slice(pieces.landed);
        landed.extend(within(pieces.all, &pieces.of.unrecorded));
        let list = pieces.of.list().filter(|_| pieces.all == pieces.of.extents());
        Stored { landed, rest, list, shared }
    }

    fn hold_all(&self, extents: &[Extent]) {
        extents.iter().for_each(|extent| self.engine.heap.runs().hold(*extent));
    }

    /// Stages a copy of another key's value, by reference: both keys then refer to the same bytes. The item need not
    /// have been checked. The value is read only if its bytes are copied or it has no checksum yet. Otherwise the copy
    /// keeps the checksum, so that reads of the copy detect damage, too.
    ///
    /// # Errors
    /// [`KvError::Damaged`]; errors of the medium.
    pub fn copy_item(
        &mut self,
        space: u8,
        key: &[u8],
        item: &Item<'_>,
        expiry_ms: u64,
    ) -> Result<(), KvError> {
        let runs = self.engine.heap.runs();
        // The transaction may replace a value that it has staged before a record refers to the bytes.
        let can_share = item.inline().is_none()
            && item.unrecorded.is_empty()
            && item
                .extents()
                .iter()
                .copied()
                .chain(item.list().map(|list| list.at))
                .all(|at| runs.may_share(at));
        if !can_share || item.check.crc().is_none() {
            verify(item)?;
        }
        if can_share {
            let stored = self.stored(&Pieces { all: item.extents(), landed: &[], of: item }, true);
            self.put_stored(space, key, item.extents(), stored, item.crcs(), expiry_ms);
        } else {
            self.put_bytes(space, key, item.to_vec()?, expiry_ms);
        }
        Ok(())
    }

    /// Stages a value that consists of parts of values of another system, by reference. The caller keeps their records current
    /// until the transaction has ended. `pending` is the ticket of the batch that makes them durable; `None`: they are. Parts
    /// in records are copied.
    ///
    /// # Errors
    /// Those of [`Writer::append`], where a part is copied.
    pub fn put_parts(
        &mut self,
        writer: &mut Writer,
        space: u8,
        key: &[u8],
        parts: &[&ItemPart<'_>],
        pending: Option<Ticket>,
    ) -> Result<(), KvError> {
        let heap = &*self.engine.heap;
        let stored: Vec<Extents> = parts.iter().map(|part| part.extents()).collect();
        let can_share = stored.iter().flatten().all(|at| heap.runs().may_share(*at));
        if !can_share || stored.iter().all(|extents| extents.is_empty()) {
            let mut bytes = Vec::new();
            for part in parts {
                bytes.extend_from_slice(&part.to_vec(heap)?);
            }
            self.put_bytes(space, key, bytes, 0);
            return Ok(());
        }
        let inline = |part: &&ItemPart<'_>| part.inline().unwrap_or_default().to_vec();
        let copied: Vec<u8> = parts.iter().flat_map(inline).collect();
        let landed = writer.place_held(&copied)?;
        let (mut all, mut at) = (Extents::new(), 0);
        for (part, extents) in parts.iter().zip(stored) {
            let len = part.inline().map_or(0, <[u8]>::len);
            all.extend(slice(&landed, at..at + len));
            all.extend(extents);
            at += len;
        }
        let rest = pending.map_or(Rest::Durable, Rest::Pending);
        let rest = Stored { landed: landed.clone(), rest, list: None, shared: true };
        self.put_stored(space, key, &all, rest, None, 0);
        landed.iter().for_each(|extent| heap.runs().release(*extent));
        Ok(())
    }

    /// Stages a key's value by reference, with another expiry or under the key's new name.
    pub fn put_item(&mut self, space: u8, key: &[u8], item: &Item<'_>, expiry_ms: u64) {
        match item.inline() {
            Some(bytes) => self.put_bytes(space, key, bytes.to_vec(), expiry_ms),
            None => {
                let pieces = Pieces { all: item.extents(), landed: &[], of: item };
                self.put_pieces(space, key, pieces, item.crcs(), expiry_ms);
            }
        }
    }

    /// Stages a delete; true if the key was present.
    ///
    /// # Errors
    /// As [`Self::read`], but a damaged key counts as present: a delete clears the damage.
    pub fn delete(&mut self, space: u8, key: &[u8]) -> Result<Gated<bool>, KvError> {
        let (there, pending) = match self.seen(space, key) {
            Ok(seen) => (seen.item.is_some(), seen.pending),
            Err(KvError::Damaged { .. }) => (true, None),
            Err(error) => return Err(error),
        };
        if there {
            self.stage(space, key, None, Staged::Deleted, 0);
        }
        Ok(Gated::new(there, pending))
    }

    /// True if nothing is staged.
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    fn stage(&mut self, space: u8, key: &[u8], key_at: Option<Extent>, value: Staged, expiry_ms: u64) {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        if let Some(index) = self.staged_index(&lookup) {
            self.release(index);
            let staged = &mut self.staged[index];
            (staged.value, staged.expiry_ms, staged.key_at) = (value, expiry_ms, key_at);
            return;
        }
        self.staged.push(StagedKey { space, hash: lookup.hash, key: key.to_vec(), key_at, value, expiry_ms });
        if self.staged.len() > LINEAR_MAX {
            let known = self.by_hash.len();
            for (index, staged) in self.staged.iter().enumerate().skip(known) {
                self.by_hash.entry(staged.hash).or_insert(index as u32);
            }
        }
    }

    fn release(&self, index: usize) {
        self.staged[index].value.release(&self.engine.heap);
    }

    fn find_staged(&self, lookup: &Lookup<'_>) -> Option<&StagedKey> {
        self.staged_index(lookup).map(|index| &self.staged[index])
    }

    fn staged_index(&self, lookup: &Lookup<'_>) -> Option<usize> {
        let same = |staged: &StagedKey| {
            staged.hash == lookup.hash && staged.space == lookup.space && staged.key == lookup.key
        };
        if self.staged.len() <= LINEAR_MAX {
            return self.staged.iter().position(same);
        }
        // If two keys have one 64-bit hash, the map holds the first, and a search finds the other.
        let index = *self.by_hash.get(&lookup.hash)? as usize;
        if same(&self.staged[index]) { Some(index) } else { self.staged.iter().position(same) }
    }

    pub(crate) fn shard(&self, hash: u64) -> &Shard {
        &self.guards[self.guard_index(hash)].1
    }

    fn guard_index(&self, hash: u64) -> usize {
        let wanted = self.engine.shard_index(hash);
        self.guards
            .binary_search_by_key(&wanted, |(index, _)| *index)
            .expect("a transaction touches only keys that it was begun with")
    }

    /// Appends the staged writes atomically and makes them current. Returns the slot of the last record, or `None` if
    /// there was nothing to write. Writes that exceed a group are durable when this returns.
    ///
    /// # Errors
    /// [`KvError::Wait`]; the region is full or closed, or a write is too large. After an error nothing has changed.
    pub fn commit(mut self, writer: &mut Writer, arrival_ns: u64) -> Result<Gated<Option<SlotId>>, KvError> {
        let engine = self.engine;
        let staged = std::mem::take(&mut self.staged);
        let committed = self.append(&staged, writer, arrival_ns);
        staged.iter().for_each(|key| key.value.release(&engine.heap));
        committed
    }

    fn append(
        &mut self,
        staged: &[StagedKey],
        writer: &mut Writer,
        arrival_ns: u64,
    ) -> Result<Gated<Option<SlotId>>, KvError> {
        let engine = self.engine;
        let mut plan: SmallVec<[Planned<'_>; 4]> = SmallVec::new();
        for key in staged {
            let lookup = Lookup { space: key.space, hash: key.hash, key: &key.key };
            let guard = self.guard_index(key.hash);
            let shard = &mut *self.guards[guard].1;
            let found = engine.find_for_write(shard, writer, &lookup)?;
            let tomb =
                if found.current.is_none() { engine.tomb_for_write(shard, writer, &lookup)? } else { None };
            if matches!(key.value, Staged::Deleted) && found.is_nothing() {
                continue;
            }
            plan.push(Planned { key, lookup, guard, found, tomb });
        }
        if plan.is_empty() {
            return Ok(Gated::durable(None));
        }
        if plan.len() > engine.group_max.load(Ordering::Relaxed) {
            return self.append_transaction(&plan, writer, arrival_ns);
        }
        let entries: SmallVec<[Entry<'_>; 4]> =
            plan.iter().map(|p| p.entry(writer.id(), arrival_ns)).collect();
        let slots = writer.append_group(&entries)?;
        for (planned, slot) in plan.iter().zip(&slots) {
            planned.install(engine, &mut self.guards[planned.guard].1, writer, *slot);
        }
        Ok(writer.gate(slots.last().copied()))
    }

    /// Appends more records than a group holds. The index refers to them only after the commit record.
    fn append_transaction(
        &mut self,
        plan: &[Planned<'_>],
        writer: &mut Writer,
        arrival_ns: u64,
    ) -> Result<Gated<Option<SlotId>>, KvError> {
        let id = writer.id();
        let entries = || plan.iter().map(|planned| planned.entry(id, arrival_ns));
        // The reserve for deletes holds groups, and not any number of tombstones.
        let bytes = entries().map(|entry| RECORD_SIZE + entry.placed_bytes()).sum();
        let mut transaction = writer.begin_transaction(bytes)?;
        writer.take_room_for(&mut transaction, entries())?;
        for planned in plan {
            writer.append_to(&mut transaction, &planned.entry(writer.id(), arrival_ns))?;
        }
        let slots = writer.commit(transaction)?;
        for (planned, slot) in plan.iter().zip(&slots) {
            planned.install(self.engine, &mut self.guards[planned.guard].1, writer, *slot);
        }
        Ok(Gated::durable(slots.last().copied()))
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        (0..self.staged.len()).for_each(|index| self.release(index));
    }
}

/// A staged key and the version that it replaces.
struct Planned<'a> {
    key: &'a StagedKey,
    lookup: Lookup<'a>,
    guard: usize,
    found: Found<'a>,
    tomb: Option<SlotId>,
}

impl<'a> Planned<'a> {
    fn entry(&self, writer: u8, arrival_ns: u64) -> Entry<'a> {
        let value = match &self.key.value {
            Staged::Deleted => return tombstone(&self.lookup, arrival_ns),
            Staged::Bytes(bytes) => Source::Bytes(bytes),
            Staged::Patched(patch) => Source::Patched(patch),
            Staged::Landed { extents, crc, stored: Some(Stored { landed, rest, list, shared }) } => {
                let durable = rest.is_durable_with(writer);
                let crc = crc.as_ref().map(KeptCrcs::get);
                Source::Stored { extents, landed, durable, shared: *shared, crc, list: *list }
            }
            Staged::Landed { extents, crc, stored: None } => {
                Source::Landed { extents, crc: crc.as_ref().map(KeptCrcs::get) }
            }
        };
        Entry {
            kind: Kind::Put,
            space: self.key.space,
            hash: self.key.hash,
            key: &self.key.key,
            key_at: self.key.key_at,
            value,
            arrival_ns,
            expiry_ms: self.key.expiry_ms,
            aux: 0,
        }
    }

    fn install(&self, engine: &Engine, shard: &mut Shard, writer: &mut Writer, slot: SlotId) {
        if let Staged::Patched(patch) = &self.key.value {
            return engine.install_patched(shard, writer, &self.lookup, slot, self.key.expiry_ms, patch);
        }
        if matches!(self.key.value, Staged::Deleted) {
            return engine.install_tombstone(shard, writer, &self.lookup, slot, self.found);
        }
        engine.install(shard, writer, &self.lookup, slot, self.key.expiry_ms, self.found, self.tomb);
    }
}

/// The `pieces` that lie within one of `extents`.
fn within(pieces: &[Extent], extents: &[Extent]) -> Vec<Extent> {
    if extents.is_empty() {
        return Vec::new();
    }
    let mut extents = extents.to_vec();
    extents.sort_unstable_by_key(|extent| extent.off);
    let lies_within = |piece: &Extent| {
        let after = extents.partition_point(|extent| extent.off <= piece.off);
        after > 0 && piece.end() <= extents[after - 1].end()
    };
    pieces.iter().copied().filter(lies_within).collect()
}

/// An item for the bytes that a transaction has staged.
fn staged_bytes<'h>(heap: &'h Heap, bytes: &[u8], expiry_ms: u64) -> Item<'h> {
    let crc = Crcs::Whole(landfall_heap::crc::of(bytes));
    Item::from_parts(heap, expiry_ms, bytes.len(), crc, Some(bytes), &[])
}

fn staged_extents<'h>(
    heap: &'h Heap,
    extents: &[Extent],
    crcs: Option<&KeptCrcs>,
    expiry_ms: u64,
) -> Result<Item<'h>, KvError> {
    let crcs = crcs.map_or_else(|| heap.crcs_of(extents), |known| Ok(known.clone()))?;
    extents.iter().for_each(|extent| heap.runs().hold(*extent));
    let len = extents.iter().map(|extent| extent.len() as usize).sum();
    Ok(Item::from_parts(heap, expiry_ms, len, crcs.get(), None, extents))
}
