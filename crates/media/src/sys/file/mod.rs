//! The medium for a file on an ordinary file system: the image is anonymous memory, batches are written
//! to the file with direct I/O, and runs are read from the file when they are first needed.

mod backing;
mod pace;
mod paged;
mod pairs;
mod reads;
mod residency;
mod together;
mod writes;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use self::backing::Backing;
use self::paged::Chunks;
use self::pairs::Pairs;
use self::reads::{ReadTarget, Rings, Target};
use self::residency::Residency;
use super::grow::{grows, reservation};
use super::image::{Image, check_buffer};
use super::region::Region;
use crate::batch::Batch;
use crate::dirty::Dirty;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::kind::MediaKind;
use crate::media::{CommitMode, Media};
use crate::pages::{ChunkSet, EventFd, Evict, Pages, ReadQueue};
use crate::site::Site;
use crate::standing::Standing;
use crate::units::RUN_SIZE;

/// A region whose image is in memory and whose durable bytes are in a file.
pub(super) struct FileMedia {
    image: Image,
    runs: Residency,
    pairs: Pairs,
    backing: Backing,
    /// Which blocks and chunks are in memory; `None` where the whole region may be.
    chunks: Option<Chunks>,
    /// The rings through which threads read without waiting.
    rings: Rings,
    growing: Mutex<()>,
    /// A kernel keeps references to the image's pages.
    pinned: AtomicBool,
}

impl FileMedia {
    /// Opens the region without reading it. `memory` is the number of its bytes that may be in memory, `whole` what it is to
    /// grow to at once.
    pub(super) fn open(region: Region, memory: Option<u64>, whole: u64) -> Result<Self, MediaError> {
        let len = region.len;
        let image = Image::anonymous(len, reservation(len, whole)).map_err(|source| MediaError::Io {
            path: region.path.clone(),
            action: "reserve memory for the region",
            source,
        })?;
        let runs = Residency::new(image.reserved() / RUN_SIZE);
        let pairs = Pairs::new(image.reserved() / RUN_SIZE);
        let chunks = memory.map(|limit| Chunks::new(image.reserved() / RUN_SIZE, limit));
        if chunks.is_some() {
            // Chunks are evicted singly: a huge page would allocate memory for their neighbours again.
            image.advise_huge(0, len, false);
        }
        let backing = Backing::new(region)?;
        backing.holes(len, |range| runs.mark_fresh(range));
        Ok(Self {
            image,
            runs,
            pairs,
            backing,
            chunks,
            rings: Rings::default(),
            growing: Mutex::new(()),
            pinned: AtomicBool::new(false),
        })
    }

    /// Makes a checked range readable: reads what is missing from the file.
    #[inline]
    fn make_readable(&self, extent: Extent) -> Result<(), MediaError> {
        match &self.chunks {
            None => self.runs.make_readable(extent.off, u64::from(extent.len()), |run| self.load(run)),
            Some(chunks) => extent.by_run().try_for_each(|part| self.page_in(chunks, part)),
        }
    }

    /// Makes a part of one run readable: single blocks where the part is pinned or the run is paged, otherwise the
    /// whole run.
    #[inline]
    fn page_in(&self, chunks: &Chunks, part: Extent) -> Result<(), MediaError> {
        if self.is_in_memory(chunks, part) {
            return Ok(());
        }
        self.page_in_missing(chunks, part)
    }

    /// True when every byte of a part of one run is in memory.
    #[inline]
    fn is_in_memory(&self, chunks: &Chunks, part: Extent) -> bool {
        let run = part.off / RUN_SIZE;
        self.runs.is_whole(run) || (self.runs.is_paged(run) && chunks.is_present(part))
    }

    #[cold]
    fn page_in_missing(&self, chunks: &Chunks, part: Extent) -> Result<(), MediaError> {
        let run = part.off / RUN_SIZE;
        if chunks.is_pinned(part) {
            self.runs.page(run, false);
        }
        self.runs.make_readable(part.off, u64::from(part.len()), |run| self.load(run))?;
        if !self.runs.is_paged(run) || chunks.is_present(part) {
            return Ok(());
        }
        debug_assert!(chunks.is_pinned(part), "{part:?} is used without a pin");
        self.load_blocks(chunks, part)
    }

    fn load_blocks(&self, chunks: &Chunks, part: Extent) -> Result<(), MediaError> {
        let help = || self.rings.take_completions(self.target());
        let came = chunks.load(part, &help, |off, len| {
            // Blocks are marked as missing, too, while the whole run is in memory. While this thread has marked a chunk busy
            // a paged run stays paged, and no other one becomes so.
            if !self.runs.is_paged(part.off / RUN_SIZE) {
                return Err(None);
            }
            let into = self.image.at(off, len).map_err(Some)?;
            // SAFETY: in bounds; the blocks are missing and only this thread reads them, so that no slice of them
            // exists, and no thread stores to a paged run.
            unsafe { self.backing.read(off, into, len as usize) }.map_err(Some)
        });
        match came {
            Ok(came) => self.runs.add_resident(came),
            Err(None) => {}
            Err(Some(error)) => return Err(error),
        }
        Ok(())
    }

    /// Makes a checked range's runs readable, and ready to be stored to and written back.
    #[inline]
    fn make_writable(&self, off: u64, len: u64) -> Result<(), MediaError> {
        self.backing.writable()?;
        if let Some(chunks) = &self.chunks {
            self.make_whole(chunks, off / RUN_SIZE..(off + len).div_ceil(RUN_SIZE))?;
        }
        self.runs.make_writable(off, len, |run| self.load(run), |run| self.backing.allocate_run(run))
    }

    /// Reads all missing blocks of paged runs, which then become resident.
    fn make_whole(&self, chunks: &Chunks, runs: Range<u64>) -> Result<(), MediaError> {
        for run in runs.filter(|run| self.runs.is_paged(*run)) {
            let whole = Extent::new(run * RUN_SIZE, RUN_SIZE as u32);
            // Whoever comes later finds a run that is not paged: it must not read what this thread has made whole, since others
            // store to it then.
            let changing = chunks.changing.lock();
            chunks.pin(whole);
            let loaded = self.load_blocks(chunks, whole);
            if loaded.is_ok() {
                self.unpage(chunks, run, &changing);
            }
            chunks.unpin(whole);
            loaded?;
        }
        Ok(())
    }

    /// A paged run becomes resident: all of it is in memory, or the missing blocks are not needed.
    fn unpage(&self, chunks: &Chunks, run: u64, _one_at_a_time: &MutexGuard<'_, ()>) {
        self.runs.unpage(run, chunks.present_bytes(run));
        chunks.clear(run);
    }

    /// Makes the whole runs of a checked range ready to be stored to, without reading them.
    fn claim(&self, off: u64, len: u64) -> Result<(), MediaError> {
        if let Some(chunks) = &self.chunks {
            let whole = off.div_ceil(RUN_SIZE)..(off + len) / RUN_SIZE;
            for run in whole.filter(|run| self.runs.is_paged(*run)) {
                self.unpage(chunks, run, &chunks.changing.lock());
            }
        }
        self.runs.claim_whole_runs(off, len, |run| self.backing.allocate_run(run))
    }

    fn load(&self, run: u64) -> Result<(), MediaError> {
        if self.chunks.is_none() && self.runs.is_free(run ^ 1) {
            self.pairs.split(&self.image, run);
        }
        let into = self.image.at(run * RUN_SIZE, RUN_SIZE)?;
        // SAFETY: in bounds; the run is absent and only this thread loads it, so that no slice of it exists and no
        // thread stores to it.
        unsafe { self.backing.read(run * RUN_SIZE, into, RUN_SIZE as usize) }
    }

    fn forget(&self, run: u64) -> Standing {
        let has = self.runs.forget(run);
        if self.chunks.is_none() && has != Standing::Warm && self.runs.is_resident(run ^ 1) {
            // The other run of the pair has allocated memory for both.
            self.pairs.split(&self.image, run);
            let _ = self.image.give_back(run * RUN_SIZE, RUN_SIZE);
        }
        has
    }

    /// Releases a run's memory, and its blocks as well if `down_to` is [`Standing::Bare`].
    fn give(&self, run: u64, down_to: Standing) -> Result<(), MediaError> {
        self.image.give_back(run * RUN_SIZE, RUN_SIZE).map_err(|e| self.backing.io("give memory back", e))?;
        match &self.chunks {
            Some(chunks) => self.runs.drop_resident(chunks.clear(run)),
            None if !self.runs.is_free(run ^ 1) => self.pairs.split(&self.image, run),
            None => {}
        }
        if down_to == Standing::Bare { self.backing.punch_run(run) } else { Ok(()) }
    }

    fn try_file_writes(&self, dirty: &Dirty) -> Result<Batch, MediaError> {
        self.backing.check_open()?;
        let writes = writes::plan(dirty.ranges(), self.image.len(), self.image.base());
        for write in &writes {
            // Both ends are rounded to blocks: the neighbours' bytes must be in the image as well.
            self.make_writable(write.extent.off, u64::from(write.extent.len()))?;
        }
        Ok(self.backing.batch(writes))
    }
}

impl Media for FileMedia {
    fn kind(&self) -> MediaKind {
        MediaKind::File
    }

    fn describe(&self) -> String {
        format!("file: survives a crash of the machine and a power loss; {}", self.backing.describe())
    }

    #[inline]
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn commit_mode(&self) -> CommitMode {
        CommitMode::Deferred
    }

    #[inline]
    fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        self.image.at(extent.off, u64::from(extent.len()))?;
        self.make_readable(extent)?;
        self.image.bytes(extent)
    }

    #[inline]
    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.image.at(off, bytes.len() as u64)?;
        self.make_writable(off, bytes.len() as u64)?;
        self.image.store(off, bytes)
    }

    #[inline]
    fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError> {
        self.image.at(off, 8)?;
        self.make_writable(off, 8)?;
        self.image.store_u64(off, word)
    }

    fn zero(&self, extent: Extent) -> Result<(), MediaError> {
        let (off, len) = (extent.off, u64::from(extent.len()));
        self.image.at(off, len)?;
        self.backing.writable()?;
        self.claim(off, len)?;
        self.make_writable(off, len)?;
        self.image.zero(off, len)
    }

    fn claim_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        self.backing.writable()?;
        self.claim(run_off, RUN_SIZE)?;
        let run = run_off / RUN_SIZE;
        if self.chunks.is_none() && !self.runs.is_free(run ^ 1) {
            self.pairs.join(&self.image, run);
        }
        // A wrong offset, within a run, touches two runs in part: these are loaded instead.
        self.make_writable(run_off, RUN_SIZE)
    }

    fn warm_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.claim_run(run_off)?;
        self.image.populate(run_off, RUN_SIZE)
    }

    fn forget_run(&self, run_off: u64) -> Standing {
        match self.image.at(run_off, RUN_SIZE) {
            Ok(_) if self.backing.writable().is_ok() => self.forget(run_off / RUN_SIZE),
            _ => Standing::Warm,
        }
    }

    fn give_back_run(&self, run_off: u64, down_to: Standing) -> Result<Standing, MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        if self.pinned.load(Ordering::Acquire) {
            return Ok(Standing::Warm);
        }
        self.backing.check_open()?;
        let down_to = if self.backing.trusts_holes() { down_to } else { Standing::Backed };
        let run = run_off / RUN_SIZE;
        // A run whose blocks are being written is not given back, and is not written while it is given back.
        let _still = self.backing.hold(Extent::new(run_off, RUN_SIZE as u32));
        self.runs.give_back(run, down_to, || self.give(run, down_to))
    }

    fn back_run(&self, run_off: u64) -> Result<Standing, MediaError> {
        Ok(self.back_runs(&[run_off])?.pop().unwrap_or(Standing::Bare))
    }

    fn back_runs(&self, run_offs: &[u64]) -> Result<Vec<Standing>, MediaError> {
        run_offs.iter().try_for_each(|run_off| self.image.at(*run_off, RUN_SIZE).map(drop))?;
        self.backing.check_open()?;
        let runs: Vec<u64> = run_offs.iter().map(|run_off| run_off / RUN_SIZE).collect();
        self.runs.prepare(&runs, |fresh| self.backing.prepare_runs(fresh))
    }

    #[inline]
    fn flush(&self, dirty: &mut Dirty, _site: Site, extent: Extent) {
        dirty.add(extent);
    }

    fn fence(&self, dirty: &mut Dirty, _site: Site) -> Result<(), MediaError> {
        let batch = self.try_file_writes(dirty).map_err(|e| self.backing.latch_after(e))?;
        self.backing.write_back(&batch)?;
        *dirty = Dirty::new();
        Ok(())
    }

    fn file_writes(&self, dirty: &Dirty) -> Batch {
        self.try_file_writes(dirty).unwrap_or_else(|e| {
            // Without the bytes beside the range no block may be written; `finish_writes` reports the reason.
            self.backing.latch_after(e);
            Batch::none()
        })
    }

    fn finish_writes(&self, outcome: Result<(), io::Error>) -> Result<(), MediaError> {
        self.backing.check_open()?;
        outcome.map_err(|source| self.backing.latch(source))
    }

    fn closed(&self) -> Option<String> {
        self.backing.closed()
    }

    fn unreadable(&self) -> Vec<Extent> {
        self.backing.unreadable()
    }

    fn read_medium(&self, extent: Extent, into: &mut [u8]) -> Result<(), MediaError> {
        check_buffer(extent, into)?;
        self.image.at(extent.off, u64::from(extent.len()))?;
        self.backing.read_past_image(extent.off, into)
    }

    fn grow(&self, len: u64) -> Result<(), MediaError> {
        let _one_at_a_time = self.growing.lock();
        self.backing.check_open()?;
        if !grows(self.len(), len, self.image.reserved())? {
            return Ok(());
        }
        // First the memory: a file that has grown would be opened with its new length.
        let before = self.len();
        self.image
            .back_anonymous(len)
            .map_err(|source| self.backing.io("grow the region's memory", source))?;
        let file_len = self.backing.extend(before, len)?;
        // Runs that the old file did not reach are zeroes. A partial run at the end of the old file must be read.
        self.runs.mark_fresh(file_len.div_ceil(RUN_SIZE)..len / RUN_SIZE);
        self.image.set_len(len);
        // As in `open`: chunks are evicted singly.
        self.image.advise_huge(before, len - before, self.chunks.is_none());
        Ok(())
    }

    fn image(&self) -> Option<(usize, u64)> {
        Some((self.image.base(), self.image.len()))
    }

    fn pin_image(&self) -> Option<(usize, u64)> {
        self.pinned.store(true, Ordering::Release);
        self.image()
    }

    fn pages(self: Arc<Self>) -> Option<Arc<dyn Pages>> {
        self.chunks.is_some().then_some(self as _)
    }

    fn load_some(&self) -> Result<bool, MediaError> {
        if self.chunks.is_some() {
            return Ok(false);
        }
        self.runs.load_next(self.image.len() / RUN_SIZE, |run| self.load(run))
    }
}

impl FileMedia {
    fn paging(&self) -> &Chunks {
        self.chunks.as_ref().expect("only a paged medium yields its pages")
    }
}

impl ReadTarget for FileMedia {
    fn target(&self) -> Target<'_> {
        Target { image: &self.image, runs: &self.runs, backing: &self.backing, chunks: self.paging() }
    }

    fn rings(&self) -> &Rings {
        &self.rings
    }
}

impl Pages for FileMedia {
    #[inline]
    fn prefetch(&self, extent: Extent) {
        self.paging().prefetch(extent);
    }

    #[inline]
    fn pin(&self, extent: Extent) {
        self.paging().pin(extent);
    }

    #[inline]
    fn unpin(&self, extent: Extent) {
        self.paging().unpin(extent);
    }

    fn is_resident(&self, extent: Extent) -> bool {
        let chunks = self.paging();
        extent.by_run().all(|part| self.is_in_memory(chunks, part))
    }

    fn load(&self, extent: Extent) -> Result<(), MediaError> {
        self.image.at(extent.off, u64::from(extent.len()))?;
        self.make_readable(extent)
    }

    fn open_queue(self: Arc<Self>, eventfd: Option<EventFd<'_>>) -> Result<Box<dyn ReadQueue>, MediaError> {
        Ok(Box::new(reads::Queue::open(self, eventfd)?))
    }

    fn forget_use(&self, extent: Extent) {
        self.paging().forget_use(extent);
    }

    fn cold_bytes(&self, run_off: u64) -> u64 {
        let run = run_off / RUN_SIZE;
        let paged = self.runs.is_paged(run);
        if paged || self.runs.is_resident(run) { self.paging().cold_bytes(run, paged) } else { 0 }
    }

    fn unpinned(&self, run_off: u64) -> ChunkSet {
        self.paging().unpinned(run_off / RUN_SIZE)
    }

    fn evict(&self, run_off: u64, what: Evict, among: ChunkSet) -> u64 {
        let (chunks, run) = (self.paging(), run_off / RUN_SIZE);
        if self.pinned.load(Ordering::Acquire) {
            return 0;
        }
        let _one_at_a_time = chunks.changing.lock();
        if self.runs.is_resident(run) {
            // Its blocks are marked present before another thread can ask for them.
            if !chunks.fill(run) {
                return 0;
            }
            self.runs.page(run, true);
        }
        if !self.runs.is_paged(run) {
            return 0;
        }
        let freed = chunks.evict(run, (what, among), |off, len| {
            // Memory that cannot be released stays allocated, with the bytes that the file has.
            let _ = self.image.give_back(off, len);
        });
        self.runs.drop_resident(freed);
        freed
    }

    fn resident_bytes(&self) -> u64 {
        self.runs.resident_bytes()
    }

    fn limit(&self) -> u64 {
        self.paging().limit()
    }
}

#[cfg(test)]
mod tests;
