//! The simulators over many seeds, that of the chain among them: their tests read the number of seeds and the first one from the environment.

use crate::args::Grammar;
use crate::ci::suite::report;
use crate::error::Error;
use crate::process::{self, Keep};
use crate::seed::fresh_seed;
use crate::workspace::Workspace;
use std::time::Duration;

/// The default number of seeds.
const SEEDS: u64 = 1000;
/// A campaign may run overnight.
const LIMIT: Duration = Duration::from_secs(12 * 3600);

const GRAMMAR: Grammar = Grammar { values: &["seeds", "seed"], switches: &[], words_max: 0 };

/// `cargo xtask sim`.
///
/// # Errors
/// [`Error::Found`] where a seed fails; the simulator prints the command that repeats it.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let args = GRAMMAR.parse(line)?;
    let seeds = args.number("seeds")?.unwrap_or(SEEDS);
    let seed = args.number("seed")?.unwrap_or_else(fresh_seed);
    println!("{seeds} seeds; again with: cargo xtask sim --seeds {seeds} --seed {seed}");
    let mut cargo = process::cargo();
    cargo
        .args(["test", "-p", "landfall-sim", "-p", "landfall-chain", "--no-fail-fast", "--", "--show-output"])
        .current_dir(&workspace.root);
    cargo.env("LANDFALL_SIM_SEEDS", seeds.to_string()).env("LANDFALL_SIM_SEED", seed.to_string());
    let finished = process::run(&mut cargo, Keep::Both, LIMIT)?;
    let tally = report("simulator", &finished, true);
    match (tally.failed, tally.passed) {
        (0, 0) => Err(Error::Found("the simulator has no tests".to_owned())),
        (0, _) => Ok(()),
        (n, _) => Err(Error::Found(format!("{n} simulator tests failed"))),
    }
}
