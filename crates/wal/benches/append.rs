//! Cost of logging: a durable append of 1 KiB by reference, compared with a copy into a fresh buffer that is flushed.
//!
//! `cargo bench -p landfall-wal --bench append`. The region is in `/dev/shm` if that directory exists.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use landfall_heap::{NewRegion, Source, Writer, create};
use landfall_media::{Dirty, Extent, OpenOptions, RUN_SIZE, Site, open};
use landfall_wal::{LogRecovery, Logs};
use std::path::PathBuf;
use std::sync::Arc;

const REGION_BYTES: u64 = 512 << 20;
const ENTRY_BYTES: u32 = 1024;
const BATCH: u64 = 64;
/// Number of appends after which the log is trimmed.
const KEEP: u64 = 50_000;
/// Distance of two entries as they land, bytes: the entry and the framing of its command.
const FRAMED: u64 = ENTRY_BYTES as u64 + 48;

struct Store {
    path: PathBuf,
    logs: Logs,
    writer: Writer,
    run: Option<(u64, u64)>,
    appends: u64,
}

impl Store {
    fn new(name: &str) -> Self {
        let dir =
            if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
        let path = dir.join(format!("landfall-bench-wal-{name}-{}", std::process::id()));
        let media = open(&path, &OpenOptions { create: Some(REGION_BYTES), ..OpenOptions::default() });
        let media = media.expect("a region for the benchmark").media;
        create(&*media, &NewRegion { salt: [7; 16], hash_seed: 9, created_ms: 1 }).expect("formatted");
        let (logs, _) = LogRecovery::run(media).expect("an empty region opens");
        let writer = Writer::new(Arc::clone(logs.heap()), 0);
        Self { path, logs, writer, run: None, appends: 0 }
    }

    /// Returns the place where the next entry lands: a transport's landing run, as the kernel or the NIC fills it.
    fn land(&mut self) -> Extent {
        let heap = Arc::clone(self.logs.heap());
        if self.run.is_none_or(|(_, used)| used + FRAMED > RUN_SIZE) {
            self.run.take().into_iter().for_each(|(run, _)| heap.retire_landing_run(run));
            self.run = heap.take_landing_run().map(|run| (run, 0));
        }
        let (run, used) = self.run.as_mut().expect("trims keep the region from filling");
        let extent = Extent::new(*run + *used, ENTRY_BYTES);
        *used += FRAMED;
        heap.runs().hold(extent);
        extent
    }

    /// Appends an entry by reference to where it landed, or by a copy.
    fn append(&mut self, by_reference: bool) {
        let extent = self.land();
        let heap = Arc::clone(self.logs.heap());
        let extents = [extent];
        let value = if by_reference {
            Source::Landed { extents: &extents, crc: None }
        } else {
            Source::Bytes(heap.media().bytes(extent).expect("in bounds"))
        };
        self.logs.append(&mut self.writer, b"bench", &[value], 1).expect("there is room").ungated();
        heap.runs().release(extent);
        self.appends += 1;
        if self.appends.is_multiple_of(BATCH) {
            self.writer.commit_now().expect("the medium works");
        }
        if self.appends.is_multiple_of(KEEP) {
            self.logs
                .trim(&mut self.writer, b"bench", self.appends - BATCH, 1)
                .expect("within the log")
                .ungated();
            self.writer.commit_now().expect("the medium works");
            self.logs.sweep(usize::MAX);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("append_1k");
    group.throughput(Throughput::Elements(1));
    for (name, by_reference) in [("by_reference", true), ("copied", false)] {
        let mut store = Store::new(name);
        group.bench_function(name, |b| b.iter(|| store.append(by_reference)));
    }
    // The least that an application's own log does: copy each entry to a fresh place, flush it, fence once a batch.
    let mut store = Store::new("bare");
    let (media, mut dirty, mut at, mut count) =
        (Arc::clone(store.logs.heap().media()), Dirty::new(), 0, 0u64);
    group.bench_function("copy_and_flush_alone", |b| {
        b.iter(|| {
            let from = store.land();
            store.logs.heap().runs().release(from);
            let to = Extent::new((256 << 20) + at % (200 << 20), ENTRY_BYTES);
            at += u64::from(ENTRY_BYTES);
            media.store(to.off, media.bytes(from).expect("in bounds")).expect("in bounds");
            media.flush(&mut dirty, Site::Data, to);
            count += 1;
            if count.is_multiple_of(BATCH) {
                media.fence(&mut dirty, Site::Commit).expect("the medium works");
            }
        })
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
