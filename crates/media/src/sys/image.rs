//! The region's image: a reserved range of addresses whose head is usable memory.
//!
//! Ownership discipline, which the heap upholds and every SAFETY comment here relies on: no thread stores to bytes that
//! a reader may hold a slice of, and the kernel writes only into frames of claimed runs that have no readers. Offsets
//! are checked here in every build; aliasing cannot be checked.

use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void};

use crate::error::MediaError;
use crate::extent::Extent;

/// Alignment of an image's base: a transparent huge page, bytes.
pub(crate) const ALIGN_DEFAULT: u64 = 2 << 20;

/// A reserved address range, usable from its base up to [`Image::len`].
pub(crate) struct Image {
    base: NonNull<u8>,
    reserved: u64,
    len: AtomicU64,
    mapping: (NonNull<u8>, usize),
}

// SAFETY: the image is plain memory behind a base address that never changes. The module's ownership discipline says
// which bytes may be accessed when, and `len` is atomic.
unsafe impl Send for Image {}
// SAFETY: see `Send`.
unsafe impl Sync for Image {}

impl Image {
    /// Reserves addresses for `wanted` bytes, or for `least` where a limit forbids `wanted`. No byte is usable yet. The
    /// base is a multiple of `align`, a power of two of at least a page.
    pub(crate) fn reserve(wanted: u64, least: u64, align: u64) -> io::Result<Self> {
        Self::reserve_exactly(wanted.max(least), align).or_else(|_| Self::reserve_exactly(least, align))
    }

    /// Anonymous memory of `len` zero bytes.
    pub(crate) fn anonymous(len: u64, reserve: u64) -> io::Result<Self> {
        let image = Self::reserve(reserve, len, ALIGN_DEFAULT)?;
        image.extend_anonymous(len)?;
        image.advise_huge(0, len, true);
        Ok(image)
    }

    fn reserve_exactly(len: u64, align: u64) -> io::Result<Self> {
        let len = len.next_multiple_of(align);
        let total = usize::try_from(len + align).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = map(ptr::null_mut(), total, libc::PROT_NONE, flags, -1, 0)?;
        let skip = start.addr().get().next_multiple_of(align as usize) - start.addr().get();
        // SAFETY: `skip` is less than `align`, and the mapping is `align` bytes longer than `len`.
        let base = unsafe { start.add(skip) };
        Ok(Self { base, reserved: len, len: AtomicU64::new(0), mapping: (start, total) })
    }

    /// Usable length, bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Bytes that [`Image::extend_anonymous`] and [`Image::map_file`] can reach.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> usize {
        self.base.addr().get()
    }

    /// Makes anonymous zero memory usable up to `len`.
    pub(crate) fn extend_anonymous(&self, len: u64) -> io::Result<()> {
        self.back_anonymous(len)?;
        self.set_len(len);
        Ok(())
    }

    /// Gets the memory for [`Self::set_len`], which cannot fail then.
    pub(crate) fn back_anonymous(&self, len: u64) -> io::Result<()> {
        let bytes = self.within_reservation(len)?;
        // SAFETY: the range lies within our own reservation.
        let done = unsafe { libc::mprotect(self.base.as_ptr().cast(), bytes, READ_WRITE) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: within our own reservation. Advice: a refusal changes nothing. A child gets no copy of the image, since
        // copy-on-write would separate direct I/O in flight from the image.
        let _ = unsafe { libc::madvise(self.base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
        Ok(())
    }

    /// The image ends there from now on.
    pub(crate) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Maps bytes `from..len` of the file over the same range of the image, and makes it usable.
    /// `from` must be a multiple of the file's page size.
    pub(crate) fn map_file(
        &self,
        fd: RawFd,
        from: u64,
        len: u64,
        flags: c_int,
        prot: c_int,
    ) -> io::Result<()> {
        let bytes = self.within_reservation(len)? - from as usize;
        // SAFETY: `from < len`, which was just found to be within the reservation.
        let at = unsafe { self.base.add(from as usize) };
        map(at.as_ptr().cast(), bytes, prot, flags | libc::MAP_FIXED, fd, from)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Maps a file whose first byte belongs to offset `begin` of the image, which is usable up to `len` then. What is before is
    /// zeroes. `begin` must be a multiple of the file's page size.
    pub(crate) fn map_behind(
        &self,
        (fd, begin): (RawFd, u64),
        len: u64,
        flags: c_int,
        prot: c_int,
    ) -> io::Result<()> {
        let bytes = self.within_reservation(len)? - begin as usize;
        // SAFETY: the range lies within our own reservation, as `begin < len`.
        let done = unsafe { libc::mprotect(self.base.as_ptr().cast(), begin as usize, libc::PROT_READ) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let at = unsafe { self.base.add(begin as usize) };
        map(at.as_ptr().cast(), bytes, prot, flags | libc::MAP_FIXED, fd, 0)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Children of `fork` do not get the image.
    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        let len = self.within_reservation(self.len())?;
        // SAFETY: the image itself; the call changes no byte.
        let done = unsafe { libc::madvise(self.base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets what may be done with a range of whole pages. The caller excludes accesses that it forbids.
    pub(crate) fn protect(&self, off: u64, len: u64, protection: c_int) -> io::Result<()> {
        let at = self.at(off, len).map_err(io::Error::other)?;
        // SAFETY: in bounds; the bytes stay mapped, and nobody stores to them where that is forbidden.
        let done = unsafe { libc::mprotect(at.cast(), len as usize, protection) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn within_reservation(&self, len: u64) -> io::Result<usize> {
        let fits = len <= self.reserved;
        let len = usize::try_from(len).ok().filter(|_| fits);
        len.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// The address of `off`, after `off..off + len` was checked to be within the image.
    ///
    /// # Errors
    /// [`MediaError::OutOfBounds`].
    #[inline]
    pub(crate) fn at(&self, off: u64, len: u64) -> Result<*mut u8, MediaError> {
        let region_len = self.len();
        if off > region_len || len > region_len - off {
            return Err(MediaError::OutOfBounds { off, len, region_len });
        }
        // SAFETY: `off` is at most the usable length, which lies within the mapping.
        Ok(unsafe { self.base.as_ptr().add(off as usize) })
    }

    /// The bytes of an extent.
    #[inline]
    pub(crate) fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        let at = self.at(extent.off, u64::from(extent.len()))?;
        // SAFETY: in bounds and mapped until drop, and the borrow ends before that. The heap never stores to bytes that
        // a reader holds, and the kernel writes only into claimed runs (module documentation).
        Ok(unsafe { std::slice::from_raw_parts(at, extent.len() as usize) })
    }

    /// Stores bytes.
    #[inline]
    pub(crate) fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let at = self.at(off, bytes.len() as u64)?;
        // SAFETY: in bounds; by the ownership discipline no thread reads or writes the target meanwhile. `copy` and not
        // `copy_nonoverlapping`: the source may be borrowed from this image.
        unsafe { ptr::copy(bytes.as_ptr(), at, bytes.len()) };
        Ok(())
    }

    /// Stores an aligned word with one atomic store, little-endian.
    #[inline]
    pub(crate) fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError> {
        let at = self.at(off, 8)?;
        if !off.is_multiple_of(8) {
            return Err(MediaError::OutOfBounds { off, len: 8, region_len: self.len() });
        }
        // SAFETY: in bounds and aligned: the base is page-aligned and `off` a multiple of 8.
        let target = unsafe { AtomicU64::from_ptr(at.cast()) };
        target.store(word.to_le(), Ordering::Release);
        Ok(())
    }

    /// Releases the memory behind whole pages of an anonymous image. They read as zeroes until they are stored to.
    pub(crate) fn give_back(&self, off: u64, len: u64) -> io::Result<()> {
        let at = self.at(off, len).map_err(io::Error::other)?;
        // SAFETY: in bounds; the caller excludes other threads from these bytes, or knows that they are not needed. A
        // late reader reads zeroes, which is as valid as any bytes of a run that is reused.
        let done = unsafe { libc::madvise(at.cast(), len as usize, libc::MADV_DONTNEED) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Allocates the memory of a range of whole pages at once, which takes half as long as one fault for each page. A
    /// kernel before 5.14 does not support it: there, page faults allocate the memory.
    pub(crate) fn populate(&self, off: u64, len: u64) -> Result<(), MediaError> {
        let at = self.at(off, len)?;
        // SAFETY: in bounds; the call changes no byte.
        let _ = unsafe { libc::madvise(at.cast(), len as usize, libc::MADV_POPULATE_WRITE) };
        Ok(())
    }

    /// Asks for huge pages, or for small ones, behind an aligned range from now on. Advice: a refusal changes nothing.
    pub(crate) fn advise_huge(&self, off: u64, len: u64, huge: bool) {
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        if let Ok(at) = self.at(off, len) {
            // SAFETY: in bounds; the call changes no byte.
            let _ = unsafe { libc::madvise(at.cast(), len as usize, advice) };
        }
    }

    /// Stores `len` zero bytes.
    pub(crate) fn zero(&self, off: u64, len: u64) -> Result<(), MediaError> {
        let at = self.at(off, len)?;
        // SAFETY: see `store`.
        unsafe { ptr::write_bytes(at, 0, len as usize) };
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the whole mapping made in `reserve_exactly`; every slice borrowed `self`.
        unsafe { libc::munmap(self.mapping.0.as_ptr().cast(), self.mapping.1) };
    }
}

pub(super) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// `mmap`. With `MAP_FIXED` the caller owns the target range.
fn map(
    at: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: RawFd,
    off: u64,
) -> io::Result<NonNull<u8>> {
    let off = i64::try_from(off).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: a new mapping, or one over a part of our own reservation that is not borrowed yet.
    let got = unsafe { libc::mmap(at, len, prot, flags, fd, off) };
    if got == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(got.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// True where the file can be mapped so that a flushed store needs no system call to be durable: a DAX file system.
pub(super) fn maps_synchronously(fd: RawFd) -> bool {
    let flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
    let Ok(page) = map(ptr::null_mut(), crate::units::BLOCK_SIZE as usize, libc::PROT_READ, flags, fd, 0)
    else {
        return false;
    };
    // SAFETY: the page that was just mapped, which was never accessed and has no references.
    unsafe { libc::munmap(page.as_ptr().cast(), crate::units::BLOCK_SIZE as usize) };
    true
}

/// Refuses a buffer that is not exactly as long as the extent.
pub(super) fn check_buffer(extent: Extent, into: &[u8]) -> Result<(), MediaError> {
    if into.len() == extent.len() as usize {
        return Ok(());
    }
    Err(MediaError::Unsupported("the buffer must be exactly as long as the extent to read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 1 << 20;

    fn image() -> Image {
        Image::anonymous(LEN, 8 * LEN).expect("address space for a test")
    }

    #[test]
    fn every_access_past_the_end_is_refused() {
        let image = image();
        let out = |r: Result<(), MediaError>| matches!(r, Err(MediaError::OutOfBounds { .. }));
        assert!(out(image.bytes(Extent::new(LEN - 1, 2)).map(|_| ())));
        assert!(out(image.bytes(Extent::new(u64::MAX, 2)).map(|_| ())));
        assert!(out(image.store(LEN, b"x")));
        assert!(out(image.store_u64(LEN - 4, 1)));
        assert!(out(image.zero(1, LEN)));
        assert!(out(image.store_u64(4, 1)), "an unaligned word");
    }

    #[test]
    fn growing_keeps_addresses_and_bytes() {
        let image = image();
        image.store(LEN - 3, b"abc").expect("in bounds");
        let before = image.base();
        image.extend_anonymous(2 * LEN).expect("within the reservation");
        assert_eq!(image.base(), before);
        assert_eq!(image.bytes(Extent::new(LEN - 3, 4)).expect("in bounds"), b"abc\0");
        assert!(image.extend_anonymous(64 * LEN).is_err(), "past the reservation");
    }
}
