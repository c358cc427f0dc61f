//! The file behind a region: how it is read and written, and the latch that closes it after a failure.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::together::write_together;
use crate::batch::Batch;
use crate::batch::WriteGate;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::file_write::FileWrite;
use crate::in_flight::Entered;
use crate::sys::call::{self, magic};
use crate::sys::create::{allocate, space_error};
use crate::sys::file::pace::Pace;
use crate::sys::holes::find_holes;
use crate::sys::image::Image;
use crate::sys::kind::Found;
use crate::sys::lock::LockedFile;
use crate::sys::region::Region;
use crate::units::{BLOCK_SIZE, RUN_SIZE};

/// Bytes of one write of zeroes. Whoever syncs waits for the one that the device has just begun.
const ZEROES_BYTES: u32 = 64 << 10;

/// How writes reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// `O_DIRECT`: from the image, without the page cache.
    Direct,
    /// Through the page cache, for the given reason.
    Buffered(&'static str),
}

/// The open, locked file of a region.
pub(super) struct Backing {
    file: LockedFile,
    path: PathBuf,
    found: Found,
    method: Method,
    created: bool,
    read_only: bool,
    /// Offsets of the blocks that could not be read and are zeroes in memory. `None`: such a read is an error.
    lost: Option<Mutex<BTreeSet<u64>>>,
    /// Zero bytes to write, page-aligned. They are never stored to.
    zeroes: Image,
    /// The gate that every write passes.
    gate: Arc<WriteGate>,
    pace: Pace,
}

impl Backing {
    pub(super) fn new(region: Region) -> Result<Self, MediaError> {
        let Region { file, path, found, created, read_only, salvage, .. } = region;
        let fail =
            |source| MediaError::Io { path: path.clone(), action: "prepare the region's file", source };
        let method = choose_method(&file, &found).map_err(fail)?;
        let zeroes = Image::anonymous(u64::from(ZEROES_BYTES), u64::from(ZEROES_BYTES)).map_err(fail)?;
        Ok(Self {
            file,
            path,
            found,
            method,
            created,
            read_only,
            lost: salvage.then(Mutex::default),
            zeroes,
            gate: Arc::default(),
            pace: Pace::default(),
        })
    }

    pub(super) fn describe(&self) -> String {
        let mode = if self.read_only { "; read-only" } else { "" };
        match self.method {
            Method::Direct => format!("direct I/O, one synchronous write or one sync for a batch{mode}"),
            Method::Buffered(why) => format!("buffered I/O and a sync for each batch, because {why}{mode}"),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(super) fn io(&self, action: &'static str, source: io::Error) -> MediaError {
        MediaError::Io { path: self.path.clone(), action, source }
    }

    // ---- closing ----

    #[inline]
    pub(super) fn writable(&self) -> Result<(), MediaError> {
        if self.read_only { Err(MediaError::Unsupported(READ_ONLY)) } else { Ok(()) }
    }

    /// Why the region is closed for writing, if it is.
    pub(super) fn closed(&self) -> Option<String> {
        if self.read_only { Some(READ_ONLY.into()) } else { self.gate.closed().cloned() }
    }

    pub(super) fn check_open(&self) -> Result<(), MediaError> {
        self.closed().map_or(Ok(()), |reason| Err(MediaError::Closed { reason }))
    }

    /// Closes the region for writing after a failed write or sync.
    ///
    /// What the device holds is unknown from here on. A second fsync may report success for pages that the kernel has
    /// already dropped. Only opening the region again, which recovers it, finds out.
    pub(super) fn latch(&self, source: io::Error) -> MediaError {
        self.gate.close(format!("{}: {source}", self.path.display()));
        MediaError::WriteBack { source }
    }

    /// Closes the region after an error found before anything was written.
    pub(super) fn latch_after(&self, error: MediaError) -> MediaError {
        if !matches!(error, MediaError::Closed { .. }) {
            self.gate.close(error.to_string());
        }
        error
    }

    // ---- writing ----

    /// A batch of planned writes for whoever executes them: a driver, or this medium.
    pub(super) fn batch(&self, writes: SmallVec<[FileWrite; 4]>) -> Batch {
        self.pace.note(writes.iter().map(|write| u64::from(write.extent.len())).sum());
        Batch::new(self.fd(), writes, &self.gate)
    }

    /// Executes a batch and waits until it is durable.
    pub(super) fn write_back(&self, batch: &Batch) -> Result<(), MediaError> {
        let mut written = false;
        let outcome = batch.run(|_, writes| {
            written = true;
            self.run(writes)
        });
        match outcome {
            Err(source) if written => Err(self.latch(source)),
            // Another failure closed the region before this batch's turn.
            Err(_) => self.check_open(),
            Ok(()) => Ok(()),
        }
    }

    fn run(&self, writes: &[FileWrite]) -> io::Result<()> {
        if let [one] = writes {
            return self.write(one, true);
        }
        self.write_all(writes)?;
        call::sync_data(self.fd())
    }

    fn write_all(&self, writes: &[FileWrite]) -> io::Result<()> {
        if self.method == Method::Direct {
            // SAFETY: planned writes lie within the image, which lives as long as the region.
            if let Some(written) = unsafe { write_together(self.fd(), writes) } {
                return written;
            }
        }
        writes.iter().try_for_each(|write| self.write(write, false))
    }

    fn write(&self, write: &FileWrite, dsync: bool) -> io::Result<()> {
        let len = write.extent.len() as usize;
        // SAFETY: a planned write lies within the image, which lives as long as the region.
        match unsafe { call::write_at(self.fd(), write.addr, len, write.extent.off, dsync) }? {
            written if written == len => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::WriteZero, "the file took only a part of a write")),
        }
    }

    /// Allocates a run's blocks where it has none, so that a full file system is detected here and not by a write.
    pub(super) fn allocate_run(&self, run: u64) -> Result<(), MediaError> {
        self.allocate(run * RUN_SIZE, RUN_SIZE)
    }

    fn allocate(&self, off: u64, len: u64) -> Result<(), MediaError> {
        match call::allocate(&self.file, off, len) {
            // Where blocks cannot be allocated in advance, they cannot be released either.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV)) => {
                Ok(())
            }
            other => {
                other.map_err(|source| space_error(&self.path, len, "allocate a part of the region", source))
            }
        }
    }

    /// Deallocates a run's blocks. Not durable before the next sync of the file: after a crash the blocks may still be
    /// there.
    pub(super) fn punch_run(&self, run: u64) -> Result<(), MediaError> {
        call::punch(&self.file, run * RUN_SIZE, RUN_SIZE).map_err(|source| self.io("give space back", source))
    }

    /// Blocks every write into an extent until the guard is dropped.
    pub(super) fn hold(&self, extent: Extent) -> Entered<'_> {
        self.gate.hold(extent)
    }

    /// Allocates the blocks of runs, and writes zeroes to them where that pays: where writes go in place, few bytes are
    /// written at a time ([`Pace`]), and so unwritten blocks cost more than written ones. The caller holds the runs
    /// exclusively.
    ///
    /// The file system's journal is committed by the next sync after its blocks have changed, and who syncs then waits
    /// for it. So neighbours are allocated together, and one sync follows the zeroes of all.
    ///
    /// Runs come in the order in which they became free; neighbours are found in that of the device.
    pub(super) fn prepare_runs(&self, runs: &[u64]) -> Result<(), MediaError> {
        let mut runs = runs.to_vec();
        runs.sort_unstable();
        for range in neighbours(&runs) {
            self.allocate(range.start * RUN_SIZE, (range.end - range.start) * RUN_SIZE)?;
        }
        let pays = self.method == Method::Direct && self.pace.take_is_small();
        if pays { self.write_zero_runs(&runs) } else { Ok(()) }
    }

    /// Durably writes zeroes over runs that the caller holds exclusively.
    fn write_zero_runs(&self, runs: &[u64]) -> Result<(), MediaError> {
        let parts = |run: &u64| (run * RUN_SIZE..(run + 1) * RUN_SIZE).step_by(ZEROES_BYTES as usize);
        let write = |off| FileWrite { extent: Extent::new(off, ZEROES_BYTES), addr: self.zeroes.base() };
        let batch = Batch::new(self.fd(), runs.iter().flat_map(parts).map(write).collect(), &self.gate);
        let outcome = batch.run(|_, writes| {
            // One after the other: between two of them the device has time for writes that somebody waits for.
            writes.iter().try_for_each(|write| self.write(write, false))?;
            call::sync_data(self.fd())
        });
        match outcome {
            Ok(()) => Ok(()),
            Err(source) => self.check_open().and(Err(self.latch(source))),
        }
    }

    /// Extends the file to `len` bytes, durably. Returns its length before. On failure the file keeps its length.
    pub(super) fn extend(&self, region_len: u64, len: u64) -> Result<u64, MediaError> {
        let full = |source| space_error(&self.path, len, "grow the region", source);
        let before = self.file.metadata().map_err(full)?.len();
        if let Err(e) = allocate(&self.file, region_len, len) {
            // Truncating what was just added loses no byte of the region.
            let _ = self.file.set_len(before);
            return Err(full(e));
        }
        self.file.sync_all().map_err(|source| self.latch(source))?;
        Ok(before)
    }

    // ---- reading ----

    /// Fills `len` bytes at `into` from file offset `off`, both multiples of a block. Of a region that is to be salvaged, blocks
    /// that the device cannot read are zeroes.
    ///
    /// # Safety
    /// `into` must be valid for writes of `len` bytes. No other thread may read or write them meanwhile.
    pub(super) unsafe fn read(&self, off: u64, into: *mut u8, len: usize) -> Result<(), MediaError> {
        // SAFETY: the caller's range.
        let Err(error) = (unsafe { self.read_all(off, into, len) }) else { return Ok(()) };
        match &self.lost {
            // SAFETY: the caller's range.
            Some(lost) if is_of_device(&error) => unsafe { self.salvage(off, into, len, lost) },
            _ => Err(error),
        }
    }

    /// Reads block by block. Notes the blocks that cannot be read in `lost`, and fills them with zeroes: these are no record, and the
    /// checksum of no other value holds over them.
    ///
    /// # Safety
    /// As [`Self::read`].
    unsafe fn salvage(
        &self,
        off: u64,
        into: *mut u8,
        len: usize,
        lost: &Mutex<BTreeSet<u64>>,
    ) -> Result<(), MediaError> {
        for at in (0..len).step_by(BLOCK_SIZE as usize) {
            // SAFETY: a block of the caller's range.
            let block = unsafe { into.add(at) };
            // SAFETY: as above.
            match unsafe { self.read_all(off + at as u64, block, BLOCK_SIZE as usize) } {
                Err(error) if is_of_device(&error) => {
                    // SAFETY: as above.
                    unsafe { block.write_bytes(0, BLOCK_SIZE as usize) };
                    lost.lock().insert(off + at as u64);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// The blocks that are zeroes in memory because they could not be read, in order.
    pub(super) fn unreadable(&self) -> Vec<Extent> {
        let Some(lost) = &self.lost else { return Vec::new() };
        lost.lock().iter().map(|off| Extent::new(*off, BLOCK_SIZE as u32)).collect()
    }

    /// Fills `len` bytes at `into` from file offset `off`.
    ///
    /// # Safety
    /// As [`Self::read`].
    unsafe fn read_all(&self, off: u64, into: *mut u8, len: usize) -> Result<(), MediaError> {
        let mut done = 0;
        while done < len {
            let at = off + done as u64;
            // SAFETY: the rest of the caller's range.
            match unsafe { call::read_at(&self.file, into.add(done), len - done, at) } {
                Ok(0) => return Err(self.truncated(off + len as u64)),
                Ok(got) => done += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io("read the region", e)),
            }
        }
        Ok(())
    }

    fn truncated(&self, expected: u64) -> MediaError {
        let actual = self.file.metadata().map_or(0, |meta| meta.len());
        MediaError::Truncated { path: self.path.clone(), expected, actual }
    }

    /// Reads any checked range from the device, through an aligned buffer.
    pub(super) fn read_past_image(&self, off: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let fail = |e| self.io("allocate a buffer", e);
        let buffer = Image::anonymous(RUN_SIZE, RUN_SIZE).map_err(fail)?;
        let mut done = 0;
        while done < into.len() {
            let at = off + done as u64;
            let aligned = at - at % BLOCK_SIZE;
            let want = (at - aligned + (into.len() - done) as u64).next_multiple_of(BLOCK_SIZE).min(RUN_SIZE);
            if self.method != Method::Direct {
                call::drop_cache(&self.file, aligned, want).map_err(|e| self.io("read the region", e))?;
            }
            // SAFETY: the buffer is our own, of one run, and `want` is at most that.
            unsafe { self.read_all(aligned, buffer.at(0, want)?, want as usize)? };
            let skip = (at - aligned) as u32;
            let take = (want as usize - skip as usize).min(into.len() - done);
            let got = buffer.bytes(Extent::new(u64::from(skip), take as u32))?;
            into[done..done + take].copy_from_slice(got);
            done += take;
        }
        Ok(())
    }

    // ---- holes ----

    /// Calls `hole` for each range of whole runs that is known to read as zeroes.
    pub(super) fn holes(&self, len: u64, hole: impl FnMut(Range<u64>)) {
        if self.created {
            let mut hole = hole;
            return hole(0..len / RUN_SIZE);
        }
        if self.trusts_holes() {
            find_holes(&self.file, len, hole);
        }
    }

    /// Runs in holes are later overwritten with zeroes. So the answer is used only from file systems that are known to
    /// report allocated, unwritten blocks exactly.
    pub(super) fn trusts_holes(&self) -> bool {
        matches!(self.found.fs_type, magic::EXT4 | magic::XFS)
    }
}

pub(super) const READ_ONLY: &str = "the region was opened read-only: open it for writing to change it";

/// True if the device could not read what it was asked for. Linux says so by one of these, depending on what the device says
/// and on who checks what it returns.
fn is_of_device(error: &MediaError) -> bool {
    matches!(error, MediaError::Io { source, .. } if is_read_error(source))
}

fn is_read_error(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENODATA | libc::EILSEQ))
}

/// Ranges of runs that follow each other, of sorted ones.
fn neighbours(runs: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match ranges.last_mut() {
            Some(last) if last.end == *run => last.end += 1,
            _ => ranges.push(*run..run + 1),
        }
    }
    ranges
}

fn choose_method(file: &File, found: &Found) -> io::Result<Method> {
    if found.fs_type == magic::BTRFS {
        return Ok(Method::Buffered(
            "btrfs would compute wrong checksums for memory that changes while it is written",
        ));
    }
    let fits = |align: u32| align != 0 && BLOCK_SIZE.is_multiple_of(u64::from(align));
    if call::direct_alignment(file).is_some_and(|(memory, offset)| !fits(memory) || !fits(offset)) {
        return Ok(Method::Buffered("this file system takes no direct I/O in blocks of 4096 bytes"));
    }
    if call::set_direct(file, true).is_ok() && reads_directly(file)? {
        return Ok(Method::Direct);
    }
    call::set_direct(file, false)?;
    Ok(Method::Buffered("this file system refuses direct I/O"))
}

/// Some file systems accept the flag and refuse the I/O: try one block.
fn reads_directly(file: &File) -> io::Result<bool> {
    let buffer = Image::anonymous(BLOCK_SIZE, BLOCK_SIZE)?;
    let into = buffer.at(0, BLOCK_SIZE).map_err(io::Error::other)?;
    // SAFETY: one block of our own buffer.
    let got = unsafe { call::read_at(file, into, BLOCK_SIZE as usize, 0) };
    match got {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        // Direct I/O was taken, and the block is bad. Whoever needs it gets the error.
        Err(e) if is_read_error(&e) => Ok(true),
        Err(e) => Err(e),
    }
}
