//! Crashes of a repair: whatever is left, repairing again ends where the first repair would have ended.
//!
//! Each repair is crashed behind each operation of the medium. `LANDFALL_REPAIR_DRAWS=N` draws N images at each of them.

use super::command::{Looked, Values, look, media, repair, repair_on};
use crate::inode::Inode;
use landfall_heap::spaces;
use landfall_media::Site;
use landfall_media::sim::{CrashImage, CrashState};
use std::collections::BTreeSet;

/// Images drawn behind each operation, besides those that have lost nothing of what is pending, and all of it.
const DRAWS: u64 = 4;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn draws() -> u64 {
    let wanted = std::env::var("LANDFALL_REPAIR_DRAWS").ok();
    wanted.map_or(DRAWS, |text| text.parse().expect("LANDFALL_REPAIR_DRAWS is a number"))
}

fn images(state: &CrashState, seed: u64) -> Vec<CrashImage> {
    let drawn = (1..=draws()).map(|draw| state.draw(seed.wrapping_add(draw).wrapping_mul(GOLDEN)));
    [state.durable(), state.newest()].into_iter().chain(drawn).collect()
}

/// Repairs as the command does: not where the check finds nothing.
fn repaired_again(image: &CrashImage) -> Looked {
    let left = look(image);
    if left.is_clean() { left } else { look(&repair(image).1) }
}

/// What a crash of a repair leaves, somewhere in it.
fn crashed_again(image: &CrashImage, seed: u64) -> CrashImage {
    let (found, whole, crashing) = (look(image).found, media(image), media(image));
    repair_on(&whole, &found);
    crashing.freeze_at(seed % (whole.ops().total() + 1));
    repair_on(&crashing, &found);
    crashing.frozen().expect("the repair is the same one").draw(seed)
}

/// Records that are not the same in both. An inode that was open and has no name is deleted by whoever opens the files.
fn differing(one: &Values, other: &Values) -> Vec<(u64, u8, u64)> {
    let is_orphan = |number: u64| {
        let inode = one.get(&(number, spaces::FILES_INODE, 0)).and_then(Option::as_deref);
        inode
            .is_some_and(|inode| Inode::decode(inode, inode.len() as u64).is_ok_and(|inode| inode.nlink == 0))
    };
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).copied().collect();
    keys.into_iter().filter(|key| one.get(key) != other.get(key) && !is_orphan(key.0)).collect()
}

/// Crashes the repair of an image behind each operation, and repairs what is left. Flushes and fences of `skipped` do
/// nothing in the repair that crashes.
///
/// # Panics
/// If that does not end as the repair would have.
pub(super) fn crash(image: &CrashImage, skipped: Option<Site>) {
    let found = look(image).found;
    let (whole, crashing) = (media(image), media(image));
    let lines = repair_on(&whole, &found);
    let expected = look(&whole.crash_state().durable());
    let operations = whole.ops().total();
    crashing.freeze_at_each(0..=operations);
    skipped.into_iter().for_each(|site| crashing.skip_site(site));
    repair_on(&crashing, &found);
    let mut known: Vec<CrashImage> = Vec::new();
    for (at, state) in (0..=operations).zip(crashing.frozen_each()) {
        for image in images(&state, at) {
            if known.contains(&image) {
                continue;
            }
            let again = crashed_again(&image, (known.len() as u64 + 1).wrapping_mul(GOLDEN));
            for after in [&image, &again].map(repaired_again) {
                let (records, tree) = (&after.found.findings, &after.tree);
                assert!(after.is_clean(), "a crash behind operation {at}: {records:?}, {tree:?}: {lines:?}");
                if !differing(&after.values, &expected.values).is_empty() {
                    let l = look(&image);
                    eprintln!("LEFT1 {:?} {:?}", l.found, l.tree);
                    eprintln!("REPAIR1 {:?}", repair(&image).0);
                    let l = look(&again);
                    eprintln!("LEFT2 {:?} {:?}", l.found, l.tree);
                    eprintln!("REPAIR2 {:?}", repair(&again).0);
                    eprintln!("EXP {:?}", expected.values.keys());
                    eprintln!("AFTER {:?}", after.values.keys());
                    eprintln!("{:?} {:?}", expected.values.get(&(1, 49, 0)), after.values.get(&(1, 49, 0)));
                }
                let differs = differing(&after.values, &expected.values);
                assert_eq!(differs, [], "a crash behind operation {at}: {lines:?}");
            }
            known.push(image);
        }
    }
    assert!(known.len() as u64 > operations / 4, "{} images of {operations} operations", known.len());
}
