//! The usual sockets of a region, and what servers of mounts note, in its directory.

use landfall_fs_io::{EarlierLibraries, end_earlier_libraries};
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

/// Ends the libraries of a server that was killed ([`end_earlier_libraries`]), whose region, in `dir`, this process has locked.
pub(crate) fn end_libraries(dir: &Path, region: &Path) -> EarlierLibraries {
    of_libraries(dir).map_or_else(Default::default, |socket| end_earlier_libraries(&socket, region))
}

/// What servers of mounts note for the next one, by the path to which endings are added. It is in the region's directory, so
/// that whoever changes the files finds it. A DAX device has none.
pub(crate) fn notes_in(dir: &Path) -> Option<PathBuf> {
    dir.is_dir().then(|| of_mounts(dir))
}

/// As [`notes_in`], of a server at `socket`, which notes beside it where there is no directory.
pub(crate) fn notes_of(dir: &Path, socket: &Path) -> PathBuf {
    notes_in(dir).unwrap_or_else(|| socket.to_owned())
}

/// The socket of libraries in a virtual machine, of this process.
pub(crate) fn in_machine() -> PathBuf {
    let directory = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    directory.join(format!("landfall-{}-{LIBRARIES}", std::process::id()))
}

/// The socket to which mounts of other processes connect.
pub(crate) fn of_mounts(dir: &Path) -> PathBuf {
    dir.join(MOUNTS)
}
