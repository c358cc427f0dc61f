//! `landfall bench`: starts `landfall-bench`. The measurements are a separate program, so that a server is built
//! without them.

use clap::Args;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The program with the measurements, in the directory of this one.
const PROGRAM: &str = "landfall-bench";

/// Flags of `landfall bench`: those of `landfall-bench bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure, and how: `landfall bench --help` shows it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Environment: the measurements cannot be started.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(
        "{}: there are no measurements beside this program: in the checkout, cargo build --release -p landfall-bench",
        path.display()
    )]
    NotBuilt { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Start { path: PathBuf, source: io::Error },
}

/// Replaces this process by the program with the measurements.
pub(crate) fn run(args: &BenchArgs) -> ExitCode {
    landfall::fail(&start(args))
}

/// Returns only if the program cannot be started.
fn start(args: &BenchArgs) -> BenchError {
    let path = match std::env::current_exe() {
        Ok(own) => own.with_file_name(PROGRAM),
        Err(source) => return BenchError::Start { path: PROGRAM.into(), source },
    };
    let source = Command::new(&path).arg("bench").args(&args.arguments).exec();
    match source.kind() {
        io::ErrorKind::NotFound => BenchError::NotBuilt { path },
        _ => BenchError::Start { path, source },
    }
}
