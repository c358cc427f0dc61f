//! The lock that prevents a second process from opening a region.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use super::call;
use crate::error::MediaError;

/// How long the lock may outlive the process that held it. The kernel closes the files of io_uring requests in flight
/// only after the process has ended, and the process may be restarted at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two attempts.
const RETRY: Duration = Duration::from_millis(5);

/// A region's file, locked with `flock` until it is dropped.
///
/// Dropping it unlocks explicitly. A child that another thread is starting holds a copy of the descriptor until it
/// executes its program; a lock that only closing releases would last until then.
#[derive(Debug)]
pub(super) struct LockedFile(File);

impl LockedFile {
    /// Locks exclusively, or shared among readers. Waits only as long as the lock of an ended process may last.
    ///
    /// # Errors
    /// [`MediaError::Locked`] when another process has the lock.
    pub(super) fn take(path: &Path, file: File, shared: bool) -> Result<Self, MediaError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match call::lock(&file, shared) {
                Ok(()) => return Ok(Self(file)),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => {
                    return Err(MediaError::Io {
                        path: path.into(),
                        action: "lock the region's file",
                        source: e,
                    });
                }
                Err(_) if Instant::now() >= until => return Err(MediaError::Locked { path: path.into() }),
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing unlocks as well, unless a copy of the descriptor is open, so that an error here may be ignored.
        let _ = call::unlock(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_in_a_starting_child_does_not_hold_the_lock() {
        let named = tempfile::NamedTempFile::new().expect("a temporary file");
        let open = || File::open(named.path()).expect("readable");
        let take = |file| LockedFile::take(named.path(), file, false);
        let first = take(open()).expect("free");
        let copy = first.try_clone().expect("a second descriptor");
        assert!(matches!(take(open()), Err(MediaError::Locked { .. })));
        drop(first);
        take(open()).expect("free again, although a copy is open");
        drop(copy);
    }
}
