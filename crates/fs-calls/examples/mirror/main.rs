//! The library with an engine that answers from the files themselves, for tests: a program that runs with it must do
//! exactly what it does without it.
//!
//! It answers for files in the directory `MIRROR_DIR`, through descriptors of its own. Every few calls it refuses to
//! answer (`MIRROR_REFUSES=N`: one call of N), so that the kernel and the library take turns.

mod sys;

use landfall_fs_calls::{Engine, Errno, FileId, Opened, Refused, Use, Written};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors of the engine have high numbers: programs expect the lowest free one.
const DESCRIPTOR_MIN: i32 = 900;

/// An open file.
struct File {
    inode: u64,
    descriptors: u32,
    descriptor: Arc<OwnedFd>,
}

/// Answers from the files themselves.
pub struct Mirror {
    /// What their paths begin with.
    directory: Vec<u8>,
    /// One call of so many is refused; 0: none.
    refuses: u64,
    calls: AtomicU64,
    next: AtomicU32,
    files: Mutex<BTreeMap<FileId, File>>,
    /// Files are not appended to by two threads at a time.
    appending: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: rustix::io::Errno) -> Refused {
    Refused::Failed(Errno(error.raw_os_error()))
}

impl Mirror {
    /// The mirror that the environment asks for.
    pub fn new() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        Some(Self {
            directory: variable("MIRROR_DIR")?.into_bytes(),
            refuses: variable("MIRROR_REFUSES").and_then(|number| number.parse().ok()).unwrap_or(0),
            calls: AtomicU64::new(0),
            next: AtomicU32::new(0),
            files: Mutex::default(),
            appending: Mutex::default(),
        })
    }

    fn check(&self) -> Result<(), Refused> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.refuses > 0 && call.is_multiple_of(self.refuses) { Err(Refused::PassOn) } else { Ok(()) }
    }

    fn with<T>(
        &self,
        file: FileId,
        answer: impl FnOnce(BorrowedFd<'_>) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        self.check()?;
        let files = lock(&self.files);
        let file = files.get(&file).ok_or(Refused::PassOn)?;
        let descriptor = Arc::clone(&file.descriptor);
        drop(files);
        answer(descriptor.as_fd())
    }
}

fn write_all(fd: BorrowedFd<'_>, start: u64, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
    let mut offset = start;
    for slice in data {
        let mut rest = &slice[..];
        while !rest.is_empty() {
            let written = rustix::io::pwrite(fd, rest, offset).map_err(failed)?;
            rest = &rest[written..];
            offset += written as u64;
        }
    }
    Ok(Written { end: offset, len: offset - start })
}

impl Engine for Mirror {
    fn open(&self, opened: &Opened) -> Option<FileId> {
        let path = format!("/proc/self/fd/{}", opened.fd);
        let target = rustix::fs::readlink(path.as_str(), Vec::new()).ok()?;
        if !target.as_bytes().starts_with(&self.directory) {
            return None;
        }
        let mut files = lock(&self.files);
        if let Some((file, known)) = files.iter_mut().find(|(_, known)| known.inode == opened.inode) {
            known.descriptors += 1;
            return Some(*file);
        }
        let low = rustix::fs::open(path.as_str(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let descriptor = Arc::new(rustix::io::fcntl_dupfd_cloexec(&low, DESCRIPTOR_MIN).ok()?);
        let file = FileId(self.next.fetch_add(1, Ordering::Relaxed));
        files.insert(file, File { inode: opened.inode, descriptors: 1, descriptor });
        Some(file)
    }

    fn close(&self, file: FileId) {
        let mut files = lock(&self.files);
        if let Some(known) = files.get_mut(&file) {
            known.descriptors -= 1;
            if known.descriptors == 0 {
                files.remove(&file);
            }
        }
    }

    fn is_ready(&self, _file: FileId, _using: Use) -> bool {
        self.check().is_ok()
    }

    fn read_at(&self, file: FileId, offset: u64, space: &mut [IoSliceMut<'_>]) -> Result<usize, Refused> {
        self.with(file, |fd| {
            let mut read = 0;
            for slice in space {
                let here = rustix::io::pread(fd, &mut **slice, offset + read as u64).map_err(failed)?;
                read += here;
                if here < slice.len() {
                    break;
                }
            }
            Ok(read)
        })
    }

    fn write_at(&self, file: FileId, offset: u64, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
        self.with(file, |fd| write_all(fd, offset, data))
    }

    fn append(&self, file: FileId, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
        self.with(file, |fd| {
            let _one = lock(&self.appending);
            let size = rustix::fs::fstat(fd).map_err(failed)?.st_size;
            write_all(fd, size.unsigned_abs(), data)
        })
    }

    fn size(&self, file: FileId) -> Result<u64, Refused> {
        self.with(file, |fd| Ok(rustix::fs::fstat(fd).map_err(failed)?.st_size.unsigned_abs()))
    }

    fn sync(&self, file: FileId) -> Result<(), Refused> {
        self.with(file, |fd| rustix::fs::fsync(fd).map_err(failed))
    }

    fn at_stake(&self, _file: FileId) -> Option<u64> {
        None
    }

    fn has_lost(&self, _file: FileId, _at_stake: u64) -> bool {
        false
    }

    fn leave(&self, file: FileId) {
        lock(&self.files).remove(&file);
    }

    fn forked(&self) {}

    fn loses(&self, _descriptors: RangeInclusive<u32>) {}
}
