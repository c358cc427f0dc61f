//! Which mount a region's server has served last: only that one may resume.
//!
//! What a kernel keeps of a mount is out of date once another mount has changed the region. A file beside the socket names
//! the mount that was accepted last. A mount that serves itself removes it ([`forget_offloaded`]).

use crate::beside::beside;
use std::io;
use std::path::{Path, PathBuf};

/// Ending of the file's name.
const ENDING: &str = ".mount";

/// The file beside a socket.
pub(super) fn file_of(socket: &Path) -> PathBuf {
    beside(socket, ENDING)
}

/// The mount that was served last, if it has not ended.
pub(super) fn last(file: &Path) -> Option<[u8; 16]> {
    std::fs::read(file).ok()?.try_into().ok()
}

/// A mount is accepted.
///
/// # Errors
/// The file cannot be written: the mount could not be told from others.
pub(super) fn note(file: &Path, mount: [u8; 16]) -> io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, mount)?;
    std::fs::rename(new, file)
}

/// No mount whose server listened at `socket` may resume any more: its region is about to be changed by somebody else.
///
/// # Errors
/// The file that names it is there, and cannot be removed.
pub fn forget_offloaded(socket: &Path) -> io::Result<()> {
    forget(&file_of(socket))
}

/// No mount may resume any more.
///
/// # Errors
/// The file is there, and cannot be removed.
pub(super) fn forget(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_is_known_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_of(&dir.path().join("offload.sock"));
        assert_eq!(file, dir.path().join("offload.sock.mount"));
        assert_eq!(last(&file), None);
        forget(&file).expect("there is nothing to forget");
        note(&file, [7; 16]).expect("a file");
        note(&file, [8; 16]).expect("a file");
        assert_eq!(last(&file), Some([8; 16]));
        forget(&file).expect("a file");
        assert_eq!((last(&file), std::fs::read_dir(dir.path()).expect("a directory").count()), (None, 0));
    }
}
