//! Fills each of the five structures, in a separate region in a temporary file, and times durable inserts.
//!
//! `cargo run --release -p landfall-bench-handlers --example structures -- /dev/shm`; without a folder, the files are
//! in the system's temporary one.
#![allow(clippy::print_stdout, reason = "it is a command-line example")]

use landfall_bench_handlers::{Op, Request, Store, StoreOptions, Structure};
use landfall_media::{Media, MediaKind, OpenOptions, RUN_SIZE, open};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const CAPACITY: u64 = 128 * RUN_SIZE;
const KEY_BYTES: usize = 16;
/// Payload of a request in the paper's evaluation, bytes.
const VALUE_BYTES: usize = 100;
/// Inserts that share a commit, in the second column.
const BATCH: u64 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, Into::into);
    let folder = tempfile::tempdir_in(folder)?;
    println!("{:10} {:>8} {:>12} {:>12} {:>12}", "", "entries", "µs, alone", "µs, of 64", "µs, get");
    for structure in Structure::ALL {
        let path = folder.path().join(structure.name());
        fill(&path, structure)?;
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn fill(path: &Path, structure: Structure) -> Result<(), Box<dyn Error>> {
    let options = OpenOptions { create: Some(CAPACITY), ..OpenOptions::default() };
    let media = open(path, &options)?.media;
    // A commit to a file waits for its device.
    let count = if media.kind() == MediaKind::File { 1024 } else { 65_536 };
    let mut store = Store::create(Arc::clone(&media), StoreOptions::new(structure))?;
    let alone = insert(&mut store, 0..count, 1)?;
    let batched = insert(&mut store, count..2 * count, BATCH)?;
    let start = Instant::now();
    for number in 0..2 * count {
        let response = store.apply(&request(Op::Get, number, &[]), None)?;
        assert_eq!(response.len(), 1 + VALUE_BYTES, "a value comes back");
    }
    let get = micros(start, 2 * count);
    println!("{:10} {:8} {alone:12.2} {batched:12.2} {get:12.2}", structure.name(), store.len()?);
    reopened(store, media)
}

/// Inserts numbered keys and commits every `batch` of them. Returns microseconds for each insert.
fn insert(store: &mut Store, numbers: std::ops::Range<u64>, batch: u64) -> Result<f64, Box<dyn Error>> {
    let (start, count) = (Instant::now(), numbers.end - numbers.start);
    for number in numbers {
        // The row of a session: the number of the request that was applied last.
        let row = number.to_le_bytes();
        store.apply(&request(Op::Set, number, &[7; VALUE_BYTES]), Some((b"session", &row)))?;
        if (number + 1) % batch == 0 {
            store.commit()?;
        }
    }
    store.commit()?;
    Ok(micros(start, count))
}

/// Opens the store again, as after a crash, and checks all of it.
fn reopened(store: Store, media: Arc<dyn Media>) -> Result<(), Box<dyn Error>> {
    let (structure, len) = (store.structure(), store.len()?);
    drop(store);
    let store = Store::open(media, StoreOptions::new(structure))?;
    store.check()?;
    assert_eq!(store.len()?, len, "everything that was committed is there");
    Ok(())
}

fn request(op: Op, number: u64, value: &[u8]) -> Vec<u8> {
    // Scattered, so that consecutive inserts are not neighbours in key order.
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [b'-'; KEY_BYTES];
    key[..8].copy_from_slice(&spread.to_le_bytes());
    Request { op, key: &key, value }.encode()
}

fn micros(start: Instant, count: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64 / 1000.0
}
