//! What can be refused before a server of mounts has anything.

use super::server::ServerError;
use rustix::net::SocketAddrUnix;
use std::io;
use std::path::Path;

/// Checks that a server of mounts can listen at `socket`, before anything is changed for that. The directory `made` may be
/// missing: it is made before the server listens.
///
/// # Errors
/// [`ServerError::Listen`].
pub fn check_socket(socket: &Path, made: &Path) -> Result<(), ServerError> {
    can_listen(socket, made).map_err(|source| ServerError::Listen { socket: socket.to_owned(), source })
}

fn can_listen(socket: &Path, made: &Path) -> io::Result<()> {
    SocketAddrUnix::new(socket)?;
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let parent = socket.parent().filter(|parent| !parent.as_os_str().is_empty());
    match parent.filter(|parent| absolute(parent) != absolute(made)) {
        Some(parent) if !std::fs::metadata(parent)?.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        _ if socket.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_refused_where_nobody_can_listen() {
        let dir = tempfile::tempdir().unwrap();
        let (file, made) = (dir.path().join("file"), dir.path().join("made"));
        std::fs::write(&file, "").unwrap();
        let at = |socket: &Path| check_socket(socket, &made);
        assert!(
            at(&dir.path().join("socket")).is_ok() && at(&file).is_ok(),
            "what was left there is replaced"
        );
        assert!(at(&made.join("socket")).is_ok(), "its directory is made");
        assert!(at(&dir.path().join("missing/socket")).is_err());
        assert!(at(&file.join("socket")).is_err());
        assert!(at(dir.path()).is_err());
        assert!(at(&dir.path().join("x".repeat(200))).is_err(), "the kernel takes no such long name");
    }
}
