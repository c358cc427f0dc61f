//! `landfall-bench`: `landfall` with the measurements in it. The servers that it compares are this very program, so
//! that they differ in nothing but what is compared.

use clap::{Parser, Subcommand};
use landfall_bench::BenchArgs;
use std::process::ExitCode;

/// Measurements of landfall, and the servers that they start.
#[derive(Debug, Parser)]
#[command(name = "landfall-bench", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure this server beside its peers.
    Bench(BenchArgs),
    #[command(flatten)]
    Landfall(landfall::Command),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(args) => landfall_bench::run(args),
        Command::Landfall(command) => landfall::run(command),
    }
}
