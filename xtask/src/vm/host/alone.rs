//! The server of a host that shares its region: the region is the host's NVDIMM.

use super::memory::Memory;
use crate::error::Error;
use crate::process::{self, Keep};
use crate::service::Service;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The size of the region, which is in memory.
const MIB: u64 = 512;
/// Time limit of a check.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A server, outside of the machine.
pub(super) struct Alone {
    binary: PathBuf,
    log: PathBuf,
    /// Where its region is.
    memory: Memory,
    /// Where it listens for mounts, once it was started.
    door: Option<SocketAddr>,
    running: Option<Service>,
}

impl Alone {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Found`] where it does not start, [`Error::Environment`] where there is no memory for its region.
    pub(super) fn start(binary: &Path, folder: &Path, memory: Memory) -> Result<Self, Error> {
        let (binary, log) = (binary.to_owned(), folder.join("server.log"));
        let mut alone = Self { binary, log, memory, door: None, running: None };
        alone.serve()?;
        Ok(alone)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut serve = Command::new(&self.binary);
        // The next server listens where the first one did.
        let listen = self.door.map_or_else(|| "127.0.0.1:0".to_owned(), |door| door.to_string());
        serve.args(["fs", "serve", "--nvdimm", "--size", &format!("{MIB}MiB"), "--listen", &listen]);
        serve.args(["--metrics", "127.0.0.1:0", "--dir"]).arg(self.memory.folder());
        let server = Service::start(&mut serve, &self.log, "metrics: ")?;
        self.door = server.said("for mounts elsewhere: ").and_then(|address| address.parse().ok());
        self.running = Some(server);
        Ok(())
    }

    /// Where it listens for mounts.
    pub(super) fn door(&self) -> Result<SocketAddr, Error> {
        let unsaid = || Error::Found("the server does not say where it listens for mounts".to_owned());
        self.door.ok_or_else(unsaid)
    }

    /// The region, and its size in MiB: what the machine gets as its NVDIMM.
    pub(super) fn region(&self) -> (PathBuf, u64) {
        (self.memory.folder().join("region.lf"), MIB)
    }

    /// Kills it, and starts the next one.
    ///
    /// # Errors
    /// [`Error::Found`] where it was dead already, or where the next one does not start.
    pub(super) fn restart(&mut self) -> Result<(), Error> {
        self.running.take().map_or(Ok(()), |server| server.kill("server"))?;
        self.serve()
    }

    /// What it has said.
    ///
    /// # Errors
    /// [`Error::Environment`] where its log cannot be read.
    pub(super) fn read_log(&self) -> Result<String, Error> {
        fs::read_to_string(&self.log).map_err(|source| Error::file("read", &self.log, source))
    }

    /// Ends it, and checks its region.
    ///
    /// # Errors
    /// [`Error::Found`] where it does not end in good order, or where the region is not clean.
    pub(super) fn end(mut self) -> Result<(), Error> {
        self.running.take().map_or(Ok(()), |server| server.stop("server"))?;
        let mut check = Command::new(&self.binary);
        let checked = process::run(check.arg("check").arg(self.memory.folder()), Keep::Both, COMMAND_LIMIT)?;
        if checked.success {
            return Ok(());
        }
        Err(Error::Found(format!("`landfall check`:\n{}", checked.stdout)))
    }
}
