//! A region that another process has open, mapped into this one, too.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::flush::{FlushInstruction, store_fence};
use super::image::{ALIGN_DEFAULT, Image, READ_WRITE};
use super::kind::{Found, caches_are_persistent, device_len};
use super::mapped::map_flags;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::kind::MediaKind;
use crate::units::RUN_SIZE;
use std::os::unix::fs::MetadataExt;

/// Bytes of an open run whose pages are made writable together: one call takes half as long as a fault for each page, and a
/// program that stores little pays for little.
const POPULATE_BYTES: u64 = 64 << 10;
/// A run that is not open. One that is has a number of bytes, from its start on, whose pages are writable.
const CLOSED: u32 = u32::MAX;

/// What errors call a file that came without a path.
const PATH: &str = "the region of another process";

/// A region that another process has open and locked, and whose file that process has passed on.
///
/// All of it can be read. Stores are possible into runs that are open ([`Attached::open_run`]): the process that has the
/// region says which runs, and the CPU refuses all others, so that a stray pointer of a program changes nothing else. (On
/// media with pages larger than a run, all of the region is writable.) A child of `fork` does not have the region.
pub struct Attached {
    image: Image,
    flush: FlushInstruction,
    /// Of each run: [`CLOSED`], or how many bytes of it are populated.
    open: Box<[AtomicU32]>,
    /// Single runs can be protected: the medium's pages are not larger.
    protects_runs: bool,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attached").field("len", &self.image.len()).finish_non_exhaustive()
    }
}

impl Attached {
    /// Maps a region of `len` bytes, of which the first `begin` are missing in its file: they are zeroes here.
    ///
    /// # Errors
    /// [`MediaError::Unsupported`] for a medium that processes do not share, or for lengths that are none of a region;
    /// [`MediaError::Truncated`] if the file is shorter; [`MediaError::Io`].
    pub fn new(file: &File, len: u64, begin: u64) -> Result<Self, MediaError> {
        let fail = |source| MediaError::Io { path: PATH.into(), action: "map the region", source };
        let found = Found::detect(Path::new(PATH), file)?;
        if found.kind == MediaKind::File {
            return Err(MediaError::Unsupported("processes share regions in memory and on DAX only"));
        }
        if len == 0 || !len.is_multiple_of(RUN_SIZE) || begin >= RUN_SIZE {
            return Err(MediaError::Unsupported("a region has whole runs"));
        }
        let actual = file
            .metadata()
            .and_then(|m| if found.kind == MediaKind::DeviceDax { device_len(m.rdev()) } else { Ok(m.len()) })
            .map_err(fail)?;
        if actual < len - begin {
            return Err(MediaError::Truncated { path: PATH.into(), expected: len - begin, actual });
        }
        let image = Image::reserve(len, len, found.map_align.max(ALIGN_DEFAULT)).map_err(fail)?;
        let protects_runs = RUN_SIZE.is_multiple_of(found.map_align);
        let protection = if protects_runs { libc::PROT_READ } else { READ_WRITE };
        let mapped = (file.as_raw_fd(), begin);
        image.map_behind(mapped, len, map_flags(found.kind), protection).map_err(fail)?;
        image.keep_from_children().map_err(fail)?;
        let needs_none = caches_are_persistent(file, found.kind);
        let flush = if needs_none { FlushInstruction::None } else { FlushInstruction::detect() };
        let open = (0..len / RUN_SIZE).map(|_| AtomicU32::new(CLOSED)).collect();
        Ok(Self { image, flush, open, protects_runs })
    }

    /// The bytes of an extent.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`].
    #[inline]
    pub fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        self.image.bytes(extent)
    }

    /// Allows stores into a run.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`], [`MediaError::Io`].
    pub fn open_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.protect(run_off, READ_WRITE)?;
        self.open[(run_off / RUN_SIZE) as usize].store(0, Ordering::Release);
        Ok(())
    }

    /// Ends what [`Self::open_run`] allows.
    ///
    /// # Errors
    /// As [`Self::open_run`].
    pub fn close_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        self.open[(run_off / RUN_SIZE) as usize].store(CLOSED, Ordering::Release);
        self.protect(run_off, libc::PROT_READ)
    }

    fn protect(&self, run_off: u64, protection: libc::c_int) -> Result<(), MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        let done = match self.protects_runs {
            _ if !run_off.is_multiple_of(RUN_SIZE) => Err(io::ErrorKind::InvalidInput.into()),
            true => self.image.protect(run_off, RUN_SIZE, protection),
            false => Ok(()),
        };
        done.map_err(|source| MediaError::Io { path: PATH.into(), action: "open a run", source })
    }

    /// Stores bytes into an open run. They are durable after [`Self::flush`] and [`Self::fence`].
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`], also for a run that is not open.
    #[inline]
    pub fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let (len, run) = (bytes.len() as u64, (off / RUN_SIZE) as usize);
        let end = off % RUN_SIZE + len;
        let populated = self.open.get(run).map_or(CLOSED, |open| open.load(Ordering::Acquire));
        if populated == CLOSED || end > RUN_SIZE {
            return Err(MediaError::OutOfBounds { off, len, region_len: self.image.len() });
        }
        if end > u64::from(populated) {
            self.populate(run, populated, end)?;
        }
        self.image.store(off, bytes)
    }

    /// Makes the pages of an open run writable up to `end`, and some more.
    #[cold]
    fn populate(&self, run: usize, populated: u32, end: u64) -> Result<(), MediaError> {
        let (from, to) = (u64::from(populated), end.next_multiple_of(POPULATE_BYTES).min(RUN_SIZE));
        self.image.populate(run as u64 * RUN_SIZE + from, to - from)?;
        // Another thread may have closed the run, or have populated more of it: then a fault does it for a page.
        let _ = self.open[run].compare_exchange(populated, to as u32, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    /// Starts to write an extent back from the CPU's caches.
    #[inline]
    pub fn flush(&self, extent: Extent) {
        // If the range is out of bounds, nothing was stored there, and nothing has to be written back.
        if let Ok(at) = self.image.at(extent.off, u64::from(extent.len())) {
            // SAFETY: the range is within the mapped image; the CPU has the instruction that was detected.
            unsafe { self.flush.write_back(at, extent.len() as usize) };
        }
    }

    /// Waits until everything that this thread has flushed is in the persistence domain.
    #[inline]
    pub fn fence(&self) {
        store_fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    const LEN: u64 = 2 * RUN_SIZE;

    /// A file in memory, as a region on tmpfs is.
    fn region(len: u64) -> File {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(b"from the start").unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn both_processes_see_what_is_stored_into_open_runs() {
        let file = region(LEN);
        let attached = Attached::new(&file, LEN, 0).unwrap();
        assert_eq!(attached.bytes(Extent::new(0, 14)).unwrap(), b"from the start");
        assert!(matches!(attached.store(RUN_SIZE, b"x"), Err(MediaError::OutOfBounds { .. })), "not open");
        attached.open_run(RUN_SIZE).unwrap();
        attached.store(RUN_SIZE + 5, b"stored").unwrap();
        attached.flush(Extent::new(RUN_SIZE + 5, 6));
        attached.fence();
        let mut seen = [0; 6];
        file.read_exact_at(&mut seen, RUN_SIZE + 5).unwrap();
        assert_eq!(&seen, b"stored");
        assert!(attached.store(LEN - 1, b"xy").is_err(), "past the end");
        attached.close_run(RUN_SIZE).unwrap();
        assert!(attached.store(RUN_SIZE, b"x").is_err(), "closed again");
        assert!(attached.open_run(LEN).is_err() && attached.open_run(7).is_err());
    }

    #[test]
    fn a_file_that_begins_behind_the_regions_start_is_mapped_there() {
        const BEGIN: u64 = 8192;
        let file = region(LEN - BEGIN);
        let attached = Attached::new(&file, LEN, BEGIN).unwrap();
        assert_eq!(attached.bytes(Extent::new(BEGIN, 14)).unwrap(), b"from the start");
        assert!(attached.bytes(Extent::new(0, 8192)).unwrap().iter().all(|byte| *byte == 0));
        attached.open_run(RUN_SIZE).unwrap();
        attached.store(RUN_SIZE + 5, b"stored").unwrap();
        let mut seen = [0; 6];
        file.read_exact_at(&mut seen, RUN_SIZE + 5 - BEGIN).unwrap();
        assert_eq!(&seen, b"stored");
        assert!(matches!(Attached::new(&file, LEN, 4096), Err(MediaError::Truncated { .. })));
    }

    #[test]
    fn what_is_no_shared_region_is_refused() {
        let file = region(LEN);
        assert!(matches!(Attached::new(&file, 2 * LEN, 0), Err(MediaError::Truncated { .. })));
        assert!(matches!(Attached::new(&file, 100, 0), Err(MediaError::Unsupported(_))));
    }
}
