//! The medium for byte-addressable kinds: device-DAX, fs-DAX and volatile memory share this code path.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;
use parking_lot::Mutex;

use super::bare::BareRuns;
use super::call::magic;
use super::create::{extend, space_error};
use super::flush::{FlushInstruction, store_fence};
use super::grow::{grows, reservation};
use super::image::{ALIGN_DEFAULT, Image, READ_WRITE, check_buffer};
use super::kind::{Found, caches_are_persistent};
use super::lock::LockedFile;
use super::region::Region;
use crate::dirty::Dirty;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::kind::MediaKind;
use crate::media::Media;
use crate::site::Site;
use crate::standing::Standing;
use crate::units::RUN_SIZE;

const READ_ONLY: MediaError =
    MediaError::Unsupported("the region was opened read-only: open it for writing to change it");

/// A region that the CPU stores to directly.
pub(super) struct MappedMedia {
    image: Image,
    flush: FlushInstruction,
    read_only: bool,
    caches_persistent: bool,
    found: Found,
    path: PathBuf,
    /// Which runs have no pages, on tmpfs; `None` where every run has its pages.
    bare: Option<BareRuns>,
    /// A kernel keeps references to the image's pages.
    pinned: AtomicBool,
    /// Holds the lock on the region, and serializes growth.
    file: Mutex<LockedFile>,
}

impl MappedMedia {
    /// Maps the region, which is to grow to `whole` at once. `flush` overrides the choice of instruction.
    pub(super) fn open(
        region: Region,
        flush: Option<FlushInstruction>,
        whole: u64,
    ) -> Result<Self, MediaError> {
        let Region { file, path, found, len, read_only, .. } = region;
        let caches_persistent = caches_are_persistent(&file, found.kind);
        let best = || if caches_persistent { FlushInstruction::None } else { FlushInstruction::detect() };
        let fail = |source| MediaError::Io { path: path.clone(), action: "map the region", source };
        let image =
            Image::reserve(reservation(len, whole), len, found.map_align.max(ALIGN_DEFAULT)).map_err(fail)?;
        let full = |source| space_error(&path, len, "allocate the region", source);
        let bare = if read_only {
            None
        } else if found.fs_type == magic::TMPFS {
            Some(BareRuns::open(&file, len, image.reserved() / RUN_SIZE).map_err(full)?)
        } else {
            back_with_blocks(&file, found.kind, len).map_err(full)?;
            None
        };
        let media = Self {
            image,
            flush: flush.unwrap_or_else(best),
            read_only,
            caches_persistent,
            found,
            path: path.clone(),
            bare,
            pinned: AtomicBool::new(false),
            file: Mutex::new(file),
        };
        media.map(&media.file.lock(), 0, len).map_err(fail)?;
        Ok(media)
    }

    fn map(&self, file: &File, from: u64, len: u64) -> io::Result<()> {
        let prot = if self.read_only { libc::PROT_READ } else { READ_WRITE };
        let from = from - from % self.found.map_align;
        self.image.map_file(file.as_raw_fd(), from, len, map_flags(self.found.kind), prot)?;
        if self.found.kind == MediaKind::Volatile {
            // A tmpfs mounted with `huge=advise` needs this advice. A fault then allocates 2 MiB instead of 4 KiB.
            self.image.advise_huge(from, len - from, true);
        }
        Ok(())
    }

    /// Allocates the pages of every run that a range touches. A range past the end is refused by the access that
    /// follows.
    #[inline]
    fn back(&self, off: u64, len: u64) -> Result<(), MediaError> {
        let Some(bare) = &self.bare else { return Ok(()) };
        let run = off / RUN_SIZE;
        if off % RUN_SIZE + len <= RUN_SIZE && bare.is_backed(run) {
            return Ok(());
        }
        self.back_bare(bare, off, len)
    }

    fn back_bare(&self, bare: &BareRuns, off: u64, len: u64) -> Result<(), MediaError> {
        let end = off.saturating_add(len).min(self.image.len()).div_ceil(RUN_SIZE);
        if (off / RUN_SIZE..end).any(|run| bare.is_bare(run)) {
            return self.back_all(bare, off / RUN_SIZE..end);
        }
        Ok(())
    }

    #[cold]
    fn back_all(&self, bare: &BareRuns, mut runs: Range<u64>) -> Result<(), MediaError> {
        let file = self.file.lock();
        let full = |source| space_error(&self.path, RUN_SIZE, "allocate a part of the region", source);
        runs.try_for_each(|run| {
            // This populates the page table for the whole run, and comes before the allocation in the file: the kernel
            // allocates huge pages for a mapping that requests them, not for a file.
            if bare.is_bare(run) && !self.read_only {
                self.image.populate(run * RUN_SIZE, RUN_SIZE)?;
            }
            bare.back(&file, run).map_err(full)
        })
    }

    #[inline]
    fn writable(&self) -> Result<(), MediaError> {
        if self.read_only { Err(READ_ONLY) } else { Ok(()) }
    }

    /// Extends the file. On failure it is truncated to its previous length, which loses no byte of the region.
    /// Returns the length of the file before.
    fn extend_file(&self, file: &File, len: u64) -> Result<u64, MediaError> {
        let fail = |source| space_error(&self.path, len, "grow the region", source);
        let before = file.metadata().map_err(fail)?.len();
        extend(file, self.found, self.len(), len).and_then(|()| file.sync_all()).map_err(|e| {
            let _ = file.set_len(before);
            fail(e)
        })?;
        if let Some(bare) = &self.bare {
            bare.add(self.len() / RUN_SIZE..len / RUN_SIZE);
        }
        Ok(before)
    }
}

/// `MAP_SYNC` on fs-DAX: the blocks under a page are durable before the first store to it is.
pub(super) fn map_flags(kind: MediaKind) -> c_int {
    match kind {
        MediaKind::FsDax => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
        _ => libc::MAP_SHARED,
    }
}

/// Fills the holes of a file: a store to a hole on a full medium would be a SIGBUS instead of an error.
fn back_with_blocks(file: &File, kind: MediaKind, len: u64) -> io::Result<()> {
    let has_holes = kind != MediaKind::DeviceDax && file.metadata()?.blocks() * 512 < len;
    if !has_holes {
        return Ok(());
    }
    match super::call::allocate(file, 0, len) {
        // ramfs cannot reserve pages; its only limit is the machine's memory.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        other => other,
    }
}

impl Media for MappedMedia {
    fn kind(&self) -> MediaKind {
        self.found.kind
    }

    fn describe(&self) -> String {
        let flush = match (self.flush, self.caches_persistent) {
            (FlushInstruction::None, true) => "none needed (eADR)",
            (FlushInstruction::None, false) if self.found.kind != MediaKind::Volatile => {
                "NONE BY OPTION: a power loss may lose acknowledged data"
            }
            (other, _) => other.name(),
        };
        let survives = match self.found.kind {
            MediaKind::Volatile => {
                let fs = self.found.fs_name();
                format!("volatile ({fs}): survives a crash of the process, not of the machine")
            }
            kind => format!("{}: survives a crash of the machine and a power loss", kind.name()),
        };
        let mode = if self.read_only { "; read-only" } else { "" };
        format!("{survives}; flush {flush}{mode}")
    }

    #[inline]
    fn len(&self) -> u64 {
        self.image.len()
    }

    #[inline]
    fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        self.back(extent.off, u64::from(extent.len()))?;
        self.image.bytes(extent)
    }

    #[inline]
    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.writable()?;
        self.back(off, bytes.len() as u64)?;
        self.image.store(off, bytes)
    }

    #[inline]
    fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError> {
        self.writable()?;
        self.back(off, 8)?;
        self.image.store_u64(off, word)
    }

    fn zero(&self, extent: Extent) -> Result<(), MediaError> {
        self.writable()?;
        self.back(extent.off, u64::from(extent.len()))?;
        self.image.zero(extent.off, u64::from(extent.len()))
    }

    fn claim_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        self.back(run_off, RUN_SIZE)
    }

    fn warm_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.claim_run(run_off)?;
        self.image.populate(run_off, RUN_SIZE)
    }

    fn forget_run(&self, run_off: u64) -> Standing {
        let is_bare = self.bare.as_ref().is_some_and(|bare| bare.is_bare(run_off / RUN_SIZE));
        if is_bare { Standing::Bare } else { Standing::Warm }
    }

    /// On tmpfs the space is the memory, and both are released together. DAX media keep their space: they use no other
    /// memory, and a fault into a hole waits for the file system.
    fn give_back_run(&self, run_off: u64, down_to: Standing) -> Result<Standing, MediaError> {
        self.image.at(run_off, RUN_SIZE)?;
        let (Some(bare), false) = (&self.bare, self.pinned.load(Ordering::Acquire)) else {
            return Ok(Standing::Warm);
        };
        if down_to == Standing::Bare {
            let file = self.file.lock();
            let fail = |source| MediaError::Io { path: self.path.clone(), action: "give space back", source };
            bare.give(&file, run_off / RUN_SIZE).map_err(fail)?;
        }
        Ok(down_to)
    }

    fn back_run(&self, run_off: u64) -> Result<Standing, MediaError> {
        self.claim_run(run_off)?;
        Ok(Standing::Backed)
    }

    #[inline]
    fn flush(&self, _dirty: &mut Dirty, _site: Site, extent: Extent) {
        // If the range is out of bounds, nothing was stored there, and nothing has to be written back.
        if let Ok(addr) = self.image.at(extent.off, u64::from(extent.len())) {
            // SAFETY: the range is within the mapped image; the instruction was checked at open.
            unsafe { self.flush.write_back(addr, extent.len() as usize) };
        }
    }

    #[inline]
    fn fence(&self, dirty: &mut Dirty, _site: Site) -> Result<(), MediaError> {
        store_fence();
        if !dirty.is_empty() {
            *dirty = Dirty::new();
        }
        Ok(())
    }

    fn closed(&self) -> Option<String> {
        self.read_only.then(|| READ_ONLY.to_string())
    }

    fn read_medium(&self, extent: Extent, into: &mut [u8]) -> Result<(), MediaError> {
        check_buffer(extent, into)?;
        into.copy_from_slice(self.bytes(extent)?);
        Ok(())
    }

    fn grow(&self, len: u64) -> Result<(), MediaError> {
        self.writable()?;
        let file = self.file.lock();
        if self.found.kind == MediaKind::DeviceDax {
            return Err(MediaError::Unsupported("a device-DAX region cannot grow: its device has one size"));
        }
        if !grows(self.len(), len, self.image.reserved())? {
            return Ok(());
        }
        let before = self.extend_file(&file, len)?;
        self.map(&file, self.len(), len).map_err(|source| {
            // Nothing refers to what was added, and it would be the length of the region at the next start.
            let _ = file.set_len(before);
            MediaError::Io { path: self.path.clone(), action: "map the grown region", source }
        })
    }

    fn image(&self) -> Option<(usize, u64)> {
        Some((self.image.base(), self.image.len()))
    }

    fn share(&self) -> Option<io::Result<File>> {
        // A lock of `flock` belongs to an open file: this is another one, also where the path names something else by now.
        let link = format!("/proc/self/fd/{}", self.file.lock().as_raw_fd());
        Some(File::options().read(true).write(!self.read_only).open(link))
    }

    fn pin_image(&self) -> Option<(usize, u64)> {
        self.pinned.store(true, Ordering::Release);
        self.image()
    }
}
