//! The servers of the host's files: a chain of three, outside of the machine. The region of one may be its NVDIMM.

use super::memory::Memory;
use crate::error::Error;
use crate::process::{self, Keep};
use crate::service::Service;
use crate::vm::machine::address_of;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The nodes, in the order of the chain.
const NODES: [&str; 3] = ["a", "b", "c"];
/// The first of the ports on which nodes listen for each other.
const PORT: u16 = 7101;
/// The capacity of each region, MiB.
const MIB: u64 = 512;
/// Time limit of a command about the chain, and of a check.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Three servers in a chain. The first one serves mounts, until it is lost.
pub(super) struct Servers {
    binary: PathBuf,
    folder: PathBuf,
    /// The regions, in memory, where they are NVDIMMs, and whose is the machine's.
    memory: Option<(Memory, usize)>,
    /// Where they listen for mounts, once they were started.
    doors: Vec<SocketAddr>,
    running: Vec<Service>,
}

impl Servers {
    /// Starts all of them, with regions in `folder`, or in memory, as NVDIMMs: the machine has that of the server with this number.
    ///
    /// # Errors
    /// [`Error::Found`] or [`Error::Program`] where a server does not start.
    pub(super) fn start(
        binary: &Path,
        folder: &Path,
        memory: Option<(Memory, usize)>,
    ) -> Result<Self, Error> {
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        let mut servers = Self { binary, folder, memory, doors: Vec::new(), running: Vec::new() };
        let own = address_of(std::process::id());
        let member = |(index, node)| format!("--member={node}={}", SocketAddr::from((own, PORT + index)));
        let members: Vec<String> = (0..).zip(NODES).map(member).collect();
        let mut create = servers.chain("create");
        process::must(create.args(["--name", "files"]).args(members), Keep::Both, COMMAND_LIMIT)?;
        let mut init = servers.chain("init");
        init.args(["--node", NODES[0], "--dir"]).arg(servers.region(NODES[0]));
        process::must(&mut init, Keep::Both, COMMAND_LIMIT)?;
        for node in NODES {
            // The machine's network reaches only this address.
            let server =
                Service::start(&mut servers.serve(node, "127.0.0.1:0"), &servers.log(node), "ready")?;
            let door = server.said("files for mounts elsewhere: ").and_then(|door| door.parse().ok());
            let unsaid = || Error::Found("a server does not say where it listens for mounts".to_owned());
            servers.doors.push(door.ok_or_else(unsaid)?);
            servers.running.push(server);
        }
        Ok(servers)
    }

    /// Where each listens for mounts, the first one first.
    pub(super) fn doors(&self) -> &[SocketAddr] {
        &self.doors
    }

    /// The region that is the machine's NVDIMM, if one is, and its size in MiB.
    pub(super) fn nvdimm(&self) -> Option<(PathBuf, u64)> {
        self.memory.as_ref().map(|(_, of)| (self.region(NODES[*of]).join("region.lf"), MIB))
    }

    /// Kills the first server, and starts it again.
    ///
    /// # Errors
    /// [`Error::Found`] where it was dead already, or does not start.
    pub(super) fn restart_first(&mut self) -> Result<(), Error> {
        self.running.remove(0).kill("first server")?;
        let door = self.doors[0].to_string();
        let server = Service::start(&mut self.serve(NODES[0], &door), &self.log(NODES[0]), "ready")?;
        self.running.insert(0, server);
        Ok(())
    }

    /// What the first server has said.
    ///
    /// # Errors
    /// [`Error::Environment`] where its log cannot be read.
    pub(super) fn first_log(&self) -> Result<String, Error> {
        self.read_log(NODES[0])
    }

    /// Kills the first server, and removes it from the chain: the next one serves mounts.
    ///
    /// # Errors
    /// [`Error::Found`] where it was dead already, [`Error::Program`] where it cannot be removed.
    pub(super) fn lose_first(&mut self) -> Result<(), Error> {
        self.running.remove(0).kill("first server")?;
        process::must(self.chain("remove").arg(NODES[0]), Keep::Both, COMMAND_LIMIT).map(drop)
    }

    /// Ends those that run, the last one first, and checks all regions.
    ///
    /// # Errors
    /// [`Error::Found`] where one does not end in good order, [`Error::Program`] where a region is not clean.
    pub(super) fn end(mut self) -> Result<(), Error> {
        while let Some(server) = self.running.pop() {
            server.stop("server")?;
        }
        for node in NODES {
            let mut check = Command::new(&self.binary);
            let checked = process::run(check.arg("check").arg(self.region(node)), Keep::Both, COMMAND_LIMIT)?;
            if !checked.success {
                return Err(Error::Found(format!("`landfall check` of node {node}:\n{}", checked.stdout)));
            }
        }
        Ok(())
    }

    fn chain(&self, command: &str) -> Command {
        let mut chain = Command::new(&self.binary);
        chain.args(["chain", command]).arg(self.view());
        chain
    }

    fn serve(&self, node: &str, door: &str) -> Command {
        let mut serve = Command::new(&self.binary);
        let capacity = format!("{MIB}MiB");
        serve.args(["serve", "--capacity", &capacity, "--resp", "127.0.0.1:0", "--http", "off", "--dir"]);
        serve.arg(self.region(node)).arg("--chain").arg(self.view()).args(["--node", node]);
        serve.arg("--files-offload").arg(self.folder.join(format!("{node}.sock")));
        serve.args(["--files-listen", door]).args(self.memory.as_ref().map(|_| "--nvdimm"));
        serve
    }

    fn view(&self) -> PathBuf {
        self.folder.join("view.toml")
    }

    fn region(&self, node: &str) -> PathBuf {
        self.memory.as_ref().map_or(&self.folder, |(memory, _)| memory.folder()).join(node)
    }

    fn log(&self, node: &str) -> PathBuf {
        self.folder.join(format!("{node}.log"))
    }

    /// What the servers have complained about.
    ///
    /// # Errors
    /// [`Error::Environment`] where a log cannot be read.
    pub(super) fn logs(&self) -> Result<String, Error> {
        NODES.iter().map(|node| self.read_log(node)).collect()
    }

    fn read_log(&self, node: &str) -> Result<String, Error> {
        let log = self.log(node);
        fs::read_to_string(&log).map_err(|source| Error::file("read", &log, source))
    }
}
