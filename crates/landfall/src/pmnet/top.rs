//! `landfall pmnet top`: shows the counters of a device, and their rates.

use crate::demo::wire::Http;
use crate::top::{self, Counts, Pace};
use clap::Args;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Time limit of a request to the device.
const LIMIT: Duration = Duration::from_secs(5);
/// Prefix of the names of metrics.
const PREFIX: &str = "landfall_pmnet_";

/// Flags of `landfall pmnet top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Address at which a device or a side-car serves its metrics (its `--metrics`)
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9151")]
    metrics: SocketAddr,
    #[command(flatten)]
    pace: Pace,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error("{address} cannot be reached: {source} (is anything of PMNet running with --metrics {address}?)")]
    Unreachable { address: SocketAddr, source: io::Error },
    #[error("{address} answered something that is not counts of PMNet")]
    Strange { address: SocketAddr },
}

/// Prints a table each second.
pub(crate) fn run(args: &TopArgs) -> ExitCode {
    top::show(args.pace, || ask(args.metrics))
}

fn ask(address: SocketAddr) -> Result<Counts, TopError> {
    let unreachable = |source| TopError::Unreachable { address, source };
    let counts = top::parse(&fetch(address).map_err(unreachable)?, PREFIX);
    if counts.is_empty() { Err(TopError::Strange { address }) } else { Ok(counts) }
}

fn fetch(address: SocketAddr) -> io::Result<String> {
    let answer = Http::connect(address, LIMIT)?.call("GET", "/metrics", "", b"")?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}
