//! Tests of compaction with concurrent workers, damage at rest, and crashes.

mod common;

use common::{crash_now, create, get, set};
use landfall_heap::{CompactGoal, Compactor, CopyPath, Gone, Named, Owner, SlotId, Source, Writer};
use landfall_kv::{Engine, KvError, SetRequest};
use landfall_media::sim::SimOptions;
use landfall_media::{Extent, Media, RUN_SIZE};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

const RUNS: u64 = 40;
/// Length of a value that nearly fills a run, and is still moved.
const BIG: usize = 1_000_000;

/// The engine as the owner of records, with another worker that overwrites a key just before its copy takes over.
struct Overwriter<'a> {
    engine: &'a Engine,
    worker: RefCell<&'a mut Writer>,
    overwrites: Cell<bool>,
}

impl Owner for Overwriter<'_> {
    fn begin_move(&self, name: Named, slot: SlotId, hold: &mut dyn FnMut()) -> bool {
        self.engine.begin_move(name, slot, hold)
    }

    fn end_move(&self, name: Named, old: SlotId, new: SlotId) -> bool {
        if self.overwrites.replace(false) {
            set(self.engine, &mut self.worker.borrow_mut(), b"moved", &[9; 20]);
        }
        self.engine.end_move(name, old, new)
    }

    fn abort_move(&self, name: Named) {
        self.engine.abort_move(name);
    }

    fn forget(&self, gone: &mut [Gone]) {
        self.engine.forget(gone);
    }
}

#[test]
fn a_copy_that_lost_to_a_newer_version_stays_until_that_version_is_durable() {
    let (media, engine) = create(RUNS, SimOptions::default());
    let heap = Arc::clone(engine.heap());
    let (mut slow, mut fast) = (Writer::new(Arc::clone(&heap), 0), Writer::new(Arc::clone(&heap), 1));
    for (gap, key) in [("gap1", "moved"), ("gap2", "other")] {
        set(&engine, &mut fast, gap.as_bytes(), &vec![0; RUN_SIZE as usize - BIG]);
        set(&engine, &mut fast, key.as_bytes(), &vec![1; BIG]);
        engine.delete(&mut fast, 0, gap.as_bytes(), 0, 1).expect("deletes").ungated();
    }
    set(&engine, &mut fast, b"last", &[4; 5000]);
    fast.commit_now().expect("commits");

    let mut compactor = Compactor::new(heap);
    let owner = Overwriter { engine: &engine, worker: RefCell::new(&mut slow), overwrites: Cell::new(true) };
    for _ in 0..20 {
        compactor.step(&owner, CompactGoal::DENSE, 1 << 20).expect("moves");
    }
    assert!(!owner.overwrites.get(), "the key was overwritten while it was being moved");
    // After this delete, the run of the copy holds nothing else.
    engine.delete(&mut fast, 0, b"other", 0, 1).expect("deletes").ungated();
    fast.commit_now().expect("commits");
    // A worker that commits reuses all runs that count as free. The other worker never commits.
    for round in 0..8u8 {
        set(&engine, &mut fast, format!("new{round}").as_bytes(), &vec![100 + round; BIG]);
        fast.commit_now().expect("commits");
    }
    for image in crash_now(&media) {
        let found = get(&image, b"moved").expect("a value, the old one or the new");
        assert!(found.as_deref() == Some(&vec![1; BIG]) || found.as_deref() == Some(&[9; 20]), "{found:?}");
    }
}

#[test]
fn moving_the_record_of_a_damaged_value_damages_no_other_value() {
    let (media, engine) = create(RUNS, SimOptions::default());
    let mut writer = Writer::new(Arc::clone(engine.heap()), 0);
    set(&engine, &mut writer, b"damaged", &[1; 1000]);
    set(&engine, &mut writer, b"whole", &[2; 1000]);
    set(&engine, &mut writer, b"inline", &[3; 10]);
    writer.commit_now().expect("commits");
    engine.heap().mark_slabs(1).expect("marks");
    let value = engine.peek(0, b"damaged", 0).expect("reads").ungated().expect("is there").extents()[0];
    drop((writer, engine));

    media.damage(value.off + 10, 4);
    let engine = common::reopen(&media);
    let mut compactor = Compactor::new(Arc::clone(engine.heap()));
    for _ in 0..6 {
        compactor.step(&engine, CompactGoal::DENSE, 1 << 20).expect("moves");
        for image in crash_now(&media) {
            assert!(matches!(get(&image, b"damaged"), Err(KvError::Damaged { .. })));
            assert_eq!(get(&image, b"whole").expect("is not damaged").as_deref(), Some(&[2; 1000][..]));
            assert_eq!(get(&image, b"inline").expect("is not damaged").as_deref(), Some(&[3; 10][..]));
        }
    }
}

#[test]
fn only_the_part_in_the_victim_run_of_a_value_that_spans_several_runs_moves() {
    let (media, engine) = create(RUNS, SimOptions::default());
    let heap = engine.heap();
    let runs = [(); 3].map(|()| heap.take_landing_run().expect("a free run"));
    assert_eq!([runs[0] + RUN_SIZE, runs[0] + 2 * RUN_SIZE], [runs[1], runs[2]], "neighbours");
    let value: Vec<u8> = (0..5u32 << 19).map(|at| (at % 249) as u8).collect();
    media.store(runs[0], &value).expect("in bounds");
    let extents = [Extent::new(runs[0], value.len() as u32)];
    extents.iter().for_each(|extent| heap.runs().hold(*extent));
    let mut writer = Writer::new(Arc::clone(heap), 0);
    let landed = Source::Landed { extents: &extents, crc: None };
    let request =
        SetRequest { space: 0, key: b"long", key_at: None, value: landed, expiry_ms: 0, arrival_ns: 1 };
    engine.set(&mut writer, &request).expect("there is room").ungated();
    writer.commit_now().expect("commits");
    extents.iter().for_each(|extent| heap.runs().release(*extent));
    runs.into_iter().for_each(|run| heap.retire_landing_run(run));

    let goal = CompactGoal::DENSE_DATA;
    Compactor::new(Arc::clone(heap)).step(&engine, goal, 1 << 20).expect("moves");
    assert_eq!(heap.copies.get(CopyPath::Moved), RUN_SIZE / 2, "the run that is half full");
    let read = |engine: &Engine| {
        engine.get(0, b"long", 0).expect("reads").ungated().map(|item| item.to_vec().expect("reads"))
    };
    assert!(read(&engine).as_ref() == Some(&value));
    assert!(read(&common::reopen(&common::medium(media.crash_state().durable()))) == Some(value));
}
