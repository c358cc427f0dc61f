//! Runs granted to a foreign writer: what it stores counts once it is adopted, and nothing takes its runs meanwhile.

mod common;

use common::{Nobody, heap, put, reopen};
use landfall_heap::{
    Check, CompactGoal, Compactor, Draft, Fields, ForeignData, ForeignSlab, Heap, HeapError, Kind, RunId,
    RunUse, SLOTS_PER_RUN, Slot, SlotId, Source, Writer, crc,
};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Site};
use std::sync::Arc;

/// A foreign writer, as it would be in another process: it knows the medium and what was granted, not the heap.
struct Foreign<'h> {
    heap: &'h Heap,
    slab: ForeignSlab,
    data: ForeignData,
    used: u32,
}

impl<'h> Foreign<'h> {
    fn new(heap: &'h Arc<Heap>) -> Self {
        let slab = ForeignSlab::grant(heap).expect("a slab");
        Self { slab, data: ForeignData::grant(heap).expect("a run"), heap, used: 0 }
    }

    /// Stores bytes and a record of them, and flushes neither.
    fn append(&mut self, index: u32, bytes: &[u8]) -> Extent {
        let extent = Extent::new(self.data.run().off() + u64::from(self.used), bytes.len() as u32);
        self.used += extent.len().next_multiple_of(4096);
        let media = self.heap.media();
        media.store(extent.off, bytes).expect("stores");
        let key = index.to_le_bytes();
        let mut draft = Draft::new(&Fields {
            kind: Kind::Put,
            space: 0,
            seq: u64::from(index) + 100,
            rev: 0,
            hash: self.heap.hash(0, &key),
            arrival_ns: 0,
            expiry_ms: 0,
            aux: 0,
        });
        draft.key_inline(&key);
        draft.value_extents(&[extent], Check::Crc(crc::of(bytes)));
        let slot = self.slab.slot(index);
        media.store(slot.off(), &draft.seal(slot, 0, self.slab.seal())).expect("stores");
        extent
    }
}

fn after_a_crash(media: &SimMedia) -> Arc<Heap> {
    let image = media.crash_state().durable_image();
    reopen(&SimMedia::from_image(image, SimOptions::default())).0
}

fn value_at(heap: &Heap, slot: SlotId) -> Option<Vec<u8>> {
    match heap.slot(slot).expect("reads") {
        Slot::Record(view) => Some(heap.value_bytes(slot, &view).expect("its value").into_owned()),
        _ => None,
    }
}

fn compact(heap: &Arc<Heap>) {
    let mut compactor = Compactor::new(Arc::clone(heap));
    for goal in [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS] {
        for _ in 0..100 {
            if compactor.step(&Nobody, goal, 1 << 20).expect("steps").is_idle {
                break;
            }
        }
    }
}

#[test]
fn what_is_adopted_is_durable_though_the_writer_has_flushed_nothing() {
    let (media, heap) = heap(SimOptions::default());
    let mut foreign = Foreign::new(&heap);
    let extents = [foreign.append(0, &[3; 5000]), foreign.append(1, &[4; 100])];
    assert_eq!(value_at(&after_a_crash(&media), foreign.slab.slot(0)), None, "it was only stored");
    let slots = foreign.slab.adopt(&[&extents[..1], &extents[1..]]).expect("adopts");
    assert_eq!(slots, [foreign.slab.slot(0), foreign.slab.slot(1)]);
    assert!(slots.iter().all(|slot| heap.pending(*slot).is_none()));
    assert_eq!((foreign.slab.adopted(), heap.runs().get(foreign.data.run()).live_bytes()), (2, 5100));
    let again = after_a_crash(&media);
    assert_eq!(value_at(&again, slots[0]), Some(vec![3; 5000]));
    assert_eq!(value_at(&again, slots[1]), Some(vec![4; 100]));
}

/// The test above is able to fail: each flush and the fence are needed.
#[test]
fn without_a_flush_or_the_fence_what_is_adopted_would_be_lost() {
    for site in [Site::Data, Site::Record, Site::Commit] {
        let (media, heap) = heap(SimOptions::default());
        let mut foreign = Foreign::new(&heap);
        let extent = foreign.append(0, &[3; 5000]);
        media.skip_site(site);
        let slot = foreign.slab.adopt(&[&[extent]]).expect("adopts")[0];
        let again = after_a_crash(&media);
        let found = match again.slot(slot).expect("reads") {
            Slot::Record(view) => again.verify_value(slot, &view).is_ok(),
            _ => false,
        };
        assert!(!found, "{site:?}");
    }
}

/// Slabs of which nothing was adopted are free again, like all others.
#[test]
fn a_slab_of_which_nothing_was_adopted_becomes_free() {
    for passed_over in [0, 1, SLOTS_PER_RUN] {
        let (_, heap) = heap(SimOptions::default());
        compact(&heap);
        let before = heap.runs().counts();
        for _ in 0..3 {
            let mut slab = ForeignSlab::grant(&heap).expect("a slab");
            slab.pass_over(passed_over);
        }
        compact(&heap);
        assert_eq!(heap.runs().counts(), before, "{passed_over} passed over");
    }
}

#[test]
fn marks_stop_at_what_was_adopted() {
    let (_, heap) = heap(SimOptions::default());
    let mut foreign = Foreign::new(&heap);
    let extents = [foreign.append(0, b"one"), foreign.append(1, b"two")];
    heap.mark_slabs(1).expect("marks");
    assert!(!heap.is_marked(foreign.slab.slot(0)));
    foreign.slab.adopt(&[&extents[..1]]).expect("adopts");
    heap.mark_slabs(1).expect("marks");
    assert!(heap.is_marked(foreign.slab.slot(0)) && !heap.is_marked(foreign.slab.slot(1)));
}

#[test]
fn granted_runs_stay_while_they_are_granted_whatever_becomes_of_their_records() {
    let (_, heap) = heap(SimOptions::default());
    let free = heap.runs().counts().free;
    let mut foreign = Foreign::new(&heap);
    let extent = foreign.append(0, &[9; 4096]);
    let slots = foreign.slab.adopt(&[&[extent]]).expect("adopts");
    heap.drop_record(slots[0]);
    compact(&heap);
    let of = |run: RunId| heap.runs().get(run).used_for();
    assert_eq!((of(foreign.slab.run()), of(foreign.data.run())), (RunUse::Slab, RunUse::Data));
    drop(foreign);
    compact(&heap);
    assert_eq!(heap.runs().counts().free, free, "all of it is free again");
}

#[test]
fn data_of_adopted_records_stay_when_their_run_is_not_granted_any_more() {
    let (_, heap) = heap(SimOptions::default());
    let mut foreign = Foreign::new(&heap);
    let extent = foreign.append(0, &[9; 4096]);
    let slot = foreign.slab.adopt(&[&[extent]]).expect("adopts")[0];
    let run = foreign.data.run();
    drop(foreign);
    assert_eq!((heap.runs().get(run).used_for(), value_at(&heap, slot)), (RunUse::Data, Some(vec![9; 4096])));
    heap.drop_record(slot);
    assert_eq!(heap.runs().get(run).used_for(), RunUse::Free);
}

#[test]
fn a_slab_with_records_of_another_writer_is_not_granted() {
    let (_, heap) = heap(SimOptions::default());
    let mut writer = Writer::new(Arc::clone(&heap), 0);
    let slot = writer.append(&put(&heap, b"key", Source::Bytes(b"value"))).expect("room");
    writer.commit_now().expect("commits");
    drop(writer);
    let slab = ForeignSlab::grant(&heap).expect("a slab");
    assert_ne!(slab.run(), slot.run());
    assert_eq!(heap.runs().get(slab.run()).filled(), 0);
    assert!(
        Writer::new(Arc::clone(&heap), 0).append(&put(&heap, b"b", Source::None)).expect("room").run()
            != slab.run()
    );
}

/// The key-value server's thread for expired keys has 253, and recovery of logs has 252.
#[test]
fn writers_of_all_systems_have_ids_beside_that_of_foreign_ones() {
    let (_, heap) = heap(SimOptions::default());
    let slab = ForeignSlab::grant(&heap).expect("a slab");
    for id in [0, 250, 252, 253] {
        let slot =
            Writer::new(Arc::clone(&heap), id).append(&put(&heap, b"key", Source::None)).expect("room");
        assert_ne!(slot.run(), slab.run());
    }
}

#[test]
fn grants_leave_the_reserves_alone() {
    let (_, heap) = heap(SimOptions::default());
    let mut granted = Vec::new();
    while let Ok(data) = ForeignData::grant(&heap) {
        granted.push(data);
    }
    assert!(matches!(ForeignSlab::grant(&heap), Err(HeapError::Full)));
    assert!(heap.take_landing_run().is_some(), "requests still land");
    assert!(u64::from(heap.runs().counts().free) >= 3 && !granted.is_empty());
}

#[test]
#[should_panic(expected = "a slab has")]
fn no_more_records_are_adopted_than_a_slab_has_slots() {
    let (_, heap) = heap(SimOptions::default());
    let mut foreign = Foreign::new(&heap);
    let none: Vec<&[Extent]> = vec![&[]; SLOTS_PER_RUN as usize + 1];
    let _ = foreign.slab.adopt(&none);
}
