//! A client that stores random words anywhere it can: into the control memory, its slab and its landing runs, at any time.
//! It harms its own log and its own file.

mod common;

use common::{Library, Server, World, region};
use landfall_fs_link::CONTROL_WORDS;
use landfall_heap::{RECORD_SIZE, RunId};
use landfall_media::Media;
use landfall_media::sim::{SimMedia, SimOptions};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

#[derive(Clone, Debug)]
enum Step {
    /// A word of the control memory, and its value.
    Word(usize, u64),
    /// A byte of a slot, and its value.
    Slot(u64, u8),
    /// A byte of a landing run, and its value.
    Data(u64, u64, u8),
    Append(u64, usize),
    Adopt,
    Publish,
    Compact,
    MountWrite(u64, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![0..20_u64, any::<u64>()];
    let word = prop_oneof![3 => 8..20_usize, 1 => 0..CONTROL_WORDS];
    prop_oneof![
        3 => (word, value).prop_map(|(word, value)| Step::Word(word, value)),
        2 => (0..16 * RECORD_SIZE, any::<u8>()).prop_map(|(at, value)| Step::Slot(at, value)),
        2 => (0..2_u64, 0..65_536_u64, any::<u8>()).prop_map(|(run, at, value)| Step::Data(run, at, value)),
        8 => (0..8_u64, 1..9000_usize).prop_map(|(block, len)| Step::Append(block * 4096, len)),
        4 => Just(Step::Adopt),
        2 => Just(Step::Publish),
        1 => Just(Step::Compact),
        2 => (0..40_000_u64, any::<u8>()).prop_map(|(offset, value)| Step::MountWrite(offset, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fuzz_a_client_that_stores_random_words_harms_nobody_else(
        steps in prop::collection::vec(step(), 1..60), is_again: bool,
    ) {
        let mut world = World::open(region());
        let (own, other) = (world.create("own"), world.create("other"));
        let mut server = if is_again { Server::attach_again(&mut world) } else { Server::attach(&mut world) };
        let mut library = Library::new(&world, &server);
        let mut lease = server.lease(own);
        let (slab, first) = (server.control().slab(0).expect("granted").run, server.control().landing(0));
        let landings: [RunId; 2] = [first.expect("granted"), server.control().landing(1).expect("granted")];
        let (mut expected, mut is_running, mut is_honest) = (Vec::new(), true, true);
        for step in &steps {
            match *step {
                Step::Word(at, value) => {
                    is_honest = false;
                    server.memory[at].store(value, Ordering::Relaxed);
                }
                Step::Slot(at, value) => world.media.store(slab.off() + at, &[value]).expect("stores"),
                Step::Data(run, at, value) => {
                    world.media.store(landings[run as usize].off() + at, &[value]).expect("stores");
                }
                // The library itself needs what the server says.
                Step::Append(offset, len) if is_honest && is_running && library.appended < 200 => {
                    library.append(&mut lease, offset, &vec![len as u8; len], 50);
                }
                Step::Adopt if is_running => {
                    is_running = server.adopt().is_ok();
                    if !is_running {
                        world.files.end_client(server.log.client());
                    }
                }
                Step::Publish => world.publish(),
                Step::Compact => world.compact(),
                Step::MountWrite(offset, value) => {
                    world.write(other, offset, &[value; 700]);
                    let end = offset as usize + 700;
                    expected.resize(expected.len().max(end), 0);
                    expected[offset as usize..end].fill(value);
                }
                _ => {}
            }
            prop_assert!(world.bytes(other) == expected);
        }
        let _ = server.adopt();
        server.end(&mut world);
        prop_assert_eq!(world.files.clients(), Vec::<u32>::new());
        prop_assert!(world.bytes(other) == expected);
        world.compact();
        world.files.sync_all().expect("syncs");
        let left = world.media.crash_state().durable();
        let again = World::open_damaged(SimMedia::restart(&left, SimOptions::default())).0;
        prop_assert!(again.bytes(again.find("other")) == expected);
    }
}
