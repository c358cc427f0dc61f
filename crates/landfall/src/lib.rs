//! The commands of `landfall`, for the two programs that have them: `landfall` itself, and `landfall-bench`, which adds
//! the measurements.
//!
//! Read [`Command`] first: it lists the commands. [`run`] runs one.

mod chain;
mod chain_etcd;
mod check;
mod client;
mod demo;
mod etcd;
mod fs;
pub mod log;
mod nvdimm;
mod output;
mod password;
mod pmnet;
mod proxy;
mod serve;
mod sockets;
mod stats;
mod sys;
mod top;
mod wal;

use clap::Subcommand;
use std::process::ExitCode;

pub use chain::ChainArgs;
pub use check::CheckArgs;
pub use demo::DemoArgs;
pub use demo::wire::{Http, Response};
pub use fs::FsArgs;
pub use output::fail;
pub use pmnet::PmnetArgs;
pub use proxy::ProxyArgs;
pub use serve::{ServeArgs, run_over as serve_over};
pub use stats::StatsArgs;
pub use wal::WalArgs;

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a store over RESP (Redis's protocol) and HTTP.
    Serve(Box<ServeArgs>),
    /// Write-ahead logs: serve them, append, read, tail, trim, list.
    Wal(Box<WalArgs>),
    /// The in-network log: devices, and the side-cars that connect clients and servers to them.
    Pmnet(Box<PmnetArgs>),
    /// Files: mount a directory whose files are in a region.
    Fs(Box<FsArgs>),
    /// Several servers with the same data: make a chain, add and remove its nodes.
    Chain(Box<ChainArgs>),
    /// Connect clients that do not know Sentinel to the first server of a chain.
    Proxy(Box<ProxyArgs>),
    /// Verify every record and value of a region that no server has open.
    Check(CheckArgs),
    /// Show the counters of a running server: the sections of INFO, with the dropped packets.
    Stats(StatsArgs),
    /// Write data while the server is killed again and again; show that nothing acknowledged is lost.
    Demo(DemoArgs),
}

/// Runs as what the program is called by, where it is not `landfall`: as the helper of `mount(8)`.
pub fn run_by_name() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let is_helper = std::path::Path::new(&name).file_name()? == fs::HELPER_NAME;
    is_helper.then(fs::help_mount)
}

/// Runs a command; errors go to standard error.
pub fn run(command: Command) -> ExitCode {
    match command {
        Command::Serve(args) => serve::run(*args),
        Command::Wal(args) => wal::run(*args),
        Command::Pmnet(args) => pmnet::run(*args),
        Command::Fs(args) => fs::run(*args),
        Command::Chain(args) => chain::run(*args),
        Command::Proxy(args) => proxy::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Demo(args) => demo::run(&args),
    }
}
