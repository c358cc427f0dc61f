//! The lock that prevents a second process from opening a region.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::call;
use crate::error::MediaError;

/// How long the lock may outlive the process that held it. The kernel closes the files of io_uring requests in flight
/// only after the process has ended and they are complete, and the process may be restarted at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a process that has the lock may take until it has ended.
const PATIENCE_ALIVE: Duration = Duration::from_secs(2);
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
        let began = Instant::now();
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
                Err(_) if is_refused(&file, began.elapsed()) => {
                    return Err(MediaError::Locked { path: path.into() });
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }
}

/// True if the lock has been waited for long enough.
fn is_refused(file: &File, waited: Duration) -> bool {
    waited >= PATIENCE || (waited >= PATIENCE_ALIVE && is_held_by_a_process(file))
}

/// True if a process that has not ended has a `flock` of the file, by `/proc/locks` (`proc_locks(5)`); also if that cannot be
/// read. One in another PID namespace is not seen.
fn is_held_by_a_process(file: &File) -> bool {
    let Ok((locks, meta)) =
        std::fs::read_to_string("/proc/locks").and_then(|all| Ok((all, file.metadata()?)))
    else {
        return true;
    };
    // The device is the file system's, and not always what `stat` says.
    let inode = format!(":{}", meta.ino());
    let holder = |line: &str| -> Option<String> {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let (pid, place) = (words.next()?, words.next()?);
        place.ends_with(&inode).then(|| pid.to_owned())
    };
    let holders = locks.lines().filter(|line| !line.contains("->"));
    holders.filter_map(holder).any(|pid| is_running(&pid))
}

fn is_running(pid: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X'])),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
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
    use std::process::Command;

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

    /// As after the end of a process whose writes the kernel has yet to complete: it has closed what it had open, and the lock is
    /// still there.
    #[test]
    fn a_lock_whose_process_has_ended_is_waited_for() {
        let named = tempfile::NamedTempFile::new().expect("a temporary file");
        let open = || File::open(named.path()).expect("readable");
        let left = open();
        assert!(!is_held_by_a_process(&left));
        let locked = Command::new("flock")
            .args(["--exclusive", "0"])
            .stdin(left.try_clone().expect("a copy"))
            .status();
        assert!(locked.expect("util-linux is there").success());
        assert!(call::lock(&open(), false).is_err() && !is_held_by_a_process(&left));
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| LockedFile::take(named.path(), open(), false));
            std::thread::sleep(PATIENCE_ALIVE + RETRY * 20);
            assert!(!taken.is_finished(), "nobody has it");
            drop(left);
            let own = taken.join().expect("no panic").expect("free now");
            assert!(is_held_by_a_process(&own));
        });
    }
}
