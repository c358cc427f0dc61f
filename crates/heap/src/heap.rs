//! The heap: the state of one region, and how its records and values are read.

use crate::copies::Copies;
use crate::crc;
use crate::error::{Damage, HeapError};
use crate::evict::Clock;
use crate::free::{FreeGoal, FreeTask};
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

/// Most bytes of a value that are prefetched. The core prefetches the bytes that follow, because they are read in
/// order.
const PREFETCH_BYTES_MAX: usize = 256;

/// The extents a value or a record refers to.
pub type Extents = SmallVec<[Extent; 4]>;

/// The extents that one version refers to, until they are released.
pub(crate) type Refers = SmallVec<[Extent; 2]>;

/// The progress of copying one record.
#[derive(Clone, Copy, Debug, Default)]
struct Copying {
    /// A newer version than the original is durable.
    original_gone: bool,
    /// The copy, which is not current and is retired together with the original.
    copy: Option<SlotId>,
}

/// What certifies the values that land.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// A CRC-32C of each value, computed when the value is stored. Costs one fence a batch.
    #[default]
    Crc32c,
    /// The sums derived from the checksums of the packets that carried the value, if they are known. No checksum is
    /// computed. A torn write could match 16 bits by chance, so the data of each record are made durable before the
    /// record is written. Costs one more fence for each record.
    Tcp,
}

/// The persistent packet heap over one region.
///
/// Shared by all workers. Each worker appends through its own [`crate::Writer`].
pub struct Heap {
    pub(crate) media: Arc<dyn Media>,
    /// Address of the image, for prefetching only; 0 if the medium has no image in memory.
    image_addr: usize,
    pub(crate) geometry: Geometry,
    pub(crate) runs: Runs,
    /// Which batches of each writer are durable.
    pub(crate) lanes: Lanes,
    pub(crate) next_seq: AtomicU64,
    pub(crate) spare_slabs: Mutex<Vec<SpareSlab>>,
    /// Slabs whose durable mark may rise: a writer has taken them, and their marks are behind.
    pub(crate) unmarked: Mutex<BTreeSet<RunId>>,
    pub(crate) table_lock: Mutex<()>,
    /// The superblock as it was last written.
    superblock: Mutex<Geometry>,
    /// Must-know features in the superblock.
    pub(crate) features: AtomicU32,
    /// Records that the compactor is copying, or whose copy was overtaken by a version that is not durable yet.
    copying: Mutex<BTreeMap<SlotId, Copying>>,
    /// Live slots whose references are not counted, because the record or its list of extents is damaged.
    uncounted: Mutex<BTreeSet<SlotId>>,
    has_uncounted: AtomicBool,
    /// Length of `copying`, so that workers take no lock while the compactor is idle.
    copying_count: AtomicUsize,
    pub(crate) space: Space,
    pub(crate) unfinished: Unfinished,
    pub(crate) clock: Clock,
    pub(crate) loader: LoaderPlace,
    pub(crate) transactions: Transactions,
    /// True with [`Integrity::Tcp`].
    trusts_sums: AtomicBool,
    /// Landed values of up to this many bytes are copied next to each other.
    consolidated_max: AtomicU32,
    /// Patches whose records are not current yet.
    pub(crate) patches: NewPatches,
    /// Payload bytes that user space copied, by path.
    pub copies: Copies,
    /// Bytes of runs that were zeroed before they became slabs.
    pub(crate) zeroed_bytes: AtomicU64,
    /// Shared bytes of which the compactor has made more than one copy.
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

    /// Adds must-know features to the superblock, durably. A program that does not know one of them refuses to open the
    /// region. Call this before writing the first record that needs the feature.
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

    /// Sets what certifies the values that land from now on.
    ///
    /// # Errors
    /// The medium's.
    ///
    /// # Panics
    /// For [`Integrity::Tcp`] on a medium that commits by device writes: each record would cost a sync.
    pub fn set_integrity(&self, integrity: Integrity) -> Result<(), MediaError> {
        if integrity == Integrity::Tcp {
            assert_eq!(self.media.commit_mode(), CommitMode::Immediate, "sums alone need cheap fences");
            self.require_features(FEATURE_SUMS_ONLY)?;
        }
        self.trusts_sums.store(integrity == Integrity::Tcp, Ordering::Release);
        Ok(())
    }

    /// Copies landed values of up to `bytes` next to each other from now on. For transports that receive each packet
    /// into frames of its own, which small values would waste.
    pub fn consolidate_up_to(&self, bytes: u32) {
        self.consolidated_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn consolidated_max(&self) -> u64 {
        u64::from(self.consolidated_max.load(Ordering::Relaxed))
    }

    /// True with [`Integrity::Tcp`].
    pub fn trusts_sums(&self) -> bool {
        self.trusts_sums.load(Ordering::Acquire)
    }

    /// True if the sums of these extents certify them.
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

    /// The next version number: above every earlier one and below every later one.
    pub fn draw_seq(&self) -> u64 {
        self.take_seqs(1)
    }

    /// Retires a landing run: the kernel writes no more bytes into it.
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

    /// Does one step towards the goal for free runs: prepares one ahead of need, or gives one back to the medium.
    /// Returns true if there was a step to do. `window_over` ends a window of about a second: runs that were free all
    /// through the window are not needed.
    ///
    /// # Errors
    /// The medium's. A full medium is not an error: fewer runs are free until it has space.
    pub fn maintain_free_runs(&self, goal: FreeGoal, window_over: bool) -> Result<bool, MediaError> {
        let goal = FreeGoal { ready_min: goal.ready_min.max(self.writer_reserve() as usize), ..goal };
        let todo = self.runs.change_free(|free| {
            if window_over {
                free.end_window(goal);
            }
            free.next_task(goal)
        });
        let (run, asked, outcome) = match todo {
            None => return Ok(false),
            Some(FreeTask::Warm(run)) => (run, Standing::Warm, self.warm_run(run)),
            Some(FreeTask::Ready(run)) => (run, Standing::Backed, self.media.back_run(run.off())),
            Some(FreeTask::GiveBack(run, to)) => (run, to, self.media.give_back_run(run.off(), to)),
        };
        match outcome {
            Ok(has) => {
                self.runs.change_free(|free| {
                    free.put_back(run, has, asked);
                    free.note_space();
                });
                Ok(true)
            }
            Err(error) => {
                self.runs.put_unused(run, &error);
                if matches!(error, MediaError::Full { .. }) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Populates the memory of a free run, so that its user meets no page faults.
    fn warm_run(&self, run: RunId) -> Result<Standing, MediaError> {
        self.media.warm_run(run.off())?;
        Ok(Standing::Warm)
    }

    /// The ticket of the batch that makes the record in `slot` durable; `None` if the record is durable. The record
    /// must be current: it was found under the lock that keeps it current. [`SlotId::NONE`] counts as durable.
    #[inline]
    pub fn pending(&self, slot: SlotId) -> Option<Ticket> {
        self.runs.pending(slot)
    }

    /// Reads a slot and checks its record.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn slot(&self, slot: SlotId) -> Result<Slot<'_>, MediaError> {
        let bytes = self.media.bytes(Extent::new(slot.off(), RECORD_SIZE as u32))?;
        let bytes = bytes.try_into().expect("a record's size was asked for");
        Ok(RecordView::parse(bytes, slot, self.seal(slot.run()), self.geometry.bytes()))
    }

    /// The seal of a slab's records.
    #[inline]
    pub(crate) fn seal(&self, run: RunId) -> Seal {
        self.runs.get(run).seal()
    }

    /// Prefetches the record in a slot.
    #[inline]
    pub fn prefetch(&self, slot: SlotId) {
        if self.image_addr != 0 {
            prefetch_at(self.image_addr + slot.off() as usize, RECORD_SIZE as usize);
        }
    }

    /// Prefetches the beginning of the value to which the record in a slot refers, and the count of its references.
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

    /// Reads the record in a slot that is known to hold one.
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

    /// The key's bytes, inline or in frames.
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

    /// True if the key matches the hash in the record.
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

    /// All extents that the record refers to: key, list and value.
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

    /// Checks the value's bytes against the CRC-32C in the record, or against the checksums of its pieces.
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

    /// True if the bytes of `extents` match `check`.
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

    /// The value's bytes in one slice, after [`Self::verify_value`]. They are copied only if they lie in several
    /// extents, or may be evicted.
    ///
    /// # Errors
    /// As [`Self::verify_value`].
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

    /// Upper bound of the bytes that records shared until the compactor moved them to different places.
    pub fn unshared_bytes(&self) -> u64 {
        self.unshared_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_unshared(&self, bytes: u64) {
        self.unshared_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For each record that recovery finds: if the record may share bytes with others, references to those runs are
    /// counted byte by byte.
    #[inline]
    pub(crate) fn note_shared(&self, slot: SlotId, view: &RecordView<'_>) {
        if view.is_shared() {
            // References of an unreadable list are not counted, so they need no tracking. A key in frames is included.
            self.all_extents(slot, view).iter().flatten().for_each(|extent| self.runs.count_by_byte(*extent));
        }
    }

    /// Counts a record that recovery has found to be current: its slot and its references.
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

    /// Refuses references outside data runs. An old version that is current because a newer one is damaged may have
    /// such references, since its frames have been reused.
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

    /// Keeps a slot whose record or list of extents cannot be read: the slot counts as live, its references are not
    /// counted.
    pub fn adopt_damaged(&self, slot: SlotId) {
        self.runs.slot_live(slot);
        self.uncounted.lock().insert(slot);
        self.has_uncounted.store(true, Ordering::Release);
    }

    /// The compactor is about to copy the record in `original`, which is current.
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

    /// The copy is durable. If `replaces`, it is current instead of the original. Otherwise a newer version is current
    /// that may not be durable yet. Until it is, a crash would make the copy current again, so the copy keeps its
    /// references.
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
        self.release_record(gone, &self.refers_to(gone));
    }

    /// Retires a record that is not current any more, durably: releases its references and those of its copy.
    pub(crate) fn retire_record(&self, slot: SlotId) {
        // A patch that never became current has not taken over the references of its base.
        match self.patches.take(slot) {
            Some(refers) => self.retire_known(slot, &refers),
            None => self.retire_known(slot, &self.refers_to(slot)),
        }
    }

    /// [`Self::retire_record`] for a record whose extents are known.
    #[inline]
    pub(crate) fn retire_known(&self, slot: SlotId, refers: &[Extent]) {
        self.release_record(slot, refers);
        // No copy is missed: the superseding write took the shard's lock after the copy began under it.
        if self.copying_count.load(Ordering::Acquire) > 0
            && let Some(copy) = self.take_copy(slot)
        {
            self.release_record(copy, &self.refers_to(copy));
        }
    }

    /// Notes that the original is retired. Returns its copy if that is to be retired with it.
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
    fn release_record(&self, slot: SlotId, refers: &[Extent]) {
        if self.has_uncounted.load(Ordering::Acquire) {
            self.uncounted.lock().remove(&slot);
        }
        refers.iter().for_each(|extent| self.runs.unrefer(*extent));
        self.runs.slot_dead(slot);
    }

    /// The counted references of a record. An unreadable record has none: its frames are leaked, which is safe, while
    /// releasing frames of other records is not.
    pub(crate) fn refers_to(&self, slot: SlotId) -> Refers {
        let mut refers = Refers::new();
        if let Ok(view) = self.record(slot) {
            self.each_referred(slot, &view, |extent| refers.push(extent));
        }
        refers
    }

    /// Visits the counted references of a record that has just been read.
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

    /// True if the references of a current record are counted.
    #[inline]
    pub(crate) fn is_counted(&self, slot: SlotId) -> bool {
        !(self.has_uncounted.load(Ordering::Acquire) && self.uncounted.lock().contains(&slot))
    }

    /// Retires a durable record that its owner needs no longer and that no record replaces, such as an old tombstone.
    pub fn drop_record(&self, slot: SlotId) {
        self.retire_record(slot);
    }

    /// True for a live slot whose record cannot be read.
    pub(crate) fn is_unreadable(&self, slot: SlotId) -> bool {
        self.has_uncounted.load(Ordering::Acquire)
            && self.uncounted.lock().contains(&slot)
            && self.record(slot).is_err()
    }

    /// Overwrites an unreadable or lost slot, durably, with a tombstone of the empty key in a space that no client can
    /// access. For offline repair: no writer may append to the region.
    ///
    /// # Errors
    /// The medium's.
    pub fn overwrite_with_tombstone(&self, slot: SlotId) -> Result<(), MediaError> {
        let mut dirty = Dirty::new();
        self.store_tombstone(slot, &mut dirty)?;
        self.media.fence(&mut dirty, Site::EraseFence)
    }

    /// Stores and flushes the tombstone of [`Self::overwrite_with_tombstone`]. It is durable with the next fence of
    /// `dirty`.
    pub(crate) fn store_tombstone(&self, slot: SlotId, dirty: &mut Dirty) -> Result<(), MediaError> {
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

    /// Marks a run in the run table, durably, as not a slab. For offline repair of a run whose table words are damaged:
    /// its records are given up.
    ///
    /// # Errors
    /// The medium's.
    pub fn mark_not_slab(&self, run: RunId) -> Result<(), MediaError> {
        if self.has_epochs() {
            self.set_epoch(run, self.runs.get(run).epoch(), &mut Dirty::new())?;
        }
        self.write_words(&[(run, RunWord::NotSlab)])
    }

    /// Excludes the slab of an unreadable slot from compaction, so that the damage stays known.
    pub fn pin_slab(&self, slot: SlotId) {
        self.runs.get(slot.run()).pin();
    }

    /// True if the record lies below the durable mark in the run table: recovery trusts it without checking its data.
    pub fn is_marked(&self, slot: SlotId) -> bool {
        slot.index() < self.runs.get(slot.run()).marked.load(Ordering::Acquire)
    }
}
