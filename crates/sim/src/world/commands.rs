//! Commands of clients in a world: each is executed in the engine and noted in the oracle.

use super::World;
use crate::op::{Piece, Write, key, value};
use crate::oracle::{Change, Key, State, Value};
use crate::rng::Rng;
use crate::violation::{Violation, ensure};
use landfall_heap::{
    COMPACTOR_RESERVE_RUNS, Gated, HeapError, LANDING_RESERVE_RUNS, PIECES_FROM, SlotId, Source, Until,
    Writer,
};
use landfall_kv::{Engine, KvError, Place, SetRequest, TxnKey};
use landfall_media::sim::SimMedia;
use landfall_media::{Extent, Media, RUN_SIZE, Sum};
use std::sync::Arc;

/// Most attempts at an operation that waits for commits.
const ATTEMPTS: usize = 4;
/// Writes of a churn between two commits.
const CHURN_BATCH: usize = 20;
/// Most bytes of the old value that an extension keeps.
const EXTENDED_MAX: usize = 3000;
/// Bytes from which on a value is not changed any more.
const PATCHED_MAX: usize = 600_000;
/// A change may begin so many bytes behind the end, less one.
const PATCHED_GAP_MAX: usize = 3000;
/// Number of keys that a churn writes.
const CHURN_KEYS: u64 = 6;

/// Steps of cleaning after which there must be space, or an error that the region is full.
const CLEANINGS: usize = 2000;

impl World {
    /// Executes a command. While it must wait, commits or cleans and tries again. `None` if the region is full.
    pub(super) fn execute<T>(
        &mut self,
        writer: usize,
        mut command: impl FnMut(&Engine, &mut Writer) -> Result<T, KvError>,
    ) -> Result<Option<T>, Violation> {
        let (mut commits, mut cleanings) = (0, 0);
        while commits < ATTEMPTS && cleanings < CLEANINGS {
            match command(&self.engine, &mut self.workers[writer].writer) {
                Ok(done) => return Ok(Some(done)),
                Err(KvError::Heap(HeapError::Full)) => return Ok(None),
                Err(KvError::Wait(Until::Space)) => {
                    cleanings += 1;
                    self.clean()?;
                }
                Err(KvError::Wait(_)) => {
                    commits += 1;
                    self.commit_all()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Violation(format!(
            "a command still waits after {commits} commits and {cleanings} steps of cleaning"
        )))
    }

    pub(super) fn set(
        &mut self,
        writer: usize,
        key: &Key,
        piece: Piece,
        expiry_ms: u64,
    ) -> Result<(), Violation> {
        let bytes = value(piece);
        let done = self.execute(writer, |engine, writer| {
            engine.set(writer, &request(key, Source::Bytes(&bytes), None, expiry_ms))
        })?;
        if done.is_some() {
            let change = vec![(key.clone(), Some(Value { bytes, expiry_ms }))];
            self.oracle.note(writer, Change::Keys(change));
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, writer: usize, key: &Key) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        let there = self.oracle.newest(now_ms).contains_key(key);
        let done =
            self.execute(writer, |engine, writer| engine.delete(writer, key.space, &key.bytes, now_ms, 5))?;
        ensure!(
            done.is_some() || self.is_crowded(),
            "a delete found the region full, with {} free runs",
            self.engine.heap().runs().free_count()
        );
        if let Some(deleted) = done {
            let deleted = deleted.ungated();
            ensure!(deleted == there, "{key:?} was there: {there}, deleted: {deleted}");
            // A delete of a key that does not exist writes nothing.
            if there {
                let change = Change::Keys(vec![(key.clone(), None)]);
                self.oracle.note_seen(writer, change, std::slice::from_ref(key));
            }
        }
        Ok(())
    }

    /// True if so few runs are free that even a delete may find the region full.
    pub(super) fn is_crowded(&self) -> bool {
        self.engine.heap().runs().free_count() <= COMPACTOR_RESERVE_RUNS + LANDING_RESERVE_RUNS
    }

    pub(super) fn group(&mut self, writer: usize, writes: &[Write]) -> Result<(), Violation> {
        let (now_ms, seen) = (self.now_ms, self.oracle.newest(self.now_ms));
        let keys: Vec<(Key, Option<Value>)> =
            writes.iter().map(|write| (key(write.key), write.value.map(|piece| piece.read(0)))).collect();
        let mut wrong = None;
        let done = self.execute(writer, |engine, writer| {
            let all = keys.iter().map(|(key, _)| TxnKey { space: key.space, key: &key.bytes });
            let mut txn = engine.transaction(all, now_ms);
            let mut expected = seen.clone();
            for (key, value) in &keys {
                wrong = wrong.take().or(wrong_read(&txn, &expected, key)?);
                stage(&mut txn, key, value.as_ref())?;
                match value {
                    Some(value) => expected.insert(key.clone(), value.clone()),
                    None => expected.remove(key),
                };
                wrong = wrong.take().or(wrong_read(&txn, &expected, key)?);
            }
            txn.commit(writer, 5)
        });
        let read: Vec<Key> = keys.iter().map(|(key, _)| key.clone()).collect();
        let mut changes = last_of_each(keys);
        changes.retain(|(key, value)| value.is_some() || seen.contains_key(key));
        if done.is_err() && writes.len() > self.setup.group_max && self.media.closed().is_some() {
            // A fence of the transaction has failed: recovery decides whether it counts, and nobody was told that it does.
            self.oracle.note_seen(writer, Change::Keys(changes), &read);
            return done.map(drop);
        }
        let done = done?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        if let Some(done) = done {
            self.note_transaction(writer, changes, &read, &done);
        }
        Ok(())
    }

    /// Notes a transaction that has read the keys `seen`. One of the heap is durable when it returns, with everything that
    /// its writer did before; one that is a group of records is not.
    fn note_transaction(
        &mut self,
        writer: usize,
        changes: Vec<(Key, Option<Value>)>,
        seen: &[Key],
        done: &Gated<Option<SlotId>>,
    ) {
        self.oracle.note_seen(writer, Change::Keys(changes), seen);
        let is_durable = done.tickets().is_empty() && self.workers[writer].writer.newest().is_none();
        if is_durable && self.media.frozen().is_none() {
            self.oracle.acknowledge(writer, self.oracle.pending(writer));
        }
    }

    pub(super) fn copy(&mut self, writer: usize, from: &Key, to: &Key) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        let done = self.execute(writer, |engine, writer| {
            let keys = [from, to].map(|key| TxnKey { space: key.space, key: &key.bytes });
            let mut txn = engine.transaction(keys, now_ms);
            txn.check_writable(writer, from.space, &from.bytes)?;
            let Some(item) = txn.read(from.space, &from.bytes)?.ungated() else { return Ok(None) };
            txn.copy_item(to.space, &to.bytes, &item, 0)?;
            drop(item);
            txn.commit(writer, 5).map(Some)
        })?;
        if let Some(Some(done)) = done {
            let copied = self.oracle.newest(now_ms).get(from).cloned();
            let copied = copied.ok_or_else(|| Violation(format!("{from:?} was copied and is not there")))?;
            let changes = vec![(to.clone(), Some(Value { expiry_ms: 0, ..copied }))];
            self.note_transaction(writer, changes, std::slice::from_ref(from), &done);
        }
        Ok(())
    }

    /// Reads a key and writes its value with more bytes appended, as `APPEND` and `INCR` do.
    pub(super) fn extend(&mut self, writer: usize, key: &Key, piece: Piece) -> Result<(), Violation> {
        let (now_ms, more) = (self.now_ms, value(piece));
        let mut written = None;
        let done = self.execute(writer, |engine, writer| {
            let mut txn = engine.transaction([TxnKey { space: key.space, key: &key.bytes }], now_ms);
            txn.check_writable(writer, key.space, &key.bytes)?;
            let mut bytes = match txn.read(key.space, &key.bytes)?.ungated() {
                Some(item) => item.to_vec()?,
                None => Vec::new(),
            };
            bytes.truncate(EXTENDED_MAX);
            bytes.extend_from_slice(&more);
            txn.put_bytes(key.space, &key.bytes, bytes.clone(), 0);
            written = Some(bytes);
            txn.commit(writer, 5)
        })?;
        if let (Some(done), Some(bytes)) = (done, written) {
            let value = Value { bytes: bytes.as_slice().into(), expiry_ms: 0 };
            let changes = vec![(key.clone(), Some(value))];
            self.note_transaction(writer, changes, std::slice::from_ref(key), &done);
        }
        Ok(())
    }

    /// Changes a part of a long value, as `APPEND` and `SETRANGE` do. A key that has none gets one now and then.
    pub(super) fn patch(
        &mut self,
        writer: usize,
        key: &Key,
        piece: Piece,
        at: Option<usize>,
    ) -> Result<(), Violation> {
        let (now_ms, bytes) = (self.now_ms, value(piece));
        let run = if piece.seed.is_multiple_of(2) { self.engine.heap().take_landing_run() } else { None };
        let landed = run.map(|run| Landed::store(&self.media, run, key, &bytes, 3)).transpose()?;
        let heap = Arc::clone(self.engine.heap());
        landed.iter().flat_map(Landed::all).for_each(|extent| heap.runs().hold(extent));
        let mut patched = None;
        let done = self.execute(writer, |engine, writer| {
            let mut txn = engine.transaction([TxnKey { space: key.space, key: &key.bytes }], now_ms);
            txn.check_writable(writer, key.space, &key.bytes)?;
            let old = txn.patchable(key.space, &key.bytes)?.ungated();
            let Some(old) = old.filter(|old| old.len < PATCHED_MAX) else { return Ok(None) };
            let at = at.map(|at| at % (old.len + PATCHED_GAP_MAX));
            let change = landed.as_ref().map_or(landfall_heap::Change::Bytes(&bytes), |landed| {
                landfall_heap::Change::Landed(&landed.value, None)
            });
            txn.patch(key.space, &key.bytes, at.map_or(Place::End, Place::At), change)?;
            patched = Some((at.unwrap_or(old.len), old.expiry_ms));
            txn.commit(writer, 5).map(Some)
        });
        landed.iter().flat_map(Landed::all).for_each(|extent| heap.runs().release(extent));
        run.into_iter().for_each(|run| heap.retire_landing_run(run));
        match (done?, patched) {
            (Some(Some(done)), Some((at, expiry_ms))) => {
                let old = self.oracle.newest(now_ms).get(key).cloned();
                let old = old.ok_or_else(|| Violation(format!("{key:?} was changed and is not there")))?;
                ensure!(old.expiry_ms == expiry_ms, "{key:?} expires at another time than it should");
                let mut new = old.bytes.to_vec();
                new.resize(new.len().max(at + bytes.len()), 0);
                new[at..at + bytes.len()].copy_from_slice(&bytes);
                let changes = vec![(key.clone(), Some(Value { bytes: new.into(), expiry_ms }))];
                self.note_transaction(writer, changes, std::slice::from_ref(key), &done);
                Ok(())
            }
            (Some(None), None) if piece.seed.is_multiple_of(3) => {
                self.set(writer, key, Piece { len: PIECES_FROM as usize + piece.len, seed: piece.seed }, 0)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn land(
        &mut self,
        writer: usize,
        key: &Key,
        piece: Piece,
        pieces: usize,
    ) -> Result<(), Violation> {
        let heap = Arc::clone(self.engine.heap());
        let Some(run) = heap.take_landing_run() else { return Ok(()) };
        let landed = Landed::store(&self.media, run, key, &value(piece), pieces)?;
        landed.all().for_each(|extent| heap.runs().hold(extent));
        let source = Source::Landed { extents: &landed.value, crc: None };
        let done = self
            .execute(writer, |engine, writer| engine.set(writer, &request(key, source, Some(landed.key), 0)));
        landed.all().for_each(|extent| heap.runs().release(extent));
        heap.retire_landing_run(run);
        if done?.is_some() {
            let bytes = landed.bytes.as_slice().into();
            self.oracle.note(writer, Change::Keys(vec![(key.clone(), Some(Value { bytes, expiry_ms: 0 }))]));
        }
        Ok(())
    }

    pub(super) fn flush_all(&mut self, writer: usize) -> Result<(), Violation> {
        if self.execute(writer, |engine, writer| engine.flush_all(writer, 5))?.is_some() {
            self.oracle.note(writer, Change::Flush);
        }
        Ok(())
    }

    pub(super) fn purge(&mut self, writer: usize) -> Result<(), Violation> {
        let now_ms = self.now_ms;
        // Expired keys are never found, whether they are purged or not, so that the oracle need not know.
        // What has to wait is left as long as there is something else.
        let purge = |engine: &Engine, writer: &mut Writer| engine.purge_expired(writer, now_ms, 1000);
        while self.execute(writer, purge)?.is_some_and(|purged| purged > 0) {}
        let due = self.engine.next_expiry_ms();
        ensure!(due.is_none_or(|due| due > now_ms) || self.is_crowded(), "expired keys are left: {due:?}");
        Ok(())
    }

    pub(super) fn churn(&mut self, writer: usize, count: usize, seed: u64) -> Result<(), Violation> {
        let mut rng = Rng::new(seed);
        for step in 0..count {
            let target = key(7 * (1 + rng.below(CHURN_KEYS) as usize % 3) + rng.below(2) as usize);
            if rng.one_in(3) {
                self.delete(writer, &target)?;
            } else {
                let value = Piece { len: rng.between(0, 12), seed: rng.draw() };
                self.set(writer, &target, value, 0)?;
            }
            if step % CHURN_BATCH == CHURN_BATCH - 1 {
                self.commit(writer)?;
            }
        }
        Ok(())
    }
}

pub(super) fn request<'a>(
    key: &'a Key,
    value: Source<'a>,
    key_at: Option<Extent>,
    expiry_ms: u64,
) -> SetRequest<'a> {
    SetRequest { space: key.space, key: &key.bytes, key_at, value, expiry_ms, arrival_ns: 5 }
}

fn stage(txn: &mut landfall_kv::Txn<'_>, key: &Key, value: Option<&Value>) -> Result<(), KvError> {
    match value {
        Some(value) => txn.put_bytes(key.space, &key.bytes, value.bytes.to_vec(), value.expiry_ms),
        None => drop(txn.delete(key.space, &key.bytes)?.ungated()),
    }
    Ok(())
}

/// A violation if a transaction reads another value of a key than expected.
fn wrong_read(txn: &landfall_kv::Txn<'_>, expected: &State, key: &Key) -> Result<Option<Violation>, KvError> {
    let found = txn.read(key.space, &key.bytes)?.ungated().map(|item| item.to_vec()).transpose()?;
    let wanted = expected.get(key).map(|value| value.bytes.to_vec());
    Ok((found != wanted).then(|| Violation(format!("a transaction reads {key:?} as another value"))))
}

/// Keeps the last write of each key in a group.
fn last_of_each(keys: Vec<(Key, Option<Value>)>) -> Vec<(Key, Option<Value>)> {
    let mut last: Vec<(Key, Option<Value>)> = Vec::new();
    for (key, value) in keys {
        last.retain(|(known, _)| *known != key);
        last.push((key, value));
    }
    last
}

/// A key and a value as a transport leaves them in a landing run.
struct Landed {
    key: Extent,
    value: Vec<Extent>,
    bytes: Vec<u8>,
}

impl Landed {
    /// Stores the key, then the value in `pieces` pieces with gaps between them.
    fn store(media: &SimMedia, run: u64, key: &Key, value: &[u8], pieces: usize) -> Result<Self, Violation> {
        let value = &value[..value.len().min(RUN_SIZE as usize / 2)];
        media.store(run, &key.bytes)?;
        let mut landed =
            Self { key: Extent::new(run, key.bytes.len() as u32), value: Vec::new(), bytes: value.to_vec() };
        let mut at = run + key.bytes.len() as u64 + 3;
        for piece in value.chunks(value.len().div_ceil(pieces).max(1)) {
            media.store(at, piece)?;
            landed.value.push(Extent::new(at, piece.len() as u32).with_sum(Some(Sum::of(piece))));
            at += piece.len() as u64 + 77;
        }
        Ok(landed)
    }

    fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        std::iter::once(self.key).chain(self.value.iter().copied())
    }
}
