//! Tests of silent sessions: the server ends the sessions of crashed clients and evicts their rows, and no update that
//! was reported durable is lost. The canaries: a server that does not ask devices, and a client that ignores its lease,
//! must be caught.

use landfall_pmnet::server::Silence;
use landfall_pmnet::wire::kind;
use landfall_sim::Violation;
use landfall_sim::pmnet::{Broken, Fault, PmnetSummary, PmnetWorld, Rule, Setup, Told, Way};
use std::time::Duration;

const KEY: u8 = 1;
/// The silence after which a session ends. The lease is 2 s.
const AFTER: Duration = Duration::from_secs(8);
const SOON: Duration = Duration::from_secs(60);

/// A system without faults in which silent sessions end.
fn world(clients: usize, devices: u8, broken: Option<Broken>) -> Result<PmnetWorld, Violation> {
    let mut setup = Setup::calm(clients, devices.into(), 0);
    setup.server.config.silence = Some(Silence { devices, after: AFTER });
    setup.broken = broken;
    let mut world = PmnetWorld::new(setup)?;
    world.run_for(Duration::from_millis(5))?;
    Ok(world)
}

fn complete(world: &mut PmnetWorld, client: usize) -> Result<(), Violation> {
    let place = world.update(client, KEY, 30)?.expect("there is room for a request");
    world.run_until("the update is complete", SOON, |world| {
        matches!(world.told(client, place), Told::Complete { .. })
    })
}

/// Devices acknowledge three updates, which do not reach the server, and their client crashes. The updates reach the
/// server much later than the silence.
fn held_updates_outlast_the_silence(broken: Option<Broken>) -> Result<PmnetSummary, Violation> {
    let mut world = world(1, 2, broken)?;
    complete(&mut world, 0)?;
    world.add_rule(Rule::lose(2, Way::Up, kind::UPDATE));
    for _ in 0..3 {
        complete(&mut world, 0)?;
    }
    world.remove_client(0);
    world.run_for(3 * AFTER)?;
    let stats = world.server_stats().expect("it runs");
    if broken.is_none() {
        assert!(stats.held_requests > 0 && stats.held_by_devices > 0, "{stats:?}");
        assert_eq!(world.open_rows(), 1, "the row remains");
    }
    world.clear_rules();
    world.finish(SOON)
}

#[test]
fn a_row_remains_only_while_a_device_holds_updates_of_its_session() -> Result<(), Violation> {
    let summary = held_updates_outlast_the_silence(None)?;
    assert_eq!((summary.judged.applied, summary.ended_by_silence), (4, 1), "{summary:?}");
    Ok(())
}

#[test]
fn a_server_that_ends_a_session_of_which_a_device_holds_updates_is_caught() {
    let violation =
        held_updates_outlast_the_silence(Some(Broken::EndsUnasked)).expect_err("the updates are lost");
    assert!(violation.0.contains("lost") || violation.0.contains("in the log"), "{}", violation.0);
}

/// A client is cut off for longer than a silence, and then continues.
fn a_client_comes_back(broken: Option<Broken>) -> Result<PmnetSummary, Violation> {
    let mut world = world(1, 1, broken)?;
    complete(&mut world, 0)?;
    world.inject(Fault::Partition { hop: 0, up: true, down: true, lasts: 2 * AFTER })?;
    world.run_for(2 * AFTER + Duration::from_millis(1))?;
    assert_eq!(world.server_stats().expect("it runs").ended_by_silence, 1);
    world.update(0, KEY, 30)?;
    world.run_for(Duration::from_secs(10))?;
    world.finish(SOON)
}

#[test]
fn a_client_that_returns_after_its_session_has_ended_is_told_and_has_no_false_acknowledgement()
-> Result<(), Violation> {
    let summary = a_client_comes_back(None)?;
    assert_eq!(
        (summary.told_gone, summary.judged.complete, summary.judged.applied),
        (1, 1, 1),
        "{summary:?}"
    );
    Ok(())
}

#[test]
fn a_client_that_accepts_acknowledgements_after_its_lease_is_caught() {
    let violation =
        a_client_comes_back(Some(Broken::LeaseIgnored)).expect_err("an acknowledged update is lost");
    assert!(violation.0.contains("lost"), "{}", violation.0);
}

#[test]
fn a_client_that_is_cut_off_for_less_than_a_silence_continues_its_session() -> Result<(), Violation> {
    let mut world = world(1, 1, None)?;
    complete(&mut world, 0)?;
    world.inject(Fault::Partition { hop: 0, up: true, down: true, lasts: AFTER / 2 })?;
    world.run_for(AFTER / 2)?;
    complete(&mut world, 0)?;
    assert!(world.client(0).expect("it runs").stats().lapses > 0);
    let summary = world.finish(SOON)?;
    assert_eq!((summary.told_gone, summary.judged.applied), (0, 2), "{summary:?}");
    Ok(())
}

#[test]
fn an_idle_client_keeps_its_session() -> Result<(), Violation> {
    let mut world = world(2, 2, None)?;
    complete(&mut world, 0)?;
    world.run_for(20 * AFTER)?;
    assert_eq!((world.open_rows(), world.server_stats().expect("it runs").held_requests), (2, 0));
    complete(&mut world, 0)?;
    complete(&mut world, 1)?;
    let summary = world.finish(SOON)?;
    assert_eq!((summary.ended_by_silence, summary.judged.applied), (0, 3));
    Ok(())
}

#[test]
fn rows_remain_while_a_device_is_down() -> Result<(), Violation> {
    let mut world = world(1, 2, None)?;
    complete(&mut world, 0)?;
    world.crash_device(0);
    world.remove_client(0);
    world.run_for(10 * AFTER)?;
    assert_eq!(world.open_rows(), 1);
    world.start_device(0)?;
    let summary = world.finish(Duration::from_secs(200))?;
    assert_eq!(summary.ended_by_silence, 1);
    Ok(())
}

/// The rows of clients that crash repeatedly, all with one address, are evicted.
#[test]
fn clients_that_crash_repeatedly_leave_no_rows() -> Result<(), Violation> {
    let mut world = world(2, 1, None)?;
    for _ in 0..40 {
        world.inject(Fault::ClientCrash { client: 0 })?;
        world.inject(Fault::ClientCrash { client: 1 })?;
        world.restart_client(0)?;
        world.restart_client(1)?;
        world.run_for(Duration::from_secs(1))?;
        assert!(world.open_rows() <= 2 * 12, "{}", world.open_rows());
    }
    let summary = world.finish(SOON)?;
    assert!(summary.ended_by_silence > 40, "{summary:?}");
    Ok(())
}
