//! A region opens for any set of systems that keep records in it.

mod common;

use common::{Nobody, heap, put};
use landfall_heap::{
    CompactGoal, Compactor, Damage, DamagedSlot, Entry, Found, Heap, HeapError, Judge, Keeper, Kind, Opening,
    RecordView, Recovered, Region, RegionCheck, RunUse, SlotId, Source, Tenant, Writer,
};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{BLOCK_SIZE, Extent, Media, RUN_SIZE};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Keeps the newest record of each hash in its space. It requests a second scan after a bound of its space.
#[derive(Debug)]
struct Files {
    space: u8,
    pins: bool,
    newest: Mutex<BTreeMap<u64, Found>>,
    unnamed: AtomicUsize,
    rescans: AtomicU32,
    bounds: AtomicU32,
    next: AtomicUsize,
}

impl Files {
    fn new(space: u8) -> Arc<Self> {
        Arc::new(Self {
            space,
            pins: true,
            newest: Mutex::default(),
            unnamed: AtomicUsize::new(0),
            rescans: AtomicU32::new(0),
            bounds: AtomicU32::new(0),
            next: AtomicUsize::new(0),
        })
    }

    fn slots(&self) -> Vec<SlotId> {
        self.newest.lock().values().map(|found| found.slot).collect()
    }
}

impl Judge for Files {
    fn is_superseded(&self, _: &Heap, found: &Found) -> bool {
        self.newest.lock().get(&found.hash).is_some_and(|known| known.seq > found.seq)
    }
}

impl Tenant for Files {
    fn owns(&self, space: u8) -> bool {
        space == self.space
    }

    fn restart(&self) {
        self.newest.lock().clear();
        self.rescans.store(self.bounds.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn take(&self, _: &Heap, found: &Found, _: &RecordView<'_>) -> Result<(), HeapError> {
        if found.kind == Kind::Bound {
            self.bounds.store(1, Ordering::Relaxed);
        }
        let mut newest = self.newest.lock();
        let known = newest.entry(found.hash).or_insert(*found);
        if found.seq > known.seq {
            *known = *found;
        }
        Ok(())
    }

    fn take_damaged(&self, damaged: &DamagedSlot) {
        self.unnamed.fetch_add(usize::from(damaged.named.is_none()), Ordering::Relaxed);
    }

    fn pins_damaged(&self) -> bool {
        self.pins
    }

    fn must_rescan(&self) -> bool {
        self.bounds.load(Ordering::Relaxed) != self.rescans.load(Ordering::Relaxed)
    }

    fn settle(&self, _: &Heap) -> Result<Vec<DamagedSlot>, HeapError> {
        Ok(Vec::new())
    }

    fn current_some(&self, keeper: &dyn Keeper) -> Result<bool, HeapError> {
        let slot = self.slots().get(self.next.fetch_add(1, Ordering::Relaxed)).copied();
        slot.map(|slot| keeper.keep(slot, &mut |view| Ok(view.space() == self.space))).transpose()?;
        Ok(slot.is_some())
    }

    fn describe(&self, _: u8, key: &[u8]) -> Option<String> {
        Some(format!("file {}", key.escape_ascii()))
    }
}

const FILES: u8 = 40;
const OTHERS: u8 = 41;

fn append(writer: &mut Writer, kind: Kind, space: u8, key: &[u8]) -> SlotId {
    let heap = Arc::clone(writer.heap());
    let entry = put(&heap, key, Source::Bytes(&[b'v'; 500]));
    writer.append(&Entry { kind, space, hash: heap.hash(space, key), ..entry }).expect("room")
}

/// A region with what `write` appends, stored durably.
fn region(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let (media, heap) = heap(SimOptions::default());
    let mut writer = Writer::new(heap, 0);
    write(&mut writer);
    writer.commit_now().expect("commits");
    media.crash_state().durable_image()
}

fn open(image: &[u8], tenants: &[&Arc<Files>]) -> Result<(Arc<Heap>, Recovered), HeapError> {
    let media = SimMedia::from_image(image.to_vec(), SimOptions::default());
    Region::run(media, tenants.iter().map(|tenant| Arc::clone(*tenant) as Arc<dyn Tenant>).collect())
}

fn used(heap: &Heap, slot: SlotId) -> bool {
    let extents = heap.all_extents(slot, &heap.record(slot).expect("whole")).expect("whole");
    extents.iter().all(|extent| {
        let run = heap.runs().get(landfall_heap::RunId((extent.off / RUN_SIZE) as u32));
        run.used_for() == RunUse::Data && run.live_bytes() > 0
    })
}

#[test]
fn each_system_of_a_region_gets_its_own_records_and_kept_records_stay_live() {
    let image = region(|writer| {
        append(writer, Kind::Put, FILES, b"a");
        append(writer, Kind::Put, FILES, b"a");
        append(writer, Kind::Put, OTHERS, b"a");
    });
    let (files, others) = (Files::new(FILES), Files::new(OTHERS));
    let (heap, found) = open(&image, &[&files, &others]).expect("opens");
    assert_eq!(found.resolved.accepted, 3);
    assert_eq!((files.slots().len(), others.slots().len()), (1, 1));
    let slots = [files.slots()[0], others.slots()[0]];
    assert!(slots.iter().all(|slot| used(&heap, *slot)), "{slots:?}");
}

#[test]
fn records_behind_blocks_that_the_medium_has_lost_are_found() {
    let mut slots = Vec::new();
    let mut image = region(|writer| {
        slots.extend((0..100).map(|n| append(writer, Kind::Put, FILES, format!("key {n}").as_bytes())));
    });
    let (run, last) = (slots[0].run(), slots[99].index());
    assert_eq!((slots[0].index(), slots[99].run(), last), (0, run, 99));
    image[run.off() as usize..][..64 * 128].fill(0);
    let opening = Opening::begin(SimMedia::from_image(image, SimOptions::default())).expect("opens");
    let unit = opening.units().iter().find(|unit| unit.run == run).expect("it is a slab");
    assert_eq!(unit.filled(), 100);
}

/// Zeroes pass every check: a run that they say is no slab must not be taken for free.
#[test]
fn zeroes_in_one_copy_of_the_run_table_lose_no_record() {
    let image = region(|writer| {
        for n in 0..100 {
            append(writer, Kind::Put, FILES, format!("key {n}").as_bytes());
        }
        writer.commit_now().expect("commits");
        // One slab alone may be a crash's.
        let mut other = Writer::new(Arc::clone(writer.heap()), 1);
        append(&mut other, Kind::Put, FILES, b"another key");
        other.commit_now().expect("commits");
        writer.heap().mark_slabs(1).expect("marks");
    });
    for copy in [64 << 10, 128 << 10] {
        let mut image = image.clone();
        image[copy..][..4096].fill(0);
        for times in 0..2 {
            let media = SimMedia::from_image(image, SimOptions::default());
            let copies = Opening::begin(Arc::clone(&media) as _).expect("opens").damaged_copies;
            assert_eq!(copies.words > 0, times == 0, "it is reported, and mended");
            let files = Files::new(FILES);
            let opened = Region::run(Arc::clone(&media) as _, vec![Arc::clone(&files) as Arc<dyn Tenant>]);
            drop(opened.expect("opens"));
            assert_eq!(files.slots().len(), 101, "copy at {copy}");
            image = media.crash_state().durable_image();
        }
    }
}

#[test]
fn a_record_of_a_missing_system_is_refused_before_any_change() {
    // The record is in the tail or below the watermark.
    for below in [false, true] {
        let image = region(|writer| {
            append(writer, Kind::Put, FILES, b"a");
            append(writer, Kind::Put, OTHERS, b"a");
            if below {
                writer.commit_now().expect("commits");
                writer.heap().mark_slabs(1).expect("marks");
            }
        });
        let media = SimMedia::from_image(image.clone(), SimOptions::default());
        let files = Files::new(FILES);
        let refused = Region::run(Arc::clone(&media) as _, vec![files as Arc<dyn Tenant>]);
        assert!(matches!(refused, Err(HeapError::Foreign { space: OTHERS })), "{refused:?}");
        assert!(media.crash_state().durable_image() == image);
    }
}

#[test]
fn a_record_that_changes_which_records_count_causes_a_second_scan() {
    let image = region(|writer| {
        append(writer, Kind::Put, FILES, b"a");
        append(writer, Kind::Bound, FILES, b"b");
        append(writer, Kind::Put, OTHERS, b"a");
    });
    let (files, others) = (Files::new(FILES), Files::new(OTHERS));
    let (_, found) = open(&image, &[&files, &others]).expect("opens");
    assert_eq!(files.rescans.load(Ordering::Relaxed), 1);
    assert_eq!((files.slots().len(), others.slots().len()), (2, 1), "nothing is lost in the second pass");
    assert_eq!((found.records, found.resolved.accepted), (3, 3));
}

#[test]
fn the_check_asks_the_same_systems_and_changes_nothing() {
    let mut slots = Vec::new();
    let mut at = Extent::new(0, 0);
    let mut image = region(|writer| {
        slots = vec![append(writer, Kind::Put, FILES, b"a"), append(writer, Kind::Put, OTHERS, b"a")];
        let heap = writer.heap();
        at = heap.all_extents(slots[1], &heap.record(slots[1]).expect("whole")).expect("whole")[0];
        writer.commit_now().expect("commits");
        writer.heap().mark_slabs(1).expect("marks");
    });
    let check = |image: &Vec<u8>| {
        let tenants: Vec<Arc<dyn Tenant>> = vec![Files::new(FILES), Files::new(OTHERS)];
        RegionCheck::run(SimMedia::from_image(image.clone(), SimOptions::default()), tenants).expect("checks")
    };
    let whole = check(&image);
    assert!(whole.is_clean() && whole.keys == 2, "{whole:?}");
    image[at.off as usize] ^= 1;
    let found = check(&image);
    let named: Vec<_> = found.findings.iter().map(|finding| (finding.slot, finding.named.clone())).collect();
    assert_eq!(named, [(slots[1], Some((OTHERS, b"a".to_vec())))]);
    // A slot whose key is unknown may belong to any system, so each gets it.
    image[slots[0].off() as usize + 8..][..60].fill(0xff);
    let (files, others) = (Files::new(FILES), Files::new(OTHERS));
    let (_, found) = open(&image, &[&files, &others]).expect("opens");
    assert_eq!((found.damaged.len(), files.slots().len(), others.slots().len()), (1, 0, 1));
    let reported = [files, others].map(|tenant| tenant.unnamed.load(Ordering::Relaxed));
    assert_eq!(reported, [1, 1]);
}

#[test]
fn what_the_medium_cannot_read_is_named_with_where_it_lies_and_can_be_written_again() {
    const RECORDS: u8 = 20;
    let (mut slots, mut value) = (Vec::new(), Extent::new(0, 0));
    let image = region(|writer| {
        slots = (0..RECORDS).map(|key| append(writer, Kind::Put, FILES, &[key])).collect();
        let heap = writer.heap();
        value = heap.all_extents(slots[9], &heap.record(slots[9]).expect("whole")).expect("whole")[0];
        writer.commit_now().expect("commits");
        writer.heap().mark_slabs(1).expect("marks");
    });
    for (off, is_of_records) in [(value.off, false), (slots[9].off(), true)] {
        let media = SimMedia::from_image(image.clone(), SimOptions::default());
        media.salvage_block(off);
        let block = Extent::new(off - off % BLOCK_SIZE, BLOCK_SIZE as u32);
        let found =
            RegionCheck::run(Arc::clone(&media) as _, vec![Files::new(FILES)]).expect("the check goes on");
        assert_eq!(found.lost_blocks, [block]);
        assert!(found.has_lost_blocks() && !found.is_clean());
        assert!(found.findings.iter().any(|finding| finding.slot == slots[9]), "{found:?}");
        for finding in &found.findings {
            assert_eq!(finding.what, Some(Damage::Unreadable), "{finding:?}");
            assert!((block.off..block.end()).contains(&finding.offset), "{finding:?}");
            assert_eq!(finding.named.is_none(), is_of_records, "{finding:?}");
        }
        let cleared = if is_of_records { usize::from(RECORDS) } else { 0 };
        assert_eq!(
            found.unreadable().count(),
            cleared,
            "a key of which only the value is lost gets a tombstone"
        );
        let (heap, _) = Region::run(Arc::clone(&media) as _, vec![Files::new(FILES)]).expect("opens");
        assert_eq!(heap.write_unreadable_again().expect("durable"), [block]);
        assert_eq!(media.unreadable(), []);
    }
}

#[test]
fn words_of_a_table_that_cannot_be_read_are_none_and_not_those_of_runs_without_a_use() {
    let mut slot = SlotId(0);
    let image = region(|writer| {
        slot = append(writer, Kind::Put, FILES, b"a");
        writer.commit_now().expect("commits");
        writer.heap().mark_slabs(1).expect("marks");
    });
    let [first, second] = slot.run().table_words();
    for (lost, is_lost) in [(vec![first], false), (vec![first, second], true)] {
        let media = SimMedia::from_image(image.clone(), SimOptions::default());
        lost.iter().for_each(|off| media.salvage_block(*off));
        let found = RegionCheck::run(Arc::clone(&media) as _, vec![Files::new(FILES)]).expect("reads");
        assert!(!found.is_clean());
        assert_eq!(found.copies.runs.contains(&slot.run()), is_lost, "{found:?}");
        assert_eq!(found.records, u64::from(!is_lost), "{found:?}");
    }
}

#[test]
fn a_slab_with_an_unreadable_slot_stays_if_a_system_wants_the_damage_known() {
    let mut slot = SlotId(0);
    let mut image = region(|writer| {
        slot = append(writer, Kind::Put, FILES, b"a");
        writer.commit_now().expect("commits");
        writer.heap().mark_slabs(1).expect("marks");
    });
    image[slot.off() as usize + 8..][..60].fill(0xff);
    for pins in [true, false] {
        let files = Arc::new(Files { pins, ..Arc::into_inner(Files::new(FILES)).expect("the only one") });
        let (heap, found) = open(&image, &[&files]).expect("opens");
        assert_eq!(found.damaged.len(), 1);
        Compactor::new(Arc::clone(&heap)).step(&Nobody, CompactGoal::DENSE, 1 << 20).expect("steps");
        assert_eq!(heap.runs().get(slot.run()).used_for() == RunUse::Slab, pins);
    }
}
