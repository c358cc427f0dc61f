//! The scrub of files: bytes that nobody reads are checked, too.

mod common;

use common::{ROOT, World, region};
use landfall_fs::{FilePart, FileType, FilesScrub, FilesScrubbed, InodeNumber};
use landfall_heap::Damage;
use landfall_media::Extent;

const FILES: u8 = 5;

/// A pass over all files, in small steps.
fn pass(world: &World) -> FilesScrubbed {
    let (mut at, mut all) = (FilesScrub::default(), FilesScrubbed::default());
    loop {
        let done = world.files.scrub(&mut at, 2);
        assert!(done.records <= 2);
        (all.records, all.bytes) = (all.records + done.records, all.bytes + done.bytes);
        all.findings.extend(done.findings);
        if done.wrapped {
            return all;
        }
    }
}

/// Where the first bytes of a file are.
fn begin_of(world: &World, file: InodeNumber) -> Extent {
    for part in world.files.read(file, 0..u64::MAX).expect("reads") {
        if let FilePart::Stored(part) = part {
            return part.item().extents()[0];
        }
    }
    panic!("the file has bytes")
}

#[test]
fn a_pass_names_each_file_of_which_published_data_are_damaged() {
    let mut world = World::open(region());
    let mut files = Vec::new();
    for number in 0..FILES {
        let file = world.create(ROOT, &format!("f{number}"), FileType::File);
        world.write(file, 0, &[number + 1; 20_000]);
        files.push(file);
    }
    world.files.sync_all().expect("syncs");
    world.publish();
    let whole = pass(&world);
    assert!(whole.records >= u64::from(FILES) && whole.bytes >= 20_000 * u64::from(FILES), "{whole:?}");
    assert_eq!(whole.findings, []);
    world.media.damage(begin_of(&world, files[2]).off + 5, 2);
    let found = pass(&world);
    assert_eq!(found.records, whole.records, "the pass goes on");
    assert_eq!(found.findings, [(files[2], 0, Damage::ValueChecksum)]);
}
