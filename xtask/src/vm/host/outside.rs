//! What serves the host's files, outside of the machine.

use super::alone::Alone;
use super::memory::Memory;
use super::servers::Servers;
use crate::error::Error;
use crate::process::{self, Keep};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What a server's log says of a mount whose host is silent.
const SILENT_HOST: &str = "the process that holds the mount does not answer";
/// How long it may take to find out that a host is silent, and how often the log is read.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// The counter of operations that a server has adopted from libraries.
const ADOPTED: &str = "library_operations_total";
/// Time limit of asking for counters.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// How the host comes to its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// They are those of a chain.
    pub(super) has_chain: bool,
    /// The region of the server, or of one of the chain, is the host's NVDIMM.
    pub(super) has_nvdimm: bool,
    /// That is the second one, which becomes the first one at the end.
    pub(super) is_replicas: bool,
}

/// What serves the host's files.
pub(super) enum Outside {
    Chain(Servers),
    /// A server whose region is the host's NVDIMM.
    Alone(Alone),
}

impl Outside {
    /// Starts it, with its files in `folder`.
    ///
    /// # Errors
    /// As [`Servers::start`] and [`Alone::start`].
    pub(super) fn start(binary: &Path, folder: &Path, division: Division) -> Result<Self, Error> {
        let memory = division.has_nvdimm.then(Memory::new).transpose()?;
        Ok(match memory {
            Some(memory) if !division.has_chain => Self::Alone(Alone::start(binary, folder, memory)?),
            memory => {
                let shares = usize::from(division.is_replicas);
                Self::Chain(Servers::start(binary, folder, memory.map(|memory| (memory, shares)))?)
            }
        })
    }

    /// Where it listens for mounts.
    ///
    /// # Errors
    /// [`Error::Found`] where it does not say.
    pub(super) fn doors(&self) -> Result<Vec<SocketAddr>, Error> {
        match self {
            Self::Chain(servers) => Ok(servers.doors().to_vec()),
            Self::Alone(server) => server.door().map(|door| vec![door]),
        }
    }

    /// What the host gets as its NVDIMM: a file, and its size in MiB.
    pub(super) fn nvdimm(&self) -> Option<(PathBuf, u64)> {
        match self {
            Self::Chain(servers) => servers.nvdimm(),
            Self::Alone(server) => Some(server.region()),
        }
    }

    /// Operations that the server which serves mounts has adopted from libraries since it was started; `point` is a mount.
    ///
    /// # Errors
    /// [`Error::Program`], [`Error::Found`] where it does not say.
    pub(super) fn adopted(binary: &Path, point: &Path) -> Result<u64, Error> {
        let mut top = Command::new(binary);
        let shown =
            process::must(top.args(["fs", "top", "--count", "1"]).arg(point), Keep::Both, COMMAND_LIMIT)?;
        let mut lines = shown.stdout.lines().filter_map(|line| line.trim().strip_prefix(ADOPTED));
        let count = lines.next().and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let unsaid = || Error::Found(format!("`landfall fs top` shows no {ADOPTED}:\n{}", shown.stdout));
        count.ok_or_else(unsaid)
    }

    /// How often it has found that a host does not answer.
    ///
    /// # Errors
    /// [`Error::Environment`] where its log cannot be read.
    pub(super) fn count_silent_hosts(&self) -> Result<usize, Error> {
        let log = match self {
            Self::Chain(servers) => servers.first_log(),
            Self::Alone(server) => server.read_log(),
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
            Self::Alone(server) => server.restart(),
        }
    }

    /// Kills the server that serves mounts, and starts it again.
    ///
    /// # Errors
    /// As [`Servers::restart_first`] and [`Alone::restart`].
    pub(super) fn restart(&mut self) -> Result<(), Error> {
        match self {
            Self::Chain(servers) => servers.restart_first(),
            Self::Alone(server) => server.restart(),
        }
    }

    /// Ends it, and checks what it has.
    ///
    /// # Errors
    /// As [`Servers::end`] and [`Alone::end`].
    pub(super) fn end(self) -> Result<(), Error> {
        match self {
            Self::Chain(servers) => servers.end(),
            Self::Alone(server) => server.end(),
        }
    }

    /// What the servers have said.
    ///
    /// # Errors
    /// [`Error::Environment`] where a log cannot be read.
    pub(super) fn logs(&self) -> Result<String, Error> {
        match self {
            Self::Chain(servers) => servers.logs(),
            Self::Alone(server) => server.read_log(),
        }
    }
}
