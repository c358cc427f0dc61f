//! The server of a host that shares its region: the region is the host's NVDIMM.

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
/// Where files in memory are.
const MEMORY: &str = "/dev/shm";
/// The counter of operations that the server has adopted from libraries.
const ADOPTED: &str = "library_operations_total";
/// Time limit of a check, and of asking for counters.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A server, outside of the machine. Its region is removed when this is dropped.
pub(super) struct Alone {
    binary: PathBuf,
    log: PathBuf,
    directory: PathBuf,
    /// Where it listens for mounts, once it was started.
    door: Option<SocketAddr>,
    running: Option<Service>,
}

impl Alone {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Found`] where it does not start, [`Error::Environment`] where there is no memory for its region.
    pub(super) fn start(binary: &Path, folder: &Path) -> Result<Self, Error> {
        let directory = Path::new(MEMORY).join(format!("landfall-vm-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(|source| Error::file("create", &directory, source))?;
        let (binary, log) = (binary.to_owned(), folder.join("server.log"));
        let mut alone = Self { binary, log, directory, door: None, running: None };
        alone.serve()?;
        Ok(alone)
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut serve = Command::new(&self.binary);
        // The next server listens where the first one did.
        let listen = self.door.map_or_else(|| "127.0.0.1:0".to_owned(), |door| door.to_string());
        serve.args(["fs", "serve", "--nvdimm", "--size", &format!("{MIB}MiB"), "--listen", &listen]);
        serve.args(["--metrics", "127.0.0.1:0", "--dir"]).arg(&self.directory);
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
        (self.directory.join("region.lf"), MIB)
    }

    /// Operations that the server has adopted from libraries since it was started.
    ///
    /// # Errors
    /// [`Error::Program`], [`Error::Found`] where it does not say.
    pub(super) fn adopted(&self, point: &Path) -> Result<u64, Error> {
        let mut top = Command::new(&self.binary);
        let shown =
            process::must(top.args(["fs", "top", "--count", "1"]).arg(point), Keep::Both, COMMAND_LIMIT)?;
        let mut lines = shown.stdout.lines().filter_map(|line| line.trim().strip_prefix(ADOPTED));
        let count = lines.next().and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        count.ok_or_else(|| Error::Found(format!("`landfall fs top` shows no {ADOPTED}:\n{}", shown.stdout)))
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
        let checked = process::run(check.arg("check").arg(&self.directory), Keep::Both, COMMAND_LIMIT)?;
        if checked.success {
            return Ok(());
        }
        Err(Error::Found(format!("`landfall check`:\n{}", checked.stdout)))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        drop(self.running.take());
        // Memory that is not given back is found by whoever looks for it.
        let _ = fs::remove_dir_all(&self.directory);
    }
}
