//! What becomes of a call: it is answered here, or the kernel answers it at the right offset.

use crate::engine::{Engine, Errno, FileId, Refused, Use, Written};
use crate::kernel::Kernel;
use crate::table::{Descriptor, Durable, Locked, Offset, Table, Writes};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// `whence` of `lseek`.
const SEEK_SET: i32 = 0;
const SEEK_CUR: i32 = 1;
const SEEK_END: i32 = 2;

/// Bytes of the longest file that the kernel knows.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// How many calls on descriptors of the table were answered where.
#[derive(Debug, Default)]
pub struct Counts {
    /// In the process.
    pub answered: AtomicU64,
    /// By the kernel.
    pub passed_on: AtomicU64,
    /// Writes in the process: the kernel does not know where files end since.
    pub written: AtomicU64,
}

impl Counts {
    /// No calls.
    pub const fn new() -> Self {
        Self { answered: AtomicU64::new(0), passed_on: AtomicU64::new(0), written: AtomicU64::new(0) }
    }
}

/// A call that was answered. `None`: the caller calls the kernel, as if there were no library.
pub type Answered<T> = Option<Result<T, Errno>>;

/// The calls of a process on the descriptors of its table.
///
/// Calls at the offset of a descriptor hold its lock until they are answered, also when the kernel answers them. Then the
/// kernel has the offset first.
#[derive(Clone, Copy)]
pub struct Calls<'a> {
    /// The descriptors.
    pub table: &'a Table<'a>,
    /// What answers in the process.
    pub engine: &'a dyn Engine,
    /// What answers otherwise.
    pub kernel: &'a dyn Kernel,
    /// Counts calls.
    pub counts: &'a Counts,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

fn bytes_in(space: &[IoSliceMut<'_>]) -> u64 {
    space.iter().map(|slice| slice.len() as u64).sum()
}

fn bytes_of(data: &[IoSlice<'_>]) -> u64 {
    data.iter().map(|slice| slice.len() as u64).sum()
}

/// Passes on what does not end within the offsets of files, or is empty.
fn check_range(offset: u64, len: u64) -> Result<(), Refused> {
    let end = offset.checked_add(len).filter(|end| *end <= OFFSET_MAX);
    if len == 0 || end.is_none() { Err(Refused::PassOn) } else { Ok(()) }
}

impl<'a> Calls<'a> {
    /// Counts an outcome. A call that the kernel is to answer is `None`.
    fn counted<T>(&self, outcome: Result<T, Refused>) -> Answered<T> {
        let count = match outcome {
            Err(Refused::PassOn) => &self.counts.passed_on,
            _ => &self.counts.answered,
        };
        count.fetch_add(1, Ordering::Relaxed);
        match outcome {
            Ok(done) => Some(Ok(done)),
            Err(Refused::Failed(errno)) => Some(Err(errno)),
            Err(Refused::PassOn) => None,
        }
    }

    /// `open` has returned a descriptor of a regular file: the library answers for it if the engine does.
    pub fn opened(&self, fd: i32, descriptor: impl FnOnce() -> Option<Descriptor>) {
        self.closes(fd);
        if let Some(descriptor) = descriptor()
            && !self.table.enter(fd, descriptor)
        {
            self.engine.close(descriptor.file);
        }
    }

    /// `read`, `readv`.
    pub fn read(&self, fd: i32, space: &mut [IoSliceMut<'_>]) -> Answered<usize> {
        let mut open = self.own(fd)?;
        let descriptor = &mut open.descriptor;
        let outcome = self.read_here(fd, descriptor, space);
        let read = self.counted(outcome).unwrap_or_else(|| {
            self.push(fd, descriptor)?;
            self.kernel.read(fd, space)
        });
        self.settle(fd, &mut open);
        Some(read)
    }

    fn read_here(
        &self,
        fd: i32,
        descriptor: &mut Descriptor,
        space: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Refused> {
        let offset = self.pull(fd, descriptor, Use::Read)?;
        check_range(offset, bytes_in(space))?;
        if !descriptor.access.reads() {
            return Err(Refused::PassOn);
        }
        let read = self.engine.read_at(descriptor.file, offset, space)?;
        descriptor.offset = Offset::Here(offset + read as u64);
        Ok(read)
    }

    /// `write`, `writev`.
    pub fn write(&self, fd: i32, data: &[IoSlice<'_>]) -> Answered<usize> {
        let Some(mut open) = self.own(fd) else {
            self.tell_end(fd, &mut self.table.lock(fd)?);
            return None;
        };
        let outcome = self.write_here(fd, &mut open.descriptor, data);
        let written = self.counted(outcome).unwrap_or_else(|| {
            self.push(fd, &mut open.descriptor)?;
            self.tell_end(fd, &mut open);
            self.kernel.write(fd, data)
        });
        self.settle(fd, &mut open);
        Some(written)
    }

    fn write_here(
        &self,
        fd: i32,
        descriptor: &mut Descriptor,
        data: &[IoSlice<'_>],
    ) -> Result<usize, Refused> {
        let offset = self.pull(fd, descriptor, Use::Write)?;
        let written = self.write_at(fd, descriptor, offset, data)?;
        descriptor.offset = Offset::Here(written.end);
        Ok(written.len as usize)
    }

    /// Writes at the offset, or at the end of the file if the descriptor does that.
    fn write_at(
        &self,
        fd: i32,
        descriptor: &Descriptor,
        offset: u64,
        data: &[IoSlice<'_>],
    ) -> Result<Written, Refused> {
        check_range(offset, bytes_of(data))?;
        if !descriptor.access.writes() {
            return Err(Refused::PassOn);
        }
        let written = match descriptor.writes {
            Writes::AtEnd => self.engine.append(descriptor.file, data)?,
            Writes::AtOffset => self.engine.write_at(descriptor.file, offset, data)?,
        };
        self.counts.written.fetch_add(1, Ordering::Relaxed);
        if descriptor.durable == Durable::AtOnce {
            self.sync_file(fd, descriptor.file)?;
        }
        Ok(written)
    }

    /// Makes durable what has been written here already: the call is not passed on any more.
    fn sync_file(&self, fd: i32, file: FileId) -> Result<(), Errno> {
        match self.engine.sync(file) {
            Ok(()) => Ok(()),
            Err(Refused::Failed(errno)) => Err(errno),
            Err(Refused::PassOn) => self.sync_by_kernel(fd, file, self.engine.at_stake(file)),
        }
    }

    /// The kernel makes a file durable, and does not know what was written here and is lost.
    fn sync_by_kernel(&self, fd: i32, file: FileId, at_stake: Option<u64>) -> Result<(), Errno> {
        let synced = self.kernel.sync(fd);
        // What both know to be lost is said once.
        if synced.is_err_and(|errno| errno != Errno(libc::EIO)) {
            return synced;
        }
        // What has failed has made nothing durable.
        let at_stake = at_stake.map(|at_stake| if synced.is_ok() { at_stake } else { 0 });
        let has_lost = at_stake.is_some_and(|at_stake| self.engine.has_lost(file, at_stake));
        if has_lost { Err(Errno(libc::EIO)) } else { synced }
    }

    /// `pread`, `preadv`.
    pub fn read_from(&self, fd: i32, offset: i64, space: &mut [IoSliceMut<'_>]) -> Answered<usize> {
        let descriptor = self.table.lock(fd)?.descriptor;
        let mut read = || {
            let offset = u64::try_from(offset).map_err(|_| Refused::PassOn)?;
            check_range(offset, bytes_in(space))?;
            if !descriptor.access.reads() {
                return Err(Refused::PassOn);
            }
            self.engine.read_at(descriptor.file, offset, space)
        };
        self.counted(read())
    }

    /// `pwrite`, `pwritev`.
    pub fn write_to(&self, fd: i32, offset: i64, data: &[IoSlice<'_>]) -> Answered<usize> {
        let descriptor = self.table.lock(fd)?.descriptor;
        let write = || {
            let offset = u64::try_from(offset).map_err(|_| Refused::PassOn)?;
            Ok(self.write_at(fd, &descriptor, offset, data)?.len as usize)
        };
        self.counted(write())
    }

    /// `lseek`.
    pub fn seek(&self, fd: i32, offset: i64, whence: i32) -> Answered<u64> {
        let mut open = self.own(fd)?;
        let descriptor = &mut open.descriptor;
        let outcome = self.seek_here(fd, descriptor, offset, whence);
        let found = self.counted(outcome).unwrap_or_else(|| {
            self.push(fd, descriptor)?;
            self.kernel.seek(fd, offset, whence)
        });
        self.settle(fd, &mut open);
        Some(found)
    }

    fn seek_here(
        &self,
        fd: i32,
        descriptor: &mut Descriptor,
        offset: i64,
        whence: i32,
    ) -> Result<u64, Refused> {
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => self.pull(fd, descriptor, Use::Read)?,
            SEEK_END => self.engine.size(descriptor.file)?,
            _ => return Err(Refused::PassOn),
        };
        let found = from.checked_add_signed(offset).filter(|found| *found <= OFFSET_MAX);
        let found = found.ok_or(Refused::PassOn)?;
        descriptor.offset = Offset::Here(found);
        Ok(found)
    }

    /// `fsync`, `fdatasync`.
    pub fn sync(&self, fd: i32) -> Answered<()> {
        let file = self.table.lock(fd)?.descriptor.file;
        let answered = self.counted(self.engine.sync(file));
        answered.or_else(|| {
            let at_stake = self.engine.at_stake(file)?;
            Some(self.sync_by_kernel(fd, file, Some(at_stake)))
        })
    }

    /// The open file, locked, if nobody else sees its offset. That of a standard descriptor the C library sees, which comes
    /// between two calls of the thread, or at any time from another one.
    fn own(&self, fd: i32) -> Option<Locked<'a>> {
        let mut open = self.table.lock(fd)?;
        if open.is_standard && !self.kernel.is_single_threaded() {
            open.descriptor.offset = Offset::Shared;
        }
        if open.descriptor.offset == Offset::Shared {
            self.counts.passed_on.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(open)
    }

    /// The offset, if the engine may answer: it is the library's from now on.
    fn pull(&self, fd: i32, descriptor: &mut Descriptor, using: Use) -> Result<u64, Refused> {
        if let Offset::Here(offset) = descriptor.offset {
            return Ok(offset);
        }
        if !self.engine.is_ready(descriptor.file, using) {
            return Err(Refused::PassOn);
        }
        let offset = self.kernel.seek(fd, 0, SEEK_CUR)?;
        descriptor.offset = Offset::Here(offset);
        Ok(offset)
    }

    /// A call ends. The next one on a standard descriptor may be the C library's.
    fn settle(&self, fd: i32, open: &mut Locked<'_>) {
        if open.is_standard {
            let _ = self.push(fd, &mut open.descriptor);
        }
    }

    /// Gives the kernel the offset.
    fn push(&self, fd: i32, descriptor: &mut Descriptor) -> Result<(), Errno> {
        if let Offset::Here(offset) = descriptor.offset {
            self.kernel.seek(fd, i64::try_from(offset).unwrap_or(i64::MAX), SEEK_SET)?;
            descriptor.offset = Offset::Kernel;
        }
        Ok(())
    }

    /// The kernel is about to look at the offset.
    pub fn shows_offset(&self, fd: i32) {
        if let Some(mut open) = self.table.lock(fd) {
            // What cannot be sought has no offset.
            let _ = self.push(fd, &mut open.descriptor);
        }
    }

    /// A handler of a signal interrupts a call of the same thread, and calls the kernel: for good, as far as the call that is
    /// interrupted does not hold the offset.
    pub fn interrupts(&self, fd: i32) {
        if let Some(mut open) = self.table.try_lock(fd) {
            self.hand_over(fd, &mut open);
        }
    }

    /// The offset is the kernel's, for good.
    fn hand_over(&self, fd: i32, open: &mut Locked<'_>) {
        // What cannot be sought has no offset.
        let _ = self.push(fd, &mut open.descriptor);
        open.descriptor.offset = Offset::Shared;
    }

    /// Somebody else is about to get the offset, or the kernel changes it.
    pub fn shares(&self, fd: i32) {
        if let Some(mut open) = self.table.lock(fd) {
            self.hand_over(fd, &mut open);
            self.tell_end(fd, &mut open);
        }
    }

    /// The kernel is about to append, perhaps: its offset is behind the end that it knows then.
    fn tell_end(&self, fd: i32, open: &mut Locked<'_>) {
        let written = self.counts.written.load(Ordering::Relaxed);
        if open.descriptor.writes == Writes::AtEnd && std::mem::replace(&mut open.told, written) != written {
            self.kernel.refresh(fd);
        }
    }

    /// A call at the descriptor's offset that is not answered here, whatever it is.
    pub fn by_kernel(&self, fd: i32, call: impl FnOnce() -> Result<usize, Errno>) -> Answered<usize> {
        let mut open = self.own(fd)?;
        self.counts.passed_on.fetch_add(1, Ordering::Relaxed);
        let done = self.push(fd, &mut open.descriptor).and_then(|()| {
            self.tell_end(fd, &mut open);
            call()
        });
        self.settle(fd, &mut open);
        Some(done)
    }

    /// All descriptors are about to be shared with another process.
    pub fn shares_all(&self) {
        self.table.within(0, u32::MAX).for_each(|fd| self.shares(fd));
    }

    /// Makes another descriptor of the same open file, which shares its offset. The number that it gets is in the table
    /// no more.
    pub fn duplicates(&self, fd: i32, duplicate: impl FnOnce() -> Result<i32, Errno>) -> Answered<i32> {
        let mut open = self.table.lock(fd)?;
        let duplicated = duplicate();
        if let Ok(new) = duplicated {
            if !self.table.enter_duplicate(fd, new, &mut open) {
                self.hand_over(fd, &mut open);
            }
            self.settle(fd, &mut open);
        }
        Some(duplicated)
    }

    /// A program maps the descriptor's file.
    pub fn maps(&self, fd: i32) {
        if let Some(open) = self.table.lock(fd) {
            self.engine.leave(open.descriptor.file);
        }
    }

    /// The library does not answer for the descriptor any more; it stays open.
    pub fn leaves(&self, fd: i32) {
        if let Some(mut open) = self.table.lock(fd) {
            // Other descriptors of the same open file share the offset with it.
            self.hand_over(fd, &mut open);
            let unused = self.table.take(fd, &mut open);
            drop(open);
            unused.into_iter().for_each(|file| self.engine.close(file));
        }
    }

    /// Changes the flags of an open file, which its descriptors share. Those of which the kernel is to see everything from
    /// now on leave the table.
    pub fn changes_flags(
        &self,
        fd: i32,
        flags: i32,
        change: impl FnOnce() -> Result<i32, Errno>,
    ) -> Answered<i32> {
        let mut open = self.table.lock(fd)?;
        let changed = change();
        if changed.is_ok() {
            open.descriptor.writes =
                if flags & libc::O_APPEND != 0 { Writes::AtEnd } else { Writes::AtOffset };
            self.tell_end(fd, &mut open);
        }
        drop(open);
        if changed.is_ok() && flags & libc::O_DIRECT != 0 {
            self.leaves_open_file(fd);
        }
        Some(changed)
    }

    /// As [`Self::leaves`], for all descriptors of the open file.
    pub fn leaves_open_file(&self, fd: i32) {
        let shared: Vec<i32> = self.table.sharing(fd).collect();
        shared.into_iter().for_each(|fd| self.leaves(fd));
    }

    /// As [`Self::leaves`], for the descriptors in a range, both ends included.
    pub fn leaves_range(&self, first: u32, last: u32) {
        self.table.within(first, last).for_each(|fd| self.leaves(fd));
    }

    /// The descriptor is about to be closed.
    pub fn closes(&self, fd: i32) {
        if let Some(mut open) = self.table.lock(fd) {
            let unused = self.table.take(fd, &mut open);
            drop(open);
            unused.into_iter().for_each(|file| self.engine.close(file));
        }
    }
}
