//! Random trees with random damage, repaired: the tree is whole then, and what was not hit has its bytes.

mod common;

use common::{Content, OPTIONS, ROOT, View, World, check, region};
use landfall_fs::{FileType, FilesRecovery, InodeNumber};
use landfall_heap::{Checked, Damage, Region, RegionCheck, SlotId, spaces};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{SimMedia, SimOptions};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a record.
const RECORD: usize = 128;

#[derive(Clone, Debug)]
enum Step {
    Create(usize, bool),
    Write(usize, u64, usize, u8),
    SetExtended(usize),
    Publish,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1..300_usize, 1..9000_usize, Just(200_000)];
    prop_oneof![
        6 => (any::<usize>(), prop::bool::weighted(0.4)).prop_map(|(at, directory)| Step::Create(at, directory)),
        6 => (any::<usize>(), 0..20_000_u64, len, any::<u8>())
            .prop_map(|(at, offset, len, seed)| Step::Write(at, offset, len, seed)),
        1 => any::<usize>().prop_map(Step::SetExtended),
        2 => Just(Step::Publish),
    ]
}

/// What is damaged: a record, so that its key is known or anywhere in it, or a block of values.
#[derive(Clone, Debug)]
enum Hit {
    Record(prop::sample::Index),
    AnywhereInRecord(prop::sample::Index, usize),
    Value(prop::sample::Index),
}

fn hit() -> impl Strategy<Value = Hit> {
    prop_oneof![
        4 => any::<prop::sample::Index>().prop_map(Hit::Record),
        1 => (any::<prop::sample::Index>(), 0..RECORD - 1).prop_map(|(at, byte)| Hit::AnywhereInRecord(at, byte)),
        3 => any::<prop::sample::Index>().prop_map(Hit::Value),
    ]
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 13 % 241) as u8 ^ seed).collect()
}

/// The bytes of a region with a random tree, and the tree.
fn grown(steps: &[Step]) -> (Vec<u8>, View) {
    let mut world = World::open(region());
    let (mut directories, mut files) = (vec![ROOT], Vec::new());
    for (count, step) in steps.iter().enumerate() {
        match *step {
            Step::Create(at, is_directory) => {
                let parent = directories[at % directories.len()];
                let file_type = if is_directory { FileType::Directory } else { FileType::File };
                let number = world.create(parent, &format!("name {count}"), file_type);
                if is_directory { directories.push(number) } else { files.push(number) }
            }
            Step::Write(at, offset, len, seed) if !files.is_empty() => {
                world.write(files[at % files.len()], offset, &pattern(len, seed));
            }
            Step::SetExtended(at) => {
                world.set_extended(directories[at % directories.len()], "user.x", &pattern(100, 1));
            }
            Step::Publish => world.publish(),
            Step::Write(..) => {}
        }
    }
    world.files.sync_all().expect("durable");
    world.publish();
    world.files.heap().mark_slabs(1).expect("stored");
    let view = world.view();
    (world.media.crash_state().durable_image(), view)
}

fn damage(image: &mut [u8], hits: &[Hit]) {
    let is_record = |at: &usize| {
        let record = &image[*at..*at + RECORD];
        spaces::FILES.contains(&record[7]) && matches!(record[4], 1 | 2 | 4)
    };
    let tables = RUN_SIZE as usize;
    let records: Vec<usize> = (tables..image.len()).step_by(RECORD).filter(is_record).collect();
    let is_value =
        |at: &usize| image[*at] != 0 && (*at..*at + 4096).step_by(RECORD).all(|at| !is_record(&at));
    let values: Vec<usize> = (tables..image.len()).step_by(4096).filter(is_value).collect();
    let mut bytes = BTreeSet::new();
    for hit in hits {
        match hit {
            Hit::Record(at) => drop(bytes.insert(at.get(&records) + 42)),
            Hit::AnywhereInRecord(at, byte) => drop(bytes.insert(at.get(&records) + byte)),
            Hit::Value(at) if !values.is_empty() => drop(bytes.insert(at.get(&values) + 7)),
            Hit::Value(_) => {}
        }
    }
    for at in bytes {
        image[at] ^= 0x55;
        image[at + 1] ^= 0x55;
    }
}

fn media(image: &[u8]) -> Arc<SimMedia> {
    SimMedia::from_image(image.to_vec(), SimOptions::default())
}

fn look(image: &[u8]) -> Checked {
    let files = Arc::new(FilesRecovery::default());
    RegionCheck::run(media(image), vec![files as _]).expect("a region")
}

/// Repairs as `landfall check` does.
fn repair(image: &[u8], found: &Checked) -> (Vec<String>, Arc<SimMedia>) {
    let (files, media) = (Arc::new(FilesRecovery::default()), media(image));
    let (heap, _) = Region::run(Arc::clone(&media) as _, vec![Arc::clone(&files) as _]).expect("opens");
    let suspects: BTreeSet<SlotId> = found.findings.iter().map(|finding| finding.slot).collect();
    let lines = files.repair(&heap, &OPTIONS, &suspects).expect("there is room");
    let unreadable = [Damage::RecordChecksum, Damage::RecordFields, Damage::KeyHash];
    for finding in found.findings.iter().filter(|f| f.what.is_none_or(|what| unreadable.contains(&what))) {
        heap.overwrite_with_tombstone(finding.slot).expect("stored");
    }
    (lines, media)
}

/// The inodes of which an older version, or other bytes, may be there after the repair. `None` if that may be any.
fn hit_inodes(found: &Checked) -> Option<BTreeSet<InodeNumber>> {
    let inodes = found.findings.iter().map(|finding| match &finding.named {
        Some((spaces::FILES_HEADER, _)) => Some(None),
        Some((spaces::FILES_LOG, key)) if key.len() == 4 => Some(None),
        // The names of a directory are lost, not what they name.
        Some((spaces::FILES_NAMES, _)) => Some(None),
        Some((spaces::FILES_LOG, _)) | None => None,
        Some((_, key)) => Some(InodeNumber::of_key(&key[..8]).ok()),
    });
    let inodes: Option<Vec<Option<InodeNumber>>> = inodes.collect();
    Some(inodes?.into_iter().flatten().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_damaged_a_repair_leaves_a_clean_tree_and_all_other_files(
        steps in prop::collection::vec(step(), 1..40),
        hits in prop::collection::vec(hit(), 1..6),
    ) {
        let (mut image, before) = grown(&steps);
        damage(&mut image, &hits);
        let found = look(&image);
        let (lines, media) = repair(&image, &found);
        check(Arc::clone(&media));
        let mut world = World::open(media);
        let after: BTreeMap<InodeNumber, Content> =
            world.view().into_values().map(|seen| (seen.number, seen.content)).collect();
        if let Some(hit) = hit_inodes(&found) {
            for (path, seen) in before.iter().filter(|(_, seen)| !hit.contains(&seen.number)) {
                let is_there = after.get(&seen.number) == Some(&seen.content);
                prop_assert!(is_there, "{path}: {:?}, {:?}", lines, found.findings);
            }
        }
        world.create(ROOT, "new", FileType::File);
        world.files.sync_all().expect("durable");
        world.publish();
    }
}
