//! Files that say to the next server what an earlier one has done.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The path of `notes` with `ending` behind its name.
pub(crate) fn with_ending(notes: &Path, ending: &str) -> PathBuf {
    let mut name = notes.file_name().map_or_else(OsString::new, OsString::from);
    name.push(ending);
    notes.with_file_name(name)
}

/// Removes a file, if it is there.
///
/// # Errors
/// It is there, and cannot be removed.
pub(crate) fn forget(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
