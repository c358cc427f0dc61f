//! Seeded campaigns over files: random calls, publishing, compaction, crashes, also of recovery and of repair. The canary: with any one
//! flush or fence left out that files depend on, a campaign must fail.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds. `LANDFALL_SIM_SEED=S` begins with seed S; alone, it runs only S.
#![allow(clippy::print_stdout, reason = "the result names the seed that caught each fault")]

mod common;

use landfall_media::Site;
use landfall_sim::files::{Fault, FilesCampaign, FilesPlan};
use std::panic::catch_unwind;

/// Number of seeds that `cargo test` runs.
const SEEDS: u64 = 120;
const PLAN: FilesPlan = FilesPlan { crashes: 4, fault: Fault { skip: None, forgets_syncs: false } };
/// Most seeds that may pass before a fault is caught.
const CANARY_SEEDS_MAX: u64 = 60;

#[test]
fn files_recover_to_what_a_prefix_of_the_calls_makes() {
    let all = common::over_seeds("files", SEEDS, |seed| FilesCampaign::run(seed, PLAN));
    let sum = |of: fn(&landfall_sim::files::FilesSummary) -> u64| all.iter().map(of).sum::<u64>();
    let counts = [
        sum(|one| one.steps),
        sum(|one| one.refused),
        sum(|one| one.again),
        sum(|one| one.repairs),
        sum(|one| one.lost),
    ];
    println!("steps, refused calls, crashes of recovery and of repair, calls lost: {counts:?}");
    if !common::seeds_are_chosen() {
        assert!(counts.iter().all(|count| *count > SEEDS / 4), "the campaign does little: {counts:?}");
    }
}

#[test]
fn flushes_and_fences_left_out_are_caught_and_a_sync_that_does_nothing() {
    let sites = [
        Site::Data,
        Site::Record,
        Site::Commit,
        Site::Transaction,
        Site::RunTable,
        Site::MoveData,
        Site::MoveRecord,
        Site::MoveCommit,
        Site::SlabEpoch,
    ];
    let skipped = sites.map(|site| Fault { skip: Some(site), ..Fault::default() });
    let forgetful = Fault { forgets_syncs: true, ..Fault::default() };
    let all = skipped.into_iter().chain([forgetful]);
    let survivors: Vec<Fault> = all.filter(|fault| !is_caught(*fault)).collect();
    assert!(survivors.is_empty(), "no campaign fails with these: {survivors:?}");
}

fn is_caught(fault: Fault) -> bool {
    let plan = FilesPlan { fault, ..PLAN };
    let fails = |seed: &u64| !matches!(catch_unwind(|| FilesCampaign::run(*seed, plan)), Ok(Ok(_)));
    let seed = (1..=CANARY_SEEDS_MAX).find(fails);
    println!("{fault:?}: caught by the campaign of seed {seed:?}");
    seed.is_some()
}
