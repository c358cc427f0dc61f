//! `landfall serve --files-offload`: mounts of other processes, which a server of a chain serves while it is the first one.

use crate::sockets;
use landfall_chain_io::Node;
use landfall_fs::{Files, FsError, Publisher, Recovered};
use landfall_fs_io::{
    Beside, ClosedSocket, Current, MountState, ServedAt, Server, ServerError, Settings, Sharing, Until,
    forget_offloaded,
};
use landfall_server::config::Config;
use landfall_server::files::{FilesShown, HostSide};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why mounts of other processes are not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum OffloadError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("{}: {source}", socket.display())]
    Socket { socket: PathBuf, source: std::io::Error },
    #[error("the file that names an earlier mount by a server cannot be removed: {0}")]
    Earlier(std::io::Error),
    #[error("files without a name are not found: {0}")]
    Orphans(#[from] FsError),
}

/// No mount by a server may resume: others are about to change the files.
pub(super) fn forget(config: &Config) -> Result<(), OffloadError> {
    sockets::notes_in(&config.dir)
        .map_or(Ok(()), |notes| forget_offloaded(&notes))
        .map_err(OffloadError::Earlier)
}

/// Serves mounts. Those that were served last may go on, unless that was forgotten.
pub(super) fn start(
    (files, publisher): (Arc<Files>, Publisher),
    at: ServedAt<'_>,
    settings: Settings,
    beside: Beside,
) -> Result<Server, OffloadError> {
    let (log_end, orphans) = (files.next_operation(), files.orphans()?);
    let recovered = Recovered { log_end, orphans, ..Recovered::default() };
    Ok(Server::start_beside((files, publisher), &recovered, at, settings, beside)?)
}

/// Shows the mounts of a server.
pub(super) fn shows(socket: PathBuf, current: Current) -> Box<dyn Fn() -> FilesShown + Send + Sync> {
    Box::new(move || {
        let side = |mount: MountState| HostSide {
            is_shared: mount.sharing == Sharing::Shared,
            point: mount.point,
            silent: mount.silent,
        };
        let mounts = current.mounts().into_iter().map(side).collect();
        FilesShown::Offloaded { socket: socket.clone(), mounts, away: current.away() }
    })
}

/// The socket while this server is not the first one of its chain, or not for sure.
pub(super) struct Door<'a> {
    at: ServedAt<'a>,
    closed: Option<ClosedSocket>,
    /// This server was not the first one: others have changed the files.
    pub(super) has_forgotten: bool,
}

impl<'a> Door<'a> {
    pub(super) fn new(at: ServedAt<'a>) -> Self {
        Self { at, closed: None, has_forgotten: false }
    }

    /// Refuses mounts for some time, and says why.
    pub(super) fn refuse(&mut self, node: &Node, limit: Duration) -> Result<(), OffloadError> {
        let view = node.view();
        let (until, why) = match view.members.first() {
            Some(first) if first.name == node.name() => {
                let why =
                    "this server is the first one of its chain, and waits for the others: try again soon";
                (Until::Soon, why.to_owned())
            }
            first => {
                let first = first.map_or("none", |first| &first.name);
                let why = format!(
                    "only the first server of a chain serves mounts, and that is {first}, not {}: mount there, or \
                     make this one the first (`landfall chain`)",
                    node.name()
                );
                (Until::Ever, why)
            }
        };
        if until == Until::Ever && !std::mem::replace(&mut self.has_forgotten, true) {
            forget_offloaded(self.at.notes).map_err(OffloadError::Earlier)?;
        }
        let failed = |source| OffloadError::Socket { socket: self.at.socket.to_owned(), source };
        if self.closed.is_none() {
            self.closed = Some(ClosedSocket::bind(self.at.socket).map_err(failed)?);
        }
        self.closed.iter().try_for_each(|closed| closed.refuse(limit, until, &why)).map_err(failed)
    }
}
