//! The persistence seam.

use std::sync::Arc;

use crate::batch::Batch;
use crate::dirty::Dirty;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::kind::MediaKind;
use crate::pages::Pages;
use crate::site::Site;
use crate::standing::Standing;

/// How the fences of a region's commits are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// [`Media::fence`] is fast (a CPU fence): call it before a batch's replies are sent.
    Immediate,
    /// A fence is device I/O: get [`Media::file_writes`], let a driver execute them, and continue with other work
    /// meanwhile; or call [`Media::fence`], which blocks.
    Deferred,
}

/// The persistence seam: a region of bytes with *store*, *flush* and *fence* as separate verbs.
///
/// All offsets are bytes from the region's start. The caller (the heap) must make shared access sound: it does not
/// store to bytes while they are held by a reader.
pub trait Media: Send + Sync {
    /// What holds the region.
    fn kind(&self) -> MediaKind;

    /// One line for the log: kind, flush instruction or write method, and which failures the data survive.
    fn describe(&self) -> String;

    /// Size of the region, bytes.
    fn len(&self) -> u64;

    /// True for a region of no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How fences are executed.
    fn commit_mode(&self) -> CommitMode {
        CommitMode::Immediate
    }

    /// The image's bytes. They are read from the file first where they are not resident.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`], or the read error if the file could not be read.
    fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError>;

    /// Stores bytes into the image. Durable only after a flush and a fence.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`]; the read error if a block of which a part is stored to could not be read from the
    /// file; the errors of [`Media::claim_run`] where the run has no space on the medium; [`MediaError::Unsupported`] on
    /// a region that was opened read-only. A failed write-back is no reason to refuse: the image stays writable.
    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError>;

    /// Stores an aligned little-endian 8-byte word atomically: the only store that is never torn.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`], also for an unaligned offset; otherwise as [`Media::store`].
    fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError>;

    /// Stores `extent.len` zero bytes. On files it also marks the range resident without reading it.
    ///
    /// # Errors
    /// As [`Media::store`], and those of [`Media::claim_run`].
    fn zero(&self, extent: Extent) -> Result<(), MediaError>;

    /// Prepares a whole free run for landing: the image may be written without being read first. Allocates what
    /// [`Media::give_back_run`] released.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`]; [`MediaError::Full`] where the run has no space on the medium and none can be
    /// allocated.
    fn claim_run(&self, run_off: u64) -> Result<(), MediaError>;

    /// Like [`Media::claim_run`], and allocates the run's memory: the next stores to it cause no page fault.
    ///
    /// # Errors
    /// As [`Media::claim_run`].
    fn warm_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.claim_run(run_off)
    }

    /// Declares the contents of a whole free run unneeded: a run that is not in memory is not read from the file. Its
    /// bytes are undefined, now and after a crash, until they are stored to. Returns what the run has.
    fn forget_run(&self, run_off: u64) -> Standing {
        let _ = run_off;
        Standing::Warm
    }

    /// Releases a free run's memory and, down to [`Standing::Bare`], also its space on the medium. Waits until none of
    /// its blocks is being written. Returns what the run has now: [`Standing::Warm`] where nothing can be released,
    /// [`Standing::Backed`] where the space cannot.
    ///
    /// Until they are stored to, the run's bytes are undefined, now and after a crash: each 8-byte word keeps its value
    /// or is zero.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`]; the error of the system. The run then stays usable, with what it had.
    fn give_back_run(&self, run_off: u64, down_to: Standing) -> Result<Standing, MediaError> {
        let _ = (run_off, down_to);
        Ok(Standing::Warm)
    }

    /// Allocates space on the medium for a bare free run in advance: no request then waits for the allocation. Returns
    /// what the run has now.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`], [`MediaError::Full`], and write errors, which close the region for writing.
    fn back_run(&self, run_off: u64) -> Result<Standing, MediaError> {
        let _ = run_off;
        Ok(Standing::Warm)
    }

    /// [`Media::back_run`] of several runs. Where that costs a sync, they share it.
    ///
    /// # Errors
    /// As [`Media::back_run`]. Some of the runs may have space then.
    fn back_runs(&self, run_offs: &[u64]) -> Result<Vec<Standing>, MediaError> {
        run_offs.iter().map(|run_off| self.back_run(*run_off)).collect()
    }

    /// Starts to make a range durable. It is durable when the next [`Media::fence`] with this `dirty` returns.
    fn flush(&self, dirty: &mut Dirty, site: Site, extent: Extent);

    /// Waits until everything flushed into `dirty` is durable, and empties it.
    ///
    /// # Errors
    /// The first write or sync error. The region is then closed for writing permanently.
    fn fence(&self, dirty: &mut Dirty, site: Site) -> Result<(), MediaError>;

    /// The direct writes that make `dirty` durable, for a driver that executes them itself with [`Batch::run`]: issue
    /// all of them, wait, sync the file once, wait, then report with [`Media::finish_writes`]. Empty on
    /// byte-addressable media.
    fn file_writes(&self, dirty: &Dirty) -> Batch {
        let _ = dirty;
        Batch::none()
    }

    /// Reports the outcome of writes that a driver executed. An error closes the region for writing.
    ///
    /// # Errors
    /// The error reported, or [`MediaError::Closed`] if the region was closed before.
    fn finish_writes(&self, outcome: Result<(), std::io::Error>) -> Result<(), MediaError> {
        outcome.map_err(|source| MediaError::WriteBack { source })
    }

    /// Why the region is closed for writing, if it is.
    fn closed(&self) -> Option<String> {
        None
    }

    /// Reads from the medium, not from the image: what a restart would find. For scrubbing.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`] or the read error.
    fn read_medium(&self, extent: Extent, into: &mut [u8]) -> Result<(), MediaError>;

    /// The blocks that are zeroes in memory because the medium cannot read them, in order: of those that were needed so far, and
    /// only where the region was opened to be salvaged (`OpenOptions::salvage`). Everywhere else whoever needs such a block gets
    /// the error.
    fn unreadable(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Grows the region to `len` bytes, durably, where the medium supports it.
    ///
    /// # Errors
    /// [`MediaError::Full`] on a full medium, [`MediaError::Unsupported`] where it cannot grow.
    fn grow(&self, len: u64) -> Result<(), MediaError>;

    /// Address of the image's first byte and its mapped length, for transports whose kernel writes into
    /// frames. `None` where no kernel can (the simulator).
    fn image(&self) -> Option<(usize, u64)> {
        None
    }

    /// Like [`Media::image`], for a kernel that keeps references to the image's pages (an AF_XDP UMEM). From now on no
    /// memory is released: the kernel would continue to use pages that no longer belong to the image.
    fn pin_image(&self) -> Option<(usize, u64)> {
        self.image()
    }

    /// Opens what backs the image once more, without the lock on the region, for another process on this machine that maps
    /// it shared. `None` where what a process stores into the image is not on the medium at once.
    ///
    /// # Errors
    /// An error of the system.
    fn share(&self) -> Option<std::io::Result<std::fs::File>> {
        None
    }

    /// The interface that controls paging, where a part of the region may be absent from memory; `None` where all of it
    /// is always in memory. From the first call on, bytes of runs that may be evicted must be pinned while they are
    /// used.
    fn pages(self: Arc<Self>) -> Option<Arc<dyn Pages>> {
        None
    }

    /// Loads one run that is in use and not resident, in the background; false when everything is resident.
    ///
    /// # Errors
    /// The read error.
    fn load_some(&self) -> Result<bool, MediaError> {
        Ok(false)
    }
}

/// `flush` and `fence` in one call: for rare, small updates.
///
/// # Errors
/// As [`Media::fence`].
pub fn persist(media: &dyn Media, extent: Extent, flush: Site, fence: Site) -> Result<(), MediaError> {
    let mut dirty = Dirty::new();
    media.flush(&mut dirty, flush, extent);
    media.fence(&mut dirty, fence)
}
