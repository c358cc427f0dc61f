//! The one binary: `landfall serve`, `wal`, `pmnet`, `check`, `stats`, `demo`, `bench`.

mod check;
mod demo;
mod log;
mod pmnet;
mod serve;
mod stats;
mod sys;
mod wal;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Durable network storage: where a packet lands is where its data lives.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a store over RESP (Redis's protocol) and HTTP.
    Serve(Box<serve::ServeArgs>),
    /// Write-ahead logs: serve them, append, read, tail, trim, list.
    Wal(Box<wal::WalArgs>),
    /// The in-network log: devices, and what joins clients and servers to them.
    Pmnet(Box<pmnet::PmnetArgs>),
    /// Verify every record and value of a region that no server has open.
    Check(check::CheckArgs),
    /// Show what a running server counts: the sections of INFO, packets dropped among them.
    Stats(stats::StatsArgs),
    /// Write real data while the server is killed again and again; show that nothing acknowledged is lost.
    Demo(demo::DemoArgs),
    /// Measure this server beside its peers.
    Bench(landfall_bench::BenchArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Wal(args) => wal::run(*args),
        Command::Pmnet(args) => pmnet::run(*args),
        Command::Check(args) => check::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => {
            // Its own servers say here what goes wrong.
            log::to_stderr().with_max_level(tracing::Level::WARN).with_target(false).init();
            landfall_bench::run(&args)
        }
    }
}

/// Prints an error the way every subcommand does.
#[expect(clippy::print_stderr, reason = "a command's own error")]
fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("landfall: {error}");
    ExitCode::FAILURE
}
