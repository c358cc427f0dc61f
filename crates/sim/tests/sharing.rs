//! Tests of shared bytes. A canary: if the mark that a record shares its bytes is left out, the checks must fail.

mod common;

use common::{create, medium, reopen, set};
use landfall_heap::{Change, CompactGoal, Compactor, Entry, Kind, Patch, Source, Writer};
use landfall_kv::{Engine, Pieces, Place, Txn, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media};
use landfall_sim::{Rng, Violation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Copies a key by reference, and recounts after a restart. Without `says_so`, the second record lacks the mark that it
/// shares its bytes, as if the key had been renamed.
fn copied(says_so: bool) -> Result<(), Violation> {
    let (media, engine) = create(32, SimOptions::default());
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    set(&engine, &mut writer, b"original", &[7; 5000]);
    let keys = [&b"original"[..], b"copy"].map(|key| TxnKey { space: 0, key });
    let mut txn = engine.transaction(keys, 1);
    let item = txn.read(0, b"original")?.ungated().expect("is there");
    match says_so {
        true => txn.copy_item(0, b"copy", &item, 0)?,
        false => txn.put_item(0, b"copy", &item, 0),
    }
    drop(item);
    txn.commit(&mut writer, 1)?.ungated();
    writer.commit_now()?;
    landfall_sim::recount(&engine, 1)?;
    landfall_sim::recount(&reopen(&medium(media.crash_state().durable())), 0)
}

#[test]
fn a_copy_without_the_mark_that_it_shares_is_caught() {
    copied(true).expect("every count adds up");
    let caught = copied(false).expect_err("bytes are counted twice after the restart");
    assert!(caught.to_string().contains("live bytes"), "{caught}");
}

/// A long value of which a byte is changed. Without `takes_over` the version before goes as if nothing of it was
/// kept.
fn changed(takes_over: bool) -> u32 {
    let (_, engine) = create(32, SimOptions::default());
    let heap = engine.heap();
    let mut writer = Writer::new(Arc::clone(heap), 0);
    let old = set(&engine, &mut writer, b"key", &[7; 300_000]);
    writer.commit_now().expect("commits");
    let view = heap.record(old).expect("whole");
    let kept = heap.value_extents(old, &view).expect("whole")[0];
    let mut patch = Patch::of(heap, old, &view).expect("whole").expect("is kept in pieces");
    patch.append(heap, Change::Bytes(b"8")).expect("in bounds");
    let entry = Entry {
        kind: Kind::Put,
        space: 0,
        hash: view.hash(),
        key: b"key",
        key_at: None,
        value: Source::Patched(&patch),
        arrival_ns: 1,
        expiry_ms: 0,
        aux: 0,
    };
    let new = writer.append(&entry).expect("there is room");
    match takes_over {
        true => writer.supersede_patched(new, &patch),
        false => writer.supersede(old),
    }
    writer.commit_now().expect("commits");
    heap.runs().frame_refs(kept.off)
}

#[test]
fn a_change_that_does_not_take_over_what_it_keeps_is_caught() {
    assert_eq!((changed(true), changed(false)), (1, 0));
}

const KEYS: usize = 8;
const TRANSACTIONS: usize = 250;
/// A value is cut to this length, so that the region never fills.
const LEN_MAX: usize = 500_000;

type Model = BTreeMap<usize, Vec<u8>>;

fn name(key: usize) -> Vec<u8> {
    // Some names leave no room for a value in the record, some lie in frames themselves.
    let mut name = format!("key{key}").into_bytes();
    name.resize([5, 30, 50, 120][key % 4], b'k');
    name
}

/// A region, and the expected values of its keys.
struct Shared {
    media: Arc<SimMedia>,
    engine: Engine,
    writer: Writer,
    compactor: Compactor,
    model: Model,
    rng: Rng,
    /// Extents that have landed for the current transaction. They are held until it has ended.
    landed: Vec<Extent>,
}

impl Shared {
    fn around(media: Arc<SimMedia>, engine: Engine, model: Model, rng: Rng) -> Self {
        let heap = Arc::clone(engine.heap());
        let (writer, compactor) = (Writer::new(Arc::clone(&heap), 0), Compactor::new(heap));
        Self { media, engine, writer, compactor, model, rng, landed: Vec::new() }
    }

    fn land(&mut self, bytes: &[u8]) -> Extent {
        let heap = self.engine.heap();
        let run = heap.take_landing_run().expect("the region is nearly empty");
        let extent = Extent::new(run + self.rng.below(5000), bytes.len() as u32);
        self.media.store(extent.off, bytes).expect("in bounds");
        heap.runs().hold(extent);
        heap.retire_landing_run(run);
        self.landed.push(extent);
        extent
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len_max = [60, 3000, 100_000, 400_000][self.rng.between(0, 3)];
        let (len, seed) = (self.rng.between(1, len_max), self.rng.draw());
        (0..len).map(|index| ((index as u64 + 1).wrapping_mul(seed | 1) >> 56) as u8).collect()
    }

    /// Executes up to four changes as one transaction.
    fn transaction(&mut self) -> Result<(), Violation> {
        let names: Vec<Vec<u8>> = (0..KEYS).map(name).collect();
        let mut model = self.model.clone();
        let changes = self.rng.between(1, 4);
        let plan: Vec<(u64, usize, usize, Vec<u8>)> = (0..changes)
            .map(|_| {
                let (kind, from) = (self.rng.below(16), self.rng.between(0, KEYS - 1));
                let to = self.rng.between(0, KEYS - 1);
                (kind, from, to, self.bytes())
            })
            .collect();
        let landed: Vec<Extent> = plan.iter().map(|(.., bytes)| self.land(bytes)).collect();
        let keys = names.iter().map(|key| TxnKey { space: 0, key });
        let mut txn = self.engine.transaction(keys, 1);
        for ((kind, from, to, bytes), landed) in plan.iter().zip(&landed) {
            change(&mut txn, &mut model, (*kind, *from, *to), bytes, *landed)?;
        }
        txn.commit(&mut self.writer, 1)?.ungated();
        self.model = model;
        self.landed.drain(..).for_each(|extent| self.engine.heap().runs().release(extent));
        Ok(())
    }

    fn check(&mut self) -> Result<(), Violation> {
        self.writer.commit_now()?;
        self.compactor.leave_victim();
        for key in 0..KEYS {
            let found = self.engine.get(0, &name(key), 1)?.ungated();
            let found = found.map(|item| item.to_vec()).transpose()?;
            assert!(found.as_ref() == self.model.get(&key), "key {key} has another value");
        }
        landfall_sim::recount(&self.engine, 6)
    }

    fn restarted(mut self) -> Result<Self, Violation> {
        self.check()?;
        let media = medium(self.media.crash_state().durable());
        let engine = reopen(&media);
        let mut again = Self::around(media, engine, self.model, self.rng);
        again.check().map(|()| again)
    }
}

/// Makes one change of `kind` in the transaction and in the model.
fn change(
    txn: &mut Txn<'_>,
    model: &mut Model,
    (kind, from, to): (u64, usize, usize),
    bytes: &[u8],
    landed: Extent,
) -> Result<(), Violation> {
    let (source, target) = (name(from), name(to));
    let item = txn.read(0, &source)?.ungated();
    if kind >= 12 {
        drop(item);
        return patch(txn, model, from, bytes, if kind < 14 { Some(landed) } else { None });
    }
    match (kind, item) {
        (0..2, _) => {
            txn.put_landed(0, &source, None, &[landed], None, 0);
            model.insert(from, bytes.to_vec());
        }
        (2..6, Some(item)) if from != to => {
            txn.copy_item(0, &target, &item, 0)?;
            model.insert(to, model[&from].clone());
        }
        (6..9, Some(item)) if !item.extents().is_empty() && item.len < LEN_MAX => {
            let at = bytes.len() % (item.len + 1);
            let pieces = patched(item.extents(), at, landed);
            txn.put_pieces(0, &source, Pieces { all: &pieces, landed: &[landed], of: &item }, None, 0);
            let value = model.get_mut(&from).expect("it was read");
            value.resize(value.len().max(at + bytes.len()), 0);
            value[at..at + bytes.len()].copy_from_slice(bytes);
        }
        (9, Some(item)) => txn.put_item(0, &source, &item, u64::MAX),
        (10, Some(item)) if from != to => {
            txn.delete(0, &source)?.ungated();
            txn.put_item(0, &target, &item, 0);
            let value = model.remove(&from).expect("it was read");
            model.insert(to, value);
        }
        (11, Some(_)) => {
            txn.delete(0, &source)?.ungated();
            model.remove(&from);
        }
        _ => {}
    }
    Ok(())
}

/// Changes a part of a value that is kept in pieces.
fn patch(
    txn: &mut Txn<'_>,
    model: &mut Model,
    key: usize,
    bytes: &[u8],
    landed: Option<Extent>,
) -> Result<(), Violation> {
    let old = txn.patchable(0, &name(key))?.ungated();
    let Some(old) = old.filter(|old| old.len < LEN_MAX) else { return Ok(()) };
    let at = (!bytes.len().is_multiple_of(3)).then(|| bytes.len() * 7919 % (old.len + 1000));
    let landed = landed.as_slice();
    let change = if landed.is_empty() { Change::Bytes(bytes) } else { Change::Landed(landed, None) };
    txn.patch(0, &name(key), at.map_or(Place::End, Place::At), change)?;
    let value = model.get_mut(&key).expect("it was found");
    let at = at.unwrap_or(value.len());
    value.resize(value.len().max(at + bytes.len()), 0);
    value[at..at + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// The pieces of a value whose bytes from `at` on are overwritten by `landed`.
fn patched(extents: &[Extent], at: usize, landed: Extent) -> Vec<Extent> {
    let (mut off, mut before, mut after) = (0, Vec::new(), Vec::new());
    let end = at + landed.len() as usize;
    for extent in extents {
        let len = extent.len() as usize;
        let kept = at.saturating_sub(off).min(len);
        if kept > 0 {
            before.push(Extent::new(extent.off, kept as u32));
        }
        let skipped = end.saturating_sub(off).min(len);
        if skipped < len {
            after.push(Extent::new(extent.off + skipped as u64, (len - skipped) as u32));
        }
        off += len;
    }
    before.into_iter().chain([landed]).chain(after).collect()
}

fn campaign(seed: u64) -> Result<u64, Violation> {
    let (media, engine) = create(48, SimOptions::default());
    let mut shared = Shared::around(media, engine, Model::new(), Rng::new(seed));
    let mut moved = 0;
    for _ in 0..TRANSACTIONS {
        shared.transaction()?;
        match shared.rng.below(12) {
            0..4 => shared.writer.commit_now()?,
            4..8 => {
                let goal = [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS][shared.rng.between(0, 1)];
                let budget = 1 << shared.rng.between(10, 20);
                moved += shared.compactor.step(&shared.engine, goal, budget)?.moved_records;
            }
            8 | 9 => shared.check()?,
            10 => shared = shared.restarted()?,
            _ => {}
        }
    }
    shared.restarted().map(|_| moved)
}

#[test]
fn each_byte_counts_once_through_copies_patches_renames_and_moves() {
    let moved: u64 = common::over_seeds("sharing", 12, campaign).into_iter().sum();
    assert!(moved > 100 || common::seeds_are_chosen(), "{moved} records were moved");
}
