//! What leaves memory while others append: something happens between a step of the clock and the next.

mod common;

use common::{RUNS, put, reopen};
use landfall_heap::{NewRegion, Source, Writer, create};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, RUN_SIZE};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn what_is_appended_while_a_run_is_evicted_stays_until_it_is_durable() {
    let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    media.page(2 * RUN_SIZE);
    let heap = reopen(&media).0;
    // It has been received, and its run is filled. The record follows.
    let run = heap.take_landing_run().expect("space");
    let (extent, value) = (Extent::new(run + 70_000, 9000), [7; 9000]);
    heap.media().store(extent.off, &value).expect("in bounds");
    heap.runs().hold(extent);
    heap.retire_landing_run(run);
    let writer = Arc::new(Mutex::new(Writer::new(Arc::clone(&heap), 0)));
    let was_visited = Arc::new(AtomicBool::new(false));
    let append = {
        let (heap, writer, was_visited) = (Arc::clone(&heap), Arc::clone(&writer), Arc::clone(&was_visited));
        move || {
            was_visited.store(true, Ordering::Relaxed);
            let landed = Source::Landed { extents: &[extent], crc: None };
            writer.lock().append(&put(&heap, b"key", landed)).expect("there is room");
            heap.runs().release(extent);
        }
    };
    media.before_evicting(run, append);
    heap.relieve_memory(u64::from(u32::MAX));
    assert!(was_visited.load(Ordering::Relaxed), "the run was visited");
    assert!(*heap.pinned(extent).expect("in bounds") == value);
    writer.lock().commit_now().expect("commits");
    heap.relieve_memory(u64::from(u32::MAX));
    assert!(!heap.is_resident(extent), "it is durable");
    assert!(*heap.pinned(extent).expect("in bounds") == value);
}
