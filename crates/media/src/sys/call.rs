//! The system calls, each as a function that returns `io::Result`.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{c_int, c_uint, off_t};

/// Magic numbers of `statfs(2)`, whose types in libc depend on the host.
pub(super) mod magic {
    /// ext2, ext3 and ext4.
    pub(crate) const EXT4: i64 = 0xEF53;
    /// XFS.
    pub(crate) const XFS: i64 = 0x5846_5342;
    /// btrfs.
    pub(crate) const BTRFS: i64 = 0x9123_683E;
    /// tmpfs and memfd.
    pub(crate) const TMPFS: i64 = 0x0102_1994;
    /// ramfs.
    pub(crate) const RAMFS: i64 = 0x8584_58F6;
    /// hugetlbfs.
    pub(crate) const HUGETLBFS: i64 = 0x9584_58F6;
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn check_off(result: off_t) -> io::Result<u64> {
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A file offset as the kernel takes it.
fn offset(off: u64) -> io::Result<off_t> {
    off_t::try_from(off).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

fn c_path(path: &OsStr) -> io::Result<CString> {
    CString::new(path.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Takes the whole-file lock without blocking: exclusive, or shared among readers.
pub(super) fn lock(file: &File, shared: bool) -> io::Result<()> {
    let operation = if shared { libc::LOCK_SH } else { libc::LOCK_EX } | libc::LOCK_NB;
    // SAFETY: the descriptor is open for as long as `file` is borrowed; flock touches no memory.
    check(unsafe { libc::flock(file.as_raw_fd(), operation) })
}

/// Releases the whole-file lock, for every copy of the descriptor.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    // SAFETY: see `lock`.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) })
}

/// Allocates blocks for `off..off + len`, extending the file where needed.
pub(super) fn allocate(file: &File, off: u64, len: u64) -> io::Result<()> {
    let (off, len) = (offset(off)?, offset(len)?);
    // SAFETY: the descriptor is open; fallocate touches no memory.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, off, len) })
}

/// Deallocates the blocks of `off..off + len`. The file keeps its length, and reads as zeroes there.
pub(super) fn punch(file: &File, off: u64, len: u64) -> io::Result<()> {
    let (off, len) = (offset(off)?, offset(len)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open; fallocate touches no memory.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, off, len) })
}

/// Renames `from` to `to`; fails with `EEXIST` where `to` exists.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (c_from, c_to) = (c_path(from.as_os_str())?, c_path(to.as_os_str())?);
    let cwd = libc::AT_FDCWD;
    // SAFETY: both paths are NUL-terminated and live until the call returns.
    let done =
        check(unsafe { libc::renameat2(cwd, c_from.as_ptr(), cwd, c_to.as_ptr(), libc::RENAME_NOREPLACE) });
    match done {
        // The file system supports no flags. The creation lock on `from` still excludes other creators.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && !to.exists() => std::fs::rename(from, to),
        other => other,
    }
}

/// The file system's type and its preferred (on hugetlbfs: huge page) size in bytes.
pub(super) fn file_system(file: &File) -> io::Result<(i64, u64)> {
    // SAFETY: statfs is plain data for which all zeroes is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `stat` is a writable statfs.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) })?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(crate::units::BLOCK_SIZE);
    // The field is 32 bits wide in the kernel: remove a sign extension.
    Ok((stat.f_type & 0xFFFF_FFFF, block))
}

/// Bytes that a file system of limited size has free for this file; `None` where there is no limit.
pub(super) fn space_left(file: &File) -> io::Result<Option<u64>> {
    // SAFETY: statfs is plain data for which all zeroes is a valid value.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `stat` is a writable statfs.
    check(unsafe { libc::fstatfs(file.as_raw_fd(), &mut stat) })?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(crate::units::BLOCK_SIZE);
    Ok((stat.f_blocks != 0).then(|| stat.f_bavail.saturating_mul(block)))
}

/// First offset at or after `from` that may hold data; `None` when the rest is a hole.
pub(super) fn seek_data(file: &File, from: u64) -> io::Result<Option<u64>> {
    match seek(file, from, libc::SEEK_DATA) {
        Ok(at) => Ok(Some(at)),
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(e) => Err(e),
    }
}

/// First offset at or after `from` that is a hole (the end of the file counts as one).
pub(super) fn seek_hole(file: &File, from: u64) -> io::Result<u64> {
    seek(file, from, libc::SEEK_HOLE)
}

fn seek(file: &File, from: u64, whence: c_int) -> io::Result<u64> {
    let from = offset(from)?;
    // SAFETY: the descriptor is open. Its file position is not used: all I/O names its offset.
    check_off(unsafe { libc::lseek(file.as_raw_fd(), from, whence) })
}

/// The alignment that direct I/O needs, memory and file, in bytes; `None` where the kernel does not report it.
/// `Some((0, 0))` means that the file does not support direct I/O.
pub(super) fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: statx is plain data for which all zeroes is a valid value.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty NUL-terminated string and `stat` a writable statx.
    let result = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_DIOALIGN as c_uint, &mut stat)
    };
    let told = result == 0 && stat.stx_mask & libc::STATX_DIOALIGN != 0;
    told.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

/// Switches `O_DIRECT` on or off for the open file.
pub(super) fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    change_flags(file, |flags| if direct { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT })
}

/// Switches `O_NONBLOCK` off: with it, io_uring may answer `EAGAIN` where it should wait for the disk.
pub(super) fn set_blocking(file: &File) -> io::Result<()> {
    change_flags(file, |flags| flags & !libc::O_NONBLOCK)
}

fn change_flags(file: &File, change: impl Fn(c_int) -> c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open; F_GETFL touches no memory.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open; F_SETFL takes an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, change(flags)) })
}

/// Drops clean cached pages of a range, so that the next read goes to the device.
pub(super) fn drop_cache(file: &File, off: u64, len: u64) -> io::Result<()> {
    let (off, len) = (offset(off)?, offset(len)?);
    // SAFETY: the descriptor is open; posix_fadvise touches no memory.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), off, len, libc::POSIX_FADV_DONTNEED) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Reads up to `len` bytes at file offset `off`; 0 at the end of the file.
///
/// # Safety
/// `into` must be valid for writes of `len` bytes that no thread reads meanwhile.
pub(super) unsafe fn read_at(file: &File, into: *mut u8, len: usize, off: u64) -> io::Result<usize> {
    let off = offset(off)?;
    // SAFETY: the caller vouches for the memory, `file` for the descriptor.
    check_size(unsafe { libc::pread(file.as_raw_fd(), into.cast(), len, off) })
}

/// Writes up to `len` bytes from `addr` at file offset `off`; with `dsync` they are durable on return.
///
/// # Safety
/// `addr` must be valid for reads of `len` bytes. They may change meanwhile: only the kernel reads them.
pub(super) unsafe fn write_at(
    fd: RawFd,
    addr: usize,
    len: usize,
    off: u64,
    dsync: bool,
) -> io::Result<usize> {
    let off = offset(off)?;
    let part = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len };
    let flags = if dsync { libc::RWF_DSYNC } else { 0 };
    // SAFETY: one iovec, on the stack until the call returns; the caller vouches for its memory.
    check_size(unsafe { libc::pwritev2(fd, &part, 1, off, flags) })
}

/// `fdatasync`: called once for a batch and never again after a failure.
pub(super) fn sync_data(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller's descriptor is open; fdatasync touches no memory.
    check(unsafe { libc::fdatasync(fd) })
}
