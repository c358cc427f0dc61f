//! The writer's contract: batches, groups, limits, and what a full region still does.

mod common;

use common::{Nobody, heap, put, tombstone};
use landfall_heap::{
    CompactGoal, Compactor, Group, Heap, HeapError, KEY_BYTES_MAX, Patience, Return, RunUse, SLOTS_PER_RUN,
    Slot, SlotId, Source, VALUE_BYTES_MAX, Writer,
};
use landfall_media::sim::SimOptions;
use landfall_media::{Extent, Media, RUN_SIZE, Site};
use std::sync::Arc;

fn writer(heap: &Arc<Heap>) -> Writer {
    Writer::new(Arc::clone(heap), 0)
}

fn append(writer: &mut Writer, key: &[u8], value: &[u8]) -> Result<SlotId, HeapError> {
    let heap = Arc::clone(writer.heap());
    writer.append(&put(&heap, key, Source::Bytes(value)))
}

fn value_of(heap: &Heap, slot: SlotId) -> Vec<u8> {
    let view = heap.record(slot).expect("a record");
    heap.value_bytes(slot, &view).expect("its value").into_owned()
}

fn data_runs(heap: &Heap) -> u32 {
    heap.runs().counts().data
}

#[test]
fn records_are_durable_after_their_batch_and_not_before() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let first = append(&mut writer, b"a", b"1").expect("room");
    assert!(heap.pending(first).is_some() && writer.has_work());
    writer.commit_now().expect("commits");
    let second = append(&mut writer, b"b", b"2").expect("room");
    assert!(heap.pending(first).is_none() && heap.pending(second).is_some());
    assert_eq!(heap.record(second).expect("a record").durable_before(), 1, "the embedded watermark");
}

#[test]
fn a_batch_costs_one_fence_however_many_records_are_in_it() {
    let (media, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    append(&mut writer, b"opens the slab", b"").expect("room");
    writer.commit_now().expect("commits");
    for records in [1u32, 2, 300] {
        let before = media.ops().fences;
        for number in 0..records {
            append(&mut writer, &number.to_le_bytes(), &[7; 1024]).expect("room");
        }
        writer.commit_now().expect("commits");
        assert_eq!(media.ops().fences - before, 1, "{records} records");
    }
}

#[test]
fn a_batch_that_gathers_while_another_is_fenced_is_not_durable_with_it() {
    let (media, heap) = heap(SimOptions { deferred: true });
    let mut writer = writer(&heap);
    let first = append(&mut writer, b"a", b"1").expect("room");
    let mut dirty = writer.begin_commit().expect("work");
    let second = append(&mut writer, b"b", b"2").expect("room");
    let outcome = media.fence(&mut dirty, Site::Commit);
    writer.finish_commit(outcome).expect("commits");
    assert!(heap.pending(first).is_none() && heap.pending(second).is_some());
    writer.commit_now().expect("commits");
    assert!(heap.pending(second).is_none() && !writer.has_work());
}

/// The batch under way may be somebody else's, who shares the writer and does not hold it while the medium works.
#[test]
fn a_full_slab_waits_for_the_batch_that_is_being_fenced() {
    for options in [SimOptions::default(), SimOptions { deferred: true }] {
        let (media, heap) = heap(options);
        let mut writer = writer(&heap);
        append(&mut writer, b"a", b"1").expect("room");
        let mut dirty = writer.begin_commit().expect("work");
        let entry = tombstone(&heap, b"gone");
        let refused = (0..2 * SLOTS_PER_RUN).find_map(|_| writer.append(&entry).err());
        assert!(matches!(refused, Some(HeapError::Busy)), "{refused:?}");
        media.fence(&mut dirty, Site::Commit).expect("fences");
        writer.finish_commit(Ok(())).expect("completes");
        writer.commit_now().expect("commits");
        writer.append(&entry).expect("a slab of its own");
    }
}

#[test]
fn values_of_every_size_read_back() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    for key_len in [0, 1, 30, 52, 53, 64, 300, 5000, KEY_BYTES_MAX] {
        for len in [0, 1, 11, 12, 50, 63, 64, 65, 2048, 5000, 1_500_000] {
            let (key, value) = (vec![b'k'; key_len], vec![len as u8; len]);
            let slot = append(&mut writer, &key, &value).expect("room");
            assert_eq!(value_of(&heap, slot), value, "key of {key_len}, value of {len}");
            let view = heap.record(slot).expect("a record");
            assert_eq!(*heap.key(&view).expect("its key"), *key);
            writer.supersede(slot);
            writer.commit_now().expect("commits");
        }
    }
    assert_eq!(heap.runs().live_bytes(), 0);
}

#[test]
fn a_value_in_many_pieces_some_of_them_the_same_reads_back_and_leaves_nothing() {
    let (media, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let run = heap.take_landing_run().expect("a free run");
    media.store(run, &[5; 3000]).expect("in bounds");
    let extents: Vec<Extent> = (0..40).map(|piece| Extent::new(run + piece % 7 * 100, 90)).collect();
    extents.iter().for_each(|extent| heap.runs().hold(*extent));
    let slot =
        writer.append(&put(&heap, b"k", Source::Landed { extents: &extents, crc: None })).expect("room");
    extents.iter().for_each(|extent| heap.runs().release(*extent));
    heap.retire_landing_run(run);
    assert_eq!(value_of(&heap, slot), vec![5; 40 * 90]);
    assert_eq!(data_runs(&heap), 2, "where it landed, and where its list of extents is");
    writer.supersede(slot);
    assert_eq!(data_runs(&heap), 2, "what was superseded stays until the batch is durable");
    writer.commit_now().expect("commits");
    assert_eq!(data_runs(&heap), 1, "the run that the writer fills");
    assert_eq!(heap.runs().live_bytes(), 0);
}

#[test]
fn a_group_that_does_not_fit_the_slab_goes_whole_into_the_next() {
    for (deferred, count) in [(false, 3), (true, 3), (false, 700)] {
        let (_, heap) = heap(SimOptions { deferred });
        let mut writer = writer(&heap);
        for _ in 0..SLOTS_PER_RUN - 2 {
            append(&mut writer, b"filler", b"").expect("room");
        }
        let entries = vec![put(&heap, b"g", Source::Bytes(b"1")); count];
        let slots = match writer.append_group(&entries) {
            Err(HeapError::Busy) if deferred => {
                writer.commit_now().expect("commits");
                writer.append_group(&entries).expect("room")
            }
            other => other.expect("room"),
        };
        let (first, run) = (heap.record(slots[0]).expect("a record").seq(), slots[0].run());
        for (place, slot) in slots.iter().enumerate() {
            let group = heap.record(*slot).expect("a record").group();
            assert_eq!(group, Some(Group { first_seq: first, count: count as u32, place: place as u32 }));
            assert_eq!((slot.run(), slot.index()), (run, place as u32));
        }
    }
}

#[test]
fn entries_over_a_limit_are_refused_and_not_appended() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let huge = [Extent::new(0, u32::try_from(VALUE_BYTES_MAX + 1).expect("512 MiB"))];
    let key = vec![0; KEY_BYTES_MAX + 1];
    let entry = put(&heap, b"k", Source::Landed { extents: &huge, crc: Some(landfall_heap::Crcs::Whole(0)) });
    assert!(matches!(writer.append(&entry), Err(HeapError::TooLarge { what: "a value", .. })));
    assert!(matches!(append(&mut writer, &key, b""), Err(HeapError::TooLarge { what: "a key", .. })));
    let group = vec![tombstone(&heap, b"k"); SLOTS_PER_RUN as usize + 1];
    assert!(matches!(writer.append_group(&group), Err(HeapError::TooLarge { what: "a group", .. })));
    assert!(!writer.has_work());
}

/// Fills the region until it says so. Returns the keys that are in it.
fn fill(writer: &mut Writer) -> Vec<SlotId> {
    let mut slots = Vec::new();
    loop {
        match append(writer, format!("fill{}", slots.len()).as_bytes(), &vec![1; 700_000]) {
            Ok(slot) => slots.push(slot),
            Err(HeapError::Full) => return slots,
            Err(error) => panic!("{error}"),
        }
        writer.commit_now().expect("commits");
        assert!(slots.len() < 100, "a region of 32 MiB is never full");
    }
}

#[test]
fn a_full_region_takes_deletes_of_short_and_long_keys_and_then_writes_again() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let slots = fill(&mut writer);
    assert!(slots.len() > 10 && !heap.has_room());
    let long = vec![b'l'; 40_000];
    for key in [&b"short"[..], &long] {
        writer.append(&tombstone(&heap, key)).expect("the delete reserve is for this");
    }
    slots.iter().for_each(|slot| writer.supersede(*slot));
    writer.commit_now().expect("commits");
    append(&mut writer, b"again", &[2; 10_000]).expect("room");
}

#[test]
fn a_write_without_room_asks_for_the_space_of_unfinished_requests_before_the_region_is_full() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    fill(&mut writer);
    heap.note_unfinished(0, 4 << 20);
    let mut answered = heap.join_receivers();
    let mut asked = Vec::new();
    while let Err(HeapError::Cleaning) = append(&mut writer, b"k", &[7; 60_000]) {
        assert!(heap.take_return_wanted() && !heap.take_return_wanted(), "it asks each time");
        asked.extend(heap.asked_return(&mut answered));
        assert!(heap.answer_return());
    }
    assert_eq!(asked.len(), 9, "it does not wait for ever");
    assert_eq!(asked.iter().position(|asked| *asked == Return::Half), Some(1), "first what costs no request");
    heap.note_unfinished(4 << 20, 1000);
    let attempt = |writer: &mut Writer| append(writer, b"k", &[7; 60_000]);
    assert!(matches!(attempt(&mut writer), Err(HeapError::Cleaning)), "a few bytes may keep many runs");
    assert!(heap.take_return_wanted() && heap.answer_return());
    assert!(matches!(attempt(&mut writer), Err(HeapError::Full)), "too little to close connections for");
    assert!(!heap.take_return_wanted());
}

/// Who finds no room waits for one search of what was released; what another request has waited for is no such search.
#[test]
fn a_request_without_room_waits_for_one_search_of_its_own() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let short: Vec<_> =
        (0..3_u8).map(|number| append(&mut writer, &[number], &[7; 5000]).expect("room")).collect();
    fill(&mut writer);
    let mut compactor = Compactor::new(Arc::clone(&heap));
    let release = |writer: &mut Writer, slot: SlotId| {
        writer.supersede(slot);
        writer.commit_now().expect("commits");
    };
    let mut search = || compactor.step(&Nobody, CompactGoal::DENSE, RUN_SIZE).expect("searches");
    let attempt = |writer: &mut Writer| append(writer, b"long", &[7; 700_000]);
    search();
    release(&mut writer, short[0]);
    writer.set_patience(Patience::default());
    assert!(matches!(attempt(&mut writer), Err(HeapError::Cleaning)), "it is not known what was released");
    let waited = writer.patience();
    search();
    release(&mut writer, short[1]);
    // The one that has waited gives up; another one comes.
    writer.set_patience(Patience::default());
    assert!(matches!(attempt(&mut writer), Err(HeapError::Cleaning)), "it has waited for nothing");
    search();
    assert!(matches!(attempt(&mut writer), Err(HeapError::Full)), "nothing was found");
    release(&mut writer, short[2]);
    writer.set_patience(waited);
    assert!(matches!(attempt(&mut writer), Err(HeapError::Full)), "it waits once, however much is released");
}

#[test]
fn a_group_that_finds_the_region_full_half_way_leaves_no_trace() {
    let (media, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let slots = fill(&mut writer);
    // Room for one more run, which the group's second value does not fit into.
    slots.iter().take(2).for_each(|slot| writer.supersede(*slot));
    writer.commit_now().expect("commits");
    let (last, live) = (slots.last().expect("it was filled"), heap.runs().live_bytes());
    let large = vec![3; 6 << 20];
    let entries = [put(&heap, b"a", Source::Bytes(b"1")), put(&heap, b"b", Source::Bytes(&large))];
    assert!(heap.has_room(), "the group is begun");
    assert!(matches!(writer.append_group(&entries), Err(HeapError::Full)));
    assert_eq!(heap.runs().live_bytes(), live);
    let next = SlotId(last.0 + 1);
    assert!(matches!(heap.slot(next), Ok(Slot::Empty)));
    writer.commit_now().expect("commits");
    let mut durable = [1; 128];
    media.read_medium(Extent::new(next.off(), 128), &mut durable).expect("in bounds");
    assert_eq!(durable, [0; 128], "the slot is durably empty");
}

#[test]
fn a_closed_region_appends_nothing() {
    let (media, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let slot = append(&mut writer, b"a", b"1").expect("room");
    media.fail_at(media.ops().fences + 1);
    assert!(matches!(writer.commit_now(), Err(HeapError::Media(_))));
    assert!(heap.pending(slot).is_some());
    assert!(append(&mut writer, b"b", b"2").is_err());
    assert_eq!(value_of(&heap, slot), b"1", "what is in memory stays readable");
}

#[test]
fn two_writers_never_share_a_slab() {
    let (_, heap) = heap(SimOptions::default());
    let (mut one, mut two) = (writer(&heap), Writer::new(Arc::clone(&heap), 1));
    let first = append(&mut one, b"a", b"1").expect("room");
    let second = append(&mut two, b"b", b"2").expect("room");
    assert_ne!(first.run(), second.run());
    let writer_of = |slot| heap.pending(slot).map(landfall_heap::Ticket::writer);
    assert_eq!((writer_of(first), writer_of(second)), (Some(0), Some(1)));
    assert_eq!(heap.runs().get(first.run()).used_for(), RunUse::Slab);
    one.commit_now().expect("commits");
    assert_eq!((writer_of(first), writer_of(second)), (None, Some(1)));
    let whole = RUN_SIZE / 128;
    assert_eq!(u64::from(SLOTS_PER_RUN), whole);
}

#[test]
fn a_ticket_stays_durable_when_its_slab_is_reused() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = writer(&heap);
    let slot = append(&mut writer, b"a", b"1").expect("room");
    let ticket = writer.ticket();
    assert!(!heap.is_durable(ticket));
    writer.commit_now().expect("commits");
    assert!(heap.is_durable(ticket));
    heap.drop_record(slot);
    drop(writer);
    let mut compactor = Compactor::new(Arc::clone(&heap));
    while heap.runs().get(slot.run()).used_for() == RunUse::Slab {
        let goal = CompactGoal::DENSE_SLABS;
        compactor.step(&Nobody, goal, u64::MAX).expect("gives the slab back");
    }
    // The run takes what arrives next, and its slots begin anew.
    while heap.take_landing_run().is_some_and(|run| run != slot.run().off()) {}
    assert_eq!(heap.runs().get(slot.run()).used_for(), RunUse::Data);
    assert!(heap.is_durable(ticket), "a reply that waits for it would never leave");
}
