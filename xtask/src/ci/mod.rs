//! `cargo xtask ci`: everything that must hold before a change lands.
//!
//! [`steps::Step`] lists the steps. A step passes, fails, or is *skipped* with a reason: a skipped step
//! never counts as passed, and neither does a test that skips itself by printing `SKIP: what: why`.

mod lanes;
mod report;
mod steps;
pub(crate) mod suite;
pub(crate) mod tally;

use crate::args::Grammar;
use crate::error::Error;
use crate::workspace::Workspace;
use report::{Entry, Verdict};
use std::time::{Duration, Instant};
use steps::{Context, STEPS, Step};

/// Time limit for the whole run, on 2 cores and from a fresh clone.
const TOTAL_LIMIT: Duration = Duration::from_secs(38 * 60);

const GRAMMAR: Grammar =
    Grammar { values: &["only", "skip"], switches: &["keep-going", "verbose"], words_max: 0 };

/// `cargo xtask ci`.
///
/// # Errors
/// [`Error::Usage`] for a step that does not exist, [`Error::Found`] where a step failed.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    let only = named(&args.list("only"))?;
    let skipped = named(&args.list("skip"))?;
    let chosen: Vec<&Step> = STEPS.iter().filter(|s| only.is_empty() || only.contains(&s.name)).collect();
    let plan = Plan { skipped, keep_going: args.has("keep-going"), verbose: args.has("verbose") };
    let entries = plan.run(workspace, &chosen);
    print!("{}", report::closing(&entries));
    match entries.iter().filter(|entry| entry.verdict.is_failure()).count() {
        0 => Ok(()),
        n => Err(Error::Found(format!("{n} of {} steps failed", entries.len()))),
    }
}

/// The steps as `help` lists them.
pub(crate) fn describe_steps() -> String {
    STEPS.iter().map(|step| format!("  {:<8} {}\n", step.name, step.about)).collect()
}

fn named(names: &[&str]) -> Result<Vec<&'static str>, Error> {
    let find = |name: &&str| STEPS.iter().find(|step| step.name == *name).map(|step| step.name);
    let unknown = |name: &&str| Error::Usage(format!("no step `{name}`; `cargo xtask help` lists them"));
    names.iter().map(|name| find(name).ok_or_else(|| unknown(name))).collect()
}

struct Plan {
    skipped: Vec<&'static str>,
    keep_going: bool,
    verbose: bool,
}

impl Plan {
    fn run(&self, workspace: &Workspace, steps: &[&Step]) -> Vec<Entry> {
        let end = Instant::now() + TOTAL_LIMIT;
        let mut context = Context::new(workspace, self.verbose);
        let mut entries: Vec<Entry> = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            let stopped = !self.keep_going && entries.iter().any(|e| e.verdict.is_failure());
            let entry = if stopped {
                Entry::idle(step.name, Verdict::NotRun)
            } else if self.skipped.contains(&step.name) {
                Entry::idle(step.name, Verdict::Skipped("excluded on the command line".to_owned()))
            } else {
                println!("\n=== {}/{} {}: {}", n + 1, steps.len(), step.name, step.about);
                run_step(step, &mut context, end)
            };
            print!("{}", report::line(&entry));
            entries.push(entry);
        }
        entries
    }
}

fn run_step(step: &Step, context: &mut Context<'_>, end: Instant) -> Entry {
    let start = Instant::now();
    context.deadline = end.min(start + step.limit);
    let mut entry = Entry::idle(step.name, Verdict::Passed);
    entry.verdict = match (step.run)(context, &mut entry.tally) {
        Ok(verdict) if verdict == Verdict::Passed && entry.tally.failed > 0 => {
            Verdict::Failed(format!("{} tests failed", entry.tally.failed))
        }
        Ok(verdict) => verdict,
        Err(error) => Verdict::Failed(error.to_string()),
    };
    entry.took = start.elapsed();
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_steps_can_be_named() {
        assert_eq!(named(&["tidy", "test"]).unwrap(), ["tidy", "test"]);
        assert!(named(&["tidi"]).is_err());
    }

    #[test]
    fn step_limits_leave_room_for_each_other() {
        assert!(STEPS.iter().all(|step| step.limit < TOTAL_LIMIT));
    }
}
