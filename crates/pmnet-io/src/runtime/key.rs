//! The file with the key that clients, devices and server share, and the guard of a socket.

use super::{RuntimeError, random};
use landfall_pmnet::auth::{Guard, Key};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a key file that are read: more than it may have.
const FILE_BYTES_MAX: u64 = 1024;
/// What only the owner may do.
const OTHERS: u32 = 0o077;

/// What is wrong with a key file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("the key file {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it.
    #[error(
        "the key file {path} can be used by others than its owner (mode {mode:03o}): chmod 600 it, and if others may have read it, make another key"
    )]
    Open {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It holds something else.
    #[error(
        "the key file {path} is to hold 32 hexadecimal digits and nothing else, as `openssl rand -hex 16` makes them"
    )]
    Content {
        /// Which.
        path: PathBuf,
    },
}

/// Reads a key file: 32 hexadecimal digits, and nobody but its owner has any right to it.
///
/// # Errors
/// [`KeyFileError`].
pub fn read_key(path: &Path) -> Result<Key, KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.into(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        return Err(KeyFileError::Open { path: path.into(), mode });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Key::from_hex(&text).ok_or_else(|| KeyFileError::Content { path: path.into() })
}

/// A guard of its own for a socket.
pub(super) fn guard(key: Option<&Key>) -> Result<Guard, RuntimeError> {
    let sender = random()?;
    Ok(Guard::of(key, || sender))
}

/// Unix time for a guard, nanoseconds; without a key nobody looks at it.
pub(super) fn unix_ns(guard: &Guard) -> u64 {
    if !guard.is_keyed() {
        return 0;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The MTU that is left for packets without their seal.
pub(super) fn without_seal(mtu: u16, guard: &Guard) -> u16 {
    mtu.saturating_sub(u16::try_from(guard.bytes_max()).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_its_owners_alone_and_holds_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(matches!(read_key(&path), Err(KeyFileError::Read { .. })));
        write("000102030405060708090a0b0c0d0e0f\n", 0o600);
        assert!(read_key(&path).is_ok());
        for mode in [0o640, 0o604, 0o622] {
            write("000102030405060708090a0b0c0d0e0f\n", mode);
            assert!(matches!(read_key(&path), Err(KeyFileError::Open { .. })), "{mode:o}");
        }
        for text in ["", "000102030405060708090a0b0c0d0e", "000102030405060708090a0b0c0d0e0f00"] {
            write(text, 0o600);
            assert!(matches!(read_key(&path), Err(KeyFileError::Content { .. })), "{text}");
        }
    }
}
