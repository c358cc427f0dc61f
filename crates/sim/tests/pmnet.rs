//! Seeded campaigns over PMNet as a whole: clients, devices, a server, replicas, every fault at once. The canary: with
//! something wrong in a device or in the server's application, a campaign must fail.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds; `LANDFALL_SIM_SEED=S` begins at S, and alone runs just S.
#![allow(clippy::print_stdout, reason = "what noticed each belongs to the result")]

mod common;

use landfall_media::Site;
use landfall_sim::Violation;
use landfall_sim::pmnet::{Broken, PmnetCampaign, PmnetSummary};
use std::panic::catch_unwind;

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 200;
/// Reads that devices answer in these.
const FROM_CACHE_MIN: u64 = 200;
/// Acknowledgements that devices of chains join in these.
const JOINED_MIN: u64 = 100;
/// Sessions that end by their silence in these.
const ENDED_MIN: u64 = 30;
/// Packets that devices hold for other sessions' updates in these.
const HELD_MIN: u64 = 200;
/// Seeds that may pass before something wrong is noticed.
const CANARY_SEEDS_MAX: u64 = 150;

#[test]
fn nothing_reported_durable_is_lost_and_nothing_is_applied_twice_or_out_of_order() {
    let runs = common::over_seeds("pmnet", SEEDS, |seed| PmnetCampaign::run(seed, None));
    let total = runs.iter().fold(PmnetSummary::default(), |total, run| total + *run);
    let judged = total.judged;
    println!(
        "{} seeds, 0 violations: {} crashes and {} losses of devices, {} crashes of the server, {} fail-overs; \
         {} updates complete, {} applied, {} excused; {} acknowledgements joined; {} sessions ended by silence, {} clients told; \
         {} packets held, {} dropped instead; \
         {} bypasses answered, {} from caches, {} lost; {} histories, {} undecided",
        runs.len(),
        total.device_crashes,
        total.device_losses,
        total.server_crashes,
        total.fail_overs,
        judged.complete,
        judged.applied,
        judged.excused,
        total.joined,
        total.ended_by_silence,
        total.told_gone,
        total.held,
        total.held_dropped,
        judged.answered,
        judged.from_cache,
        judged.lost,
        judged.histories,
        judged.undecided,
    );
    if !common::seeds_are_chosen() {
        assert!(judged.from_cache >= FROM_CACHE_MIN, "only {} reads from caches", judged.from_cache);
        assert!(total.ended_by_silence >= ENDED_MIN, "only {} ended by silence", total.ended_by_silence);
        assert!(total.held >= HELD_MIN, "only {} packets held", total.held);
        assert!(total.joined >= JOINED_MIN, "only {} acknowledgements joined", total.joined);
    }
}

#[test]
fn clients_of_the_authors_release_lose_nothing_that_was_acknowledged_beside_ours() {
    let runs = common::over_seeds("pmnet foreign", SEEDS, |seed| PmnetCampaign::run_foreign(seed, None));
    let total = runs.iter().fold(PmnetSummary::default(), |total, run| total + *run);
    println!(
        "{} seeds, 0 violations: {} crashes of devices, {} of the server; {} clients gave up; {} updates complete, {} applied; \
         {} bypasses answered, {} from caches",
        runs.len(),
        total.device_crashes,
        total.server_crashes,
        total.gave_up,
        total.judged.complete,
        total.judged.applied,
        total.judged.answered,
        total.judged.from_cache,
    );
    if !common::seeds_are_chosen() {
        assert!(total.judged.complete > 1000 && total.judged.from_cache > 20);
    }
}

#[test]
fn a_device_that_denies_what_its_log_has_is_caught() {
    assert_foreign_caught(Broken::LogsDenied);
}

#[test]
fn with_foreign_clients_too_early_acknowledgements_and_forgotten_rows_are_caught() {
    for broken in [Broken::DeviceAcksEarly, Broken::RowForgotten, Broken::CacheMissesUpdates] {
        assert_foreign_caught(broken);
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let runs = [(); 2].map(|()| PmnetCampaign::run(3, None).map_err(|violation| violation.0));
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn a_device_that_acknowledges_before_its_fence_is_caught() {
    assert_caught(Broken::DeviceAcksEarly);
}

#[test]
fn devices_that_leave_out_a_flush_or_a_fence_are_caught() {
    for site in [Site::Data, Site::Record, Site::Commit] {
        assert_caught(Broken::DeviceSkips(site));
    }
}

#[test]
fn a_device_that_believes_a_confirmation_from_the_clients_side_is_caught() {
    assert_caught(Broken::SidesConfused);
}

#[test]
fn a_device_that_believes_what_bears_no_seal_is_caught() {
    assert_caught(Broken::SealsUnchecked);
}

#[test]
fn a_device_that_does_not_hear_of_refused_sessions_is_caught() {
    assert_caught(Broken::RefusalsUnheard);
}

#[test]
fn devices_that_hold_nothing_where_keys_are_to_be_linearizable_are_caught() {
    assert_caught(Broken::NothingHeld);
}

#[test]
fn a_server_that_confirms_what_is_not_committed_is_caught() {
    assert_caught(Broken::ServerConfirmsEarly);
}

#[test]
fn an_application_that_forgets_the_row_beside_the_effect_is_caught() {
    assert_caught(Broken::RowForgotten);
    assert_caught(Broken::BypassRowForgotten);
}

#[test]
fn a_cache_that_does_not_know_of_an_update_is_caught() {
    assert_caught(Broken::CacheMissesUpdates);
}

#[test]
fn a_cache_that_does_not_know_of_a_bypass_that_changes_a_key_is_caught() {
    assert_caught(Broken::CacheMissesAdditions);
}

#[test]
fn a_cache_that_takes_keys_for_another_is_caught() {
    assert_caught(Broken::CacheConfusesKeys);
}

fn assert_caught(broken: Broken) {
    assert_caught_by(broken, PmnetCampaign::run);
}

fn assert_foreign_caught(broken: Broken) {
    assert_caught_by(broken, PmnetCampaign::run_foreign);
}

fn assert_caught_by(broken: Broken, run: fn(u64, Option<Broken>) -> Result<PmnetSummary, Violation>) {
    let noticed = (0..CANARY_SEEDS_MAX).find_map(|seed| match catch_unwind(|| run(seed, Some(broken))) {
        Ok(Ok(_)) => None,
        Ok(Err(violation)) => Some((seed, violation.0.lines().next().unwrap_or_default().to_owned())),
        Err(_) => Some((seed, "a panic".to_owned())),
    });
    let (seed, how) = noticed.unwrap_or_else(|| panic!("nothing notices {broken:?}"));
    println!("{broken:?}: caught by the campaign of seed {seed}: {how:.200}");
}
