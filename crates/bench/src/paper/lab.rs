//! The programs, cores and folders that the measurements of one run use.

use super::args::PaperArgs;
use super::script::SCRIPT;
use super::wire;
use super::wire::Wire;
use crate::common::clients::find_program;
use crate::common::error::BenchError;
use crate::common::progress::say;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The programs, cores and folders that every measurement uses.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) args: PaperArgs,
    /// This executable.
    pub(crate) landfall: PathBuf,
    pub(crate) redis: Option<PathBuf>,
    pub(crate) redis_benchmark: Option<PathBuf>,
    pub(crate) wrk: Option<PathBuf>,
    pub(crate) valgrind: Option<PathBuf>,
    /// The program that pins others to a core. `None` if there is only one core or no such program.
    taskset: Option<PathBuf>,
    /// The servers' own descriptions, by name.
    pub(crate) abouts: RefCell<BTreeMap<String, String>>,
    /// The congestion control of the kernel's TCP.
    pub(crate) congestion_control: String,
    scratch: TempDir,
}

impl Lab {
    pub(crate) fn set_up(args: PaperArgs) -> Result<Self, BenchError> {
        // Nothing can be measured without hosts, so that this error comes before anything else.
        let congestion_control = Wire::new(1500, wire::Quality::Plain)?.congestion_control();
        if congestion_control != wire::CONGESTION_CONTROL {
            let (used, ours, allow) = (&congestion_control, wire::CONGESTION_CONTROL, wire::ALLOW);
            say(format_args!(
                "the kernel's TCP uses {used}, ours {ours}, which differ most where frames are lost; to compare like with \
                 like: {allow}"
            ));
        }
        let landfall = std::env::current_exe().map_err(BenchError::file(Path::new("this executable")))?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let apart = args.server_core != args.client_core && args.server_core.max(args.client_core) < cores;
        let scratch = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(&args.dir);
        let scratch = scratch.map_err(BenchError::file(&args.dir))?;
        let lab = Self {
            landfall,
            redis: find_program("redis-server"),
            redis_benchmark: find_program("redis-benchmark"),
            wrk: find_program("wrk"),
            valgrind: find_program("valgrind"),
            taskset: find_program("taskset").filter(|_| apart),
            abouts: RefCell::default(),
            congestion_control,
            args,
            scratch,
        };
        std::fs::write(lab.script(), SCRIPT).map_err(BenchError::file(&lab.script()))?;
        Ok(lab)
    }

    /// wrk's script.
    pub(crate) fn script(&self) -> PathBuf {
        self.scratch.path().join("requests.lua")
    }

    /// A separate folder for a short measurement.
    pub(crate) fn folder(&self) -> Result<TempDir, BenchError> {
        let base = self.scratch.path();
        tempfile::tempdir_in(base).map_err(BenchError::file(base))
    }

    /// True if server and client each have a core of their own.
    pub(crate) fn is_pinning(&self) -> bool {
        self.taskset.is_some()
    }

    /// Describes how processes are pinned.
    pub(crate) fn pinning(&self) -> String {
        match &self.taskset {
            Some(_) => {
                format!("server on core {}, client on core {}", self.args.server_core, self.args.client_core)
            }
            None => "nothing is pinned: there is one core, or no taskset (Debian: util-linux)".into(),
        }
    }

    /// A program at the server's end, on the server's core.
    pub(crate) fn server_command(&self, wire: &Wire, program: &Path) -> Command {
        self.pinned(self.args.server_core, program, |first| wire.server.command(first))
    }

    /// A program at the client's end, on the client's core.
    pub(crate) fn client_command(&self, wire: &Wire, program: &Path) -> Command {
        self.pinned(self.args.client_core, program, |first| wire.client.command(first))
    }

    /// A program on the server's core, without a network.
    pub(crate) fn local_command(&self, program: &Path) -> Command {
        self.pinned(self.args.server_core, program, |first| Command::new(first))
    }

    fn pinned(&self, core: usize, program: &Path, make: impl FnOnce(&str) -> Command) -> Command {
        let Some(taskset) = &self.taskset else { return make(&program.to_string_lossy()) };
        let mut command = make(&taskset.to_string_lossy());
        command.arg("-c").arg(core.to_string()).arg(program);
        command
    }
}
