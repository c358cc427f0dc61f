//! Transactions: several keys read and written as one, atomically in memory and across a crash.
//!
//! A transaction holds the locks of its keys' shards from [`Engine::transaction`] to its end, stages its
//! writes, and appends them as one group at [`Txn::commit`]. Every command that reads before it writes
//! is a transaction of one key.

use crate::engine::{Engine, Found, tombstone};
use crate::error::KvError;
use crate::shard::{ByHash, Lookup, OrderedKey, Shard, ordered_key};
use landfall_heap::{Entry, Extents, Heap, Item, Kind, SlotId, Source, Writer};
use landfall_media::Extent;
use parking_lot::MutexGuard;
use smallvec::SmallVec;

/// Staged keys up to which a linear search is the fastest.
const LINEAR_MAX: usize = 16;

/// A key that a transaction may touch.
#[derive(Clone, Copy, Debug)]
pub struct TxnKey<'a> {
    /// Database.
    pub space: u8,
    /// The key.
    pub key: &'a [u8],
}

/// A staged value.
#[derive(Debug)]
enum Staged {
    Bytes(Vec<u8>),
    /// In frames; the transaction holds them.
    Landed {
        extents: Extents,
        crc: Option<u32>,
    },
    Deleted,
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
    /// Begins a transaction that may touch `keys`. Blocks while other commands hold their shards.
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
    /// The time the transaction goes by, Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A key's value as the transaction sees it: its own writes first. For a reply.
    ///
    /// # Errors
    /// [`KvError::Damaged`]; [`KvError::NotDurable`].
    pub fn read(&self, space: u8, key: &[u8]) -> Result<Option<Item<'e>>, KvError> {
        let Some(item) = self.peek(space, key)? else { return Ok(None) };
        if !item.verify()? {
            return Err(KvError::Damaged { what: landfall_heap::Damage::ValueChecksum });
        }
        Ok(Some(item))
    }

    /// The same, unchecked: for length, version and expiry.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn peek(&self, space: u8, key: &[u8]) -> Result<Option<Item<'e>>, KvError> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        if let Some(staged) = self.find_staged(&lookup) {
            return self.staged_item(staged);
        }
        Ok(self.engine.look_in(self.shard(lookup.hash), &lookup, self.now_ms)?.item())
    }

    /// The record that must be durable before anything that was read of a key, its absence included, is
    /// shown. What the transaction itself has staged does not count.
    ///
    /// # Errors
    /// As [`Self::read`], but a damaged value counts as nothing to wait for.
    pub fn seen_slot(&self, space: u8, key: &[u8]) -> Result<SlotId, KvError> {
        let lookup = Lookup::new(&self.engine.heap, space, key);
        match self.engine.look_in(self.shard(lookup.hash), &lookup, self.now_ms) {
            Ok(seen) => Ok(seen.slot()),
            Err(KvError::Damaged { .. }) => Ok(SlotId::NONE),
            Err(error) => Err(error),
        }
    }

    /// Records, not durable yet, that added or removed keys in the transaction's shards.
    pub fn pending_changes(&self, mut visit: impl FnMut(SlotId)) {
        let heap = &self.engine.heap;
        self.guards.iter().for_each(|(_, shard)| shard.pending_changes(heap).for_each(&mut visit));
    }

    /// Keys in a database, the transaction's own writes counted. It must have been begun with every key.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn len(&self, space: u8) -> Result<u64, KvError> {
        let held = |shard: &Shard| shard.keys.get(usize::from(space)).copied().unwrap_or(0);
        let mut count: u64 = self.guards.iter().map(|(_, shard)| held(shard)).sum();
        for staged in self.staged.iter().filter(|staged| staged.space == space) {
            let lookup = Lookup { space, hash: staged.hash, key: &staged.key };
            let was = self.shard(staged.hash).find(&self.engine.heap, &lookup)?.is_some();
            let is = !matches!(staged.value, Staged::Deleted);
            count = count.saturating_add_signed(i64::from(is) - i64::from(was));
        }
        Ok(count)
    }

    /// Keys staged so far: a group holds at most [`landfall_heap::layout::GROUP_RECORDS_MAX`].
    pub fn staged_len(&self) -> usize {
        self.staged.len()
    }

    /// What the transaction itself has staged of a database, deletions included.
    pub(crate) fn staged_keys(&self, space: u8) -> impl Iterator<Item = OrderedKey> + '_ {
        let here = self.staged.iter().filter(move |staged| staged.space == space);
        here.map(move |staged| ordered_key(space, &staged.key))
    }

    pub(crate) fn parts(&self) -> (&'e Engine, Vec<&Shard>, u64) {
        (self.engine, self.guards.iter().map(|(_, shard)| &**shard).collect(), self.now_ms)
    }

    fn staged_item(&self, staged: &StagedKey) -> Result<Option<Item<'e>>, KvError> {
        let heap = &*self.engine.heap;
        match &staged.value {
            Staged::Deleted => Ok(None),
            Staged::Bytes(bytes) => Ok(Some(staged_bytes(heap, bytes, staged.expiry_ms))),
            Staged::Landed { extents, .. } => Ok(Some(staged_extents(heap, extents, staged.expiry_ms)?)),
        }
    }

    /// The version of a key, for `WATCH` and conditions: changes with every write, also with a delete. That of
    /// an absent key may change without one.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn version(&self, space: u8, key: &[u8]) -> Result<u64, KvError> {
        let heap = &*self.engine.heap;
        let lookup = Lookup::new(heap, space, key);
        let shard = self.shard(lookup.hash);
        if let Some(hit) = shard.find(heap, &lookup)?.filter(|hit| !hit.is_expired(self.now_ms)) {
            return Ok(hit.view.seq());
        }
        let flushed = self.engine.flush_seq.load(std::sync::atomic::Ordering::Acquire);
        let absent = flushed.max(shard.dropped_seq);
        Ok(shard.find_tomb(heap, &lookup)?.map_or(absent, |tomb| tomb.view.seq()))
    }

    /// Waits, by an error, until what other writers have done to a key is durable: before building on it.
    ///
    /// # Errors
    /// [`KvError::Wait`].
    pub fn check_writable(&self, writer: &Writer, space: u8, key: &[u8]) -> Result<(), KvError> {
        let heap = &*self.engine.heap;
        let lookup = Lookup::new(heap, space, key);
        let shard = self.shard(lookup.hash);
        let hit = match shard.find(heap, &lookup) {
            Err(KvError::Damaged { .. }) => None,
            found => found?,
        };
        let slot = match hit {
            Some(hit) => Some(hit.slot),
            None => shard.find_tomb(heap, &lookup)?.map(|tomb| tomb.slot),
        };
        match slot.filter(|slot| heap.is_pending_elsewhere(*slot, writer.id())) {
            Some(slot) => Err(KvError::Wait(Some(slot))),
            None => Ok(()),
        }
    }

    /// Stages a value that lies in no frame.
    pub fn put_bytes(&mut self, space: u8, key: &[u8], bytes: Vec<u8>, expiry_ms: u64) {
        self.stage(space, key, None, Staged::Bytes(bytes), expiry_ms);
    }

    /// Stages a value that lies in frames. The transaction takes its own hold on them.
    pub fn put_landed(
        &mut self,
        space: u8,
        key: &[u8],
        key_at: Option<Extent>,
        extents: &[Extent],
        crc: Option<u32>,
        expiry_ms: u64,
    ) {
        extents.iter().for_each(|extent| self.engine.heap.runs().hold(*extent));
        let value = Staged::Landed { extents: extents.into(), crc };
        self.stage(space, key, key_at, value, expiry_ms);
    }

    /// Stages the same value with another expiry, by reference.
    pub fn put_item(&mut self, space: u8, key: &[u8], item: &Item<'_>, expiry_ms: u64) {
        match item.inline() {
            Some(bytes) => self.put_bytes(space, key, bytes.to_vec(), expiry_ms),
            None => self.put_landed(space, key, None, item.extents(), item.check.crc(), expiry_ms),
        }
    }

    /// Stages a deletion; true if the key was there.
    ///
    /// # Errors
    /// As [`Self::read`], but a damaged key counts as there: deleting it heals it.
    pub fn delete(&mut self, space: u8, key: &[u8]) -> Result<bool, KvError> {
        let there = match self.peek(space, key) {
            Ok(item) => item.is_some(),
            Err(KvError::Damaged { .. }) => true,
            Err(error) => return Err(error),
        };
        if there {
            self.stage(space, key, None, Staged::Deleted, 0);
        }
        Ok(there)
    }

    /// True when nothing was staged.
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
        if let Staged::Landed { extents, .. } = &self.staged[index].value {
            extents.iter().for_each(|extent| self.engine.heap.runs().release(*extent));
        }
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
        // Two keys with one 64-bit hash: the map knows the first, a search finds the other.
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

    /// Appends what was staged as one group and makes it current. Acknowledge once the slot is durable;
    /// `None` when there was nothing to write.
    ///
    /// # Errors
    /// [`KvError::Wait`], full, too large, closed: nothing was changed then.
    pub fn commit(mut self, writer: &mut Writer, arrival_ns: u64) -> Result<Option<SlotId>, KvError> {
        let engine = self.engine;
        let staged = std::mem::take(&mut self.staged);
        let committed = self.append(&staged, writer, arrival_ns);
        for value in staged.iter().map(|key| &key.value) {
            if let Staged::Landed { extents, .. } = value {
                extents.iter().for_each(|extent| engine.heap.runs().release(*extent));
            }
        }
        committed
    }

    fn append(
        &mut self,
        staged: &[StagedKey],
        writer: &mut Writer,
        arrival_ns: u64,
    ) -> Result<Option<SlotId>, KvError> {
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
            return Ok(None);
        }
        let entries: SmallVec<[Entry<'_>; 4]> = plan.iter().map(|p| p.entry(arrival_ns)).collect();
        let slots = writer.append_group(&entries)?;
        for (planned, slot) in plan.iter().zip(&slots) {
            planned.install(engine, &mut self.guards[planned.guard].1, writer, *slot);
        }
        Ok(slots.last().copied())
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        (0..self.staged.len()).for_each(|index| self.release(index));
    }
}

/// A staged key with what it replaces.
struct Planned<'a> {
    key: &'a StagedKey,
    lookup: Lookup<'a>,
    guard: usize,
    found: Found<'a>,
    tomb: Option<SlotId>,
}

impl<'a> Planned<'a> {
    fn entry(&self, arrival_ns: u64) -> Entry<'a> {
        let value = match &self.key.value {
            Staged::Deleted => return tombstone(&self.lookup, arrival_ns),
            Staged::Bytes(bytes) => Source::Bytes(bytes),
            Staged::Landed { extents, crc } => Source::Landed { extents, crc: *crc },
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
        if matches!(self.key.value, Staged::Deleted) {
            return engine.bury(shard, writer, &self.lookup, slot, self.found);
        }
        engine.install(shard, writer, &self.lookup, slot, self.key.expiry_ms, self.found, self.tomb);
    }
}

/// A value staged by a transaction, for its own reads.
fn staged_bytes<'h>(heap: &'h Heap, bytes: &[u8], expiry_ms: u64) -> Item<'h> {
    Item::from_parts(heap, expiry_ms, bytes.len(), landfall_heap::crc::of(bytes), Some(bytes), &[])
}

fn staged_extents<'h>(heap: &'h Heap, extents: &[Extent], expiry_ms: u64) -> Result<Item<'h>, KvError> {
    let crc = heap.crc_of(extents)?;
    extents.iter().for_each(|extent| heap.runs().hold(*extent));
    let len = extents.iter().map(|extent| extent.len() as usize).sum();
    Ok(Item::from_parts(heap, expiry_ms, len, crc, None, extents))
}
