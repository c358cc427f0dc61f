//! Runs of a file in memory (tmpfs) that have no pages: they were given back, or never used.
//!
//! A store to such a page on a full tmpfs would raise `SIGBUS` instead of returning an error. So each read and store
//! through the region allocates the pages first. A read without pages can only be a late read of a free run: between
//! the check and the release of the run there is a moment in which the kernel allocates a page of zeroes for it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::call;
use super::holes::find_holes;
use crate::units::RUN_SIZE;

/// Which runs have no pages. Changed under the lock of the region's file.
pub(super) struct BareRuns(Box<[AtomicBool]>);

impl BareRuns {
    /// Refuses a file if there is no space for all of its first `len` bytes. If other processes take space later,
    /// allocating a run's pages fails.
    pub(super) fn check_space(file: &File, len: u64) -> io::Result<()> {
        let missing = len.saturating_sub(file.metadata()?.blocks() * 512);
        match call::space_left(file)? {
            Some(left) if left < missing => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }

    /// Finds the whole runs of the first `len` bytes that hold nothing, in a reservation of `runs`, and allocates the
    /// pages of every other run.
    pub(super) fn open(file: &File, len: u64, runs: u64) -> io::Result<Self> {
        Self::check_space(file, len)?;
        let bare = Self((0..runs).map(|_| AtomicBool::new(false)).collect());
        find_holes(file, len, |holes| bare.add(holes));
        if file.metadata()?.blocks() == 0 {
            return Ok(bare);
        }
        for run in 0..len / RUN_SIZE {
            // Pages may be allocated although nothing was ever stored there.
            if bare.is_bare(run) {
                call::punch(file, run * RUN_SIZE, RUN_SIZE)?
            } else {
                allocate(file, run)?
            }
        }
        Ok(bare)
    }

    #[inline]
    pub(super) fn is_bare(&self, run: u64) -> bool {
        self.0[run as usize].load(Ordering::Acquire)
    }

    /// True for a run of the region that has its pages.
    #[inline]
    pub(super) fn is_backed(&self, run: u64) -> bool {
        self.0.get(run as usize).is_some_and(|bare| !bare.load(Ordering::Acquire))
    }

    fn set(&self, run: u64, bare: bool) {
        self.0[run as usize].store(bare, Ordering::Release);
    }

    /// Marks runs as having no pages.
    pub(super) fn add(&self, runs: Range<u64>) {
        runs.for_each(|run| self.set(run, true));
    }

    /// Allocates a run's pages, if it has none. If there is no space for all of them, the run keeps none.
    pub(super) fn back(&self, file: &File, run: u64) -> io::Result<()> {
        if self.is_bare(run) {
            allocate(file, run).inspect_err(|_| drop(self.give(file, run)))?;
            self.set(run, false);
        }
        Ok(())
    }

    /// Releases a run's pages.
    pub(super) fn give(&self, file: &File, run: u64) -> io::Result<()> {
        self.set(run, true);
        call::punch(file, run * RUN_SIZE, RUN_SIZE)
    }
}

fn allocate(file: &File, run: u64) -> io::Result<()> {
    call::allocate(file, run * RUN_SIZE, RUN_SIZE)
}
