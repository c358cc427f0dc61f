//! `landfall demo`.

use clap::Args;
use std::process::ExitCode;

/// Flags of `landfall demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many times to kill the server
    #[arg(long, default_value_t = 10)]
    cycles: u32,
}

/// Runs the demonstration.
pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    let _ = args.cycles;
    ExitCode::FAILURE
}
