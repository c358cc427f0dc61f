//! The table of the descriptors for which the library answers.

use crate::engine::FileId;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a descriptor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `O_RDONLY`
    Read,
    /// `O_WRONLY`
    Write,
    /// `O_RDWR`
    Both,
}

impl Access {
    pub(crate) fn reads(self) -> bool {
        self != Self::Write
    }

    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Where `write` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// At the descriptor's offset.
    AtOffset,
    /// At the end of the file (`O_APPEND`), `pwrite` as well: Linux does so.
    AtEnd,
}

/// When what is written through a descriptor becomes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// With the next `fsync`.
    Later,
    /// Before the call returns (`O_SYNC`, `O_DSYNC`).
    AtOnce,
}

/// Who knows the offset of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The library: the kernel's is old.
    Here(u64),
    /// The kernel. Nobody but this descriptor sees it.
    Kernel,
    /// The kernel, for good: another descriptor or process may change it. Calls with an offset of their own are answered
    /// here all the same.
    Shared,
}

/// A descriptor for which the library answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The file.
    pub file: FileId,
    /// What it may do.
    pub access: Access,
    /// Where it writes.
    pub writes: Writes,
    /// When that is durable.
    pub durable: Durable,
    /// Its offset.
    pub offset: Offset,
}

/// The bytes of an unused place are all zero, so that a table takes no space in the library's file.
const UNUSED: Descriptor = Descriptor {
    file: FileId(0),
    access: Access::Read,
    writes: Writes::AtOffset,
    durable: Durable::Later,
    offset: Offset::Here(0),
};

/// True for standard input, output and error: the C library reads and writes there, too, by calls of its own that come by
/// no table.
fn is_standard(fd: i32) -> bool {
    (libc::STDIN_FILENO..=libc::STDERR_FILENO).contains(&fd)
}

/// An open file, with the descriptors of the table that share it.
#[derive(Debug)]
pub(crate) struct Shared {
    descriptors: u32,
    /// One of them is, or was, a standard one.
    pub(crate) is_standard: bool,
    /// How many writes had been answered when the kernel learnt where the file ends.
    pub(crate) told: u64,
    pub(crate) descriptor: Descriptor,
}

/// A place of the table: for a descriptor with its number, and for an open file of any descriptor. Whoever reads or
/// writes at an open file's offset holds its lock, so that the calls of all threads have an order, as POSIX asks for.
#[derive(Debug)]
pub struct Place {
    /// Index of the descriptor's open file, plus 1; 0 if the descriptor is not in the table.
    refers_to: AtomicU32,
    open: Mutex<Shared>,
}

impl Place {
    /// A place without a descriptor.
    pub const fn new() -> Self {
        let open = Shared { descriptors: 0, is_standard: false, told: 0, descriptor: UNUSED };
        Self { refers_to: AtomicU32::new(0), open: Mutex::new(open) }
    }

    fn lock(&self) -> Locked<'_> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// An open file, locked.
pub(crate) type Locked<'t> = MutexGuard<'t, Shared>;

/// The descriptors, each at the place of its number. It needs no heap. What has no place is the kernel's.
#[derive(Debug)]
pub struct Table<'p> {
    places: &'p [Place],
    /// No descriptor from this one on has been in the table.
    end: AtomicUsize,
}

impl<'p> Table<'p> {
    /// A table with these places, of which none is used.
    pub const fn new(places: &'p [Place]) -> Self {
        Self { places, end: AtomicUsize::new(0) }
    }

    fn place(&self, fd: i32) -> Option<&'p Place> {
        self.places.get(usize::try_from(fd).ok()?)
    }

    /// True if the library may answer for the descriptor.
    #[inline]
    pub fn has(&self, fd: i32) -> bool {
        self.place(fd).is_some_and(|place| place.refers_to.load(Ordering::Acquire) != 0)
    }

    /// As [`Self::lock`], for one who must not wait: the lock may be its own thread's.
    pub(crate) fn try_lock(&self, fd: i32) -> Option<Locked<'p>> {
        let place = self.place(fd)?;
        let refers_to = place.refers_to.load(Ordering::Acquire);
        let locked = self.places.get((refers_to as usize).checked_sub(1)?)?.open.try_lock().ok()?;
        (place.refers_to.load(Ordering::Acquire) == refers_to).then_some(locked)
    }

    /// Locks the open file of a descriptor.
    pub(crate) fn lock(&self, fd: i32) -> Option<Locked<'p>> {
        let place = self.place(fd)?;
        loop {
            let refers_to = place.refers_to.load(Ordering::Acquire);
            let open = self.places.get((refers_to as usize).checked_sub(1)?)?;
            let locked = open.lock();
            // It may have become another descriptor's meanwhile.
            if place.refers_to.load(Ordering::Acquire) == refers_to {
                return Some(locked);
            }
        }
    }

    /// Enters a descriptor of a file that was opened. False if there is no place.
    pub(crate) fn enter(&self, fd: i32, descriptor: Descriptor) -> bool {
        let (Some(place), Ok(number)) = (self.place(fd), usize::try_from(fd)) else { return false };
        // Its own place is free unless a duplicate of an earlier descriptor with its number is still open.
        for index in (number..self.places.len()).chain(0..number) {
            let mut open = self.places[index].lock();
            if open.descriptors == 0 {
                *open = Shared { descriptors: 1, is_standard: is_standard(fd), told: 0, descriptor };
                if open.is_standard {
                    // The kernel's is the same now, and may change without a call.
                    open.descriptor.offset = Offset::Kernel;
                }
                self.refer(place, number, index);
                return true;
            }
        }
        false
    }

    fn refer(&self, place: &Place, number: usize, index: usize) {
        self.end.fetch_max(number + 1, Ordering::AcqRel);
        place.refers_to.store(u32::try_from(index + 1).unwrap_or(0), Ordering::Release);
    }

    /// Enters a descriptor that shares the open file of `old`, which the caller has locked. False if there is no place.
    pub(crate) fn enter_duplicate(&self, old: i32, new: i32, open: &mut Locked<'_>) -> bool {
        let index = self.place(old).map(|place| place.refers_to.load(Ordering::Acquire) as usize);
        let (Some(place), Ok(number), Some(index)) = (self.place(new), usize::try_from(new), index) else {
            return false;
        };
        open.descriptors += 1;
        open.is_standard |= is_standard(new);
        self.refer(place, number, index - 1);
        true
    }

    /// Takes out a descriptor whose open file the caller has locked. Returns the file if no other descriptor shares it.
    pub(crate) fn take(&self, fd: i32, open: &mut Locked<'_>) -> Option<FileId> {
        self.place(fd)?.refers_to.store(0, Ordering::Release);
        open.descriptors -= 1;
        (open.descriptors == 0).then_some(open.descriptor.file)
    }

    /// All descriptors of a descriptor's open file.
    pub(crate) fn sharing(&self, fd: i32) -> impl Iterator<Item = i32> + '_ {
        let refers_to = |fd| self.place(fd).map_or(0, |place| place.refers_to.load(Ordering::Acquire));
        let same = refers_to(fd);
        self.within(0, u32::MAX).filter(move |other| refers_to(*other) == same)
    }

    /// The descriptors in a range of numbers, both ends included.
    pub(crate) fn within(&self, first: u32, last: u32) -> impl Iterator<Item = i32> + '_ {
        let end = self.end.load(Ordering::Acquire);
        let range = first as usize..end.min((last as usize).saturating_add(1));
        range.filter_map(|index| i32::try_from(index).ok()).filter(|fd| self.has(*fd))
    }
}
