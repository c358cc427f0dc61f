//! Seeded campaigns over PMNet as a whole: clients, devices, a server and replicas, with all faults at the same time.
//! The canary: with a fault built into a device or the server's application, a campaign must fail.
//!
//! `LANDFALL_SIM_SEEDS=N` runs N seeds. `LANDFALL_SIM_SEED=S` begins with seed S; alone, it runs only S.
#![allow(clippy::print_stdout, reason = "the result names the seed that caught each fault")]

mod common;

use landfall_media::Site;
use landfall_sim::Violation;
use landfall_sim::pmnet::{Broken, PmnetCampaign, PmnetSummary};
use std::panic::catch_unwind;

/// Number of seeds that `cargo test` runs.
const SEEDS: u64 = 200;
/// Least number of reads that devices must answer over all seeds.
const FROM_CACHE_MIN: u64 = 200;
/// Least number of acknowledgements that devices of chains must merge over all seeds.
const JOINED_MIN: u64 = 100;
/// Least number of sessions that must end by their silence over all seeds.
const ENDED_MIN: u64 = 30;
/// Least number of packets that devices must hold for other sessions' updates over all seeds.
const HELD_MIN: u64 = 200;
/// Most seeds that may pass before a built-in fault is caught.
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
fn a_device_that_denies_the_updates_in_its_log_is_caught() {
    assert_foreign_caught(Broken::LogsDenied);
}

#[test]
fn with_foreign_clients_early_acknowledgements_and_missing_rows_are_caught() {
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
fn a_device_that_accepts_a_confirmation_from_the_clients_side_is_caught() {
    assert_caught(Broken::SidesConfused);
}

#[test]
fn a_device_that_accepts_packets_without_a_seal_is_caught() {
    assert_caught(Broken::SealsUnchecked);
}

#[test]
fn a_device_that_ignores_refused_sessions_is_caught() {
    assert_caught(Broken::RefusalsUnheard);
}

#[test]
fn devices_that_hold_nothing_though_keys_must_be_linearizable_are_caught() {
    assert_caught(Broken::NothingHeld);
}

#[test]
fn a_server_that_confirms_uncommitted_batches_is_caught() {
    assert_caught(Broken::ServerConfirmsEarly);
}

#[test]
fn an_application_that_commits_effects_without_rows_is_caught() {
    assert_caught(Broken::RowForgotten);
    assert_caught(Broken::BypassRowForgotten);
}

#[test]
fn a_cache_that_ignores_updates_is_caught() {
    assert_caught(Broken::CacheMissesUpdates);
}

#[test]
fn a_cache_that_ignores_bypasses_that_change_a_key_is_caught() {
    assert_caught(Broken::CacheMissesAdditions);
}

#[test]
fn a_cache_that_mixes_up_keys_is_caught() {
    assert_caught(Broken::CacheConfusesKeys);
}

fn assert_caught(broken: Broken) {
    assert_caught_by(broken, PmnetCampaign::run);
}

fn assert_foreign_caught(broken: Broken) {
    assert_caught_by(broken, PmnetCampaign::run_foreign);
}

fn assert_caught_by(broken: Broken, run: fn(u64, Option<Broken>) -> Result<PmnetSummary, Violation>) {
    let caught = (0..CANARY_SEEDS_MAX).find_map(|seed| match catch_unwind(|| run(seed, Some(broken))) {
        Ok(Ok(_)) => None,
        Ok(Err(violation)) => Some((seed, violation.0.lines().next().unwrap_or_default().to_owned())),
        Err(_) => Some((seed, "a panic".to_owned())),
    });
    let (seed, how) = caught.unwrap_or_else(|| panic!("no seed catches {broken:?}"));
    println!("{broken:?}: caught by the campaign of seed {seed}: {how:.200}");
}
