//! Frames of the region as memory that the kernel writes into, and what the kernel says of this process.
#![allow(unsafe_code)]

mod memory;

pub(crate) use memory::SharedMemory;

use landfall_media::Extent;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The region's image in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    base: usize,
    len: u64,
}

impl Image {
    /// The image at `image`: address, bytes ([`landfall_media::Media::image`]). It outlives the mount.
    pub(crate) fn new(image: (usize, u64)) -> Self {
        Self { base: image.0, len: image.1 }
    }

    /// The bytes of an extent, to receive into, for as long as `lent` is borrowed. The extent belongs to a run that the
    /// heap has lent to the owner of `lent`, and nobody holds any of its bytes.
    ///
    /// # Panics
    /// If the extent is not within the image.
    pub(crate) fn lent<'a, T: ?Sized>(self, extent: Extent, _lent: &'a T) -> IoSliceMut<'a> {
        assert!(extent.end() <= self.len, "{extent:?} is not within the image");
        let off = usize::try_from(extent.off).expect("offsets of a mapped image fit an address");
        let first = std::ptr::with_exposed_provenance_mut::<u8>(self.base + off);
        // SAFETY: the image is mapped, readable and writable, as long as the heap lives, which the caller owns a share of.
        // Bytes of a lent run that nobody holds are used by its borrower only (`Heap::take_landing_run`).
        IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(first, extent.len() as usize) })
    }
}

impl Image {
    /// Has the kernel map all pages of an extent, where it can do that ahead (Linux 5.14).
    ///
    /// # Panics
    /// If the extent is not within the image.
    pub(crate) fn populate(self, extent: Extent) {
        assert!(extent.end() <= self.len, "{extent:?} is not within the image");
        let off = usize::try_from(extent.off).expect("offsets of a mapped image fit an address");
        let first = std::ptr::with_exposed_provenance_mut::<libc::c_void>(self.base + off);
        // SAFETY: the extent is mapped as long as the heap lives. The call changes no byte.
        unsafe { libc::madvise(first, extent.len() as usize, libc::MADV_POPULATE_WRITE) };
    }
}

/// Writes back what the kernel keeps of the file system of an open file (`syncfs`).
///
/// # Errors
/// An error of the kernel.
pub(crate) fn sync_file_system(file: BorrowedFd<'_>) -> std::io::Result<()> {
    // SAFETY: the call takes a descriptor, which is open, and no pointer.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The user of this process.
pub(crate) fn own_user() -> u32 {
    // SAFETY: the call takes nothing, and cannot fail.
    unsafe { libc::geteuid() }
}
