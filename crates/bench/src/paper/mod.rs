//! `landfall bench paper`: the measurements of "Packets as Persistent In-Memory Data Structures" (HotNets 2021) and of
//! PASTE's write-ahead log, repeated on this machine.
//!
//! Read [`sections`] first: what is compared with what. All servers of a comparison run in turns within each round
//! ([`compare`]), each started afresh at one end of a veth pair ([`wire`]) and pinned to a core of its own, the client
//! at the other end on another; figures are medians over the rounds, ratios are taken round by round.

mod args;
mod bulk;
mod callgrind;
mod compare;
mod contestant;
mod report;
mod sections;
mod stages;
pub(crate) mod sys;
mod trip;
mod walserver;
mod wire;
mod wrk;

pub use args::{PaperArgs, PaperSection, StagesArgs, WalServerArgs};

pub(crate) use stages::run as stages;
pub(crate) use walserver::run as wal_server;

use crate::clients::find_program;
use crate::error::BenchError;
use crate::say;
use report::Results;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;
use wire::Wire;

/// What every measurement works with.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) args: PaperArgs,
    /// This executable.
    pub(crate) landfall: PathBuf,
    pub(crate) redis: Option<PathBuf>,
    pub(crate) redis_benchmark: Option<PathBuf>,
    pub(crate) wrk: Option<PathBuf>,
    pub(crate) valgrind: Option<PathBuf>,
    /// Pins a program to a core; `None` where there is only one, or nothing to pin with.
    taskset: Option<PathBuf>,
    /// What servers said of themselves, by name.
    abouts: RefCell<BTreeMap<String, String>>,
    /// Of the kernel's TCP.
    congestion_control: String,
    scratch: TempDir,
}

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &PaperArgs) -> Result<(), BenchError> {
    let lab = Lab::set_up(args.bounded())?;
    let mut results = Results::new(&lab);
    let begun = Instant::now();
    let outcome = sections::measure(&lab, &mut results);
    results.servers = lab.abouts.take();
    results.took_seconds = begun.elapsed().as_secs_f64();
    if results.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    report::write(&lab.args.out, &results)?;
    say(format_args!("report: {}", lab.args.out.join("paper.md").display()));
    outcome
}

impl Lab {
    fn set_up(args: PaperArgs) -> Result<Self, BenchError> {
        // Without hosts nothing can be measured: that is to be said before anything else is done.
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
        std::fs::write(lab.script(), wrk::SCRIPT).map_err(BenchError::file(&lab.script()))?;
        Ok(lab)
    }

    /// wrk's script.
    pub(crate) fn script(&self) -> PathBuf {
        self.scratch.path().join("requests.lua")
    }

    /// A folder of its own for something short.
    pub(crate) fn folder(&self) -> Result<TempDir, BenchError> {
        let base = self.scratch.path();
        tempfile::tempdir_in(base).map_err(BenchError::file(base))
    }

    /// True if server and client each have a core of their own.
    pub(crate) fn is_pinning(&self) -> bool {
        self.taskset.is_some()
    }

    /// What pins whom, in words.
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
