//! The programs, cores and folders that the measurements of one run use.

use super::app::App;
use super::args::PmnetArgs;
use super::awake::Awake;
use super::course::{Beside, Course, Place};
use super::design::{Design, Spec, Waits};
use crate::common::clients::find_program;
use crate::common::error::BenchError;
use landfall_testbed::Host;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs, cores and folders that every measurement uses.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) args: PmnetArgs,
    /// This executable.
    pub(crate) landfall: PathBuf,
    pub(crate) redis: Option<PathBuf>,
    /// The program that pins others to a core. `None` if there is only one core or no such program.
    taskset: Option<PathBuf>,
    /// The program that puts others into a class of the scheduler.
    chrt: Option<PathBuf>,
    /// Whether this build's devices have a read cache.
    has_cache: bool,
}

impl Lab {
    pub(crate) fn set_up(args: PmnetArgs) -> Result<Self, BenchError> {
        // Nothing can be measured without hosts, so that this error comes before anything else.
        Course::new(Place::Between(1), Beside::Nobody)?;
        let landfall = std::env::current_exe().map_err(BenchError::file(Path::new("this executable")))?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let apart = args.server_core != args.client_core && args.server_core.max(args.client_core) < cores;
        let has_cache = switch_knows(&landfall, "--cache");
        Ok(Self {
            landfall,
            redis: find_program("redis-server"),
            taskset: find_program("taskset").filter(|_| apart),
            chrt: find_program("chrt"),
            has_cache,
            args,
        })
    }

    /// True if clients have a core of their own.
    pub(crate) fn is_pinning(&self) -> bool {
        self.taskset.is_some()
    }

    /// Describes how processes are pinned.
    pub(crate) fn pinning(&self) -> String {
        match &self.taskset {
            Some(_) => format!(
                "devices, servers and loggers on core {}, clients on core {}",
                self.args.server_core, self.args.client_core
            ),
            None => "nothing is pinned: there is one core, or no taskset (Debian: util-linux)".into(),
        }
    }

    /// Returns why a contestant cannot run here. `None` if it can.
    pub(crate) fn missing(&self, spec: &Spec) -> Option<&'static str> {
        let cache = matches!(spec.design, Design::Pmnet { cache: true, .. });
        if spec.app.is_on_redis() && self.redis.is_none() {
            return Some("redis-server is not installed (Debian: apt-get install redis-server)");
        }
        (cache && !self.has_cache).then_some("this build's devices have no read cache")
    }

    pub(crate) fn can_run(&self, spec: &Spec) -> bool {
        self.missing(spec).is_none()
    }

    pub(crate) fn no_redis() -> BenchError {
        BenchError::Missing("redis-server is not installed (Debian: apt-get install redis-server)".into())
    }

    /// Flags of a device that caches what this application's clients read, responses of the server included, as the
    /// paper's do: no workload here has keys that expire.
    pub(crate) fn cache_flag(&self, app: App) -> Option<[&'static str; 2]> {
        let kind = if app.speaks_resp() { "resp-keep" } else { "plain" };
        self.has_cache.then_some(["--cache", kind])
    }

    /// Keeps the cores awake on which a process waits in the kernel, unless `--let-sleep` is given.
    pub(crate) fn keep_awake(&self, waits: Waits) -> Awake {
        let cores = [self.args.client_core, self.args.server_core];
        let waiting = match waits {
            Waits::Block => &cores[..],
            Waits::Polls => &cores[..1],
            Waits::Spin => &[],
        };
        let cores = if self.is_pinning() && !self.args.let_sleep { waiting } else { &[] };
        Awake::start(cores, waits == Waits::Polls)
    }

    /// Returns the command of a program on a host and a core.
    pub(crate) fn command_on(&self, host: &Host, core: usize, program: &Path) -> Command {
        let Some(taskset) = &self.taskset else { return host.command(&program.to_string_lossy()) };
        let mut command = host.command(&taskset.to_string_lossy());
        command.arg("-c").arg(core.to_string()).arg(program);
        command
    }

    /// Returns the command of a program that shares the client's core and does not preempt the client when it wakes up.
    pub(crate) fn command_behind(&self, host: &Host, program: &Path) -> Command {
        let Some(chrt) = &self.chrt else { return self.command_on(host, self.args.client_core, program) };
        let mut command = self.command_on(host, self.args.client_core, chrt);
        command.args(["--batch", "0"]).arg(program);
        command
    }
}

/// Returns whether `landfall pmnet switch` has a flag.
fn switch_knows(landfall: &Path, flag: &str) -> bool {
    let mut command = Command::new(landfall);
    command.args(["pmnet", "switch", "--help"]).stdin(Stdio::null()).stderr(Stdio::null());
    let said = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).split_whitespace().any(|word| word == flag)
}
