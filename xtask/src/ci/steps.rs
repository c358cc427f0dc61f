//! The steps of continuous integration, in order.

use super::lanes::side_by_side;
use super::report::Verdict;
use super::suite::{FUZZ_PREFIX, Program, Suite, report};
use super::tally::Tally;
use crate::campaign::{crash, fuzz};
use crate::error::Error;
use crate::process::{self, Finished, Keep};
use crate::workspace::Workspace;
use crate::{peers, sans_io, tidy};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One step: its name, what it checks, its time limit, and its function.
pub(crate) struct Step {
    /// The name for `--only` and `--skip`.
    pub(crate) name: &'static str,
    /// What the step checks.
    pub(crate) about: &'static str,
    /// Time limit, after which the step has failed.
    pub(crate) limit: Duration,
    /// Runs the step. It adds the tests that it runs to the tally.
    pub(crate) run: fn(&mut Context<'_>, &mut Tally) -> Result<Verdict, Error>,
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// All steps, in order of cost.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "peers",
        about: "programs that tests compare against are installed",
        limit: minutes(6),
        run: peers,
    },
    Step { name: "fmt", about: "formatted", limit: minutes(1), run: fmt },
    Step { name: "clippy", about: "no lint, in any target", limit: minutes(12), run: clippy },
    Step { name: "sans-io", about: "cores do no I/O", limit: minutes(1), run: sans_io },
    Step { name: "tidy", about: "house rules", limit: minutes(1), run: tidy },
    Step { name: "test", about: "unit, property, simulator and doc tests", limit: minutes(26), run: test },
    Step { name: "e2e", about: "the binary with real clients", limit: minutes(10), run: e2e },
    Step { name: "crash", about: "short kill -9 campaign", limit: minutes(5), run: crash },
    Step { name: "fuzz", about: "every fuzz target for some seconds", limit: minutes(5), run: fuzz },
    Step { name: "docs", about: "documentation builds, links resolve", limit: DOCS_LIMIT, run: docs },
];

/// Number of kills of the short crash campaign, and its fixed seed.
const CRASH_CYCLES: u64 = 20;
const CRASH_SEED: u64 = 1;
/// Time limit for the documentation, each of its ways.
const DOCS_LIMIT: Duration = minutes(10);
/// Duration of the fuzz smoke test, shared by all targets.
const FUZZ_SMOKE: Duration = Duration::from_secs(100);

/// State that the steps share.
pub(crate) struct Context<'w> {
    workspace: &'w Workspace,
    verbose: bool,
    suite: Option<Suite>,
    /// The documentation, as it is being built beside something else.
    docs: Option<JoinHandle<Result<Vec<Finished>, Error>>>,
    /// Deadline of the current step.
    pub(crate) deadline: Instant,
}

impl<'w> Context<'w> {
    /// A context without built programs, and with a deadline that has passed.
    pub(crate) fn new(workspace: &'w Workspace, verbose: bool) -> Self {
        Self { workspace, verbose, suite: None, docs: None, deadline: Instant::now() }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = process::cargo();
        cargo.args(arguments).current_dir(&self.workspace.root);
        cargo
    }

    /// The test programs. They are built on the first call.
    fn suite(&mut self) -> Result<&Suite, Error> {
        let suite = match self.suite.take() {
            Some(suite) => suite,
            None => Suite::build(self.workspace, self.left())?,
        };
        Ok(self.suite.insert(suite))
    }

    fn run_cargo(&self, command: &mut Command) -> Result<Verdict, Error> {
        process::must(command, Keep::Nothing, self.left()).map(|_| Verdict::Passed)
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // No program is left behind where a step before has failed.
        self.docs.take().into_iter().for_each(|docs| drop(docs.join()));
    }
}

fn peers(_context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    let missing = peers::ensure(peers::PEERS);
    Ok(missing.map_or(Verdict::Passed, Verdict::Skipped))
}

fn fmt(context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    context.run_cargo(&mut context.cargo(&["fmt", "--all", "--", "--check"]))
}

fn clippy(context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    context.run_cargo(&mut context.cargo(&arguments))
}

fn sans_io(context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    sans_io::command(context.workspace, &[]).map(|()| Verdict::Passed)
}

fn tidy(context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    tidy::command(context.workspace, &[]).map(|()| Verdict::Passed)
}

fn test(context: &mut Context<'_>, tally: &mut Tally) -> Result<Verdict, Error> {
    let (deadline, verbose) = (context.deadline, context.verbose);
    let suite = context.suite()?;
    tally.add(&run_all(suite, suite.inner(), deadline, verbose)?);
    let mut doc = context.cargo(&["test", "--workspace", "--doc", "--", "--show-output"]);
    let finished = process::run(&mut doc, Keep::Both, context.left())?;
    tally.add(&report("doc tests", &finished, verbose));
    Ok(Verdict::Passed)
}

fn e2e(context: &mut Context<'_>, tally: &mut Tally) -> Result<Verdict, Error> {
    let (deadline, verbose) = (context.deadline, context.verbose);
    context.docs = Some(begin_docs(context));
    let suite = context.suite()?;
    if suite.end_to_end().next().is_none() {
        return Ok(Verdict::Skipped("crates/landfall/tests has no test".to_owned()));
    }
    tally.add(&run_all(suite, suite.end_to_end(), deadline, verbose)?);
    Ok(Verdict::Passed)
}

/// Runs programs without their fuzz targets, which have their own step.
fn run_all<'p>(
    suite: &Suite,
    programs: impl Iterator<Item = &'p Program> + Send,
    deadline: Instant,
    verbose: bool,
) -> Result<Tally, Error> {
    let seeded = [("PROPTEST_RNG_SEED", fuzz::FIRST_SEED.to_string())];
    side_by_side(programs, |program| {
        let finished = suite.run(program, &["--skip", FUZZ_PREFIX], &seeded, deadline)?;
        Ok(report(&program.title(), &finished, verbose))
    })
}

fn crash(context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    let deadline = context.deadline;
    let Some(binary) = context.suite()?.binary.clone() else {
        return Ok(Verdict::Skipped("cargo built no binary `landfall`".to_owned()));
    };
    let left = deadline.saturating_duration_since(Instant::now());
    crash::campaign(&binary, CRASH_CYCLES, CRASH_SEED, &[], left).map(|()| Verdict::Passed)
}

fn fuzz(context: &mut Context<'_>, tally: &mut Tally) -> Result<Verdict, Error> {
    let deadline = context.deadline;
    let suite = context.suite()?;
    let targets = fuzz::targets(suite, "")?;
    if targets.is_empty() {
        return Ok(Verdict::Skipped("there is no fuzz target".to_owned()));
    }
    let slice = fuzz::slice(FUZZ_SMOKE, targets.len());
    let run = |target: &fuzz::Target<'_>| target.turn(suite, slice, fuzz::FIRST_SEED, deadline);
    tally.add(&side_by_side(targets.iter(), run)?);
    Ok(Verdict::Passed)
}

/// Begins to build the documentation, once in each way: with private items links to them are no fault, so that each way
/// finds what the other does not.
fn begin_docs(context: &Context<'_>) -> JoinHandle<Result<Vec<Finished>, Error>> {
    let doc = |private: &[&str]| {
        let mut cargo = context.cargo(&[&["doc", "--workspace", "--no-deps"], private].concat());
        process::nicely(cargo.env("RUSTDOCFLAGS", "-D warnings"))
    };
    let ways = [doc(&["--document-private-items"]), doc(&[])];
    let build = |mut cargo: Command| process::run(&mut cargo, Keep::Both, DOCS_LIMIT);
    std::thread::spawn(move || ways.into_iter().map(build).collect())
}

fn docs(context: &mut Context<'_>, _tally: &mut Tally) -> Result<Verdict, Error> {
    let begun = context.docs.take().unwrap_or_else(|| begin_docs(context));
    for finished in begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))? {
        if !finished.success {
            print!("{}", finished.stderr);
            return Ok(Verdict::Failed(format!("cargo doc {}", finished.ending)));
        }
    }
    Ok(Verdict::Passed)
}
