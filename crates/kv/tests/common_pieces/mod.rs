//! A store with long values.
#![allow(dead_code, reason = "each test uses some of it")]

use landfall_heap::{NewRegion, Source, ValuePlace, Writer, create};
use landfall_kv::{Engine, Recovery, SetRequest};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use std::sync::Arc;

pub struct Store {
    pub media: Arc<SimMedia>,
    pub engine: Engine,
}

fn open(media: &Arc<SimMedia>) -> Engine {
    Recovery::run(Arc::clone(media) as _, 4).expect("opens").0
}

impl Store {
    pub fn new(runs: u64) -> Self {
        let media = SimMedia::new(runs * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let engine = open(&media);
        Self { media, engine }
    }

    /// The store after a crash that lost everything that was not durable.
    pub fn restarted(self) -> Self {
        let media = SimMedia::from_image(self.media.crash_state().durable_image(), SimOptions::default());
        let engine = open(&media);
        Self { media, engine }
    }

    pub fn writer(&self) -> Writer {
        Writer::new(Arc::clone(self.engine.heap()), 0)
    }

    pub fn set(&self, writer: &mut Writer, key: &str, len: usize) {
        let value = value(key, len);
        let (key, value) = (key.as_bytes(), Source::Bytes(&value));
        let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        self.engine.set(writer, &request).expect("there is room").ungated();
    }

    pub fn delete(&self, writer: &mut Writer, key: &str) {
        assert!(self.engine.delete(writer, 0, key.as_bytes(), 1, 1).expect("deletes").ungated());
    }

    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let item = self.engine.get(0, key.as_bytes(), 1).expect("reads").ungated();
        item.map(|item| item.to_vec().expect("in bounds"))
    }

    pub fn place(&self, key: &str) -> ValuePlace<'_> {
        let item = self.engine.peek(0, key.as_bytes(), 1).expect("reads").ungated().expect("is there");
        self.engine.heap().record(item.slot).expect("whole").value()
    }

    /// The extents of a value's pieces and of its lists.
    pub fn pieces_and_lists(&self, key: &str) -> (Vec<Extent>, Vec<Extent>) {
        let heap = self.engine.heap();
        let slot = self.engine.peek(0, key.as_bytes(), 1).expect("reads").ungated().expect("is there").slot;
        let view = heap.record(slot).expect("whole");
        let pieces = heap.value_extents(slot, &view).expect("whole").to_vec();
        let lists = heap.all_extents(slot, &view).expect("whole")[pieces.len()..].to_vec();
        (pieces, lists)
    }

    /// Flips a bit of the image.
    pub fn flip(&self, off: u64) {
        let byte = self.media.bytes(Extent::new(off, 1)).expect("in bounds")[0];
        self.media.store(off, &[byte ^ 8]).expect("in bounds");
    }
}

pub fn value(key: &str, len: usize) -> Vec<u8> {
    let seed = key.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    (0..len).map(|index| ((index as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
