//! The program: `landfall serve`, `wal`, `pmnet`, `check`, `stats`, `demo`, and `bench`, which starts `landfall-bench`.

mod bench;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Durable network storage: where a packet lands is where its data lives.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, long_version = landfall::long_version(), about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Own(landfall::Command),
    /// Measure this server beside its peers: starts `landfall-bench`, in the directory of this program.
    #[command(disable_help_flag = true)]
    Bench(bench::BenchArgs),
}

fn main() -> ExitCode {
    if let Some(code) = landfall::run_by_name() {
        return code;
    }
    match Cli::parse().command {
        Command::Own(command) => landfall::run(command),
        Command::Bench(args) => bench::run(&args),
    }
}
