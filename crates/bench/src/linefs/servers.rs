//! `landfall serve`: three servers in a chain, or one alone.

use crate::common::clients::conn::count_replicas;
use crate::common::command::succeed;
use crate::common::error::BenchError;
use crate::common::measure::proc::memory_bytes;
use crate::common::peers::{Peer, Programs, Server, not_ready};
use crate::common::progress::check_stop;
use crate::files::wait_until_mounted;
use landfall_resp::Reply;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The names of the nodes, in the order of the chain.
const NODES: [&str; 3] = ["a", "b", "c"];
/// Where each node listens for the one before it.
const PORT: u16 = 7101;
/// The share of the machine's memory that each server may use for its region: three are beside each other.
const MEMORY_SHARE: u64 = 6;
/// How long a chain may take until all of its servers have everything.
const IN_STEP_MAX: Duration = Duration::from_secs(60);

/// Running servers, the first one first.
#[derive(Debug)]
pub(super) struct Servers {
    servers: Vec<Server>,
    /// Where they mount their files.
    points: Vec<PathBuf>,
}

/// What is the same for all servers of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) programs: &'a Programs,
    /// Where the regions lie.
    pub(super) scratch: &'a Path,
    /// Size of each region, bytes.
    pub(super) bytes: u64,
    /// Where the files are, if the servers have any.
    pub(super) point: Option<&'a Path>,
    /// Further flags of each server of a chain.
    pub(super) flags: &'a [&'a str],
}

impl Servers {
    /// One server without a chain.
    pub(super) fn alone(setting: Setting<'_>) -> Result<Self, BenchError> {
        let mut servers = Self { servers: Vec::new(), points: Vec::new() };
        servers.start(setting, "alone", Vec::new(), setting.point.map(Path::to_owned))?;
        Ok(servers)
    }

    /// Three servers in a chain.
    pub(super) fn in_chain(setting: Setting<'_>) -> Result<Self, BenchError> {
        let view = setting.scratch.join("chain.toml");
        create_chain(&view, &setting.scratch.join(NODES[0]))?;
        let mut servers = Self { servers: Vec::new(), points: Vec::new() };
        for (number, node) in NODES.iter().enumerate() {
            let at = |point: &Path| match number {
                0 => point.to_owned(),
                _ => setting.scratch.join(format!("files-{node}")),
            };
            let mut flags = vec!["--chain".into(), view.clone().into(), "--node".into(), (*node).into()];
            flags.extend(setting.flags.iter().map(Into::into));
            servers.start(setting, node, flags, setting.point.map(at))?;
        }
        let first = servers.first();
        wait_until_in_step(first).map_err(|error| match error {
            // It has ended, and its log says why.
            BenchError::Connection { .. } => not_ready(&first.peer, &first.dir),
            other => other,
        })?;
        if let Some(point) = setting.point {
            wait_until_mounted(point, &first.peer, &first.dir)?;
        }
        Ok(servers)
    }

    /// Starts a server that has its files, if there are any, at `point`.
    fn start(
        &mut self,
        setting: Setting<'_>,
        name: &str,
        mut flags: Vec<OsString>,
        point: Option<PathBuf>,
    ) -> Result<(), BenchError> {
        if let Some(point) = point {
            fs::create_dir_all(&point).map_err(BenchError::file(&point))?;
            flags.extend(["--files".into(), point.clone().into()]);
            self.points.push(point);
        }
        let memory = memory_bytes("MemTotal").unwrap_or(setting.bytes) / MEMORY_SHARE;
        let peer = setting.programs.landfall(false).with_memory(memory).with_flags(flags);
        self.servers.push(peer.start(&setting.scratch.join(name), setting.bytes)?);
        Ok(())
    }

    /// Servers of another kind: one that takes writes, and its replicas.
    pub(super) fn of(first: Server, replicas: Vec<Server>) -> Self {
        let servers = std::iter::once(first).chain(replicas).collect();
        Self { servers, points: Vec::new() }
    }

    /// The server that takes writes.
    pub(super) fn first(&self) -> &Server {
        &self.servers[0]
    }

    /// All of them, the first one first.
    pub(super) fn all(&self) -> &[Server] {
        &self.servers
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Server::pid).collect()
    }
}

/// Writes the view of a chain whose first node has its region in `first`.
fn create_chain(view: &Path, first: &Path) -> Result<(), BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
    let chain = |command: &str| {
        let mut chain = Command::new(&program);
        chain.args(["chain", command]).arg(view);
        chain
    };
    let mut create = chain("create");
    create.args(["--name", "bench"]);
    for (number, node) in NODES.iter().enumerate() {
        create.arg(format!("--member={node}={}", address_of(number)));
    }
    succeed(&mut create, "landfall chain create")?;
    succeed(chain("init").args(["--node", NODES[0], "--dir"]).arg(first), "landfall chain init")?;
    Ok(())
}

/// Where a node listens for the one before it. The kernel chooses ports of clients and servers on other addresses, and
/// another run has another address.
fn address_of(number: usize) -> SocketAddr {
    let run = (std::process::id() % 250) as u8;
    SocketAddr::from(([127, 78, run, number as u8 + 1], PORT))
}

/// Waits until the first server takes writes, and all others have what it has.
fn wait_until_in_step(first: &Server) -> Result<(), BenchError> {
    let mut conn = first.connect()?;
    let (wanted, began) = (NODES.len() - 1, Instant::now());
    // Who has everything is known anew with each write.
    while !(matches!(conn.ask(&[b"SET", b"ready", b"1"])?, Reply::Simple(b"OK"))
        && count_replicas(&mut conn, wanted)? >= wanted)
    {
        check_stop()?;
        if began.elapsed() > IN_STEP_MAX {
            let what = "the start of a chain".into();
            return Err(BenchError::TooLong { what, seconds: IN_STEP_MAX.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    conn.ask(&[b"DEL", b"ready"])?;
    Ok(())
}

impl Drop for Servers {
    fn drop(&mut self) {
        for point in &self.points {
            // The servers end after this; a mount that is still busy is detached.
            let _ = landfall_fuse::unmount(point, landfall_fuse::Unmount::Lazily);
        }
    }
}
