//! The socket beside a region, and the threads behind it.

use super::connection::{Connection, wait_for};
use super::server::Link;
use super::shared::PAUSE;
use super::sys::{Peer, peer};
use crate::panics::{self, Holder};
use crate::slices;
use crate::sys;
use landfall_fs_link::{Reason, is_same_user};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Most connections at a time.
const CONNECTIONS_MAX: usize = 128;

/// The socket that libraries connect to. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

/// Who has connected.
pub(crate) struct Accepted {
    pub(crate) socket: OwnedFd,
    pub(crate) user: u32,
    pub(crate) process: i32,
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

    /// Accepts a connection, which waits.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn accept(&self) -> io::Result<Accepted> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        let Peer { user, process } = peer(socket.as_fd())?;
        Ok(Accepted { socket, user, process })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
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
        holder: &Holder,
    ) -> io::Result<Self> {
        let mut threads = Self { link: link.as_ref().ok().cloned(), accepting: None, adopting: None };
        if let Ok(link) = &link {
            let (link, holder) = (Arc::clone(link), holder.clone());
            let adopt = move || panics::essential(&holder, || link.run());
            threads.adopting = Some(std::thread::Builder::new().name("adopt".into()).spawn(adopt)?);
        }
        let holder = holder.clone();
        let accept = move || panics::essential(&holder, || accept_all(&listener, &link, &stop, &holder));
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

fn accept_all(listener: &Listener, link: &Result<Arc<Link>, Reason>, stop: &OwnedFd, holder: &Holder) {
    let mut connections: Vec<JoinHandle<()>> = Vec::new();
    // After an error nobody is accepted any more.
    while wait_for(listener.as_fd(), stop.as_fd()).unwrap_or(false) {
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX {
            std::thread::sleep(PAUSE);
            continue;
        }
        match accept(listener, link, stop, holder) {
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
    holder: &Holder,
) -> io::Result<Option<JoinHandle<()>>> {
    let Accepted { socket, user, process } = listener.accept()?;
    // Whoever is connected gets the region.
    if !is_same_user(user, sys::own_user()) {
        tracing::warn!(uid = user, "another user asks for files: refused");
        return Ok(None);
    }
    let connection = Connection { link: link.clone(), socket, process, stop: stop.try_clone()? };
    let holder = holder.clone();
    let serve = move || {
        slices::answer_soon();
        panics::essential(&holder, || connection.serve());
    };
    Ok(Some(std::thread::Builder::new().name("library".into()).spawn(serve)?))
}
