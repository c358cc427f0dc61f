//! Random operations, publishing, compaction and restarts against a model; and crashes at any store, flush or fence.
//!
//! After a crash, the tree is what the model was after some operation that is not older than the last one known to be
//! durable.

mod common;

use common::model::{Pair, assert_same, config, step};
use common::{Medium, ROOT, World, check, region};
use landfall_fs::{Calls, ExtendedName, FileType, InodeNumber, Mode, Name, Operation};
use landfall_heap::{CompactGoal, RunUse};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{ChunkSet, Evict, Pages};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn medium() -> impl Strategy<Value = Medium> {
    prop::sample::select(Medium::ALL.to_vec())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn files_are_what_the_model_is(
        steps in prop::collection::vec(step(), 1..60), restart in 0..60_usize, kind in medium(),
    ) {
        let mut pair = Pair::of(World::open(kind.region()));
        for (at, step) in steps.iter().enumerate() {
            pair.run(step);
            assert_same(&pair.world.view(), &pair.model.view(), &format!("after {at}: {step:?}"));
            prop_assert_eq!(&pair.world.files.calls(), &pair.calls);
            if at == restart {
                pair.world.files.sync_all().expect("syncs");
                pair.world = pair.world.reopened();
                assert_same(&pair.world.view(), &pair.model.view(), "after a restart");
                prop_assert_eq!(&pair.world.files.calls(), &pair.calls);
            }
        }
        pair.world.publish();
        let tree = check(pair.world.media);
        prop_assert_eq!(tree.inodes, pair.model.0.len() as u64);
        prop_assert_eq!(tree.names, pair.model.0.values().map(|inode| inode.names.len() as u64).sum::<u64>());
    }

    #[test]
    fn a_crash_leaves_what_a_prefix_of_the_operations_makes(
        steps in prop::collection::vec(step(), 1..50), crash in 0..1000_u64, again in 0..1000_u64, seed: u64,
        kind in medium(),
    ) {
        // The first run learns how many operations the medium sees.
        let mut pair = Pair::of(World::open(kind.region()));
        let begin = pair.world.media.ops().total();
        steps.iter().for_each(|step| pair.run(step));
        let all = pair.world.media.ops().total() - begin;
        let mut pair = Pair::of(World::open(kind.region()));
        pair.world.media.freeze_at(begin + all * crash / 1000);
        steps.iter().for_each(|step| pair.run(step));
        pair.world.files.sync_all().expect("syncs");
        let state = pair.world.media.frozen().unwrap_or_else(|| pair.world.media.crash_state());
        let image = state.draw(seed);
        let medium = || kind.restart(&image);
        check(medium());
        let mut world = World::open(medium());
        let seen = world.view();
        let possible = &pair.states[pair.durable - 1..];
        let of_files: Vec<&Calls> = possible.iter().filter(|(view, _)| *view == seen).map(|(_, calls)| calls).collect();
        prop_assert!(!of_files.is_empty(), "no prefix: {:?}", seen.keys());
        // A call is known to be done if, and only if, what it has done is there.
        let calls = world.files.calls();
        prop_assert!(of_files.contains(&&calls), "{calls:?}");
        // Another crash, while the files are being opened, changes nothing.
        let medium = medium();
        medium.freeze_at(world.media.ops().total() * again / 1000);
        drop(World::open(Arc::clone(&medium)));
        let state = medium.frozen().unwrap_or_else(|| medium.crash_state());
        let twice = kind.restart(&state.draw(seed ^ 1));
        check(Arc::clone(&twice));
        let twice = World::open(twice);
        assert_same(&twice.view(), &seen, "after a crash of recovery");
        prop_assert_eq!(twice.files.calls(), calls.clone());
        // The tree that was recovered can be changed, published and read again.
        world.create(ROOT, "new", FileType::File);
        world.publish();
        world.compact(CompactGoal::DENSE_DATA);
        let seen = world.view();
        let world = world.reopened();
        prop_assert_eq!((world.view(), world.files.calls()), (seen, calls));
    }
}

/// The canary of paging: what leaves memory before it is durable is missed.
#[test]
fn bytes_of_files_that_leave_memory_before_they_are_durable_are_noticed() {
    for deferred in [false, true] {
        let kind = Medium { deferred, ..Medium::ALL[3] };
        let mut world = World::open(kind.region());
        let file = world.create(ROOT, "a", FileType::File);
        world.write(file, 0, &[7; 300_000]);
        let before = world.view();
        world.evict();
        assert_eq!(world.view(), before, "what may leave is read again");
        let data = world.files.heap().runs().iter().filter(|(_, run)| run.used_for() == RunUse::Data);
        let gone: u64 = data.map(|(id, _)| world.media.evict(id.off(), Evict::Any, ChunkSet::ALL)).sum();
        assert!(gone > 0);
        let seen = catch_unwind(AssertUnwindSafe(|| world.view()));
        assert!(seen.ok().as_ref() != Some(&before), "the bytes are lost, and nothing has noticed");
    }
}

/// With the attributes it was asked for, of which one closes it to others, or not at all.
#[test]
fn an_inode_is_there_with_all_of_its_attributes_or_not_at_all() {
    let run = |world: &World, number: InodeNumber| {
        let (mode, name) = (Mode::new(FileType::Directory, 0o770), Name::new(b"d").expect("a name"));
        let create = Operation::Create { place: Some((ROOT, name)), number, mode, uid: 1, gid: 2, rdev: 0 };
        let name = |text: &'static str| ExtendedName::new(text.as_bytes()).expect("a name");
        let set = |text, value: &'static [u8]| Operation::SetExtended { number, name: name(text), value };
        let all = [set("user.a", &[1; 5000]), set("user.b", b"short")];
        world.files.create(7, &create, &all).expect("makes it");
        let wrong = Operation::SetExtended { number: ROOT, name: name("user.a"), value: b"" };
        assert!(world.files.create(7, &create, &[wrong]).is_err(), "another inode's");
        let long = vec![0; 65_537];
        let long = Operation::SetExtended { number, name: name("user.a"), value: &long };
        assert!(world.files.create(7, &create, &[long]).is_err(), "too long");
        world.files.sync_all().expect("syncs");
        (all.len(), world.media.ops().total())
    };
    let world = World::open(region());
    let begin = world.media.ops().total();
    let (count, durable) = run(&world, world.files.take_number());
    let mut seen = [0, 0];
    for at in begin..=durable {
        for seed in 0..16 {
            let world = World::open(region());
            world.media.freeze_at(at);
            run(&world, world.files.take_number());
            let state = world.media.frozen().unwrap_or_else(|| world.media.crash_state());
            let image = state.draw(at * 16 + seed);
            check(SimMedia::restart(&image, SimOptions::default()));
            let view = World::open(SimMedia::restart(&image, SimOptions::default())).view();
            let found = view.values().map(|inode| inode.extended.len()).max().expect("the root");
            assert!(
                found == count || found == 0 && at < durable && view.len() == 1,
                "at {at}: {:?}",
                view.keys()
            );
            seen[usize::from(found == count)] += 1;
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}
