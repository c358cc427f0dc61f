//! Trees are written by hand with one thing wrong, and repaired.

mod command;
mod crash;
mod floors;

use crate::by_hand::plan::{Plan, attributes_of};
use crate::by_hand::{Draft, World, bound, data, draft, header, names, no_data, operation};
use crate::inode::{FileType, Mode};
use crate::key::{InodeNumber, NamesKey};
use crate::recover::FilesRecovery;
use command::{OPTIONS, Values, look, media, repair};
use landfall_heap::{Kind, Region, SlotId, spaces};
use landfall_media::Site;
use landfall_media::sim::CrashImage;
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::sync::Arc;

/// Repairs an image, and verifies that nothing is wrong then, that what no line names is as it was, and that a second
/// repair finds nothing to do. Crashes of the repair change nothing of this.
fn repaired(image: &[u8]) -> (Vec<String>, CrashImage) {
    let image = CrashImage::from(image.to_vec());
    crash::crash(&image, None);
    let before = look(&image).values;
    let (lines, image) = repair(&image);
    let after = look(&image);
    assert_eq!(after.found.findings, [], "{lines:?}");
    assert_eq!(after.tree, Vec::<String>::new(), "{lines:?}");
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split([' ', ':'])).collect();
    let numbers = words.windows(2).filter(|two| matches!(two[0], "inode" | "directory"));
    let mut named: BTreeSet<u64> = numbers.filter_map(|two| two[1].parse().ok()).collect();
    // It was open, and has no name.
    named.insert(9);
    let untouched = |values: Values| -> Vec<_> {
        values.into_iter().filter(|((number, ..), _)| !named.contains(number)).collect()
    };
    assert_eq!(untouched(after.values), untouched(before), "{lines:?}");
    assert_eq!(repair(&image).0, Vec::<String>::new(), "nothing is left to do");
    (lines, image)
}

fn flip(image: &mut [u8], at: u64) {
    image[at as usize] ^= 0x55;
    image[at as usize + 1] ^= 0x55;
}

fn write(drafts: &[Draft]) -> (Vec<SlotId>, Vec<u8>) {
    let mut world = World::new();
    let slots = world.publish(drafts);
    // The records lie below the watermark.
    world.publish(&[header(2)]);
    world.heap.mark_slabs(1).expect("stored");
    (slots, world.image())
}

/// The image of a tree in which the record of a key cannot be read.
fn without(plan: Plan, space: u8, key: &[u8]) -> Vec<u8> {
    let drafts = plan.drafts();
    let (slots, mut image) = write(&drafts);
    let at = drafts.iter().rposition(|draft| draft.space == space && draft.key == key).expect("planned");
    flip(&mut image, slots[at].off() + 42);
    image
}

/// All names, with their inodes.
fn listing(image: &CrashImage) -> Vec<(String, u64)> {
    let files = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media(image), vec![Arc::clone(&files) as _]).expect("opens");
    let (files, _, _) = files.open(&heap, &OPTIONS).expect("opens");
    let (mut all, mut next) = (Vec::new(), vec![(InodeNumber::ROOT, String::new())]);
    while let Some((directory, path)) = next.pop() {
        let mut visit = |entry: &crate::names::NameEntry| {
            let path = format!("{path}/{}", entry.name().escape_ascii());
            if entry.file_type == FileType::Directory {
                next.push((entry.number, path.clone()));
            }
            all.push((path, entry.number.0));
            true
        };
        files.entries(directory, crate::names::Position(0), &mut visit).expect("lists");
    }
    all.sort();
    all
}

fn assert_listing(image: &CrashImage, expected: &[(&str, u64)]) {
    let expected: Vec<(String, u64)> = expected.iter().map(|(path, n)| ((*path).to_owned(), *n)).collect();
    assert_eq!(listing(image), expected);
}

const WHOLE: [(&str, u64); 3] = [("/a", 7), ("/d", 8), ("/d/b", 7)];

#[test]
fn a_whole_tree_and_a_region_without_files_stay_as_they_are() {
    let (lines, image) = repaired(&Plan::new().image());
    assert_eq!(lines, Vec::<String>::new());
    assert_listing(&image, &WHOLE);
    let empty = CrashImage::from(World::new().image());
    assert_eq!(repair(&empty), (Vec::new(), empty));
}

#[test]
fn each_thing_that_is_wrong_is_repaired() {
    type Change = fn(&mut Plan);
    let cases: [(Change, &[&str]); 17] = [
        (|plan| plan.inode(7).nlink = 3, &["inode 7 (/d/b): its nlink was 3, and is 2 now"]),
        (|plan| plan.inode(7).nlink = 0, &["inode 7 (/d/b): its nlink was 0, and is 2 now"]),
        (
            |plan| plan.inodes.retain(|number, _| *number != 7),
            &[
                "inode 1 (/): its name \"a\" is removed: inode 7 does not exist",
                "inode 8 (/d): its name \"b\" is removed: inode 7 does not exist",
                "inode 1 (/): its size was 2, and is 1 now",
                "inode 8 (/d): its size was 1, and is 0 now",
            ],
        ),
        (
            |plan| plan.names[0].3 = FileType::Fifo,
            &["inode 1 (/): its name \"a\" says File now, as its inode does"],
        ),
        (|plan| plan.inode(1).size = 3, &["inode 1 (/): its size was 3, and is 2 now"]),
        (|plan| plan.inode(1).nlink = 4, &["inode 1 (/): its nlink was 4, and is 3 now"]),
        (|plan| plan.inode(8).extra = 7, &["inode 8 (/d): its parent was 7, and is 1 now"]),
        (|plan| drop(plan.others.remove(0)), &["the header of the tree is written again"]),
        (
            |plan| plan.inode(7).has_extended = true,
            &["inode 7 (/d/b): it has no extended attributes any more"],
        ),
        (|plan| plan.inode(7).size = 4999, &["inode 7 (/d/b): its size was 4999, and is 5000 now"]),
        (
            |plan| plan.others.push(data(7, 1, &[2; 100])),
            &["inode 7 (/d/b): its data from block 1 on were in two records, and are in one now"],
        ),
        (
            |plan| {
                let orphan = plan.inodes.remove(&9).expect("planned").encode();
                plan.others.push(draft(Kind::Put, spaces::FILES_INODE, &InodeNumber(9).key(), &orphan));
            },
            &["inode 9: it has no name, and is deleted"],
        ),
        (
            |plan| {
                let (key, file) = (InodeNumber(7).key(), plan.inodes.remove(&7).expect("planned"));
                let marked = draft(Kind::Put, spaces::FILES_INODE, &key, &file.encode());
                plan.others.push(Draft { aux: 1, ..marked });
            },
            &["inode 7 (/d/b): its record does not say any more that it has no name"],
        ),
        (|plan| plan.others.push(data(8, 0, &[2; 1])), &["inode 8 (/d): its data from block 0 on are lost"]),
        (|plan| plan.others.push(data(7, 9, b"")), &["inode 7 (/d/b): its data from block 9 on are lost"]),
        (
            |plan| plan.inode(1).mode = Mode::new(FileType::Fifo, 0),
            &["inode 1 (/): the root directory is made anew, and keeps the names that can be read"],
        ),
        (
            |plan| plan.names.push((8, "e", 8, FileType::Directory)),
            &["inode 8 (/d): its name \"e\" is removed: directory 8 has another place"],
        ),
    ];
    for (change, expected) in cases {
        let mut plan = Plan::new();
        change(&mut plan);
        let is_there = |line: &&str| line.contains("inode 7 does not exist");
        let whole = !expected.iter().any(is_there);
        let (lines, image) = repaired(&plan.image());
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let root = lines.iter().any(|line| line.contains("made anew"));
        assert_eq!(if root { &lines[..1] } else { &lines[..] }, expected);
        if whole {
            assert_listing(&image, &WHOLE);
        }
    }
}

#[test]
fn what_has_no_name_goes_to_a_directory_for_it() {
    let mut plan = Plan::new();
    plan.inode(9).nlink = 1;
    let (lines, image) = repaired(&plan.image());
    let expected = [
        "inode 100 (/lost+found): it is made for what has no name",
        "inode 9 (/lost+found/#9): it has no name, and is in /lost+found as #9 now",
    ];
    assert_eq!(lines[..2], expected);
    let all = [WHOLE[0], WHOLE[1], WHOLE[2], ("/lost+found", 100), ("/lost+found/#9", 9)];
    assert_listing(&image, &all);
    // A directory that is its own parent, beside a file that has the name of the directory.
    let mut plan = Plan::new();
    (plan.names[0].1, plan.names[1].0) = ("lost+found", 8);
    (plan.inode(1).nlink, plan.inode(1).size) = (2, 1);
    (plan.inode(8).nlink, plan.inode(8).size, plan.inode(8).extra) = (3, 2, 8);
    let (_, image) = repaired(&plan.image());
    let all =
        [("/lost+found", 7), ("/lost+found.1", 100), ("/lost+found.1/#8", 8), ("/lost+found.1/#8/b", 7)];
    assert_listing(&image, &all);
}

#[test]
fn a_name_that_no_lookup_finds_is_put_where_it_is_looked_for() {
    let (lines, image) = repaired(&Plan { shift: 256, ..Plan::new() }.image());
    assert!(
        lines.contains(&"inode 1 (/): its name \"a\" is put where it is looked for".to_owned()),
        "{lines:?}"
    );
    assert_listing(&image, &WHOLE);
}

/// The inode of a file cannot be read, and the medium has an older version.
fn with_an_older_inode() -> Vec<u8> {
    let mut plan = Plan::new();
    let older = plan.inodes[&7];
    plan.others.push(draft(Kind::Put, spaces::FILES_INODE, &InodeNumber(7).key(), &older.encode()));
    without(plan, spaces::FILES_INODE, &InodeNumber(7).key())
}

#[test]
fn an_inode_that_cannot_be_read_is_lost_and_no_older_one_comes_back() {
    let (lines, image) = repaired(&with_an_older_inode());
    assert_eq!(lines[0], "inode 7: it cannot be read, and is deleted");
    assert_listing(&image, &[("/d", 8)]);
    let (_, image) = repaired(&without(Plan::new(), spaces::FILES_INODE, &InodeNumber(8).key()));
    assert_listing(&image, &[("/a", 7)]);
    let (lines, image) = repaired(&without(Plan::new(), spaces::FILES_INODE, &InodeNumber(1).key()));
    assert_eq!(
        lines[0],
        "inode 1 (/): the root directory is made anew, and keeps the names that can be read"
    );
    assert_listing(&image, &WHOLE);
}

/// The test of crashes can fail.
#[test]
fn a_repair_that_leaves_out_a_flush_or_fence_is_caught() {
    let image = CrashImage::from(with_an_older_inode());
    let is_caught = |site: &Site| catch_unwind(|| crash::crash(&image, Some(*site))).is_err();
    let sites = [Site::Record, Site::Commit, Site::Transaction];
    let caught: Vec<Site> = sites.into_iter().filter(is_caught).collect();
    assert_eq!(caught, sites);
}

/// A crash of the second transaction would leave it without its commit record, which the lost record may have been.
#[test]
fn a_crash_beside_a_record_of_which_nothing_is_known_casts_no_doubt_on_what_a_repair_writes() {
    let mut plan = Plan::new();
    plan.inode(7).nlink = 3;
    let extended = draft(Kind::Put, spaces::FILES_EXTENDED, &InodeNumber(9).key(), b"");
    plan.others.push(extended);
    let mut image = without(plan, spaces::FILES_EXTENDED, &InodeNumber(9).key());
    let key = image.chunks_exact(128).position(|record| record[7] == spaces::FILES_EXTENDED).expect("stored");
    image[key * 128 + 32] ^= 0x55;
    let (lines, image) = repaired(&image);
    assert_eq!(lines, ["inode 7 (/d/b): its nlink was 3, and is 2 now"]);
    assert_listing(&image, &WHOLE);
}

#[test]
fn a_root_whose_attributes_are_damaged_is_made_anew_and_keeps_its_names() {
    let plan = Plan::new();
    let attributes = plan.inodes[&1].encode();
    let (_, mut image) = write(&plan.drafts());
    let at = image.windows(attributes.len()).position(|window| window == attributes).expect("stored");
    flip(&mut image, at as u64);
    let (_, image) = repaired(&image);
    assert_listing(&image, &WHOLE);
}

#[test]
fn names_that_cannot_be_read_leave_what_they_named_in_a_directory_for_it() {
    let key = NamesKey { directory: InodeNumber(1), first: 0 }.encode();
    let mut plan = Plan::new();
    plan.others.push(names(1, 0));
    let (lines, image) = repaired(&without(plan, spaces::FILES_NAMES, &key));
    assert_eq!(lines[0], "inode 1 (/): its names from position 0 on are lost");
    let all = [("/lost+found", 100), ("/lost+found/#8", 8), ("/lost+found/#8/b", 7)];
    assert_listing(&image, &all);
}

#[test]
fn the_first_names_of_a_directory_are_lost_and_it_takes_names_again() {
    let mut plan = Plan::new();
    let far = NamesKey { directory: InodeNumber(1), first: 1 << 61 }.encode();
    plan.others.push(draft(Kind::Put, spaces::FILES_NAMES, &far, b""));
    plan.inodes.insert(10, plan.inodes[&9]);
    plan.inode(10).nlink = 1;
    let key = NamesKey { directory: InodeNumber(1), first: 0 }.encode();
    let (_, image) = repaired(&without(plan, spaces::FILES_NAMES, &key));
    assert!(look(&image).values.contains_key(&(1, spaces::FILES_NAMES, 0)));
    assert!(listing(&image).contains(&("/lost+found/#10".to_owned(), 10)));
}

#[test]
fn data_that_cannot_be_read_are_a_hole_and_no_older_ones_come_back() {
    let key = crate::key::DataKey { file: InodeNumber(7), first: 1 }.encode();
    let mut plan = Plan::new();
    plan.others.pop();
    // Blocks 1 and 2 were one record, and then a part of the record before it.
    plan.others.extend([data(7, 1, &[3; 8192]), data(7, 0, &[4; 12_288]), no_data(7, 1)]);
    plan.inode(7).size = 12_288;
    let (lines, image) = repaired(&without(plan, spaces::FILES_DATA, &key));
    assert_eq!(lines, ["inode 7 (/d/b): its data from block 1 on are lost"]);
    let value = look(&image).values[&(7, spaces::FILES_DATA, 0)].clone();
    assert_eq!(value, Some(vec![4; 12_288]), "the tombstone was lost, not what it stood for");
}

#[test]
fn pieces_that_fail_their_checksum_read_as_zeroes_and_the_others_stay() {
    const PIECE: usize = 64 << 10;
    let bytes: Vec<u8> = (0..4 * PIECE).map(|at| (at % 241) as u8 ^ (at / PIECE) as u8).collect();
    let mut plan = Plan::new();
    plan.others.pop();
    plan.others.push(data(7, 0, &bytes));
    plan.inode(7).size = bytes.len() as u64;
    let (_, mut image) = write(&plan.drafts());
    let piece = &bytes[2 * PIECE..2 * PIECE + 4096];
    let at = image.windows(4096).position(|window| window == piece).expect("it is stored");
    flip(&mut image, at as u64);
    let (lines, image) = repaired(&image);
    assert_eq!(lines, ["inode 7 (/d/b): bytes 131072 to 196608 are lost and read as zeroes"]);
    let values = look(&image).values;
    assert_eq!(values[&(7, spaces::FILES_DATA, 0)].as_deref(), Some(&bytes[..2 * PIECE]));
    assert_eq!(values[&(7, spaces::FILES_DATA, 48)].as_deref(), Some(&bytes[3 * PIECE..]));
    assert_eq!(values.keys().filter(|key| key.1 == spaces::FILES_DATA).count(), 2);
}

#[test]
fn a_damaged_log_ends_before_its_damage() {
    let mut world = World::new();
    world.publish(&Plan::new().drafts());
    let slots = world.append(&[0, 1, 2].map(|index| operation(1, index)));
    world.publish(&[header(2)]);
    let mut image = world.image();
    flip(&mut image, slots[1].off() + 42);
    let (lines, _) = repaired(&image);
    assert_eq!(lines[0], "log of client 1: an operation is lost, and 1 operations with it");
}

#[test]
fn the_operations_of_a_log_without_its_bound_are_dropped_and_never_count_again() {
    for client in [0, 1] {
        let mut world = World::new();
        let mut plan = Plan::new();
        plan.others.remove(1);
        world.publish(&plan.drafts());
        let slots = world.publish(&[bound(client, 0)]);
        world.append(&[0, 1].map(|index| operation(client, index)));
        world.publish(&[header(2)]);
        let mut image = world.image();
        flip(&mut image, slots[0].off() + 42);
        let (lines, image) = repaired(&image);
        let expected = format!("log of client {client}: its bound is lost, and 2 operations with it");
        assert_eq!(lines, [expected]);
        assert_listing(&image, &WHOLE);
    }
}

#[test]
fn a_header_that_is_lost_gives_no_client_a_number_that_was_used() {
    let (_, mut image) = write(&Plan::new().drafts());
    let at = image.windows(4).rposition(|window| window == b"tree").expect("the header");
    flip(&mut image, at as u64 / 128 * 128 + 42);
    let (lines, image) = repaired(&image);
    assert_eq!(lines, ["the header of the tree is written again"]);
    let files = Arc::new(FilesRecovery::default());
    let (heap, _) = Region::run(media(&image), vec![Arc::clone(&files) as _]).expect("opens");
    let (files, _, _) = files.open(&heap, &OPTIONS).expect("opens");
    assert_eq!(files.attach().expect("a number"), 2);
}

#[test]
fn inodes_without_a_name_find_room_in_a_directory_for_them_that_must_be_divided() {
    let mut plan = Plan::new();
    // A record of names that is nearly full.
    plan.inodes.insert(10, attributes_of(FileType::Directory, 2, 36, 1));
    plan.names.push((1, "lost+found", 10, FileType::Directory));
    for at in 0..36 {
        let name: &'static str = format!("{at:090}").leak();
        plan.names.push((10, name, 7, FileType::File));
    }
    plan.inode(1).nlink += 1;
    plan.inode(1).size += 1;
    plan.inode(7).nlink += 36;
    for number in 20..40 {
        plan.inodes.insert(number, attributes_of(FileType::File, 1, 0, 0));
    }
    let (lines, _) = repaired(&plan.image());
    assert!(lines.iter().any(|line| line.contains("(/lost+found/#39)")), "{lines:?}");
}
