//! Model checking of the read cache with a server and a network: every order of events, for small plans.

mod cache_world;

use std::collections::BTreeSet;

use cache_world::Does::{Begins, Changes, ChangesAny, Ends, Sets};
use cache_world::{Event, Plan, World};
use crc_fast::CrcAlgorithm;

/// Most states of a plan. A plan with more states is too large for a test.
const STATES_MAX: usize = 400_000;

/// Result of an exploration.
#[derive(Debug)]
struct Explored {
    states: usize,
    hits: usize,
    hits_after_restart: usize,
}

fn fingerprint(world: &World) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, format!("{world:?}").as_bytes())
}

/// Visits every state that an order of events can reach, and checks the values that the cache serves in it.
fn explore(plan: &Plan) -> Explored {
    let mut seen = BTreeSet::new();
    let mut steps: Vec<(usize, Option<Event>)> = vec![(0, None)];
    let mut frontier = vec![(World::new(plan), 0)];
    let mut explored = Explored { states: 1, hits: 0, hits_after_restart: 0 };
    seen.insert(fingerprint(&frontier[0].0));
    while let Some((world, at)) = frontier.pop() {
        for event in world.events(plan) {
            let mut next = world.clone();
            next.step(plan, event);
            if !seen.insert(fingerprint(&next)) {
                continue;
            }
            steps.push((at, Some(event)));
            explored.states += 1;
            let hits = next.check(plan).unwrap_or_else(|why| {
                panic!("{why}\n{plan:?}\n{:#?}\n{next:?}", path(&steps, steps.len() - 1))
            });
            explored.hits += hits;
            explored.hits_after_restart += if next.has_restarted() { hits } else { 0 };
            assert!(explored.states < STATES_MAX, "too large: {plan:?}");
            frontier.push((next, steps.len() - 1));
        }
    }
    explored
}

/// The events that led to a state, in order.
fn path(steps: &[(usize, Option<Event>)], mut at: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while let (before, Some(event)) = steps[at] {
        events.push(event);
        at = before;
    }
    events.reverse();
    events
}

fn explore_all(plans: &[Plan]) {
    for plan in plans {
        let explored = explore(plan);
        assert!(explored.hits > 0, "no value was served: {plan:?}");
        assert!(
            plan.restarts == 0 || explored.hits_after_restart > 0,
            "no value was served after a restart: {plan:?}"
        );
    }
}

fn plan(first: &[cache_world::Does], second: &[cache_world::Does]) -> Plan {
    Plan { updates: [first.to_vec(), second.to_vec()], window: 4, ..Plan::default() }
}

#[test]
fn a_served_value_is_never_older_than_a_complete_update() {
    explore_all(&[
        plan(&[Sets(0), Sets(0)], &[Sets(0)]),
        plan(&[Sets(0), Sets(1)], &[Sets(1), Sets(0)]),
        plan(&[Sets(0), Sets(1), Sets(0)], &[Sets(0)]),
        plan(&[Sets(0), Changes(0), Sets(0)], &[Sets(1)]),
        plan(&[Sets(0), ChangesAny(1)], &[Sets(0), Sets(1)]),
    ]);
}

#[test]
fn pieces_in_any_order_leave_no_value_that_the_whole_update_replaces() {
    explore_all(&[
        plan(&[Sets(0), Begins(0), Ends(0)], &[Sets(1)]),
        plan(&[Begins(0), Ends(0), Sets(0)], &[Sets(0)]),
        Plan { reads: vec![(1, 0)], ..plan(&[Begins(0), Ends(0)], &[Sets(1)]) },
        Plan { restarts: 1, window: 1, reads: vec![(1, 0), (1, 0)], ..plan(&[Begins(0), Ends(0)], &[]) },
    ]);
}

#[test]
fn responses_to_reads_are_stored_only_if_their_key_cannot_have_changed() {
    explore_all(&[
        Plan { reads: vec![(0, 0), (1, 0)], ..plan(&[Sets(0)], &[]) },
        Plan { reads: vec![(1, 0)], ..plan(&[Sets(0), Sets(0)], &[Sets(0)]) },
        Plan { reads: vec![(1, 0)], ..plan(&[Sets(0), ChangesAny(1)], &[]) },
    ]);
}

#[test]
fn bypasses_that_change_a_key_are_never_missed() {
    explore_all(&[
        Plan { changes: vec![(1, 0)], ..plan(&[Sets(0), Sets(0)], &[]) },
        Plan { changes: vec![(1, 0)], reads: vec![(0, 0)], ..plan(&[Sets(0)], &[]) },
    ]);
}

#[test]
fn a_restarted_device_serves_only_values_that_it_can_know() {
    explore_all(&[
        Plan { restarts: 1, window: 1, ..plan(&[Sets(0), Sets(0), Sets(0)], &[Sets(0)]) },
        Plan { restarts: 1, window: 1, reads: vec![(1, 0), (1, 0)], ..plan(&[Sets(0)], &[]) },
    ]);
}
