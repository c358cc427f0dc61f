//! The cost of a durable 1 KiB SET by reference, without a network.
//!
//! `cargo bench -p landfall-kv --bench set`. The region lies in `/dev/shm` if that exists.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use landfall_heap::{NewRegion, Source, Writer};
use landfall_kv::{Engine, Recovery, SetRequest};
use landfall_media::{Extent, FlushInstruction, OpenOptions, RUN_SIZE};
use std::path::PathBuf;
use std::sync::Arc;

const REGION_BYTES: u64 = 512 << 20;
const VALUE_BYTES: u32 = 1024;
const BATCH: u64 = 64;

struct Store {
    path: PathBuf,
    engine: Engine,
    writer: Writer,
    run: Option<(u64, u64)>,
    sets: u64,
}

impl Store {
    fn new(name: &str, flush: Option<FlushInstruction>) -> Self {
        let dir =
            if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
        let path = dir.join(format!("landfall-bench-{name}-{}", std::process::id()));
        let options = OpenOptions { create: Some(REGION_BYTES), flush, ..OpenOptions::default() };
        let media = landfall_media::open(&path, &options).expect("a region for the benchmark").media;
        landfall_heap::create(&*media, &NewRegion { salt: [7; 16], hash_seed: 9, created_ms: 1 })
            .expect("formatted");
        let (engine, _) = Recovery::run(media, 4).expect("an empty region opens");
        let writer = Writer::new(Arc::clone(engine.heap()), 0);
        Self { path, engine, writer, run: None, sets: 0 }
    }

    /// Does what a transport and a worker do: the value lands, the command runs, the landing reference is released.
    fn set(&mut self, key: &[u8]) {
        let heap = Arc::clone(self.engine.heap());
        let framed = u64::from(VALUE_BYTES) + 48;
        if self.run.is_none_or(|(_, used)| used + framed > RUN_SIZE) {
            if let Some((run, _)) = self.run.take() {
                heap.retire_landing_run(run);
            }
            self.run = heap.take_landing_run().map(|run| (run, 0));
        }
        let (run, used) = self.run.as_mut().expect("overwrites keep the region from filling");
        let extent = Extent::new(*run + *used, VALUE_BYTES);
        *used += framed;
        heap.runs().hold(extent);
        let value = Source::Landed { extents: &[extent], crc: None };
        let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        self.engine.set(&mut self.writer, &request).expect("room for overwrites").ungated();
        heap.runs().release(extent);
        self.sets += 1;
        if self.sets.is_multiple_of(BATCH) {
            self.writer.commit_now().expect("the medium works");
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("set_1k");
    group.throughput(Throughput::Elements(1));
    for (name, flush) in [("best_flush", None), ("no_flush", Some(FlushInstruction::None))] {
        let mut store = Store::new(name, flush);
        let mut compactor = landfall_heap::Compactor::new(Arc::clone(store.engine.heap()));
        let goal = landfall_heap::CompactGoal::free(store.engine.heap().clean_below());
        group.bench_function(format!("one_key/{name}"), |b| {
            b.iter(|| {
                store.set(b"key:__rand_int__");
                if store.sets.is_multiple_of(8192) {
                    compactor.step(&store.engine, goal, 1 << 20).expect("compaction works");
                }
            })
        });
        let mut n = 0u64;
        group.bench_function(format!("100k_keys_in_turn/{name}"), |b| {
            b.iter(|| {
                n = (n + 7919) % 100_000;
                store.set(format!("key:{n:012}").as_bytes());
                if store.sets.is_multiple_of(256) {
                    compactor.step(&store.engine, goal, 256 << 10).expect("compaction works");
                }
            })
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
