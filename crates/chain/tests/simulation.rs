//! The rules of a chain under every fault at once: nodes that crash and come back with or without what was not fenced,
//! connections that break with messages under way, views that reach nodes at different times. The nodes around the rules
//! are a model; the canaries show that each rule is needed.

mod model;

use model::{Canary, World};
use std::ops::Range;

/// Seeds of a run, if nothing else is said.
const SEEDS: u64 = 300;
/// Steps with faults of one seed.
const STEPS: usize = 10_000;

/// The seeds of a run: `LANDFALL_SIM_SEEDS` from `LANDFALL_SIM_SEED` on.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("LANDFALL_SIM_SEED").unwrap_or(0);
    first..first + number("LANDFALL_SIM_SEEDS").unwrap_or(SEEDS)
}

/// What is wrong after a run.
fn run(seed: u64, canary: Canary) -> Result<u64, String> {
    let mut world = World::new(seed, canary);
    (0..STEPS).for_each(|_| world.step());
    world.heal()?;
    world.judge()
}

#[test]
fn nothing_acknowledged_is_lost_and_all_nodes_have_the_same() {
    let mut acknowledged = 0;
    let count = seeds().count() as u64;
    for seed in seeds() {
        let again = format!(
            "LANDFALL_SIM_SEED={seed} LANDFALL_SIM_SEEDS=1 cargo test -p landfall-chain --test simulation"
        );
        acknowledged += run(seed, Canary::None).unwrap_or_else(|wrong| panic!("{again}: {wrong}"));
    }
    assert!(count < SEEDS || acknowledged > count * 20, "they did write: {acknowledged}");
}

#[test]
fn each_rule_is_needed() {
    for canary in Canary::ALL {
        let caught = (0..30_000).find(|seed| run(*seed, canary).is_err());
        println!("{canary:?} {caught:?}");
        assert!(caught.is_some(), "{canary:?} is not caught");
    }
}
