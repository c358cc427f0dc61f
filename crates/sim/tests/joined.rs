//! Seeded campaigns of transactions of up to thousands of keys, with long values that are changed in part and copied, on a
//! region of which a part is in memory.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds; `LANDFALL_SIM_SEED=S` begins at S, and alone runs just S.

mod common;

use landfall_media::Site;
use landfall_sim::{JoinedCampaign, JoinedSummary, Leaves, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 4;
/// Seeds that may pass before a mistake is noticed.
const CANARY_SEEDS: u64 = 6;
const PLAN: Plan = Plan { crashes: 6, ops_max: 25, skip: None };

#[test]
fn transactions_of_values_in_pieces_that_leave_memory_are_found_whole_or_not_at_all() {
    let run = |seed| JoinedCampaign::run(seed, PLAN, Leaves::WhatMay);
    let summaries = common::over_seeds("joined", SEEDS, run);
    if !common::seeds_are_chosen() {
        let sum = |part: fn(&JoinedSummary) -> u64| summaries.iter().map(part).sum::<u64>();
        assert!(sum(|run| run.transactions) > 100 && sum(|run| run.patches) > 100, "{summaries:?}");
        assert!(sum(|run| run.copies) > 40 && sum(|run| run.evicted) > 30 << 20, "{summaries:?}");
        assert!(sum(|run| run.recovery_crashes) > 8 && sum(|run| run.moved) > 100, "{summaries:?}");
        assert!(sum(|run| run.found_early) > 0, "no crash after a commit record: {summaries:?}");
        assert!(sum(|run| run.beside) > 0, "nothing beside a batch in flight: {summaries:?}");
    }
}

fn is_noticed(skip: Option<Site>, leaves: Leaves) -> bool {
    let plan = Plan { skip, ..PLAN };
    let run = |seed| JoinedCampaign::run(seed, plan, leaves);
    (0..CANARY_SEEDS).any(|seed| !matches!(catch_unwind(AssertUnwindSafe(|| run(seed))), Ok(Ok(_))))
}

#[test]
fn a_transaction_whose_fence_is_left_out_is_noticed_among_pieces_and_paging() {
    assert!(is_noticed(Some(Site::Transaction), Leaves::WhatMay));
}

/// Only long values have data outside of their records: pieces, and lists of them.
#[test]
fn pieces_that_are_not_flushed_are_noticed_in_transactions_and_paging() {
    assert!(is_noticed(Some(Site::Data), Leaves::WhatMay));
    assert!(is_noticed(Some(Site::MoveData), Leaves::WhatMay));
}

#[test]
fn data_that_leave_memory_before_they_are_durable_are_noticed() {
    assert!(is_noticed(None, Leaves::Anything));
}

#[test]
fn data_of_a_batch_in_flight_that_leave_memory_are_noticed() {
    assert!(is_noticed(None, Leaves::WhatIsInFlight));
}
