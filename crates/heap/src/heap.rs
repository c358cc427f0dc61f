//! The heap: composes the parts of one region's state, and adopts and retires records.

use crate::clock::Clock;
use crate::committed::Transactions;
use crate::copies::Copies;
use crate::copying::Copying;
use crate::crc;
use crate::error::Damage;
use crate::error::HeapError;
use crate::extents::{Extents, Refers};
use crate::features::Features;
use crate::free::{FreeGoal, FreeTask};
use crate::goal::CompactGoal;
use crate::lanes::{Lanes, Ticket};
use crate::layout::{RECORD_SIZE, RunId, SlotId};
use crate::load::{LoadId, Loader, LoaderPlace};
use crate::new_patches::NewPatches;
use crate::pin::{MemoryUse, Pinned};
use crate::policy::{Integrity, ValuePolicy};
use crate::reader::Reader;
use crate::record::{Draft, Fields, KeyPlace, Kind, RecordView, Slot, ValuePlace};
use crate::run::RunUse;
use crate::runs::Runs;
use crate::slabs::Slabs;
use crate::space::{self, Space};
use crate::spaces;
use crate::superblock::{FEATURE_EPOCHS, FEATURE_SUMS_ONLY, Geometry};
use crate::uncounted::UncountedSlots;
use crate::unfinished::{Return, Unfinished};
use landfall_media::{
    CommitMode, Dirty, EventFd, Extent, Media, MediaError, RUN_SIZE, ReadQueue, Site, Standing,
};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Slabs may take one part in so many of the memory before dead records in them are in the way.
const SLAB_MEMORY_PARTS: u64 = 4;

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
    pub(crate) slabs: Slabs,
    pub(crate) required: Features,
    pub(crate) policy: ValuePolicy,
    pub(crate) copying: Copying,
    pub(crate) uncounted: UncountedSlots,
    pub(crate) space: Space,
    pub(crate) unfinished: Unfinished,
    pub(crate) clock: Clock,
    loader: LoaderPlace,
    pub(crate) transactions: Transactions,
    /// Patches whose records are not current yet.
    pub(crate) patches: NewPatches,
    /// Payload bytes that user space copied, by path.
    pub copies: Copies,
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
            slabs: Slabs::new(Arc::clone(&media), &geometry),
            image_addr: media.image().map_or(0, |(addr, _)| addr),
            media,
            geometry,
            next_seq: AtomicU64::new(1),
            required: Features::new(geometry),
            policy: ValuePolicy::default(),
            copying: Copying::default(),
            uncounted: UncountedSlots::default(),
            space: Space::default(),
            unfinished: Unfinished::default(),
            clock: Clock::default(),
            loader: LoaderPlace::default(),
            transactions: Transactions::default(),
            patches: NewPatches::default(),
            copies: Copies::default(),
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
        self.required.all()
    }

    /// Adds must-know features to the superblock, durably. A program that does not know one of them refuses to open the
    /// region. Call this before writing the first record that needs the feature.
    ///
    /// # Errors
    /// The medium's.
    pub fn require_features(&self, features: u32) -> Result<(), MediaError> {
        self.required.require(&*self.media, features)
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
        self.policy.set_integrity(integrity);
        Ok(())
    }

    /// Copies landed values of up to `bytes` next to each other from now on. For transports that receive each packet
    /// into frames of its own, which small values would waste.
    pub fn consolidate_up_to(&self, bytes: u32) {
        self.policy.consolidate_up_to(bytes);
    }

    /// True with [`Integrity::Tcp`].
    pub fn trusts_sums(&self) -> bool {
        self.policy.trusts_sums()
    }

    /// Runs and frames: counts, references, live bytes.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// What reads the region.
    #[inline]
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader {
            media: &*self.media,
            image_addr: self.image_addr,
            geometry: &self.geometry,
            runs: &self.runs,
            loader: &self.loader,
        }
    }

    /// Reads a slot and checks its record.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn slot(&self, slot: SlotId) -> Result<Slot<'_>, MediaError> {
        self.reader().slot(slot)
    }

    /// Reads the record in a slot that is known to hold one.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] if it fails its checks; the medium's.
    #[inline]
    pub fn record(&self, slot: SlotId) -> Result<RecordView<'_>, HeapError> {
        self.reader().record(slot)
    }

    /// Prefetches the record in a slot.
    #[inline]
    pub fn prefetch(&self, slot: SlotId) {
        self.reader().prefetch(slot);
    }

    /// The first extent of the value to which the record in a slot refers, for [`Self::prefetch_value`]. The caller has
    /// the lock that keeps the record current.
    pub fn value_start(&self, slot: SlotId) -> Option<Extent> {
        self.reader().value_start(slot)
    }

    /// Prefetches the beginning of an extent's bytes, and the counts of its references and pins.
    #[inline]
    pub fn prefetch_value(&self, extent: Extent) {
        self.reader().prefetch_value(extent);
    }

    /// The key's bytes, inline or in frames.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn key<'a>(&'a self, view: &RecordView<'a>) -> Result<Pinned<'a>, MediaError> {
        self.reader().key(view)
    }

    /// True if the key matches the hash in the record.
    ///
    /// # Errors
    /// The medium's.
    pub fn key_holds(&self, view: &RecordView<'_>) -> Result<bool, MediaError> {
        self.reader().key_holds(view)
    }

    /// The extents of the value; none for an inline value.
    ///
    /// # Errors
    /// [`HeapError::Damaged`] when the list of a long value fails its check.
    pub fn value_extents(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        self.reader().value_extents(slot, view)
    }

    /// All extents that the record refers to: key, list and value.
    ///
    /// # Errors
    /// As [`Self::value_extents`].
    pub fn all_extents(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        self.reader().all_extents(slot, view)
    }

    /// Checks the value's bytes against the CRC-32C in the record, or against the checksums of its pieces.
    ///
    /// # Errors
    /// [`HeapError::Damaged`]; the medium's.
    pub fn verify_value(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Extents, HeapError> {
        self.reader().verify_value(slot, view)
    }

    /// CRC-32C of the bytes of `extents`, in order.
    ///
    /// # Errors
    /// The medium's.
    pub fn crc_of(&self, extents: &[Extent]) -> Result<u32, MediaError> {
        self.reader().crc_of(extents)
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
        self.reader().value_bytes(slot, view)
    }

    /// The bytes of an extent. Either a record that stays current meanwhile refers to the extent, or it is held. Bytes
    /// that are not in memory are read first, which blocks.
    ///
    /// # Errors
    /// The medium's.
    #[inline]
    pub fn pinned(&self, extent: Extent) -> Result<Pinned<'_>, MediaError> {
        self.reader().pinned(extent)
    }

    /// True if parts of the region may be evicted from memory.
    pub fn is_paged(&self) -> bool {
        self.reader().is_paged()
    }

    /// True if all bytes of a held extent are in memory.
    pub fn is_resident(&self, extent: Extent) -> bool {
        self.reader().is_resident(extent)
    }

    /// Requests those of the extents that are not in memory. The caller holds them, or a record that stays current
    /// meanwhile refers to them. On success the caller can use all of them; without a loader a use of missing bytes
    /// blocks while they are read.
    ///
    /// # Errors
    /// [`HeapError::Loading`] while a loader reads them; the medium's, if the loader could not.
    pub fn fetch(&self, extents: &[Extent]) -> Result<(), HeapError> {
        self.reader().fetch(extents)
    }

    /// Sets the loader that reads missing bytes from now on, instead of the threads that need them. Later calls have no
    /// effect.
    pub fn set_loader(&self, loader: Weak<dyn Loader>) {
        self.loader.set(loader);
    }

    /// True when every extent of the request has been read, or its read has failed.
    pub fn is_loaded(&self, load: LoadId) -> bool {
        self.loader.is_done(load)
    }

    /// Blocks until that is so. The caller has no locks: the loader may need other threads for it. False, at once, if the
    /// calling thread may not block, since it is one of these.
    pub fn wait_for_load(&self, load: LoadId) -> bool {
        self.loader.wait(load)
    }

    /// How much of the region is in memory; `None` if all of it may be.
    pub fn memory(&self) -> Option<MemoryUse> {
        self.runs.pages().map(|pages| MemoryUse { limit: pages.limit(), resident: pages.resident_bytes() })
    }

    /// Opens a queue through which one thread reads held extents while it goes on with other work. The kernel signals
    /// `eventfd`, if there is one, when a read has ended. `None` where all of the region may be in memory.
    ///
    /// # Errors
    /// The medium's: the system has no io_uring, or refuses it.
    pub fn open_queue(&self, eventfd: Option<EventFd<'_>>) -> Result<Option<Box<dyn ReadQueue>>, MediaError> {
        self.runs.shared_pages().map(|pages| pages.open_queue(eventfd)).transpose()
    }

    /// Hash of a key within a space; seeded by the region, so that clients cannot aim at one bucket.
    #[inline]
    pub fn hash(&self, space: u8, key: &[u8]) -> u64 {
        self.geometry.hash(space, key)
    }

    /// The next version number.
    pub(crate) fn take_seqs(&self, count: u64) -> u64 {
        self.next_seq.fetch_add(count, Ordering::Relaxed)
    }

    /// The next version number: above every earlier one and below every later one.
    pub fn draw_seq(&self) -> u64 {
        self.take_seqs(1)
    }

    /// The version number that is drawn next.
    pub fn next_seq(&self) -> u64 {
        self.next_seq.load(Ordering::Relaxed)
    }

    /// The next version number is at least this one. Recovery goes on behind the newest record: who has kept a number that was
    /// drawn since says so before others number what is appended by it.
    pub fn raise_next_seq(&self, seq: u64) {
        self.next_seq.fetch_max(seq, Ordering::Relaxed);
    }

    /// So many consecutive version numbers, as [`Self::draw_seq`]. Returns the first.
    pub fn draw_seqs(&self, count: u64) -> u64 {
        self.take_seqs(count)
    }

    /// Reserves landing runs for this many transports.
    pub fn reserve_landing(&self, transports: u32) {
        self.space.reserve_landing(transports);
    }

    /// Checks that a region has space besides what so many transports reserve.
    ///
    /// # Errors
    /// [`HeapError::Transports`].
    pub fn check_transports(&self, transports: usize) -> Result<(), HeapError> {
        space::check_transports(u64::from(self.geometry().runs), transports)
    }

    /// Reserves runs for values that this many writers of another machine have admitted: see
    /// [`crate::Writer::set_admitted`].
    pub fn reserve_admitted(&self, writers: u32) {
        self.space.reserve_admitted(writers);
    }

    /// True while no more of the region is in use than copied records may use.
    pub fn is_within_reserves(&self) -> bool {
        self.runs.free_count() >= self.space.copied_keeps(&self.runs)
    }

    /// The number of searches of the compactor, if it works and has something to find: space was released since the last
    /// search. Who needs to know how much room there is waits for the next one.
    pub fn search_to_wait_for(&self) -> Option<u64> {
        let is_short = self.runs.free_count() < self.clean_below();
        self.space.searches_if_stale().filter(|_| is_short)
    }

    /// Free runs that writes may not take.
    pub(crate) fn writer_reserve(&self) -> u32 {
        self.space.writer_reserve(&self.runs)
    }

    /// The compactor works while fewer runs than this are free.
    pub fn clean_below(&self) -> u32 {
        self.space.clean_below(&self.runs)
    }

    /// What the compactor is to do: space while too few runs are free, and otherwise less memory while records that are dead
    /// take too much of it. Records never leave memory, and neither do those beside them in their slabs.
    pub fn compact_goal(&self) -> CompactGoal {
        let clean_below = self.clean_below();
        let is_short = self.runs.free_count() < clean_below;
        if !is_short && self.memory().is_some_and(|memory| self.keeps_dead_records(memory.limit)) {
            self.space.end_demand();
            return CompactGoal::HALF_DEAD_SLABS;
        }
        CompactGoal::free(clean_below)
    }

    /// True if slabs take a large part of the memory, and more than half of that is dead.
    fn keeps_dead_records(&self, limit: u64) -> bool {
        let slabs = u64::from(self.runs.slab_count()) * RUN_SIZE;
        slabs > limit / SLAB_MEMORY_PARTS && 2 * self.runs.live_slots() * RECORD_SIZE < slabs
    }

    /// True while writers may add data. Deletes and reads do not depend on it.
    pub fn has_room(&self) -> bool {
        self.space.has_room(&self.runs)
    }

    /// Bytes that writers may fill without compaction.
    pub fn free_bytes(&self) -> u64 {
        self.space.free_bytes(&self.runs)
    }

    /// Estimate of the bytes that writers may fill, with compaction.
    pub fn room_bytes(&self) -> u64 {
        self.space.room_bytes(&self.runs)
    }

    /// [`Self::room_bytes`], and never more than is not live. It looks at every run: it is for reports.
    pub fn measured_room_bytes(&self) -> u64 {
        self.space.measured_room_bytes(&self.runs)
    }

    /// For a delete without a slot, and a transport without a landing run. True if compaction can free any run: they
    /// should wait.
    pub fn may_wait_for_any(&self) -> bool {
        self.space.may_wait_for_any(&self.runs)
    }

    /// True while a transport can take a landing run.
    pub fn can_land(&self) -> bool {
        self.space.can_land(&self.runs)
    }

    /// True if a writer or a transport has begun to wait for space since the last call.
    pub fn take_awaited(&self) -> bool {
        self.space.take_awaited()
    }

    /// Checks that there is room for new data, as [`Self::has_room`].
    ///
    /// # Errors
    /// [`HeapError::Cleaning`] if compaction will free runs; [`HeapError::Full`].
    pub fn check_room(&self) -> Result<(), HeapError> {
        self.space.check_room(&self.runs)
    }

    /// Checks that no more of the region is in use than copied records may use, as [`Self::is_within_reserves`].
    ///
    /// # Errors
    /// [`HeapError::Cleaning`] if compaction will free runs; [`HeapError::Full`].
    pub fn check_copied(&self) -> Result<(), HeapError> {
        self.space.check_copied(&self.runs)
    }

    /// Notes that a commit has released references.
    pub(crate) fn note_release(&self) {
        self.space.note_release();
    }

    /// Requests that the compactor free this many bytes, as far as they are reclaimable.
    pub fn request_free(&self, bytes: u64) {
        self.space.request_free(&self.runs, bytes);
    }

    /// Lends a free run to a transport, for landing.
    pub fn take_landing_run(&self) -> Option<u64> {
        self.take_data_run(self.space.compactor_keeps()).map(RunId::off)
    }

    /// Number of prepared slabs that no writer has taken.
    pub fn spare_slabs(&self) -> usize {
        self.slabs.directory.spare_count()
    }

    /// Bytes zeroed on the medium since the region was opened, in runs of unknown epoch that became slabs.
    pub fn zeroed_bytes(&self) -> u64 {
        self.slabs.zeroed_bytes()
    }

    /// Turns a free run into an empty slab, durably.
    ///
    /// # Errors
    /// [`HeapError::Full`] if no more than `keep` runs are free; the medium's.
    pub fn prepare_slab(&self, keep: u32) -> Result<(), HeapError> {
        self.slabs.prepare(&self.runs, &self.required, keep)
    }

    /// Prepares a slab ahead of need, but not from the reserves.
    ///
    /// # Errors
    /// As [`Self::prepare_slab`], but a lack of free runs is not an error.
    pub fn prepare_slab_within_reserve(&self) -> Result<(), HeapError> {
        match self.prepare_slab(self.writer_reserve()) {
            Err(HeapError::Full) => Ok(()),
            other => other,
        }
    }

    /// Writes the durable marks of slabs that have advanced by at least `step` slots since the last mark. Returns the
    /// number of marks written.
    ///
    /// # Errors
    /// The medium's.
    pub fn mark_slabs(&self, step: u32) -> Result<usize, HeapError> {
        self.slabs.mark_advanced(&self.runs, step)
    }

    /// True if the region has epochs.
    pub(crate) fn has_epochs(&self) -> bool {
        self.required.has(FEATURE_EPOCHS)
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
        let goal = self.runs.pages().map_or(goal, |pages| goal.within(pages.limit()));
        let goal = FreeGoal { ready_min: goal.ready_min.max(self.writer_reserve() as usize), ..goal };
        let todo = self.runs.change_free(|free| {
            if window_over {
                free.end_window(goal);
            }
            free.next_task(goal)
        });
        let (runs, asked, outcome) = match todo {
            None => return Ok(false),
            Some(FreeTask::Warm(run)) => (vec![run], Standing::Warm, self.warm_run(run).map(|has| vec![has])),
            Some(FreeTask::Ready(runs)) => {
                let offs: Vec<u64> = runs.iter().map(|run| run.off()).collect();
                (runs, Standing::Backed, self.media.back_runs(&offs))
            }
            Some(FreeTask::GiveBack(run, to)) => {
                (vec![run], to, self.media.give_back_run(run.off(), to).map(|has| vec![has]))
            }
        };
        match outcome {
            Ok(have) => {
                self.runs.change_free(|free| {
                    runs.into_iter().zip(have).for_each(|(run, has)| free.put_back(run, has, asked));
                    free.note_space();
                });
                Ok(true)
            }
            Err(error) => {
                let count = runs.len();
                runs.into_iter().rev().for_each(|run| self.runs.put_unused(run, &error));
                // Where there was no space for several, there may be for one.
                let is_full = matches!(error, MediaError::Full { .. });
                if is_full { Ok(count > 1) } else { Err(error) }
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

    /// Notes that an incomplete request holds `now` bytes of the region, where it held `before`.
    pub fn note_unfinished(&self, before: u64, now: u64) {
        self.unfinished.note(before, now);
    }

    /// Bytes of the region that incomplete requests hold.
    pub fn unfinished_bytes(&self) -> u64 {
        self.unfinished.bytes()
    }

    /// The caller receives requests: it answers each return of what unfinished ones hold, from the next one on. The number
    /// of the latest return.
    pub fn join_receivers(&self) -> u64 {
        self.unfinished.join()
    }

    /// A receiver that has answered the return of this number, and those before, ends.
    pub fn leave_receivers(&self, answered: u64) {
        self.unfinished.leave(answered);
    }

    /// True if a writer has requested, since the last call, that unfinished requests return space. The caller then
    /// makes every receiver ask [`Self::asked_return`].
    pub fn take_return_wanted(&self) -> bool {
        self.unfinished.take_wanted()
    }

    /// What a receiver has to return that has answered the returns up to `answered`, which becomes the latest one.
    pub fn asked_return(&self, answered: &mut u64) -> Option<Return> {
        self.unfinished.asked(answered)
    }

    /// A receiver has returned what was asked for. True if it was the last one: those who wait for room try again.
    pub fn answer_return(&self) -> bool {
        self.unfinished.answer()
    }

    /// For a transport without a landing run: requests that what unfinished requests hold is copied together. True if it
    /// should wait for that; `since` is `None` when it begins to.
    pub fn ask_for_scattered(&self, since: &mut Option<u64>) -> bool {
        self.unfinished.ask(since, Return::Scattered)
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
            // It is not moved.
            self.pin_slab(slot);
        } else {
            self.runs.slot_live(slot);
        }
        extents?.iter().for_each(|extent| self.runs.adopt(*extent, slot));
        Ok(())
    }

    /// Refuses references outside data runs. An old version that is current because a newer one is damaged may have
    /// such references, since its frames have been reused.
    fn check_adoptable(&self, slot: SlotId, extents: Extents) -> Result<Extents, HeapError> {
        let adoptable = extents.iter().all(|extent| self.lies_in_data(*extent));
        adoptable.then_some(extents).ok_or(HeapError::Damaged { slot, what: Damage::RecordFields })
    }

    /// False if a run with a part of the extent is a slab, or has tables.
    fn lies_in_data(&self, extent: Extent) -> bool {
        let last = RunId::of(extent.end().saturating_sub(1).max(extent.off));
        let mut runs = (RunId::of(extent.off).0..=last.0).map(RunId);
        extent.is_empty() || runs.all(|run| !run.is_table() && self.runs.get(run).used_for() != RunUse::Slab)
    }

    /// False if the record's key lies where none can be. Something newer is durable then, and its frames were used again: for a
    /// slab, in which the bytes are until recovery erases them.
    pub fn may_have_key(&self, view: &RecordView<'_>) -> bool {
        match view.key() {
            KeyPlace::Inline(_) => true,
            KeyPlace::Stored(extent) => self.lies_in_data(extent),
        }
    }

    /// The copy is durable. If `replaces`, it is current instead of the original. Otherwise a newer version is current
    /// that may not be durable yet. Until it is, a crash would make the copy current again, so the copy keeps its
    /// references.
    pub(crate) fn end_copy(&self, original: SlotId, copy: SlotId, replaces: bool) {
        if let Some(gone) = self.copying.end(original, copy, replaces) {
            self.release_record(gone, &self.refers_to(gone));
        }
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
        if let Some(copy) = self.copying.retire_original(slot) {
            self.release_record(copy, &self.refers_to(copy));
        }
    }

    #[inline]
    fn release_record(&self, slot: SlotId, refers: &[Extent]) {
        self.uncounted.remove(slot);
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

    /// Retires a durable record that its owner needs no longer and that no record replaces, such as an old tombstone.
    pub fn drop_record(&self, slot: SlotId) {
        self.retire_record(slot);
    }

    /// Stores and flushes the tombstone of [`Self::overwrite_with_tombstone`]. It is durable with the next fence of
    /// `dirty`.
    pub(crate) fn store_tombstone(&self, slot: SlotId, dirty: &mut Dirty) -> Result<(), MediaError> {
        let draft = self.nameless(Kind::Tombstone, spaces::NOWHERE, 0);
        self.media.store(slot.off(), &draft.seal(slot, 0, self.reader().seal(slot.run())))?;
        self.media.flush(dirty, Site::Erase, Extent::new(slot.off(), RECORD_SIZE as u32));
        Ok(())
    }

    /// A flush mark with this version.
    pub(crate) fn flush_mark(&self, seq: u64) -> Draft {
        self.nameless(Kind::Flush, spaces::FLUSH, seq)
    }

    /// A record of the empty key, without a value.
    fn nameless(&self, kind: Kind, space: u8, seq: u64) -> Draft {
        let hash = self.hash(space, b"");
        let mut draft =
            Draft::new(&Fields { kind, space, seq, rev: 0, hash, arrival_ns: 0, expiry_ms: 0, aux: 0 });
        draft.key_inline(b"");
        draft.value_inline(b"", crc::of(b""));
        draft
    }

    /// True if the record lies below the durable mark in the run table: recovery trusts it without checking its data.
    pub fn is_marked(&self, slot: SlotId) -> bool {
        slot.index() < self.runs.get(slot.run()).marked.load(Ordering::Acquire)
    }
}
