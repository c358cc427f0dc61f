//! Seeded campaigns: work, crash, recover, judge, go on.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds; `LANDFALL_SIM_SEED=S` begins at S, and alone runs just S.

mod common;

use landfall_sim::{Campaign, Plan};

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 14;
const PLAN: Plan = Plan { crashes: 6, ops_max: 120, skip: None };

#[test]
fn long_seeded_traces_recover_to_a_state_that_the_model_allows() {
    common::over_seeds("crash", SEEDS, |seed| Campaign::run(seed, PLAN));
}
