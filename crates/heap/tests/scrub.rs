//! Damage of the medium, while memory is intact.

mod common;

use common::{heap, put};
use landfall_heap::{Heap, RunId, SlotId, Source, Writer};
use landfall_media::Media;
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

const VALUE_BYTES: usize = 5000;
const KEYS: u8 = 20;

/// Durable records with values in frames, and a last record that is not durable.
fn filled() -> (Arc<SimMedia>, Arc<Heap>, Vec<SlotId>, Writer) {
    let (media, heap) = heap(SimOptions { deferred: true });
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    let mut append = |key: u8| {
        let value = [key; VALUE_BYTES];
        writer.append(&put(&heap, &[key], Source::Bytes(&value))).expect("room")
    };
    let slots: Vec<SlotId> = (0..KEYS).map(&mut append).collect();
    writer.commit_now().expect("commits");
    let value = [99; VALUE_BYTES];
    writer.append(&put(&heap, b"pending", Source::Bytes(&value))).expect("room");
    (media, heap, slots, writer)
}

fn scrub(heap: &Heap) -> Vec<SlotId> {
    let runs = heap.geometry().runs;
    let mut found: Vec<SlotId> =
        (0..runs).flat_map(|run| heap.scrub_medium(RunId(run)).expect("readable").damaged).collect();
    found.dedup();
    found
}

#[test]
fn intact_records_and_records_that_are_not_durable_yet_are_no_finding() {
    let (_, heap, slots, _writer) = filled();
    assert!(heap.has_separate_medium());
    assert_eq!(scrub(&heap), []);
    // The run is free and not reused yet.
    heap.drop_record(slots[3]);
    assert_eq!(scrub(&heap), []);
}

/// Writing it again has the device put the block elsewhere.
#[test]
fn a_block_that_the_medium_cannot_read_is_found_and_written_again_from_memory() {
    let (media, heap, slots, _writer) = filled();
    let value = heap.value_extents(slots[7], &heap.record(slots[7]).expect("a record")).expect("extents")[0];
    media.lose_block(value.off + 1000);
    let damaged = scrub(&heap);
    assert!(
        damaged.contains(&slots[7]) && damaged.len() <= 2,
        "{damaged:?}: a block has parts of two values"
    );
    damaged.iter().for_each(|slot| heap.write_again(*slot).expect("durable"));
    assert_eq!(scrub(&heap), []);
}

#[test]
fn damage_of_the_medium_alone_is_found_and_repaired_from_memory() {
    let (media, heap, slots, _writer) = filled();
    let value = heap.value_extents(slots[7], &heap.record(slots[7]).expect("a record")).expect("extents")[0];
    for (off, slot) in [(value.off + 1000, slots[7]), (slots[4].off() + 50, slots[4])] {
        media.damage_medium(off, 0x20);
        assert!(heap.verify_value(slot, &heap.record(slot).expect("memory has it right")).is_ok());
        assert_eq!(scrub(&heap), [slot]);
        heap.write_again(slot).expect("durable");
        assert_eq!(scrub(&heap), []);
        let mut byte = [0];
        media.read_medium(landfall_media::Extent::new(off, 1), &mut byte).expect("readable");
        assert_eq!(byte, media.bytes(landfall_media::Extent::new(off, 1)).expect("readable"));
    }
}
