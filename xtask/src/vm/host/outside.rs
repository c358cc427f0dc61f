//! What serves the host's files, outside of the machine.

use super::alone::Alone;
use super::servers::Servers;
use crate::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a server's log says of a mount whose host is silent.
const SILENT_HOST: &str = "the process that holds the mount does not answer";
/// How long it may take to find out that a host is silent, and how often the log is read.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// What serves the host's files.
pub(super) enum Outside {
    /// A chain, which shares no memory with the host.
    Chain(Servers),
    /// A server whose region is the host's NVDIMM.
    Nvdimm(Alone),
}

impl Outside {
    /// Starts it, with its files in `folder`.
    ///
    /// # Errors
    /// As [`Servers::start`] and [`Alone::start`].
    pub(super) fn start(binary: &Path, folder: &Path, has_nvdimm: bool) -> Result<Self, Error> {
        Ok(match has_nvdimm {
            false => Self::Chain(Servers::start(binary, folder)?),
            true => Self::Nvdimm(Alone::start(binary, folder)?),
        })
    }

    /// Where it listens for mounts.
    ///
    /// # Errors
    /// [`Error::Found`] where it does not say.
    pub(super) fn doors(&self) -> Result<Vec<SocketAddr>, Error> {
        match self {
            Self::Chain(servers) => servers.doors(),
            Self::Nvdimm(server) => server.door().map(|door| vec![door]),
        }
    }

    /// What the host gets as its NVDIMM: a file, and its size in MiB.
    pub(super) fn nvdimm(&self) -> Option<(PathBuf, u64)> {
        match self {
            Self::Chain(_) => None,
            Self::Nvdimm(server) => Some(server.region()),
        }
    }

    /// Operations that were adopted from libraries since the server was started, if there can be any; `point` is a mount.
    ///
    /// # Errors
    /// As [`Alone::adopted`].
    pub(super) fn adopted(&self, point: &Path) -> Result<Option<u64>, Error> {
        match self {
            Self::Chain(_) => Ok(None),
            Self::Nvdimm(server) => server.adopted(point).map(Some),
        }
    }

    /// How often it has found that a host does not answer.
    ///
    /// # Errors
    /// [`Error::Environment`] where its log cannot be read.
    pub(super) fn count_silent_hosts(&self) -> Result<usize, Error> {
        let log = match self {
            Self::Chain(servers) => servers.first_log(),
            Self::Nvdimm(server) => server.read_log(),
        };
        Ok(log?.matches(SILENT_HOST).count())
    }

    /// Waits until it has found so so often.
    ///
    /// # Errors
    /// [`Error::Found`] where that takes too long.
    pub(super) fn wait_for_silent_hosts(&self, count: usize) -> Result<(), Error> {
        let until = Instant::now() + NOTICE_LIMIT;
        while self.count_silent_hosts()? < count {
            if Instant::now() > until {
                return Err(Error::Found("the server does not notice that its host is gone".to_owned()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Kills the server that serves mounts. Another one does afterwards: the next one of the chain, or of the region.
    ///
    /// # Errors
    /// As [`Servers::lose_first`] and [`Alone::restart`].
    pub(super) fn lose_first(&mut self) -> Result<(), Error> {
        match self {
            Self::Chain(servers) => servers.lose_first(),
            Self::Nvdimm(server) => server.restart(),
        }
    }

    /// Kills the server of a host that shares memory with it, and starts the next one. False in a chain: the next server there
    /// is for the end.
    ///
    /// # Errors
    /// As [`Alone::restart`].
    pub(super) fn disturb(&mut self) -> Result<bool, Error> {
        match self {
            Self::Chain(_) => Ok(false),
            Self::Nvdimm(server) => server.restart().map(|()| true),
        }
    }

    /// Ends it, and checks what it has.
    ///
    /// # Errors
    /// As [`Servers::end`] and [`Alone::end`].
    pub(super) fn end(self) -> Result<(), Error> {
        match self {
            Self::Chain(servers) => servers.end(),
            Self::Nvdimm(server) => server.end(),
        }
    }

    /// What the servers have said.
    ///
    /// # Errors
    /// [`Error::Environment`] where a log cannot be read.
    pub(super) fn logs(&self) -> Result<String, Error> {
        match self {
            Self::Chain(servers) => servers.logs(),
            Self::Nvdimm(server) => server.read_log(),
        }
    }
}
