//! Seeds: which to run, and how to say which one failed.
#![allow(dead_code, reason = "each test file uses its part")]

use landfall_sim::Violation;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First seed where none is asked for: fixed, so that a plain `cargo test` is repeatable.
const FIRST_SEED: u64 = 1;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// Runs `campaign` over the seeds asked for, `default_count` of them where nothing is asked.
///
/// # Panics
/// At the first seed that fails, with the command that repeats it.
pub fn over_seeds<T: std::fmt::Debug>(test: &str, default_count: u64, campaign: impl Fn(u64) -> Result<T, Violation>) {
    let (first, count) = match (from_environment("LANDFALL_SIM_SEED"), from_environment("LANDFALL_SIM_SEEDS")) {
        (None, count) => (FIRST_SEED, count.unwrap_or(default_count)),
        (Some(first), count) => (first, count.unwrap_or(1)),
    };
    println!("{test}: {count} seeds from {first}");
    for seed in first..first.saturating_add(count) {
        let again = format!("LANDFALL_SIM_SEED={seed} cargo test -p landfall-sim --test {test} -- --nocapture");
        match catch_unwind(AssertUnwindSafe(|| campaign(seed))) {
            Ok(Ok(summary)) => println!("seed {seed}: {summary:?}"),
            Ok(Err(violation)) => panic!("seed {seed}: {violation}\nagain with: {again}"),
            Err(_) => panic!("seed {seed} panicked\nagain with: {again}"),
        }
    }
}
