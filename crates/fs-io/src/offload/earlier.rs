//! Which mounts a region's server has served last: only these may resume.
//!
//! What a kernel keeps of a mount is out of date once others have changed the region without it. A file among the server's
//! notes names the mounts that are served. A mount that serves itself removes it ([`forget_offloaded`]). Another file names the
//! mounts on other machines, whose holders may have leases.

use crate::leases::LEASES_END;
use crate::lives::MountId;
use crate::locking::book_of;
use crate::notes::{forget, with_ending};
use std::io;
use std::path::{Path, PathBuf};

/// Ending of the file's name.
const ENDING: &str = ".mount";
/// That of the file which names mounts on other machines.
const ELSEWHERE_ENDING: &str = ".elsewhere";

/// The file among these notes.
pub(super) fn file_of(notes: &Path) -> PathBuf {
    with_ending(notes, ENDING)
}

/// The file among these notes that names mounts on other machines.
pub(super) fn elsewhere_of(notes: &Path) -> PathBuf {
    with_ending(notes, ELSEWHERE_ENDING)
}

/// The mounts that were served last, and have not ended.
pub(super) fn known(file: &Path) -> Vec<MountId> {
    std::fs::read(file).map(|bytes| bytes.as_chunks().0.to_vec()).unwrap_or_default()
}

/// These mounts, and no others, are served.
///
/// # Errors
/// The file cannot be written: the mounts could not be told from others.
pub(super) fn note(file: &Path, mounts: &[MountId]) -> io::Result<()> {
    if mounts.is_empty() {
        return forget(file);
    }
    let new = file.with_extension("new");
    std::fs::write(&new, mounts.concat())?;
    std::fs::rename(new, file)
}

/// No mount that these notes name may resume any more, and none has locks or leases: their files are about to be changed by
/// somebody else. Waits until leases are over, if there are any.
///
/// # Errors
/// A file that tells of such mounts is there, and cannot be removed.
pub fn forget_offloaded(notes: &Path) -> io::Result<()> {
    let elsewhere = elsewhere_of(notes);
    if !known(&elsewhere).is_empty() {
        std::thread::sleep(LEASES_END);
    }
    forget(&elsewhere)?;
    forget(&file_of(notes))?;
    forget(&book_of(notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_mounts_are_known_until_they_are_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = file_of(&dir.path().join("offload.sock"));
        assert_eq!(file, dir.path().join("offload.sock.mount"));
        assert!(known(&file).is_empty());
        forget(&file).expect("there is nothing to forget");
        note(&file, &[[7; 16]]).expect("a file");
        note(&file, &[[8; 16], [9; 16]]).expect("a file");
        assert_eq!(known(&file), [[8; 16], [9; 16]]);
        note(&file, &[]).expect("a file");
        assert!(known(&file).is_empty());
        let (notes, begun) = (dir.path().join("offload.sock"), Instant::now());
        note(&elsewhere_of(&notes), &[[7; 16]]).expect("a file");
        forget_offloaded(&notes).expect("removed");
        assert!(begun.elapsed() >= LEASES_END, "their leases are over");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
    }
}
