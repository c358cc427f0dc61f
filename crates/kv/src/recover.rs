//! Opening an engine: the heap's records become an index again.
//!
//! The caller brings the threads. [`Recovery::scan_some`] may run on any number of them until it returns
//! false, then [`Recovery::settle`] once (and both again if it says so), then [`Recovery::build_some`] on
//! any number, then [`Recovery::finish`].

use crate::engine::Engine;
use crate::error::KvError;
use crate::shard::{Lookup, OrderedKey, Shard, ordered_key};
use landfall_heap::{Damage, DamagedSlot, Found, Heap, Kind, Opening, RecordView, Resolved, Scanned, SlotId};
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

/// An engine being opened.
#[derive(Debug)]
pub struct Recovery {
    opening: Opening,
    shards: Box<[Mutex<Shard>]>,
    next_unit: AtomicUsize,
    next_shard: AtomicUsize,
    flush_seq: AtomicU64,
    /// The flush mark that was known when the current pass began.
    pass_flush_seq: u64,
    flush_mark: Mutex<Option<Found>>,
    /// Records whose long keys do not match their hash: superseded and their frames used again, or damaged.
    keyless: Mutex<Vec<Found>>,
    report: Mutex<Recovered>,
}

impl Recovery {
    /// Begins recovery of the region on `media` into `shards` shards, a power of two.
    ///
    /// # Errors
    /// All the ways in which the region cannot be opened.
    pub fn begin(media: Arc<dyn Media>, shards: usize) -> Result<Self, KvError> {
        assert!(shards.is_power_of_two());
        let opening = Opening::begin(media)?;
        let report = Recovered { notes: opening.notes.clone(), ..Recovered::default() };
        Ok(Self {
            opening,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            next_unit: AtomicUsize::new(0),
            next_shard: AtomicUsize::new(0),
            flush_seq: AtomicU64::new(0),
            pass_flush_seq: 0,
            flush_mark: Mutex::new(None),
            keyless: Mutex::new(Vec::new()),
            report: Mutex::new(report),
        })
    }

    /// Recovers on the calling thread alone.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn run(media: Arc<dyn Media>, shards: usize) -> Result<(Engine, Recovered), KvError> {
        let mut recovery = Self::begin(media, shards)?;
        loop {
            while recovery.scan_some()? {}
            if !recovery.settle()? {
                break;
            }
        }
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
        let scanned = self.opening.scan(unit, |found, view| self.take(&found, view))?;
        self.add_report(scanned);
        Ok(true)
    }

    fn add_report(&self, scanned: Scanned) {
        let mut report = self.report.lock();
        report.records += scanned.records;
        report.corrected.extend(scanned.corrected);
        report.damaged.extend(scanned.damaged);
    }

    /// Takes a record into the index, if it is the newest of its key so far.
    fn take(&self, found: &Found, view: &RecordView<'_>) {
        if found.kind == Kind::Flush {
            return self.take_flush(found);
        }
        if found.seq < self.pass_flush_seq {
            return;
        }
        let heap = self.opening.heap();
        let mut shard = self.shard(found.hash).lock();
        match heap.key(view) {
            Ok(key) if heap.hash(found.space, key) == found.hash => contest(&mut shard, heap, found, key),
            // Which of the two it is can be told once everything has been read.
            _ => self.keyless.lock().push(*found),
        }
    }

    fn take_flush(&self, found: &Found) {
        let mut current = self.flush_mark.lock();
        let newer = current.is_none_or(|known| (found.seq, found.rev) > (known.seq, known.rev));
        if newer {
            *current = Some(*found);
            self.flush_seq.fetch_max(found.seq, Ordering::AcqRel);
        }
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[hash as usize & (self.shards.len() - 1)]
    }

    /// Settles what lies above the watermarks. True: a flush mark was found, so that older records must
    /// not count; scan and settle once more.
    ///
    /// # Errors
    /// The medium's.
    pub fn settle(&mut self) -> Result<bool, KvError> {
        let (shards, flush_seq) = (&self.shards, self.flush_seq.load(Ordering::Acquire));
        let heap_newest =
            |heap: &Heap, hash: u64| newest(&shards[hash as usize & (shards.len() - 1)].lock(), heap, hash).0;
        let mut accepted = Vec::new();
        let resolved = self.opening.resolve(
            |heap, hash, seq| seq < flush_seq || heap_newest(heap, hash) > seq,
            |found, _| accepted.push(found),
        )?;
        for found in &accepted {
            self.take(found, &self.opening.heap().record(found.slot)?);
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
        let report = self.report.get_mut();
        report.records = 0;
        report.damaged.clear();
        self.keyless.get_mut().clear();
        self.shards.iter_mut().for_each(|shard| *shard.get_mut() = Shard::default());
        self.next_unit.store(0, Ordering::Relaxed);
    }

    /// Orders the keys of the next shard and counts what its records refer to; false when none is left.
    ///
    /// # Errors
    /// The medium's.
    pub fn build_some(&self) -> Result<bool, KvError> {
        let index = self.next_shard.fetch_add(1, Ordering::Relaxed);
        let Some(shard) = self.shards.get(index) else { return Ok(false) };
        let mut shard = shard.lock();
        let mut keys: Vec<OrderedKey> = Vec::with_capacity(shard.table.len());
        let slots: Vec<SlotId> = shard.table.iter().map(|entry| entry.slot).collect();
        for slot in slots {
            let view = self.opening.heap().record(slot)?;
            keys.push(ordered_key(view.space(), self.opening.heap().key(&view)?));
            shard.count(view.space(), 1);
            shard.set_expiry(view.hash(), 0, view.expiry_ms());
            self.adopt(slot)?;
        }
        self.keep_tombs(&mut shard)?;
        shard.order = keys.into_iter().collect();
        Ok(true)
    }

    /// Keeps the tombstones that something older on the medium needs; the others have done their work.
    fn keep_tombs(&self, shard: &mut Shard) -> Result<(), KvError> {
        let tombs: Vec<SlotId> = shard.tombs.iter().map(|entry| entry.slot).collect();
        for slot in tombs {
            let hash = self.opening.heap().record(slot)?.hash();
            if shard.has_stale(hash) {
                self.adopt(slot)?;
            } else {
                shard.drop_tomb(hash, slot);
            }
        }
        Ok(())
    }

    fn adopt(&self, slot: SlotId) -> Result<(), KvError> {
        match self.opening.adopt(slot).map_err(KvError::from) {
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
            self.adopt(mark.slot)?;
        }
        let report = self.report.into_inner();
        let heap = self.opening.finish()?;
        for damaged in &report.damaged {
            heap.pin_slab(damaged.slot);
            if let Some((_, _, hash)) = &damaged.named {
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

/// Lets a version contest with the one the shard knows: the higher (version, revision) is current, the
/// other is stale.
fn contest(shard: &mut Shard, heap: &Heap, found: &Found, key: &[u8]) {
    let lookup = Lookup { space: found.space, hash: found.hash, key };
    let put = shard.find(heap, &lookup).ok().flatten();
    let known = put.or_else(|| shard.find_tomb(heap, &lookup).ok().flatten());
    let Some(known) = known else { return add(shard, found) };
    shard.add_stale(found.hash);
    if (found.seq, found.rev) > (known.view.seq(), known.view.rev()) {
        shard.remove(found.hash, known.slot);
        add(shard, found);
    }
}

fn add(shard: &mut Shard, found: &Found) {
    match found.kind {
        Kind::Put => shard.insert(found.hash, found.slot),
        Kind::Tombstone | Kind::Flush => shard.add_tomb(found.hash, found.slot),
    }
}

/// Answers every key of a hash with an error: its newest record is unreadable, and an older one must not
/// pass for it.
fn bar(shard: &mut Shard, hash: u64, slot: SlotId, what: Damage) {
    shard.damaged.insert(hash, what);
    shard.unreadable.push((hash, slot));
}
