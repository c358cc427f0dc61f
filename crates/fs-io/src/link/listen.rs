//! The socket beside a region, and the threads behind it.

use super::connection::{Connection, wait_for};
use super::server::Link;
use super::shared::PAUSE;
use crate::{panics, sys};
use landfall_fs_link::Reason;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt::socket_peercred,
};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Most connections at a time.
const CONNECTIONS_MAX: usize = 128;

/// The socket that libraries connect to. It is removed when this is dropped.
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens. A socket that an earlier mount has left is replaced: who has the region has its socket.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let listener = Self { socket, path: path.to_owned() };
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listen(&listener.socket, BACKLOG)?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Who connects to it is told by the kernel that nobody listens, if it stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The threads that serve libraries.
pub(crate) struct Threads {
    link: Option<Arc<Link>>,
    accepting: Option<JoinHandle<()>>,
    adopting: Option<JoinHandle<()>>,
}

impl Threads {
    /// Serves libraries, or says to each why that is not possible. `stop` is readable when the mount ends.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        listener: Listener,
        link: Result<Arc<Link>, Reason>,
        stop: OwnedFd,
        point: &Path,
    ) -> io::Result<Self> {
        let mut threads = Self { link: link.as_ref().ok().cloned(), accepting: None, adopting: None };
        if let Ok(link) = &link {
            let (link, point) = (Arc::clone(link), point.to_owned());
            let adopt = move || panics::essential(&point, || link.run());
            threads.adopting = Some(std::thread::Builder::new().name("adopt".into()).spawn(adopt)?);
        }
        let point = point.to_owned();
        let accept = move || panics::essential(&point, || accept_all(&listener, &link, &stop, &point));
        threads.accepting = Some(std::thread::Builder::new().name("link".into()).spawn(accept)?);
        Ok(threads)
    }

    /// Ends all clients, and the threads. The mount has ended, and `stop` is readable.
    pub(crate) fn end(&mut self) {
        if let Some(link) = &self.link {
            link.stop();
        }
        for thread in [self.accepting.take(), self.adopting.take()].into_iter().flatten() {
            thread.join().expect("a panic ends the process");
        }
    }
}

fn accept_all(listener: &Listener, link: &Result<Arc<Link>, Reason>, stop: &OwnedFd, point: &Path) {
    let mut connections: Vec<JoinHandle<()>> = Vec::new();
    // After an error nobody is accepted any more.
    while wait_for(listener.socket.as_fd(), stop.as_fd()).unwrap_or(false) {
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX {
            std::thread::sleep(PAUSE);
            continue;
        }
        match accept(listener, link, stop, point) {
            Ok(connection) => connections.extend(connection),
            Err(error) => tracing::warn!(%error, "a library cannot be accepted"),
        }
    }
    for connection in connections {
        connection.join().expect("a panic ends the process");
    }
}

fn accept(
    listener: &Listener,
    link: &Result<Arc<Link>, Reason>,
    stop: &OwnedFd,
    point: &Path,
) -> io::Result<Option<JoinHandle<()>>> {
    let socket = accept_with(&listener.socket, SocketFlags::CLOEXEC)?;
    let peer = socket_peercred(&socket)?;
    // Whoever is connected gets the region.
    if peer.uid.as_raw() != sys::own_user() {
        tracing::warn!(uid = peer.uid.as_raw(), "another user asks for files: refused");
        return Ok(None);
    }
    let process = peer.pid.as_raw_nonzero().get();
    let connection = Connection { link: link.clone(), socket, process, stop: stop.try_clone()? };
    let point = point.to_owned();
    let serve = move || panics::essential(&point, || connection.serve());
    Ok(Some(std::thread::Builder::new().name("library".into()).spawn(serve)?))
}
