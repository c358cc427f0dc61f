//! Memory that stays until the process ends.

use landfall_fs_link::{CONTROL_BYTES, CONTROL_WORDS};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

/// Makes values stay until the process ends: threads use them whenever they like.
pub(crate) struct Kept;

impl Kept {
    /// Keeps a value.
    #[allow(clippy::new_ret_no_self, reason = "it keeps something else")]
    pub(crate) fn new<T: Sync>(value: T) -> &'static T {
        Box::leak(Box::new(value))
    }
}

/// The control memory of a client. It stays mapped until the process ends.
pub(crate) struct ControlMemory(NonNull<AtomicU64>);

// SAFETY: the memory is accessed as atomics only, and never unmapped.
unsafe impl Sync for ControlMemory {}

impl ControlMemory {
    /// Maps the memory, which begins at this offset of a file. A child of `fork` does not have it.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for memory that has another size, or that may be made shorter.
    pub(crate) fn map(file: &OwnedFd, at: u64) -> Result<Self, Errno> {
        let found = fstat(file)?;
        // A device keeps its size.
        if FileType::from_raw_mode(found.st_mode) != FileType::CharacterDevice {
            let is_sealed = fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
            if !is_sealed || found.st_size.unsigned_abs() != at + CONTROL_BYTES as u64 {
                return Err(Errno::INVAL);
            }
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(null_mut(), CONTROL_BYTES, protection, MapFlags::SHARED, file, at) }?;
        // SAFETY: the mapping that was just made; the advice changes nothing in this process.
        unsafe { madvise(base, CONTROL_BYTES, Advice::LinuxDontFork) }?;
        NonNull::new(base.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    /// Its words.
    pub(crate) fn words(&'static self) -> &'static [AtomicU64] {
        // SAFETY: so many words are mapped, aligned to a page, until the process ends. The server changes them, too, which
        // atomics allow.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), CONTROL_WORDS) }
    }
}
