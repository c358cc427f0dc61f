//! Opening an engine: the heap's records become an index again.
//!
//! The caller brings the threads. [`Recovery::scan_some`] may run on any number of them until it returns
//! false, then [`Recovery::index_some`] likewise, then [`Recovery::settle`] once (and all three again if it says
//! so), then [`Recovery::adopt_some`] and [`Recovery::build_some`], each on any number, then
//! [`Recovery::finish`].

mod current;
mod keys;

use crate::engine::Engine;
use crate::error::KvError;
use crate::shard::{Lookup, Shard};
use crate::tenants::Tenants;
use current::CurrentSlots;
use keys::Keys;
use landfall_heap::{
    Damage, DamagedSlot, Found, Heap, Kind, Opening, RecordView, Resolved, Scanned, SlotId, Tenant,
};
use landfall_media::Media;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Records read below the watermarks.
    pub records: u64,
    /// What became of the records above them.
    pub resolved: Resolved,
    /// Records with one flipped bit, corrected.
    pub corrected: Vec<SlotId>,
    /// Slots that cannot be read.
    pub damaged: Vec<DamagedSlot>,
    /// Keys whose value is lost because its list of extents is damaged.
    pub damaged_values: u64,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// Records of one shard that wait for each other before they go into the index: each of them would miss the
/// caches by itself, while many of one shard find its table there.
const SHARE_MAX: usize = 4096;

/// A record that may become current.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hash: u64,
    slot: SlotId,
    kind: Kind,
}

/// An engine being opened.
#[derive(Debug)]
pub struct Recovery {
    opening: Opening,
    shards: Box<[Mutex<Shard>]>,
    /// Candidates of each shard that are not in the index yet.
    waiting: Box<[Mutex<Vec<Candidate>>]>,
    current: CurrentSlots,
    /// Keys of each shard, in no order yet.
    keys: Box<[Mutex<Keys>]>,
    next_unit: AtomicUsize,
    next_indexed: AtomicUsize,
    next_adopted: AtomicUsize,
    next_shard: AtomicUsize,
    flush_seq: AtomicU64,
    /// The flush mark that was known when the current pass began.
    pass_flush_seq: u64,
    flush_mark: Mutex<Option<Found>>,
    /// Records whose long keys do not match their hash: superseded and their frames used again, or damaged.
    keyless: Mutex<Vec<Found>>,
    tenants: Tenants,
    report: Mutex<Recovered>,
}

impl Recovery {
    /// Begins recovery of the region on `media` into `shards` shards, a power of two.
    ///
    /// # Errors
    /// All the ways in which the region cannot be opened.
    pub fn begin(media: Arc<dyn Media>, shards: usize) -> Result<Self, KvError> {
        Self::begin_with(media, shards, Vec::new())
    }

    /// The same of a region that other systems' records share: each takes its own.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_with(
        media: Arc<dyn Media>,
        shards: usize,
        tenants: Vec<Arc<dyn Tenant>>,
    ) -> Result<Self, KvError> {
        assert!(shards.is_power_of_two());
        let tenants = Tenants::new(tenants);
        let opening = Opening::begin(media)?;
        tenants.check_features(opening.heap())?;
        let report = Recovered { notes: opening.notes.clone(), ..Recovered::default() };
        let recovery = Self {
            current: CurrentSlots::new(opening.units()),
            waiting: (0..shards).map(|_| Mutex::default()).collect(),
            opening,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            keys: (0..shards).map(|_| Mutex::default()).collect(),
            next_unit: AtomicUsize::new(0),
            next_indexed: AtomicUsize::new(0),
            next_adopted: AtomicUsize::new(0),
            next_shard: AtomicUsize::new(0),
            flush_seq: AtomicU64::new(0),
            pass_flush_seq: 0,
            flush_mark: Mutex::new(None),
            keyless: Mutex::new(Vec::new()),
            tenants,
            report: Mutex::new(report),
        };
        recovery.clear_shards();
        Ok(recovery)
    }

    /// Empty shards with room for what the slabs hold.
    fn clear_shards(&self) {
        let records: usize = self.opening.units().iter().map(|unit| unit.filled()).sum();
        let share = records / self.shards.len();
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::with_room(share + share / 8));
    }

    /// Recovers on the calling thread alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn run(media: Arc<dyn Media>, shards: usize) -> Result<(Engine, Recovered), KvError> {
        Self::run_with(media, shards, Vec::new())
    }

    /// The same with other systems.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn run_with(
        media: Arc<dyn Media>,
        shards: usize,
        tenants: Vec<Arc<dyn Tenant>>,
    ) -> Result<(Engine, Recovered), KvError> {
        let mut recovery = Self::begin_with(media, shards, tenants)?;
        loop {
            while recovery.scan_some()? {}
            while recovery.index_some()? {}
            if !recovery.settle()? {
                break;
            }
        }
        while recovery.adopt_some()? {}
        while recovery.build_some()? {}
        recovery.finish()
    }

    /// Slabs scanned or begun, and slabs in all: for showing progress.
    pub fn progress(&self) -> (usize, usize) {
        let total = self.opening.units().len();
        (self.next_unit.load(Ordering::Relaxed).min(total), total)
    }

    /// Scans the next slab; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn scan_some(&self) -> Result<bool, KvError> {
        let index = self.next_unit.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = self.opening.units().get(index) else { return Ok(false) };
        let mut candidates: Vec<Vec<Candidate>> = vec![Vec::new(); self.shards.len()];
        let scanned = self.opening.scan(unit, |found, view| {
            if let Some(candidate) = self.take(&found, view) {
                candidates[self.shard_index(found.hash)].push(candidate);
            }
        })?;
        self.add_report(scanned);
        self.tenants.check()?;
        for (shard, mut some) in candidates.into_iter().enumerate() {
            let mut waiting = self.waiting[shard].lock();
            waiting.append(&mut some);
            if waiting.len() >= SHARE_MAX {
                let full = std::mem::take(&mut *waiting);
                drop(waiting);
                self.index(shard, &full)?;
            }
        }
        Ok(true)
    }

    /// Lets candidates of one shard contest for their keys.
    fn index(&self, shard: usize, candidates: &[Candidate]) -> Result<(), KvError> {
        let mut shard = self.shards[shard].lock();
        candidates.iter().try_for_each(|candidate| self.contest(&mut shard, candidate))
    }

    /// Indexes what still waits of the next shard; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn index_some(&self) -> Result<bool, KvError> {
        let shard = self.next_indexed.fetch_add(1, Ordering::Relaxed);
        let Some(waiting) = self.waiting.get(shard) else { return Ok(false) };
        self.index(shard, &std::mem::take(&mut *waiting.lock()))?;
        Ok(true)
    }

    fn add_report(&self, scanned: Scanned) {
        let mut report = self.report.lock();
        report.records += scanned.records;
        self.tenants.take_damaged(&scanned);
        report.corrected.extend(scanned.corrected);
        report.damaged.extend(scanned.damaged);
        let lost = |slot| DamagedSlot { slot, what: Damage::Lost, named: None };
        report.damaged.extend(scanned.holes.into_iter().map(lost));
    }

    /// The record as a candidate, unless it is something else.
    fn take(&self, found: &Found, view: &RecordView<'_>) -> Option<Candidate> {
        if self.tenants.take(self.opening.heap(), found, view) {
            return None;
        }
        if found.kind == Kind::Flush {
            self.take_flush(found);
            return None;
        }
        if found.seq < self.pass_flush_seq {
            return None;
        }
        let heap = self.opening.heap();
        if heap.key(view).is_ok_and(|key| heap.hash(found.space, key) == found.hash) {
            return Some(Candidate { hash: found.hash, slot: found.slot, kind: found.kind });
        }
        // Which of the two it is can be told once everything has been read.
        self.keyless.lock().push(*found);
        None
    }

    /// Lets a record contest with the one that the shard knows of its key: the higher (version, revision) is
    /// current, the other is stale.
    fn contest(&self, shard: &mut Shard, candidate: &Candidate) -> Result<(), KvError> {
        if shard.has_tag(candidate.hash) {
            let heap = self.opening.heap();
            let view = heap.record(candidate.slot)?;
            let lookup = Lookup { space: view.space(), hash: candidate.hash, key: heap.key(&view)? };
            let put = shard.find(heap, &lookup).ok().flatten();
            let known = put.or_else(|| shard.find_tomb(heap, &lookup).ok().flatten());
            if let Some(known) = known {
                shard.add_stale(candidate.hash);
                if (view.seq(), view.rev()) <= (known.view.seq(), known.view.rev()) {
                    return Ok(());
                }
                shard.remove(candidate.hash, known.slot);
                self.current.clear(known.slot);
            }
        }
        match candidate.kind {
            Kind::Put => {
                shard.insert(candidate.hash, candidate.slot);
                self.current.set(candidate.slot);
            }
            Kind::Tombstone | Kind::Flush | Kind::Bound => shard.add_tomb(candidate.hash, candidate.slot),
        }
        Ok(())
    }

    fn take_flush(&self, found: &Found) {
        let mut current = self.flush_mark.lock();
        let newer = current.is_none_or(|known| (found.seq, found.rev) > (known.seq, known.rev));
        if newer {
            *current = Some(*found);
            self.flush_seq.fetch_max(found.seq, Ordering::AcqRel);
        }
    }

    fn shard_index(&self, hash: u64) -> usize {
        hash as usize & (self.shards.len() - 1)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[self.shard_index(hash)]
    }

    /// Settles what lies above the watermarks. True: a flush mark was found, so that older records must
    /// not count; scan and settle once more.
    ///
    /// # Errors
    /// The medium's.
    pub fn settle(&mut self) -> Result<bool, KvError> {
        assert!(
            self.waiting.iter_mut().all(|waiting| waiting.get_mut().is_empty()),
            "index_some comes first"
        );
        let (shards, flush_seq) = (&self.shards, self.flush_seq.load(Ordering::Acquire));
        let heap_newest =
            |heap: &Heap, hash: u64| newest(&shards[hash as usize & (shards.len() - 1)].lock(), heap, hash).0;
        let mut accepted = Vec::new();
        let own = |heap: &Heap, hash: u64, seq: u64| seq < flush_seq || heap_newest(heap, hash) > seq;
        let resolved = self.opening.resolve(&self.tenants.judge(own), |found, _| accepted.push(found))?;
        for found in &accepted {
            if let Some(candidate) = self.take(found, &self.opening.heap().record(found.slot)?) {
                self.contest(&mut self.shard(found.hash).lock(), &candidate)?;
            }
        }
        if resolved != Resolved::default() {
            self.report.lock().resolved = resolved;
        }
        let flush_seq = self.flush_seq.load(Ordering::Acquire);
        let again = flush_seq != self.pass_flush_seq;
        if again {
            self.restart(flush_seq);
        } else {
            self.settle_keyless();
            self.tenants.settle(self.opening.heap())?;
        }
        Ok(again)
    }

    /// A record without its key is stale if something newer has its hash. So is a tombstone that nothing
    /// older needs. If not, its hash is all that is known of a damaged key.
    fn settle_keyless(&mut self) {
        let (heap, report) = (self.opening.heap(), self.report.get_mut());
        for found in self.keyless.get_mut().drain(..) {
            let mut shard = self.shards[found.hash as usize & (self.shards.len() - 1)].lock();
            let newest = newest(&shard, heap, found.hash);
            let is_done = found.kind == Kind::Tombstone && newest == (0, 0);
            if is_done || newest > (found.seq, found.rev) {
                shard.add_stale(found.hash);
            } else {
                heap.adopt_damaged(found.slot);
                bar(&mut shard, found.hash, found.slot, Damage::KeyHash);
                report.damaged.push(DamagedSlot { slot: found.slot, what: Damage::KeyHash, named: None });
            }
        }
    }

    fn restart(&mut self, flush_seq: u64) {
        self.pass_flush_seq = flush_seq;
        self.tenants.restart();
        let report = self.report.get_mut();
        report.records = 0;
        report.damaged.clear();
        self.keyless.get_mut().clear();
        self.current.clear_all();
        self.clear_shards();
        self.next_unit.store(0, Ordering::Relaxed);
        self.next_indexed.store(0, Ordering::Relaxed);
    }

    /// Counts what the current records of the next slab refer to, and notes their keys; false when none is
    /// left. Slab by slab, because records are read fastest where they lie one after the other.
    ///
    /// # Errors
    /// The medium's.
    pub fn adopt_some(&self) -> Result<bool, KvError> {
        let index = self.next_adopted.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = self.opening.units().get(index) else {
            return self.adopt_tenants();
        };
        let heap = self.opening.heap();
        let mut keys: Vec<Keys> = Vec::new();
        keys.resize_with(self.shards.len(), Keys::default);
        for slot in self.current.of_slab(index, unit.run) {
            let view = heap.record(slot)?;
            if view.expiry_ms() != 0 {
                let mut shard = self.shard(view.hash()).lock();
                shard.set_expiry(view.space(), view.hash(), 0, view.expiry_ms());
            }
            keys[self.shard_index(view.hash())].push(view.space(), heap.key(&view)?);
            self.adopt(slot, &view)?;
        }
        for (all, some) in self.keys.iter().zip(&mut keys) {
            all.lock().append(some);
        }
        Ok(true)
    }

    /// Counts what some of the other systems' records refer to; false when none is left.
    fn adopt_tenants(&self) -> Result<bool, KvError> {
        let heap = self.opening.heap();
        self.tenants.visit_some(&mut |slot| {
            let view = heap.record(slot)?;
            self.adopt(slot, &view)
        })
    }

    /// Orders the keys of the next shard; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn build_some(&self) -> Result<bool, KvError> {
        let index = self.next_shard.fetch_add(1, Ordering::Relaxed);
        let Some(shard) = self.shards.get(index) else { return Ok(false) };
        let mut shard = shard.lock();
        let order = std::mem::take(&mut *self.keys[index].lock()).into_order();
        order.iter().for_each(|key| shard.count(key[0], 1));
        shard.order = order;
        self.keep_tombs(&mut shard)?;
        shard.shrink();
        Ok(true)
    }

    /// Keeps the tombstones that something older on the medium needs; the others have done their work.
    fn keep_tombs(&self, shard: &mut Shard) -> Result<(), KvError> {
        let tombs: Vec<SlotId> = shard.tombs.iter().map(|entry| entry.slot).collect();
        for slot in tombs {
            let view = self.opening.heap().record(slot)?;
            if shard.has_stale(view.hash()) {
                self.adopt(slot, &view)?;
            } else {
                shard.drop_tomb(view.hash(), slot, view.seq());
            }
        }
        Ok(())
    }

    fn adopt(&self, slot: SlotId, view: &RecordView<'_>) -> Result<(), KvError> {
        match self.opening.adopt(slot, view).map_err(KvError::from) {
            // The slot stays current, so that the key is answered with an error, not with an old value.
            Err(KvError::Damaged { .. }) => self.report.lock().damaged_values += 1,
            other => other?,
        }
        Ok(())
    }

    /// Ends recovery.
    ///
    /// # Errors
    /// The medium's.
    pub fn finish(self) -> Result<(Engine, Recovered), KvError> {
        let mark = *self.flush_mark.lock();
        if let Some(mark) = mark {
            self.shard(mark.hash).lock().add_tomb(mark.hash, mark.slot);
            self.adopt(mark.slot, &self.opening.heap().record(mark.slot)?)?;
        }
        let report = self.report.into_inner();
        let heap = self.opening.finish()?;
        for damaged in &report.damaged {
            heap.pin_slab(damaged.slot);
            if let Some((space, _, hash)) = &damaged.named
                && !self.tenants.own(*space)
            {
                heap.adopt_damaged(damaged.slot);
                let shard = &self.shards[*hash as usize & (self.shards.len() - 1)];
                bar(&mut shard.lock(), *hash, damaged.slot, damaged.what);
            }
        }
        Ok((Engine::new(heap, self.shards, self.pass_flush_seq), report))
    }
}

/// The newest version and revision of a hash that the shard knows of.
fn newest(shard: &Shard, heap: &Heap, hash: u64) -> (u64, u32) {
    let version = |slot| {
        let view = heap.record(slot).ok().filter(|view| view.hash() == hash);
        view.map_or((0, 0), |view| (view.seq(), view.rev()))
    };
    shard.slots_of(hash).chain(shard.tombs_of(hash)).map(version).max().unwrap_or_default()
}

/// Answers every key of a hash with an error: its newest record is unreadable, and an older one must not
/// pass for it.
fn bar(shard: &mut Shard, hash: u64, slot: SlotId, what: Damage) {
    shard.damaged.insert(hash, what);
    shard.unreadable.push((hash, slot));
}
