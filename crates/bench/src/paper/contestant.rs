//! The servers that are compared, and how each is started at its end of the wire.

use super::lab::Lab;
use super::wire::Wire;
use crate::common::error::BenchError;
use crate::common::peers::{Server, UNSET, launch, spawn};
use crate::common::report::by_name;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// Ports at the server's end; its hosts have no others.
const RESP_PORT: u16 = 7001;
const HTTP_PORT: u16 = 7002;

/// The store of plain writes. All stores run in one event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Store {
    /// Nothing is stored.
    Discard,
    /// Copied and flushed.
    Copy,
    /// LevelDB, copied and flushed.
    LevelDb,
    /// Landfall's store.
    Heap,
}

impl Store {
    const ALL: [Self; 4] = [Self::Discard, Self::Copy, Self::LevelDb, Self::Heap];
}

/// How the server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Over {
    /// Kernel TCP, the transport that `--transport auto` picks.
    Sockets,
    /// Kernel TCP, epoll.
    Epoll,
    /// AF_XDP and Landfall's own TCP. The server busy-polls for a while before it waits.
    Xdp,
    /// AF_XDP and Landfall's own TCP. The server only busy-polls.
    XdpSpin,
}

impl Over {
    const ALL: [Self; 4] = [Self::Sockets, Self::Epoll, Self::Xdp, Self::XdpSpin];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Epoll => "sockets (epoll)",
            Self::Xdp => "AF_XDP",
            Self::XdpSpin => "AF_XDP, spinning",
        }
    }

    fn is_xdp(self) -> bool {
        matches!(self, Self::Xdp | Self::XdpSpin)
    }
}

impl Serialize for Over {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Over {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        by_name(from, Self::ALL, |over| over.name(), "the name of a transport")
    }
}

/// A server of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// Ours, or one that differs from it only in its store.
    Landfall { store: Store, over: Over, flush: bool },
    /// redis-server without AOF.
    Redis,
    /// Read, copy to a mapped log, `msync`; or read into the log itself.
    Wal { direct: bool, spin: bool },
}

/// The server with our own store.
pub(crate) const fn landfall(over: Over) -> Who {
    Who::Landfall { store: Store::Heap, over, flush: true }
}

impl Who {
    /// Every server that a comparison may have.
    fn all() -> impl Iterator<Item = Self> {
        let ways = || Over::ALL.into_iter().flat_map(|over| [true, false].map(|flush| (over, flush)));
        let stores = Store::ALL.into_iter();
        let stores = stores
            .flat_map(move |store| ways().map(move |(over, flush)| Self::Landfall { store, over, flush }));
        let wals = [false, true].into_iter();
        let wals = wals.flat_map(|direct| [false, true].map(|spin| Self::Wal { direct, spin }));
        stores.chain(wals).chain([Self::Redis])
    }

    /// The name in reports.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Landfall { store, over, flush } => {
                let store = match store {
                    Store::Discard => "discard",
                    Store::Copy => "copy + flush",
                    Store::LevelDb => "LevelDB",
                    Store::Heap => "landfall",
                };
                let store = if flush { store.to_owned() } else { format!("{store}, flush left out") };
                format!("{store}, {}", over.name())
            }
            Self::Redis => "redis, no AOF".into(),
            Self::Wal { direct, spin } => {
                let kind = if direct { "read + msync" } else { "read + copy + msync" };
                format!("{kind}{}", if spin { ", spinning" } else { "" })
            }
        }
    }

    /// True for a server that counts what it copies: ours. What stands in for its store does not.
    pub(crate) fn counts_copies(self) -> bool {
        matches!(self, Self::Landfall { store: Store::Heap | Store::Discard, .. })
    }

    /// Starts it empty and pinned, and waits until it serves.
    pub(crate) fn start(
        self,
        lab: &Lab,
        wire: &Wire,
        base: &Path,
        capacity: u64,
    ) -> Result<Stand, BenchError> {
        let made = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(base);
        let scratch = made.map_err(BenchError::file(base))?;
        let dir = scratch.path().join("data");
        std::fs::create_dir_all(&dir).map_err(BenchError::file(&dir))?;
        let server = match self {
            Self::Landfall { store, over, flush } => {
                let command = landfall_command(lab, wire, (store, over, flush), &dir, capacity);
                launch(command, &dir, &self.name())?
            }
            Self::Wal { direct, spin } => {
                let mut command = lab.server_command(wire, &lab.landfall);
                command.args(["bench", "wal-server", "--listen"]);
                command.arg(SocketAddr::new(Wire::kernel_address(), HTTP_PORT).to_string());
                command.arg("--log").arg(dir.join("log"));
                command.args(direct.then_some("--direct")).args(spin.then_some("--spin"));
                launch(command, &dir, &self.name())?
            }
            Self::Redis => redis(lab, wire, &dir)?,
        };
        lab.abouts.borrow_mut().entry(self.name()).or_insert_with(|| server.about.clone());
        Ok(Stand { server, _scratch: scratch })
    }
}

impl Serialize for Who {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for Who {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        by_name(from, Self::all(), |who| who.name(), "the name of a server")
    }
}

/// A running server and its folder. The server ends first: fields drop in order.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) server: Server,
    _scratch: TempDir,
}

impl Stand {
    /// Where it serves RESP, if it does.
    pub(crate) fn resp(&self) -> Option<SocketAddr> {
        Some(self.server.resp).filter(|address| *address != UNSET)
    }

    /// Where it serves HTTP.
    pub(crate) fn http(&self) -> Result<SocketAddr, BenchError> {
        self.server.http.ok_or(BenchError::Nothing("this server speaks no HTTP"))
    }
}

fn landfall_command(
    lab: &Lab,
    wire: &Wire,
    (store, over, flush): (Store, Over, bool),
    dir: &Path,
    capacity: u64,
) -> Command {
    let mut command = lab.server_command(wire, &lab.landfall);
    command.args(serve_over(store)).arg("--dir").arg(dir).arg("--capacity").arg(capacity.to_string());
    // The scrub would be the only work that is not the clients'.
    command.args(["--workers", "1", "--insecure-no-password", "--scrub-rate", "0"]);
    let address = if over.is_xdp() { Wire::own_address() } else { Wire::kernel_address() };
    let at = |port| SocketAddr::new(address, port).to_string();
    command.arg("--resp").arg(at(RESP_PORT)).arg("--http").arg(at(HTTP_PORT));
    match over {
        Over::Sockets => {}
        Over::Epoll => drop(command.args(["--transport", "epoll"])),
        Over::Xdp | Over::XdpSpin => {
            command.args(["--xdp", &wire.interface, "--ip", &format!("{address}/24")]);
            command.args((over == Over::XdpSpin).then_some(["--spin", "always"]).into_iter().flatten());
        }
    }
    if !flush {
        command.args(["--flush", "none"]);
    }
    command
}

/// The command that serves over a store.
fn serve_over(store: Store) -> &'static [&'static str] {
    match store {
        Store::Heap => &["serve"],
        Store::Discard => &["bench", "server", "--store", "discard"],
        Store::Copy => &["bench", "server", "--store", "copy"],
        Store::LevelDb => &["bench", "server", "--store", "leveldb"],
    }
}

fn redis(lab: &Lab, wire: &Wire, dir: &Path) -> Result<Server, BenchError> {
    let program = lab.redis.as_ref().ok_or_else(|| missing("redis-server", "redis-server"))?;
    let address: IpAddr = Wire::kernel_address();
    let mut command = lab.server_command(wire, program);
    command.args([
        "--bind",
        &address.to_string(),
        "--protected-mode",
        "no",
        "--port",
        &RESP_PORT.to_string(),
    ]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--maxclients", "2000"]);
    command.arg("--dir").arg(dir);
    let began = Instant::now();
    let child = spawn(command, dir, Stdio::null())?;
    let (resp, about) = (SocketAddr::new(address, RESP_PORT), program.display().to_string());
    let mut server =
        Server { child, peer: Who::Redis.name(), dir: dir.into(), resp, http: None, about, began };
    wire.client.enter(|| server.wait_ready())?;
    Ok(server)
}

/// The error of a program that is not installed.
pub(crate) fn missing(program: &str, package: &str) -> BenchError {
    BenchError::Missing(format!("{program} is not installed (Debian: apt-get install {package})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_has_a_name_of_its_own() {
        let all: Vec<Who> = Who::all().collect();
        assert_eq!(all.len(), 4 * 4 * 2 + 4 + 1);
        let names: std::collections::BTreeSet<String> = all.iter().map(|who| who.name()).collect();
        assert_eq!(names.len(), all.len());
    }
}
