//! Recovery of the engine: it rebuilds the index from the heap's records.
//!
//! [`Recovery`] is a [`Tenant`] of a [`Region`]. Once the region is open, [`Recovery::open`] returns the engine.
//! [`Recovery::run`] does both on the calling thread.

mod current;
mod keys;

use crate::engine::Engine;
use crate::error::KvError;
use crate::shard::{Lookup, Shard};
use current::CurrentSlots;
use keys::Keys;
use landfall_heap::{
    Damage, DamagedSlot, Found, Heap, HeapError, Judge, Keeper, Kind, RecordView, Recovered, Region,
    ScanUnit, SlabTaker, SlotId, Tenant, spaces,
};
use landfall_media::Media;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Candidates of one shard that are indexed as one batch. A batch keeps the shard's table in the caches, where single
/// candidates would miss them.
const SHARE_MAX: usize = 4096;

/// A record that may become current.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    hash: u64,
    slot: SlotId,
    kind: Kind,
}

/// A record that is either superseded, or the newest record of a damaged key: its long key does not match its hash, or
/// its transaction's commit record may be lost.
#[derive(Clone, Copy, Debug)]
struct Doubtful {
    found: Found,
    what: Damage,
}

/// An engine being opened.
#[derive(Debug)]
pub struct Recovery {
    shards: Box<[Mutex<Shard>]>,
    /// Candidates of each shard that are not indexed yet.
    waiting: Box<[Mutex<Vec<Candidate>>]>,
    /// The slabs and their current slots.
    slabs: OnceLock<(Vec<ScanUnit>, CurrentSlots)>,
    /// Keys of each shard, not sorted yet.
    keys: Box<[Mutex<Keys>]>,
    next_gathered: AtomicUsize,
    next_adopted: AtomicUsize,
    next_shard: AtomicUsize,
    flush_seq: AtomicU64,
    /// The flush mark's version, as it was known when the current pass began.
    pass_flush_seq: AtomicU64,
    flush_mark: Mutex<Option<Found>>,
    /// Records that are either superseded or damaged: [`Tenant::settle`] decides.
    doubtful: Mutex<Vec<Doubtful>>,
    /// Slots that cannot be read, but whose key's hash is known.
    damaged: Mutex<Vec<DamagedSlot>>,
}

impl Recovery {
    /// A recovery into `shards` shards, a power of two.
    pub fn new(shards: usize) -> Self {
        assert!(shards.is_power_of_two());
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            waiting: (0..shards).map(|_| Mutex::default()).collect(),
            slabs: OnceLock::new(),
            keys: (0..shards).map(|_| Mutex::default()).collect(),
            next_gathered: AtomicUsize::new(0),
            next_adopted: AtomicUsize::new(0),
            next_shard: AtomicUsize::new(0),
            flush_seq: AtomicU64::new(0),
            pass_flush_seq: AtomicU64::new(0),
            flush_mark: Mutex::new(None),
            doubtful: Mutex::new(Vec::new()),
            damaged: Mutex::new(Vec::new()),
        }
    }

    /// Recovers a region of keys alone, on the calling thread.
    ///
    /// # Errors
    /// The region cannot be opened; errors of the medium.
    pub fn run(media: Arc<dyn Media>, shards: usize) -> Result<(Engine, Recovered), KvError> {
        Self::run_with(media, shards, Vec::new())
    }

    /// Recovers a region that other tenants share, on the calling thread.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_with(
        media: Arc<dyn Media>,
        shards: usize,
        mut tenants: Vec<Arc<dyn Tenant>>,
    ) -> Result<(Engine, Recovered), KvError> {
        let recovery = Arc::new(Self::new(shards));
        tenants.push(Arc::clone(&recovery) as Arc<dyn Tenant>);
        let (heap, found) = Region::run(media, tenants)?;
        Ok((recovery.open(&heap), found))
    }

    /// Ends recovery and returns the engine. The heap must be open.
    pub fn open(&self, heap: &Arc<Heap>) -> Engine {
        if let Some(mark) = *self.flush_mark.lock() {
            self.shard(mark.hash).lock().add_tomb(mark.hash, mark.slot);
        }
        for damaged in self.damaged.lock().drain(..) {
            if let Some((_, _, hash)) = damaged.named {
                heap.adopt_damaged(damaged.slot);
                mark_damaged(&mut self.shard(hash).lock(), hash, damaged.slot, damaged.what);
            }
        }
        let shards = self.shards.iter().map(|shard| Mutex::new(std::mem::take(&mut *shard.lock()))).collect();
        Engine::new(Arc::clone(heap), shards, self.pass_flush_seq.load(Ordering::Acquire))
    }

    fn slabs(&self) -> &(Vec<ScanUnit>, CurrentSlots) {
        self.slabs.get().expect("a region begins with Tenant::begin")
    }

    /// Replaces the shards by empty ones with room for the records of the slabs.
    fn clear_shards(&self) {
        let records: usize = self.slabs().0.iter().map(ScanUnit::filled).sum();
        let share = records / self.shards.len();
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::with_room(share + share / 8));
    }

    fn shard_index(&self, hash: u64) -> usize {
        hash as usize & (self.shards.len() - 1)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[self.shard_index(hash)]
    }

    /// The record as a candidate; `None` if it is a flush mark, flushed, or doubtful.
    fn candidate(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Option<Candidate> {
        if found.kind == Kind::Flush {
            self.take_flush(found);
            return None;
        }
        if found.seq < self.pass_flush_seq.load(Ordering::Relaxed) {
            return None;
        }
        if heap.may_have_key(view)
            && heap.key(view).is_ok_and(|key| heap.hash(found.space, &key) == found.hash)
        {
            return Some(Candidate { hash: found.hash, slot: found.slot, kind: found.kind });
        }
        // Whether it is superseded or damaged is known once every record has been read.
        self.doubtful.lock().push(Doubtful { found: *found, what: Damage::KeyHash });
        None
    }

    fn take_flush(&self, found: &Found) {
        let mut current = self.flush_mark.lock();
        let newer = current.is_none_or(|known| (found.seq, found.rev) > (known.seq, known.rev));
        if newer {
            *current = Some(*found);
            self.flush_seq.fetch_max(found.seq, Ordering::AcqRel);
        }
    }

    /// Indexes candidates of one shard.
    fn index(&self, heap: &Heap, shard: usize, candidates: &[Candidate]) -> Result<(), HeapError> {
        let mut shard = self.shards[shard].lock();
        candidates.iter().try_for_each(|candidate| self.contest(heap, &mut shard, candidate))
    }

    /// Compares a record with the one that the shard holds for its key. The one with the higher (version, revision) is
    /// current, the other is stale.
    fn contest(&self, heap: &Heap, shard: &mut Shard, candidate: &Candidate) -> Result<(), HeapError> {
        let current = &self.slabs().1;
        if shard.has_tag(candidate.hash) {
            let view = heap.record(candidate.slot)?;
            let key = heap.key(&view)?;
            let lookup = Lookup { space: view.space(), hash: candidate.hash, key: &key };
            let put = shard.find(heap, &lookup).ok().flatten();
            let known = put.or_else(|| shard.find_tomb(heap, &lookup).ok().flatten());
            if let Some(known) = known {
                shard.add_stale(candidate.hash);
                if (view.seq(), view.rev()) <= (known.view.seq(), known.view.rev()) {
                    return Ok(());
                }
                shard.remove(candidate.hash, known.slot);
                current.clear(known.slot);
            }
        }
        match candidate.kind {
            Kind::Put => {
                shard.insert(candidate.hash, candidate.slot);
                current.set(candidate.slot);
            }
            Kind::Tombstone | Kind::Flush | Kind::Bound | Kind::Commit => {
                shard.add_tomb(candidate.hash, candidate.slot);
            }
        }
        Ok(())
    }

    /// Adopts the current records of one slab and gathers their keys. Recovery goes slab by slab, because sequential
    /// reads are the fastest.
    fn adopt_slab(&self, keeper: &dyn Keeper, index: usize, unit: &ScanUnit) -> Result<(), HeapError> {
        let heap = keeper.heap();
        let mut keys: Vec<Keys> = Vec::new();
        keys.resize_with(self.shards.len(), Keys::default);
        for slot in self.slabs().1.of_slab(index, unit.run) {
            keeper.keep(slot, &mut |view| {
                if view.expiry_ms() != 0 {
                    let mut shard = self.shard(view.hash()).lock();
                    shard.set_expiry(view.space(), view.hash(), 0, view.expiry_ms());
                }
                keys[self.shard_index(view.hash())].push(view.space(), &heap.key(view)?);
                Ok(true)
            })?;
        }
        for (all, some) in self.keys.iter().zip(&mut keys) {
            all.lock().append(some);
        }
        Ok(())
    }

    /// Keeps the tombstones of keys with older records on the medium, and drops the others.
    fn keep_tombs(&self, keeper: &dyn Keeper, shard: &mut Shard) -> Result<(), HeapError> {
        let tombs: Vec<SlotId> = shard.tombs.iter().map(|entry| entry.slot).collect();
        for slot in tombs {
            keeper.keep(slot, &mut |view| {
                let is_needed = shard.has_stale(view.hash());
                if !is_needed {
                    shard.drop_tomb(view.hash(), slot, view.seq());
                }
                Ok(is_needed)
            })?;
        }
        Ok(())
    }
}

impl Judge for Recovery {
    fn is_superseded(&self, heap: &Heap, found: &Found) -> bool {
        found.seq < self.flush_seq.load(Ordering::Acquire)
            || newest(&self.shard(found.hash).lock(), heap, found.hash).0 > found.seq
    }

    fn is_flushed(&self, mark: &Found, found: &Found) -> bool {
        is_flushed(mark, found)
    }
}

/// True if a flush mark covers a record: the mark of the record's database, or that of all databases.
pub(crate) fn is_flushed(mark: &Found, found: &Found) -> bool {
    mark.space == found.space || mark.space == u8::MAX
}

impl Tenant for Recovery {
    fn owns(&self, space: u8) -> bool {
        spaces::is_keys(space)
    }

    fn begin(&self, _: &Heap, units: &[ScanUnit]) {
        self.slabs.set((units.to_vec(), CurrentSlots::new(units))).expect("a recovery opens one region");
        self.clear_shards();
    }

    fn restart(&self) {
        self.pass_flush_seq.store(self.flush_seq.load(Ordering::Acquire), Ordering::Release);
        self.doubtful.lock().clear();
        self.damaged.lock().clear();
        self.slabs().1.clear_all();
        self.clear_shards();
        self.next_gathered.store(0, Ordering::Relaxed);
    }

    fn take(&self, heap: &Heap, found: &Found, view: &RecordView<'_>) -> Result<(), HeapError> {
        match self.candidate(heap, found, view) {
            Some(candidate) => self.contest(heap, &mut self.shard(found.hash).lock(), &candidate),
            None => Ok(()),
        }
    }

    fn slab<'t>(&'t self, heap: &'t Heap) -> Option<Box<dyn SlabTaker + 't>> {
        Some(Box::new(SlabCandidates { recovery: self, heap, by_shard: vec![Vec::new(); self.shards.len()] }))
    }

    fn take_damaged(&self, damaged: &DamagedSlot) {
        if damaged.named.is_some() {
            self.damaged.lock().push(damaged.clone());
        }
    }

    fn take_doubtful(&self, found: &Found) {
        if found.seq >= self.pass_flush_seq.load(Ordering::Relaxed) {
            self.doubtful.lock().push(Doubtful { found: *found, what: Damage::Lost });
        }
    }

    /// Indexes the candidates of the next shard that still wait.
    fn gather_some(&self, heap: &Heap) -> Result<bool, HeapError> {
        let shard = self.next_gathered.fetch_add(1, Ordering::Relaxed);
        let Some(waiting) = self.waiting.get(shard) else { return Ok(false) };
        let waiting = std::mem::take(&mut *waiting.lock());
        self.index(heap, shard, &waiting)?;
        Ok(true)
    }

    /// True if this pass has found a flush mark: another pass then skips the records that it covers.
    fn must_rescan(&self) -> bool {
        self.flush_seq.load(Ordering::Acquire) != self.pass_flush_seq.load(Ordering::Acquire)
    }

    /// A doubtful record is stale if a newer record has its hash, or if it is a tombstone and no current record has
    /// its hash. Otherwise its key is damaged, and only the hash of the key is known.
    fn settle(&self, heap: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        assert!(self.waiting.iter().all(|waiting| waiting.lock().is_empty()), "gather_some comes first");
        let mut damaged = Vec::new();
        for Doubtful { found, what } in self.doubtful.lock().drain(..) {
            let mut shard = self.shard(found.hash).lock();
            let newest = newest(&shard, heap, found.hash);
            let is_done = found.kind == Kind::Tombstone && newest == (0, 0);
            if is_done || newest > (found.seq, found.rev) {
                shard.add_stale(found.hash);
            } else {
                heap.adopt_damaged(found.slot);
                mark_damaged(&mut shard, found.hash, found.slot, what);
                damaged.push(DamagedSlot { slot: found.slot, what, named: None });
            }
        }
        Ok(damaged)
    }

    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let index = self.next_adopted.fetch_add(1, Ordering::Relaxed);
        let units = &self.slabs().0;
        if let Some(unit) = units.get(index) {
            self.adopt_slab(keeper, index, unit)?;
        } else if index == units.len()
            && let Some(mark) = *self.flush_mark.lock()
        {
            keeper.keep(mark.slot, &mut |_| Ok(true))?;
        }
        Ok(index <= units.len())
    }

    /// Sorts the keys of the next shard.
    fn finish_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let index = self.next_shard.fetch_add(1, Ordering::Relaxed);
        let Some(shard) = self.shards.get(index) else { return Ok(false) };
        let mut shard = shard.lock();
        let order = std::mem::take(&mut *self.keys[index].lock()).into_order();
        order.iter().for_each(|key| shard.count(key[0], 1));
        shard.order = order;
        self.keep_tombs(keeper, &mut shard)?;
        shard.shrink();
        Ok(true)
    }

    /// `None`: findings name a key by its bytes.
    fn describe(&self, _: u8, _: &[u8]) -> Option<String> {
        None
    }
}

/// The candidates of one slab, by shard.
struct SlabCandidates<'r> {
    recovery: &'r Recovery,
    heap: &'r Heap,
    by_shard: Vec<Vec<Candidate>>,
}

impl SlabTaker for SlabCandidates<'_> {
    fn take(&mut self, found: &Found, view: &RecordView<'_>) {
        if let Some(candidate) = self.recovery.candidate(self.heap, found, view) {
            self.by_shard[self.recovery.shard_index(found.hash)].push(candidate);
        }
    }

    fn end(self: Box<Self>) -> Result<(), HeapError> {
        for (shard, mut some) in self.by_shard.into_iter().enumerate() {
            let mut waiting = self.recovery.waiting[shard].lock();
            waiting.append(&mut some);
            if waiting.len() >= SHARE_MAX {
                let full = std::mem::take(&mut *waiting);
                drop(waiting);
                self.recovery.index(self.heap, shard, &full)?;
            }
        }
        Ok(())
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

/// Marks the keys of a hash as damaged. Their newest record cannot be read, and an older one must not be served in its
/// place.
fn mark_damaged(shard: &mut Shard, hash: u64, slot: SlotId, what: Damage) {
    shard.damaged.insert(hash, what);
    shard.unreadable.push((hash, slot));
}
