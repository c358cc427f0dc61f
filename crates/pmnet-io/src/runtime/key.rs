//! Reads the file with the key that clients, devices and server share, and creates the guards of sockets.

use super::entropy::random;
use super::socket::RuntimeError;
use landfall_pmnet::auth::{Guard, Key};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most bytes of a key file that are read. A valid file is shorter.
const FILE_BYTES_MAX: u64 = 1024;
/// Permissions that a key file must not give to group and others.
const OTHERS: u32 = 0o077;

/// Errors of a key file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// Environment: the file cannot be read.
    #[error("the key file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Misuse: users other than the owner have access to the file.
    #[error(
        "the key file {path} can be used by others than its owner (mode {mode:03o}): chmod 600 it, and if others may have read it, make another key"
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// Misuse: the file does not hold a key.
    #[error(
        "the key file {path} must hold 32 hexadecimal digits and nothing else, as `openssl rand -hex 16` prints them"
    )]
    Content {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a key file: it must hold 32 hexadecimal digits, and only its owner may have access to it.
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

/// Creates the guard of a socket.
pub(super) fn guard(key: Option<&Key>) -> Result<Guard, RuntimeError> {
    let sender = random()?;
    Ok(Guard::of(key, || sender))
}

/// Unix time for a guard, nanoseconds. Without a key, the guard does not use the time, and the result is 0.
pub(super) fn unix_ns(guard: &Guard) -> u64 {
    if !guard.is_keyed() {
        return 0;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The MTU minus the bytes of a seal.
pub(super) fn without_seal(mtu: u16, guard: &Guard) -> u16 {
    mtu.saturating_sub(u16::try_from(guard.bytes_max()).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_must_be_private_to_its_owner_and_hold_a_key() {
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
