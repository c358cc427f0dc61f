//! Compares index structures: a hash table beside an ordered set, an ordered map alone, a concurrent B+ tree.
//!
//! `cargo bench -p landfall-kv --bench index` measures time, `cargo run --release -p landfall-kv --example
//! index_memory` memory. The results are in docs/results/kv/index-structures.md.

mod candidates;

use candidates::{HashAndSet, Index, Key, Map, TableAndSet, Tree, random_keys};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;

const COUNTS: [u32; 2] = [100_000, 1_000_000];
/// New keys inserted into one clone of the index.
const NEW_KEYS: u32 = 10_000;
const SCAN_KEYS: usize = 1000;
/// Coprime to the counts, so that a walk visits every key, in an order that defeats prefetching.
const STRIDE: usize = 7_919;

/// A walk over present keys with a fixed stride.
struct Walk<'k> {
    keys: &'k [Key],
    at: usize,
}

impl Walk<'_> {
    fn next(&mut self) -> (u32, Key) {
        self.at = (self.at + STRIDE) % self.keys.len();
        (self.at as u32, self.keys[self.at])
    }
}

fn candidate<I: Index>(criterion: &mut Criterion) {
    for count in COUNTS {
        let keys = random_keys(count + NEW_KEYS);
        let there = &keys[..count as usize];
        let mut index = I::build(there);
        assert_eq!(index.get(&keys, &there[1]), Some(1), "{} finds what it was built from", I::NAME);
        let mut walk = Walk { keys: there, at: 0 };
        one(criterion, "lookup", I::NAME, count, 1, || {
            let (_, key) = walk.next();
            black_box(index.get(&keys, &key));
        });
        one(criterion, "scan of 1000", I::NAME, count, SCAN_KEYS as u64, || {
            let (_, key) = walk.next();
            black_box(index.scan(&key, SCAN_KEYS));
        });
        one(criterion, "overwrite twice", I::NAME, count, 2, || {
            let (slot, key) = walk.next();
            index.overwrite(&keys, &key, slot);
        });
        drop(index);
        insert::<I>(criterion, &keys, count);
        build::<I>(criterion, there, count);
    }
}

fn one(criterion: &mut Criterion, what: &str, name: &str, count: u32, elements: u64, mut run: impl FnMut()) {
    let mut group = criterion.benchmark_group(what);
    group.throughput(Throughput::Elements(elements));
    group.bench_function(BenchmarkId::new(name, count), |bencher| bencher.iter(&mut run));
    group.finish();
}

/// Measures inserts of new keys into an index of `count` keys.
fn insert<I: Index>(criterion: &mut Criterion, keys: &[Key], count: u32) {
    let mut group = criterion.benchmark_group("insert of 10000 new keys");
    group.throughput(Throughput::Elements(u64::from(NEW_KEYS))).sample_size(10);
    group.bench_function(BenchmarkId::new(I::NAME, count), |bencher| {
        bencher.iter_batched_ref(
            || I::build(&keys[..count as usize]),
            |index| {
                (count..).zip(&keys[count as usize..]).for_each(|(slot, key)| index.insert(keys, key, slot))
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Measures the bulk build, as recovery does it.
fn build<I: Index>(criterion: &mut Criterion, keys: &[Key], count: u32) {
    let mut group = criterion.benchmark_group("bulk rebuild");
    group.throughput(Throughput::Elements(u64::from(count))).sample_size(10);
    group.bench_function(BenchmarkId::new(I::NAME, count), |bencher| {
        bencher.iter_with_large_drop(|| I::build(keys));
    });
    group.finish();
}

criterion_group! {
    name = index;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = candidate::<TableAndSet>, candidate::<HashAndSet>, candidate::<Map>, candidate::<Tree>
}
criterion_main!(index);
