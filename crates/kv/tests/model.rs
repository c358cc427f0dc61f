//! Compares the engine with a `BTreeMap`, without crashes: point reads, transactions, expiry, versions, and ordered
//! ranges with bounds and prefixes in both directions.

use landfall_heap::{NewRegion, Source, Until, Writer, create};
use landfall_kv::{Engine, KvError, RangeQuery, Recovery, SetRequest, TxnKey};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{SimMedia, SimOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

const RUNS: u64 = 32;
const SPACES: u8 = 2;
const CASES: u32 = 200;

/// Similar keys, so that prefixes and bounds fall between them. Among them are the empty key, one of the highest bytes,
/// and one that is stored in frames.
fn key(index: usize) -> Vec<u8> {
    let names: [&[u8]; 10] =
        [b"", b"a", b"a\0", b"ab", b"aba", b"b", b"\xff", b"\xff\xff", b"\xff\xff\x01", &[b'l'; 200]];
    names[index % names.len()].to_vec()
}

#[derive(Clone, Debug)]
enum Op {
    Set { key: usize, space: u8, len: usize, ttl: u64 },
    Delete { key: usize, space: u8 },
    Txn { writes: Vec<(usize, Option<usize>)>, commits: bool },
    Flush,
    Commit,
    Purge { limit: usize },
    Advance(u64),
    Range { space: u8, low: Edge, high: Edge, prefix: Option<usize>, reverse: bool, page: usize },
}

#[derive(Clone, Copy, Debug)]
enum Edge {
    Open,
    Included(usize),
    Excluded(usize),
}

impl Edge {
    fn bound(self) -> Bound<Vec<u8>> {
        match self {
            Self::Open => Bound::Unbounded,
            Self::Included(index) => Bound::Included(key(index)),
            Self::Excluded(index) => Bound::Excluded(key(index)),
        }
    }
}

fn edge() -> impl Strategy<Value = Edge> {
    let index = 0..10usize;
    prop_oneof![Just(Edge::Open), index.clone().prop_map(Edge::Included), index.prop_map(Edge::Excluded)]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (key, space) = (|| 0..10usize, || 0..SPACES);
    let len = || prop_oneof![Just(0usize), 1..60usize, 60..9000usize];
    let ttl = prop_oneof![3 => Just(0u64), 1 => 1..30u64];
    let write = (key(), prop::option::weighted(0.7, len()));
    let range = (space(), edge(), edge(), prop::option::of(key()), any::<bool>(), 1..5usize);
    let op = prop_oneof![
        6 => (key(), space(), len(), ttl).prop_map(|(key, space, len, ttl)| Op::Set { key, space, len, ttl }),
        3 => (key(), space()).prop_map(|(key, space)| Op::Delete { key, space }),
        3 => (prop::collection::vec(write, 0..30), any::<bool>())
            .prop_map(|(writes, commits)| Op::Txn { writes, commits }),
        1 => Just(Op::Flush),
        2 => Just(Op::Commit),
        1 => (0..4usize).prop_map(|limit| Op::Purge { limit }),
        2 => (1..12u64).prop_map(Op::Advance),
        5 => range.prop_map(|(space, low, high, prefix, reverse, page)| {
            Op::Range { space, low, high, prefix, reverse, page }
        }),
    ];
    prop::collection::vec(op, 1..80)
}

/// A database and a key.
type Name = (u8, Vec<u8>);
/// A value and its expiry.
type Stored = (Vec<u8>, u64);
type Model = BTreeMap<Name, Stored>;

struct Pair {
    engine: Engine,
    writer: Writer,
    model: Model,
    now: u64,
    count: u8,
}

impl Pair {
    fn new() -> Self {
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let (engine, _) = Recovery::run(media, 4).expect("opens");
        let writer = Writer::new(Arc::clone(engine.heap()), 0);
        Self { engine, writer, model: Model::new(), now: 100, count: 0 }
    }

    fn value(&mut self, len: usize) -> Vec<u8> {
        self.count = self.count.wrapping_add(1);
        vec![self.count; len]
    }

    fn live(&self) -> impl Iterator<Item = (&Name, &Stored)> {
        self.model.iter().filter(|(_, (_, expiry))| *expiry == 0 || *expiry > self.now)
    }

    fn is_live(&self, space: u8, key: &[u8]) -> bool {
        self.live().any(|((at, name), _)| *at == space && name == key)
    }

    fn versions(&self) -> BTreeMap<(u8, Vec<u8>), u64> {
        let txn = self.engine.transaction_all(self.now);
        let names = (0..SPACES).flat_map(|space| (0..10).map(move |index| (space, key(index))));
        names.map(|name| (name.clone(), txn.version(name.0, &name.1).expect("reads").ungated())).collect()
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Set { key: index, space, len, ttl } => self.set(*space, &key(*index), *len, *ttl),
            Op::Delete { key: index, space } => self.delete(*space, &key(*index)),
            Op::Txn { writes, commits } => self.txn(writes, *commits),
            Op::Flush => {
                self.engine.flush_all(&mut self.writer, 1).expect("flushes").ungated();
                self.model.clear();
            }
            Op::Commit => self.writer.commit_now().expect("commits"),
            Op::Purge { limit } => self.purge(*limit),
            Op::Advance(ms) => self.now += ms,
            Op::Range { space, low, high, prefix, reverse, page } => {
                let (start, end) = (low.bound(), high.bound());
                let query = RangeQuery { space: *space, start, end, reverse: *reverse };
                self.range(query, prefix.map(key), *page);
            }
        }
    }

    fn set(&mut self, space: u8, key: &[u8], len: usize, ttl: u64) {
        let bytes = self.value(len);
        let expiry_ms = if ttl == 0 { 0 } else { self.now + ttl };
        let value = Source::Bytes(&bytes);
        let request = SetRequest { space, key, key_at: None, value, expiry_ms, arrival_ns: 9 };
        self.engine.set(&mut self.writer, &request).expect("there is room").ungated();
        self.model.insert((space, key.to_vec()), (bytes, expiry_ms));
    }

    fn delete(&mut self, space: u8, key: &[u8]) {
        let there = self.is_live(space, key);
        let deleted =
            self.engine.delete(&mut self.writer, space, key, self.now, 1).expect("deletes").ungated();
        assert_eq!(deleted, there);
        self.model.remove(&(space, key.to_vec()));
    }

    /// Reads and writes in database 0. A dropped transaction changes nothing.
    fn txn(&mut self, writes: &[(usize, Option<usize>)], commits: bool) {
        let values: Vec<Option<Vec<u8>>> =
            writes.iter().map(|(_, len)| len.map(|len| self.value(len))).collect();
        let keys: Vec<Vec<u8>> = writes.iter().map(|(index, _)| key(*index)).collect();
        let mut staged: Model = self.live().map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut txn = self.engine.transaction(keys.iter().map(|key| TxnKey { space: 0, key }), self.now);
        for (key, value) in keys.iter().zip(&values) {
            let name = (0, key.clone());
            match value {
                Some(value) => {
                    txn.put_bytes(0, key, value.clone(), 0);
                    staged.insert(name.clone(), (value.clone(), 0));
                }
                None => {
                    let there = staged.remove(&name).is_some();
                    assert_eq!(txn.delete(0, key).expect("reads").ungated(), there);
                }
            }
            let read = txn.read(0, key).expect("reads").ungated().map(|item| item.to_vec().expect("reads"));
            assert_eq!(read, staged.get(&name).map(|(value, _)| value.clone()), "its own writes");
        }
        if commits {
            txn.commit(&mut self.writer, 1).expect("there is room").ungated();
            // The model keeps expired keys until they are purged, as the counts do. A key that the transaction put and
            // then deleted is gone.
            let (now, put) = (self.now, keys.iter().zip(&values).filter(|(_, value)| value.is_some()));
            let put: Vec<&Vec<u8>> = put.map(|(key, _)| key).collect();
            let gone = |name: &(u8, Vec<u8>)| name.0 == 0 && put.contains(&&name.1);
            self.model.retain(|name, (_, expiry)| *expiry != 0 && *expiry <= now && !gone(name));
            self.model.extend(staged);
        }
    }

    fn purge(&mut self, limit: usize) {
        let due = self.model.values().filter(|(_, expiry)| *expiry != 0 && *expiry <= self.now).count();
        let purged = self.engine.purge_expired(&mut self.writer, self.now, limit).expect("purges");
        assert_eq!(purged, due.min(limit));
        // The order of purges is not specified. The rest is purged, too, so that the model stays exact.
        let rest = self.engine.purge_expired(&mut self.writer, self.now, usize::MAX).expect("purges");
        assert_eq!(purged + rest, due);
        let now = self.now;
        self.model.retain(|_, (_, expiry)| *expiry == 0 || *expiry > now);
        assert!(self.engine.next_expiry_ms().is_none_or(|due| due > now));
    }

    fn range(&self, query: RangeQuery, prefix: Option<Vec<u8>>, page: usize) {
        let inside = |name: &[u8]| {
            let low = match &query.start {
                Bound::Included(low) => name >= low.as_slice(),
                Bound::Excluded(low) => name > low.as_slice(),
                Bound::Unbounded => true,
            };
            let high = match &query.end {
                Bound::Included(high) => name <= high.as_slice(),
                Bound::Excluded(high) => name < high.as_slice(),
                Bound::Unbounded => true,
            };
            low && high && prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix))
        };
        let here = self.live().filter(|((space, name), _)| *space == query.space && inside(name));
        let mut wanted: Vec<(Vec<u8>, Vec<u8>)> =
            here.map(|((_, name), (value, _))| (name.clone(), value.clone())).collect();
        if query.reverse {
            wanted.reverse();
        }
        let mut query = match &prefix {
            Some(prefix) => query.with_prefix(prefix),
            None => query,
        };
        let mut found = Vec::new();
        loop {
            let got = self.engine.range(&query, page, self.now).expect("scans").ungated();
            assert!(got.items.len() <= page);
            found.extend(
                got.items
                    .into_iter()
                    .map(|(name, item)| (name, item.expect("a whole value").to_vec().expect("reads"))),
            );
            match got.last {
                Some(last) => query.resume_after(last),
                None => break,
            }
        }
        assert_eq!(found, wanted, "{query:?}");
    }

    fn check(&self) {
        for space in 0..SPACES {
            for index in 0..10 {
                let name = key(index);
                let item = self.engine.get(space, &name, self.now).expect("reads").ungated();
                let found = item.map(|item| (item.to_vec().expect("reads"), item.expiry_ms));
                let wanted = self.live().find(|((at, known), _)| *at == space && *known == name);
                assert_eq!(found.as_ref(), wanted.map(|(_, value)| value), "{space}:{name:?}");
            }
            let all = self.model.keys().filter(|(at, _)| *at == space).count() as u64;
            assert!(
                self.engine.count(space).ungated() <= all,
                "expired keys count until they are purged, others do not"
            );
            assert!(
                self.engine.count(space).ungated()
                    >= self.live().filter(|((at, _), _)| *at == space).count() as u64
            );
        }
    }
}

/// The keys that an operation writes while time stands still; `None` if it may write every key.
fn touched(pair: &Pair, op: &Op) -> Option<Vec<(u8, Vec<u8>)>> {
    match op {
        Op::Set { key: index, space, .. } => Some(vec![(*space, key(*index))]),
        Op::Delete { key: index, space } => {
            let name = (*space, key(*index));
            Some(if pair.is_live(name.0, &name.1) { vec![name] } else { Vec::new() })
        }
        Op::Txn { commits: false, .. } | Op::Commit | Op::Range { .. } => Some(Vec::new()),
        Op::Txn { .. } | Op::Flush | Op::Purge { .. } | Op::Advance(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn engine_matches_a_map(ops in ops()) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.run(op);
            pair.check();
        }
    }

    #[test]
    fn a_version_changes_with_every_write_of_its_key_and_with_nothing_else(ops in ops()) {
        let mut pair = Pair::new();
        for op in &ops {
            let (before, touched) = (pair.versions(), touched(&pair, op));
            pair.run(op);
            let Some(touched) = touched else { continue };
            for (name, version) in pair.versions() {
                // A delete of an expired key writes a tombstone, although no client could watch the key.
                let expired = pair.model.contains_key(&name) != pair.is_live(name.0, &name.1);
                let changed = before[&name] != version;
                let deleted_expired = matches!(op, Op::Delete { .. });
                prop_assert!(changed == touched.contains(&name) || expired || deleted_expired, "{name:?} after {op:?}");
            }
        }
    }
}

#[test]
fn clock_that_steps_back_restores_no_purged_key() {
    let mut pair = Pair::new();
    pair.set(0, b"a", 10, 5);
    pair.now += 10;
    pair.purge(10);
    pair.now -= 8;
    assert!(pair.engine.get(0, b"a", pair.now).expect("reads").ungated().is_none());
}

#[test]
fn too_long_key_is_refused_and_empty_value_is_stored() {
    let mut pair = Pair::new();
    let key = vec![0; landfall_heap::KEY_BYTES_MAX + 1];
    let value = Source::Bytes(b"");
    let request = SetRequest { space: 0, key: &key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
    let refused = pair.engine.set(&mut pair.writer, &request);
    assert!(matches!(refused, Err(KvError::Heap(landfall_heap::HeapError::TooLarge { .. }))));
    pair.set(0, &key[1..], 0, 0);
    pair.check();
    let found = pair.engine.get(0, &key[1..], 0).expect("reads").ungated().expect("is there");
    assert_eq!((found.len, found.to_vec().expect("reads")), (0, Vec::new()));
}

#[test]
fn write_waits_for_an_undurable_write_of_another_worker() {
    let mut pair = Pair::new();
    pair.set(0, b"a", 10, 0);
    let mut other = Writer::new(Arc::clone(pair.engine.heap()), 1);
    let value = Source::Bytes(b"b");
    let request = SetRequest { space: 0, key: b"a", key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
    assert!(matches!(pair.engine.set(&mut other, &request), Err(KvError::Wait(Until::Ticket(_)))));
    assert!(matches!(pair.engine.delete(&mut other, 0, b"a", 0, 1), Err(KvError::Wait(Until::Ticket(_)))));
    assert!(matches!(pair.engine.flush_all(&mut other, 1), Err(KvError::Wait(Until::Ticket(_)))));
    let txn = pair.engine.transaction([TxnKey { space: 0, key: b"a" }], 0);
    assert!(matches!(txn.check_writable(&other, 0, b"a"), Err(KvError::Wait(Until::Ticket(_)))));
    drop(txn);
    pair.writer.commit_now().expect("commits");
    pair.engine.set(&mut other, &request).expect("is durable now").ungated();
}
