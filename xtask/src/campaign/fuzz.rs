//! Fuzzing: the fuzz targets of every crate, with more time and fresh seeds.
//!
//! A target is a test named `fuzz_*`, or any test in a file `tests/fuzz_*.rs`. It is an ordinary test that reads its
//! running time from the environment. bolero and proptest do so themselves; a hand-written loop reads
//! `LANDFALL_FUZZ_SECONDS` and `LANDFALL_FUZZ_SEED`.

use crate::args::Grammar;
use crate::ci::suite::{FUZZ_PREFIX, Program, Suite, report};
use crate::ci::tally::Tally;
use crate::error::Error;
use crate::seed::fresh_seed;
use crate::workspace::Workspace;
use std::time::{Duration, Instant};

/// The seed of continuous integration is fixed, so that a failure there can be repeated.
pub(crate) const FIRST_SEED: u64 = 1;

/// The default duration of a campaign.
const CAMPAIGN: Duration = Duration::from_secs(600);
/// Minimum and maximum time of one target before the next target runs.
const SLICE_MIN: Duration = Duration::from_secs(1);
const SLICE_MAX: Duration = Duration::from_secs(10);
/// Cases that a property test runs for each second of its slice. Slow cases take longer than the slice.
const CASES_PER_SECOND: u64 = 256;
/// How many times its slice a target may take before it counts as hanging.
const PATIENCE: u32 = 30;
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

const GRAMMAR: Grammar = Grammar { values: &["seconds", "seed"], switches: &[], words_max: 1 };

/// One fuzz target.
#[derive(Debug)]
pub(crate) struct Target<'s> {
    program: &'s Program,
    name: String,
}

/// `cargo xtask fuzz`.
///
/// # Errors
/// [`Error::Found`] where a target fails, or no target has the name.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    let total = args.number("seconds")?.map_or(CAMPAIGN, Duration::from_secs);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    let suite = Suite::build(workspace, BUILD_LIMIT)?;
    let targets = targets(&suite, args.word().unwrap_or_default())?;
    if targets.is_empty() {
        return Err(Error::Found("no fuzz target of that name; targets are tests named fuzz_*".to_owned()));
    }
    println!("{} targets for {} s from seed {seed}", targets.len(), total.as_secs());
    rounds(&suite, &targets, seed, Instant::now() + total, slice(total, targets.len()))
}

/// The fuzz targets whose names contain `filter`.
///
/// # Errors
/// [`Error::Program`] where a test program cannot list its tests.
pub(crate) fn targets<'s>(suite: &'s Suite, filter: &str) -> Result<Vec<Target<'s>>, Error> {
    let mut targets = Vec::new();
    for program in &suite.programs {
        // The test step excludes exactly these: whole files, and `--skip fuzz_` in the others.
        let names = program.list(if program.is_fuzz() { "" } else { FUZZ_PREFIX })?;
        let wanted = names.into_iter().filter(|name| name.contains(filter));
        targets.extend(wanted.map(|name| Target { program, name }));
    }
    Ok(targets)
}

/// The time of one turn where `targets` targets share `total`.
pub(crate) fn slice(total: Duration, targets: usize) -> Duration {
    let share = total / u32::try_from(targets.max(1)).unwrap_or(u32::MAX);
    share.clamp(SLICE_MIN, SLICE_MAX)
}

/// Runs every target in turn, with a new seed in each round, until the time is up.
fn rounds(
    suite: &Suite,
    targets: &[Target<'_>],
    seed: u64,
    end: Instant,
    slice: Duration,
) -> Result<(), Error> {
    let mut total = Tally::default();
    let mut seed = seed;
    loop {
        for target in targets {
            total.add(&target.turn(suite, slice, seed, Instant::now() + slice * PATIENCE)?);
            if total.failed > 0 {
                return Err(Error::Found(format!("{} failed", target.title())));
            }
            if Instant::now() >= end {
                println!("{} turns passed, {} skipped", total.passed, total.skipped);
                return Ok(());
            }
        }
        seed = seed.wrapping_add(1);
    }
}

impl Target<'_> {
    /// Runs the target for about `time`, at most until `deadline`, and prints the result. Where it fails, that includes
    /// the command that repeats it.
    ///
    /// # Errors
    /// [`Error::Environment`] where it cannot be started.
    pub(crate) fn turn(
        &self,
        suite: &Suite,
        time: Duration,
        seed: u64,
        deadline: Instant,
    ) -> Result<Tally, Error> {
        let arguments = [self.name.as_str(), "--exact"];
        let finished = suite.run(self.program, &arguments, &variables(time, seed), deadline)?;
        let tally = report(&format!("{} seed {seed}", self.title()), &finished, false);
        if tally.failed > 0 {
            println!("  again with: {}", self.again(time, seed));
        }
        Ok(tally)
    }

    fn title(&self) -> String {
        format!("{} {}", self.program.package, self.name)
    }

    fn again(&self, time: Duration, seed: u64) -> String {
        format!("cargo xtask fuzz --seconds {} --seed {seed} {}", time.as_secs(), self.name)
    }
}

/// The environment variables of each library that set running time and seed.
fn variables(time: Duration, seed: u64) -> Vec<(&'static str, String)> {
    let cases = time.as_secs().max(1).saturating_mul(CASES_PER_SECOND);
    vec![
        ("LANDFALL_FUZZ_SECONDS", time.as_secs().to_string()),
        ("LANDFALL_FUZZ_SEED", seed.to_string()),
        ("BOLERO_RANDOM_TEST_TIME_MS", time.as_millis().to_string()),
        ("BOLERO_RANDOM_ITERATIONS", u32::MAX.to_string()),
        ("BOLERO_RANDOM_SEED", seed.to_string()),
        ("PROPTEST_CASES", cases.min(u64::from(u32::MAX)).to_string()),
        ("PROPTEST_RNG_SEED", seed.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_within_bounds() {
        assert_eq!(slice(Duration::from_secs(100), 1), SLICE_MAX);
        assert_eq!(slice(Duration::from_secs(100), 25), Duration::from_secs(4));
        assert_eq!(slice(Duration::from_secs(100), 1000), SLICE_MIN);
        assert_eq!(slice(Duration::from_secs(100), 0), SLICE_MAX);
    }

    #[test]
    fn every_library_gets_the_seed() {
        let set = variables(Duration::from_secs(2), 77);
        let seeds = set.iter().filter(|(name, value)| name.ends_with("SEED") && value == "77");
        assert_eq!(seeds.count(), 3);
        assert!(set.contains(&("PROPTEST_CASES", "512".to_owned())));
    }
}
