//! Tests of a server that has lost confirmed batches: a client learns of every update that was reported durable and is
//! lost.

use landfall_pmnet::wire::kind;
use landfall_sim::pmnet::{Broken, End, PmnetWorld, Rule, Setup, Way, judge_gone_back};
use landfall_sim::{Rng, Violation};
use std::time::Duration;

const SEEDS: u64 = 300;
const CLIENTS: usize = 3;

/// Result of a run: the number of sessions that lost updates, and of updates in logs.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    told: u64,
    held: usize,
}

/// Several clients send updates, some of which only devices acknowledge. Then the server loses some of its batches and
/// starts again, and the clients continue.
fn run(seed: u64, broken: Option<Broken>) -> Result<Outcome, Violation> {
    let mut rng = Rng::new(seed);
    let devices = rng.between(0, 2);
    let mut world = PmnetWorld::new(Setup { seed, broken, ..Setup::calm(CLIENTS, devices, 0) })?;
    world.run_for(Duration::from_millis(5))?;
    let begun = world.batches();
    burst(&mut world, &mut rng)?;
    world.run_for(Duration::from_millis(50))?;
    if devices > 0 && rng.one_in(2) {
        // These updates are only in the devices' logs.
        world.add_rule(Rule::lose(devices, Way::Up, kind::UPDATE));
        burst(&mut world, &mut rng)?;
        world.run_for(Duration::from_millis(5))?;
    }
    let lost = rng.between(1, world.batches() - begun);
    world.server_goes_back(lost);
    if rng.one_in(2) {
        burst(&mut world, &mut rng)?;
        world.run_for(Duration::from_millis(5))?;
    }
    world.clear_rules();
    world.start_server()?;
    world.run_for(Duration::from_millis(rng.between(1, 100) as u64))?;
    burst(&mut world, &mut rng)?;
    world.run_for(Duration::from_secs(20))?;
    let told =
        judge_gone_back(world.history(), world.held()).map_err(|violation| world.explain(violation))?;
    let held = (0..devices).map(|device| world.log_of(device).len()).sum();
    Ok(Outcome { told, held })
}

/// Gives some updates to clients that have a session.
fn burst(world: &mut PmnetWorld, rng: &mut Rng) -> Result<(), Violation> {
    for client in 0..CLIENTS {
        for _ in 0..rng.between(0, 6) {
            if world.client(client).is_some() {
                world.update(client, client as u8, 20)?;
                world.run_for(Duration::from_micros(rng.between(1, 400) as u64))?;
            }
        }
    }
    Ok(())
}

#[test]
fn clients_whose_updates_the_server_has_lost_are_told_and_logs_keep_their_updates() {
    let outcomes: Vec<Outcome> = (0..SEEDS)
        .map(|seed| run(seed, None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}")))
        .collect();
    let told: u64 = outcomes.iter().map(|outcome| outcome.told).sum();
    let held = outcomes.iter().filter(|outcome| outcome.held > 0).count();
    println!(
        "{SEEDS} seeds: {told} sessions lost updates and were told; in {held} runs, logs keep updates of them"
    );
    assert!(told > SEEDS / 2 && held > 10, "{told} {held}");
}

#[test]
fn a_server_that_ignores_what_was_confirmed_is_caught() {
    let caught = (0..SEEDS).find_map(|seed| run(seed, Some(Broken::ConfirmedUnheard)).err());
    let Violation(what) = caught.expect("the server loses confirmed updates without telling their clients");
    assert!(what.contains("was not told"), "{what}");
}

#[test]
fn a_session_that_has_lost_nothing_continues() -> Result<(), Violation> {
    let mut world = PmnetWorld::new(Setup::calm(2, 1, 0))?;
    world.run_for(Duration::from_millis(5))?;
    world.update(0, 1, 20)?;
    world.run_for(Duration::from_millis(20))?;
    world.update(1, 2, 20)?;
    world.run_for(Duration::from_millis(20))?;
    world.server_goes_back(1);
    world.start_server()?;
    world.run_for(Duration::from_secs(5))?;
    let ends: Vec<End> = world.history().sessions.iter().map(|session| session.end).collect();
    assert_eq!(ends, [End::Open, End::Behind]);
    assert_eq!(judge_gone_back(world.history(), world.held())?, 1);
    Ok(())
}
