//! System calls that neither the standard library nor `rustix` wraps here.
#![allow(unsafe_code)]

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

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
