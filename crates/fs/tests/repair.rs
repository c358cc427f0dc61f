//! Random trees with random damage, repaired: the tree is whole then, and what was not hit has its bytes. A crash of the
//! repair changes nothing of that.

mod common;

use common::{Content, OPTIONS, ROOT, View, World, check, region};
use landfall_fs::{Call, FileType, FilesRecovery, InodeNumber, check_tree};
use landfall_heap::{Checked, Region, RegionCheck, SlotId, spaces};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a record.
const RECORD: usize = 128;
/// Where a record has the hash of its key, its time, and its key behind the mark of its transaction.
const HASH: usize = 32;
const TIME: usize = 42;
const KEY: usize = 80;

#[derive(Clone, Debug)]
enum Step {
    Create(usize, bool),
    /// A mount on another machine makes a file: the bound of the log has the table of calls then.
    Call(usize, u8),
    Write(usize, u64, usize, u8),
    SetExtended(usize),
    Publish,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1..300_usize, 1..9000_usize, Just(200_000)];
    prop_oneof![
        6 => (any::<usize>(), prop::bool::weighted(0.4)).prop_map(|(at, directory)| Step::Create(at, directory)),
        2 => (any::<usize>(), 1..4_u8).prop_map(|(at, mount)| Step::Call(at, mount)),
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
    /// A table of calls.
    Calls(prop::sample::Index),
}

fn hit() -> impl Strategy<Value = Hit> {
    prop_oneof![
        4 => any::<prop::sample::Index>().prop_map(Hit::Record),
        1 => (any::<prop::sample::Index>(), 0..RECORD - 1).prop_map(|(at, byte)| Hit::AnywhereInRecord(at, byte)),
        3 => any::<prop::sample::Index>().prop_map(Hit::Value),
        1 => any::<prop::sample::Index>().prop_map(Hit::Calls),
    ]
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 13 % 241) as u8 ^ seed).collect()
}

/// The bytes of a region with a random tree, and the tree. If `is_published`, the log is empty.
fn grown(steps: &[Step], is_published: bool) -> (Vec<u8>, View) {
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
            Step::Call(at, mount) => {
                let parent = directories[at % directories.len()];
                let id = count as u64;
                world.caller.begin(Call { mount: [mount; 16], queue: mount, id, numbers: [0; 2] });
                files.push(world.create(parent, &format!("name {count}"), FileType::File));
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
    if is_published {
        world.publish();
    }
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
    let is_mount = |bytes: &[u8]| (1..4).contains(&bytes[0]) && bytes.iter().all(|byte| *byte == bytes[0]);
    let callers = image[tables..].windows(16).enumerate().filter(|(_, bytes)| is_mount(bytes));
    let callers: Vec<usize> = callers.map(|(at, _)| tables + at).collect();
    let mut bytes = BTreeSet::new();
    for hit in hits {
        match hit {
            Hit::Record(at) => drop(bytes.insert(at.get(&records) + TIME)),
            Hit::AnywhereInRecord(at, byte) => drop(bytes.insert(at.get(&records) + byte)),
            Hit::Value(at) if !values.is_empty() => drop(bytes.insert(at.get(&values) + 7)),
            Hit::Calls(at) if !callers.is_empty() => drop(bytes.insert(at.get(&callers) + 7)),
            Hit::Value(_) | Hit::Calls(_) => {}
        }
    }
    bytes.into_iter().for_each(|at| flip(image, at));
}

fn flip(image: &mut [u8], at: usize) {
    image[at] ^= 0x55;
    image[at + 1] ^= 0x55;
}

/// Where the newest record of this kind and key is.
fn newest(image: &[u8], kind: u8, space: u8, key: &[u8]) -> usize {
    let is_it = |at: &usize| {
        let record = &image[*at..*at + RECORD];
        (record[4], record[7]) == (kind, space) && record[KEY..].starts_with(key)
    };
    let mut all = (RUN_SIZE as usize..image.len()).step_by(RECORD);
    all.rfind(is_it).expect("it is stored")
}

fn media(image: &CrashImage) -> Arc<SimMedia> {
    SimMedia::restart(image, SimOptions::default())
}

fn look(image: &CrashImage) -> (Checked, u64) {
    let files = Arc::new(FilesRecovery::default());
    let check = RegionCheck::complete(media(image), vec![Arc::clone(&files) as _]).expect("a region");
    let tree = check_tree(&files.settled(), &check).expect("readable");
    (check.report(), tree.findings_count)
}

/// Repairs as `landfall check` does.
fn repair(media: &Arc<SimMedia>, found: &Checked) -> Vec<String> {
    let files = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(Arc::clone(media) as _, vec![Arc::clone(&files) as _]).expect("opens");
    let suspects: BTreeSet<SlotId> = found.findings.iter().map(|finding| finding.slot).collect();
    let lines = files.repair(&heap, &OPTIONS, &suspects, &found.nameless()).expect("there is room");
    found.unreadable().for_each(|finding| heap.overwrite_with_tombstone(finding.slot).expect("stored"));
    found.copies.runs.iter().for_each(|run| heap.mark_not_slab(*run).expect("stored"));
    heap.mark_slabs(1).expect("stored");
    lines
}

/// What is there if a repair crashes somewhere, and what it has left is repaired unless the check finds nothing.
fn repaired_after_a_crash(image: &CrashImage, found: &Checked, at: u64, seed: u64) -> Arc<SimMedia> {
    let crashing = media(image);
    crashing.freeze_at(at);
    repair(&crashing, found);
    let left = crashing.frozen().expect("the repair is the same one").draw(seed);
    let media = media(&left);
    let (found, findings) = look(&left);
    if !found.is_clean() || findings > 0 {
        repair(&media, &found);
    }
    media
}

/// True if a crash of the repair may take more than the damage: slots of which nothing is known are left to the end.
fn may_lose_more(found: &Checked, lines: &[String]) -> bool {
    let kept = ["the header of the tree", "its bound is lost", "an operation is lost", "is made anew"];
    found.findings.iter().any(|finding| finding.named.is_none())
        && lines.iter().any(|line| kept.iter().any(|kept| line.contains(kept)))
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

/// The newest bound is lost, and nothing says so: the operations below it are executed again.
#[test]
fn an_inode_that_is_lost_and_made_again_has_nothing_of_the_old_one() {
    let steps = [
        Step::Create(0, true),
        Step::Create(1, false),
        Step::Create(1, false),
        Step::Write(0, 0, 9000, 1),
        Step::SetExtended(1),
    ];
    let (whole, _) = grown(&steps, true);
    let bound = newest(&whole, 4, spaces::FILES_LOG, &[0; 4]);
    for (number, byte) in [(2_u64, HASH), (2, TIME), (3, HASH), (3, TIME)] {
        let mut image = whole.clone();
        flip(&mut image, bound + HASH);
        flip(&mut image, newest(&whole, 1, spaces::FILES_INODE, &number.to_le_bytes()) + byte);
        let image = CrashImage::from(image);
        let (found, _) = look(&image);
        let media = media(&image);
        repair(&media, &found);
        let operations = media.ops().total();
        check(Arc::clone(&media));
        let repaired = World::open(media).view();
        for at in 0..=operations {
            let media = repaired_after_a_crash(&image, &found, at, at);
            check(Arc::clone(&media));
            assert_eq!(World::open(media).view(), repaired, "a crash behind operation {at}");
        }
    }
}

/// The same, and the repair is cut off: what had not been published is there, although operations before it were.
#[test]
fn what_was_not_published_is_there_after_a_repair_that_was_cut_off() {
    let (file, directory) = (|| Step::Create(0, false), Step::Create(0, true));
    let steps = [file(), Step::Publish, directory, Step::Publish, file(), Step::SetExtended(1)];
    let (mut image, whole) = grown(&steps, false);
    let bound = newest(&image, 4, spaces::FILES_LOG, &[0; 4]);
    flip(&mut image, bound + HASH);
    let image = CrashImage::from(image);
    let (found, _) = look(&image);
    let unrepaired = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media(&image) as _, vec![Arc::clone(&unrepaired) as _]).expect("opens");
    assert!(unrepaired.open(&heap, &OPTIONS).is_err(), "nobody knows which operations are published");
    let repaired = media(&image);
    repair(&repaired, &found);
    let operations = repaired.ops().total();
    check(Arc::clone(&repaired));
    assert_eq!(World::open(repaired).view(), whole);
    for at in 0..=operations {
        let media = repaired_after_a_crash(&image, &found, at, at);
        check(Arc::clone(&media));
        assert_eq!(World::open(media).view(), whole, "a crash behind operation {at}");
    }
}

/// As many cases as `PROPTEST_CASES` says.
fn config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 48 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn whatever_is_damaged_a_repair_leaves_a_clean_tree_and_all_other_files(
        steps in prop::collection::vec(step(), 1..40),
        hits in prop::collection::vec(hit(), 1..6),
        is_published in prop::bool::weighted(0.7),
        crashes in prop::collection::vec((0..1000_u64, any::<u64>()), 4),
    ) {
        let (mut image, before) = grown(&steps, is_published);
        damage(&mut image, &hits);
        let image = CrashImage::from(image);
        let (found, _) = look(&image);
        let media = media(&image);
        let lines = repair(&media, &found);
        let operations = media.ops().total();
        check(Arc::clone(&media));
        let mut world = World::open(media);
        let repaired = world.view();
        if lines.iter().any(|line| line.contains("log of client 0: its bound is lost")) {
            prop_assert_eq!(world.files.calls().knows([1; 16], 0), false, "nobody knows what was called");
        }
        let after: BTreeMap<InodeNumber, &Content> =
            repaired.values().map(|seen| (seen.number, &seen.content)).collect();
        // What an operation of the log refers to may be lost.
        if let Some(hit) = hit_inodes(&found).filter(|_| is_published) {
            for (path, seen) in before.iter().filter(|(_, seen)| !hit.contains(&seen.number)) {
                let is_there = after.get(&seen.number) == Some(&&seen.content);
                prop_assert!(is_there, "{path}: {:?}, {:?}", lines, found.findings);
            }
        }
        world.create(ROOT, "new", FileType::File);
        world.files.sync_all().expect("durable");
        world.publish();
        for (at, seed) in crashes {
            let at = operations * at / 1000;
            let media = repaired_after_a_crash(&image, &found, at, seed);
            check(Arc::clone(&media));
            if may_lose_more(&found, &lines) {
                continue;
            }
            let seen = World::open(media).view();
            for (path, inode) in &repaired {
                let is_there = seen.get(path) == Some(inode);
                prop_assert!(is_there, "{path}, a crash behind operation {at}: {lines:?}, {:?}", found.findings);
            }
            prop_assert_eq!(seen.len(), repaired.len(), "{:?}, {:?}", lines, found.findings);
        }
    }
}
