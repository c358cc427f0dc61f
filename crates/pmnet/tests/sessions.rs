//! Simulated clients and a server in a network that loses up to 30 % of the packets, and repeats, delays and reorders
//! them. There are devices on the path, and the server crashes.
//!
//! Invariants: every update is applied once and in its session's order. Every update that was reported as complete is
//! applied in the end. A session reads its own writes. The devices' logs become empty.

#[path = "sessions/application.rs"]
mod application;
#[path = "sessions/network.rs"]
mod network;
#[path = "sessions/world.rs"]
mod world;

use network::Faults;
use world::{Plan, World};

const CALM: Plan = Plan {
    clients: 2,
    devices: 1,
    sessions: 2,
    requests: 60,
    faults: Faults { loss: 0, twice: 0, late: 0 },
    crashes: 0,
    failures: 0,
    declines: 0,
    loses_device: false,
    reorder_max: 4096,
};

const ROUGH: Faults = Faults { loss: 30, twice: 20, late: 30 };

/// Prints the seed and the plan of a run that fails.
struct Naming(u64, Plan);

#[expect(clippy::print_stderr, reason = "the seed of a failed run is printed")]
impl Drop for Naming {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: {:?}", self.0, self.1);
        }
    }
}

/// Crashes of the server, responses lost by them, and rows evicted.
#[derive(Default, Debug)]
struct Happened {
    crashes: u32,
    lost: u32,
    evicted: u32,
}

/// Runs one world for each seed.
fn campaign(seeds: std::ops::Range<u64>, plan: impl Fn(u64) -> Plan) -> Happened {
    let mut happened = Happened::default();
    for seed in seeds {
        let plan = plan(seed);
        let _naming = Naming(seed, plan);
        let mut world = World::new(seed, plan);
        world.run();
        happened.crashes += world.crashes;
        happened.lost += world.lost;
        happened.evicted += world.evicted;
    }
    happened
}

#[test]
fn sessions_end_with_everything_applied_without_faults() {
    campaign(0..20, |seed| Plan { devices: (seed % 4) as u8, ..CALM });
}

#[test]
fn sessions_survive_a_rough_network_without_devices() {
    campaign(1000..1080, |_| Plan { devices: 0, faults: ROUGH, ..CALM });
}

#[test]
fn sessions_survive_a_rough_network_with_devices() {
    let plan =
        |seed| Plan { devices: 1 + (seed % 3) as u8, faults: ROUGH, declines: 10 * (seed % 3), ..CALM };
    campaign(2000..2060, plan);
}

#[test]
fn sessions_survive_crashes_of_the_server() {
    let crashing = |seed| Plan { devices: (seed % 3) as u8, crashes: 1, faults: faults(seed), ..CALM };
    let happened = campaign(3000..3100, crashing);
    assert!(happened.crashes > 100 && happened.lost > 0, "{happened:?}");
}

#[test]
fn sessions_survive_work_that_fails() {
    campaign(4000..4060, |seed| Plan { devices: (seed % 3) as u8, failures: 10, crashes: seed % 2, ..CALM });
}

#[test]
fn sessions_survive_the_loss_of_a_device_with_its_log() {
    campaign(5000..5050, |seed| Plan {
        devices: 1 + (seed % 3) as u8,
        loses_device: true,
        crashes: seed % 2,
        faults: faults(seed),
        ..CALM
    });
}

#[test]
fn rows_of_many_sessions_are_evicted_and_numbers_are_never_used_twice() {
    let many = |seed| Plan { sessions: 12, requests: 8, crashes: seed % 2, faults: faults(seed), ..CALM };
    let happened = campaign(6000..6050, many);
    assert!(happened.evicted > 100, "{happened:?}");
}

#[test]
fn sessions_survive_a_reorder_buffer_of_a_few_packets() {
    campaign(7000..7040, |seed| Plan { reorder_max: 16, faults: ROUGH, devices: (seed % 2) as u8, ..CALM });
}

/// From no faults up to [`ROUGH`].
fn faults(seed: u64) -> Faults {
    let share = seed % 4;
    Faults { loss: 10 * share, twice: 7 * share, late: 10 * share }
}
