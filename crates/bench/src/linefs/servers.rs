//! `landfall serve`: three servers in a chain, or one alone.

use crate::common::clients::conn::count_replicas;
use crate::common::command::succeed;
use crate::common::error::BenchError;
use crate::common::measure::proc::memory_bytes;
use crate::common::peers::{Peer, Programs, Server, not_ready};
use crate::common::progress::check_stop;
use crate::files::wait_until_mounted;
use crate::linefs::etcd::Etcd;
use landfall_resp::Reply;
use landfall_testbed::own_loopback_address;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The names of the nodes, in the order of the chain.
const NODES: [&str; 3] = ["a", "b", "c"];
/// The name of a chain.
const CHAIN_NAME: &str = "bench";
/// T of a chain in etcd, seconds: the shortest. A server that is silent for so long is taken out.
pub(super) const LEASE_SECONDS: u64 = 4;
/// Where the first node listens; each other one has the port after that of the one before it.
const PORT: u16 = 7101;
/// The first of the ports at which servers serve virtual machines.
const DOOR_PORT: u16 = 7131;
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
    pub(super) files: Served<'a>,
    /// Where the chain's view is, if it is not a file.
    pub(super) etcd: Option<&'a Etcd>,
    /// Further flags of each server.
    pub(super) flags: &'a [&'a str],
}

/// How servers serve files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Served<'a> {
    /// There are none.
    Nothing,
    /// The first server mounts them here.
    Mounted(&'a Path),
    /// To processes that mount, each server at its [`socket_of`].
    Offloaded,
    /// The same, and to those on other machines at this address.
    Elsewhere(SocketAddr),
    /// To processes that mount, and to virtual machines, of which each has a server's region as its NVDIMM: at [`doors`].
    ToMachines,
}

impl Servers {
    /// One server without a chain.
    pub(super) fn alone(setting: Setting<'_>) -> Result<Self, BenchError> {
        let mut servers = Self { servers: Vec::new(), points: Vec::new() };
        let flags = setting.flags.iter().map(Into::into).collect();
        let server = servers.start(setting, "alone", flags, 0)?;
        servers.servers.push(server);
        Ok(servers)
    }

    /// Three servers in a chain.
    pub(super) fn in_chain(setting: Setting<'_>) -> Result<Self, BenchError> {
        create_chain(setting)?;
        let mut servers = Self { servers: Vec::new(), points: Vec::new() };
        for number in 0..NODES.len() {
            let server = servers.start_node(setting, number)?;
            servers.servers.push(server);
        }
        let first = servers.first();
        wait_until_in_step(first).map_err(|error| match error {
            // It has ended, and its log says why.
            BenchError::Connection { .. } => not_ready(&first.peer, &first.dir),
            other => other,
        })?;
        if let Served::Mounted(point) = setting.files {
            wait_until_mounted(point, &first.peer, &first.dir)?;
        }
        Ok(servers)
    }

    /// Starts a server of a chain.
    fn start_node(&mut self, setting: Setting<'_>, number: usize) -> Result<Server, BenchError> {
        let mut flags: Vec<OsString> = vec!["--chain".into(), view_of(setting)];
        flags.extend(["--node".into(), NODES[number].into()]);
        flags.extend(setting.etcd.iter().flat_map(|etcd| etcd.flags()).map(Into::into));
        flags.extend(setting.flags.iter().map(Into::into));
        self.start(setting, NODES[number], flags, number)
    }

    /// Starts the server of this number, the first one being 0.
    fn start(
        &mut self,
        setting: Setting<'_>,
        name: &str,
        mut flags: Vec<OsString>,
        number: usize,
    ) -> Result<Server, BenchError> {
        match setting.files {
            Served::Nothing => {}
            Served::Mounted(first) => {
                let other = || setting.scratch.join(format!("files-{name}"));
                let point = if number == 0 { first.to_owned() } else { other() };
                fs::create_dir_all(&point).map_err(BenchError::file(&point))?;
                flags.extend(["--files".into(), point.clone().into()]);
                self.points.push(point);
            }
            Served::Offloaded => {
                flags.extend(["--files-offload".into(), socket_of(setting.scratch, number).into()]);
            }
            Served::Elsewhere(address) => {
                flags.extend(["--files-offload".into(), socket_of(setting.scratch, number).into()]);
                flags.extend(["--files-listen".into(), address.to_string().into()]);
            }
            Served::ToMachines => {
                flags.extend(["--files-offload".into(), socket_of(setting.scratch, number).into()]);
                flags.extend([
                    "--files-listen".into(),
                    doors()[number].to_string().into(),
                    "--nvdimm".into(),
                ]);
            }
        }
        let memory = memory_bytes("MemTotal").unwrap_or(setting.bytes) / MEMORY_SHARE;
        let peer = setting.programs.landfall(false).with_memory(memory).with_flags(flags);
        peer.start(&setting.scratch.join(name), setting.bytes)
    }

    /// Kills a server of a chain. It stays where it is in the row.
    pub(super) fn kill(&mut self, number: usize) {
        self.servers[number].kill_now();
    }

    /// Starts a server of a chain again that was killed.
    pub(super) fn start_again(&mut self, setting: Setting<'_>, number: usize) -> Result<(), BenchError> {
        self.servers[number] = self.start_node(setting, number)?;
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

/// The path of the view; in etcd, the name of the chain.
fn view_of(setting: Setting<'_>) -> OsString {
    match setting.etcd {
        None => setting.scratch.join("chain.toml").into(),
        Some(_) => CHAIN_NAME.into(),
    }
}

/// Where a server of a chain serves processes that mount.
pub(super) fn socket_of(scratch: &Path, number: usize) -> PathBuf {
    scratch.join(format!("{}.sock", NODES[number]))
}

/// Where the servers of a chain serve virtual machines, which reach this address alone.
pub(super) fn doors() -> [SocketAddr; NODES.len()] {
    std::array::from_fn(|number| SocketAddr::from(([127, 0, 0, 1], DOOR_PORT + number as u16)))
}

/// The region of a server of a chain.
pub(super) fn region_of(scratch: &Path, number: usize) -> PathBuf {
    scratch.join(NODES[number]).join("region.lf")
}

/// Runs `landfall chain`, which is to succeed. Returns what it prints.
fn chain_command(setting: Setting<'_>, command: &str, words: &[OsString]) -> Result<String, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
    let mut chain = Command::new(program);
    chain.args(["chain", command]).arg(view_of(setting)).args(words);
    chain.args(setting.etcd.iter().flat_map(|etcd| etcd.flags()));
    succeed(&mut chain, "landfall chain")
}

/// Writes the view of a chain whose first node has its region in its folder.
fn create_chain(setting: Setting<'_>) -> Result<(), BenchError> {
    let mut words: Vec<OsString> = match setting.etcd {
        None => vec!["--name".into(), CHAIN_NAME.into()],
        Some(_) => vec!["--lease-time".into(), LEASE_SECONDS.to_string().into()],
    };
    let member = |(number, node)| format!("--member={node}={}", address_of(number)).into();
    words.extend(NODES.iter().enumerate().map(member));
    chain_command(setting, "create", &words)?;
    let first = setting.scratch.join(NODES[0]);
    chain_command(setting, "init", &["--node".into(), NODES[0].into(), "--dir".into(), first.into()])?;
    Ok(())
}

/// Waits until etcd knows of all servers of a chain that they have everything: its manager rests on that.
pub(super) fn wait_until_known(setting: Setting<'_>) -> Result<(), BenchError> {
    let began = Instant::now();
    while chain_command(setting, "show", &[])?.matches("registered, in step").count() < NODES.len() {
        check_stop()?;
        if began.elapsed() > IN_STEP_MAX {
            let what = "a chain until etcd knows that all servers are in step".into();
            return Err(BenchError::TooLong { what, seconds: IN_STEP_MAX.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Where a node listens for the one before it.
fn address_of(number: usize) -> SocketAddr {
    SocketAddr::from((own_loopback_address(), PORT + number as u16))
}

/// Waits until the first server takes writes, and all others have what it has.
pub(super) fn wait_until_in_step(first: &Server) -> Result<(), BenchError> {
    let began = Instant::now();
    loop {
        match wait_in_step_by_one_connection(first, began) {
            // A server that has no proof of its place yet says so, and ends the connection.
            Err(BenchError::Connection { .. }) if began.elapsed() < IN_STEP_MAX => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

fn wait_in_step_by_one_connection(first: &Server, began: Instant) -> Result<(), BenchError> {
    let mut conn = first.connect()?;
    let wanted = NODES.len() - 1;
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
