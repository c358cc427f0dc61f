//! Which chunks of a paged simulated region are in memory, and which are pinned.

use parking_lot::Mutex;

use crate::extent::Extent;
use crate::pages::{CHUNK_SIZE, ChunkSet, Evict, PIN_UNIT};
use crate::units::RUN_SIZE;

/// What happens at some moment.
pub(super) type Happens = Box<dyn FnOnce() + Send>;

/// The chunks of a region.
pub(super) struct Paging {
    limit: u64,
    chunks: Mutex<Vec<Chunk>>,
    /// What happens before everything of a run is evicted that may be, and the run.
    before_evicting: Mutex<Option<(u64, Happens)>>,
    /// What happens before something of a run is read that has left memory, and the run.
    before_reading: Mutex<Option<(u64, Happens)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// The sum of the pins of its units.
    pins: u64,
    is_absent: bool,
    is_used: bool,
}

impl Paging {
    /// Of a region of at most `len` bytes, all of which are in memory.
    pub(super) fn new(len: u64, limit: u64) -> Self {
        let chunks = vec![Chunk::default(); len.div_ceil(CHUNK_SIZE) as usize];
        let (before_evicting, before_reading) = (Mutex::new(None), Mutex::new(None));
        Self { limit, chunks: Mutex::new(chunks), before_evicting, before_reading }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn pin(&self, extent: Extent) {
        let mut chunks = self.chunks.lock();
        for (index, units) in units_of(extent) {
            let chunk = &mut chunks[index as usize];
            (chunk.pins, chunk.is_used) = (chunk.pins + units, true);
        }
    }

    pub(super) fn unpin(&self, extent: Extent) {
        let mut chunks = self.chunks.lock();
        for (index, units) in units_of(extent) {
            let chunk = &mut chunks[index as usize];
            chunk.pins = chunk.pins.checked_sub(units).expect("unpinned as often as pinned");
        }
    }

    pub(super) fn is_present(&self, extent: Extent) -> bool {
        let chunks = self.chunks.lock();
        units_of(extent).all(|(index, _)| !chunks[index as usize].is_absent)
    }

    /// The absent chunks that the extent touches, of a region of `len` bytes: they count as present from now on.
    pub(super) fn take_absent(&self, extent: Extent, len: u64) -> Vec<Extent> {
        let mut chunks = self.chunks.lock();
        let in_bounds =
            units_of(extent).map(|(index, _)| index).filter(|index| chunk_at(*index).end() <= len);
        let is_absent = |index: &u64| std::mem::take(&mut chunks[*index as usize].is_absent);
        in_bounds.filter(is_absent).map(chunk_at).collect()
    }

    /// Bytes of a run that are unpinned and have not been pinned since the last call.
    pub(super) fn cold_bytes(&self, run_off: u64) -> u64 {
        let mut chunks = self.chunks.lock();
        let is_cold = |index: &u64| {
            let chunk = &mut chunks[*index as usize];
            let is_there = chunk.pins == 0 && !chunk.is_absent;
            is_there && !std::mem::take(&mut chunk.is_used)
        };
        chunks_of_run(run_off).filter(is_cold).count() as u64 * CHUNK_SIZE
    }

    /// Counts the chunks of an extent as unused.
    pub(super) fn forget_use(&self, extent: Extent) {
        let mut chunks = self.chunks.lock();
        let first = (extent.off / CHUNK_SIZE) as usize;
        let end = extent.end().div_ceil(CHUNK_SIZE) as usize;
        chunks[first..end].iter_mut().for_each(|chunk| chunk.is_used = false);
    }

    /// The chunks of a run that are not pinned.
    pub(super) fn unpinned(&self, run_off: u64) -> ChunkSet {
        let chunks = self.chunks.lock();
        ChunkSet::of(|chunk| chunks[(run_off / CHUNK_SIZE + chunk) as usize].pins == 0)
    }

    /// Something happens before everything of a run is evicted that may be.
    pub(super) fn before_evicting(&self, run_off: u64, happens: Happens) {
        *self.before_evicting.lock() = Some((run_off, happens));
    }

    /// Has happen what was to happen before this.
    pub(super) fn begin_evicting(&self, run_off: u64, what: Evict) {
        let due = self.before_evicting.lock().take_if(|(run, _)| (*run, Evict::Any) == (run_off, what));
        due.into_iter().for_each(|(_, happens)| happens());
    }

    /// Something happens before what has left memory of a run is read.
    pub(super) fn before_reading(&self, run_off: u64, happens: Happens) {
        *self.before_reading.lock() = Some((run_off, happens));
    }

    /// Has happen what was to happen before this extent is read, if it has left memory.
    pub(super) fn begin_reading(&self, extent: Extent) {
        let run_off = extent.off - extent.off % RUN_SIZE;
        let is_due = |(run, _): &mut (u64, Happens)| *run == run_off && !self.is_present(extent);
        let due = self.before_reading.lock().take_if(is_due);
        due.into_iter().for_each(|(_, happens)| happens());
    }

    /// The chunks of a run, among some, that leave memory: they count as absent from now on.
    pub(super) fn take_unpinned(&self, run_off: u64, what: Evict, among: ChunkSet) -> Vec<Extent> {
        let mut chunks = self.chunks.lock();
        let goes = |index: &u64| {
            let chunk = &mut chunks[*index as usize];
            let is_kept = chunk.pins > 0 || chunk.is_absent || what == Evict::Unused && chunk.is_used;
            if !is_kept {
                (chunk.is_absent, chunk.is_used) = (true, false);
            }
            !is_kept
        };
        let is_among = |index: &u64| among.has(index - run_off / CHUNK_SIZE);
        chunks_of_run(run_off).filter(is_among).filter(goes).map(chunk_at).collect()
    }

    /// Bytes in memory of a region of `len` bytes.
    pub(super) fn resident_bytes(&self, len: u64) -> u64 {
        let chunks = self.chunks.lock();
        let known = chunks.iter().take((len / CHUNK_SIZE) as usize);
        known.filter(|chunk| !chunk.is_absent).count() as u64 * CHUNK_SIZE
    }
}

fn chunk_at(index: u64) -> Extent {
    Extent::new(index * CHUNK_SIZE, CHUNK_SIZE as u32)
}

fn chunks_of_run(run_off: u64) -> std::ops::Range<u64> {
    run_off / CHUNK_SIZE..(run_off + RUN_SIZE) / CHUNK_SIZE
}

/// The chunks that an extent touches, and how many units of each.
fn units_of(extent: Extent) -> impl Iterator<Item = (u64, u64)> {
    let (off, end) = (extent.off, extent.end());
    let chunks = if extent.is_empty() { 0..0 } else { off / CHUNK_SIZE..end.div_ceil(CHUNK_SIZE) };
    chunks.map(move |index| {
        let (from, to) = (off.max(index * CHUNK_SIZE), end.min((index + 1) * CHUNK_SIZE));
        (index, to.div_ceil(PIN_UNIT) - from / PIN_UNIT)
    })
}
