//! The usual sockets of a region, in its directory.

use std::path::{Path, PathBuf};

/// Name of the socket to which libraries in other programs connect.
const LIBRARIES: &str = "files.sock";
/// Name of the socket to which mounts of other processes connect.
const MOUNTS: &str = "offload.sock";

/// The socket of libraries. A DAX device has no directory for it.
pub(crate) fn of_libraries(dir: &Path) -> Option<PathBuf> {
    let is_directory = dir.metadata().map_or(true, |metadata| metadata.is_dir());
    is_directory.then(|| dir.join(LIBRARIES))
}

/// The socket to which mounts of other processes connect.
pub(crate) fn of_mounts(dir: &Path) -> PathBuf {
    dir.join(MOUNTS)
}
