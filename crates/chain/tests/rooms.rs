//! Room in a chain whose last node, with the least of it, is copied to while clients write: streams with a value under way
//! each, questions for room that are lost, first nodes that start again, and a last node that is removed and comes back.
//! What was admitted has room at every node that is in step. The canaries show that each rule is needed.

mod rooms {
    pub mod world;
}

use rooms::world::{Canary, World};
use std::ops::Range;

/// Seeds of a run, if nothing else is said.
const SEEDS: u64 = 500;
/// Steps with faults of one seed.
const STEPS: usize = 6000;
/// Seeds within which a canary is caught.
const CAUGHT: u64 = 10_000;

/// The seeds of a run: `LANDFALL_SIM_SEEDS` from `LANDFALL_SIM_SEED` on.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("LANDFALL_SIM_SEED").unwrap_or(0);
    first..first + number("LANDFALL_SIM_SEEDS").unwrap_or(SEEDS)
}

/// What is wrong in a run, or what was done.
fn run(seed: u64, canary: Canary) -> Result<World, String> {
    let mut world = World::new(seed, canary);
    (0..STEPS).try_for_each(|_| world.step())?;
    world.heal()?;
    Ok(world)
}

#[test]
fn what_was_admitted_has_room_at_a_node_that_gets_in_step() {
    let (mut writes, mut copies) = (0, 0);
    let count = seeds().count() as u64;
    for seed in seeds() {
        let again = format!(
            "LANDFALL_SIM_SEED={seed} LANDFALL_SIM_SEEDS=1 cargo test -p landfall-chain --test rooms"
        );
        let world = run(seed, Canary::None).unwrap_or_else(|wrong| panic!("{again}: {wrong}"));
        (writes, copies) = (writes + world.writes(), copies + world.copies());
    }
    assert!(count < SEEDS || (writes > 10 * count && copies > 2 * count), "{writes} {copies}");
}

#[test]
fn each_rule_is_needed() {
    for canary in Canary::ALL {
        let caught = (0..CAUGHT).find(|seed| run(*seed, canary).is_err());
        println!("{canary:?} {caught:?}");
        assert!(caught.is_some(), "{canary:?} is not caught");
    }
}
