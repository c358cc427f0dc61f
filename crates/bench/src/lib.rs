//! Workloads, peers, side-by-side runs and reports.
//!
//! Read [`BenchArgs`] first: what can be measured. [`run`] starts this very executable and every peer found on the
//! machine, in turns (A B C A B C ...), gives each the same client and the same load on the same file system, and
//! writes medians, spreads and ratios: never a single run. The program is `landfall-bench`, which holds every command of
//! `landfall` too; `landfall bench` starts it.

mod args;
mod campaign;
mod clients;
mod error;
mod measure;
mod paper;
mod peers;
mod pmnet;
mod report;
mod sys;
mod workloads;

pub use args::{BenchArgs, BenchCommand, ClientChoice, KvArgs, MediaChoice, PeerChoice, WorkloadChoice};
pub use paper::{PaperArgs, PaperSection, StagesArgs, WalServerArgs};
pub use pmnet::{AppChoice, PmnetArgs, PmnetSection, PmnetServerArgs, ServeKind};

use error::BenchError;
use std::process::ExitCode;

/// Runs a benchmark; what it found is in the output folder, progress goes to standard error.
pub fn run(args: &BenchArgs) -> ExitCode {
    // Its own servers say here what goes wrong.
    landfall::log::to_stderr().with_max_level(tracing::Level::WARN).with_target(false).init();
    sys::note_stop_signals();
    let outcome = match &args.command {
        BenchCommand::Kv(args) => campaign::run(args),
        BenchCommand::Paper(args) => paper::run(args),
        BenchCommand::Pmnet(args) => pmnet::run(args),
        BenchCommand::PmnetServer(args) => pmnet::serve(args),
        BenchCommand::Stages(args) => paper::stages(args),
        BenchCommand::WalServer(args) => paper::wal_server(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("landfall bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A line of progress.
#[expect(clippy::print_stderr, reason = "progress of a command")]
pub(crate) fn say(line: std::fmt::Arguments<'_>) {
    eprintln!("{line}");
}

/// Stops a loop once the user has pressed Ctrl-C; guards then end servers and remove folders.
pub(crate) fn check_stop() -> Result<(), BenchError> {
    if sys::stop_asked() { Err(BenchError::Interrupted) } else { Ok(()) }
}
