//! The medium for a file on an ordinary file system: the image is anonymous memory, batches are written
//! to the file with direct I/O, and runs are read from the file when they are first needed.

mod backing;
mod pairs;
mod residency;
mod writes;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use self::backing::Backing;
use self::pairs::Pairs;
use self::residency::Residency;
use super::image::Image;
use super::mapped::{RESERVE_FACTOR, RESERVE_MIN, grows};
use super::open::Region;
use crate::{Batch, CommitMode, Dirty, Extent, Media, MediaError, MediaKind, RUN_SIZE, Site, Standing};

/// A region whose image is in memory and whose durable bytes are in a file.
pub(super) struct FileMedia {
    image: Image,
    runs: Residency,
    pairs: Pairs,
    backing: Backing,
    growing: Mutex<()>,
    /// A kernel keeps hold of the image's pages.
    pinned: AtomicBool,
}

impl FileMedia {
    /// Opens the region; reads nothing yet.
    pub(super) fn open(region: Region) -> Result<Self, MediaError> {
        let len = region.len;
        let wanted = RESERVE_MIN.max(len.saturating_mul(RESERVE_FACTOR));
        let image = Image::anonymous(len, wanted).map_err(|source| MediaError::Io {
            path: region.path.clone(),
            action: "reserve memory for the region",
            source,
        })?;
        let runs = Residency::new(image.reserved() / RUN_SIZE);
        let pairs = Pairs::new(image.reserved() / RUN_SIZE);
        let backing = Backing::new(region)?;
        backing.holes(len, |range| runs.mark_fresh(range));
        Ok(Self { image, runs, pairs, backing, growing: Mutex::new(()), pinned: AtomicBool::new(false) })
    }

    /// Makes a checked range's runs readable, reading from the file what is not there yet.
    #[inline]
    fn make_readable(&self, off: u64, len: u64) -> Result<(), MediaError> {
        self.runs.make_readable(off, len, |run| self.load(run))
    }

    /// Makes a checked range's runs readable and ours to store to and write back.
    #[inline]
    fn make_writable(&self, off: u64, len: u64) -> Result<(), MediaError> {
        self.backing.writable()?;
        self.runs.make_writable(off, len, |run| self.load(run), |run| self.backing.allocate_run(run))
    }

    /// Makes the whole runs of a checked range ours to store to, without reading them.
    fn claim(&self, off: u64, len: u64) -> Result<(), MediaError> {
        self.runs.claim_whole_runs(off, len, |run| self.backing.allocate_run(run))
    }

    fn load(&self, run: u64) -> Result<(), MediaError> {
        if self.runs.is_free(run ^ 1) {
            self.pairs.split(&self.image, run);
        }
        let into = self.image.at(run * RUN_SIZE, RUN_SIZE)?;
        // SAFETY: in bounds; the run is absent and this thread alone loads it, so that nobody has a slice
        // of it yet and nobody stores to it.
        unsafe { self.backing.read(run * RUN_SIZE, into, RUN_SIZE as usize) }
    }

    fn forget(&self, run: u64) -> Standing {
        let has = self.runs.forget(run);
        if has != Standing::Warm && self.runs.is_resident(run ^ 1) {
            // Its neighbour has brought memory for both.
            self.pairs.split(&self.image, run);
            let _ = self.image.give_back(run * RUN_SIZE, RUN_SIZE);
        }
        has
    }

    /// Drops a run's memory, and its blocks if they are to go, too.
    fn give(&self, run: u64, down_to: Standing) -> Result<(), MediaError> {
        self.image.give_back(run * RUN_SIZE, RUN_SIZE).map_err(|e| self.backing.io("give memory back", e))?;
        if !self.runs.is_free(run ^ 1) {
            self.pairs.split(&self.image, run);
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
        self.make_readable(extent.off, u64::from(extent.len()))?;
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
        if !self.runs.is_free(run ^ 1) {
            self.pairs.join(&self.image, run);
        }
        // An offset within a run, by mistake, touches two of them in part: these are loaded instead.
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
        // Nothing is given back of what is on its way to the device, nor goes there meanwhile.
        let _still = self.backing.hold(Extent::new(run_off, RUN_SIZE as u32));
        self.runs.give_back(run, down_to, || self.give(run, down_to))
    }

    fn back_run(&self, run_off: u64) -> Result<Standing, MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        self.backing.check_open()?;
        self.runs.prepare(run_off / RUN_SIZE, |run| self.backing.prepare_run(run))
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
            // Without the neighbours' bytes nothing may be written; `finish_writes` reports why.
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
        let file_len = self.backing.extend(self.len(), len)?;
        // Runs that the old file did not reach are zeroes; a tail that it did reach has to be read.
        self.runs.mark_fresh(file_len.div_ceil(RUN_SIZE)..len / RUN_SIZE);
        self.image.extend_anonymous(len).map_err(|source| self.backing.io("grow the region's memory", source))
    }

    fn image(&self) -> Option<(usize, u64)> {
        Some((self.image.base(), self.image.len()))
    }

    fn pin_image(&self) -> Option<(usize, u64)> {
        self.pinned.store(true, Ordering::Release);
        self.image()
    }

    fn load_some(&self) -> Result<bool, MediaError> {
        self.runs.load_next(self.image.len() / RUN_SIZE, |run| self.load(run))
    }
}

/// Refuses a buffer that is not exactly as long as the extent.
pub(super) fn check_buffer(extent: Extent, into: &[u8]) -> Result<(), MediaError> {
    if into.len() == extent.len() as usize {
        return Ok(());
    }
    Err(MediaError::Unsupported("the buffer must be exactly as long as the extent to read"))
}

#[cfg(test)]
mod tests;
