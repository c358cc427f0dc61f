//! The failure cases of §IV-E of the PMNet paper, one test for each, and the orderings of its Figure 7.
//!
//! The system has one client (0), a chain of devices (the paper's PMNet #1 is device 0, #2 is device 1), and a server.
//! Hop 0 is between clients and device 0. At the end of each test, the oracle judges.

use landfall_pmnet::client::CompletedBy;
use landfall_pmnet::wire::kind;
use landfall_sim::Violation;
use landfall_sim::pmnet::{Faults, PmnetSummary, PmnetWorld, Rule, Setup, Told, Way, Workload, cache_config};
use std::time::Duration;

type Outcome = Result<(), Violation>;

const KEY: u8 = 1;
/// Duration of a fence that ends before the acknowledgements of other devices arrive.
const QUICK: Duration = Duration::from_micros(20);
/// Longest wait for a condition.
const SOON: Duration = Duration::from_secs(10);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A system whose client has begun its session.
fn world(setup: Setup) -> Result<PmnetWorld, Violation> {
    let mut world = PmnetWorld::new(setup)?;
    world.run_for(millis(5))?;
    Ok(world)
}

fn update(world: &mut PmnetWorld) -> Result<usize, Violation> {
    Ok(world.update(0, KEY, 30)?.expect("there is room for a request"))
}

fn updates(world: &mut PmnetWorld, count: usize) -> Result<Vec<usize>, Violation> {
    (0..count).map(|_| update(world)).collect()
}

fn completed_by(world: &PmnetWorld, place: usize) -> Option<CompletedBy> {
    match world.told(0, place) {
        Told::Complete { by, .. } => Some(by),
        _ => None,
    }
}

fn until_complete(world: &mut PmnetWorld, places: &[usize]) -> Outcome {
    world.run_until("the updates are complete", SOON, |world| {
        places.iter().all(|place| completed_by(world, *place).is_some())
    })
}

fn until_applied(world: &mut PmnetWorld, count: usize) -> Outcome {
    world.run_until("the updates are applied", SOON, |world| applied(world) >= count)
}

/// Number of values that the register has had.
fn applied(world: &PmnetWorld) -> usize {
    world.held().registers.get(&KEY).map_or(0, Vec::len)
}

/// Finishes the run, and checks that so many updates are applied and all logs are empty.
fn ends_with(world: PmnetWorld, applied: u64) -> Outcome {
    let summary = finish(world)?;
    assert_eq!((summary.judged.applied, summary.stranded), (applied, 0), "{summary:?}");
    Ok(())
}

fn finish(world: PmnetWorld) -> Result<PmnetSummary, Violation> {
    world.finish(Duration::from_secs(60))
}

// ---- §IV-E1: intermittent failures ----

#[test]
fn device_fails_before_receiving_the_request() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    world.crash_device(0);
    let place = update(&mut world)?;
    world.run_for(millis(200))?;
    assert_eq!((world.told(0, place), applied(&world)), (Told::Nothing, 0));
    world.start_device(0)?;
    until_complete(&mut world, &[place])?;
    ends_with(world, 1)
}

#[test]
fn device_fails_after_accepting_and_after_its_ack() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    world.add_rule(Rule::lose(1, Way::Up, kind::UPDATE));
    let place = update(&mut world)?;
    until_complete(&mut world, &[place])?;
    assert_eq!((completed_by(&world, place), applied(&world)), (Some(CompletedBy::Devices), 0));
    world.crash_device(0);
    // Only the device has the update now.
    world.remove_client(0);
    world.clear_rules();
    world.start_device(0)?;
    until_applied(&mut world, 1)?;
    ends_with(world, 1)
}

#[test]
fn device_fails_after_accepting_and_before_its_ack() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    world.add_rule(Rule::lose(1, Way::Up, kind::UPDATE));
    world.add_rule(Rule::lose(0, Way::Down, kind::PMNET_ACK));
    let place = update(&mut world)?;
    world.run_for(millis(20))?;
    assert_eq!((world.told(0, place), world.log_of(0).len()), (Told::Nothing, 1));
    world.crash_device(0);
    world.start_device(0)?;
    assert_eq!(world.log_of(0).len(), 1, "a fenced update survives, acknowledged or not");
    world.clear_rules();
    world.add_rule(Rule::lose(1, Way::Up, kind::UPDATE));
    until_complete(&mut world, &[place])?;
    assert!(world.client(0).expect("it runs").stats().timeouts > 0, "the client has sent it again");
    assert_eq!((completed_by(&world, place), applied(&world)), (Some(CompletedBy::Devices), 0));
    ends_with(world, 1)
}

#[test]
fn device_fails_before_the_server_ack() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    world.add_rule(Rule::lose(1, Way::Down, kind::SERVER_ACK));
    let place = update(&mut world)?;
    until_applied(&mut world, 1)?;
    until_complete(&mut world, &[place])?;
    assert_eq!(world.log_of(0).len(), 1);
    world.crash_device(0);
    world.remove_client(0);
    world.clear_rules();
    world.start_device(0)?;
    world.run_until("the log is empty", SOON, |world| world.log_of(0).is_empty())?;
    let stats = world.server_stats().expect("it runs");
    assert!(stats.make_up_acks > 0 && stats.applied == 1, "{stats:?}");
    ends_with(world, 1)
}

// ---- §IV-E2: permanent failures ----

#[test]
fn device_2_is_lost_for_good_before_both_have_accepted() -> Outcome {
    let mut world = world(Setup::calm(1, 2, 0))?;
    world.add_rule(Rule::lose(1, Way::Up, kind::UPDATE));
    let place = update(&mut world)?;
    world.run_for(millis(20))?;
    assert_eq!((world.log_of(0).len(), world.log_of(1).len()), (1, 0));
    world.lose_device(1);
    world.clear_rules();
    world.run_for(millis(200))?;
    assert_eq!(world.told(0, place), Told::Nothing, "one device of two is not enough");
    world.start_device(1)?;
    until_complete(&mut world, &[place])?;
    ends_with(world, 1)
}

#[test]
fn device_2_is_lost_for_good_after_both_have_accepted() -> Outcome {
    let mut world = world(Setup::calm(1, 2, 0))?;
    world.add_rule(Rule::lose(2, Way::Up, kind::UPDATE));
    let places = updates(&mut world, 5)?;
    until_complete(&mut world, &places)?;
    assert_eq!((world.log_of(0).len(), world.log_of(1).len(), applied(&world)), (5, 5, 0));
    world.lose_device(1);
    world.remove_client(0);
    world.clear_rules();
    world.start_device(1)?;
    until_applied(&mut world, 5)?;
    ends_with(world, 5)
}

/// A chain whose devices have seen acknowledgements of each other, so that those in front keep their own back to merge
/// them. A fence of the first device takes up to `fence`.
fn joining_chain(devices: usize, fence: Duration) -> Result<PmnetWorld, Violation> {
    let mut setup = Setup::calm(1, devices, 0);
    for device in &mut setup.devices {
        (device.passes, device.config.keep_back) = (false, millis(5));
    }
    setup.devices[0].fence_us = fence.as_micros() as u64;
    let mut world = world(setup)?;
    let place = update(&mut world)?;
    until_complete(&mut world, &[place])?;
    world.run_for(millis(20))?;
    Ok(world)
}

/// Number of acknowledgements that a device has sent for itself alone.
fn acknowledged(world: &PmnetWorld, device: usize) -> u64 {
    world.device_stats(device).expect("it runs").acknowledged
}

#[test]
fn a_chain_acknowledges_in_one_packet() -> Outcome {
    let mut world = joining_chain(3, QUICK)?;
    let before = [0, 1, 2].map(|device| acknowledged(&world, device));
    // Acknowledgements of a single device are dropped from now on.
    world.add_rule(Rule::lose(0, Way::Down, kind::PMNET_ACK));
    world.add_rule(Rule::lose(3, Way::Down, kind::SERVER_ACK));
    let places = updates(&mut world, 5)?;
    until_complete(&mut world, &places)?;
    assert_eq!(world.client(0).expect("it runs").stats().timeouts, 0);
    assert_eq!([0, 1, 2].map(|device| acknowledged(&world, device) - before[device]), [0, 0, 5]);
    world.clear_rules();
    ends_with(world, 6)
}

#[test]
fn device_1_fails_before_its_fence_and_after_the_ack_of_device_2() -> Outcome {
    let mut world = joining_chain(2, millis(500))?;
    world.add_rule(Rule::lose(2, Way::Up, kind::UPDATE));
    let before = acknowledged(&world, 1);
    let place = update(&mut world)?;
    world.run_until("device 2 has acknowledged", SOON, |world| acknowledged(world, 1) > before)?;
    world.run_for(millis(2))?;
    assert_eq!(world.told(0, place), Told::Nothing, "device 1 has fenced nothing");
    world.crash_device(0);
    world.lose_device(1);
    world.clear_rules();
    world.start_device(0)?;
    world.start_device(1)?;
    assert_eq!((world.log_of(0), world.log_of(1)), (vec![], vec![]), "only the client has the update");
    until_complete(&mut world, &[place])?;
    ends_with(world, 2)
}

#[test]
fn a_chains_acknowledgement_is_lost_and_made_again() -> Outcome {
    let mut world = joining_chain(3, QUICK)?;
    for hop in 0..3 {
        world.add_rule(Rule::lose(hop, Way::Down, kind::JOINT_ACK));
        world.add_rule(Rule::lose(hop, Way::Down, kind::PMNET_ACK));
        world.add_rule(Rule::lose(3, Way::Down, kind::SERVER_ACK));
        let place = update(&mut world)?;
        world.run_for(millis(50))?;
        assert_eq!(world.told(0, place), Told::Nothing, "hop {hop}");
        world.clear_rules();
        world.add_rule(Rule::lose(3, Way::Down, kind::SERVER_ACK));
        until_complete(&mut world, &[place])?;
        assert_eq!(completed_by(&world, place), Some(CompletedBy::Devices));
        world.clear_rules();
        world.run_for(millis(500))?;
    }
    ends_with(world, 4)
}

#[test]
fn device_2_is_lost_for_good_while_device_1_keeps_its_ack_back() -> Outcome {
    let mut world = joining_chain(2, QUICK)?;
    world.lose_device(1);
    let place = update(&mut world)?;
    world.run_for(millis(200))?;
    assert_eq!(world.told(0, place), Told::Nothing, "one device of two is not enough");
    // The chain has one device now, and only its log can complete updates.
    world.set_devices(0, 1);
    until_complete(&mut world, &[place])?;
    let timeouts = world.client(0).expect("it runs").stats().timeouts;
    let places = updates(&mut world, 5)?;
    until_complete(&mut world, &places)?;
    let later = world.client(0).expect("it runs").stats().timeouts;
    assert_eq!(later, timeouts, "device 1 waits for no other device any more");
    world.start_device(1)?;
    ends_with(world, 7)
}

#[test]
fn a_replica_fails_before_the_server_ack() -> Outcome {
    const LOG: usize = 8;
    const UPDATES: usize = 20;
    let mut setup = Setup::calm(1, 2, 1);
    setup.devices.iter_mut().for_each(|device| device.limits.entries_max = LOG);
    let mut world = world(setup)?;
    world.stop_replica(0);
    let places = updates(&mut world, UPDATES)?;
    world.run_for(millis(300))?;
    let complete = places.iter().filter(|place| completed_by(&world, **place).is_some()).count();
    assert_eq!((complete, world.log_of(0).len(), world.log_of(1).len()), (LOG, LOG, LOG));
    assert_eq!(world.server_stats().expect("it runs").server_acks, 0);
    assert!(world.device_stats(0).expect("it runs").not_logged.values().sum::<u64>() > 0);
    assert!(world.client(0).expect("it runs").stats().timeouts > 0, "the client has timed out");
    world.start_replica(0);
    until_complete(&mut world, &places)?;
    ends_with(world, UPDATES as u64)
}

#[test]
fn a_replica_and_the_server_fail_before_the_server_ack() -> Outcome {
    let mut world = world(Setup::calm(1, 2, 1))?;
    world.stop_replica(0);
    let places = updates(&mut world, 10)?;
    until_complete(&mut world, &places)?;
    world.remove_client(0);
    world.crash_server();
    world.start_server()?;
    world.run_for(millis(200))?;
    // The batches on the server's own medium do not count without the replica, so that the server does not run yet.
    assert!(world.server_stats().is_none());
    assert_eq!((world.log_of(0).len(), world.log_of(1).len()), (10, 10));
    world.start_replica(0);
    until_applied(&mut world, 10)?;
    ends_with(world, 10)
}

#[test]
fn updates_that_only_lost_devices_had_are_lost_and_the_server_keeps_the_others() -> Outcome {
    let mut world = world(Setup::calm(1, 2, 0))?;
    let first = updates(&mut world, 3)?;
    until_applied(&mut world, 3)?;
    world.add_rule(Rule::lose(2, Way::Up, kind::UPDATE));
    let second = updates(&mut world, 2)?;
    until_complete(&mut world, &[first, second].concat())?;
    world.remove_client(0);
    world.lose_device(0);
    world.lose_device(1);
    let summary = finish(world)?;
    // This is the only case in which updates that were reported durable are lost: no copy of them is left.
    assert_eq!((summary.judged.applied, summary.judged.excused), (3, 2));
    Ok(())
}

// ---- §IV-E3: other components ----

#[test]
fn a_client_fails_with_a_gap_in_its_updates() -> Outcome {
    let mut world = world(Setup::calm(2, 1, 0))?;
    let second = Rule { seq: Some(2), ..Rule::lose(0, Way::Up, kind::UPDATE) };
    world.add_rule(second);
    let places = updates(&mut world, 4)?;
    world.run_for(millis(20))?;
    let complete: Vec<bool> = places.iter().map(|place| completed_by(&world, *place).is_some()).collect();
    assert_eq!(complete, [true, false, false, false], "nothing behind the gap is reported");
    world.remove_client(0);
    world.run_for(millis(500))?;
    assert_eq!((applied(&world), world.log_of(0).len()), (1, 2));
    // The gap does not block the other client.
    let place = world.update(1, KEY, 0)?.expect("there is room");
    world.run_until("the other's update is applied", SOON, |world| {
        applied(world) == 2 && matches!(world.told(1, place), Told::Complete { .. })
    })?;
    let summary = finish(world)?;
    assert_eq!((summary.judged.applied, summary.stranded), (2, 2));
    Ok(())
}

#[test]
fn a_switch_without_memory_fails_for_a_while() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    let lasts = millis(300);
    for hop in [0, 1] {
        world.inject(landfall_sim::pmnet::Fault::Partition { hop, up: true, down: true, lasts })?;
    }
    let places = updates(&mut world, 5)?;
    world.run_for(millis(250))?;
    assert_eq!((world.told(0, places[0]), applied(&world)), (Told::Nothing, 0));
    until_complete(&mut world, &places)?;
    ends_with(world, 5)
}

// ---- Figure 7 ----

#[test]
fn figure_7a_reordered_packets_are_applied_in_their_order() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    let first = Rule { seq: Some(1), late: Some(millis(3)), ..Rule::lose(1, Way::Up, kind::UPDATE) };
    world.add_rule(Rule { count: 1, ..first });
    updates(&mut world, 3)?;
    until_applied(&mut world, 3)?;
    ends_with(world, 3)
}

#[test]
fn figure_7b_a_lost_packet_is_sent_again_by_the_device_without_the_client() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    let second = Rule { seq: Some(2), count: 1, ..Rule::lose(1, Way::Up, kind::UPDATE) };
    world.add_rule(second);
    updates(&mut world, 3)?;
    until_applied(&mut world, 3)?;
    let (device, client) = (world.device_stats(0).expect("it runs"), world.client(0).expect("it runs"));
    assert_eq!(device.retransmissions_answered, 1);
    assert_eq!((client.stats().retransmit_requests, client.stats().sent_again), (0, 0));
    ends_with(world, 3)
}

#[test]
fn a_packet_lost_in_front_of_the_device_is_sent_again_by_the_client() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    let second = Rule { seq: Some(2), count: 1, ..Rule::lose(0, Way::Up, kind::UPDATE) };
    world.add_rule(second);
    let places = updates(&mut world, 3)?;
    until_complete(&mut world, &places)?;
    assert_eq!(world.client(0).expect("it runs").stats().retransmit_requests, 1);
    ends_with(world, 3)
}

#[test]
fn figure_7c_updates_that_are_sent_again_after_the_server_failed_are_applied_in_order() -> Outcome {
    let mut world = world(Setup::calm(1, 1, 0))?;
    let first = updates(&mut world, 3)?;
    until_applied(&mut world, 3)?;
    world.crash_server();
    let second = updates(&mut world, 20)?;
    until_complete(&mut world, &[first, second].concat())?;
    world.remove_client(0);
    // Logged updates arrive in another order than they were sent in.
    for seq in [4, 9, 17] {
        let late = Some(millis(seq));
        world.add_rule(Rule {
            seq: Some(seq as u32),
            late,
            count: 1,
            ..Rule::lose(1, Way::Up, kind::UPDATE)
        });
    }
    world.start_server()?;
    until_applied(&mut world, 23)?;
    ends_with(world, 23)
}

#[test]
fn packets_that_arrive_twice_are_applied_once() -> Outcome {
    let mut setup = Setup::calm(1, 2, 0);
    let doubled = Faults { doubled: 100, late: 50, late_us: 500, ..Faults::default() };
    setup.links.fill([doubled; 2]);
    let mut world = world(setup)?;
    let places = updates(&mut world, 30)?;
    until_complete(&mut world, &places)?;
    ends_with(world, 30)
}

// ---- §IV-D: the read cache ----

/// A client that the test drives, a client that reads register 0 repeatedly, each time in another session, and a chain
/// of two devices, of which the one next to the server has a cache. Devices do not send updates again by themselves.
fn cached_chain() -> Setup {
    let mut setup = Setup::calm(2, 2, 0);
    let reads = Workload { requests: 200, session_requests: 1, bypasses: 100, gets: 100, ..Workload::NONE };
    setup.clients[1] = Workload { pause_us: 500, ..reads };
    setup.devices.iter_mut().for_each(|device| device.config.resend_after = millis(10_000));
    setup.devices[1].config.cache = Some(cache_config());
    setup
}

/// Client 0 sets register 0 until the update is complete. No update reaches the server from now on.
fn update_in_logs_only(world: &mut PmnetWorld) -> Outcome {
    world.add_rule(Rule::lose(2, Way::Up, kind::UPDATE));
    let place = world.update(0, 0, 30)?.expect("there is room for a request");
    until_complete(world, &[place])
}

#[test]
fn reads_are_answered_from_the_cache_while_updates_are_under_way() -> Outcome {
    let mut world = world(cached_chain())?;
    update_in_logs_only(&mut world)?;
    world.run_for(millis(50))?;
    assert_eq!(world.held().register(0), 0, "only logs have the update");
    world.clear_rules();
    let summary = finish(world)?;
    assert!(summary.judged.from_cache > 20, "{summary:?}");
    Ok(())
}

#[test]
fn the_cache_of_a_device_that_replaces_a_lost_one_waits_for_the_logs_of_the_others() -> Outcome {
    let mut world = world(cached_chain())?;
    update_in_logs_only(&mut world)?;
    // The update is complete, and only in the log of device 0. The server still has the old value.
    world.lose_device(1);
    world.start_device(1)?;
    world.run_for(millis(50))?;
    world.clear_rules();
    ends_with(world, 1)
}

#[test]
fn a_read_that_misses_the_cache_may_return_an_older_value_than_a_cache_has_answered() -> Outcome {
    let mut setup = cached_chain();
    setup.clients.push(Workload::NONE);
    (setup.clients[1].requests, setup.clients[1].session_requests) = (400, 1000);
    let mut world = world(setup)?;
    update_in_logs_only(&mut world)?;
    world.run_for(millis(5))?;
    // After another session's update, the cached key is stale, and reads go to the server, which has applied neither
    // update.
    world.update(2, 0, 30)?;
    world.run_for(millis(5))?;
    assert_eq!(world.held().register(0), 0);
    let reads = (0..50).filter_map(|place| match world.told(1, place) {
        Told::Value { value, from_cache, .. } => Some((value, from_cache)),
        _ => None,
    });
    let mut reads = reads.skip_while(|read| *read != (1, true));
    assert!(reads.any(|read| read == (0, false)), "the server answers with its old value");
    world.clear_rules();
    ends_with(world, 2)
}
