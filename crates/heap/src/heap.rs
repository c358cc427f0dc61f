//! The heap itself: a region, its geometry, its runs, and reading what lies in it.

use crate::copies::Copies;
use crate::crc;
use crate::error::{Damage, HeapError};
use crate::evict::Clock;
use crate::free::{FreeGoal, Tend};
use crate::layout::{RECORD_SIZE, RunId, SlotId};
use crate::loader::LoaderPlace;
use crate::pieces::NewPatches;
use crate::pin::Pinned;
use crate::record::{
    Check, Draft, EXTENT_SIZE, ExtentList, Fields, KeyPlace, Kind, RecordView, Seal, Slot, ValuePlace,
};
use crate::run::RunUse;
use crate::runs::Runs;
use crate::slabs::SpareSlab;
use crate::space::Space;
use crate::spaces;
use crate::superblock::{FEATURE_SUMS_ONLY, Geometry};
use crate::table::RunWord;
use crate::ticket::{Lanes, Ticket};
use crate::transactions::Transactions;
use crate::unfinished::Unfinished;
use landfall_media::{CommitMode, Dirty, Extent, Media, MediaError, Site, Standing, Sum, prefetch_at};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Of a value so much is fetched ahead, bytes: what comes behind is fetched by the core itself, as it is read in order.
const PREFETCH_BYTES_MAX: usize = 256;

/// The extents a value or a record refers to.
pub type Extents = SmallVec<[Extent; 4]>;

/// What one version refers to, as it waits to be let go.
pub(crate) type Refers = SmallVec<[Extent; 2]>;

/// How far the copying of a record has come.
#[derive(Clone, Copy, Debug, Default)]
struct Copying {
    /// Something newer than the original is durable.
    original_gone: bool,
    /// The copy, which is not current and goes with the original.
    copy: Option<SlotId>,
}

/// What certifies values that land from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// A CRC-32C of each value, computed when it is stored: one fence a batch.
    #[default]
    Crc32c,
    /// The sums derived from the checksums of the packets that brought it, where they are known; nothing is
    /// computed again. A torn write could pass 16 bits by chance, so that the data of each record are made
    /// durable before it is written: one fence more for each record.
    Tcp,
}

/// The persistent packet heap over one region.
///
/// Shared by all workers. Each worker appends through its own [`crate::Writer`].
pub struct Heap {
    pub(crate) media: Arc<dyn Media>,
    /// Where the image begins, for hints alone; 0 where it lies in no memory.
    image_addr: usize,
    pub(crate) geometry: Geometry,
    pub(crate) runs: Runs,
    /// How far each writer has come.
    pub(crate) lanes: Lanes,
    pub(crate) next_seq: AtomicU64,
    pub(crate) spare_slabs: Mutex<Vec<SpareSlab>>,
    /// Slabs whose durable mark may rise: writers have taken them, and not all of that is marked.
    pub(crate) unmarked: Mutex<BTreeSet<RunId>>,
    pub(crate) table_lock: Mutex<()>,
    /// The superblock as it was last written.
    superblock: Mutex<Geometry>,
    /// Its must-know features.
    pub(crate) features: AtomicU32,
    /// Records that the compactor is copying, or whose copy lost to something that is not durable yet.
    copying: Mutex<BTreeMap<SlotId, Copying>>,
    /// Live slots whose data are not counted, because they cannot be trusted to be theirs.
    uncounted: Mutex<BTreeSet<SlotId>>,
    has_uncounted: AtomicBool,
    /// How many are being copied, so that workers need no lock while the compactor rests.
    copying_count: AtomicUsize,
    pub(crate) space: Space,
    pub(crate) unfinished: Unfinished,
    pub(crate) clock: Clock,
    pub(crate) loader: LoaderPlace,
    pub(crate) transactions: Transactions,
    /// [`Integrity::Tcp`].
    trusts_sums: AtomicBool,
    /// Landed values up to this length are copied beside others.
    consolidated_max: AtomicU32,
    /// Changed values whose records are not current yet.
    pub(crate) patches: NewPatches,
    /// Counts of payload bytes that user space copied, by path.
    pub copies: Copies,
    /// Bytes zeroed so that runs could become slabs.
    pub(crate) zeroed_bytes: AtomicU64,
    /// Bytes that the compactor has put at more than one place, although records shared them.
    unshared_bytes: AtomicU64,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap")
            .field("geometry", &self.geometry)
            .field("runs", &self.runs.counts())
            .finish_non_exhaustive()
    }
}

impl Heap {
    pub(crate) fn new(media: Arc<dyn Media>, geometry: Geometry) -> Self {
        Self {
            runs: Runs::new(geometry.runs, Arc::clone(&media).pages()),
            lanes: Lanes::default(),
            image_addr: media.image().map_or(0, |(addr, _)| addr),
            media,
            geometry,
            superblock: Mutex::new(geometry),
            features: AtomicU32::new(geometry.features),
            next_seq: AtomicU64::new(1),
            spare_slabs: Mutex::new(Vec::new()),
            unmarked: Mutex::new(BTreeSet::new()),
            table_lock: Mutex::new(()),
            copying: Mutex::new(BTreeMap::new()),
            uncounted: Mutex::new(BTreeSet::new()),
            has_uncounted: AtomicBool::new(false),
            copying_count: AtomicUsize::new(0),
            space: Space::default(),
            unfinished: Unfinished::default(),
            clock: Clock::default(),
            loader: LoaderPlace::default(),
            transactions: Transactions::default(),
            trusts_sums: AtomicBool::new(false),
            consolidated_max: AtomicU32::new(0),
            patches: NewPatches::default(),
            copies: Copies::default(),
            zeroed_bytes: AtomicU64::new(0),
            unshared_bytes: AtomicU64::new(0),
        }
    }

    /// The medium below.
    pub fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// Size, salt and seeds of the region.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Must-know features of the region.
    pub fn features(&self) -> u32 {
        self.features.load(Ordering::Acquire)
    }

    /// Makes sure, durably, that only programs that know these features will open the region: before the first
    /// record is written that others could not read.
    ///
    /// # Errors
    /// The medium's.
    pub fn require_features(&self, features: u32) -> Result<(), MediaError> {
        if self.features.load(Ordering::Acquire) & features == features {
            return Ok(());
        }
        let mut superblock = self.superblock.lock();
        let next = Geometry {
            features: superblock.features | features,
            generation: superblock.generation + 1,
            ..*superblock
        };
        next.write(&*self.media)?;
        *superblock = next;
        self.features.store(next.features, Ordering::Release);
        Ok(())
    }

    /// Chooses what certifies values from now on.
    ///
    /// # Errors
    /// The medium's.
    ///
    /// # Panics
    /// For [`Integrity::Tcp`] on a medium that commits by device writes: there each record would cost a sync.
    pub fn set_integrity(&self, integrity: Integrity) -> Result<(), MediaError> {
        if integrity == Integrity::Tcp {
            assert_eq!(self.media.commit_mode(), CommitMode::Immediate, "sums alone need cheap fences");
            self.require_features(FEATURE_SUMS_ONLY)?;
        }
        self.trusts_sums.store(integrity == Integrity::Tcp, Ordering::Release);
        Ok(())
    }

    /// Has landed values of up to `bytes` copied beside others from now on: for transports that give each packet
    /// frames of its own, which small values would waste.
    pub fn consolidate_up_to(&self, bytes: u32) {
        self.consolidated_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn consolidated_max(&self) -> u64 {
        u64::from(self.consolidated_max.load(Ordering::Relaxed))
    }

    /// True in [`Integrity::Tcp`].
    pub fn trusts_sums(&self) -> bool {
        self.trusts_sums.load(Ordering::Acquire)
    }

    /// True if the sums of these extents are to certify them.
    pub(crate) fn may_trust_sums(&self, extents: &[Extent]) -> bool {
        self.trusts_sums.load(Ordering::Acquire) && extents.iter().all(|extent| extent.sum().is_some())
    }

    /// Runs and frames: counts, references, live bytes.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Hash of a key within a space; seeded by the region, so that clients cannot aim at one bucket.
    #[inline]
    pub fn hash(&self, space: u8, key: &[u8]) -> u64 {
        let seed = self.geometry.hash_seed ^ u64::from(space).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        xxh3_64_with_seed(key, seed)
    }

    /// The next version number.
    pub(crate) fn take_seqs(&self, count: u64) -> u64 {
        self.next_seq.fetch_add(count, Ordering::Relaxed)
    }

    /// A version number above every version handed out so far and below every later one.
    pub fn draw_seq(&self) -> u64 {
        self.take_seqs(1)
    }

    /// Ends a landing: the kernel will not write into the run again.
    pub fn retire_landing_run(&self, run_off: u64) {
        self.runs.end_data(RunId::of(run_off));
    }

    pub(crate) fn take_data_run(&self, keep: u32) -> Option<RunId> {
        let run = self.runs.take_free(keep)?;
        if let Err(error) = self.media.claim_run(run.off()) {
            self.runs.put_unused(run, &error);
            return None;
        }
        self.runs.begin_data(run);
        self.relieve_memory(0);
        Some(run)
    }

    /// One step of keeping free runs as the goal says: makes one ready ahead of need, or gives one back to the medium. True if
    /// something was done. `window_over` ends a window, of a second or so: what was free all through it is not needed.
    ///
    /// # Errors
    /// The medium's. A full medium is none: fewer runs are free until it has space.
    pub fn tend_free_runs(&self, goal: FreeGoal, window_over: bool) -> Result<bool, MediaError> {
        let goal = FreeGoal { ready_min: goal.ready_min.max(self.writer_reserve() as usize), ..goal };
        let todo = self.runs.change_free(|free| {
            if window_over {
                free.end_window(goal);
            }
            free.tend(goal)
        });
        let (run, asked, outcome) = match todo {
            None => return Ok(false),
            Some(Tend::Warm(run)) => (run, Standing::Warm, self.warm_run(run)),
            Some(Tend::Ready(run)) => (run, Standing::Backed, self.media.back_run(run.off())),
            Some(Tend::GiveBack(run, to)) => (run, to, self.media.give_back_run(run.off(), to)),
        };
        match outcome {
            Ok(has) => {
                self.runs.change_free(|free| {
                    free.put_tended(run, has, asked);
                    free.accepted();
                });
                Ok(true)
            }
            Err(error) => {
                self.runs.put_unused(run, &error);
                if matches!(error, MediaError::Full { .. }) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Brings back the memory of a free run, so that whoever takes it meets no page faults.
    fn warm_run(&self, run: RunId) -> Result<Standing, MediaError> {
        self.media.warm_run(run.off())?;
        Ok(Standing::Warm)
    }

    /// What makes the record in `slot` durable, if a crash could still take it back. For a current record, found under the
    /// lock that keeps it current; [`SlotId::NONE`] is durable.
    #[inline]
    pub fn pending(&self, slot: SlotId) -> Option<Ticket> {
        self.runs.pending(slot)
    }

    /// What lies in a slot, checked.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn slot(&self, slot: SlotId) -> Result<Slot<'_>, MediaError> {
        let bytes = self.media.bytes(Extent::new(slot.off(), RECORD_SIZE as u32))?;
        let bytes = bytes.try_into().expect("a record's size was asked for");
        Ok(RecordView::parse(bytes, slot, self.seal(slot.run()), self.geometry.bytes()))
    }

    /// What seals the records of a slab.
    #[inline]
    pub(crate) fn seal(&self, run: RunId) -> Seal {
        self.runs.get(run).seal()
    }

    /// Has the record in a slot brought near: it will be read soon.
    #[inline]
    pub fn prefetch(&self, slot: SlotId) {
        if self.image_addr != 0 {
            prefetch_at(self.image_addr + slot.off() as usize, RECORD_SIZE as usize);
        }
    }

    /// Has the beginning of the value brought near to which the record in a slot refers, and what counts its references.
    pub fn prefetch_value(&self, slot: SlotId) {
        if self.image_addr != 0
            && let Ok(view) = self.record(slot)
            && let ValuePlace::Extents(list) = view.value()
            && let Some(first) = list.iter().next()
        {
            self.runs.prefetch_refs(first);
            prefetch_at(self.image_addr + first.off as usize, PREFETCH_BYTES_MAX.min(first.len() as usize));
        }
    }

    /// The record in a slot that is known to hold one.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if it fails its checks; the medium's.
    #[inline]
    pub fn record(&self, slot: SlotId) -> Result<RecordView<'_>, HeapError> {
        match self.slot(slot)? {
            Slot::Record(view) => Ok(view),
            Slot::Empty => Err(HeapError::Damaged { slot, what: Damage::RecordChecksum }),
            Slot::Damaged(what) => Err(HeapError::Damaged { slot, what }),
        }
    }

    /// The key's bytes, wherever they are.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn key<'a>(&'a self, view: &RecordView<'a>) -> Result<Pinned<'a>, MediaError> {
        match view.key() {
            KeyPlace::Inline(bytes) => Ok(Pinned::always(bytes)),
            KeyPlace::Stored(extent) => self.pinned(extent),
        }
    }

    /// True when the key matches the hash kept in the record.
    ///
    /// # Errors
    /// The medium's.
    pub fn key_holds(&self, view: &RecordView<'_>) -> Result<bool, MediaError> {
        Ok(self.hash(view.space(), &self.key(view)?) == view.hash())
    }

    /// The extents of the value; none for an inline value.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] when the list of a long value fails its check.
    pub fn value_extents(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        match view.value() {
            ValuePlace::Inline(_) => Ok(Extents::new()),
            ValuePlace::Extents(list) => Ok(list.iter().collect()),
            ValuePlace::Indirect(list) => self.read_list(slot, view, list),
            ValuePlace::Pieces(list) => Ok(self.listed_pieces(slot, view, list)?.extents().collect()),
        }
    }

    fn read_list(&self, slot: SlotId, view: &RecordView<'_>, list: Extent) -> Result<Extents, HeapError> {
        let damaged = HeapError::Damaged { slot, what: Damage::ExtentList };
        let bytes = self.pinned(list)?;
        let Some((entries, crc)) = bytes.split_last_chunk::<4>() else { return Err(damaged) };
        if !entries.len().is_multiple_of(EXTENT_SIZE) || crc::of(entries) != u32::from_le_bytes(*crc) {
            return Err(damaged);
        }
        let extents: Extents = ExtentList(entries).iter().collect();
        let total: u64 = extents.iter().map(|e| u64::from(e.len())).sum();
        let inside = extents.iter().all(|e| e.end() <= self.geometry.bytes());
        if inside && total == view.value_len() as u64 { Ok(extents) } else { Err(damaged) }
    }

    /// Every extent the record refers to: key, list and value.
    ///
    /// # Errors
    /// As [`Self::value_extents`].
    pub fn all_extents(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        let mut extents = match view.value() {
            ValuePlace::Pieces(list) => self.listed_pieces(slot, view, list)?.all().collect(),
            _ => self.value_extents(slot, view)?,
        };
        if let ValuePlace::Indirect(list) = view.value() {
            extents.push(list);
        }
        if let KeyPlace::Stored(key) = view.key() {
            extents.push(key);
        }
        Ok(extents)
    }

    /// Checks the value's bytes against the CRC-32C in the record, or against those of its pieces, which make it up.
    ///
    /// # Errors
    /// [`HeapError::Damaged`]; the medium's.
    pub fn verify_value(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        if let ValuePlace::Pieces(list) = view.value() {
            return self.verify_pieces(slot, view, list);
        }
        let extents = self.value_extents(slot, view)?;
        let holds = match view.value() {
            ValuePlace::Inline(bytes) => view.check() == Check::Crc(crc::of(bytes)),
            _ => self.holds(&extents, view.check())?,
        };
        if holds { Ok(extents) } else { Err(HeapError::Damaged { slot, what: Damage::ValueChecksum }) }
    }

    /// True when the bytes of `extents` are what `check` certifies.
    ///
    /// # Errors
    /// The medium's.
    pub fn holds(&self, extents: &[Extent], check: Check) -> Result<bool, MediaError> {
        match check {
            Check::Crc(crc) => Ok(self.crc_of(extents)? == crc),
            Check::Sums => extents.iter().try_fold(true, |holds, extent| {
                Ok(holds && extent.sum() == Some(Sum::of(&self.pinned(*extent)?)))
            }),
        }
    }

    /// CRC-32C of the bytes of `extents`, in order.
    ///
    /// # Errors
    /// The medium's.
    pub fn crc_of(&self, extents: &[Extent]) -> Result<u32, MediaError> {
        match extents {
            [one] => Ok(crc::of(&self.pinned(*one)?)),
            all => all.iter().try_fold(0, |crc, extent| Ok(crc::append(crc, &self.pinned(*extent)?))),
        }
    }

    /// The value's bytes in one piece, copied only where they are split, or may leave memory.
    ///
    /// # Errors
    /// As [`Self::verify_value`], which this does first.
    pub fn value_bytes<'a>(
        &'a self,
        slot: SlotId,
        view: &RecordView<'a>,
    ) -> Result<Cow<'a, [u8]>, HeapError> {
        let extents = self.verify_value(slot, view)?;
        if let ValuePlace::Inline(bytes) = view.value() {
            return Ok(Cow::Borrowed(bytes));
        }
        match extents.as_slice() {
            [] => Ok(Cow::Borrowed(&[])),
            [one] if !self.is_paged() => Ok(Cow::Borrowed(self.media.bytes(*one)?)),
            many => {
                let mut out = Vec::with_capacity(view.value_len());
                for extent in many {
                    out.extend_from_slice(&self.pinned(*extent)?);
                }
                Ok(Cow::Owned(out))
            }
        }
    }

    /// Bytes that records shared and share no more because of how the compactor moved them, at most.
    pub fn unshared_bytes(&self) -> u64 {
        self.unshared_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_unshared(&self, bytes: u64) {
        self.unshared_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Recovery has found a record: if it may share bytes with others, these are told apart when references are counted.
    #[inline]
    pub(crate) fn note_shared(&self, slot: SlotId, view: &RecordView<'_>) {
        if view.is_shared() {
            // What cannot be read is not counted, either. The key is told apart with it where that lies in frames.
            self.all_extents(slot, view).iter().flatten().for_each(|extent| self.runs.tell_apart(*extent));
        }
    }

    /// A record became current: counts its slot and what it refers to.
    pub(crate) fn adopt(&self, slot: SlotId, view: &RecordView<'_>) -> Result<(), HeapError> {
        let extents = self.all_extents(slot, view).and_then(|extents| self.check_adoptable(slot, extents));
        if extents.is_err() {
            self.adopt_damaged(slot);
        } else {
            self.runs.slot_live(slot);
        }
        extents?.iter().for_each(|extent| self.runs.adopt(*extent, slot));
        Ok(())
    }

    /// An old version that has come up because a newer one is damaged may refer to what is no data any more.
    fn check_adoptable(&self, slot: SlotId, extents: Extents) -> Result<Extents, HeapError> {
        let is_data = |extent: &Extent| {
            let last = RunId::of(extent.end().saturating_sub(1).max(extent.off));
            let mut runs = (RunId::of(extent.off).0..=last.0).map(RunId);
            extent.is_empty()
                || runs.all(|run| !run.is_table() && self.runs.get(run).used_for() != RunUse::Slab)
        };
        let adoptable = extents.iter().all(is_data);
        adoptable.then_some(extents).ok_or(HeapError::Damaged { slot, what: Damage::RecordFields })
    }

    /// A slot that is kept although it cannot be read, or not what it refers to: it counts as live, its data
    /// do not.
    pub fn adopt_damaged(&self, slot: SlotId) {
        self.runs.slot_live(slot);
        self.uncounted.lock().insert(slot);
        self.has_uncounted.store(true, Ordering::Release);
    }

    /// The record in `original` is about to be copied by the compactor; it is current now.
    pub(crate) fn begin_copy(&self, original: SlotId) {
        let mut copying = self.copying.lock();
        copying.insert(original, Copying::default());
        self.copying_count.store(copying.len(), Ordering::Release);
    }

    /// The copy was not made.
    pub(crate) fn cancel_copy(&self, original: SlotId) {
        let mut copying = self.copying.lock();
        copying.remove(&original);
        self.copying_count.store(copying.len(), Ordering::Release);
    }

    /// The copy is durable, and has taken the original's place if `replaces`. If not, something newer has,
    /// that may not be durable yet: until it is, a crash would bring the copy back, so it keeps its data.
    pub(crate) fn end_copy(&self, original: SlotId, copy: SlotId, replaces: bool) {
        let mut copying = self.copying.lock();
        let state = copying.remove(&original).unwrap_or_default();
        let gone = match (replaces, state.original_gone) {
            (true, _) => original,
            (false, true) => copy,
            (false, false) => {
                copying.insert(original, Copying { copy: Some(copy), ..state });
                return;
            }
        };
        self.copying_count.store(copying.len(), Ordering::Release);
        drop(copying);
        self.let_go(gone, &self.refers_to(gone));
    }

    /// A record is current no more, durably: what it refers to may be used again, and so may what a copy of
    /// it refers to.
    pub(crate) fn disown(&self, slot: SlotId) {
        // A patch that has not become current has not taken over anything.
        match self.patches.take(slot) {
            Some(refers) => self.disown_known(slot, &refers),
            None => self.disown_known(slot, &self.refers_to(slot)),
        }
    }

    /// The same as [`Self::disown`], for a record whose extents are known.
    #[inline]
    pub(crate) fn disown_known(&self, slot: SlotId, refers: &[Extent]) {
        self.let_go(slot, refers);
        // A copy begins under the lock of the shard that the superseding write took later.
        if self.copying_count.load(Ordering::Acquire) > 0
            && let Some(copy) = self.take_copy(slot)
        {
            self.let_go(copy, &self.refers_to(copy));
        }
    }

    /// The original is gone; so is its copy, which is returned, if it was waiting for that.
    fn take_copy(&self, original: SlotId) -> Option<SlotId> {
        let mut copying = self.copying.lock();
        let state = copying.get_mut(&original)?;
        state.original_gone = true;
        let copy = state.copy?;
        copying.remove(&original);
        self.copying_count.store(copying.len(), Ordering::Release);
        Some(copy)
    }

    #[inline]
    fn let_go(&self, slot: SlotId, refers: &[Extent]) {
        if self.has_uncounted.load(Ordering::Acquire) {
            self.uncounted.lock().remove(&slot);
        }
        refers.iter().for_each(|extent| self.runs.unrefer(*extent));
        self.runs.slot_dead(slot);
    }

    /// What a record refers to and is counted for. A record that cannot be read keeps its frames: leaking
    /// them is safe, freeing others' is not.
    pub(crate) fn refers_to(&self, slot: SlotId) -> Refers {
        let mut refers = Refers::new();
        if let Ok(view) = self.record(slot) {
            self.each_referred(slot, &view, |extent| refers.push(extent));
        }
        refers
    }

    /// The same, one after the other, of a record that has just been read.
    #[inline]
    pub(crate) fn each_referred(&self, slot: SlotId, view: &RecordView<'_>, visit: impl FnMut(Extent)) {
        if !self.is_counted(slot) {
            return;
        }
        match (view.key(), view.value()) {
            (KeyPlace::Inline(_), ValuePlace::Inline(_)) => {}
            (KeyPlace::Inline(_), ValuePlace::Extents(list)) => list.iter().for_each(visit),
            _ => self.all_extents(slot, view).into_iter().flatten().for_each(visit),
        }
    }

    /// True for a current record if what it refers to is counted.
    #[inline]
    pub(crate) fn is_counted(&self, slot: SlotId) -> bool {
        !(self.has_uncounted.load(Ordering::Acquire) && self.uncounted.lock().contains(&slot))
    }

    /// The owner needs a durable record no more, and nothing replaces it: a tombstone that has done its work.
    pub fn drop_record(&self, slot: SlotId) {
        self.disown(slot);
    }

    /// True for a slot that is kept although it cannot be read.
    pub(crate) fn is_unreadable(&self, slot: SlotId) -> bool {
        self.has_uncounted.load(Ordering::Acquire)
            && self.uncounted.lock().contains(&slot)
            && self.record(slot).is_err()
    }

    /// Overwrites an unreadable or lost slot, durably, with a record that says nothing: a tombstone of the
    /// empty key in a space that no client reaches. For offline repair, of a region that nobody appends to.
    ///
    /// # Errors
    /// The medium's.
    pub fn entomb_slot(&self, slot: SlotId) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        self.entomb(slot, &mut dirty)?;
        self.media.fence(&mut dirty, Site::EraseFence)
    }

    /// The same, durable with the next fence of `dirty`.
    pub(crate) fn entomb(&self, slot: SlotId, dirty: &mut Dirty) -> Result<(), MediaError> {
        let mut draft = Draft::new(&Fields {
            kind: Kind::Tombstone,
            space: spaces::NOWHERE,
            seq: 0,
            rev: 0,
            hash: self.hash(spaces::NOWHERE, b""),
            arrival_ns: 0,
            expiry_ms: 0,
            aux: 0,
        });
        draft.key_inline(b"");
        draft.value_inline(b"", crc::of(b""));
        self.media.store(slot.off(), &draft.seal(slot, 0, self.seal(slot.run())))?;
        self.media.flush(dirty, Site::Erase, Extent::new(slot.off(), RECORD_SIZE as u32));
        Ok(())
    }

    /// Declares, durably, that a run holds no records. For offline repair of a run whose table words are
    /// damaged: whether what looks like records there was still in use cannot be told.
    ///
    /// # Errors
    /// The medium's.
    pub fn declare_no_slab(&self, run: RunId) -> Result<(), MediaError> {
        if self.has_epochs() {
            self.set_epoch(run, self.runs.get(run).epoch(), &mut Dirty::new())?;
        }
        self.write_words(&[(run, RunWord::NotSlab)])
    }

    /// Keeps the compactor away from the slab of an unreadable slot, so that it stays known as damaged.
    pub fn pin_slab(&self, slot: SlotId) {
        self.runs.get(slot.run()).pin();
    }

    /// True when recovery would trust the record without looking at its data.
    pub fn is_marked(&self, slot: SlotId) -> bool {
        slot.index() < self.runs.get(slot.run()).marked.load(Ordering::Acquire)
    }
}
