//! The kill -9 campaign: the server on a file, killed repeatedly in the middle of writes.

use super::table;
use crate::args::Grammar;
use crate::error::Error;
use crate::json::{self, Json, Members};
use crate::process::{self, Keep};
use crate::seed::fresh_seed;
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The default number of cycles: about half an hour.
const CYCLES: u64 = 500;
/// Time limit for one cycle: start, load, kill, recover, verify.
const CYCLE_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for building the release profile on a small machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// Members of the report that count broken promises: a value other than zero fails, whatever the exit status.
const BROKEN: &[&str] = &["lost", "torn", "resurrected", "split", "violations", "failures"];

/// A region that is larger than its memory.
const PAGED: &[&str] = &["--capacity", "192MiB", "--memory", "64MiB"];

const GRAMMAR: Grammar = Grammar { values: &["cycles", "seed"], switches: &["paged"], words_max: 0 };

/// `cargo xtask crash`.
///
/// # Errors
/// [`Error::Program`] or [`Error::Found`] where the campaign found a broken promise.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    let cycles = args.number("cycles")?.unwrap_or(CYCLES);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    let binary = build(workspace, &["--release"])?;
    let limit = CYCLE_LIMIT.saturating_mul(u32::try_from(cycles).unwrap_or(u32::MAX));
    let more = if args.has("paged") { PAGED } else { &[] };
    campaign(Path::new(&binary), cycles, seed, more, limit)
}

/// The path of the binary, as reported by cargo.
///
/// # Errors
/// [`Error::Program`] where it cannot be built, [`Error::Found`] where cargo built something else.
pub(crate) fn build(workspace: &Workspace, profile: &[&str]) -> Result<String, Error> {
    let mut cargo = process::cargo();
    // The library of files is built beside it.
    cargo.args(["build", "-p", "landfall", "-p", "landfall-fs-lib"]).args(profile);
    cargo.args(["--message-format", "json-render-diagnostics"]).current_dir(&workspace.root);
    let printed = process::must(&mut cargo, Keep::Stdout, BUILD_LIMIT)?.stdout;
    let artifacts = printed.lines().filter(|line| line.contains("\"compiler-artifact\""));
    let mut executables =
        artifacts.filter_map(|line| json::parse(line).ok()?.text("executable").map(str::to_owned));
    executables.next_back().ok_or_else(|| Error::Found("cargo built no binary `landfall`".to_owned()))
}

/// Runs `cycles` kills of `binary`, a demonstration with the flags `more`, and prints the report.
///
/// # Errors
/// [`Error::Program`] where the binary fails, [`Error::Found`] where its report is missing or counts a
/// broken promise.
pub(crate) fn campaign(
    binary: &Path,
    cycles: u64,
    seed: u64,
    more: &[&str],
    limit: Duration,
) -> Result<(), Error> {
    println!("  {cycles} cycles; again with: cargo xtask crash --cycles {cycles} --seed {seed}");
    let (cycles, seed) = (cycles.to_string(), seed.to_string());
    let mut demo = Command::new(binary);
    demo.args(["demo", "--cycles", &cycles, "--seed", &seed, "--json"]).args(more);
    demonstrate(&mut demo, limit).map(|_| ())
}

/// Runs `landfall demo --json`, prints its report and returns it.
///
/// # Errors
/// As [`campaign`].
pub(crate) fn demonstrate(demo: &mut Command, limit: Duration) -> Result<Json, Error> {
    let finished = process::run(demo, Keep::Stdout, limit)?;
    let report = last_object(&finished.stdout);
    match &report {
        Some(report) => print!("{}", table::render(report)),
        None => print!("{}", finished.stdout),
    }
    if !finished.success {
        return Err(Error::Program { line: process::line(demo), ending: finished.ending });
    }
    judge(report)
}

/// The report: the whole output, or its last line that is an object.
fn last_object(printed: &str) -> Option<Json> {
    let object = |text: &str| json::parse(text).ok().filter(|json| matches!(json, Json::Object(_)));
    object(printed).or_else(|| printed.lines().rev().find_map(object))
}

fn judge(report: Option<Json>) -> Result<Json, Error> {
    let Some(report) = report else {
        return Err(Error::Found("`landfall demo --json` printed no report".to_owned()));
    };
    let broken = BROKEN.iter().filter(|name| counts_something(report.get(name)));
    let broken: Vec<&str> = broken.copied().collect();
    if broken.is_empty() {
        Ok(report)
    } else {
        Err(Error::Found(format!("broken promises: {}", broken.join(", "))))
    }
}

fn counts_something(member: Option<&Json>) -> bool {
    match member {
        None | Some(Json::Null | Json::Bool(false)) => false,
        Some(Json::Number(number)) => number.as_f64() != Some(0.0),
        Some(Json::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(printed: &str) -> bool {
        judge(last_object(printed)).is_ok()
    }

    #[test]
    fn clean_report_passes() {
        assert!(judged("{\"cycles\": 20, \"acknowledged\": 1000, \"lost\": 0, \"torn\": 0}\n"));
        assert!(judged("progress\n{\"cycles\": 1}\n{\"cycles\": 20, \"violations\": []}\n"));
    }

    #[test]
    fn missing_report_or_broken_promise_fails() {
        for printed in ["", "all fine\n", "[1]\n", "{\"lost\": 1}\n", "{\n\"torn\": 2,\n\"lost\": 0\n}\n"] {
            assert!(!judged(printed), "{printed}");
        }
    }

    #[test]
    fn program_without_output_fails_the_campaign() {
        let nothing = campaign(Path::new("true"), 1, 1, &[], Duration::from_secs(20));
        assert!(matches!(nothing, Err(Error::Found(_))));
        let failing = campaign(Path::new("false"), 1, 1, &[], Duration::from_secs(20));
        assert!(matches!(failing, Err(Error::Program { .. })));
    }
}
