//! Seeded campaigns over logs beside an engine: run a workload, crash, recover, judge, continue. The canary: with any
//! one flush or fence of a commit left out, a campaign must fail.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds. `LANDFALL_SIM_SEED=S` begins with seed S; alone, it runs only S.
#![allow(clippy::print_stdout, reason = "the result names the seed that caught each fault")]

mod common;

use landfall_media::Site;
use landfall_sim::{Leaves, Plan, WalCampaign};
use std::panic::catch_unwind;

/// Number of seeds that `cargo test` runs.
const SEEDS: u64 = 20;
const PLAN: Plan = Plan { crashes: 8, ops_max: 120, skip: None };
/// Most seeds that may pass before a fault is caught.
const CANARY_SEEDS_MAX: u64 = 20;

#[test]
fn logs_recover_to_a_state_that_the_model_allows() {
    common::over_seeds("wal", SEEDS, |seed| WalCampaign::run(seed, PLAN, Leaves::WhatMay));
}

#[test]
fn flushes_and_fences_left_out_are_caught() {
    let sites = [
        Site::Data,
        Site::Record,
        Site::Commit,
        Site::MoveRecord,
        Site::MoveCommit,
        Site::RunTable,
        Site::Superblock,
        Site::SuperblockFence,
    ];
    let survivors: Vec<Site> =
        sites.into_iter().filter(|site| !is_caught(Some(*site), Leaves::WhatMay)).collect();
    assert!(survivors.is_empty(), "no campaign fails if these are left out: {survivors:?}");
}

#[test]
fn entries_that_leave_memory_before_they_are_durable_are_caught() {
    assert!(is_caught(None, Leaves::Anything));
}

fn is_caught(skip: Option<Site>, leaves: Leaves) -> bool {
    let plan = Plan { crashes: 6, ops_max: 80, skip };
    let fails = |seed: &u64| !matches!(catch_unwind(|| WalCampaign::run(*seed, plan, leaves)), Ok(Ok(_)));
    let seed = (0..CANARY_SEEDS_MAX).find(fails);
    println!("{skip:?}, {leaves:?}: caught by the campaign of seed {seed:?}");
    seed.is_some()
}
