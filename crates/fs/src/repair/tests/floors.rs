//! Trees of a chain whose newest header cannot be read: nothing comes back of a tree that a copy has replaced.

use super::command::{OPTIONS, look, media, repair};
use super::{WHOLE, assert_listing, flip, repaired};
use crate::by_hand::plan::Plan;
use crate::by_hand::{World, bound, bound_with_floor, data, header_with, inode};
use crate::error::FsError;
use crate::files::Files;
use crate::recover::FilesRecovery;
use landfall_heap::{Region, SlotId};
use landfall_media::sim::CrashImage;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The seed of the positions of names in [`Plan`].
const SEED: u64 = 2;

/// A region with a tree that has replaced another one.
struct Replaced {
    image: Vec<u8>,
    /// The header of the tree.
    header: SlotId,
    /// A record of the tree before.
    old: SlotId,
}

/// The newest bound has the floor, or not.
fn replaced(has_floor: bool) -> Replaced {
    let mut world = World::new();
    let before =
        [header_with(1, Some(SEED), 0), bound_with_floor(1), inode(1), inode(77), data(77, 0, b"old")];
    let old = world.publish(&before)[4];
    let floor = world.heap.next_seq();
    let mut plan = Plan::new();
    let of_bound = if has_floor { floor } else { 0 };
    plan.others = vec![
        header_with(1, Some(SEED), floor),
        bound_with_floor(of_bound),
        bound(1, 0),
        data(7, 0, &[1; 5000]),
    ];
    let header = world.publish(&plan.drafts())[0];
    // The records lie below the watermark.
    world.publish(&[data(7, 0, &[1; 5000])]);
    world.heap.mark_slabs(1).expect("stored");
    Replaced { image: world.image(), header, old }
}

/// Damages a record, so that its key can still be read or not.
fn damage(image: &mut [u8], slot: SlotId, hides_key: bool) {
    flip(image, slot.off() + 42);
    if hides_key {
        flip(image, slot.off() + 32);
    }
}

fn open(image: &[u8]) -> Result<Arc<Files>, FsError> {
    let (files, image) = (Arc::new(FilesRecovery::default()), CrashImage::from(image.to_vec()));
    let (heap, _) = Region::run(media(&image), vec![Arc::clone(&files) as _]).expect("opens");
    files.open(&heap, &OPTIONS).map(|(files, ..)| files)
}

#[test]
fn a_tree_whose_header_cannot_be_read_is_not_opened_and_repaired_with_the_floor_of_the_bound() {
    for hides_key in [false, true] {
        let Replaced { mut image, header, .. } = replaced(true);
        assert!(open(&image).is_ok());
        damage(&mut image, header, hides_key);
        let refused = open(&image).map(drop);
        assert!(matches!(refused, Err(FsError::Header(_))), "{refused:?}");
        // With a slot of which nothing is known, a crash of the repair may take more.
        let (lines, image) = if hides_key { repair(&CrashImage::from(image)) } else { repaired(&image) };
        assert_eq!(lines, ["the header of the tree is written again"]);
        let left = look(&image);
        assert!(left.is_clean() && left.values.keys().all(|key| key.0 != 77), "{:?}", left.values.keys());
        assert_listing(&image, &WHOLE);
    }
}

#[test]
fn a_slot_of_which_nothing_is_known_is_no_header_if_the_bound_has_its_floor() {
    let Replaced { mut image, old, .. } = replaced(true);
    damage(&mut image, old, true);
    let files = open(&image).expect("the bound says that the header is one of this tree");
    assert_eq!(files.attach().expect("a number"), 2, "another header of the tree may have given 1");
}

/// As earlier releases have left it.
#[test]
fn where_nothing_says_the_floor_a_repair_does_not_mix_two_trees() {
    for hides_key in [false, true] {
        let Replaced { mut image, header, .. } = replaced(false);
        assert!(open(&image).is_ok());
        damage(&mut image, header, hides_key);
        let refused = open(&image).map(drop);
        assert!(matches!(refused, Err(FsError::Header(_))), "{refused:?}");
        let (files, media) = (Arc::new(FilesRecovery::default()), media(&CrashImage::from(image)));
        let (heap, _) = Region::run(Arc::clone(&media) as _, vec![Arc::clone(&files) as _]).expect("opens");
        let before = media.crash_state().durable_image();
        let refused = files.repair(&heap, &OPTIONS, &BTreeSet::new(), &[]);
        assert!(matches!(refused, Err(FsError::FloorLost)), "{refused:?}");
        assert!(media.crash_state().durable_image() == before, "nothing is changed");
    }
}
