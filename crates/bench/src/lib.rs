//! Workloads, peers, side-by-side runs and reports.
//!
//! Read [`BenchArgs`] first: it says what can be measured. [`run`] starts this very executable and every peer found on
//! the machine, in turns (A B C A B C ...). Each gets the same client and the same load on the same file system.
//! Reports show medians, spreads and ratios, never a single run. The program is `landfall-bench`, which also has every
//! command of `landfall`; `landfall bench` starts it.

mod args;
mod common;
mod draw;
mod files;
mod keys;
mod linefs;
mod paper;
mod pmnet;
mod stores;

pub use args::{BenchArgs, BenchCommand};
pub use common::clients::ClientChoice;
pub use common::peers::PeerChoice;
pub use draw::DrawArgs;
pub use files::{FsArgs, FsLoadArgs, LoadChoice};
pub use keys::{KvArgs, MediaChoice, WorkloadChoice};
pub use linefs::{LinefsArgs, LinefsLoad};
pub use paper::{PaperArgs, PaperSection, StagesArgs, WalServerArgs};
pub use pmnet::{AppChoice, PmnetArgs, PmnetSection, PmnetServerArgs, ServeKind};
pub use stores::{ServerArgs, StoreChoice};

use common::progress::say;
use common::sys;
use std::process::ExitCode;

/// Runs a benchmark; what it found is in the output folder, progress goes to standard error.
pub fn run(args: BenchArgs) -> ExitCode {
    let command = match args.command {
        BenchCommand::Server(args) => return stores::serve(args),
        command => command,
    };
    // Its own servers say here what goes wrong.
    landfall::log::to_stderr().with_max_level(tracing::Level::WARN).with_target(false).init();
    sys::note_stop_signals();
    let outcome = match &command {
        BenchCommand::Server(_) => Ok(()),
        BenchCommand::Kv(args) => keys::run(args),
        BenchCommand::Paper(args) => paper::run(args),
        BenchCommand::Pmnet(args) => pmnet::run(args),
        BenchCommand::Fs(args) => files::run(args),
        BenchCommand::Linefs(args) => linefs::run(args),
        BenchCommand::FsLoad(args) => files::run_load(args),
        BenchCommand::Draw(args) => draw::run(args),
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
