//! One load: in this process, or in one that has loaded the library of files.

use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::files::args::{FsArgs, LoadChoice};
use crate::files::loads;
use crate::files::ran::Ran;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Flags of the hidden command.
#[derive(Clone, Debug, Args)]
pub struct FsLoadArgs {
    /// The load
    #[arg(long, value_enum)]
    load: LoadChoice,
    /// Threads
    #[arg(long)]
    threads: u32,
    /// Folder of its files
    #[arg(long)]
    files: PathBuf,
    /// The flags of the campaign, as JSON
    #[arg(long)]
    settings: String,
}

/// What one load has found, and the CPU time that its process has taken for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub(crate) ran: Ran,
    pub(crate) cpu_ns: u64,
}

/// Runs a load in this process.
pub(crate) fn run_here(
    load: LoadChoice,
    threads: u32,
    files: &Path,
    args: &FsArgs,
) -> Result<Loaded, BenchError> {
    let before = CpuTime::of(std::process::id());
    let ran = loads::run(load, threads, files, args)?;
    Ok(Loaded { ran, cpu_ns: CpuTime::of(std::process::id()).since_ns(before) })
}

/// The hidden command: runs a load, and prints what it has found.
pub(crate) fn run_load(args: &FsLoadArgs) -> Result<(), BenchError> {
    let settings: FsArgs =
        serde_json::from_str(&args.settings).map_err(|error| failed("its arguments".into(), &error))?;
    let loaded = run_here(args.load, args.threads, &args.files, &settings)?;
    let text = serde_json::to_vec(&loaded).map_err(|error| failed("its result".into(), &error))?;
    std::io::stdout().write_all(&text).map_err(BenchError::file(Path::new("standard output")))
}

/// Runs a load in a process of its own that has loaded the library: `landfall fs run`.
pub(crate) fn run_by_library(
    load: LoadChoice,
    threads: u32,
    files: &Path,
    args: &FsArgs,
) -> Result<Loaded, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
    let settings = serde_json::to_string(args).map_err(|error| failed("its arguments".into(), &error))?;
    let load = clap::ValueEnum::to_possible_value(&load).expect("every load has a name");
    let mut command = Command::new(&program);
    command.args(["fs", "run", "--"]).arg(&program).args(["bench", "fs-load", "--load", load.get_name()]);
    command.args(["--threads", &threads.to_string(), "--settings", &settings, "--files"]).arg(files);
    let output = command.stderr(Stdio::inherit()).output().map_err(BenchError::file(&program))?;
    serde_json::from_slice(&output.stdout).map_err(|error| failed(output.status.to_string(), &error))
}

/// Whether programs can have the library here.
///
/// # Errors
/// [`BenchError::Missing`]: it is not installed.
pub(crate) fn check_library() -> Result<(), BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
    let mut command = Command::new(&program);
    command.args(["fs", "run", "--", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    if command.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let how = "the library of files is not beside this program (cargo build --release -p landfall-fs-lib)";
    Err(BenchError::Missing(how.into()))
}

fn failed(status: String, error: &serde_json::Error) -> BenchError {
    BenchError::Client { program: "a load's process", status, output: error.to_string() }
}
