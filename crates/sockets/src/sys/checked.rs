//! The results of system calls.

use std::io;

/// The result of a system call that returns -1 and sets `errno` on failure.
pub(super) fn checked(result: impl TryInto<usize>) -> io::Result<usize> {
    result.try_into().map_err(|_| io::Error::last_os_error())
}
