//! Neighbouring writes are published in one record. Each test states one promise.

mod common;

use common::{OPTIONS, ROOT, RUNS, World, check, region};
use landfall_fs::{
    Attributes, FilePart, FileType, Files, FilesRecovery, InodeNumber, Operation, Publisher, Publishing,
    Stage,
};
use landfall_heap::{CompactGoal, CopyPath, Region, Tenant};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of most writes.
const WRITE: u64 = 16_384;
/// A joined record lies between multiples of so many bytes.
const RECORD: u64 = 256 << 10;

const PUNCH: u32 = 3;

fn pattern(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8 ^ seed).collect()
}

/// A file that was written by parts of these lengths, one behind the other, and what is in it.
fn written(world: &mut World, name: &str, lens: &[u64]) -> (InodeNumber, Vec<u8>) {
    let file = world.create(ROOT, name, FileType::File);
    let mut model = Vec::new();
    for (at, len) in lens.iter().enumerate() {
        let bytes = pattern(*len, at as u8);
        world.write(file, model.len() as u64, &bytes);
        model.extend(bytes);
    }
    (file, model)
}

/// Writes bytes at an offset, in the file and in the model.
fn change(world: &mut World, (file, model): (InodeNumber, &mut Vec<u8>), offset: u64, bytes: &[u8]) {
    world.write(file, offset, bytes);
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    model.resize(model.len().max(end), 0);
    model[start..end].copy_from_slice(bytes);
}

fn records(world: &World, file: InodeNumber) -> u64 {
    world.files.placed(file).expect("reads").records
}

#[test]
fn a_chunk_of_small_writes_is_a_few_records() {
    for (write, most) in [(WRITE, 16), (4096, 16), (24_576, 32)] {
        let mut world = World::open(region());
        let (file, model) = written(&mut world, "a", &vec![write; ((4 << 20) / write) as usize]);
        let copies = |world: &World, paths: &[CopyPath]| -> u64 {
            paths.iter().map(|path| world.files.heap().copies.get(*path)).sum()
        };
        let data = |world: &World| copies(world, &[CopyPath::Placed, CopyPath::Consolidated]);
        let (before, lists) = (data(&world), copies(&world, &[CopyPath::List]));
        let done = world.publisher.step().unwrap();
        assert!(done.records <= most + 4, "writes of {write}: {done:?}");
        assert_eq!(done.relinked_bytes, model.len() as u64);
        assert!(data(&world) - before < 1024, "names and attributes at most");
        let lists = copies(&world, &[CopyPath::List]) - lists;
        assert!(lists < model.len() as u64 / 900, "{lists} bytes of lists for writes of {write}");
        assert_eq!(records(&world, file), done.records - 4, "the map in memory has as many");
        assert_eq!(world.bytes(file), model);
        assert_eq!(world.files.dangling(), []);
        check(Arc::clone(&world.media));
        let world = world.reopened();
        assert_eq!(world.bytes(file), model);
        assert_eq!(records(&world, file), done.records - 4);
    }
}

#[test]
fn a_last_block_that_is_short_ends_a_record_and_is_joined_again_when_it_grows() {
    let mut world = World::open(region());
    let (file, mut model) = written(&mut world, "a", &[WRITE, WRITE, 5000]);
    world.publish();
    assert_eq!(records(&world, file), 1);
    for _ in 0..20 {
        let end = model.len() as u64;
        change(&mut world, (file, &mut model), end, &pattern(5000, 9));
        world.publish();
        assert_eq!(world.bytes(file), model);
    }
    assert!(records(&world, file) <= 3, "{} records", records(&world, file));
    check(Arc::clone(&world.media));
    assert_eq!(world.reopened().bytes(file), model);
}

#[test]
fn a_short_block_with_others_behind_it_reads_as_zeroes_up_to_them() {
    let mut world = World::open(region());
    let (file, mut model) = written(&mut world, "a", &[4096, 100]);
    change(&mut world, (file, &mut model), 2 * 4096, &pattern(4096, 7));
    world.publish();
    assert_eq!((world.bytes(file), records(&world, file)), (model.clone(), 2));
    check(Arc::clone(&world.media));
    assert_eq!(world.reopened().bytes(file), model);
}

#[test]
fn writes_within_a_joined_record_keep_it_one() {
    let mut world = World::open(region());
    let (file, mut model) = written(&mut world, "a", &[WRITE; 32]);
    world.publish();
    for (at, offset) in [5 * 4096, 20 * 4096 + 7, 0, RECORD - 4096, RECORD, 31 * WRITE].iter().enumerate() {
        change(&mut world, (file, &mut model), *offset, &pattern(4096, at as u8 + 90));
        let done = world.publisher.step().unwrap();
        assert!(done.records <= 4, "at {offset}: {done:?}");
        assert_eq!((world.bytes(file), records(&world, file)), (model.clone(), 2), "at {offset}");
    }
    check(Arc::clone(&world.media));
    world.compact(CompactGoal::DENSE_DATA);
    world.compact(CompactGoal::DENSE_SLABS);
    assert_eq!(world.bytes(file), model);
    assert_eq!(world.files.dangling(), []);
    let live = world.files.heap().runs().live_bytes();
    assert!(live < model.len() as u64 + 16_384, "{live} bytes are live: nothing is kept twice");
    assert_eq!(world.reopened().bytes(file), model);
}

#[test]
fn what_is_cut_off_or_punched_leaves_the_rest_of_a_joined_record() {
    let mut world = World::open(region());
    let (file, mut model) = written(&mut world, "a", &[WRITE; 24]);
    world.publish();
    let (offset, len) = (50_000, 40_000);
    world.run(&Operation::Allocate { number: file, mode: PUNCH, offset, len });
    model[offset as usize..(offset + len) as usize].fill(0);
    world.publish();
    assert_eq!(world.bytes(file), model);
    world.set_size(file, 200_000);
    model.truncate(200_000);
    world.publish();
    world.set_size(file, 300_000);
    model.resize(300_000, 0);
    world.publish();
    assert_eq!(world.bytes(file), model);
    check(Arc::clone(&world.media));
    assert_eq!(world.reopened().bytes(file), model);
}

#[test]
fn a_clone_of_a_part_of_a_joined_record_does_not_depend_on_it() {
    let mut world = World::open(region());
    let (source, mut model) = written(&mut world, "a", &[WRITE; 20]);
    let copy = world.create(ROOT, "b", FileType::File);
    let clone = |world: &mut World, source_offset, offset, len| {
        world.run(&Operation::Clone { number: copy, offset, source, source_offset, len });
    };
    // Some before, some after the source is published.
    clone(&mut world, 4096, 0, 10 * WRITE);
    let mut copied = model[4096..4096 + 10 * WRITE as usize].to_vec();
    world.publish();
    assert_eq!(records(&world, copy), 11, "what is shared is not joined");
    clone(&mut world, 8 * WRITE, 10 * WRITE, 3 * WRITE);
    copied.extend_from_slice(&model[8 * WRITE as usize..11 * WRITE as usize]);
    change(&mut world, (source, &mut model), 9 * WRITE, &pattern(4096, 77));
    world.publish();
    assert_eq!((world.bytes(source), world.bytes(copy)), (model.clone(), copied.clone()));
    assert_eq!(world.files.dangling(), []);
    world.set_size(source, 0);
    world.publish();
    world.compact(CompactGoal::DENSE_DATA);
    assert_eq!(world.bytes(copy), copied);
    check(Arc::clone(&world.media));
    let world = world.reopened();
    assert_eq!((world.bytes(source), world.bytes(copy)), (vec![], copied));
}

#[test]
fn what_the_compactor_moves_while_a_chunk_is_published_is_found() {
    let mut world = World::open(region());
    let (file, model) = written(&mut world, "a", &[WRITE; 20]);
    let (gone, _) = written(&mut world, "b", &[WRITE; 20]);
    world.publish();
    world.set_size(gone, 0);
    world.write(file, 0, &model[..4096]);
    let World { publisher, compactor, files, .. } = &mut world;
    publisher
        .step_by_stages(&mut |stage| {
            if stage == Stage::Commit {
                for _ in 0..200 {
                    if compactor.step(&**files, CompactGoal::DENSE_DATA, 1 << 20).expect("room").is_idle {
                        break;
                    }
                }
            }
        })
        .expect("there is room");
    assert_eq!(world.files.dangling(), []);
    assert_eq!(world.bytes(file), model);
    check(Arc::clone(&world.media));
    assert_eq!(world.reopened().bytes(file), model);
}

/// Opens files of which bytes may be damaged.
fn open(media: &Arc<SimMedia>) -> (Arc<Files>, Publisher) {
    let recovery = Arc::new(FilesRecovery::default());
    let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
    let (heap, _) = Region::run(Arc::clone(media) as Arc<dyn Media>, tenants).expect("opens");
    let (files, publisher, _) = recovery.open(&heap, &OPTIONS).expect("opens");
    (files, publisher)
}

/// The blocks of a file of which a read fails. All others have the bytes of the model.
fn failed_blocks(files: &Files, file: InodeNumber, model: &[u8]) -> Vec<u64> {
    let mut failed = Vec::new();
    for (at, expected) in model.chunks(4096).enumerate() {
        let at = at as u64;
        let range = at * 4096..at * 4096 + expected.len() as u64;
        for part in files.read(file, range).expect("the records can be read") {
            let FilePart::Stored(part) = part else { panic!("there is no hole") };
            if part.item().verify().expect("reads") {
                assert_eq!(part.to_vec(files.heap()).expect("reads"), expected, "block {at}");
            } else {
                failed.push(at);
            }
        }
    }
    failed
}

/// Where the medium has a block of bytes, which is nowhere else.
fn place_of(media: &SimMedia, block: &[u8]) -> u64 {
    let all = media.bytes(Extent::new(0, (RUNS * RUN_SIZE) as u32)).expect("reads");
    let places: Vec<usize> =
        (0..).zip(all.chunks(4096)).filter(|(_, bytes)| *bytes == block).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 1, "the bytes are in one place");
    places[0] as u64 * 4096
}

#[test]
fn damage_before_it_is_published_takes_what_was_written_with_it_and_no_more() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let mut model = Vec::new();
    for at in 0..16_u64 {
        let bytes: Vec<u8> = (0..WRITE).map(|byte| (byte * (2 * at + 3) % 253) as u8).collect();
        change(&mut world, (file, &mut model), at * WRITE, &bytes);
    }
    world.files.sync_all().expect("syncs");
    world.media.damage(place_of(&world.media, &model[21 * 4096..22 * 4096]) + 100, 1);
    world.publish();
    assert_eq!(records(&world, file), 1);
    assert_eq!(failed_blocks(&world.files, file, &model), [20, 21, 22, 23]);
    // A part of it is written: the rest stays damaged, and so it does when neighbours change again.
    for (offset, seed) in [(21 * 4096, 1), (19 * 4096, 2), (24 * 4096, 3)] {
        change(&mut world, (file, &mut model), offset, &pattern(4096, seed));
        world.publish();
        assert_eq!(failed_blocks(&world.files, file, &model), [20, 22, 23]);
    }
    let left = world.media.crash_state().durable();
    let (files, mut publisher) = open(&SimMedia::restart(&left, SimOptions::default()));
    assert_eq!(failed_blocks(&files, file, &model), [20, 22, 23]);
    // What is damaged can be cut off.
    let attributes = Attributes { size: Some(20 * 4096), ..Attributes::default() };
    files.execute(1 << 40, &Operation::SetAttributes { number: file, attributes }).expect("there is room");
    publisher.step().expect("there is room");
    assert_eq!(failed_blocks(&files, file, &model[..20 * 4096]), [0_u64; 0]);
}

#[test]
fn damage_does_not_spread_where_all_bytes_of_a_record_get_one_checksum() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let mut model = Vec::new();
    for at in 0..4_u64 {
        let bytes: Vec<u8> = (0..WRITE).map(|byte| (byte * (2 * at + 3) % 253) as u8).collect();
        change(&mut world, (file, &mut model), at * WRITE, &bytes);
    }
    world.files.sync_all().expect("syncs");
    world.media.damage(place_of(&world.media, &model[5 * 4096..6 * 4096]) + 100, 1);
    world.publish();
    assert_eq!(failed_blocks(&world.files, file, &model), [4, 5, 6, 7]);
    assert_eq!(records(&world, file), 3, "those before it, it, and those behind it");
}

#[test]
fn a_copy_does_not_hide_damage() {
    let mut world = World::open(region());
    world.publisher.set_publishing(Publishing::Copy);
    let file = world.create(ROOT, "a", FileType::File);
    let mut model = Vec::new();
    for at in 0..4_u64 {
        let bytes: Vec<u8> = (0..WRITE).map(|byte| (byte * (2 * at + 3) % 253) as u8).collect();
        change(&mut world, (file, &mut model), at * WRITE, &bytes);
    }
    let alone = world.create(ROOT, "alone", FileType::File);
    let bytes = pattern(WRITE, 77);
    world.write(alone, 0, &bytes);
    world.files.sync_all().expect("syncs");
    for lost in [&model[5 * 4096..6 * 4096], &bytes[..4096]] {
        world.media.damage(place_of(&world.media, lost) + 100, 1);
    }
    world.publish();
    assert_eq!(failed_blocks(&world.files, file, &model), [4, 5, 6, 7]);
    assert_eq!(failed_blocks(&world.files, alone, &bytes), [0, 1, 2, 3]);
}

#[test]
fn damage_of_a_joined_record_takes_one_piece_and_what_is_published_later_does_not_hide_it() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let mut model = Vec::new();
    for at in 0..64_u64 {
        let bytes: Vec<u8> = (0..4096_u64).map(|byte| (byte * (2 * at + 3) % 253) as u8).collect();
        change(&mut world, (file, &mut model), at * 4096, &bytes);
    }
    world.publish();
    assert_eq!(records(&world, file), 1);
    world.media.damage(place_of(&world.media, &model[30 * 4096..31 * 4096]) + 17, 4);
    let failed = failed_blocks(&world.files, file, &model);
    assert!(failed.contains(&30) && failed.len() <= 4, "{failed:?}");
    let other: Vec<u64> = failed.iter().copied().filter(|block| *block != 30).collect();
    change(&mut world, (file, &mut model), 30 * 4096, &pattern(4096, 200));
    world.publish();
    assert_eq!(failed_blocks(&world.files, file, &model), other, "the new bytes can be read");
    for block in other {
        change(&mut world, (file, &mut model), block * 4096, &pattern(4096, 201));
    }
    world.publish();
    assert_eq!(failed_blocks(&world.files, file, &model), [0_u64; 0]);
}

#[test]
fn a_damaged_piece_of_a_long_write_keeps_nothing_from_being_published() {
    let mut world = World::open(region());
    let file = world.create(ROOT, "a", FileType::File);
    let mut model: Vec<u8> = (0..512_u64 << 10).map(|at| (at * 7 % 253 + at / 4096) as u8).collect();
    world.write(file, 0, &model);
    world.publish();
    world.media.damage(place_of(&world.media, &model[70 * 4096..71 * 4096]) + 5, 2);
    change(&mut world, (file, &mut model), 66 * 4096, &pattern(4096, 1));
    world.publish();
    let rest: Vec<u64> = (64..80).filter(|block| *block != 66).collect();
    assert_eq!(failed_blocks(&world.files, file, &model), rest);
    world.set_size(file, 75 * 4096);
    world.publish();
    assert_eq!(failed_blocks(&world.files, file, &model[..75 * 4096]), rest[..10]);
}

#[derive(Clone, Debug)]
enum Step {
    /// Several writes, one behind the other: the file, the first block, their lengths in blocks, and whether the last one
    /// ends within a block.
    Writes(usize, u64, Vec<u64>, bool),
    Write(usize, u64, u64),
    SetSize(usize, u64),
    Punch(usize, Range<u64>),
    /// The file, what happens, the block, and how many.
    Shift(usize, bool, u64, u64),
    Clone(usize, u64, u64, u64),
    Publish,
    Compact(bool),
}

/// Most bytes of a file in steps.
const FILE_BLOCKS: u64 = 150;

fn step() -> impl Strategy<Value = Step> {
    let bytes = || 0..FILE_BLOCKS * 4096;
    prop_oneof![
        6 => (0..2_usize, 0..100_u64, prop::collection::vec(1..6_u64, 1..40), any::<bool>())
            .prop_map(|(at, first, lens, short)| Step::Writes(at, first, lens, short)),
        6 => (0..2_usize, bytes(), 1..9000_u64).prop_map(|(at, offset, len)| Step::Write(at, offset, len)),
        2 => (0..2_usize, bytes()).prop_map(|(at, size)| Step::SetSize(at, size)),
        2 => (0..2_usize, bytes(), 1..60_000_u64)
            .prop_map(|(at, start, len)| Step::Punch(at, start..start + len)),
        1 => (0..2_usize, any::<bool>(), 0..100_u64, 1..20_u64)
            .prop_map(|(at, inserts, block, count)| Step::Shift(at, inserts, block, count)),
        2 => (0..2_usize, 0..60_u64, 0..60_u64, 1..60_u64)
            .prop_map(|(at, from, to, count)| Step::Clone(at, from, to, count)),
        6 => Just(Step::Publish),
        1 => any::<bool>().prop_map(Step::Compact),
    ]
}

/// Two files, and what is in them.
struct Pair {
    world: World,
    files: [InodeNumber; 2],
    models: [Vec<u8>; 2],
    /// What was in them after each operation, and how many of these states are known to be durable or older.
    states: Vec<[Vec<u8>; 2]>,
    durable: usize,
    seed: u8,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::open(region());
        let files = ["a", "b"].map(|name| world.create(ROOT, name, FileType::File));
        world.publish();
        let models = [vec![], vec![]];
        Self { world, files, states: vec![models.clone()], models, durable: 0, seed: 0 }
    }

    fn note(&mut self) {
        self.states.push(self.models.clone());
    }

    fn write(&mut self, at: usize, offset: u64, len: u64) {
        self.seed = self.seed.wrapping_add(1);
        let bytes = pattern(len, self.seed);
        change(&mut self.world, (self.files[at], &mut self.models[at]), offset, &bytes);
        self.note();
    }

    fn run(&mut self, step: &Step) {
        let number = |at: usize| self.files[at];
        match *step {
            Step::Writes(at, first, ref lens, short) => {
                let mut block = first;
                for (index, len) in lens.iter().enumerate() {
                    let is_short = short && index + 1 == lens.len();
                    self.write(at, block * 4096, len * 4096 - if is_short { 100 } else { 0 });
                    block += len;
                }
            }
            Step::Write(at, offset, len) => self.write(at, offset, len),
            Step::SetSize(at, size) => {
                self.world.set_size(number(at), size);
                self.models[at].resize(size as usize, 0);
            }
            Step::Punch(at, ref range) => {
                let (offset, len) = (range.start, range.end - range.start);
                self.world.run(&Operation::Allocate { number: number(at), mode: PUNCH, offset, len });
                let size = self.models[at].len();
                self.models[at][size.min(range.start as usize)..size.min(range.end as usize)].fill(0);
            }
            Step::Shift(at, inserts, block, count) => self.shift(at, inserts, block * 4096, count * 4096),
            Step::Clone(at, from, to, count) => self.clone_blocks(at, from * 4096, to * 4096, count * 4096),
            Step::Publish => {
                self.world.publish();
                if self.world.media.frozen().is_none() {
                    self.durable = self.states.len();
                }
            }
            Step::Compact(slabs) => {
                self.world.compact(if slabs { CompactGoal::DENSE_SLABS } else { CompactGoal::DENSE_DATA });
            }
        }
        self.note();
    }

    fn shift(&mut self, at: usize, inserts: bool, offset: u64, len: u64) {
        let model = &mut self.models[at];
        let end = if inserts { offset + 1 } else { offset + len + 1 };
        if (model.len() as u64) < end {
            return;
        }
        let mode = if inserts { 32 } else { 8 };
        self.world.run(&Operation::Allocate { number: self.files[at], mode, offset, len });
        let (start, end) = (offset as usize, (offset + len) as usize);
        if inserts {
            model.splice(start..start, std::iter::repeat_n(0, end - start));
        } else {
            model.drain(start..end);
        }
    }

    fn clone_blocks(&mut self, at: usize, source_offset: u64, offset: u64, len: u64) {
        let (source, number) = (self.files[at], self.files[1 - at]);
        let Some(part) = self.models[at].get(source_offset as usize..(source_offset + len) as usize) else {
            return;
        };
        let part = part.to_vec();
        self.world.run(&Operation::Clone { number, offset, source, source_offset, len });
        let model = &mut self.models[1 - at];
        let (start, end) = (offset as usize, (offset + len) as usize);
        model.resize(model.len().max(end), 0);
        model[start..end].copy_from_slice(&part);
    }

    fn bytes(&self) -> [Vec<u8>; 2] {
        self.files.map(|file| self.world.bytes(file))
    }
}

/// As many cases as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 30 };
    ProptestConfig { cases, max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn joined_records_hold_what_the_file_holds(
        steps in prop::collection::vec(step(), 1..40), restart in 0..40_usize,
    ) {
        let mut pair = Pair::new();
        for (at, step) in steps.iter().enumerate() {
            pair.run(step);
            prop_assert!(pair.bytes() == pair.models, "after {}: {:?}", at, step);
            prop_assert_eq!(pair.world.files.dangling(), []);
            if at == restart {
                pair.world.files.sync_all().expect("syncs");
                pair.world = pair.world.reopened();
                prop_assert!(pair.bytes() == pair.models, "after a restart");
            }
        }
        pair.world.publish();
        check(Arc::clone(&pair.world.media));
    }

    #[test]
    fn a_crash_leaves_the_old_records_or_the_joined_ones(
        steps in prop::collection::vec(step(), 1..30), crash in 0..1000_u64, seed: u64,
    ) {
        let mut pair = Pair::new();
        let begin = pair.world.media.ops().total();
        steps.iter().for_each(|step| pair.run(step));
        let all = pair.world.media.ops().total() - begin;
        let mut pair = Pair::new();
        pair.world.media.freeze_at(begin + all * crash / 1000);
        steps.iter().for_each(|step| pair.run(step));
        pair.world.publish();
        let state = pair.world.media.frozen().unwrap_or_else(|| pair.world.media.crash_state());
        let medium = || SimMedia::restart(&state.draw(seed), SimOptions::default());
        check(medium());
        pair.world = World::open(medium());
        let seen = pair.bytes();
        prop_assert!(pair.states[pair.durable.max(1) - 1..].contains(&seen), "no prefix");
        pair.world.write(pair.files[0], 0, b"more");
        pair.world.publish();
        pair.world.compact(CompactGoal::DENSE_DATA);
        let seen = pair.bytes();
        pair.world = pair.world.reopened();
        prop_assert!(pair.bytes() == seen, "after another restart");
    }
}
