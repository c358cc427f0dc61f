//! Blocking writes to the file behind a region.

use super::checked::checked;
use landfall_media::FileWrite;
use std::io;
use std::os::fd::RawFd;

/// Writes all of `writes` and makes them durable: one write uses `RWF_DSYNC`, several are followed by `fdatasync`.
///
/// # Errors
/// The first error; a short write is one.
pub(crate) fn write_durably(file: RawFd, writes: &[FileWrite]) -> io::Result<()> {
    match writes {
        [] => Ok(()),
        [only] => write_one(file, only, libc::RWF_DSYNC),
        several => {
            several.iter().try_for_each(|write| write_one(file, write, 0))?;
            data_sync(file)
        }
    }
}

fn write_one(file: RawFd, write: &FileWrite, flags: i32) -> io::Result<()> {
    let source = std::ptr::with_exposed_provenance_mut(write.addr);
    let iovec = libc::iovec { iov_base: source, iov_len: write.extent.len() as usize };
    let off = i64::try_from(write.extent.off).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel only reads from the address, and returns EFAULT if it is not mapped.
    let written = retry(|| unsafe { libc::pwritev2(file, &raw const iovec, 1, off, flags) })?;
    whole(written, write)
}

/// An error unless all bytes of `write` were written: it is unknown which part of a short write is durable.
pub(super) fn whole(written: usize, write: &FileWrite) -> io::Result<()> {
    if written == write.extent.len() as usize {
        return Ok(());
    }
    let message = format!("{written} of {} bytes were written at {}", write.extent.len(), write.extent.off);
    Err(io::Error::new(io::ErrorKind::WriteZero, message))
}

pub(super) fn data_sync(file: RawFd) -> io::Result<()> {
    // SAFETY: fdatasync takes no pointers.
    retry(|| unsafe { libc::fdatasync(file) } as isize).map(drop)
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match checked(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
