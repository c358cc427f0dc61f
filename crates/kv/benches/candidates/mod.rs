//! The index structures that the benchmark compares, each with the operations of [`Index`].
//!
//! A key is 16 bytes. Ordered structures put a space byte in front of it, as the shard does. A slot number stands for
//! the record, which holds the key, as on the medium.

#[path = "../../src/key.rs"]
#[allow(unused_imports, reason = "its tests are the engine's")]
mod key;
#[path = "../../src/table.rs"]
#[allow(dead_code, unused_imports, reason = "the engine uses the rest, and its tests are the engine's")]
mod table;

use hashbrown::HashTable;
use landfall_heap::SlotId;
use scc::{Guard, TreeIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Length of a key, bytes.
pub const KEY_BYTES: usize = 16;

/// A key as clients send it.
pub type Key = [u8; KEY_BYTES];

/// The keys by slot. They stand for the records in the region and are not part of an index.
pub type Records = [Key];

/// The index of a shard.
pub trait Index: Sized {
    /// Name in the tables of results.
    const NAME: &'static str;

    /// Builds the index from all records in order of slots, as recovery does.
    fn build(records: &Records) -> Self;

    /// The slot of a key.
    fn get(&self, records: &Records, key: &Key) -> Option<u32>;

    /// Adds an absent key.
    fn insert(&mut self, records: &Records, key: &Key, slot: u32);

    /// Moves a present key to another slot and back: two overwrites of one key.
    fn overwrite(&mut self, records: &Records, key: &Key, slot: u32);

    /// Visits `count` keys in order from `first` on; returns the sum of their last bytes.
    fn scan(&self, first: &Key, count: usize) -> u64;
}

/// Keys in random order: SplitMix64 of the slot.
pub fn random_keys(count: u32) -> Vec<Key> {
    let mix = |seed: u64| {
        let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let key = |slot: u32| format!("{:016x}", mix(u64::from(slot) + 1)).into_bytes();
    (0..count).map(|slot| key(slot).try_into().expect("sixteen digits")).collect()
}

fn ordered(key: &Key) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(KEY_BYTES + 1);
    bytes.push(0);
    bytes.extend_from_slice(key);
    bytes.into_boxed_slice()
}

fn from(first: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Included(first), Bound::Unbounded)
}

fn last_byte(key: &[u8]) -> u64 {
    key.last().copied().map_or(0, u64::from)
}

/// The structure of the engine: a hash table with eight bytes a key, and an ordered set of the keys.
pub struct TableAndSet {
    table: table::Table,
    order: BTreeSet<key::OrderedKey>,
}

/// Slot numbers begin at 1, because no record has slot 0.
fn slot_id(slot: u32) -> SlotId {
    SlotId(slot + 1)
}

impl TableAndSet {
    fn put(&mut self, key: &Key, slot: u32) {
        self.table.insert(table::Entry::new(table::tag(hash(key)), 0, slot_id(slot)));
    }
}

impl Index for TableAndSet {
    const NAME: &'static str = "Table + BTreeSet";

    fn build(records: &Records) -> Self {
        let mut index = Self { table: table::Table::with_room(records.len()), order: BTreeSet::new() };
        (0..).zip(records).for_each(|(slot, key)| index.put(key, slot));
        index.order = records.iter().map(|key| key::OrderedKey::new(0, key)).collect();
        index
    }

    fn get(&self, records: &Records, key: &Key) -> Option<u32> {
        let mut slots = self.table.of(table::tag(hash(key))).map(|entry| entry.slot.0 - 1);
        slots.find(|slot| records[*slot as usize] == *key)
    }

    fn insert(&mut self, _records: &Records, key: &Key, slot: u32) {
        self.put(key, slot);
        self.order.insert(key::OrderedKey::new(0, key));
    }

    fn overwrite(&mut self, records: &Records, key: &Key, slot: u32) {
        let tag = table::tag(hash(key));
        let away = SlotId(slot.wrapping_add(2));
        if let Some(entry) = self.table.find_mut(tag, |entry| records[entry.slot.0 as usize - 1] == *key) {
            entry.slot = away;
        }
        if let Some(entry) = self.table.find_mut(tag, |entry| entry.slot == away) {
            entry.slot = slot_id(slot);
        }
    }

    fn scan(&self, first: &Key, count: usize) -> u64 {
        let first = key::OrderedKey::new(0, first);
        self.order.range::<[u8], _>(from(&first)).take(count).map(|key| last_byte(key)).sum()
    }
}

/// The engine's structure over the hash table of a library, which keeps its control bytes apart.
pub struct HashAndSet {
    table: HashTable<(u32, u32)>,
    order: BTreeSet<Box<[u8]>>,
}

/// FNV-1a, finished with a multiplication. The engine's hash is seeded, which does not matter here.
fn hash(key: &Key) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    key.iter().fold(0xcbf2_9ce4_8422_2325, fnv).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl HashAndSet {
    fn put(&mut self, key: &Key, slot: u32) {
        let tag = tag(hash(key));
        self.table.insert_unique(spread(tag), (tag, slot), |entry| spread(entry.0));
    }
}

impl Index for HashAndSet {
    const NAME: &'static str = "hashbrown HashTable + BTreeSet";

    fn build(records: &Records) -> Self {
        let mut index = Self { table: HashTable::with_capacity(records.len()), order: BTreeSet::new() };
        (0..).zip(records).for_each(|(slot, key)| index.put(key, slot));
        // `collect` sorts first and builds in bulk, instead of inserting one by one.
        index.order = records.iter().map(ordered).collect();
        index
    }

    fn get(&self, records: &Records, key: &Key) -> Option<u32> {
        let tag = tag(hash(key));
        let same = |entry: &(u32, u32)| entry.0 == tag && records[entry.1 as usize] == *key;
        self.table.find(spread(tag), same).map(|entry| entry.1)
    }

    fn insert(&mut self, _records: &Records, key: &Key, slot: u32) {
        self.put(key, slot);
        self.order.insert(ordered(key));
    }

    fn overwrite(&mut self, records: &Records, key: &Key, slot: u32) {
        let tag = tag(hash(key));
        let away = slot.wrapping_add(1);
        let at_key = |entry: &(u32, u32)| entry.0 == tag && records[entry.1 as usize] == *key;
        if let Some(entry) = self.table.find_mut(spread(tag), at_key) {
            entry.1 = away;
        }
        // The record at the other slot is not the key's, so the move back finds the entry by its slot.
        if let Some(entry) = self.table.find_mut(spread(tag), |entry| *entry == (tag, away)) {
            entry.1 = slot;
        }
    }

    fn scan(&self, first: &Key, count: usize) -> u64 {
        let first = ordered(first);
        self.order.range::<[u8], _>(from(&first)).take(count).map(|key| last_byte(key)).sum()
    }
}

/// One ordered map for everything.
pub struct Map(BTreeMap<Box<[u8]>, u32>);

impl Index for Map {
    const NAME: &'static str = "BTreeMap alone";

    fn build(records: &Records) -> Self {
        Self(records.iter().map(ordered).zip(0..).collect())
    }

    fn get(&self, _records: &Records, key: &Key) -> Option<u32> {
        let mut bytes = [0; KEY_BYTES + 1];
        bytes[1..].copy_from_slice(key);
        self.0.get(bytes.as_slice()).copied()
    }

    fn insert(&mut self, _records: &Records, key: &Key, slot: u32) {
        self.0.insert(ordered(key), slot);
    }

    fn overwrite(&mut self, _records: &Records, key: &Key, slot: u32) {
        let mut bytes = [0; KEY_BYTES + 1];
        bytes[1..].copy_from_slice(key);
        for target in [slot.wrapping_add(1), slot] {
            if let Some(entry) = self.0.get_mut(bytes.as_slice()) {
                *entry = target;
            }
        }
    }

    fn scan(&self, first: &Key, count: usize) -> u64 {
        let first = ordered(first);
        self.0.range::<[u8], _>(from(&first)).take(count).map(|(key, _)| last_byte(key)).sum()
    }
}

/// A concurrent B+ tree that stores keys of 17 bytes in its leaves, without allocations. Keys of varying length would
/// need boxes.
pub struct Tree(TreeIndex<[u8; KEY_BYTES + 1], u32>);

fn inline(key: &Key) -> [u8; KEY_BYTES + 1] {
    let mut bytes = [0; KEY_BYTES + 1];
    bytes[1..].copy_from_slice(key);
    bytes
}

impl Index for Tree {
    const NAME: &'static str = "scc TreeIndex, keys in place";

    fn build(records: &Records) -> Self {
        let tree = TreeIndex::new();
        let mut sorted: Vec<_> = records.iter().map(inline).zip(0..).collect();
        sorted.sort_unstable();
        sorted.into_iter().for_each(|(key, slot)| tree.upsert_sync(key, slot));
        Self(tree)
    }

    fn get(&self, _records: &Records, key: &Key) -> Option<u32> {
        self.0.peek_with(&inline(key), |_, slot| *slot)
    }

    fn insert(&mut self, _records: &Records, key: &Key, slot: u32) {
        self.0.upsert_sync(inline(key), slot);
    }

    fn overwrite(&mut self, _records: &Records, key: &Key, slot: u32) {
        self.0.upsert_sync(inline(key), slot.wrapping_add(1));
        self.0.upsert_sync(inline(key), slot);
    }

    fn scan(&self, first: &Key, count: usize) -> u64 {
        let guard = Guard::new();
        self.0.range(inline(first).., &guard).take(count).map(|(key, _)| last_byte(key)).sum()
    }
}
