//! System calls that the standard library does not have.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

fn done(result: i64) -> io::Result<u64> {
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path without NUL")
}

fn off(offset: u64) -> i64 {
    i64::try_from(offset).expect("a small offset")
}

pub(crate) fn fallocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<u64> {
    // SAFETY: no pointers.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, off(offset), off(len)) }.into())
}

pub(crate) fn seek(file: &File, offset: u64, whence: i32) -> io::Result<u64> {
    // SAFETY: no pointers.
    done(unsafe { libc::lseek(file.as_raw_fd(), off(offset), whence) })
}

pub(crate) fn copy_range(from: (&File, u64), to: (&File, u64), len: usize) -> io::Result<u64> {
    let (mut off_in, mut off_out) = (off(from.1), off(to.1));
    // SAFETY: both offsets are live locals.
    let copied = unsafe {
        libc::copy_file_range(from.0.as_raw_fd(), &raw mut off_in, to.0.as_raw_fd(), &raw mut off_out, len, 0)
    };
    done(copied as i64)
}

/// Runs `with` on a shared mapping of the first `len` bytes of a file.
pub(crate) fn mapped<T>(file: &File, len: usize, with: impl FnOnce(&mut [u8]) -> T) -> T {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping; the file has as many bytes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: mapped above for `len` bytes, and unmapped below, after the last use.
    let done = with(unsafe { std::slice::from_raw_parts_mut(at.cast(), len) });
    // SAFETY: mapped above.
    assert_eq!(unsafe { libc::munmap(at, len) }, 0);
    done
}

pub(crate) fn rename2(from: &Path, to: &Path, flags: u32) -> io::Result<u64> {
    let (from, to) = (path(from), path(to));
    // SAFETY: both strings end with a NUL and outlive the call.
    done(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) }.into())
}

/// A file without a name in a directory.
pub(crate) fn tmpfile(directory: &Path) -> io::Result<File> {
    let path = path(directory);
    // SAFETY: the string ends with a NUL and outlives the call.
    let fd = done(unsafe { libc::open(path.as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600) }.into())?;
    let fd = i32::try_from(fd).expect("a descriptor");
    // SAFETY: opened above, and owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Gives an open file a name.
pub(crate) fn link_open(file: &File, to: &Path) -> io::Result<u64> {
    let from = path(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
    let to = path(to);
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: both strings end with a NUL and outlive the call.
    done(unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) }.into())
}

pub(crate) fn set_xattr(at: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<u64> {
    let (at, name) = (path(at), path(Path::new(name)));
    // SAFETY: the strings end with a NUL, and everything outlives the call.
    done(
        unsafe { libc::setxattr(at.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) }
            .into(),
    )
}

pub(crate) fn xattr(at: &Path, name: &str, room: usize) -> io::Result<Vec<u8>> {
    let (at, name) = (path(at), path(Path::new(name)));
    let mut value = vec![0; room];
    // SAFETY: the strings end with a NUL, the buffer has `room` bytes, and everything outlives the call.
    let len = unsafe { libc::getxattr(at.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), room) } as i64;
    value.truncate(usize::try_from(done(len)?).expect("small"));
    Ok(value)
}

pub(crate) fn remove_xattr(at: &Path, name: &str) -> io::Result<u64> {
    let (at, name) = (path(at), path(Path::new(name)));
    // SAFETY: both strings end with a NUL and outlive the call.
    done(unsafe { libc::removexattr(at.as_ptr(), name.as_ptr()) }.into())
}

pub(crate) fn xattrs(at: &Path) -> io::Result<Vec<String>> {
    let at = path(at);
    let mut names = vec![0_u8; 4096];
    // SAFETY: the string ends with a NUL, the buffer has as many bytes as the call is told.
    let len = unsafe { libc::listxattr(at.as_ptr(), names.as_mut_ptr().cast(), names.len()) } as i64;
    let len = usize::try_from(done(len)?).expect("small");
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8(name.to_vec()).expect("text")).collect())
}

/// A node of any kind.
pub(crate) fn make_node(at: &Path, mode: u32, device: u64) -> io::Result<u64> {
    let at = path(at);
    // SAFETY: the string ends with a NUL and outlives the call.
    done(unsafe { libc::mknod(at.as_ptr(), mode, device) }.into())
}

/// Bytes of the blocks of a file system, and of those that are free.
pub(crate) fn space(at: &Path) -> (u64, u64) {
    let found = statvfs(at);
    (found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize)
}

/// Inodes of a file system that are in use, and those that are free.
pub(crate) fn inodes(at: &Path) -> (u64, u64) {
    let found = statvfs(at);
    (found.f_files - found.f_ffree, found.f_ffree)
}

fn statvfs(at: &Path) -> libc::statvfs {
    let at = path(at);
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the string ends with a NUL; the structure is a live local.
    assert_eq!(unsafe { libc::statvfs(at.as_ptr(), found.as_mut_ptr()) }, 0);
    // SAFETY: filled by the call, which has succeeded.
    unsafe { found.assume_init() }
}

/// Locks a whole file; an error if somebody else has locked it.
pub(crate) fn flock(file: &File) -> io::Result<u64> {
    // SAFETY: no pointers.
    done(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }.into())
}

/// Closes a file, and says how that went.
pub(crate) fn close(file: File) -> io::Result<u64> {
    // SAFETY: the descriptor is owned, and not used afterwards.
    done(unsafe { libc::close(file.into_raw_fd()) }.into())
}

/// The user is root.
pub(crate) fn is_root() -> bool {
    // SAFETY: no arguments, and no way to fail.
    unsafe { libc::geteuid() == 0 }
}

/// Memory of a file that other processes map, too. It stays mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    base: *mut u8,
    len: usize,
}

impl Shared {
    /// Maps a whole file.
    pub(crate) fn map(file: &File) -> Self {
        let len = usize::try_from(file.metadata().expect("a file").len()).expect("it fits");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(base, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self { base: base.cast(), len }
    }

    /// The memory as words.
    pub(crate) fn words(&self) -> &'static [AtomicU64] {
        // SAFETY: it stays mapped, aligned to a page; other processes change it, which atomics allow.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.len / 8) }
    }

    /// Stores bytes.
    pub(crate) fn store(&self, off: u64, bytes: &[u8]) {
        let off = usize::try_from(off).expect("it fits");
        assert!(off + bytes.len() <= self.len);
        // SAFETY: the range is mapped, and no reference to it exists in this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(off), bytes.len()) };
    }

    /// Copies bytes.
    pub(crate) fn load(&self, off: u64, len: usize) -> Vec<u8> {
        let (off, mut bytes) = (usize::try_from(off).expect("it fits"), vec![0; len]);
        assert!(off + len <= self.len);
        // SAFETY: the range is mapped, and no mutable reference to it exists in this process.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(off), bytes.as_mut_ptr(), len) };
        bytes
    }
}
