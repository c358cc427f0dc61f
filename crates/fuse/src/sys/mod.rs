//! System calls that neither the standard library nor `rustix` wraps here.
#![allow(unsafe_code)]

mod commands;
mod memory;

pub(crate) use commands::{Commands, Completion};

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const DEV_IOC_CLONE: libc::c_ulong = 0x8004_E500;

/// Connects `device`, a newly opened `/dev/fuse`, with the mount of `source`.
///
/// # Errors
/// An error of the kernel: `EINVAL` where `source` is not mounted or `device` already is.
pub(crate) fn clone_device(device: BorrowedFd<'_>, source: BorrowedFd<'_>) -> io::Result<()> {
    let source_fd = source.as_raw_fd().cast_unsigned();
    // SAFETY: the command reads one `u32` behind the pointer, a live local; both descriptors are open.
    done(unsafe { libc::ioctl(device.as_raw_fd(), DEV_IOC_CLONE, &raw const source_fd) })
}

/// `mount(2)`.
///
/// # Errors
/// An error of the kernel, or a NUL in an argument.
pub(crate) fn mount(source: &str, target: &[u8], kind: &str, flags: u64, data: &str) -> io::Result<()> {
    let (source, target, kind, data) =
        (CString::new(source)?, CString::new(target)?, CString::new(kind)?, CString::new(data)?);
    // SAFETY: all pointers refer to strings that end with a NUL and outlive the call, which does not keep them.
    done(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast()) })
}

/// `umount2(2)`.
///
/// # Errors
/// An error of the kernel.
pub(crate) fn umount(target: &CStr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer refers to a string that ends with a NUL and outlives the call.
    done(unsafe { libc::umount2(target.as_ptr(), flags) })
}

/// The effective user and group of the process.
pub(crate) fn user_and_group() -> (u32, u32) {
    // SAFETY: neither call has arguments or can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
