//! Who may answer: nodes with clocks of their own, a registry whose leases end at any time, a manager, heartbeats, copies,
//! and people, under every fault at once. No read is older than what was acknowledged before it, and the last node that has
//! everything stays in the chain. The canaries show that rules are needed.

mod serving {
    pub mod registry;
    pub mod world;
}

use serving::world::{Canary, Changes, World};
use std::ops::Range;

/// Seeds of a run, if nothing else is said.
const SEEDS: u64 = 300;
/// Events of one seed.
const EVENTS: usize = 40_000;
/// Seeds within which a canary is caught.
const CAUGHT_SOON: u64 = 500;
const CAUGHT_LATE: u64 = 10_000;

/// The seeds of a run: `LANDFALL_SIM_SEEDS` from `LANDFALL_SIM_SEED` on.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("LANDFALL_SIM_SEED").unwrap_or(1);
    first..first + number("LANDFALL_SIM_SEEDS").unwrap_or(SEEDS)
}

fn run(seed: u64, changes: Changes, canary: Canary) -> (World, Result<(), String>) {
    let mut world = World::new(seed, changes, canary);
    let outcome = (0..EVENTS).try_for_each(|_| world.step());
    (world, outcome)
}

/// Runs the seeds. Returns how many writes, reads and views there were.
fn run_all(changes: Changes) -> (u64, u64, u64) {
    let (mut writes, mut reads, mut views) = (0, 0, 0);
    for seed in seeds() {
        let (world, outcome) = run(seed, changes, Canary::None);
        let again = format!(
            "LANDFALL_SIM_SEED={seed} LANDFALL_SIM_SEEDS=1 cargo test -p landfall-chain --test serving"
        );
        outcome.unwrap_or_else(|why| panic!("{again}: {why}"));
        (writes, reads, views) = (writes + world.writes(), reads + world.reads(), views + world.views());
    }
    (writes, reads, views)
}

#[test]
fn no_read_is_stale_and_the_last_node_that_has_everything_stays() {
    let count = seeds().count() as u64;
    let (writes, reads, views) = run_all(Changes::Managed);
    // Faults leave time for work, and the chain changes.
    let worked = writes > 100 * count && reads > 100 * count && views > 5 * count;
    assert!(worked || count < SEEDS, "{writes} {reads} {views}");
}

#[test]
fn in_a_chain_that_people_change_nothing_is_lost_with_the_disk_of_a_node() {
    let count = seeds().count() as u64;
    let (writes, reads, views) = run_all(Changes::ByPeople);
    let worked = writes > 50 * count && reads > 100 * count && views > 5 * count;
    assert!(worked || count < SEEDS, "{writes} {reads} {views}");
}

fn caught(changes: Changes, canary: Canary, within: u64) -> Option<u64> {
    (1..=within).find(|seed| run(*seed, changes, canary).1.is_err())
}

fn all_are_caught(changes: Changes, canaries: &[Canary], within: u64) {
    for canary in canaries {
        assert!(caught(changes, *canary, within).is_some(), "{canary:?} is not caught");
    }
}

#[test]
fn each_rule_is_needed() {
    all_are_caught(Changes::Managed, &Canary::SOON, CAUGHT_SOON);
    all_are_caught(Changes::ByPeople, &Canary::BY_PEOPLE, CAUGHT_SOON);
    // In a campaign.
    if seeds().count() as u64 >= CAUGHT_LATE {
        all_are_caught(Changes::Managed, &Canary::LATE, CAUGHT_LATE);
    }
}
