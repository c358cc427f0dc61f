//! Records are written by hand, and found again after a crash.

use super::*;
use crate::by_hand::{
    Draft, FIELDS, Opened, World, bound, data, extended, header, inode, names, no_data, no_inode, open,
    operation,
};
use crate::header::LOG_ENDED;
use crate::kept::{Kept, Tombstone};
use crate::key::InodeNumber;
use crate::names::Position;
use landfall_heap::{CompactGoal, Compactor, Gone, Named, Owner, Region, RegionCheck, SLOTS_PER_RUN};
use landfall_media::Extent;
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

fn indices(log: &LogFound) -> Vec<u64> {
    log.operations.iter().map(|operation| operation.index).collect()
}

#[test]
fn the_newest_record_of_each_key_is_current() {
    let mut world = World::new();
    world.publish(&[
        header(1),
        inode(1),
        inode(7),
        names(1, 0),
        names(1, 500),
        data(7, 0, b"old"),
        bound(3, 0),
    ]);
    let slots =
        world.publish(&[header(2), inode(7), data(7, 0, b"new"), data(7, 9, b"x"), extended(7), bound(3, 4)]);
    let settled = world.crash();
    let found = settled.header.expect("a header");
    assert_eq!(
        (found.slot, found.header),
        (
            slots[0],
            Ok(Header { identity: [5; 16], next_client: 2, seed: None, floor: 0, under_repair: false })
        )
    );
    let numbers: Vec<u64> = settled.inodes.keys().map(|number| number.0).collect();
    assert_eq!((numbers, settled.inodes[&InodeNumber(7)]), (vec![1, 7], slots[1]));
    let (root, file) = (InodeNumber(1), InodeNumber(7));
    let places: Vec<_> = settled.names.keys().copied().collect();
    assert_eq!(places, [(root, Position(0)), (root, Position(500))]);
    assert_eq!(settled.data, BTreeMap::from([((file, 0), slots[2]), ((file, 9), slots[3])]));
    assert_eq!(settled.extended, BTreeMap::from([(file, slots[4])]));
    let log = &settled.logs[&3];
    assert_eq!((log.bound, log.first, log.fields, log.damage), (Some(slots[5]), 4, Some(FIELDS), None));
    assert_eq!(settled.number_max, Some(file));
    assert_eq!(settled.kept.stale.total(), 3, "header, inode and data");
    assert_eq!(settled.kept_bounds.stale.total(), 1, "bound");
    assert_eq!(settled.current.len(), 9);
    assert!(settled.current.is_sorted() && settled.report.notes.is_empty());
    assert_eq!((settled.report.inodes, settled.report.names, settled.report.data), (2, 2, 2));
}

/// An older one must not stand in for it, and a repair must not write it again.
#[test]
fn a_header_of_a_newer_release_is_no_damage_and_refuses_the_region() {
    let mut world = World::new();
    world.publish(&[header(1), inode(1)]);
    let mut newer = header(2);
    newer.value[0] = 4;
    world.publish(&[newer]);
    let open = || {
        let media = SimMedia::from_image(world.image(), SimOptions::default());
        Region::run(media, vec![Arc::new(FilesRecovery::default()) as _]).map(drop)
    };
    assert!(matches!(open(), Err(HeapError::NewerRecord { .. })), "{:?}", open());
    let media = SimMedia::from_image(world.image(), SimOptions::default());
    let check = RegionCheck::run(media, vec![Arc::new(FilesRecovery::default()) as _]);
    assert!(matches!(check, Err(HeapError::NewerRecord { .. })), "{check:?}");
}

#[test]
fn records_mean_something_only_while_their_number_has_an_inode() {
    let mut world = World::new();
    world.publish(&[inode(1), inode(7), names(7, 0), data(7, 0, b"a"), data(7, 5, b"b"), extended(7)]);
    world.publish(&[no_data(7, 5), data(9, 0, b"never had an inode")]);
    let before = world.crash();
    assert_eq!(before.kept.tombstones.len(), 1, "of the data in block 5");
    let end = world.publish(&[no_inode(7)]);
    let settled = world.crash();
    assert_eq!(settled.inodes.len(), 1);
    assert!(settled.names.is_empty() && settled.data.is_empty() && settled.extended.is_empty());
    let tombstone = Tombstone { slot: end[0], space: spaces::FILES_INODE, number: InodeNumber(7) };
    assert_eq!(settled.kept.tombstones, BTreeMap::from([(world.hash(&inode(7)), tombstone)]));
    assert_eq!(settled.kept.stale.total(), 1, "the inode; its parts are not counted");
    assert_eq!(settled.number_max, Some(InodeNumber(9)));
}

#[test]
fn tombstones_stay_only_while_older_records_of_their_key_are_on_the_medium() {
    let mut world = World::new();
    world.publish(&[inode(1), data(1, 0, b"a")]);
    world.publish(&[no_data(1, 0), no_data(1, 8), no_inode(6), bound(4, LOG_ENDED)]);
    let settled = world.crash();
    let kept: Vec<u64> = settled.kept.tombstones.keys().copied().collect();
    assert_eq!(kept, [world.hash(&no_data(1, 0))]);
    let stale = |draft: &Draft| settled.kept.stale.has(world.hash(draft), &landfall_heap::NoInlineCounts);
    assert!(stale(&no_data(1, 8)) && stale(&no_inode(6)), "their own records are stale");
    assert!(settled.logs.is_empty(), "the client has ended");
}

#[test]
fn operations_count_from_the_mark_on_up_to_the_first_gap() {
    let mut world = World::new();
    world.publish(&[bound(1, 2), bound(2, 0), bound(3, 7)]);
    world.append(&[0, 1, 2, 3, 5, 6].map(|index| operation(1, index)));
    world.append(&[operation(2, 1), operation(9, 0)]);
    let settled = world.crash();
    let log = &settled.logs[&1];
    assert_eq!((indices(log), log.index_max, log.behind.len()), (vec![2, 3], Some(6), 0));
    assert!(log.operations[0].seq < log.operations[1].seq);
    let empty = &settled.logs[&2];
    assert_eq!((indices(empty), empty.index_max), (vec![], Some(1)));
    assert_eq!((settled.logs[&3].first, settled.logs[&3].index_max), (7, None));
    assert!(!settled.logs.contains_key(&9), "without a bound there is no log");
    assert_eq!((settled.report.operations, settled.report.unacknowledged), (2, 3));
    assert_eq!(settled.current.len(), 5);
}

/// A chunk of a log is published: before the commit record is durable it counts for nothing, afterwards as a whole.
#[test]
fn publishing_is_all_or_nothing_at_every_crash() {
    let mut world = World::new();
    world.publish(&[header(2), inode(1), bound(1, 0)]);
    world.append(&[0, 1].map(|index| operation(1, index)));
    let from = world.media.ops().total();
    let publish = |world: &mut World| {
        let transaction = world.begin(&[inode(1), inode(2), data(2, 0, &[9; 9000]), bound(1, 2)]);
        world.writer.commit(transaction).map(drop)
    };
    publish(&mut world).expect("durable");
    let until = world.media.ops().total();
    let mut published = 0;
    for at in from..=until {
        let mut world = World::new();
        world.publish(&[header(2), inode(1), bound(1, 0)]);
        world.append(&[0, 1].map(|index| operation(1, index)));
        world.media.freeze_at(at);
        publish(&mut world).expect("the medium does not say that it is frozen");
        let state = world.media.frozen().unwrap_or_else(|| world.media.crash_state());
        for seed in 0..6 {
            let Opened { heap, settled, .. } = open(state.crash_image_seeded(seed));
            let log = &settled.logs[&1];
            let is_published = log.first == 2;
            published += u32::from(is_published);
            assert_eq!(settled.inodes.contains_key(&InodeNumber(2)), is_published, "{at} {seed}");
            assert_eq!(settled.data.len(), usize::from(is_published), "{at} {seed}");
            assert_eq!(indices(log), if is_published { vec![] } else { vec![0, 1] }, "{at} {seed}");
            for slot in settled.current {
                heap.verify_value(slot, &heap.record(slot).expect("readable")).expect("whole");
            }
        }
    }
    assert!(published > 0 && u64::from(published) < (until - from) * 6, "{published}");
}

/// Current slots, as the compactor sees them.
#[derive(Debug, Default)]
struct Slots(Mutex<BTreeMap<SlotId, SlotId>>);

impl Slots {
    /// Where the record that was in `slot` is now.
    fn of(&self, slot: SlotId) -> SlotId {
        let moved = self.0.lock();
        moved.iter().find(|(_, original)| **original == slot).map_or(slot, |(now, _)| *now)
    }
}

impl Owner for Slots {
    fn begin_move(&self, _: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        let is_current = self.0.lock().contains_key(&slot);
        if is_current {
            hold();
        }
        is_current
    }

    fn end_move(&self, _: Named, old: SlotId, new: SlotId) -> bool {
        let mut slots = self.0.lock();
        slots.remove(&old).map(|original| slots.insert(new, original)).is_some()
    }

    fn abort_move(&self, _: Named) {}

    fn forget(&self, _: &mut [Gone]) {}
}

const FILES: u64 = 200;

/// Files of which most are deleted again. Returns the slots of their data.
fn sparse() -> (World, Vec<SlotId>, Slots) {
    let mut world = World::new();
    let (mut originals, slots) = (Vec::new(), Slots::default());
    for number in 0..FILES {
        let file = [data(10 + number, 0, &[number as u8; 20_000]), inode(10 + number)];
        originals.push(world.publish(&file)[0]);
    }
    for (number, slot) in (0..).zip(&originals) {
        if number % 8 == 0 {
            slots.0.lock().insert(*slot, *slot);
        } else {
            world.publish(&[no_inode(10 + number)]);
            world.heap.drop_record(*slot);
        }
    }
    (world, originals, slots)
}

fn compact(world: &World, slots: &Slots) -> u64 {
    let mut compactor = Compactor::new(Arc::clone(&world.heap));
    let mut step =
        || compactor.step(slots, CompactGoal::DENSE_DATA, 60_000).map_or(0, |done| done.moved_records);
    (0..20).map(|_| step()).sum()
}

#[test]
fn moved_records_are_found_whole_wherever_a_crash_meets_the_compactor() {
    let (world, _, slots) = sparse();
    let from = world.media.ops().total();
    assert!(compact(&world, &slots) > 10);
    let until = world.media.ops().total();
    for step in 0..12 {
        let (world, originals, slots) = sparse();
        world.media.freeze_at(from + (until - from) * step / 11);
        compact(&world, &slots);
        let state = world.media.frozen().unwrap_or_else(|| world.media.crash_state());
        for seed in 0..3 {
            let Opened { heap, settled, .. } = open(state.crash_image_seeded(seed));
            assert_eq!(settled.data.len() as u64, FILES / 8, "{step} {seed}");
            for (number, original) in (0..).zip(&originals).step_by(8) {
                let slot = settled.data[&(InodeNumber(10 + number), 0)];
                assert!(step < 11 || slot == slots.of(*original), "the copy");
                let value = heap.value_bytes(slot, &heap.record(slot).expect("readable")).expect("whole");
                assert_eq!(*value, [number as u8; 20_000], "{step} {seed}");
            }
        }
    }
}

/// An image in which the data of a record have been overwritten.
fn overwrite(world: &World, slot: SlotId) -> Vec<u8> {
    let mut image = world.image();
    let view = world.heap.record(slot).expect("readable");
    let extents: Vec<Extent> = world.heap.value_extents(slot, &view).expect("readable").to_vec();
    image[extents[0].off as usize] ^= 0xFF;
    image
}

/// The records of a transaction lie at the end of one slab, above its watermark, and in the next slab.
#[test]
fn a_record_whose_frames_were_used_again_cuts_nothing_off() {
    let mut world = World::new();
    // A slab with less room than this is left when a transaction begins.
    let room = 256;
    let others = |count: u32| (0..count).map(|_| no_data(5, 0)).collect::<Vec<_>>();
    world.append(&others(SLOTS_PER_RUN - room - 2));
    let mut drafts = others(room);
    drafts.extend([data(7, 0, &[7; 5000]), data(8, 0, &[8; 5000]), inode(7), inode(8)]);
    let slots = world.publish(&drafts).split_off(room as usize);
    assert!(slots[0].run() == slots[1].run() && slots[1].run() != slots[2].run(), "{slots:?}");
    world.publish(&[no_inode(7)]);
    let Opened { region, settled, .. } = open(overwrite(&world, slots[0]));
    assert_eq!(region.resolved.rejected, 0);
    assert_eq!(settled.data, BTreeMap::from([((InodeNumber(8), 0), slots[1])]));
}

#[test]
fn a_torn_operation_cuts_off_itself_and_what_follows() {
    let mut world = World::new();
    world.publish(&[bound(1, 0)]);
    let slots = world.append(&[0, 1, 2].map(|index| operation(1, index)));
    let Opened { region, settled, .. } = open(overwrite(&world, slots[1]));
    assert_eq!((region.resolved.rejected, indices(&settled.logs[&1])), (2, vec![0]));
}

#[test]
fn an_operation_below_the_mark_whose_frames_were_used_again_cuts_nothing_off() {
    let mut world = World::new();
    world.publish(&[bound(1, 0)]);
    let slots = world.append_by_another_writer(&[0, 1].map(|index| operation(1, index)));
    // The bound lies below its slab's watermark. The commit record that decides it lies above.
    world.publish(&[bound(1, 1)]);
    let Opened { region, settled, .. } = open(overwrite(&world, slots[0]));
    assert_eq!((region.resolved.rejected, indices(&settled.logs[&1])), (0, vec![1]));
}

#[test]
fn the_first_operation_of_a_client_is_not_taken_for_one_of_a_client_that_has_ended() {
    let mut world = World::new();
    world.publish(&[bound(1, 0)]);
    let slots = world.append_by_another_writer(&[operation(1, 0)]);
    let Opened { region, settled, .. } = open(overwrite(&world, slots[0]));
    assert_eq!((region.resolved.rejected, indices(&settled.logs[&1])), (1, vec![]));
}

/// Damages the record in a slot, so that its key can still be read or not.
fn damage(image: &mut [u8], slot: SlotId, with_key: bool) {
    let at = slot.off() as usize;
    // Fields that are not needed for the name; a wrong hash makes the name unknown.
    image[at + 42] ^= 0x55;
    image[at + 43] ^= 0x55;
    if with_key {
        image[at + 32] ^= 0x55;
    }
}

#[test]
fn what_cannot_be_read_is_named_and_keeps_what_belongs_to_it() {
    let mut world = World::new();
    let slots = world.publish(&[
        inode(1),
        inode(7),
        data(7, 0, b"a"),
        names(1, 0),
        inode(8),
        bound(1, 0),
        bound(2, 0),
    ]);
    world.publish(&[no_inode(8)]);
    let operations = world.append(&[0, 1, 2].map(|index| operation(1, index)));
    world.publish(&[inode(1)]);
    let mut image = world.image();
    for slot in [slots[1], slots[3], slots[4], slots[6], operations[1]] {
        damage(&mut image, slot, false);
    }
    let settled = open(image).settled;
    let record = |slot, space| DamagedRecord { slot, space, place: 0, what: Damage::RecordChecksum };
    let expected = BTreeMap::from([
        (InodeNumber(1), vec![record(slots[3], spaces::FILES_NAMES)]),
        (InodeNumber(7), vec![record(slots[1], spaces::FILES_INODE)]),
    ]);
    assert_eq!(settled.damaged, expected, "inode 8 is deleted, whatever its record said");
    assert!(!settled.inodes.contains_key(&InodeNumber(7)) && settled.data.len() == 1, "its data stay");
    assert!(settled.kept.tombstones.contains_key(&world.hash(&inode(8))), "its record may be read one day");
    let log = &settled.logs[&1];
    assert_eq!((indices(log), log.behind.len(), log.index_max), (vec![0], 1, Some(2)));
    let what = Damage::RecordChecksum;
    assert_eq!(log.damage, Some(LogDamage { slot: Some(operations[1]), index: Some(1), what }));
    assert_eq!(settled.logs[&2].damage, Some(LogDamage { slot: Some(slots[6]), index: None, what }));
    assert_eq!((settled.report.damaged, settled.report.notes.len()), (4, 4), "{:?}", settled.report.notes);
}

#[test]
fn a_lost_record_may_have_been_anything_so_nothing_is_given_up() {
    let mut world = World::new();
    world.publish(&[inode(1), bound(1, 0), data(9, 0, b"without an inode")]);
    let operations = world.append(&[0, 1, 2].map(|index| operation(1, index)));
    world.append(&[operation(5, 0)]);
    world.publish(&[inode(1)]);
    let mut image = world.image();
    damage(&mut image, operations[1], true);
    let settled = open(image).settled;
    let log = &settled.logs[&1];
    assert_eq!((indices(log), log.behind.len()), (vec![0], 1));
    assert_eq!(log.damage, Some(LogDamage { slot: None, index: Some(1), what: Damage::Lost }));
    assert_eq!((settled.logs[&5].bound, settled.logs[&5].behind.len()), (None, 1), "its bound may be lost");
    assert_eq!(settled.data.len(), 1, "its inode may be lost");
}

#[test]
fn records_of_a_transaction_whose_commit_record_is_lost_are_damaged_unless_something_newer_is_known() {
    let mut world = World::new();
    world.publish(&[inode(1), inode(7), data(7, 0, b"old"), inode(8), bound(1, 0)]);
    let lost = world.publish(&[inode(1), data(7, 0, b"new"), data(8, 0, b"x"), bound(1, 5)]);
    world.publish(&[inode(1), no_inode(8)]);
    world.publish(&[header(1)]);
    let mut image = world.image();
    // The commit record follows the records of its transaction.
    let commit = SlotId(lost[3].0 + 1).off() as usize;
    image[commit..commit + 128].fill(0);
    let check = SimMedia::from_image(image.clone(), SimOptions::default());
    let settled = open(image).settled;
    let what = Damage::Undecided;
    let damaged = DamagedRecord { slot: lost[1], space: spaces::FILES_DATA, place: 0, what };
    assert_eq!(settled.damaged, BTreeMap::from([(InodeNumber(7), vec![damaged])]));
    let damage = LogDamage { slot: Some(lost[3]), index: None, what };
    assert_eq!(settled.logs[&1].damage, Some(damage), "an older bound must not stand in");
    let checked = RegionCheck::run(check, vec![Arc::new(FilesRecovery::default())]).expect("readable");
    let doubtful = checked.findings.iter().filter(|finding| finding.what == Some(what));
    assert_eq!(doubtful.map(|finding| finding.slot).collect::<Vec<_>>(), [lost[1], lost[3]]);
}

#[test]
fn kept_counts_what_is_replaced_and_drops_tombstones_that_nothing_needs() {
    let mut world = World::new();
    let old = world.publish(&[inode(7), data(7, 0, b"a"), data(7, 4, b"b")]);
    let new = world.publish(&[no_data(7, 0), no_data(7, 4)]);
    let (heap, mut kept) = (Arc::clone(&world.heap), Kept::default());
    let (first, second) = (world.hash(&data(7, 0, b"")), world.hash(&data(7, 4, b"")));
    let tombstone = |slot| Tombstone { slot, space: spaces::FILES_DATA, number: InodeNumber(7) };
    for (hash, old, new) in [(first, old[1], new[0]), (second, old[2], new[1])] {
        kept.replaced(&heap, hash, Some(old));
        kept.add_tombstone(hash, tombstone(new));
    }
    kept.announce_copy(first);
    kept.drop_stale(&heap, first);
    assert!(kept.tombstones.contains_key(&first), "a copy is about to be made");
    kept.withdraw_copy(&heap, first);
    assert!(!kept.tombstones.contains_key(&first), "nothing needs it");
    assert_eq!(kept.stale.total(), 2, "the tombstone, and an older record of the other key");
    kept.forget_number(&heap, InodeNumber(6));
    assert!(kept.tombstones.contains_key(&second));
    kept.forget_number(&heap, InodeNumber(7));
    assert!(kept.tombstones.is_empty());
}

/// What lay behind a gap before a bound was written does not follow what comes after it.
#[test]
fn operations_of_the_mount_that_are_older_than_its_bound_do_not_count() {
    let mut world = World::new();
    world.append(&[operation(0, 2), operation(0, 4), operation(0, 5)]);
    world.publish(&[header(2), inode(1), bound(0, 3)]);
    world.append(&[operation(0, 3)]);
    let settled = world.crash();
    assert_eq!((indices(&settled.logs[&0]), settled.report.unacknowledged), (vec![3], 0));
    world.append(&[operation(0, 4)]);
    assert_eq!(indices(&world.crash().logs[&0]), vec![3, 4]);
}
