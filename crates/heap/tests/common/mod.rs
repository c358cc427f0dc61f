//! A small region on the simulated medium.
#![allow(dead_code, reason = "each test file uses its part")]

use landfall_heap::{
    DamagedCopies, Entry, Gone, Heap, Kind, Named, NewRegion, Opening, Owner, SlotId, Source, create,
};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{SimMedia, SimOptions};
use std::sync::Arc;

pub const RUNS: u64 = 32;

pub fn heap(options: SimOptions) -> (Arc<SimMedia>, Arc<Heap>) {
    let media = SimMedia::new(RUNS * RUN_SIZE, options);
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    let heap = reopen(&media).0;
    (media, heap)
}

/// Recovery of a region whose records nobody keeps, and what of its superblock and tables was damaged.
pub fn reopen(media: &Arc<SimMedia>) -> (Arc<Heap>, DamagedCopies) {
    let mut opening = Opening::begin(Arc::clone(media) as _).expect("opens");
    let damaged = opening.damaged_copies.clone();
    opening.resolve(&|_: &Heap, _: u64, _: u64| false, |_, _| {}).expect("settles");
    (opening.finish().expect("opens"), damaged)
}

pub fn put<'a>(heap: &Heap, key: &'a [u8], value: Source<'a>) -> Entry<'a> {
    entry(heap, Kind::Put, key, value)
}

pub fn tombstone<'a>(heap: &Heap, key: &'a [u8]) -> Entry<'a> {
    entry(heap, Kind::Tombstone, key, Source::None)
}

fn entry<'a>(heap: &Heap, kind: Kind, key: &'a [u8], value: Source<'a>) -> Entry<'a> {
    let hash = heap.hash(0, key);
    Entry { kind, space: 0, hash, key, key_at: None, value, arrival_ns: 0, expiry_ms: 0, aux: 0 }
}

/// Owns no record that the compactor could move.
pub struct Nobody;

impl Owner for Nobody {
    fn begin_move(&self, _: Named, _: SlotId, _: &mut dyn FnMut()) -> bool {
        false
    }

    fn end_move(&self, _: Named, _: SlotId, _: SlotId) -> bool {
        false
    }

    fn abort_move(&self, _: Named) {}

    fn forget(&self, _: &mut [Gone]) {}
}
