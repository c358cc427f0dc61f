//! Seeded campaigns over the engine: run a workload, crash, recover, judge, continue.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds. `LANDFALL_SIM_SEED=S` begins with seed S; alone, it runs only S.

mod common;

use landfall_sim::{Campaign, Plan};

/// Number of seeds that `cargo test` runs.
const SEEDS: u64 = 14;
const PLAN: Plan = Plan { crashes: 6, ops_max: 120, skip: None };

#[test]
fn long_seeded_traces_recover_to_a_state_that_the_model_allows() {
    common::over_seeds("crash", SEEDS, |seed| Campaign::run(seed, PLAN));
}

/// The key of a superseded record lay in a run that had become a slab since.
#[test]
fn a_seed_that_has_found_something_finds_nothing_any_more() {
    Campaign::run(5233, PLAN).unwrap_or_else(|violation| panic!("{violation}"));
}
