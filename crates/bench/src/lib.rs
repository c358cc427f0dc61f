//! Workloads, peers, side-by-side runs and reports.

use clap::Args;
use std::process::ExitCode;

/// Flags of `landfall bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {}

/// Runs a benchmark.
pub fn run(args: &BenchArgs) -> ExitCode {
    let BenchArgs {} = args;
    ExitCode::FAILURE
}
