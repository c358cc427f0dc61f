//! Creating a region's file so that a crash during creation leaves either no file or the whole file.
//!
//! The file is created and filled under a temporary name, synced, and only then renamed. The lock on the temporary file
//! is the region's lock: it is held continuously from creation on.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions as FileOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::bare::BareRuns;
use super::call::{self, magic};
use super::image::Image;
use super::kind::Found;
use super::lock::LockedFile;
use super::request::MediaRequest;
use crate::error::MediaError;
use crate::extent::Extent;
use crate::units::RUN_SIZE;

/// How often the left-over of a dead creator may be removed before creation fails.
const STALE_REMOVALS_MAX: u32 = 2;

/// Creates `path` with `capacity` allocated zero bytes, locked. `None` when another process has just created it.
pub(super) fn create(
    path: &Path,
    capacity: u64,
    request: MediaRequest,
) -> Result<Option<LockedFile>, MediaError> {
    let temporary = temporary_path(path);
    let file = create_temporary(path, &temporary)?;
    let filled = fill(path, &file, capacity, request);
    match filled.and_then(|()| publish(path, &temporary)) {
        Ok(true) => Ok(Some(file)),
        Ok(false) => {
            remove(&temporary);
            Ok(None)
        }
        Err(e) => {
            remove(&temporary);
            Err(e)
        }
    }
}

/// `NAME.creating` beside the region: a fixed name, so that a left-over is found and removed.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(|| OsString::from("region"), OsString::from);
    name.push(".creating");
    path.with_file_name(name)
}

fn create_temporary(path: &Path, temporary: &Path) -> Result<LockedFile, MediaError> {
    for _ in 0..=STALE_REMOVALS_MAX {
        let made = FileOptions::new().read(true).write(true).create_new(true).mode(0o600).open(temporary);
        match made {
            Ok(file) => return own_temporary(path, file),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => remove_stale(path, temporary)?,
            Err(source) => {
                return Err(MediaError::Io { path: path.into(), action: "create the region's file", source });
            }
        }
    }
    Err(MediaError::Locked { path: path.into() })
}

/// Locks the new file, and verifies that no other process removed it as a left-over before this lock was taken.
fn own_temporary(path: &Path, file: File) -> Result<LockedFile, MediaError> {
    let file = LockedFile::take(path, file, false)?;
    match file.metadata() {
        Ok(meta) if meta.nlink() > 0 => Ok(file),
        _ => Err(MediaError::Locked { path: path.into() }),
    }
}

/// Removes the file of a creator that ended before it had finished; its lock ended with it. The file of a running
/// creator is kept.
fn remove_stale(path: &Path, temporary: &Path) -> Result<(), MediaError> {
    let Ok(stale) = File::open(temporary) else { return Ok(()) };
    let stale = LockedFile::take(path, stale, false)?;
    // The file is removed only if the name still refers to the file that was locked: a finished creator has renamed its
    // own.
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    match (stale.metadata(), fs::metadata(temporary)) {
        (Ok(locked), Ok(named)) if same(&locked, &named) => remove(temporary),
        _ => {}
    }
    Ok(())
}

/// Ignores errors: the next creation finds a left-over that could not be removed, and reports it.
fn remove(temporary: &Path) {
    let _ = fs::remove_file(temporary);
}

fn fill(path: &Path, file: &File, capacity: u64, request: MediaRequest) -> Result<(), MediaError> {
    let found = Found::detect(path, file)?;
    found.require(request, path)?;
    extend(file, found, 0, capacity)
        .map_err(|source| space_error(path, capacity, "allocate the region", source))?;
    file.sync_all().map_err(|source| space_error(path, capacity, "sync the new region", source))
}

/// Gives the file its name, durably. False when another process has taken the name meanwhile.
fn publish(path: &Path, temporary: &Path) -> Result<bool, MediaError> {
    let io = |action| move |source| MediaError::Io { path: path.into(), action, source };
    match call::rename_new(temporary, path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(e) => return Err(io("name the new region's file")(e)),
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(io("sync the region's directory"))?;
    Ok(true)
}

/// Extends the file by `from..to`, for which there must be space. The space is allocated at once, except on tmpfs,
/// where space is memory: there each run allocates its own when it is used.
pub(super) fn extend(file: &File, found: Found, from: u64, to: u64) -> io::Result<()> {
    if found.fs_type != magic::TMPFS {
        return allocate(file, from, to);
    }
    BareRuns::check_space(file, to)?;
    file.set_len(to)
}

/// Allocates `from..to` so that a full disk is detected now. Writes zeroes where `fallocate` is not supported.
pub(super) fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    match call::allocate(file, from, to - from) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            write_zeroes(file, from, to)
        }
        other => other,
    }
}

fn write_zeroes(file: &File, from: u64, to: u64) -> io::Result<()> {
    // Direct I/O, which a file that grows may have, wants memory in whole blocks.
    let zeroes = Image::anonymous(RUN_SIZE, RUN_SIZE)?;
    let zeroes = zeroes.bytes(Extent::new(0, RUN_SIZE as u32)).map_err(io::Error::other)?;
    let mut at = from;
    while at < to {
        let len = (to - at).min(RUN_SIZE);
        file.write_all_at(&zeroes[..len as usize], at)?;
        at += len;
    }
    Ok(())
}

/// Returns [`MediaError::Full`] for a full medium, and [`MediaError::Io`] for every other failure.
pub(super) fn space_error(path: &Path, wanted: u64, action: &'static str, source: io::Error) -> MediaError {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => MediaError::Full { path: path.into(), wanted },
        _ => MediaError::Io { path: path.into(), action, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_left_over_file_of_a_dead_creator_is_replaced() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("region");
        fs::write(temporary_path(&path), b"half a region").expect("a file");
        let file = create(&path, RUN_SIZE, MediaRequest::Auto).expect("created").expect("by us");
        assert_eq!(file.metadata().expect("its size").len(), RUN_SIZE);
        assert!(!temporary_path(&path).exists());
    }

    #[test]
    fn the_file_of_a_running_creator_is_kept() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("region");
        let living = create_temporary(&path, &temporary_path(&path)).expect("the first creator");
        let second = create(&path, RUN_SIZE, MediaRequest::Auto);
        assert!(matches!(second, Err(MediaError::Locked { .. })));
        assert!(living.metadata().expect("still there").nlink() == 1);
    }

    #[test]
    fn a_name_taken_meanwhile_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("region");
        fs::write(&path, b"precious").expect("a file");
        assert!(create(&path, RUN_SIZE, MediaRequest::Auto).expect("no error").is_none());
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
    }

    #[test]
    fn zeroes_are_written_where_blocks_cannot_be_allocated() {
        let file = tempfile::tempfile().expect("a temporary file");
        write_zeroes(&file, 0, RUN_SIZE + 4096).expect("space for it");
        let meta = file.metadata().expect("its size");
        assert_eq!(meta.len(), RUN_SIZE + 4096);
        assert!(meta.blocks() * 512 >= meta.len(), "blocks are really allocated");
    }

    #[test]
    fn a_full_medium_is_told_apart_from_other_failures() {
        let error =
            |code| space_error(Path::new("region"), RUN_SIZE, "allocate", io::Error::from_raw_os_error(code));
        for code in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            assert!(matches!(error(code), MediaError::Full { wanted: RUN_SIZE, .. }));
        }
        assert!(matches!(error(libc::EIO), MediaError::Io { action: "allocate", .. }));
    }
}
