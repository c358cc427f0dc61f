//! The one binary: `landfall serve`, `check`, `demo`, `bench`.

mod check;
mod demo;
mod serve;
mod sys;

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
    /// Verify every record and value of a region that no server has open.
    Check(check::CheckArgs),
    /// Write real data while the server is killed again and again; show that nothing acknowledged is lost.
    Demo(demo::DemoArgs),
    /// Measure this server beside its peers.
    Bench(landfall_bench::BenchArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => serve::run(*args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => landfall_bench::run(&args),
    }
}

/// Prints an error the way every subcommand does.
#[expect(clippy::print_stderr, reason = "a command's own error")]
fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("landfall: {error}");
    ExitCode::FAILURE
}
