//! Seeded campaigns over PMNet as a whole: clients, devices, a server, replicas, every fault at once.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds; `LANDFALL_SIM_SEED=S` begins at S, and alone runs just S.

mod common;

use landfall_sim::pmnet::PmnetCampaign;

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 200;

#[test]
fn nothing_reported_durable_is_lost_and_nothing_is_applied_twice_or_out_of_order() {
    common::over_seeds("pmnet", SEEDS, |seed| PmnetCampaign::run(seed, None));
}
