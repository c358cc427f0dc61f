//! Frames and runs against a model that counts holds.

mod common;

use landfall_heap::{FRAME_SIZE, FreeGoal, Heap, HeapError, RunId, RunUse};
use landfall_media::sim::SimOptions;
use landfall_media::{Extent, RUN_SIZE};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Take,
    Retire(prop::sample::Index),
    Hold { run: prop::sample::Index, off: u32, len: u32 },
    Release(prop::sample::Index),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        2 => Just(Op::Take),
        2 => any::<prop::sample::Index>().prop_map(Op::Retire),
        4 => (any::<prop::sample::Index>(), 0..RUN_SIZE as u32, 0..20_000u32)
            .prop_map(|(run, off, len)| Op::Hold { run, off, len: len.min(RUN_SIZE as u32 - off) }),
        4 => any::<prop::sample::Index>().prop_map(Op::Release),
    ];
    prop::collection::vec(op, 1..120)
}

/// Runs being filled, and held extents, one entry for each hold.
#[derive(Default)]
struct Model {
    filling: Vec<u64>,
    held: Vec<Extent>,
}

impl Model {
    fn run(&mut self, heap: &Heap, op: &Op) {
        match op {
            Op::Take => self.filling.extend(heap.take_landing_run()),
            Op::Retire(index) if !self.filling.is_empty() => {
                heap.retire_landing_run(self.filling.swap_remove(index.index(self.filling.len())));
            }
            Op::Hold { run, off, len } if !self.filling.is_empty() => {
                let extent = Extent::new(self.filling[run.index(self.filling.len())] + u64::from(*off), *len);
                heap.runs().hold(extent);
                self.held.push(extent);
            }
            Op::Release(index) if !self.held.is_empty() => {
                heap.runs().release(self.held.swap_remove(index.index(self.held.len())));
            }
            _ => {}
        }
    }

    fn frames(&self) -> BTreeMap<u64, u32> {
        let mut frames = BTreeMap::new();
        for extent in self.held.iter().filter(|extent| !extent.is_empty()) {
            for frame in extent.off / FRAME_SIZE..=(extent.end() - 1) / FRAME_SIZE {
                *frames.entry(frame).or_default() += 1;
            }
        }
        frames
    }

    fn is_used(&self, run: RunId) -> bool {
        let touches = |extent: &Extent| !extent.is_empty() && RunId::of(extent.off) == run;
        self.filling.contains(&run.off()) || self.held.iter().any(touches)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_is_free_exactly_when_nobody_fills_it_and_nobody_holds_a_frame_of_it(ops in ops()) {
        let (_, heap) = common::heap(SimOptions::default());
        let mut model = Model::default();
        let before = heap.runs().free_count();
        for op in &ops {
            model.run(&heap, op);
            let frames = model.frames();
            for frame in 0..common::RUNS * RUN_SIZE / FRAME_SIZE {
                let wanted = frames.get(&frame).copied().unwrap_or(0);
                prop_assert_eq!(heap.runs().frame_refs(frame * FRAME_SIZE), wanted);
            }
            for (id, run) in heap.runs().iter().filter(|(id, _)| !id.is_table()) {
                let wanted = if model.is_used(id) { RunUse::Data } else { RunUse::Free };
                prop_assert_eq!(run.used_for(), wanted, "run {}", id.0);
            }
        }
        model.filling.drain(..).for_each(|run| heap.retire_landing_run(run));
        model.held.drain(..).for_each(|extent| heap.runs().release(extent));
        prop_assert_eq!(heap.runs().free_count(), before);
    }
}

#[test]
fn threads_that_hold_and_release_the_same_frames_leave_them_free() {
    let (_, heap) = common::heap(SimOptions::default());
    let before = heap.runs().free_count();
    let run = heap.take_landing_run().expect("a free run");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let heap = Arc::clone(&heap);
            scope.spawn(move || {
                for round in 0..2000 {
                    let extent = Extent::new(run + (round + thread) % 7 * 1000, 5000);
                    heap.runs().hold(extent);
                    heap.runs().release(extent);
                }
            });
        }
    });
    assert_eq!(heap.runs().free_count(), before - 1, "it is still being filled");
    heap.retire_landing_run(run);
    assert_eq!(heap.runs().free_count(), before);
}

/// Surplus free runs are given back. If the medium then has no space for them, the reserved runs remain.
#[test]
fn runs_that_a_full_medium_refuses_are_not_free_and_reserved_ones_are() {
    let (media, heap) = common::heap(SimOptions { deferred: true });
    let goal = FreeGoal { ready_min: 0, ready_max: 12, warm_max: 2, ready_together: 1 };
    let tend = |window_over| heap.maintain_free_runs(goal, window_over).expect("the medium answers");
    for _ in 0..100 {
        tend(true);
        while tend(false) {}
    }
    let total = heap.runs().free_count();
    assert_eq!(u64::from(total), common::RUNS - 1, "what is given back is free");
    media.set_full(true);
    assert!(matches!(heap.prepare_slab(12), Err(HeapError::Full)), "as a region that is full");
    // Landing may take all ready runs but three, and no other run.
    let mut taken = Vec::new();
    while let Some(run) = heap.take_landing_run() {
        taken.push(run);
    }
    assert_eq!(taken.len(), 9);
    assert_eq!((heap.runs().free_count(), heap.runs().counts().free), (3, 22));
    assert!(!heap.has_room());
    assert!(!tend(false), "there is no space yet");
    media.set_full(false);
    assert!(tend(false), "there is space again");
    assert!(heap.has_room() && heap.take_landing_run().is_some());
}
