//! One shard of the index: point lookups by hash, ordered keys, tombstones, expiry, stale counts.
//!
//! `docs/results/kv/index-structures.md` says why there are two structures; `benches/index.rs` measures them.

use crate::error::KvError;
use crate::key::OrderedKey;
use crate::table::{COUNT_MAX, Entry, Table, tag};
use hashbrown::HashMap;
use landfall_heap::{
    Heap, HeapError, InlineCounts, KeyPlace, Kind, NoInlineCounts, RecordView, SlotId, StaleCounts, Ticket,
    Tickets, Writer,
};
use std::collections::BTreeSet;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of databases, numbered as in Redis. Higher spaces are for composite keys of later types.
pub const DATABASES: usize = 16;

/// A hasher that returns the key hash itself, which is uniform already.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;

/// The key of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup<'a> {
    pub(crate) space: u8,
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(heap: &Heap, space: u8, key: &'a [u8]) -> Self {
        Self { space, hash: heap.hash(space, key), key }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit<'h> {
    pub(crate) slot: SlotId,
    pub(crate) view: RecordView<'h>,
}

impl Hit<'_> {
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        let expiry = self.view.expiry_ms();
        expiry != 0 && expiry <= now_ms
    }
}

/// The expiry of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry {
    /// When the key expires, Unix milliseconds.
    pub(crate) due_ms: u64,
    pub(crate) hash: u64,
    pub(crate) space: u8,
}

/// One shard of the index. The engine locks it.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) table: Table,
    /// Current records that are not versions of keys: tombstones and flush marks.
    pub(crate) tombs: Table,
    pub(crate) order: BTreeSet<OrderedKey>,
    /// The keys that expire, in order of expiry.
    expiry: BTreeSet<Expiry>,
    /// Number of keys that expire, by database.
    pub(crate) expiring: [u64; DATABASES],
    /// Records on the medium that are not current, by tag: those that the entries' own counts have no room for.
    pub(crate) stale: StaleCounts,
    /// Hashes of keys whose records cannot be read.
    pub(crate) damaged: ByHash<landfall_heap::Damage>,
    /// (key hash, slot) of records that cannot be read. A new version of the key supersedes them.
    pub(crate) unreadable: Vec<(u64, SlotId)>,
    /// Number of keys, by database.
    pub(crate) keys: [u64; DATABASES],
    /// Tickets of the batches that added or removed keys. Counts and pages depend on them.
    changed: Tickets,
    /// The ticket of the last flush.
    flushed: Option<Ticket>,
    /// The highest version of a dropped tombstone. An absent key's version is not lower, so that `WATCH` notices every
    /// change.
    pub(crate) dropped_seq: u64,
}

impl Shard {
    /// An empty shard with room for some keys.
    pub(crate) fn with_room(keys: usize) -> Self {
        Self { table: Table::with_room(keys), ..Self::default() }
    }

    /// Frees memory that the table does not need.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// The current version of a key, expired or not.
    #[inline]
    pub(crate) fn find<'h>(&self, heap: &'h Heap, lookup: &Lookup<'_>) -> Result<Option<Hit<'h>>, KvError> {
        if !self.damaged.is_empty()
            && let Some(what) = self.damaged.get(&lookup.hash)
        {
            return Err(KvError::Damaged { what: *what });
        }
        match find_in(&self.table, heap, lookup, Kind::Put) {
            // What cannot be read is another key's, which has the same tag.
            Err(KvError::Damaged { .. })
                if !self.order.contains(&OrderedKey::new(lookup.space, lookup.key)) =>
            {
                Ok(None)
            }
            found => found,
        }
    }

    /// The current tombstone of a key. One that cannot be read is none: the key is absent all the same, and a newer version
    /// hides the older ones as the tombstone did.
    pub(crate) fn find_tomb<'h>(
        &self,
        heap: &'h Heap,
        lookup: &Lookup<'_>,
    ) -> Result<Option<Hit<'h>>, KvError> {
        if self.tombs.is_empty() {
            return Ok(None);
        }
        match find_in(&self.tombs, heap, lookup, Kind::Tombstone) {
            Err(KvError::Damaged { .. }) => Ok(None),
            found => found,
        }
    }

    /// Records the ticket of an append by `writer` that adds or removes a key. There is none after a heap transaction,
    /// which is durable.
    #[inline]
    pub(crate) fn note_change(&mut self, writer: &Writer) {
        if let Some(ticket) = writer.newest() {
            self.changed.add(ticket);
        }
    }

    /// Records the ticket of a flush mark that `writer` has appended.
    pub(crate) fn note_flush(&mut self, writer: &Writer) {
        self.note_change(writer);
        self.flushed = writer.newest();
    }

    /// Tickets of added or removed keys that are not durable yet.
    pub(crate) fn pending_changes(&self, heap: &Heap) -> Tickets {
        self.changed.iter().filter(|ticket| !heap.is_durable(*ticket)).collect()
    }

    /// The ticket of the tombstone or the flush that made a key absent, if it is not durable yet.
    pub(crate) fn pending_absence(
        &self,
        heap: &Heap,
        lookup: &Lookup<'_>,
    ) -> Result<Option<Ticket>, KvError> {
        if heap.are_durable(&self.changed) {
            return Ok(None);
        }
        match self.find_tomb(heap, lookup)? {
            Some(tomb) => Ok(heap.pending(tomb.slot)),
            None => Ok(self.flushed.filter(|flush| !heap.is_durable(*flush))),
        }
    }

    /// Number of keys of a database in this shard.
    pub(crate) fn count_of(&self, space: u8) -> u64 {
        self.keys.get(usize::from(space)).copied().unwrap_or(0)
    }

    /// Makes `new` the current version of a key, in place of `old` if there is one.
    #[inline]
    pub(crate) fn put(
        &mut self,
        lookup: &Lookup<'_>,
        new: SlotId,
        expiry_ms: u64,
        old: Option<(SlotId, u64)>,
    ) {
        match old {
            Some((slot, old_expiry)) => {
                self.supersede(lookup.hash, slot, new);
                self.set_expiry(lookup.space, lookup.hash, old_expiry, expiry_ms);
            }
            None => {
                self.insert(lookup.hash, new);
                if self.order.insert(OrderedKey::new(lookup.space, lookup.key)) {
                    self.count(lookup.space, 1);
                }
                self.set_expiry(lookup.space, lookup.hash, 0, expiry_ms);
            }
        }
    }

    /// Removes a key and makes its tombstone current.
    pub(crate) fn delete(&mut self, lookup: &Lookup<'_>, tomb: SlotId, old: SlotId, old_expiry: u64) {
        self.remove_key(lookup.hash, old);
        self.order.remove(&OrderedKey::new(lookup.space, lookup.key));
        self.count(lookup.space, -1);
        self.set_expiry(lookup.space, lookup.hash, old_expiry, 0);
        self.add_tomb(lookup.hash, tomb);
        self.add_stale(lookup.hash);
    }

    /// The newest readable version of a damaged key. A write supersedes it; it must not be shown.
    pub(crate) fn find_readable<'h>(&self, heap: &'h Heap, lookup: &Lookup<'_>) -> Option<Hit<'h>> {
        find_in(&self.table, heap, lookup, Kind::Put).ok().flatten()
    }

    /// Clears the damage of a key whose new version or tombstone has been appended. Calls `supersede` with each slot of
    /// the key that cannot be read.
    pub(crate) fn clear_damage(
        &mut self,
        heap: &Heap,
        lookup: &Lookup<'_>,
        mut supersede: impl FnMut(SlotId),
    ) {
        self.damaged.remove(&lookup.hash);
        let same = |(hash, _): &mut (u64, SlotId)| *hash == lookup.hash;
        for (hash, slot) in self.unreadable.extract_if(.., same).collect::<Vec<_>>() {
            supersede(slot);
            if heap.record(slot).is_ok() {
                // Only its key could not be read. The record remains on the medium and counts as stale.
                self.add_stale(hash);
            }
        }
        let broken: Vec<SlotId> =
            self.slots_of(lookup.hash).filter(|slot| heap.record(*slot).is_err()).collect();
        for slot in broken {
            self.remove_key(lookup.hash, slot);
            supersede(slot);
        }
    }

    /// Removes a key that has no readable version and makes its tombstone current.
    pub(crate) fn delete_unreadable(&mut self, lookup: &Lookup<'_>, tomb: SlotId) {
        if self.order.remove(&OrderedKey::new(lookup.space, lookup.key)) {
            self.count(lookup.space, -1);
        }
        self.add_tomb(lookup.hash, tomb);
    }

    pub(crate) fn insert(&mut self, hash: u64, slot: SlotId) {
        let count = self.stale.take(name(hash), COUNT_MAX);
        self.table.insert(Entry::new(tag(hash), count, slot));
    }

    pub(crate) fn add_tomb(&mut self, hash: u64, slot: SlotId) {
        let count = self.stale.take(name(hash), COUNT_MAX);
        self.tombs.insert(Entry::new(tag(hash), count, slot));
    }

    /// Removes the entry for `slot`, of a key or a tombstone. The counts of keys and of stale records stay.
    pub(crate) fn remove(&mut self, hash: u64, slot: SlotId) {
        self.remove_key(hash, slot);
        let count = remove(&mut self.tombs, hash, slot);
        self.stale.spill(name(hash), count);
    }

    fn remove_key(&mut self, hash: u64, slot: SlotId) {
        let count = remove(&mut self.table, hash, slot);
        self.stale.spill(name(hash), count);
    }

    /// Removes a tombstone that a new version of its key has superseded. Its record is stale from now on.
    pub(crate) fn remove_tomb(&mut self, hash: u64, slot: SlotId) {
        let count = remove(&mut self.tombs, hash, slot);
        self.stale.spill(name(hash), count);
        self.stale.add_counted(name(hash), false);
    }

    pub(crate) fn count(&mut self, space: u8, change: i64) {
        if let Some(count) = self.keys.get_mut(usize::from(space)) {
            *count = count.saturating_add_signed(change);
        }
    }

    /// Changes the expiry of a key with this hash from `old_ms` to `new_ms`; 0 means never.
    #[inline]
    pub(crate) fn set_expiry(&mut self, space: u8, hash: u64, old_ms: u64, new_ms: u64) {
        if old_ms != 0 {
            self.drop_expiry(Expiry { due_ms: old_ms, hash, space });
        }
        if new_ms != 0
            && self.expiry.insert(Expiry { due_ms: new_ms, hash, space })
            && let Some(count) = self.expiring.get_mut(usize::from(space))
        {
            *count += 1;
        }
    }

    /// The key that expires first.
    pub(crate) fn first_expiry(&self) -> Option<Expiry> {
        self.expiry.first().copied()
    }

    /// Removes the expiry of a key.
    pub(crate) fn drop_expiry(&mut self, expiry: Expiry) {
        if self.expiry.remove(&expiry)
            && let Some(count) = self.expiring.get_mut(usize::from(expiry.space))
        {
            *count -= 1;
        }
    }

    /// Announces a copy of a record with this hash's tag. The copy counts as stale.
    pub(crate) fn announce_copy(&mut self, hash: u64) {
        let (stale, mut entries) = self.counts();
        stale.announce(name(hash), &mut entries);
    }

    /// Ends the announcement of a copy that was made.
    pub(crate) fn settle_copy(&mut self, hash: u64) {
        self.stale.settle(name(hash));
    }

    /// Withdraws the announcement of a copy that was not made; true if no stale record of the tag is left. A flush
    /// resets the counts and the announcements, so that a withdrawal after a flush discounts nothing.
    pub(crate) fn withdraw_copy(&mut self, hash: u64) -> bool {
        let (stale, mut entries) = self.counts();
        stale.withdraw(name(hash), &mut entries)
    }

    /// Counts one more stale record of this hash's tag.
    pub(crate) fn add_stale(&mut self, hash: u64) {
        let (stale, mut entries) = self.counts();
        stale.add(name(hash), &mut entries);
    }

    /// Discounts one stale record; true if no stale record of the tag is left.
    pub(crate) fn drop_stale(&mut self, hash: u64) -> bool {
        let (stale, mut entries) = self.counts();
        stale.remove(name(hash), &mut entries)
    }

    /// True if the medium holds stale records of this hash's tag.
    pub(crate) fn has_stale(&self, hash: u64) -> bool {
        self.has_entry(hash, |entry| entry.count() > 0) || self.stale.has(name(hash), &NoInlineCounts)
    }

    /// The stale counts, and the entries that hold a part of them.
    fn counts(&mut self) -> (&mut StaleCounts, Entries<'_>) {
        (&mut self.stale, Entries { table: &mut self.table, tombs: &mut self.tombs })
    }

    /// The first entry of this hash's tag, key or tombstone, for which `predicate` is true.
    fn entry_mut(&mut self, hash: u64, predicate: impl Fn(&Entry) -> bool) -> Option<&mut Entry> {
        Entries { table: &mut self.table, tombs: &mut self.tombs }.into_entry(name(hash), predicate)
    }

    /// True if `predicate` is true for an entry of this hash's tag, key or tombstone.
    fn has_entry(&self, hash: u64, predicate: impl Fn(&Entry) -> bool) -> bool {
        let tag = tag(hash);
        self.table.of(tag).chain(self.tombs.of(tag)).any(|entry| predicate(&entry))
    }

    /// True if `slot` is current: the version of a key with this hash, or a tombstone.
    pub(crate) fn is_current(&self, hash: u64, slot: SlotId) -> bool {
        self.has_entry(hash, |entry| entry.slot == slot)
    }

    /// True if there is an entry of this hash's tag, key or tombstone.
    pub(crate) fn has_tag(&self, hash: u64) -> bool {
        self.has_entry(hash, |_| true)
    }

    /// Points the entry for `old` at `new`; false if `old` is not current.
    pub(crate) fn replace(&mut self, hash: u64, old: SlotId, new: SlotId) -> bool {
        let entry = self.entry_mut(hash, |entry| entry.slot == old);
        entry.map(|entry| entry.slot = new).is_some()
    }

    /// Points the entry for `old` at `new`, a newer version of the key. `old` is stale from now on.
    #[inline]
    fn supersede(&mut self, hash: u64, old: SlotId, new: SlotId) {
        let entry = self.table.find_mut(tag(hash), |entry| entry.slot == old);
        let is_counted = entry.is_some_and(|entry| {
            entry.slot = new;
            entry.count_one()
        });
        self.stale.add_counted(name(hash), is_counted);
    }

    /// Slots of keys with this hash's tag: one, unless tags collide.
    pub(crate) fn slots_of(&self, hash: u64) -> impl Iterator<Item = SlotId> + '_ {
        self.table.of(tag(hash)).map(|entry| entry.slot)
    }

    /// Slots of tombstones with this hash's tag.
    pub(crate) fn tombs_of(&self, hash: u64) -> impl Iterator<Item = SlotId> + '_ {
        self.tombs.of(tag(hash)).map(|entry| entry.slot)
    }

    /// Drops a tombstone whose key has no older record on the medium. The tombstone's own record is stale from now on.
    pub(crate) fn drop_tomb(&mut self, hash: u64, slot: SlotId, seq: u64) {
        self.remove_tomb(hash, slot);
        self.dropped_seq = self.dropped_seq.max(seq);
    }

    /// Estimated DRAM of the shard, bytes, without the bytes of long keys.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let entries = self.table.memory_bytes() + self.tombs.memory_bytes();
        let keys: u64 = self.order.len() as u64 * 24;
        entries + keys + self.stale.memory_bytes() + self.expiry.len() as u64 * 24
    }
}

/// The name under which the stale records of a hash are counted: its tag.
fn name(hash: u64) -> u64 {
    u64::from(tag(hash))
}

/// The entries of a shard, keys and tombstones, each with its inline stale count.
struct Entries<'s> {
    table: &'s mut Table,
    tombs: &'s mut Table,
}

impl<'s> Entries<'s> {
    fn into_entry(self, name: u64, predicate: impl Fn(&Entry) -> bool) -> Option<&'s mut Entry> {
        match self.table.find_mut(name as u32, &predicate) {
            Some(entry) => Some(entry),
            None => self.tombs.find_mut(name as u32, predicate),
        }
    }

    fn find_mut(&mut self, name: u64, predicate: impl Fn(&Entry) -> bool) -> Option<&mut Entry> {
        Entries { table: &mut *self.table, tombs: &mut *self.tombs }.into_entry(name, predicate)
    }
}

impl InlineCounts for Entries<'_> {
    fn count_one(&mut self, name: u64) -> bool {
        self.find_mut(name, |entry| entry.count() < COUNT_MAX).is_some_and(Entry::count_one)
    }

    fn discount_one(&mut self, name: u64) -> bool {
        self.find_mut(name, |entry| entry.count() > 0).map(Entry::discount_one).is_some()
    }

    fn counts_any(&self, name: u64) -> bool {
        self.table.of(name as u32).chain(self.tombs.of(name as u32)).any(|entry| entry.count() > 0)
    }
}

/// Removes an entry; returns its stale count.
fn remove(table: &mut Table, hash: u64, slot: SlotId) -> u32 {
    table.remove(tag(hash), slot).map_or(0, Entry::count)
}

/// Looks a key up. An error if the key is not found and a record that may be the key's cannot be read.
#[inline]
fn find_in<'h>(
    table: &Table,
    heap: &'h Heap,
    lookup: &Lookup<'_>,
    kind: Kind,
) -> Result<Option<Hit<'h>>, KvError> {
    let mut failed: Option<HeapError> = None;
    for entry in table.of(tag(lookup.hash)) {
        match matches(heap, entry.slot, lookup, kind) {
            Ok(Some(view)) => return Ok(Some(Hit { slot: entry.slot, view })),
            Ok(None) => {}
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), |error| Err(error.into()))
}

#[inline]
fn matches<'h>(
    heap: &'h Heap,
    slot: SlotId,
    lookup: &Lookup<'_>,
    kind: Kind,
) -> Result<Option<RecordView<'h>>, HeapError> {
    let view = heap.record(slot)?;
    let same = view.hash() == lookup.hash
        && view.space() == lookup.space
        && view.kind() == kind
        && view.key_len() == lookup.key.len()
        && is_key(heap, &view, lookup.key)?;
    Ok(same.then_some(view))
}

/// True if a record is of this key. Requests a long key if it is evicted.
#[inline]
fn is_key(heap: &Heap, view: &RecordView<'_>, key: &[u8]) -> Result<bool, HeapError> {
    if let KeyPlace::Stored(at) = view.key() {
        heap.fetch(&[at])?;
    }
    Ok(*heap.key(view)? == *key)
}
