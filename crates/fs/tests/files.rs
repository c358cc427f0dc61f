//! The promises of files. Each test states one promise.

mod common;

use common::{Content, ROOT, World, region};
use landfall_fs::{
    Attributes, BACKLOG_OPERATIONS, CHUNK_OPERATIONS, FileType, FilesRecovery, FsError, InodeNumber, Name,
    Operation, Publishing, Seek, Stage, TreeError,
};
use landfall_heap::{CompactGoal, Compactor, CopyPath, HeapError, Region, Tenant, Until};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Media, RUN_SIZE};
use std::sync::Arc;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a good name")
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8 ^ seed).collect()
}

#[test]
fn what_is_synced_is_there_after_a_crash_and_what_is_published_stays() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let bytes = pattern(20_000, 1);
    world.write(file, 0, &bytes);
    world.files.sync(file).unwrap();
    let synced = world.view();
    world.create(ROOT, "lost", FileType::File);
    let mut world = world.reopened();
    assert_eq!(world.view(), synced, "from the log");
    assert_eq!(world.bytes(file), bytes);
    assert_eq!(world.files.log_len(), (0, 0), "recovery publishes what the log has");
    let other = world.create(ROOT, "b", FileType::File);
    assert!(other > file, "numbers are never given again");
    world.write(other, 5000, b"behind a hole");
    world.files.sync_all().unwrap();
    world.publish();
    let published = world.view();
    let world = world.reopened();
    assert_eq!(world.view(), published, "from the tree");
}

#[test]
fn a_log_takes_nothing_above_its_bounds_until_a_chunk_is_published() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let attributes = Attributes { uid: Some(7), ..Attributes::default() };
    let change = Operation::SetAttributes { number: file, attributes };
    for count in (1..).take(BACKLOG_OPERATIONS - 1) {
        world.files.execute(count, &change).expect("the log has room");
    }
    let before = world.files.stat(file).unwrap();
    assert!(matches!(world.files.execute(-1, &change), Err(FsError::Backlog)));
    assert!(matches!(world.try_write(file, 0, b"more"), Err(FsError::Backlog)));
    assert_eq!(world.files.stat(file).unwrap(), before, "what is refused has changed nothing");
    assert_eq!(world.files.log_len().0, BACKLOG_OPERATIONS as u64);
    world.publish();
    world.files.execute(-1, &change).expect("it has room again");
    world.write(file, 0, &pattern(100, 1));
}

#[test]
fn the_stages_of_publishing_follow_each_other_and_only_the_first_looks_for_work() {
    let mut world = World::open(region());
    world.create(ROOT, "a", FileType::File);
    let mut stages = Vec::new();
    world.publisher.step_by_stages(&mut |stage| stages.push(stage)).unwrap();
    assert_eq!(stages, Stage::ALL);
    stages.clear();
    world.publisher.step_by_stages(&mut |stage| stages.push(stage)).unwrap();
    assert_eq!(stages, [Stage::Fetch]);
}

#[test]
fn publishing_copies_no_bytes_and_frees_the_log() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    for at in 0..32 {
        world.write(file, at * 16_384, &pattern(16_384, at as u8));
    }
    let copied = |world: &World| -> u64 {
        let copies = &world.files.heap().copies;
        [CopyPath::Placed, CopyPath::Consolidated].iter().map(|path| copies.get(*path)).sum()
    };
    let before = copied(&world);
    let done = world.publisher.step().unwrap();
    assert_eq!((done.operations, done.relinked_bytes, done.coalesced_bytes), (33, 32 * 16_384, 0));
    assert!(copied(&world) - before < 16_384, "names and attributes at most");
    assert_eq!(world.files.log_len(), (0, 0));
    let expected: Vec<u8> = (0..32).flat_map(|at| pattern(16_384, at)).collect();
    assert_eq!(world.bytes(file), expected);
    assert_eq!(world.files.stat(file).unwrap().blocks, 128);
    let live = world.files.heap().runs().live_bytes();
    assert!((32 * 16_384..40 * 16_384).contains(&live), "{live} bytes are live: nothing is kept twice");
}

#[test]
fn what_a_chunk_overwrites_or_cuts_off_is_counted_and_not_published() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    for at in 0..10 {
        world.write(file, 0, &pattern(16_384, at));
        world.write(file, 32_768, &pattern(8192, at));
    }
    let done = world.publisher.step().unwrap();
    assert_eq!((done.relinked_bytes, done.coalesced_bytes), (24_576, 9 * 24_576));
}

#[test]
fn a_chunk_that_undoes_itself_writes_nothing_of_it() {
    let mut world = World::open(region());
    for at in 0..50 {
        let text = format!("t{at}");
        let number = world.create(ROOT, &text, FileType::File);
        world.write(number, 0, &pattern(8192, 3));
        world.run(&Operation::Unlink { parent: ROOT, name: name(&text), is_directory: false });
        world.run(&Operation::Release { number });
    }
    let done = world.publisher.step().unwrap();
    assert_eq!((done.operations, done.undone, done.relinked_bytes), (200, 50, 0));
    assert_eq!(done.coalesced_bytes, 50 * 8192);
    assert!(done.records <= 3, "the root and the bound: {done:?}");
    assert!(world.files.heap().runs().live_bytes() < 8192, "their frames are free");
}

#[test]
fn writes_at_any_offset_keep_what_is_around_them() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let mut model = vec![0; 30_000];
    world.set_size(file, 30_000);
    for (at, (offset, len)) in
        [(100, 50), (4096, 4096), (5000, 9000), (0, 4096), (29_990, 10), (4095, 2), (12_288, 5)]
            .into_iter()
            .enumerate()
    {
        let bytes = pattern(len, at as u8);
        world.write(file, offset as u64, &bytes);
        model[offset..offset + len].copy_from_slice(&bytes);
        assert_eq!(world.bytes(file), model, "after write {at}");
        if at % 2 == 1 {
            world.publish();
            assert_eq!(world.bytes(file), model, "after publishing {at}");
        }
    }
    world.set_size(file, 5001);
    model.truncate(5001);
    world.set_size(file, 9000);
    model.resize(9000, 0);
    assert_eq!(world.bytes(file), model, "nothing comes back behind the cut");
    world.publish();
    let world = world.reopened();
    assert_eq!(world.bytes(file), model);
}

#[test]
fn holes_and_data_are_found() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    world.write(file, 8192, &pattern(4096, 1));
    world.set_size(file, 20_000);
    let seek = |offset, what| world.files.seek(file, offset, what).unwrap();
    assert_eq!(seek(0, Seek::Data), Some(8192));
    assert_eq!(seek(9000, Seek::Data), Some(9000));
    assert_eq!(seek(12_288, Seek::Data), None);
    assert_eq!((seek(0, Seek::Hole), seek(8192, Seek::Hole)), (Some(0), Some(12_288)));
    assert_eq!(seek(20_000, Seek::Hole), None, "at the end there is nothing");
}

#[test]
fn what_the_tree_refuses_leaves_no_trace() {
    let mut world = World::open(region());
    world.create(ROOT, "a", FileType::File);
    let (view, log) = (world.view(), world.files.log_len());
    let missing = Operation::Unlink { parent: ROOT, name: name("b"), is_directory: false };
    let refused = world.files.execute(99, &missing).unwrap_err();
    assert!(matches!(refused, FsError::Tree(TreeError::NotFound)));
    assert_eq!((world.view(), world.files.log_len()), (view.clone(), log));
    world.files.sync_all().unwrap();
    let world = world.reopened();
    assert_eq!(world.view(), view);
}

#[test]
fn an_orphan_is_deleted_by_the_next_start() {
    let mut world = World::open(region());
    let number = world.create(ROOT, "a", FileType::File);
    world.write(number, 0, &pattern(100_000, 1));
    world.publish();
    world.run(&Operation::Unlink { parent: ROOT, name: name("a"), is_directory: false });
    assert_eq!(world.bytes(number), pattern(100_000, 1), "who has it open reads on");
    world.publish();
    let world = world.reopened();
    let gone = world.files.stat(number).unwrap_err();
    assert!(matches!(gone, FsError::Tree(TreeError::NotFound)));
    assert!(world.files.heap().runs().live_bytes() < 8192, "its frames are free");
}

#[test]
fn clones_share_their_bytes_until_one_of_them_changes() {
    let mut world = World::open(region());
    let source = world.create(ROOT, "a", FileType::File);
    let bytes = pattern(100_000, 1);
    world.write(source, 0, &bytes);
    world.publish();
    let live = world.files.heap().runs().live_bytes();
    let copy = world.create(ROOT, "b", FileType::File);
    let clone =
        |number, source| Operation::Clone { number, offset: 0, source, source_offset: 0, len: 100_000 };
    world.run(&clone(copy, source));
    world.write(source, 0, &pattern(4096, 9));
    world.publish();
    let late = world.create(ROOT, "c", FileType::File);
    world.run(&clone(late, copy));
    world.publish();
    assert!(world.files.heap().runs().live_bytes() < live + 20_000, "they share");
    assert_eq!((world.bytes(copy), world.bytes(late)), (bytes.clone(), bytes.clone()));
    let view = world.view();
    let mut world = world.reopened();
    assert_eq!(world.view(), view);
    world.run(&Operation::Unlink { parent: ROOT, name: name("a"), is_directory: false });
    world.run(&Operation::Release { number: source });
    world.publish();
    assert_eq!(world.bytes(copy), bytes);
    let Content::File(of_view) = &world.view()["/c"].content else { panic!("a file") };
    assert_eq!(*of_view, bytes);
}

/// A full region: a file of 10,000 bytes, and the files that have filled it.
fn filled() -> (World, InodeNumber, Vec<(String, InodeNumber)>) {
    let mut world = World::open(region());
    let heap = Arc::clone(world.files.heap());
    let file = world.create(ROOT, "kept", FileType::File);
    world.write(file, 0, &pattern(10_000, 7));
    let mut numbers = Vec::new();
    let full = loop {
        let text = format!("f{}", numbers.len());
        let number = world.files.take_number();
        let place = Some((ROOT, name(&text)));
        let mode = landfall_fs::Mode::new(FileType::File, 0o644);
        let create = Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 };
        if let Err(error) = world.files.execute(1, &create) {
            break error;
        }
        numbers.push((text, number));
        if heap.can_land()
            && let Err(error) = world.try_write(number, 0, &pattern(1 << 20, 1))
        {
            break error;
        }
        if numbers.len() % 8 == 0 {
            world.publish();
        }
    };
    let is_expected =
        |error: &FsError| matches!(error, FsError::Heap(HeapError::Full) | FsError::Wait(Until::Space));
    assert!(is_expected(&full), "{full}");
    (world, file, numbers)
}

#[test]
fn a_full_region_takes_unlink_and_truncate_and_has_room_again_afterwards() {
    let (mut world, file, numbers) = filled();
    world.set_size(file, 5000);
    for (text, number) in &numbers {
        world.run(&Operation::Unlink { parent: ROOT, name: name(text), is_directory: false });
        world.run(&Operation::Release { number: *number });
    }
    world.publish();
    world.compact(CompactGoal::DENSE_DATA);
    assert_eq!(world.bytes(file), &pattern(10_000, 7)[..5000]);
    let again = world.create(ROOT, "again", FileType::File);
    world.write(again, 0, &pattern(1 << 20, 2));
    world.publish();
    let view = world.view();
    assert_eq!(world.reopened().view(), view);
}

/// While a run is emptied, records are published: they refer to the same bytes as the operations whose place they take, and were
/// not there when the compactor looked who refers to them.
#[test]
fn what_is_published_while_runs_are_emptied_leaves_no_space_behind() {
    const BLOCKS: u64 = 2048;
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let mut draw = 1_u64;
    for round in 0..1500_u64 {
        for _ in 0..8 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            world.write(file, (draw >> 33) % BLOCKS * 4096, &pattern(4096, round as u8));
        }
        world.files.sync_all().unwrap();
        // A page at a time.
        world.compactor.step(&*world.files, CompactGoal::DENSE_DATA, 4096).unwrap();
        if round % 3 == 0 {
            world.publish();
        }
        if round % 100 == 99 {
            (0..4).for_each(|_| world.compact(CompactGoal::DENSE));
        }
    }
    world.publish();
    (0..8).for_each(|_| world.compact(CompactGoal::DENSE));
    let runs = world.files.heap().runs();
    let (used, live) = (runs.counts().data, runs.live_bytes().div_ceil(RUN_SIZE));
    assert!(u64::from(used) <= live + 4, "{used} runs for {live} MiB");
}

#[test]
fn what_is_published_by_copying_does_not_depend_on_where_it_landed() {
    for publishing in [Publishing::Copy, Publishing::CopyEach] {
        let mut world = World::open(region());
        world.publisher.set_publishing(publishing);
        let file = world.create(ROOT, "a", FileType::File);
        for at in 0..128 {
            world.write(file, at * 16_384, &pattern(16_384, at as u8));
        }
        let placed = |world: &World| world.files.heap().copies.get(CopyPath::Placed);
        let (before, fences) = (placed(&world), world.media.ops().fences);
        let done = world.publisher.step().unwrap();
        assert_eq!((done.operations, done.relinked_bytes), (129, 0), "{publishing:?}");
        assert!(placed(&world) - before >= 128 * 16_384, "{publishing:?}");
        let fences = world.media.ops().fences - fences;
        // There are eight records of data.
        assert_eq!(fences >= 8, publishing == Publishing::CopyEach, "{publishing:?}: {fences} fences");
        let live = world.files.heap().runs().live_bytes();
        assert!((128 * 16_384..140 * 16_384).contains(&live), "{live} bytes are live: nothing is kept twice");
        let expected: Vec<u8> = (0..128).flat_map(|at| pattern(16_384, at)).collect();
        assert_eq!(world.bytes(file), expected);
        world.compact(CompactGoal::DENSE_DATA);
        assert_eq!(world.reopened().bytes(file), expected);
    }
}

#[test]
fn a_full_region_publishes_what_it_has_no_room_to_copy() {
    let mut world = World::open(region());
    world.publisher.set_publishing(Publishing::Copy);
    let file = world.create(ROOT, "a", FileType::File);
    let mut bytes = Vec::new();
    while world.files.heap().can_land() {
        let more = pattern(1 << 20, bytes.len() as u8);
        if world.try_write(file, bytes.len() as u64, &more).is_err() {
            break;
        }
        bytes.extend(more);
    }
    let done = world.publisher.step().unwrap();
    assert!(done.relinked_bytes > 0, "{done:?}");
    assert_eq!(world.files.log_len(), (0, 0));
    assert_eq!(world.bytes(file), bytes);
    assert_eq!(world.reopened().bytes(file), bytes);
}

#[test]
fn a_full_region_takes_changes_of_attributes_and_publishes_them_by_chunks() {
    const CHANGES: u32 = 20_000;
    let (mut world, file, numbers) = filled();
    world.publish();
    let mut published = 0;
    for change in 0..CHANGES {
        let (_, number) = numbers[change as usize % numbers.len()];
        let attributes = Attributes { permissions: Some(change % 0o1000), ..Attributes::default() };
        world.run(&Operation::SetAttributes { number, attributes });
        if world.files.publishing_is_due() {
            world.publish();
            world.compact(CompactGoal::DENSE_DATA);
            published += 1;
        }
    }
    assert!(published <= CHANGES as usize / CHUNK_OPERATIONS + 1, "{published} times");
    let (_, last) = numbers[(CHANGES - 1) as usize % numbers.len()];
    let stat = world.files.stat(last).expect("it is there");
    assert_eq!(stat.inode.mode.bits() & 0o777, (CHANGES - 1) % 0o1000);
    assert_eq!(world.bytes(file), pattern(10_000, 7));
    let view = world.view();
    assert_eq!(world.reopened().view(), view);
}

#[test]
fn a_clone_that_is_published_with_its_source_does_not_depend_on_it() {
    let mut world = World::open(region());
    let (source, copy) = (world.create(ROOT, "a", FileType::File), world.create(ROOT, "b", FileType::File));
    let bytes = pattern(16_384, 1);
    world.write(source, 0, &bytes);
    let len = bytes.len() as u64;
    world.run(&Operation::Clone { number: copy, offset: 0, source, source_offset: 0, len });
    world.publish();
    assert_eq!(world.files.dangling(), []);
    world.write(source, 0, &pattern(16_384, 2));
    world.publish();
    assert_eq!(world.files.dangling(), [], "the copy refers to a record of its own");
    assert_eq!(world.bytes(copy), bytes);
}

/// Opens a region that may be damaged.
fn open_damaged(media: &Arc<SimMedia>) -> (Arc<FilesRecovery>, Arc<landfall_heap::Heap>) {
    let recovery = Arc::new(FilesRecovery::default());
    let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
    let (heap, _) = Region::run(Arc::clone(media) as Arc<dyn Media>, tenants).expect("opens");
    (recovery, heap)
}

#[test]
fn an_inode_that_cannot_be_read_is_an_error_for_good_and_hides_nothing_else() {
    let mut world = World::open(region());
    let damaged = world.create(ROOT, "damaged", FileType::File);
    world.publish();
    world.set_size(damaged, 5000);
    world.publish();
    let left = world.media.crash_state().durable();
    let media = SimMedia::restart(&left, SimOptions::default());
    let (recovery, _) = open_damaged(&media);
    let slot = recovery.settled().inodes[&damaged];
    media.damage_medium(slot.off() + 40, 0xff);
    let media = SimMedia::restart(&media.crash_state().durable(), SimOptions::default());
    let (recovery, heap) = open_damaged(&media);
    let (files, mut publisher, _) = recovery.open(&heap, &common::OPTIONS).unwrap();
    let is_damaged = |error: &FsError| matches!(error, FsError::Heap(HeapError::Damaged { .. }));
    assert!(is_damaged(&files.stat(damaged).unwrap_err()));
    assert!(is_damaged(&files.lookup(ROOT, name("damaged")).unwrap_err()));
    // Whatever else is in its slab is replaced, and compacted.
    for at in 0..4 {
        let text = format!("b{at}");
        let number = files.take_number();
        let mode = landfall_fs::Mode::new(FileType::File, 0o644);
        let place = Some((ROOT, name(&text)));
        files.execute(9, &Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 }).unwrap();
        publisher.step().unwrap();
    }
    let mut compactor = Compactor::new(Arc::clone(&heap));
    while !compactor.step(&*files, CompactGoal::DENSE_SLABS, 1 << 20).unwrap().is_idle {}
    let media = SimMedia::restart(&media.crash_state().durable(), SimOptions::default());
    let (recovery, heap) = open_damaged(&media);
    let (files, ..) = recovery.open(&heap, &common::OPTIONS).unwrap();
    assert!(
        is_damaged(&files.stat(damaged).unwrap_err()),
        "it does not become an older version, nor nothing"
    );
    assert!(files.lookup(ROOT, name("b3")).is_ok());
}

#[test]
fn an_inode_whose_value_is_damaged_does_not_keep_the_others_from_being_opened() {
    let mut world = World::open(region());
    let damaged = world.create(ROOT, "damaged", FileType::File);
    world.create(ROOT, "whole", FileType::File);
    world.publish();
    let media = SimMedia::restart(&world.media.crash_state().durable(), SimOptions::default());
    let (recovery, heap) = open_damaged(&media);
    let slot = recovery.settled().inodes[&damaged];
    let value = heap.value_extents(slot, &heap.record(slot).unwrap()).unwrap()[0];
    media.damage_medium(value.off, 0xff);
    let media = SimMedia::restart(&media.crash_state().durable(), SimOptions::default());
    let (recovery, heap) = open_damaged(&media);
    let (files, ..) = recovery.open(&heap, &common::OPTIONS).expect("what is whole is served");
    let is_damaged = |error: &FsError| matches!(error, FsError::Heap(HeapError::Damaged { .. }));
    assert!(is_damaged(&files.stat(damaged).unwrap_err()));
    assert!(files.lookup(ROOT, name("whole")).is_ok());
}

#[test]
fn where_data_are_is_known_before_and_after_they_are_published() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    world.write(file, 0, &pattern(16_384, 1));
    world.write(file, 1 << 20, &pattern(5000, 2));
    world.run(&Operation::Allocate { number: file, mode: 0, offset: 64 << 10, len: 8192 });
    let before = world.files.placed(file).unwrap();
    assert_eq!((before.published_bytes, before.log_bytes, before.reserved_bytes), (0, 16_384 + 8192, 8192));
    world.publish();
    let after = world.files.placed(file).unwrap();
    assert_eq!((after.published_bytes, after.log_bytes, after.reserved_bytes), (16_384 + 8192, 0, 8192));
    assert_eq!((after.records, after.extents), (before.records, before.extents), "nothing has moved");
    assert_eq!((after.records, after.extents), (2, 2));
}

#[test]
fn inodes_are_counted_published_or_not() {
    let mut world = World::open(region());
    assert_eq!(world.files.inode_count(), 1);
    let first = world.create(ROOT, "a", FileType::File);
    world.publish();
    world.create(ROOT, "b", FileType::File);
    assert_eq!(world.files.inode_count(), 3);
    world.run(&Operation::Unlink { parent: ROOT, name: name("a"), is_directory: false });
    assert_eq!(world.files.inode_count(), 3, "it is an orphan");
    world.run(&Operation::Release { number: first });
    assert_eq!(world.files.inode_count(), 2);
    world.publish();
    assert_eq!(world.files.inode_count(), 2);
    assert_eq!(world.reopened().files.inode_count(), 2);
}

#[test]
fn what_cannot_be_zeroed_or_punched_is_refused_within_a_block_too() {
    let mut world = World::open(region());
    let (file, directory) =
        (world.create(ROOT, "a", FileType::File), world.create(ROOT, "d", FileType::Directory));
    world.write(file, 0, &pattern(8192, 1));
    let before = world.view();
    let refused = |number, mode| {
        let within_a_block = Operation::Allocate { number, mode, offset: 100, len: 10 };
        match world.files.execute(9, &within_a_block) {
            Err(FsError::Tree(why)) => Some(why),
            done => panic!("{mode} of {number:?}: {done:?}"),
        }
    };
    let (keep_size, punch, zero) = (1, 2, 16);
    for mode in [punch | keep_size, zero | keep_size, zero] {
        assert_eq!(refused(directory, mode), Some(TreeError::IsADirectory));
    }
    for mode in [punch, punch | zero, punch | zero | keep_size] {
        assert_eq!(refused(file, mode), Some(TreeError::Invalid), "there is no such mode as {mode}");
    }
    assert_eq!(world.view(), before);
}
