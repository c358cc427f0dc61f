//! The memory of a ring that the kernel shares with this process.

use super::checked::checked;
use crate::ring::RingMemory;
use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `XDP_RING_NEED_WAKEUP`: the kernel reads the ring only after a call.
const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// Plain old data that a ring holds.
///
/// # Safety
/// Any bit pattern must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: every 8 bytes are a number.
unsafe impl Plain for u64 {}
// SAFETY: a descriptor is one 64-bit and two 32-bit numbers without padding.
unsafe impl Plain for libc::xdp_desc {}

/// A mapped ring of `T`, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    base: NonNull<u8>,
    bytes: usize,
    offsets: Offsets,
    entries: u32,
    entry: PhantomData<T>,
}

/// Offsets of the parts of a ring, bytes from its start.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

// SAFETY: a ring is memory shared with the kernel; no part of it is bound to the thread that mapped it.
unsafe impl<T: Plain + Send> Send for Mapped<T> {}

impl<T: Plain> Mapped<T> {
    /// Maps the ring of the socket `fd` at page offset `page_offset`.
    pub(super) fn of_socket(
        fd: RawFd,
        entries: u32,
        page_offset: libc::off_t,
        offsets: &libc::xdp_ring_offset,
    ) -> io::Result<Self> {
        let place = |offset: u64| usize::try_from(offset).map_err(io::Error::other);
        let offsets = Offsets {
            producer: place(offsets.producer)?,
            consumer: place(offsets.consumer)?,
            flags: place(offsets.flags)?,
            entries: place(offsets.desc)?,
        };
        Self::map(fd, entries, page_offset, offsets, libc::MAP_SHARED | libc::MAP_POPULATE)
    }

    /// A ring without a socket, for tests: counters and flags are a cache line apart, as in the kernel's layout.
    #[cfg(test)]
    pub(crate) fn anonymous(entries: u32) -> io::Result<Self> {
        let offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
        Self::map(-1, entries, 0, offsets, libc::MAP_SHARED | libc::MAP_ANONYMOUS)
    }

    fn map(
        fd: RawFd,
        entries: u32,
        at: libc::off_t,
        offsets: Offsets,
        flags: libc::c_int,
    ) -> io::Result<Self> {
        let bytes = offsets.entries + entries as usize * size_of::<T>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, fd, at) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let inside = |offset: usize| offset.is_multiple_of(4) && offset + 4 <= bytes;
        assert!(
            entries.is_power_of_two()
                && [offsets.producer, offsets.consumer, offsets.flags].into_iter().all(inside)
                && offsets.entries.is_multiple_of(align_of::<T>()),
            "the kernel's ring layout is {offsets:?} for {entries} entries"
        );
        Ok(Self { base, bytes, offsets, entries, entry: PhantomData })
    }

    /// True if the kernel reads this ring only after a call.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` checked that the 4 aligned bytes are inside the mapping, which lives as long as
        // `self`; both sides use them only atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let place = (index & (self.entries - 1)) as usize;
        // SAFETY: the position is below the number of entries, all of which are inside the mapping.
        unsafe { self.base.as_ptr().add(self.offsets.entries).cast::<T>().add(place) }
    }
}

impl<T: Plain> RingMemory for Mapped<T> {
    type Word = AtomicU32;
    type Entry = T;

    fn entries(&self) -> u32 {
        self.entries
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    fn read(&self, index: u32) -> T {
        // SAFETY: the entry is mapped and aligned, any bits are a value, and the producer does not write the entry
        // before this side has released it. The access is volatile because the other side is not this program.
        unsafe { self.entry(index).read_volatile() }
    }

    fn write(&self, index: u32, entry: T) {
        // SAFETY: as in `read`, and the consumer does not read the entry before it is published.
        unsafe { self.entry(index).write_volatile(entry) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nothing borrows from it any more.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(checked(unmapped).is_ok(), "a ring that was mapped can be unmapped");
    }
}
