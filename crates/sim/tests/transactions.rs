//! Seeded campaigns of transactions of 1 to 5000 keys over two writers.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds; `LANDFALL_SIM_SEED=S` begins at S, and alone runs just S.

mod common;

use landfall_media::Site;
use landfall_sim::{Plan, TransactionCampaign};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 12;
/// Seeds that may pass before a lie is noticed.
const CANARY_SEEDS: u64 = 6;
const PLAN: Plan = Plan { crashes: 6, ops_max: 25, skip: None };

#[test]
fn transactions_of_up_to_5000_keys_are_found_whole_or_not_at_all() {
    let summaries = common::over_seeds("transactions", SEEDS, |seed| TransactionCampaign::run(seed, PLAN));
    if !common::seeds_are_chosen() {
        let sum =
            |part: fn(&landfall_sim::TransactionSummary) -> u64| summaries.iter().map(part).sum::<u64>();
        assert!(sum(|run| run.committed) > 200 && sum(|run| run.taken_back) > 50, "{summaries:?}");
        assert!(sum(|run| run.recovery_crashes) > 20 && sum(|run| run.moved) > 1000, "{summaries:?}");
        assert!(sum(|run| run.found_early) > 0, "no crash after a commit record: {summaries:?}");
    }
}

#[test]
fn a_transaction_whose_fences_are_left_out_is_caught() {
    for site in [Site::Transaction, Site::Commit, Site::Record, Site::Data] {
        let plan = Plan { skip: Some(site), ..PLAN };
        let fails = |seed: &u64| {
            !matches!(catch_unwind(AssertUnwindSafe(|| TransactionCampaign::run(*seed, plan))), Ok(Ok(_)))
        };
        assert!((0..CANARY_SEEDS).any(|seed| fails(&seed)), "{site:?} is left out, and nothing notices");
    }
}
