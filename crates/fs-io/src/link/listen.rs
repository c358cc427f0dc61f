//! The socket beside a region, and the threads behind it.

use super::connection::{Connection, wait_for};
use super::roll::Roll;
use super::server::Link;
use super::shared::{Linked, PAUSE};
use super::sys::{Peer, peer};
use crate::counter::{counter, raise};
use crate::leases::Leases as Holders;
use crate::panics::{self, Holder};
use crate::slices;
use crate::sys;
use landfall_fs::{Files, Publisher};
use landfall_fs_link::{Reason, is_same_user};
use parking_lot::Mutex;
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
use std::time::Duration;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Pause after a connection could not be accepted.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
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
        let accepted = accept_with(&self.socket, SocketFlags::CLOEXEC);
        // Without descriptors or memory whoever asks stays in the queue, and the caller is back at once.
        let socket = accepted.inspect_err(|_| std::thread::sleep(REFUSED_PAUSE))?;
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

/// What libraries need of whoever serves mounts.
pub(crate) struct Offered<'o> {
    pub(crate) files: &'o Arc<Files>,
    pub(crate) publisher: &'o Arc<Mutex<Publisher>>,
    pub(crate) holders: &'o Arc<Holders>,
    /// Why the mounts have to do without libraries.
    pub(crate) refused: Option<Reason>,
    /// Mounts that there are from the start.
    pub(crate) mounts: Vec<Linked>,
}

impl Offered<'_> {
    /// What libraries link to, or why they cannot.
    fn link(self, socket: &Path) -> Result<Arc<Link>, Reason> {
        let Self { files, publisher, holders, refused, mounts } = self;
        refused.map_or(Ok(()), Err)?;
        let failed = |error: io::Error| {
            tracing::warn!(%error, "libraries cannot be served: they use the mount");
            Reason::Medium
        };
        let region = files.heap().media().share().ok_or(Reason::Medium)?.map_err(failed)?;
        let roll = Roll::create(socket).map_err(failed)?;
        let (files, publisher, holders) = (Arc::clone(files), Arc::clone(publisher), Arc::clone(holders));
        Ok(Arc::new(Link::new(files, publisher, holders, (region, roll), (socket, mounts))))
    }
}

/// Serves libraries, or says to each why that is not possible, until this is dropped: the mounts have ended then.
pub(crate) struct Libraries {
    link: Option<Arc<Link>>,
    /// Readable when the threads are to end.
    stop: OwnedFd,
    accepting: Option<JoinHandle<()>>,
    adopting: Option<JoinHandle<()>>,
}

impl Libraries {
    /// `None`: libraries cannot connect.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(socket: &Path, offered: Offered<'_>, holder: &Holder) -> io::Result<Option<Self>> {
        let listener = match Listener::bind(socket) {
            Ok(listener) => listener,
            Err(error) => {
                let socket = socket.display();
                tracing::warn!(%error, %socket, "libraries cannot connect: they use the mount");
                return Ok(None);
            }
        };
        let (link, stop) = (offered.link(socket), counter()?);
        let end = stop.try_clone()?;
        let mut libraries = Self { link: link.as_ref().ok().cloned(), stop, accepting: None, adopting: None };
        if let Ok(link) = &link {
            let (link, holder) = (Arc::clone(link), holder.clone());
            let adopt = move || panics::essential(&holder, || link.run());
            libraries.adopting = Some(std::thread::Builder::new().name("adopt".into()).spawn(adopt)?);
        }
        let holder = holder.clone();
        let accept = move || panics::essential(&holder, || accept_all(&listener, &link, &end, &holder));
        libraries.accepting = Some(std::thread::Builder::new().name("link".into()).spawn(accept)?);
        Ok(Some(libraries))
    }

    /// What libraries link to, if they can.
    pub(crate) fn link(&self) -> Option<&Arc<Link>> {
        self.link.as_ref()
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        self.link.iter().for_each(|link| link.stop());
        raise(&self.stop);
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
