//! Trees are written by hand, whole and with one thing wrong.

use super::*;
use crate::by_hand::plan::Plan;
use crate::by_hand::{World, data, draft, header, operation};
use crate::inode::Mode;
use crate::key::NamesKey;
use crate::recover::FilesRecovery;
use landfall_heap::{Kind, RegionCheck};
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

fn findings(plan: Plan) -> Vec<String> {
    check(plan.image()).findings
}

fn check(image: Vec<u8>) -> TreeChecked {
    let files = Arc::new(FilesRecovery::default());
    let media = SimMedia::from_image(image, SimOptions::default());
    let mut check = RegionCheck::begin(media, vec![Arc::clone(&files) as _]).expect("a region");
    while check.scan_some().expect("readable") {}
    check.settle().expect("readable");
    check_tree(&files.settled(), &check).expect("readable")
}

#[test]
fn a_whole_tree_and_a_region_without_files_are_clean() {
    let checked = check(Plan::new().image());
    assert_eq!(checked, TreeChecked { inodes: 4, names: 3, orphans: 1, ..TreeChecked::default() });
    let empty = check(World::new().media.crash_state().durable_image());
    assert_eq!(empty, TreeChecked::default());
}

#[test]
fn each_thing_that_is_wrong_is_named() {
    type Change = fn(&mut Plan);
    let cases: [(Change, &[&str]); 17] = [
        (|plan| plan.inode(7).nlink = 3, &["inode 7: its nlink is 3, and 2 names refer to it"]),
        (|plan| plan.inode(7).nlink = 1, &["inode 7: its nlink is 1, and 2 names refer to it"]),
        (|plan| plan.inode(9).nlink = 1, &["inode 9: it has no name, and its nlink is 1"]),
        (
            |plan| plan.inodes.retain(|number, _| *number != 7),
            &[
                "inode 1: its name \"a\" refers to inode 7, which does not exist",
                "inode 8: its name \"b\" refers to inode 7, which does not exist",
            ],
        ),
        (|plan| plan.names[0].3 = FileType::Fifo, &["inode 1: its name \"a\" says Fifo, the inode File"]),
        (|plan| plan.inode(1).size = 3, &["inode 1: it should have 3 entries, and has 2"]),
        (|plan| plan.inode(1).nlink = 4, &["inode 1: its nlink is 4, and it has 1 directories"]),
        (|plan| plan.inode(8).extra = 7, &["inode 8: its parent is inode 7, and its name is in inode 1"]),
        (
            |plan| {
                // The directory is its own parent.
                plan.names[1].0 = 8;
                (plan.inode(1).nlink, plan.inode(1).size) = (2, 1);
                (plan.inode(8).nlink, plan.inode(8).size, plan.inode(8).extra) = (3, 2, 8);
            },
            &["inode 8: it cannot be reached from the root"],
        ),
        (|plan| drop(plan.others.remove(0)), &["inode 1: the header of the tree is missing"]),
        (|plan| plan.inode(7).has_extended = true, &["inode 7: its extended attributes are missing"]),
        (|plan| plan.inode(7).size = 4999, &["inode 7: its data from block 0 on end behind its size"]),
        (
            |plan| plan.others.push(data(7, 1, &[2; 100])),
            &["inode 7: its data from block 1 on are in two records"],
        ),
        (
            |plan| {
                let orphan = plan.inodes.remove(&9).expect("planned").encode();
                plan.others.push(draft(Kind::Put, spaces::FILES_INODE, &InodeNumber(9).key(), &orphan));
            },
            &["inode 9: its nlink is 0, and its record says something else"],
        ),
        (|plan| plan.others.push(data(8, 0, &[2; 1])), &["inode 8: it has data and is a Directory"]),
        (
            |plan| plan.others.push(data(7, 9, b"")),
            &["inode 7: its data from block 9 on are damaged (record fields)"],
        ),
        (
            |plan| plan.inode(1).mode = Mode::new(FileType::Fifo, 0),
            &["inode 1: it has no name, and its nlink is 3", "inode 1: it has names and is a Fifo"],
        ),
    ];
    for (change, expected) in cases {
        let mut plan = Plan::new();
        change(&mut plan);
        assert_eq!(findings(plan), expected);
    }
}

#[test]
fn a_name_that_no_lookup_finds_is_named() {
    let findings = findings(Plan { shift: 256, ..Plan::new() });
    assert_eq!(findings.len(), 3);
    assert_eq!(findings[0], "inode 1: its name \"a\" lies where it is not looked for");
}

#[test]
fn a_log_that_ends_too_early_is_named() {
    let mut world = World::new();
    world.publish(&Plan::new().drafts());
    let slots = world.append(&[0, 1, 2].map(|index| operation(1, index)));
    world.publish(&[header(2)]);
    let mut image = world.media.crash_state().durable_image();
    image[slots[1].off() as usize + 42] ^= 0x55;
    image[slots[1].off() as usize + 43] ^= 0x55;
    let checked = check(image);
    let expected =
        "log of client 1: operation 1 is damaged (record checksum); 1 operations are kept, and not executed";
    assert_eq!((checked.operations, &checked.findings[..]), (1, &[expected.to_owned()][..]));
}

/// A repair would delete it.
#[test]
fn an_inode_of_a_newer_release_ends_the_check() {
    let plan = Plan::new();
    let mut attributes = plan.inodes[&7].encode();
    attributes[48] |= 4;
    let mut drafts = plan.drafts();
    drafts.push(draft(Kind::Put, spaces::FILES_INODE, &InodeNumber(7).key(), &attributes));
    let mut world = World::new();
    world.publish(&drafts);
    let files = Arc::new(FilesRecovery::default());
    let media = SimMedia::from_image(world.image(), SimOptions::default());
    let check = RegionCheck::complete(media, vec![Arc::clone(&files) as _]).expect("a region");
    let checked = check_tree(&files.settled(), &check);
    assert!(matches!(checked, Err(HeapError::NewerRecord { .. })), "{checked:?}");
}

#[test]
fn a_tree_without_its_root_is_named() {
    let mut plan = Plan::new();
    plan.inodes.remove(&1);
    assert!(findings(plan).contains(&"inode 1: the root is missing".to_owned()));
}

#[test]
fn what_hidden_names_may_explain_is_no_finding() {
    let mut plan = Plan::new();
    // Names with a type that does not exist.
    let key = NamesKey { directory: InodeNumber(8), first: 0 }.encode();
    plan.names.pop();
    plan.others.push(draft(Kind::Put, spaces::FILES_NAMES, &key, &[0; 20]));
    assert_eq!(findings(plan), ["inode 8: its names from position 0 on are damaged (record fields)"]);
}
