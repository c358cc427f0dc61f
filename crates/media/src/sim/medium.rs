//! The simulated medium.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::blocks::Blocks;
use super::chunks::{Chunks, Line};
use super::crash::{CrashImage, CrashState, Subsets, assert_is_whole};
use super::lines::Lines;
use super::paging::Paging;
use super::spare::Lent;
use crate::dirty::Dirty;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::kind::MediaKind;
use crate::media::{CommitMode, Media};
use crate::pages::Pages;
use crate::site::Site;
use crate::standing::Standing;
use crate::units::{BLOCK_SIZE, LINE_SIZE, RUN_SIZE};

/// Address space reserved for growth, as a multiple of the length.
const RESERVE_FACTOR: u64 = 4;

/// How a simulated region behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimOptions {
    /// Commits as a file does: fences are device I/O ([`CommitMode::Deferred`]). [`Media::file_writes`] returns
    /// nothing: the driver keeps the batch's [`Dirty`] and calls [`Media::fence`] with it.
    pub deferred: bool,
}

/// How many operations a region has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Stores, words and zeroings, failed ones included.
    pub stores: u64,
    /// Flushes, skipped ones included.
    pub flushes: u64,
    /// Fences, skipped and failed ones included.
    pub fences: u64,
}

impl OpCounts {
    /// All operations: the index that [`SimMedia::freeze_at`] counts in.
    pub const fn total(self) -> u64 {
        self.stores + self.flushes + self.fences
    }
}

/// A region in memory that records what a crash may leave behind. The module's documentation states the fault model.
pub struct SimMedia {
    image: Lent,
    options: SimOptions,
    state: Mutex<State>,
    has_unreadable: AtomicBool,
    paging: OnceLock<Paging>,
}

struct State {
    lines: Lines,
    blocks: Blocks,
    ops: OpCounts,
    skipped: BTreeSet<Site>,
    fail_at: Option<u64>,
    fail_store_at: Option<u64>,
    closed: Option<String>,
    /// Offsets of runs that cannot be read.
    unreadable: BTreeSet<u64>,
    /// Blocks that only the medium cannot give.
    lost_blocks: BTreeSet<u64>,
    /// Blocks that are zeroes because the medium could not read them.
    salvaged: BTreeSet<u64>,
    /// Offsets of runs whose space was given back.
    bare: BTreeSet<u64>,
    /// The medium has no space for bare runs.
    full: bool,
    /// Operations behind which the state is kept, in order, and the states that were.
    freeze_at: VecDeque<u64>,
    frozen: Vec<CrashState>,
}

impl SimMedia {
    /// A region of `len` durable zero bytes.
    ///
    /// # Panics
    /// If `len` is not a multiple of [`LINE_SIZE`], or memory for the image cannot be allocated.
    pub fn new(len: u64, options: SimOptions) -> Arc<Self> {
        assert_is_whole(len);
        let durable = Chunks::blank(usize::try_from(len).expect("a length that fits memory"));
        Self::of_lines(Lines::new(durable), options)
    }

    /// A region that holds `durable`: what a process finds when it restarts after a crash.
    ///
    /// # Panics
    /// As [`SimMedia::new`].
    pub fn from_image(durable: Vec<u8>, options: SimOptions) -> Arc<Self> {
        Self::of_lines(CrashImage::from(durable).lines, options)
    }

    /// A region that holds what a crash has left. It costs as much as what was stored to the region.
    ///
    /// # Panics
    /// If memory for the image cannot be allocated.
    pub fn restart(image: &CrashImage, options: SimOptions) -> Arc<Self> {
        Self::of_lines(image.lines.clone(), options)
    }

    fn of_lines(lines: Lines, options: SimOptions) -> Arc<Self> {
        let len = lines.durable().len() as u64;
        let image = Lent::new(len, len * RESERVE_FACTOR);
        for (off, bytes) in lines.durable().stored() {
            image.store(off, bytes).expect("the image is as long as the region");
        }
        let (state, has_unreadable) = (Mutex::new(State::new(lines)), AtomicBool::new(false));
        Arc::new(Self { image, options, state, has_unreadable, paging: OnceLock::new() })
    }

    // ---- what a crash leaves behind ----

    /// The state at this moment, from which crash images can be drawn while the writer continues.
    pub fn crash_state(&self) -> CrashState {
        CrashState::new(self.state.lock().lines.clone())
    }

    /// The number of lines whose contents after a crash now are uncertain.
    pub fn pending_count(&self) -> usize {
        self.state.lock().lines.pending().len()
    }

    /// One possible image after a crash now; see [`CrashState::crash_image_seeded`].
    pub fn crash_image_seeded(&self, seed: u64) -> Vec<u8> {
        self.crash_state().crash_image_seeded(seed)
    }

    /// Every subset of pending lines now; see [`CrashState::crash_images_exhaustive`].
    pub fn crash_images_exhaustive(&self, lines_max: usize) -> Option<Subsets> {
        self.crash_state().crash_images_exhaustive(lines_max)
    }

    // ---- crashes in the middle ----

    /// The number of operations so far. Run a workload once to learn the total, then freeze at each operation.
    pub fn ops(&self) -> OpCounts {
        self.state.lock().ops
    }

    /// Keeps the state directly after operation `op_index` (1 is the first store, flush or fence of the region), or the
    /// present state if that operation has passed. Replaces an earlier choice and the state kept for it.
    pub fn freeze_at(&self, op_index: u64) {
        self.freeze_at_each([op_index]);
    }

    /// As [`SimMedia::freeze_at`], for several operations in ascending order.
    pub fn freeze_at_each(&self, op_indices: impl IntoIterator<Item = u64>) {
        let mut state = self.state.lock();
        (state.freeze_at, state.frozen) = (op_indices.into_iter().collect(), Vec::new());
        state.freeze_if_due();
    }

    /// The state that [`SimMedia::freeze_at`] asked for, once it was reached.
    pub fn frozen(&self) -> Option<CrashState> {
        self.state.lock().frozen.first().cloned()
    }

    /// The states that [`SimMedia::freeze_at_each`] asked for, as far as they were reached.
    pub fn frozen_each(&self) -> Vec<CrashState> {
        self.state.lock().frozen.clone()
    }

    // ---- deferred commits ----

    /// Submits the batch to the device, as a driver does: each block that a flushed range touches is read whole from
    /// memory now, and is being written until the batch's fence has returned. The batch waits for blocks that are being
    /// written already. A fence of a batch that was not submitted submits it first.
    pub fn submit(&self, dirty: &mut Dirty) {
        let mut state = self.state.lock();
        let State { lines, blocks, .. } = &mut *state;
        if self.options.deferred && dirty.promised.batch.is_none() {
            dirty.promised.batch = Some(blocks.submit(lines, dirty.ranges(), &dirty.promised));
        }
    }

    // ---- paging ----

    /// From now on chunks of the region may leave memory: [`Media::pages`] yields what evicts and loads them, with this
    /// limit. To be called before the region is opened; a second call does nothing.
    pub fn page(&self, limit: u64) {
        self.paging.get_or_init(|| Paging::new(self.len() * RESERVE_FACTOR, limit));
    }

    /// Has something happen once, when whoever evicts has chosen what is to leave memory of a run, used lately or not, and
    /// before it does. The region is paged ([`Self::page`]).
    pub fn before_evicting(&self, run_off: u64, happens: impl FnOnce() + Send + 'static) {
        self.paging().before_evicting(run_off, Box::new(happens));
    }

    /// Has something happen once, when something of a run is needed that has left memory, and before it is read. The region is
    /// paged ([`Self::page`]).
    pub fn before_reading(&self, run_off: u64, happens: impl FnOnce() + Send + 'static) {
        self.paging().before_reading(run_off, Box::new(happens));
    }

    /// Brings what the extent touches into memory, by whole chunks.
    fn make_present(&self, extent: Extent) {
        let Some(paging) = self.paging.get() else { return };
        paging.begin_reading(extent);
        for chunk in paging.take_absent(extent, self.len()) {
            let mut durable = vec![0; chunk.len() as usize];
            let state = self.state.lock();
            state.lines.durable().read(chunk.off, &mut durable);
            self.image.store(chunk.off, &durable).expect("a chunk of the region");
        }
    }

    /// Brings the runs that the extent touches into memory: a store to a paged run loads the run first.
    fn make_runs_present(&self, extent: Extent) {
        let runs = extent.off / RUN_SIZE..extent.end().div_ceil(RUN_SIZE);
        runs.for_each(|run| self.make_present(Extent::new(run * RUN_SIZE, RUN_SIZE as u32)));
    }

    /// Takes bytes from memory, with all that was stored there and is not durable.
    pub(super) fn forget(&self, extent: Extent, gone: u8) {
        self.state.lock().lines.forget(extent);
        self.image.store(extent.off, &vec![gone; extent.len() as usize]).expect("a chunk of the region");
    }

    /// What of the region is in memory.
    pub(super) fn paging(&self) -> &Paging {
        self.paging.get().expect("only a paged region hands out this interface")
    }

    // ---- faults ----

    /// From now on batches do not wait for each other's blocks: of two batches in flight that share a block, either may
    /// be written last, with the bytes that it took from memory.
    pub fn overlap_blocks(&self) {
        self.state.lock().blocks.may_overlap = true;
    }

    /// From now on flushes and fences of this site do nothing and report success. A flush promises nothing; a fence
    /// discards what was promised.
    pub fn skip_site(&self, site: Site) {
        self.state.lock().skipped.insert(site);
    }

    /// Fence number `fence_index` of the region (1 is the first) fails with `EIO`, makes nothing durable, and closes
    /// the region for writing.
    pub fn fail_at(&self, fence_index: u64) {
        self.state.lock().fail_at = Some(fence_index);
    }

    /// Store number `store_index` of the region (1 is the first) fails with `EIO` and changes nothing. The region stays
    /// open. This simulates a file's run that must be read before it can be stored to, on a device that reports a read
    /// error.
    pub fn fail_store_at(&self, store_index: u64) {
        self.state.lock().fail_store_at = Some(store_index);
    }

    /// From now on no byte of the range's runs can be read from memory or from the medium, nor be stored to. This simulates
    /// a file's run that is not in memory on a device that reports read errors. A run that is claimed, or zeroed whole, need
    /// not be read: it is as any other then.
    pub fn fail_reads(&self, extent: Extent) {
        let mut state = self.state.lock();
        state.unreadable.extend(extent.off / RUN_SIZE..extent.end().div_ceil(RUN_SIZE));
        self.has_unreadable.store(true, Ordering::Release);
    }

    /// The block at `off` of the medium cannot be read until it is written again. Memory has its bytes.
    pub fn lose_block(&self, off: u64) {
        self.state.lock().lost_blocks.insert(off / BLOCK_SIZE);
    }

    /// The block at `off` could not be read when the region was opened to be salvaged: it is zeroes, in memory and after a
    /// restart, and [`Media::unreadable`] names it until it is written again.
    ///
    /// # Panics
    /// If `off` is past the end.
    pub fn salvage_block(&self, off: u64) {
        let begin = off - off % BLOCK_SIZE;
        for at in begin..begin + BLOCK_SIZE {
            let durable = *self.state.lock().lines.durable_mut().byte_mut(at);
            self.damage(at, durable);
        }
        self.state.lock().salvaged.insert(begin / BLOCK_SIZE);
    }

    /// Sets whether the medium refuses space to runs that were given back.
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Allocates space for the bare runs that lie wholly in a range. What these and the others had is not needed, and not
    /// read any more.
    fn back(&self, extent: Extent) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        let runs =
            extent.off.div_ceil(RUN_SIZE)..(extent.end() / RUN_SIZE).max(extent.off.div_ceil(RUN_SIZE));
        let bare: Vec<u64> = state.bare.range(runs.clone()).copied().collect();
        if state.full && !bare.is_empty() {
            return Err(MediaError::Full { path: "simulated".into(), wanted: RUN_SIZE });
        }
        bare.iter().for_each(|run| _ = state.bare.remove(run));
        state.unreadable.retain(|run| !runs.contains(run));
        Ok(())
    }

    fn check_readable(&self, extent: Extent) -> Result<(), MediaError> {
        if !self.has_unreadable.load(Ordering::Acquire) {
            return Ok(());
        }
        let runs = extent.off / RUN_SIZE..extent.end().div_ceil(RUN_SIZE);
        let lost = self.state.lock().unreadable.range(runs).next().is_some();
        if !lost {
            return Ok(());
        }
        Err(unreadable())
    }

    /// Flips the bits of `mask` in a durable byte only: the device holds a wrong byte, memory the right one. A flush
    /// and a fence write the line again.
    ///
    /// # Panics
    /// If `off` is past the end.
    pub fn damage_medium(&self, off: u64, mask: u8) {
        self.make_present(Extent::new(off, 1));
        let mut state = self.state.lock();
        *state.lines.durable_mut().byte_mut(off) ^= mask;
        state.lines.note_store(Extent::new(off, 1), |index| self.line(index));
    }

    /// Flips the bits of `mask` in a durable byte and in the image: damage at rest.
    ///
    /// # Panics
    /// If `off` is past the end.
    pub fn damage(&self, off: u64, mask: u8) {
        self.make_present(Extent::new(off, 1));
        let mut state = self.state.lock();
        let durable = state.lines.durable_mut().byte_mut(off);
        *durable ^= mask;
        let stored = self.image.bytes(Extent::new(off, 1)).expect("in bounds as the durable byte was")[0];
        self.image.store(off, &[stored ^ mask]).expect("in bounds as the durable byte was");
    }

    fn line(&self, index: u64) -> Line {
        let bytes = self.image.bytes(Extent::new(index * LINE_SIZE, LINE_SIZE as u32));
        *bytes.ok().and_then(<[u8]>::first_chunk).expect("a region is a whole number of lines")
    }

    /// Executes a store and records the lines that it changed.
    fn stored(
        &self,
        extent: Extent,
        store: impl FnOnce() -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        self.make_runs_present(extent);
        let mut state = self.state.lock();
        let runs = extent.off / RUN_SIZE..extent.end().div_ceil(RUN_SIZE);
        let bare = state.bare.range(runs).next();
        assert!(bare.is_none(), "a store to run {bare:?}, which was given back and not claimed");
        let fails = state.fail_store_at == Some(state.ops.stores + 1);
        let done = if fails { Err(unreadable()) } else { store() };
        if done.is_ok() {
            state.lines.note_store(extent, |index| self.line(index));
        }
        if done.is_ok() || fails {
            state.ops.stores += 1;
            state.freeze_if_due();
        }
        done
    }
}

impl Drop for SimMedia {
    fn drop(&mut self) {
        // What has left the memory of a paged region is zero nowhere.
        if self.paging.get().is_none() {
            self.image.give_back(self.state.get_mut().lines.stored());
        }
    }
}

impl State {
    fn new(lines: Lines) -> Self {
        Self {
            lines,
            blocks: Blocks::default(),
            ops: OpCounts::default(),
            skipped: BTreeSet::new(),
            fail_at: None,
            fail_store_at: None,
            closed: None,
            unreadable: BTreeSet::new(),
            lost_blocks: BTreeSet::new(),
            salvaged: BTreeSet::new(),
            bare: BTreeSet::new(),
            full: false,
            freeze_at: VecDeque::new(),
            frozen: Vec::new(),
        }
    }

    fn freeze_if_due(&mut self) {
        while self.freeze_at.front().is_some_and(|at| self.ops.total() >= *at) {
            self.freeze_at.pop_front();
            self.frozen.push(CrashState::new(self.lines.clone()));
        }
    }

    fn fence(&mut self, dirty: &mut Dirty, site: Site) -> Result<(), MediaError> {
        self.check_open()?;
        if self.fail_at == Some(self.ops.fences) {
            return Err(self.latch(io::Error::from_raw_os_error(libc::EIO)));
        }
        let dirty = dirty.take();
        let batch = dirty.promised.batch;
        if !self.skipped.contains(&site) {
            self.lines.keep(dirty.promised);
        }
        if let Some(batch) = batch {
            self.blocks.finish(&mut self.lines, batch);
        }
        Ok(())
    }

    fn check_open(&self) -> Result<(), MediaError> {
        self.closed.clone().map_or(Ok(()), |reason| Err(MediaError::Closed { reason }))
    }

    fn latch(&mut self, source: io::Error) -> MediaError {
        self.closed = Some(source.to_string());
        MediaError::WriteBack { source }
    }
}

impl Media for SimMedia {
    fn kind(&self) -> MediaKind {
        MediaKind::Simulated
    }

    fn describe(&self) -> String {
        let mode = if self.options.deferred { "deferred" } else { "immediate" };
        format!("simulated: survives nothing, to find what a crash would break; {mode} commits")
    }

    fn len(&self) -> u64 {
        self.image.len()
    }

    fn commit_mode(&self) -> CommitMode {
        if self.options.deferred { CommitMode::Deferred } else { CommitMode::Immediate }
    }

    fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        self.image.at(extent.off, u64::from(extent.len()))?;
        self.check_readable(extent)?;
        self.make_present(extent);
        self.image.bytes(extent)
    }

    fn pages(self: Arc<Self>) -> Option<Arc<dyn Pages>> {
        self.paging.get().is_some().then_some(self as _)
    }

    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        // `at` first: a length above 4 GiB must be refused, not truncated.
        self.image.at(off, bytes.len() as u64)?;
        let pieces = bytes.chunks(1 << 30).zip((off..).step_by(1 << 30));
        for (piece, off) in pieces {
            let extent = Extent::new(off, piece.len() as u32);
            self.check_readable(extent)?;
            self.stored(extent, || self.image.store(off, piece))?;
        }
        Ok(())
    }

    fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError> {
        self.check_readable(Extent::new(off, 8))?;
        self.stored(Extent::new(off, 8), || self.image.store_u64(off, word))
    }

    fn zero(&self, extent: Extent) -> Result<(), MediaError> {
        self.image.at(extent.off, u64::from(extent.len()))?;
        self.back(extent)?;
        self.check_readable(extent)?;
        self.stored(extent, || self.image.zero(extent.off, u64::from(extent.len())))
    }

    fn claim_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        self.back(Extent::new(run_off, RUN_SIZE as u32))
    }

    fn forget_run(&self, run_off: u64) -> Standing {
        let is_bare = self.state.lock().bare.contains(&(run_off / RUN_SIZE));
        if is_bare { Standing::Bare } else { Standing::Warm }
    }

    /// Acts as a store of zeroes that never becomes durable: after a crash each word has its old value or is zero.
    fn give_back_run(&self, run_off: u64, down_to: Standing) -> Result<Standing, MediaError> {
        let whole = Extent::new(run_off, RUN_SIZE as u32);
        if self.forget_run(run_off) == Standing::Bare {
            return Ok(Standing::Bare);
        }
        self.stored(whole, || self.image.zero(run_off, RUN_SIZE))?;
        if down_to == Standing::Bare {
            self.state.lock().bare.insert(run_off / RUN_SIZE);
        }
        Ok(down_to)
    }

    fn back_run(&self, run_off: u64) -> Result<Standing, MediaError> {
        self.claim_run(run_off)?;
        Ok(Standing::Backed)
    }

    fn flush(&self, dirty: &mut Dirty, site: Site, extent: Extent) {
        let mut state = self.state.lock();
        if !state.skipped.contains(&site) {
            state.lost_blocks.retain(|block| !blocks_of(extent).contains(block));
            state.salvaged.retain(|block| !blocks_of(extent).contains(block));
            state.lines.promise(&mut dirty.promised, extent);
            dirty.add(extent);
        }
        state.ops.flushes += 1;
        state.freeze_if_due();
    }

    fn fence(&self, dirty: &mut Dirty, site: Site) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        state.ops.fences += 1;
        let done = state.fence(dirty, site);
        state.freeze_if_due();
        done
    }

    fn finish_writes(&self, outcome: Result<(), io::Error>) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        state.check_open()?;
        outcome.map_err(|source| state.latch(source))
    }

    fn closed(&self) -> Option<String> {
        self.state.lock().closed.clone()
    }

    fn unreadable(&self) -> Vec<Extent> {
        let block = |index: &u64| Extent::new(index * BLOCK_SIZE, BLOCK_SIZE as u32);
        self.state.lock().salvaged.iter().map(block).collect()
    }

    /// The durable bytes.
    fn read_medium(&self, extent: Extent, into: &mut [u8]) -> Result<(), MediaError> {
        self.image.at(extent.off, u64::from(extent.len()))?;
        self.check_readable(extent)?;
        if into.len() != extent.len() as usize {
            return Err(MediaError::Unsupported("the buffer must be exactly as long as the extent to read"));
        }
        let state = self.state.lock();
        if state.lost_blocks.range(blocks_of(extent)).next().is_some() {
            return Err(unreadable());
        }
        state.lines.durable().read(extent.off, into);
        Ok(())
    }

    fn grow(&self, len: u64) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        if !crate::sys::grows(self.len(), len, self.image.reserved())? {
            return Ok(());
        }
        state.lines.grow(len as usize);
        self.image.extend_anonymous(len).map_err(|source| MediaError::Io {
            path: "simulated".into(),
            action: "grow the region",
            source,
        })
    }
}

fn blocks_of(extent: Extent) -> std::ops::Range<u64> {
    extent.off / BLOCK_SIZE..extent.end().div_ceil(BLOCK_SIZE)
}

fn unreadable() -> MediaError {
    let source = io::Error::from_raw_os_error(libc::EIO);
    MediaError::Io { path: "simulated".into(), action: "read the region", source }
}
