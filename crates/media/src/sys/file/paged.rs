//! Which parts of a run are in memory, and which of them are pinned: one word for each chunk of 64 KiB.
//!
//! | bits | meaning |
//! |---|---|
//! | 0 to 31 | pins: the sum of the pins of all units of 2 KiB |
//! | 32 to 47 | present: which of the chunk's blocks are in memory, if its run is paged |
//! | 48 | busy: its blocks are being read or dropped; a thread that needs them waits |
//! | 49 | used: pinned since the clock last passed |
//!
//! A reader pins first, and reads the run's state and the present bits afterwards. Eviction sets busy only in a word
//! without pins, in one atomic step. So either the reader sees busy, or eviction sees the pin.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::extent::Extent;
use crate::pages::{CHUNK_SIZE, ChunkSet, Evict, PIN_UNIT};
use crate::sys::prefetch::prefetch_line;
use crate::units::{BLOCK_SIZE, RUN_SIZE};

/// Chunks of a run.
const CHUNKS_PER_RUN: u64 = RUN_SIZE / CHUNK_SIZE;
/// Blocks of a chunk.
const BLOCKS_PER_CHUNK: u64 = CHUNK_SIZE / BLOCK_SIZE;

const PINS: u64 = (1 << 32) - 1;
const PRESENT_SHIFT: u32 = 32;
const PRESENT: u64 = ((1 << BLOCKS_PER_CHUNK) - 1) << PRESENT_SHIFT;
const BUSY: u64 = 1 << 48;
const USED: u64 = 1 << 49;

/// How long a thread that waits for a chunk blocks before it checks again.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(1);

const _: () = assert!(BLOCKS_PER_CHUNK == 16 && BUSY > PRESENT);

/// The words of all chunks of a region, growth included.
pub(super) struct Chunks {
    /// Zeroed by the allocator, so that unused words take no memory.
    words: Box<[AtomicU64]>,
    limit: u64,
    waiters: AtomicU32,
    settling: Mutex<()>,
    settled: Condvar,
    /// Held while a run becomes paged, while parts of it are evicted, and while it ceases to be paged.
    pub(super) changing: Mutex<()>,
}

/// A chunk that this thread has marked busy, and the blocks concerned.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    chunk: u64,
    blocks: u64,
}

impl Chunks {
    /// Words for `runs` runs, of which at most `limit` bytes should be in memory.
    pub(super) fn new(runs: u64, limit: u64) -> Self {
        let words = vec![0_u64; (runs * CHUNKS_PER_RUN) as usize].into_boxed_slice();
        // SAFETY: an atomic word has the size and, on the one architecture there is, the alignment of a plain one.
        let words = unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) };
        Self {
            words,
            limit,
            waiters: AtomicU32::new(0),
            settling: Mutex::new(()),
            settled: Condvar::new(),
            changing: Mutex::new(()),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    fn word(&self, chunk: u64) -> &AtomicU64 {
        &self.words[chunk as usize]
    }

    /// Prefetches the word of the extent's first chunk.
    #[inline]
    pub(super) fn prefetch(&self, extent: Extent) {
        if let Some(word) = self.words.get((extent.off / CHUNK_SIZE) as usize) {
            prefetch_line(word);
        }
    }

    pub(super) fn pin(&self, extent: Extent) {
        for (chunk, units) in units_of(extent) {
            let before = self.word(chunk).fetch_add(units, Ordering::AcqRel);
            debug_assert!(before & PINS < PINS / 2);
            if before & USED == 0 {
                self.word(chunk).fetch_or(USED, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn unpin(&self, extent: Extent) {
        for (chunk, units) in units_of(extent) {
            let before = self.word(chunk).fetch_sub(units, Ordering::AcqRel);
            assert!(before & PINS >= units, "chunk {chunk} was unpinned more often than pinned");
        }
    }

    /// True when every chunk that the extent touches has a pin.
    pub(super) fn is_pinned(&self, extent: Extent) -> bool {
        blocks_of(extent).all(|(chunk, _)| self.word(chunk).load(Ordering::Acquire) & PINS > 0)
    }

    /// True when every block that the extent touches is in memory. Valid for paged runs.
    #[inline]
    pub(super) fn is_present(&self, extent: Extent) -> bool {
        blocks_of(extent).all(|(chunk, blocks)| {
            // A thread that drops blocks clears their bits first; a thread that reads other blocks of the chunk leaves
            // these bits.
            self.word(chunk).load(Ordering::Acquire) & blocks == blocks
        })
    }

    /// Brings the blocks of a pinned extent into memory: `read` reads a range of blocks. Returns how many bytes it
    /// read. While another thread reads or drops a part of the extent, this thread waits and calls `help`, which takes
    /// completions of all rings.
    pub(super) fn load<E>(
        &self,
        extent: Extent,
        help: &dyn Fn(),
        mut read: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut taken: Vec<Taken> = Vec::new();
        // In ascending order: a thread that waits for one chunk holds no chunk behind it.
        for (chunk, blocks) in blocks_of(extent) {
            let missing = self.take_missing(chunk, blocks, help);
            if missing != 0 {
                taken.push(Taken { chunk, blocks: missing });
            }
        }
        let outcome = spans(&taken).try_for_each(|span| read(span.start, span.end - span.start));
        let bytes = self.settle(&taken, outcome.is_ok());
        outcome.map(|()| bytes)
    }

    /// Marks the chunks of an extent busy of which blocks are missing, unless one of them is busy: `None`.
    pub(super) fn try_take(&self, extent: Extent) -> Option<Vec<Taken>> {
        let mut taken: Vec<Taken> = Vec::new();
        for (chunk, blocks) in blocks_of(extent) {
            match self.try_take_missing(chunk, blocks) {
                Some(0) => {}
                Some(missing) => taken.push(Taken { chunk, blocks: missing }),
                None => {
                    self.give_up(&taken);
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// Ends what marked these chunks busy, without having read a block.
    pub(super) fn give_up(&self, taken: &[Taken]) {
        self.settle(taken, false);
    }

    /// Ends a read: if it `succeeded`, its blocks are present. Returns their bytes.
    pub(super) fn settle(&self, taken: &[Taken], succeeded: bool) -> u64 {
        let mut bytes = 0;
        for one in taken {
            let came = if succeeded { one.blocks } else { 0 };
            bytes += u64::from(came.count_ones()) * BLOCK_SIZE;
            self.leave(one.chunk, came);
        }
        bytes
    }

    /// Marks a chunk busy if one of the blocks is missing. Returns the missing blocks. Waits while the chunk is busy.
    fn take_missing(&self, chunk: u64, blocks: u64, help: &dyn Fn()) -> u64 {
        loop {
            match self.try_take_missing(chunk, blocks) {
                Some(missing) => return missing,
                None => self.wait(chunk, help),
            }
        }
    }

    /// Marks a chunk busy if one of the blocks is missing. Returns the missing blocks, or `None` if blocks are missing
    /// and the chunk is busy.
    fn try_take_missing(&self, chunk: u64, blocks: u64) -> Option<u64> {
        let word = self.word(chunk);
        let mut now = word.load(Ordering::Acquire);
        loop {
            let missing = blocks & !now;
            if missing == 0 {
                return Some(0);
            }
            if now & BUSY != 0 {
                return None;
            }
            match word.compare_exchange_weak(now, now | BUSY, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(missing),
                Err(changed) => now = changed,
            }
        }
    }

    /// Clears busy and marks the blocks in `came` present.
    fn leave(&self, chunk: u64, came: u64) {
        let word = self.word(chunk);
        word.fetch_or(came, Ordering::AcqRel);
        word.fetch_and(!BUSY, Ordering::AcqRel);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.settling.lock());
            self.settled.notify_all();
        }
    }

    #[cold]
    fn wait(&self, chunk: u64, help: &dyn Fn()) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while self.word(chunk).load(Ordering::SeqCst) & BUSY != 0 {
            help();
            let mut guard = self.settling.lock();
            if self.word(chunk).load(Ordering::SeqCst) & BUSY != 0 {
                // The timeout covers a waiter that checks just before the notification, and completions that arrive.
                self.settled.wait_for(&mut guard, WAIT_MAX);
            }
        }
        self.waiters.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts the chunks of an extent as unused, as if nobody had pinned them yet.
    pub(super) fn forget_use(&self, extent: Extent) {
        for (chunk, _) in blocks_of(extent) {
            self.word(chunk).fetch_and(!USED, Ordering::Relaxed);
        }
    }

    /// A run that is wholly in memory becomes paged: all of its blocks are present. False, and nothing, if a thread has found
    /// blocks missing and has yet to see that the run was whole: it would read them from the file.
    pub(super) fn fill(&self, run: u64) -> bool {
        let is_filled = chunks_of_run(run).all(|chunk| {
            let present = |word: u64| (word & BUSY == 0).then_some(word | PRESENT);
            self.word(chunk).fetch_update(Ordering::AcqRel, Ordering::Acquire, present).is_ok()
        });
        if !is_filled {
            self.clear(run);
        }
        is_filled
    }

    /// Clears the present bits of a run that has no pins and will get none. Returns how many bytes were present.
    pub(super) fn clear(&self, run: u64) -> u64 {
        let cleared = chunks_of_run(run).map(|chunk| {
            let before = self.word(chunk).fetch_and(!PRESENT, Ordering::AcqRel);
            u64::from((before & PRESENT).count_ones())
        });
        cleared.sum::<u64>() * BLOCK_SIZE
    }

    /// The size of a run's present blocks, bytes.
    pub(super) fn present_bytes(&self, run: u64) -> u64 {
        let present = |chunk| (self.word(chunk).load(Ordering::Acquire) & PRESENT).count_ones();
        chunks_of_run(run).map(|chunk| u64::from(present(chunk))).sum::<u64>() * BLOCK_SIZE
    }

    /// Bytes of a run's chunks that are unpinned and have not been pinned since the last call. If `paged`, only present
    /// blocks count; otherwise all of the run is in memory.
    pub(super) fn cold_bytes(&self, run: u64, paged: bool) -> u64 {
        let mut bytes = 0;
        for chunk in chunks_of_run(run) {
            let word = self.word(chunk).load(Ordering::Acquire);
            let there = if paged { word & PRESENT } else { PRESENT };
            if word & (PINS | BUSY) != 0 || there == 0 {
                continue;
            }
            if word & USED != 0 {
                self.word(chunk).fetch_and(!USED, Ordering::AcqRel);
            } else {
                bytes += u64::from(there.count_ones()) * BLOCK_SIZE;
            }
        }
        bytes
    }

    /// The chunks of a run that are not pinned.
    pub(super) fn unpinned(&self, run: u64) -> ChunkSet {
        let first = run * CHUNKS_PER_RUN;
        ChunkSet::of(|chunk| self.word(first + chunk).load(Ordering::Acquire) & PINS == 0)
    }

    /// Drops chunks of a paged run that are among some: `drop_range` frees the memory of a range. Returns how many bytes it
    /// dropped.
    pub(super) fn evict(
        &self,
        run: u64,
        (what, among): (Evict, ChunkSet),
        mut drop_range: impl FnMut(u64, u64),
    ) -> u64 {
        let mut taken: Vec<Taken> = Vec::new();
        for chunk in chunks_of_run(run).filter(|chunk| among.has(chunk - run * CHUNKS_PER_RUN)) {
            let word = self.word(chunk).load(Ordering::Acquire);
            let kept = if what == Evict::Unused { PINS | BUSY | USED } else { PINS | BUSY };
            if word & kept != 0 || word & PRESENT == 0 {
                continue;
            }
            let dropped = (word & !(PRESENT | USED)) | BUSY;
            if self.word(chunk).compare_exchange(word, dropped, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                taken.push(Taken { chunk, blocks: word & PRESENT });
            }
        }
        let whole: Vec<Taken> = taken.iter().map(|one| Taken { chunk: one.chunk, blocks: PRESENT }).collect();
        spans(&whole).for_each(|span| drop_range(span.start, span.end - span.start));
        let mut bytes = 0;
        for one in taken {
            bytes += u64::from(one.blocks.count_ones()) * BLOCK_SIZE;
            self.leave(one.chunk, 0);
        }
        bytes
    }
}

/// The byte ranges of the blocks of these chunks, merged where they touch.
pub(super) fn spans(taken: &[Taken]) -> impl Iterator<Item = Range<u64>> + '_ {
    let blocks = taken.iter().flat_map(|one| {
        let bits = one.blocks >> PRESENT_SHIFT;
        let first = one.chunk * BLOCKS_PER_CHUNK;
        (0..BLOCKS_PER_CHUNK).filter(move |block| bits >> block & 1 == 1).map(move |block| first + block)
    });
    let mut blocks = blocks.peekable();
    std::iter::from_fn(move || {
        let start = blocks.next()?;
        let mut end = start + 1;
        while blocks.next_if_eq(&end).is_some() {
            end += 1;
        }
        Some(start * BLOCK_SIZE..end * BLOCK_SIZE)
    })
}

fn chunks_of_run(run: u64) -> Range<u64> {
    run * CHUNKS_PER_RUN..(run + 1) * CHUNKS_PER_RUN
}

/// The chunks that an extent touches, and how many pin units it touches in each.
fn units_of(extent: Extent) -> impl Iterator<Item = (u64, u64)> {
    parts_of(extent, PIN_UNIT).map(|(chunk, units)| (chunk, units.end - units.start))
}

/// The chunks that an extent touches, and the present bits of the blocks that it touches in each.
fn blocks_of(extent: Extent) -> impl Iterator<Item = (u64, u64)> {
    parts_of(extent, BLOCK_SIZE).map(|(chunk, blocks)| {
        let bits = (1_u64 << (blocks.end - blocks.start)) - 1;
        (chunk, bits << blocks.start << PRESENT_SHIFT)
    })
}

/// The chunks that an extent touches, and which of their parts of `size` bytes.
fn parts_of(extent: Extent, size: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (off, end) = (extent.off, extent.end());
    let chunks = if extent.is_empty() { 0..0 } else { off / CHUNK_SIZE..(end - 1) / CHUNK_SIZE + 1 };
    chunks.map(move |chunk| {
        let start = chunk * CHUNK_SIZE;
        let (from, to) = (off.max(start) - start, end.min(start + CHUNK_SIZE) - start);
        (chunk, from / size..(to - 1) / size + 1)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn loads(chunks: &Chunks, extent: Extent) -> Vec<(u64, u64)> {
        let reads = RefCell::new(Vec::new());
        let read = |off, len| -> Result<(), ()> {
            reads.borrow_mut().push((off, len));
            Ok(())
        };
        chunks.load(extent, &|| {}, read).expect("every read succeeds");
        reads.into_inner()
    }

    #[test]
    fn only_missing_blocks_are_read_in_as_few_reads_as_they_make_up() {
        let chunks = Chunks::new(2, 0);
        assert_eq!(loads(&chunks, Extent::new(CHUNK_SIZE - 4097, 4098)), [(CHUNK_SIZE - 8192, 12288)]);
        assert_eq!(loads(&chunks, Extent::new(CHUNK_SIZE - 100, 200)), []);
        let around = Extent::new(CHUNK_SIZE - 12288, 20480);
        assert_eq!(loads(&chunks, around), [(CHUNK_SIZE - 12288, 4096), (CHUNK_SIZE + 4096, 4096)]);
        assert!(chunks.is_present(around) && !chunks.is_present(Extent::new(0, 1)));
        assert_eq!(chunks.present_bytes(0), 5 * 4096);
    }

    #[test]
    fn a_failed_read_leaves_the_blocks_missing_and_the_chunk_free() {
        let chunks = Chunks::new(1, 0);
        let extent = Extent::new(5, 10);
        assert!(chunks.load(extent, &|| {}, |_, _| Err(())).is_err());
        assert!(!chunks.is_present(extent));
        assert_eq!(loads(&chunks, extent), [(0, 4096)]);
    }

    #[test]
    fn pinned_and_recently_used_chunks_stay() {
        let chunks = Chunks::new(1, 0);
        assert!(chunks.fill(0));
        let (kept, used) = (Extent::new(100, 5000), Extent::new(CHUNK_SIZE, 1));
        chunks.pin(kept);
        chunks.pin(used);
        chunks.unpin(used);
        let dropped = RefCell::new(Vec::new());
        let evict =
            |what| chunks.evict(0, (what, ChunkSet::ALL), |off, len| dropped.borrow_mut().push((off, len)));
        assert_eq!(chunks.cold_bytes(0, true), RUN_SIZE - 2 * CHUNK_SIZE);
        chunks.pin(used);
        chunks.unpin(used);
        assert_eq!(evict(Evict::Unused), RUN_SIZE - 2 * CHUNK_SIZE);
        assert_eq!(evict(Evict::Any), CHUNK_SIZE);
        assert_eq!(
            *dropped.borrow(),
            [(2 * CHUNK_SIZE, RUN_SIZE - 2 * CHUNK_SIZE), (CHUNK_SIZE, CHUNK_SIZE)]
        );
        // An extent that was pinned as a whole is unpinned in parts of whole units.
        chunks.unpin(Extent::new(100, 1));
        assert_eq!(evict(Evict::Any), 0);
        chunks.unpin(Extent::new(2048, 3052));
        assert_eq!(evict(Evict::Any), CHUNK_SIZE);
    }

    #[test]
    fn a_reader_waits_for_an_eviction_in_progress_and_reads_the_blocks_again() {
        let chunks = Chunks::new(1, 0);
        assert!(chunks.fill(0));
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            chunks.evict(0, (Evict::Any, ChunkSet::ALL), |_, _| {
                threads.spawn(|| {
                    chunks.pin(Extent::new(0, 1));
                    let read = |_, _| -> Result<(), ()> {
                        order.lock().push("read");
                        Ok(())
                    };
                    chunks.load(Extent::new(0, 1), &|| {}, read).expect("the read succeeds");
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                order.lock().push("dropped");
            });
        });
        assert_eq!(*order.lock(), ["dropped", "read"]);
    }

    #[test]
    #[should_panic(expected = "unpinned more often than pinned")]
    fn unpinning_without_a_pin_is_a_bug() {
        Chunks::new(1, 0).unpin(Extent::new(0, 1));
    }
}
