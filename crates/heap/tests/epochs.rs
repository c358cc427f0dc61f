//! A run that becomes a slab again hides its earlier records, without a write to them.

mod common;

use common::{put, reopen};
use landfall_heap::{Geometry, Heap, HeapError, Opening, RunId, RunUse, Slot, SlotId, Source, Writer};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use std::sync::Arc;

const ZONE_EPOCHS: [u64; 2] = [192 << 10, 256 << 10];

fn append(heap: &Arc<Heap>, count: u32) -> Vec<SlotId> {
    let mut writer = Writer::new(Arc::clone(heap), 0);
    let slots = (0..count).map(|n| {
        let key = format!("key {n}").into_bytes();
        writer.append(&put(heap, &key, Source::Bytes(&[b'v'; 100]))).expect("room")
    });
    let slots = slots.collect();
    writer.commit_now().expect("commits");
    slots
}

fn stored_again(heap: Arc<Heap>, media: &SimMedia) -> Arc<SimMedia> {
    drop(heap);
    SimMedia::from_image(media.crash_state().durable_image(), SimOptions::default())
}

/// A region in which a run was a slab with three records, and is free again.
fn with_a_former_slab() -> (Arc<SimMedia>, Arc<Heap>, RunId) {
    let (media, heap) = common::heap(SimOptions::default());
    let run = append(&heap, 3)[0].run();
    heap.mark_not_slab(run).expect("the medium works");
    let media = stored_again(heap, &media);
    let heap = reopen(&media).0;
    (media, heap, run)
}

/// Turns free runs into slabs until `run` is one.
fn become_slab(heap: &Heap, run: RunId) {
    while heap.runs().get(run).used_for() != RunUse::Slab {
        heap.prepare_slab(0).expect("the run is free");
    }
}

fn bytes(media: &SimMedia, run: RunId) -> Vec<u8> {
    media.bytes(Extent::new(run.off(), RUN_SIZE as u32)).expect("in bounds").to_vec()
}

#[test]
fn a_slab_begins_without_a_byte_written_and_holds_none_of_what_was_there() {
    let (media, heap, run) = with_a_former_slab();
    let before = bytes(&media, run);
    become_slab(&heap, run);
    assert_eq!((heap.zeroed_bytes(), bytes(&media, run) == before), (0, true));
    for index in 0..4 {
        assert!(!matches!(heap.slot(SlotId::new(run, index)), Ok(Slot::Record(_))), "slot {index}");
    }
    let media = stored_again(heap, &media);
    let opening = Opening::begin(media).expect("opens");
    assert!(opening.units().iter().all(|unit| unit.filled() == 0), "recovery finds no record either");
}

#[test]
fn bytes_that_may_be_a_torn_record_are_erased_before_their_slab_is_used_again() {
    let (media, heap, run) = with_a_former_slab();
    become_slab(&heap, run);
    let slots = append(&heap, 1);
    let (slab, last) = (slots[0].run(), slots[0].index());
    let media = stored_again(heap, &media);
    let heap = reopen(&media).0;
    let zeroes = |index| matches!(heap.slot(SlotId::new(slab, index)), Ok(Slot::Empty));
    assert!((last + 1..last + 4).all(zeroes));
    assert!(matches!(heap.slot(slots[0]), Ok(Slot::Record(_))));
}

/// The medium has lost an acknowledged block: it returns the bytes that an earlier slab wrote there.
#[test]
fn a_lost_block_that_shows_records_of_an_earlier_epoch_is_lost_and_not_believed() {
    let (media, heap, run) = with_a_former_slab();
    let old = bytes(&media, run);
    become_slab(&heap, run);
    while append(&heap, 8192).iter().all(|slot| slot.run() != run) {}
    heap.mark_slabs(1).expect("marks");
    let mut image = media.crash_state().durable_image();
    drop(heap);
    let at = run.off() as usize;
    image[at..at + 3 * 128].copy_from_slice(&old[..3 * 128]);
    // One flipped bit must not make an old record a new one.
    image[at + 128] ^= 1;
    let opening = Opening::begin(SimMedia::from_image(image, SimOptions::default())).expect("opens");
    let unit = opening.units().iter().find(|unit| unit.run == run).expect("it is a slab");
    let scanned = opening.scan(unit, |found, _| assert!(found.slot.index() >= 3)).expect("scans");
    assert_eq!(scanned.holes, [SlotId::new(run, 0), SlotId::new(run, 2)]);
    assert_eq!((scanned.damaged.len(), scanned.corrected.len()), (1, 0));
}

/// The medium has lost a block of one copy, and returns zeroes: an epoch that there may be, and has been.
#[test]
fn zeroes_in_one_copy_of_the_epochs_hide_no_record() {
    let (media, heap, run) = with_a_former_slab();
    become_slab(&heap, run);
    while append(&heap, 8192).iter().all(|slot| slot.run() != run) {}
    heap.mark_slabs(1).expect("marks");
    let image = media.crash_state().durable_image();
    drop(heap);
    for copy in ZONE_EPOCHS {
        let mut image = image.clone();
        image[copy as usize..][..4096].fill(0);
        for times in 0..2 {
            let media = SimMedia::from_image(image, SimOptions::default());
            let (heap, copies) = reopen(&media);
            assert_eq!(copies.words > 0, times == 0, "it is reported, and mended");
            assert!(matches!(heap.slot(SlotId::new(run, 0)), Ok(Slot::Record(_))));
            image = stored_again(heap, &media).crash_state().durable_image();
        }
    }
}

#[test]
fn a_free_run_whose_epoch_is_lost_is_zeroed_before_it_becomes_a_slab() {
    let (media, heap, run) = with_a_former_slab();
    let mut image = media.crash_state().durable_image();
    drop(heap);
    for copy in ZONE_EPOCHS {
        image[copy as usize + run.0 as usize * 8] ^= 1;
    }
    for times in 0..2 {
        let media = SimMedia::from_image(image, SimOptions::default());
        let (heap, copies) = reopen(&media);
        assert_eq!((copies.words, copies.runs.len()), (1 - times, 0), "it is reported once and costs no run");
        image = stored_again(heap, &media).crash_state().durable_image();
    }
    let media = SimMedia::from_image(image, SimOptions::default());
    let heap = reopen(&media).0;
    become_slab(&heap, run);
    assert_eq!((heap.zeroed_bytes(), bytes(&media, run)), (RUN_SIZE, vec![0; RUN_SIZE as usize]));
    let slots = append(&heap, 1);
    let again = reopen(&stored_again(heap, &media)).0;
    assert!(matches!(again.slot(slots[0]), Ok(Slot::Record(_))));
}

/// What is left of earlier slabs would be valid in the second one from now on, if the first one began above it.
#[test]
fn a_crash_while_a_run_is_zeroed_leaves_nothing_that_a_later_slab_would_show() {
    let with_a_lost_epoch = || {
        let (media, heap, run) = with_a_former_slab();
        drop(heap);
        let mut image = media.crash_state().durable_image();
        for copy in ZONE_EPOCHS {
            image[copy as usize + run.0 as usize * 8] ^= 1;
        }
        let media = SimMedia::from_image(image, SimOptions::default());
        let heap = reopen(&media).0;
        (media, heap, run)
    };
    let (media, heap, run) = with_a_lost_epoch();
    let begun = media.ops().total();
    become_slab(&heap, run);
    let ended = media.ops().total();
    let (media, heap, run) = with_a_lost_epoch();
    media.freeze_at_each(begun..=ended);
    become_slab(&heap, run);
    for (at, frozen) in media.frozen_each().iter().enumerate() {
        for seed in 0..20 {
            let media = SimMedia::from_image(frozen.crash_image_seeded(seed), SimOptions::default());
            let heap = reopen(&media).0;
            become_slab(&heap, run);
            assert!(bytes(&media, run).iter().all(|byte| *byte == 0), "operation {at}, seed {seed}");
        }
    }
}

#[test]
fn a_slab_whose_epoch_is_lost_is_out_of_use_until_it_is_marked_as_no_slab() {
    let (media, heap) = common::heap(SimOptions::default());
    let run = append(&heap, 3)[0].run();
    let mut image = media.crash_state().durable_image();
    drop(heap);
    for copy in ZONE_EPOCHS {
        image[copy as usize + run.0 as usize * 8] ^= 1;
    }
    let media = SimMedia::from_image(image, SimOptions::default());
    let (heap, copies) = reopen(&media);
    assert_eq!((copies.runs, heap.runs().get(run).used_for()), (vec![run], RunUse::Bad));
    heap.mark_not_slab(run).expect("the medium works");
    let media = stored_again(heap, &media);
    let (heap, copies) = reopen(&media);
    assert_eq!((copies, heap.runs().get(run).used_for()), (Default::default(), RunUse::Free));
    become_slab(&heap, run);
    assert_eq!(heap.zeroed_bytes(), RUN_SIZE);
}

/// A region of an earlier version has arbitrary bytes where epochs will be.
#[test]
fn a_region_without_epochs_gets_them_with_its_next_slab_whenever_power_is_lost() {
    let (media, heap, run) = with_a_former_slab();
    drop(heap);
    let (mut geometry, _) = Geometry::read(&*media).expect("a region");
    geometry.features = 0;
    geometry.write(&*media).expect("the medium works");
    let mut old = media.crash_state().durable_image();
    // Free runs hold zeroes, as slabs of epoch 0 left them. The place of the epochs holds arbitrary bytes.
    old[run.off() as usize..][..RUN_SIZE as usize].fill(0);
    ZONE_EPOCHS.iter().for_each(|copy| old[*copy as usize..][..8192].fill(0x5a));
    let mut fences = 0;
    loop {
        let media = SimMedia::from_image(old.clone(), SimOptions::default());
        let heap = reopen(&media).0;
        let before = media.ops().fences;
        media.fail_at(before + 1 + fences);
        let prepared = heap.prepare_slab(0);
        let images = (0..5).map(|seed| media.crash_image_seeded(seed)).collect::<Vec<_>>();
        for image in images {
            let media = SimMedia::from_image(image, SimOptions::default());
            let (heap, copies) = reopen(&media);
            assert_eq!(
                (copies.words, copies.runs.len()),
                (0, 0),
                "the superblock alone may be torn, in one copy"
            );
            let slots = append(&heap, 2);
            let again = reopen(&stored_again(heap, &media)).0;
            assert!(slots.iter().all(|slot| matches!(again.slot(*slot), Ok(Slot::Record(_)))));
        }
        match prepared {
            Ok(()) => break,
            Err(error) => assert!(matches!(error, HeapError::Media(_)), "{error}"),
        }
        fences += 1;
    }
    assert!(fences >= 5, "epochs zeroed, two superblock copies, the epoch, the word: {fences}");
}
