//! Cost of a tag: sealing and opening an update of 100 and of 1000 bytes.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet};
use std::hint::black_box;

const NOW: u64 = 1_700_000_000_000_000_000;

fn tags(c: &mut Criterion) {
    let key = Key::from_hex("000102030405060708090a0b0c0d0e0f").expect("a key");
    let ends = Ends::to_server(([10, 0, 0, 1], 40_000).into(), 51_000);
    let mut group = c.benchmark_group("pmnet tag");
    for len in [100, 1000] {
        let request = vec![7; len];
        let update = Packet::new(1, 1, Body::Update(&request)).to_bytes();
        let bypass = Packet::new(1, FIRST_BYPASS, Body::Bypass { after: None, request: &request }).to_bytes();
        group.throughput(Throughput::Bytes(len as u64));
        for (name, packet) in [("update", &update), ("bypass", &bypass)] {
            let mut guard = Guard::new(key.clone(), 1);
            let mut bytes = Vec::with_capacity(2048);
            group.bench_function(format!("seal {name} {len}"), |b| {
                b.iter(|| {
                    bytes.clear();
                    bytes.extend_from_slice(packet);
                    guard.seal(ends, NOW, black_box(&mut bytes));
                });
            });
        }
        let (mut guard, mut sealed) = (Guard::new(key.clone(), 1), update.clone());
        guard.seal(ends, NOW, &mut sealed);
        group.bench_function(format!("open update {len}"), |b| {
            b.iter(|| guard.open(ends, NOW, black_box(&sealed)).is_ok());
        });
    }
    group.finish();
}

criterion_group!(benches, tags);
criterion_main!(benches);
