//! The ring of provided buffers that a multishot receive takes its memory from.

use super::checked::checked;
use super::region::Region;
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use landfall_media::Extent;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// Buffers that can be posted at once; a power of two.
pub(crate) const BUFFERS_MAX: usize = 8;
/// The buffer group; a ring has only one.
pub(super) const GROUP: u16 = 0;
/// `IOU_PBUF_RING_INC` of `linux/io_uring.h`: a receive consumes a buffer from its front, as much as it received, and
/// the buffer stays posted until it is full. Linux 6.12.
const INCREMENTAL: u16 = 2;
/// Size of the ring's memory: one page, since the kernel requires page alignment.
const BYTES: usize = 4096;

/// A buffer's number in the ring, below [`BUFFERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferId(pub(crate) u16);

/// The memory that the kernel takes posted buffers from.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    tail: u16,
}

impl Buffers {
    pub(super) fn new() -> io::Result<Self> {
        const { assert!(BUFFERS_MAX.is_power_of_two() && BUFFERS_MAX * size_of::<BufRingEntry>() <= BYTES) }
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches no existing memory.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let entries = NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { entries, tail: 0 })
    }

    /// Registers the ring with the kernel. The caller unregisters it, or closes the io_uring, before it drops this.
    pub(super) fn register(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        let (address, entries) = (self.entries.as_ptr().expose_provenance() as u64, BUFFERS_MAX as u16);
        // SAFETY: the page holds BUFFERS_MAX entries and outlives the registration (see above).
        unsafe { submitter.register_buf_ring_with_flags(address, entries, GROUP, INCREMENTAL) }
    }

    /// Posts `space` to the kernel under `id`. The caller has fewer than [`BUFFERS_MAX`] buffers posted.
    pub(super) fn post(&mut self, region: Region, space: Extent, id: BufferId) {
        let address = region.address(space).expose_provenance() as u64;
        let index = usize::from(self.tail) & (BUFFERS_MAX - 1);
        // SAFETY: the index is below BUFFERS_MAX. The kernel does not read an entry from the tail on, and fewer than
        // BUFFERS_MAX are before it, so this entry is not in use.
        let entry = unsafe { &mut *self.entries.as_ptr().add(index) };
        entry.set_addr(address);
        entry.set_len(space.len());
        entry.set_bid(id.0);
        self.tail = self.tail.wrapping_add(1);
        self.shared_tail().store(self.tail, Ordering::Release);
    }

    /// The tail that the kernel reads. It is in a field of the first entry that entries do not use.
    fn shared_tail(&self) -> &AtomicU16 {
        // SAFETY: the entries are mapped and aligned for as long as `self`.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the field is 2 aligned bytes in the mapping, and after set-up it is only used atomically.
        unsafe { AtomicU16::from_ptr(tail.cast_mut()) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `new`, and nothing borrows from it any more.
        let unmapped = unsafe { libc::munmap(self.entries.as_ptr().cast(), BYTES) };
        debug_assert!(checked(unmapped).is_ok(), "a page that was mapped can be unmapped");
    }
}
