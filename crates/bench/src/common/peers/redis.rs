//! redis-server.

use super::names;
use super::peer::Peer;
use super::server::{Server, log_file, spawn};
use crate::common::error::BenchError;
use crate::common::measure::proc::bytes_below;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What redis-server writes to its append-only file, and when it syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendOnly {
    /// `appendfsync always`
    Always,
    /// `appendfsync everysec`
    EverySecond,
    /// `appendfsync no`
    No,
    /// No file at all.
    Off,
}

impl AppendOnly {
    fn flags(self) -> [&'static str; 4] {
        let (on, sync) = match self {
            Self::Always => ("yes", "always"),
            Self::EverySecond => ("yes", "everysec"),
            Self::No => ("yes", "no"),
            Self::Off => ("no", "no"),
        };
        ["--appendonly", on, "--appendfsync", sync]
    }
}

/// redis-server, with its settings.
#[derive(Debug)]
pub(crate) struct Redis {
    program: PathBuf,
    mode: AppendOnly,
    rewrite: bool,
    /// The server that it is a replica of.
    primary: Option<SocketAddr>,
}

impl Redis {
    /// `rewrite`: rewrite the append-only file in the background, as is the default. Throughput runs switch it
    /// off, which is to Redis's advantage.
    pub(crate) fn new(program: PathBuf, mode: AppendOnly, rewrite: bool) -> Self {
        Self { program, mode, rewrite, primary: None }
    }

    /// A replica of another one, with the same settings.
    pub(crate) fn following(&self, primary: SocketAddr) -> Self {
        Self { program: self.program.clone(), primary: Some(primary), ..*self }
    }

    fn command(&self, dir: &Path, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--maxclients", "2000"]);
        command.arg("--port").arg(address.port().to_string()).arg("--dir").arg(dir);
        command.args(self.mode.flags());
        if !self.rewrite {
            command.args(["--auto-aof-rewrite-percentage", "0"]);
        }
        // A first replica need not wait for others.
        command.args(["--repl-diskless-sync-delay", "0"]);
        if let Some(primary) = self.primary {
            command.args(["--replicaof", &primary.ip().to_string(), &primary.port().to_string()]);
        }
        command
    }
}

impl Peer for Redis {
    fn name(&self) -> &str {
        match self.mode {
            AppendOnly::Always => names::REDIS_ALWAYS,
            AppendOnly::EverySecond => names::REDIS_EVERYSEC,
            AppendOnly::No => names::REDIS_NO,
            AppendOnly::Off => names::REDIS_NONE,
        }
    }

    fn start(&self, dir: &Path, _capacity: u64) -> Result<Server, BenchError> {
        fs::create_dir_all(dir).map_err(BenchError::file(dir))?;
        let resp = free_address()?;
        let stdout = Stdio::from(log_file(dir)?);
        let began = Instant::now();
        let child = spawn(self.command(dir, resp), dir, stdout)?;
        let about = self.program.display().to_string();
        Ok(Server { child, peer: self.name().into(), dir: dir.into(), resp, http: None, about, began })
    }

    fn media_bytes(&self, server: &Server) -> Result<u64, BenchError> {
        Ok(bytes_below(&server.dir))
    }
}

/// Returns a port that is free now. The kernel assigns ports in turn, so that no other process gets it in the next
/// moment.
fn free_address() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(BenchError::connection("a free port"))?;
    listener.local_addr().map_err(BenchError::connection("a free port"))
}

#[cfg(test)]
mod tests {
    use super::{AppendOnly, Redis};
    use std::path::Path;

    fn flags(mode: AppendOnly, rewrite: bool) -> String {
        let redis = Redis::new("redis-server".into(), mode, rewrite);
        let command = redis.command(Path::new("d"), ([127, 0, 0, 1], 7).into());
        command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_mode_says_when_to_sync() {
        assert!(flags(AppendOnly::Always, true).contains("--appendonly yes --appendfsync always"));
        assert!(flags(AppendOnly::EverySecond, true).contains("--appendfsync everysec"));
        assert!(flags(AppendOnly::Off, true).contains("--appendonly no"));
    }

    #[test]
    fn rewriting_is_switched_off_only_where_asked() {
        assert!(flags(AppendOnly::Always, false).contains("--auto-aof-rewrite-percentage 0"));
        assert!(!flags(AppendOnly::Always, true).contains("rewrite"));
    }
}
