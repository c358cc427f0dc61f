//! Interfaces of the calling thread's namespace.

use std::ffi::CString;
use std::io;

/// Index of an interface of the calling thread's namespace.
pub(super) fn index_of(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: the name is NUL-terminated and lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
