//! `landfall stats`: shows the counters of a running server.

use crate::demo::{Reply, Resp};
use crate::output::{fail, report_lines};
use clap::Args;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of a request to the server.
const LIMIT: Duration = Duration::from_secs(10);

/// Flags of `landfall stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Sections to show: server, clients, memory, persistence, stats, cpu, keyspace, landfall, network [default: all]
    sections: Vec<String>,
    /// RESP address of the server
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6479")]
    resp: SocketAddr,
    /// File with the server's password, on its first line
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Show only lines whose name contains this, such as dropped_
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Why the counters cannot be shown.
#[derive(Debug, thiserror::Error)]
enum StatsError {
    #[error("{address} cannot be reached: {source} (is a server running there? --resp names another)")]
    Unreachable { address: SocketAddr, source: io::Error },
    #[error("the password cannot be read: {0}")]
    Password(io::Error),
    #[error("the server refused: {0} (--password-file gives it a password)")]
    NoPassword(String),
    #[error("the server refused: {0}")]
    Refused(String),
}

/// Prints the counters of the server.
pub(crate) fn run(args: &StatsArgs) -> ExitCode {
    match ask(args) {
        Ok(text) => {
            let wanted = |line: &&str| args.only.as_ref().is_none_or(|part| line.contains(part.as_str()));
            report_lines(text.lines().map(str::trim_end).filter(wanted), ExitCode::SUCCESS)
        }
        Err(error) => fail(&error),
    }
}

fn ask(args: &StatsArgs) -> Result<String, StatsError> {
    let unreachable = |source| StatsError::Unreachable { address: args.resp, source };
    let mut server = Resp::connect(args.resp, LIMIT).map_err(unreachable)?;
    if let Some(file) = &args.password_file {
        let text = std::fs::read_to_string(file).map_err(StatsError::Password)?;
        let password = text.lines().next().unwrap_or_default();
        answer(server.call(&[b"AUTH", password.as_bytes()]).map_err(unreachable)?)?;
    }
    let sections = args.sections.iter().map(String::as_bytes);
    let command: Vec<&[u8]> = std::iter::once(&b"INFO"[..]).chain(sections).collect();
    answer(server.call(&command).map_err(unreachable)?)
}

fn answer(reply: Reply) -> Result<String, StatsError> {
    match reply {
        Reply::Bulk(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Reply::Error(error) if error.starts_with("NOAUTH") || error.starts_with("WRONGPASS") => {
            Err(StatsError::NoPassword(error))
        }
        Reply::Error(error) => Err(StatsError::Refused(error)),
        _ => Ok(String::new()),
    }
}
